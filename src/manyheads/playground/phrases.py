"""Sampling noun phrases: people, animals and things, with possessors, numbers and relative clauses."""

from dataclasses import replace

from manyheads.playground.lexicon import HE, SHE, THEY, WE, YOU, I
from manyheads.playground.meaning import (
    GAP,
    Adjective,
    Clause,
    Coordination,
    Entity,
    Noun,
    Phrase,
    Place,
    Pronoun,
    Tense,
    Verb,
    get_person,
    is_plural,
)
from manyheads.playground.vocabulary import Vocabulary

FOOD = ("fruit", "vegetable", "dish", "rice", "baked", "mixed", "snack", "drink", "hot_drink")
# Verbs whose object is definite or generic: never "a cat", never "three cats".
TALKED_OF = ("like", "love", "collect")
KNOWN = ("miss", "hug", "follow")  # verbs whose object is always definite
CREATING = ("write", "build", "bake", "make", "cook")  # verbs whose object is new: not old, without possessor
ACQUIRING = ("buy", "borrow", "order", "choose")  # verbs whose object does not belong to the subject
# Verbs for daily or weekly habits; others take "often" at most.
HABITS = (
    *("go", "eat", "read", "drink", "meet", "help", "sleep", "write", "come", "sing", "work", "walk"),
    *("get up", "cook", "study", "watch", "run", "clean", "visit", "call", "play", "learn", "teach"),
    *("bake", "swim", "talk with", "buy", "wash", "use", "dance", "wake up", "fall asleep", "wear"),
    *("turn on", "turn off", "draw", "order", "wait for", "make", "take a rest", "come back"),
)
BULK = (
    "buy",
    "sell",
    "choose",
    "bring",
    "see",
    "draw",
    "plant",
    "bake",
    "make",
    "have",
)  # verbs that take numbers above four
BARE = ("sport", "racket", "board", "subject", "language", "meal")  # categories without an article
# More often the speaker than third persons, whom Korean leaves out where it can.
PRONOUNS = (I, I, WE, HE, SHE, THEY)
OWNERS = (I, I, I, WE, WE, HE, SHE, THEY)


class PhraseSampler(Vocabulary):
    """Samples noun phrases."""

    def sample_person(self, subject: Entity | None = None) -> Entity:
        """Sample a person other than the subject. A pronoun never could refer to the subject."""
        draw = self.random()
        if draw < 0.3:
            pronoun = self.pick(PRONOUNS)
            return self.sample_noun_person(other_than=subject) if self.clashes(pronoun, subject) else pronoun
        if draw < 0.45:
            name = self.pick(self.names)
            return self.sample_noun_person() if name is subject or type(subject) is Coordination else name
        if draw < 0.6 and "possessive" in self.allowed:
            return self.sample_relation(subject)
        return self.sample_noun_person(plain=False, other_than=subject)

    def clashes(self, pronoun: Pronoun, subject: Entity | None) -> bool:
        if subject is None:
            return False
        if get_person(subject) < 3 or type(subject) is Coordination:
            return get_person(subject) == pronoun.person or type(subject) is Coordination
        return subject is pronoun

    def sample_noun_person(self, plain: bool = True, other_than: Entity | None = None) -> Phrase:
        """Sample a person by noun, never the noun of `other_than`."""
        noun = self.pick(self.nouns["person"])
        if type(other_than) is Phrase and other_than.noun is noun:
            noun = self.nouns["person"][self.nouns["person"].index(noun) - 1]
        if plain:
            return Phrase(noun)
        draw, adjective = self.random(), self.sample_adjective(noun)
        if draw < 0.15:
            return Phrase(noun, plural=True, adjective=adjective)
        if draw < 0.22:
            return Phrase(noun, "this", adjective=adjective)
        return Phrase(noun, adjective=adjective)

    def sample_adjective(self, noun: Noun) -> Adjective | None:
        fitting = self.adjectives_by_category.get(noun.category)
        if not fitting or not self.may("adjective", 0.33):
            return None
        adjective = self.pick(fitting)
        return None if adjective.en == "young" and noun in self.nouns["youth"] else adjective

    def sample_relation(self, subject: Entity | None) -> Phrase:
        """Sample a relation: my mother, Mina's friend."""
        return Phrase(self.pick(self.relatives), "", possessor=self.sample_owner(subject))

    def sample_owner(self, subject: Entity | None) -> Entity:
        """Sample a possessor, mostly a pronoun, and more often than not that of the subject."""
        if type(subject) is Pronoun and subject.person != 2 and self.random() < 0.6:
            return subject
        draw = self.random()
        if draw < 0.65:
            return self.pick(OWNERS)
        if draw < 0.78:
            noun = self.pick(self.nouns["person"])
            return I if noun in self.nouns["youth"] else Phrase(noun)
        name = self.pick(self.names)
        return I if name is subject else name

    def sample_human_subject(self) -> Entity:
        if self.may("coordination", 0.06):
            return self.sample_couple()
        if self.may("number", 0.05):
            return Phrase(self.pick(self.nouns["person"]), "", count=2 + int(self.random() * 4))
        someone = self.sample_person()
        if type(someone) is Phrase and someone.determiner == "the" and self.may("relative", 0.18):
            return replace(someone, relative=self.sample_person_relative(someone))
        return someone

    def sample_couple(self) -> Coordination:
        first: Entity = self.pick(self.names)
        others: tuple[Entity, ...] = (I, self.pick(self.names), Phrase(self.pick(self.nouns["person"])))
        second = self.pick(others)
        return Coordination(first, I if second is first else second)

    def sample_animal_subject(self, categories: tuple[str, ...]) -> Phrase:
        noun = self.pick(self.nouns[self.pick(categories)])
        if self.may("number", 0.15):
            return Phrase(noun, "", count=2 + int(self.random() * 5))
        adjective, plural = self.sample_adjective(noun), self.random() < 0.2
        if noun.category == "pet" and self.may("possessive", 0.35):
            return Phrase(noun, "", plural=plural, adjective=adjective, possessor=self.sample_owner(None))
        return Phrase(noun, self.pick(("the", "the", "this")), plural=plural, adjective=adjective)

    def sample_subject(self, verb: Verb) -> Entity:
        if "youth" in verb.subject_categories:
            return self.sample_young_person()
        if "person" in verb.subject_categories and (len(verb.subject_categories) == 1 or self.random() < 0.6):
            return self.sample_human_subject()
        return self.sample_animal_subject(
            tuple(category for category in verb.subject_categories if category != "person")
        )

    def sample_young_person(self) -> Entity:
        if self.random() < 0.5 or not self.nouns["youth"]:
            anyone: tuple[Entity, ...] = (WE, THEY, HE, SHE, *self.names)
            return self.pick(anyone)
        noun, draw = self.pick(self.nouns["youth"]), self.random()
        if draw < 0.3 and "number" in self.allowed:
            return Phrase(noun, "", count=2 + int(self.random() * 4))
        return Phrase(noun, plural=draw < 0.5, adjective=self.sample_adjective(noun))

    def sample_object(self, verb: Verb, subject: Entity | None, negative: bool) -> Entity | None:
        if not verb.object_categories:
            return None
        things = self.things_by_verb[verb]
        if "person" in verb.object_categories and (not things or self.random() < 0.6):
            return self.sample_person_object(subject)
        noun = self.pick(things)
        if not negative and verb.en != "wear" and self.may("coordination", 0.06):
            return self.sample_noun_pair(noun, things, verb)
        return self.sample_thing(noun, verb, subject, negative)

    def sample_person_object(self, subject: Entity | None) -> Entity:
        someone = self.sample_other_person(subject)
        if type(someone) is Phrase and someone.determiner == "the" and self.may("relative", 0.18):
            return replace(someone, relative=self.sample_person_relative(someone))
        return someone

    def sample_other_person(self, subject: Entity | None) -> Entity:
        """Sample a person as an object, sometimes the listener: I love you."""
        if self.random() < 0.08 and subject is not None and get_person(subject) != 2:
            return YOU
        return self.sample_person(subject)

    def sample_recipient(self, entity: Entity | None, subject: Entity) -> Entity:
        """Sample a recipient who is not the possessor of the object."""
        someone = self.sample_other_person(subject)
        owned = type(entity) is Phrase and type(someone) is not Pronoun and entity.possessor is someone
        return self.sample_noun_person(other_than=subject) if owned else someone

    def sample_noun_pair(self, noun: Noun, things: tuple[Noun, ...], verb: Verb) -> Entity:
        """Sample two nouns of one category with the same article: an apple and a pear."""
        other = self.pick(things)
        if other is noun or other.category != noun.category:
            return self.make_definite(noun)
        whole_kind = verb.en in TALKED_OF or noun.plural in ("", noun.en)
        if noun.de_bare or (verb.en not in TALKED_OF and self.random() < 0.5 and noun.category not in BARE):
            return Coordination(self.make_definite(noun), self.make_definite(other))
        return Coordination(self.make_indefinite(noun, whole_kind), self.make_indefinite(other, whole_kind))

    def make_definite(self, noun: Noun) -> Phrase:
        if noun.category in BARE:
            return Phrase(noun, "")
        return Phrase(noun, plural=noun.plural == noun.en)

    def make_indefinite(self, noun: Noun, whole_kind: bool) -> Phrase:
        if not noun.plural:
            return Phrase(noun, "")
        return Phrase(noun, "", plural=True) if whole_kind or noun.plural == noun.en else Phrase(noun, "a")

    def sample_thing(self, noun: Noun, verb: Verb, subject: Entity | None, negative: bool) -> Phrase:
        if noun.category in BARE or noun.de_bare:
            return Phrase(noun, "the" if noun.de_bare else "")
        if noun.category in ("place", "city"):
            return Phrase(noun)
        one_each = verb.en == "wear" and subject is not None and is_plural(subject)
        draw, many = self.random(), noun.plural == noun.en or verb.en == "collect" or one_each
        known = verb.en in TALKED_OF or verb.en in KNOWN
        countable = bool(noun.plural and not many) or noun.measure is not None
        if countable and not negative and not known and verb.en != "wear" and self.may("number", 0.18):
            many_more = verb.en in BULK and self.random() < 0.4
            count = 5 + int(self.random() * 8) if many_more else 1 + int(self.random() * 4)
            return Phrase(noun, "", plural=many, count=count)
        adjective = self.sample_adjective(noun)
        if adjective and adjective.en == "old" and verb.en in CREATING:
            adjective = None
        owner = self.sample_thing_owner(noun, verb, subject)
        if owner:
            return Phrase(noun, "", plural=many, adjective=adjective, possessor=owner)
        if draw < 0.1:
            return Phrase(noun, "this", plural=many, adjective=adjective)
        if draw < 0.4:
            phrase = Phrase(
                noun,
                plural=many or (draw < 0.15 and bool(noun.plural) and verb.en != "wear"),
                adjective=adjective,
            )
            return self.add_relative(phrase, verb) if self.may("relative", 0.2) else phrase
        if verb.en in KNOWN:
            return Phrase(noun, adjective=adjective)
        if known or many or not noun.plural or (draw < 0.5 and verb.en != "wear"):
            return Phrase(noun, "", plural=bool(noun.plural), adjective=adjective)
        return Phrase(noun, "a", adjective=adjective)

    def sample_thing_owner(self, noun: Noun, verb: Verb, subject: Entity | None) -> Entity | None:
        if noun.category in ("animal", "prey", "bird") or verb.en in CREATING:
            return None
        seldom = (*FOOD, "show", "song", "tree", "building", "height", "opening")
        if not self.may("possessive", 0.03 if noun.category in seldom else 0.22):
            return None
        owner = self.sample_owner(subject)
        own = type(owner) is Pronoun and subject is not None and owner.person == get_person(subject)
        return None if own and verb.en in ACQUIRING else owner

    def sample_goal(self, verb: Verb) -> Place | None:
        goals = self.list_goals(verb)
        return self.pick(goals) if goals else None

    def list_goals(self, verb: Verb) -> tuple[Place, ...]:
        return self.places.get("go" if verb.takes_goal else verb.en, ())

    # ---- relative clauses: short, so that what follows attaches to the main clause

    def sample_relative_tense(self, verb: Verb) -> Tense:
        """Sample mostly the past, which identifies somebody better than the present."""
        usual = verb.is_stative or (verb.en in HABITS and verb.en not in ACQUIRING)
        if verb.en_past == verb.en or not self.may("tense", 0.75 if usual else 1.0):
            return "present"
        return "past"

    def sample_person_relative(self, someone: Phrase) -> Clause | None:
        """Sample a relative clause of a person: who bought a car; whom we know."""
        if self.random() < 0.25 and self.person_verbs:
            verb = self.pick(self.person_verbs)
            if verb.ko_particle != "을":
                return None
            knowing: tuple[Entity, ...] = (I, WE, self.pick(self.names))
            return self.make_object_relative(verb, self.pick(knowing))
        verb = self.pick(self.human_verbs)
        if verb.takes_location or verb.takes_goal or verb.needs_vehicle:
            goal = self.sample_goal(verb)
            return Clause(verb, GAP, goal=goal, tense=self.sample_relative_tense(verb)) if goal else None
        if verb.is_ditransitive or "person" in verb.object_categories or not verb.object_categories:
            return None
        noun = self.pick(self.things_by_verb[verb])
        whole_kind = someone.plural or verb.en in TALKED_OF or noun.plural in ("", noun.en)
        object_ = (
            self.make_definite(noun)
            if noun.de_bare or noun.category == "place"
            else self.make_indefinite(noun, whole_kind)
        )
        return Clause(verb, GAP, object_, tense=self.sample_relative_tense(verb))

    def make_object_relative(self, verb: Verb, subject: Entity) -> Clause:
        return Clause(verb, subject, GAP, tense=self.sample_relative_tense(verb))

    def add_relative(self, phrase: Phrase, main: Verb | None = None) -> Phrase:
        """Add a relative clause to an object: the book that the child reads."""
        fitting = self.verbs_by_category.get(phrase.noun.category)
        if not fitting:
            return phrase
        verb = self.pick(fitting)
        if verb.is_ditransitive or verb is main or verb.ko_particle != "을":
            return phrase
        doers: tuple[Entity, ...] = (
            *(I, WE),  # "he" could be the subject
            self.pick(self.names),
            Phrase(self.pick(self.nouns["person"])),
        )
        return replace(phrase, relative=self.make_object_relative(verb, self.pick(doers)))
