"""Draws meanings that make sense: who can do what to what, where, when and how.

The draw is a function of the seed alone, on every Python: `random.Random(seed).random` and nothing else.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from manyheads.text.playground.lexicon import (
    ALL_ADJECTIVES,
    ALL_CITIES,
    ALL_DEGREES,
    ALL_MANNERS,
    ALL_NAMES,
    ALL_NOUNS,
    ALL_PLACES,
    ALL_REPORTING,
    ALL_TIMES,
    ALL_VERBS,
    HE,
    HOME,
    RAINING,
    SHE,
    SNOWING,
    THEY,
    WE,
    WEATHER_ADJECTIVES,
    YOU,
    I,
)
from manyheads.text.playground.meaning import (
    GAP,
    Adjective,
    Asked,
    Because,
    Both,
    Clause,
    Entity,
    Existence,
    Joined,
    Manner,
    Modal,
    Noun,
    Phrase,
    Place,
    Pronoun,
    Reported,
    Sentence,
    Tense,
    Time,
    Verb,
    Weather,
    has_relative,
    is_plural,
    person_of,
)

Option = TypeVar("Option")

PEOPLE = ("person", "kin")
FOOD = ("fruit", "vegetable", "dish", "rice", "baked", "mixed", "snack", "drink", "hot_drink")
# Whose object is known or a whole kind: never "a cat", never three of them.
TALKED_OF = ("like", "love", "collect")
KNOWN = ("miss", "hug", "follow")  # whose object is always one that we know
PASSING = ("happy", "tired", "hungry", "busy", "sad", "sick", "thirsty", "lonely")  # true for a while
OWNED_PEOPLE = ("teacher", "guest")
CREATING = ("write", "build", "bake", "make", "cook")  # whose object is not there before: not old, nobody's
ACQUIRING = ("buy", "borrow", "order", "choose")  # whose object is not one's own
AT_HOME = ("read", "eat", "study", "cook", "play", "stay")
SOCIAL = ("go", "eat", "work", "cook", "read", "sing", "alone", "together", "well")
DAYS = ("", "yesterday ", "tomorrow ")
PARTS_OF_DAY = {
    "dawn": (
        "tomorrow morning",
        "every morning",
        "every day",
        *(f"{day}at {hour} o'clock" for day in DAYS for hour in ("five", "six", "seven", "eight")),
    ),
    "dusk": (
        "last night",
        "every day",
        *(f"{day}at {hour} o'clock" for day in DAYS for hour in ("nine", "ten", "eleven")),
    ),
    "mood": ("yesterday", "last night", "last week", "last weekend", "two days ago", "tomorrow"),
}
# What people do every day, or every week; of anything else one says at most that it happens often.
HABITS = (
    *("go", "eat", "read", "drink", "meet", "help", "sleep", "write", "come", "sing", "work", "walk"),
    *("get up", "cook", "study", "watch", "run", "clean", "visit", "call", "play", "learn", "teach"),
    *("bake", "swim", "talk with", "buy", "wash", "use", "dance", "wake up", "fall asleep", "wear"),
    *("turn on", "turn off", "draw", "order", "wait for", "make"),
)
COLORS = ("red", "blue", "yellow", "white", "black")  # no thing is very red here
OBSERVED = ("yesterday", "last night", "two days ago", "now")  # when one saw what an animal did
MOMENTARY = ("thank", "answer", "ask", "invite")  # over before one can say that it goes on
UNPLANNED = ("hug", "laugh", "cry", "smile", "follow", "hide")  # nobody has to, or wants to, or can
BULK = ("buy", "sell", "choose", "bring", "see", "draw", "plant", "bake", "make", "have")  # more than four
DENS = {
    "pet": "play",
    "animal": "wild",
    "exotic": "zoo",
    "livestock": "farm",
    "prey": "stroll",
    "bird": "stroll",
}
BARE = ("sport", "racket", "board", "subject", "language")  # said without an article
LOCAL = ("bus", "subway", "bicycle", "taxi", "car")

# What follows from a state or from the weather: a verb, with a noun or a place where it needs one.
CONSEQUENCES = {
    "tired": "sleep; go home; stay home; drink coffee; not work; not dance; not cook soup",
    "hungry": "eat bread; eat rice; eat apple; eat sandwich; cook soup; cook fish; buy bread; buy pizza; "
    "go restaurant; order noodles; order pizza; eat fish; eat soup; make sandwich; eat noodles; buy cake",
    "thirsty": "drink water; drink juice; drink milk; drink tea; drink lemonade; order juice; buy water",
    "sick": "go hospital; stay home; not work; not dance; not come school; not come office; sleep",
    "busy": "not sleep; not go cinema; not go beach; not go park; not come museum; not dance; "
    "not watch movie; not cook soup; not go theater; not clean room; not bake cake",
    "sad": "cry; not laugh; not smile; not dance; not sing song",
    "happy": "laugh; sing song; dance; smile; buy flower; bake cake; plant tree",
    "lonely": "cry; write letter; write poem; not laugh; watch movie",
    "rain": "stay home; not go park; not go beach; not come market; read book; not play soccer; watch movie",
    "snow": "stay home; wear coat; wear boots; not go market; drink cocoa; not come school; not play tennis",
    "cold": "wear coat; close window; drink tea; drink cocoa; stay home; not swim; close door",
    "hot": "open window; drink water; drink juice; swim; eat ice cream; not wear coat; open door",
}


class Author:
    """Writes meanings from a seed: with the constructions allowed, and the first words of each class."""

    def __init__(self, seed: int, constructions: frozenset[str], words: int | None) -> None:
        self.random = random.Random(seed).random
        self.allowed = constructions
        self.nouns = {kind: nouns[:words] for kind, nouns in ALL_NOUNS.items()}
        self.verbs = ALL_VERBS[:words]
        self.adjectives = ALL_ADJECTIVES[:words]
        self.names = ALL_NAMES[:words]
        self.cities = ALL_CITIES[:words]
        self.reporting = ALL_REPORTING[:words]
        young = ("child", "girl", "boy")
        self.nouns["youth"] = tuple(noun for noun in self.nouns["person"] if noun.en in young)
        self.set_places(words)
        self.set_times(words)
        self.manners: dict[str, tuple[Manner, ...]] = {}
        for manner, groups in ALL_MANNERS[:words]:
            for group in groups:
                self.manners[group] = (*self.manners.get(group, ()), manner)
        self.set_verbs()
        self.set_words()
        self.consequences = self.known_consequences()
        self.makers = self.weigh()

    def set_places(self, words: int | None) -> None:
        self.places: dict[str, tuple[Place, ...]] = dict.fromkeys(AT_HOME, (HOME,))
        for place, groups in ALL_PLACES[:words]:
            for group in groups:
                self.places[group] = (*self.places.get(group, ()), place)
        for den, names in (("wild", ("zoo", "forest")), ("zoo", ("zoo",)), ("farm", ("farm",))):
            self.places[den] = tuple(place for place, _ in ALL_PLACES[:words] if place.noun.en in names)
        for group in ("live", "arrive", "stay"):
            self.places[group] = (*self.places.get(group, ()), *self.cities)
        self.places["go"] = (HOME, *self.places.get("go", ()))
        spots = [place for place, _ in ALL_PLACES[:words]]
        self.nouns["place"] = tuple(place.noun for place in spots)
        self.nouns["room"] = tuple(place.noun for place in self.places.get("room", ()))
        self.nouns["site"] = tuple(place.noun for place in self.places.get("visit", ()))

    def set_times(self, words: int | None) -> None:
        capped: list[Time] = list(ALL_TIMES if words is None else ())
        for tense in ("present", "progressive", "past", "future"):
            fitting = [time for time in ALL_TIMES if tense in time.tenses]
            capped += [time for time in fitting[:words] if time not in capped]
        self.frequencies = tuple(time for time in capped if time.en in ("often", "sometimes"))
        self.times: dict[tuple[str, Tense], tuple[Time, ...]] = {}
        tenses: tuple[Tense, ...] = ("present", "progressive", "past", "future")
        for tense in tenses:
            fitting = [time for time in capped if tense in time.tenses]
            self.times["long", tense] = tuple(time for time in fitting if time.scale != "clock")
            self.times["", tense] = tuple(time for time in fitting if time.scale == "")
            self.times["years", tense] = tuple(
                time for time in fitting if time.scale == "long" or tense == "progressive"
            )
            told_by_hour = tuple(time for time in fitting if time.scale == "clock" and tense != "present")
            self.times["clock", tense] = told_by_hour or self.times["", tense]
            for part, names in PARTS_OF_DAY.items():
                self.times[part, tense] = tuple(
                    time for time in fitting if time.en in names and time.scale != "long"
                )

    def set_verbs(self) -> None:
        def can(verb: Verb) -> bool:
            return not verb.objects or any(self.nouns[kind] for kind in verb.objects)

        self.verbs = tuple(verb for verb in self.verbs if can(verb))
        human = [verb for verb in self.verbs if "person" in verb.subjects]
        self.simple = tuple(verb for verb in human if not (verb.objects or verb.motion or verb.stays))
        self.acts = tuple(verb for verb in human if not verb.state and not verb.sudden)
        self.human = tuple(human)
        unasked = ("travel", "look for", *(() if "negation" in self.allowed else ("cry",)))
        self.commanded = tuple(verb for verb in self.acts if verb.en not in unasked)
        spellings = [verb.en for verb in ALL_VERBS]
        self.with_thing = tuple(  # "what do you wear" would not tell 입다 from 신다
            verb
            for verb in human
            if verb.objects
            and verb.objects[0] not in PEOPLE
            and spellings.count(verb.en) == 1
            and verb.en != "turn on"
        )
        self.with_person = tuple(verb for verb in human if "person" in verb.objects)
        self.located = tuple(verb for verb in human if self.places.get(verb.places) and verb.places != "buy")
        self.staying = tuple(verb for verb in human if verb.en == "live")
        self.going = tuple(verb for verb in human if verb.motion and not verb.rides and verb.en == "go")
        self.things_of = {
            verb: tuple(noun for kind in verb.objects if kind not in PEOPLE for noun in self.nouns[kind])
            for verb in self.verbs
        }
        self.verbs_for: dict[str, tuple[Verb, ...]] = {}
        for verb in human:
            for kind in verb.objects:
                self.verbs_for[kind] = (*self.verbs_for.get(kind, ()), verb)

    def set_words(self) -> None:
        self.adjectives_for: dict[str, tuple[Adjective, ...]] = {}
        for adjective in self.adjectives:
            for kind in adjective.kinds:
                if adjective.attributive:
                    self.adjectives_for[kind] = (*self.adjectives_for.get(kind, ()), adjective)
        self.kinds_of = {
            adjective: tuple(kind for kind in adjective.kinds if self.nouns.get(kind))
            for adjective in self.adjectives
        }
        self.predicative = tuple(
            adjective for adjective in self.adjectives if adjective.predicative and self.kinds_of[adjective]
        )
        self.relatives = self.nouns["kin"] + tuple(
            noun for noun in self.nouns["person"] if noun.en in OWNED_PEOPLE
        )
        self.professions = tuple(noun for noun in self.nouns["person"] if noun.feminine)
        self.found_somewhere = self.inhabitants()

    def inhabitants(self) -> tuple[tuple[Noun, tuple[Place, ...]], ...]:
        """Who and what can be where, of those whose place is known."""
        homes = DENS | dict.fromkeys(("furniture", "item", "print", "keepsake"), "room") | {"person": "meet"}
        return tuple(
            (noun, self.places[home])
            for kind, home in homes.items()
            for noun in self.nouns[kind]
            if self.places.get(home)
        )

    def known_consequences(self) -> tuple[tuple[Adjective | Verb, tuple[Clause, ...]], ...]:
        """Those whose words are all within the cap, as clauses that wait for a subject and a tense."""
        causes: dict[str, Adjective | Verb] = {}
        if "adjective" in self.allowed:
            causes = {word.en: word for word in self.adjectives if word.en in PASSING}
        causes |= {word.en: word for word in WEATHER_ADJECTIVES if word.en in CONSEQUENCES}
        causes |= {"rain": RAINING, "snow": SNOWING}
        known = []
        for english, cause in causes.items():
            made = [self.consequence(told) for told in CONSEQUENCES[english].split("; ")]
            fitting = tuple(clause for clause in made if clause is not None)
            if fitting:
                known.append((cause, fitting))
        return tuple(known)

    def consequence(self, told: str) -> Clause | None:
        negative = told.startswith("not ")
        english, _, word = told.removeprefix("not ").partition(" ")
        if negative and "negation" not in self.allowed:
            return None
        for verb in (verb for verb in self.verbs if verb.en == english and not verb.rides):
            if verb.motion or verb.stays:
                spots = (place for place in self.places["go"] if place.noun.en == word)
                return next((Clause(verb, goal=place, negative=negative) for place in spots), None)
            if not word and not verb.objects:
                return Clause(verb, negative=negative)
            for noun in self.things_of[verb]:
                if noun.en == word:
                    said = Phrase(noun) if noun.kind == "opening" else self.any_of(noun, False)
                    return Clause(verb, object=said, negative=negative)
        return None

    def weigh(self) -> tuple[tuple[float, Callable[[], Sentence]], ...]:
        """The kinds of sentences, each with the share of draws up to and with it."""
        shares: list[tuple[float, bool, Callable[[], Sentence]]] = [
            (52, True, self.statement),
            (2.2, "adjective" in self.allowed, self.description),
            (0.7, bool(self.professions), self.profession),
            (5.5, "question" in self.allowed, self.question),
            (1.2, "command" in self.allowed, self.command),
            (16, "coordination" in self.allowed, self.joined),
            (0.8, "subordinate" in self.allowed and bool(self.consequences), self.because),
            (15.5, "subordinate" in self.allowed, self.reported),
            (1.4, "place" in self.allowed and bool(self.found_somewhere), self.existence),
            (0.05, True, self.weather),
        ]
        shares = [share for share in shares if share[1]]
        whole, sofar, made = sum(share for share, _, _ in shares), 0.0, []
        for share, _, maker in shares:
            sofar += share / whole
            made.append((sofar, maker))
        return tuple(made)

    def sentence(self) -> Sentence:
        draw = self.random()
        for upto, maker in self.makers:
            if draw < upto:
                return maker()
        return self.statement()

    # --- Dice

    def pick(self, options: tuple[Option, ...]) -> Option:
        return options[int(self.random() * len(options))]

    def may(self, construction: str, chance: float) -> bool:
        return construction in self.allowed and self.random() < chance

    # --- Who and what

    def person(self, subject: Entity | None = None) -> Entity:
        """Somebody other than the subject, for whom a pronoun is chosen that cannot be mistaken for it."""
        draw = self.random()
        if draw < 0.3:
            pronoun = self.pick((I, HE, SHE, WE, THEY))
            return self.somebody(besides=subject) if self.clashes(pronoun, subject) else pronoun
        if draw < 0.45:
            name = self.pick(self.names)
            return self.somebody() if name is subject or type(subject) is Both else name
        if draw < 0.6 and "possessive" in self.allowed:
            return self.relation(subject)
        return self.somebody(plain=False, besides=subject)

    def clashes(self, pronoun: Pronoun, subject: Entity | None) -> bool:
        if subject is None:
            return False
        if person_of(subject) < 3 or type(subject) is Both:
            return person_of(subject) == pronoun.person or type(subject) is Both
        return subject is pronoun

    def somebody(self, plain: bool = True, besides: Entity | None = None) -> Phrase:
        """Not the same word as `besides`: the baker helps the baker, and who is who?"""
        noun = self.pick(self.nouns["person"])
        if type(besides) is Phrase and besides.noun is noun:
            noun = self.nouns["person"][self.nouns["person"].index(noun) - 1]
        if plain:
            return Phrase(noun)
        draw, adjective = self.random(), self.adjective_for(noun)
        if draw < 0.15:
            return Phrase(noun, plural=True, adjective=adjective)
        if draw < 0.22:
            return Phrase(noun, "this", adjective=adjective)
        return Phrase(noun, adjective=adjective)

    def adjective_for(self, noun: Noun) -> Adjective | None:
        fitting = self.adjectives_for.get(noun.kind)
        if not fitting or not self.may("adjective", 0.33):
            return None
        adjective = self.pick(fitting)
        return None if adjective.en == "young" and noun in self.nouns["youth"] else adjective

    def relation(self, subject: Entity | None) -> Phrase:
        """My mother, Mina's friend."""
        return Phrase(self.pick(self.relatives), "", possessor=self.owner(subject))

    def owner(self, subject: Entity | None) -> Entity:
        """Mostly a pronoun; one that fits the subject more often than not."""
        if type(subject) is Pronoun and subject.person != 2 and self.random() < 0.6:
            return subject
        draw = self.random()
        if draw < 0.65:
            return self.pick((I, HE, SHE, WE, THEY))
        if draw < 0.78:
            noun = self.pick(self.nouns["person"])
            return I if noun in self.nouns["youth"] else Phrase(noun)
        name = self.pick(self.names)
        return I if name is subject else name

    def human_subject(self) -> Entity:
        if self.may("coordination", 0.06):
            return self.couple()
        if self.may("number", 0.05):
            return Phrase(self.pick(self.nouns["person"]), "", count=2 + int(self.random() * 4))
        someone = self.person()
        if type(someone) is Phrase and someone.determiner == "the" and self.may("relative", 0.18):
            return replace(someone, relative=self.relative_of_person(someone))
        return someone

    def couple(self) -> Both:
        first: Entity = self.pick(self.names)
        others: tuple[Entity, ...] = (I, self.pick(self.names), Phrase(self.pick(self.nouns["person"])))
        second = self.pick(others)
        return Both(first, I if second is first else second)

    def animal_subject(self, kinds: tuple[str, ...]) -> Phrase:
        noun = self.pick(self.nouns[self.pick(kinds)])
        if self.may("number", 0.15):
            return Phrase(noun, "", count=2 + int(self.random() * 5))
        adjective, plural = self.adjective_for(noun), self.random() < 0.2
        if noun.kind == "pet" and self.may("possessive", 0.35):
            return Phrase(noun, "", plural=plural, adjective=adjective, possessor=self.owner(None))
        return Phrase(noun, self.pick(("the", "the", "this")), plural=plural, adjective=adjective)

    def subject_for(self, verb: Verb) -> Entity:
        if "youth" in verb.subjects:
            return self.youngster()
        if "person" in verb.subjects and (len(verb.subjects) == 1 or self.random() < 0.6):
            return self.human_subject()
        return self.animal_subject(tuple(kind for kind in verb.subjects if kind != "person"))

    def youngster(self) -> Entity:
        if self.random() < 0.5 or not self.nouns["youth"]:
            anyone: tuple[Entity, ...] = (WE, THEY, HE, SHE, *self.names)
            return self.pick(anyone)
        noun, draw = self.pick(self.nouns["youth"]), self.random()
        if draw < 0.3 and "number" in self.allowed:
            return Phrase(noun, "", count=2 + int(self.random() * 4))
        return Phrase(noun, plural=draw < 0.5, adjective=self.adjective_for(noun))

    def object_for(self, verb: Verb, subject: Entity | None, negative: bool) -> Entity | None:
        if not verb.objects:
            return None
        things = self.things_of[verb]
        if "person" in verb.objects and (not things or self.random() < 0.6):
            return self.person_object(subject)
        noun = self.pick(things)
        if not negative and verb.en != "wear" and self.may("coordination", 0.06):
            return self.pair_of(noun, things, verb)
        return self.thing(noun, verb, subject, negative)

    def person_object(self, subject: Entity | None) -> Entity:
        someone = self.person(subject)
        if type(someone) is Phrase and someone.determiner == "the" and self.may("relative", 0.18):
            return replace(someone, relative=self.relative_of_person(someone))
        return someone

    def recipient(self, said: Entity | None, subject: Entity) -> Entity:
        """Somebody who does not own it already: not Anna, if it is Anna's."""
        someone = self.person(subject)
        owned = type(said) is Phrase and type(someone) is not Pronoun and said.possessor is someone
        return self.somebody(besides=subject) if owned else someone

    def pair_of(self, noun: Noun, things: tuple[Noun, ...], verb: Verb) -> Entity:
        """Two of one kind, with the same article: an apple and a pear."""
        other = self.pick(things)
        if other is noun or other.kind != noun.kind:
            return self.definite(noun)
        whole_kind = verb.en in TALKED_OF or noun.plural in ("", noun.en)
        if noun.de_bare or (verb.en not in TALKED_OF and self.random() < 0.5 and noun.kind not in BARE):
            return Both(self.definite(noun), self.definite(other))
        return Both(self.any_of(noun, whole_kind), self.any_of(other, whole_kind))

    def definite(self, noun: Noun) -> Phrase:
        if noun.kind in BARE:
            return Phrase(noun, "")
        return Phrase(noun, plural=noun.plural == noun.en)

    def any_of(self, noun: Noun, whole_kind: bool) -> Phrase:
        if not noun.plural:
            return Phrase(noun, "")
        return Phrase(noun, "", plural=True) if whole_kind or noun.plural == noun.en else Phrase(noun, "a")

    def thing(self, noun: Noun, verb: Verb, subject: Entity | None, negative: bool) -> Phrase:
        if noun.kind in BARE or noun.de_bare:
            return Phrase(noun, "the" if noun.de_bare else "")
        if noun.kind in ("place", "city"):
            return Phrase(noun)
        one_each = verb.en == "wear" and subject is not None and is_plural(subject)
        draw, many = self.random(), noun.plural == noun.en or verb.en == "collect" or one_each
        known = verb.en in TALKED_OF or verb.en in KNOWN
        countable = bool(noun.plural and not many) or noun.measure is not None
        if countable and not negative and not known and verb.en != "wear" and self.may("number", 0.18):
            many_more = verb.en in BULK and self.random() < 0.4
            count = 5 + int(self.random() * 8) if many_more else 1 + int(self.random() * 4)
            return Phrase(noun, "", plural=many, count=count)
        adjective = self.adjective_for(noun)
        if adjective and adjective.en == "old" and verb.en in CREATING:
            adjective = None
        owner = self.owner_of(noun, verb, subject)
        if owner:
            return Phrase(noun, "", plural=many, adjective=adjective, possessor=owner)
        if draw < 0.1:
            return Phrase(noun, "this", plural=many, adjective=adjective)
        if draw < 0.4:
            said = Phrase(
                noun,
                plural=many or (draw < 0.15 and bool(noun.plural) and verb.en != "wear"),
                adjective=adjective,
            )
            return self.with_relative(said, verb) if self.may("relative", 0.2) else said
        if verb.en in KNOWN:
            return Phrase(noun, adjective=adjective)
        if known or many or not noun.plural or (draw < 0.5 and verb.en != "wear"):
            return Phrase(noun, "", plural=bool(noun.plural), adjective=adjective)
        return Phrase(noun, "a", adjective=adjective)

    def owner_of(self, noun: Noun, verb: Verb, subject: Entity | None) -> Entity | None:
        if noun.kind in ("animal", "prey", "bird") or verb.en in CREATING:
            return None
        seldom = (*FOOD, "show", "song", "tree", "building", "height", "opening")
        if not self.may("possessive", 0.03 if noun.kind in seldom else 0.22):
            return None
        owner = self.owner(subject)
        own = type(owner) is Pronoun and subject is not None and owner.person == person_of(subject)
        return None if own and verb.en in ACQUIRING else owner

    # --- Relative clauses: short, so that what follows in English belongs to the main clause

    def relative_tense(self, verb: Verb) -> Tense:
        """Mostly what has been: one who hides a ring just now is hardly known by that."""
        usual = verb.state or (verb.en in HABITS and verb.en not in ACQUIRING)
        if verb.en_past == verb.en or not self.may("tense", 0.75 if usual else 1.0):
            return "present"
        return "past"

    def relative_of_person(self, someone: Phrase) -> Clause | None:
        """The teacher who bought a car; whom we know."""
        if self.random() < 0.25 and self.with_person:
            verb = self.pick(self.with_person)
            if verb.ko_particle != "을":
                return None
            knowing: tuple[Entity, ...] = (I, WE, self.pick(self.names))
            return self.object_relative(verb, self.pick(knowing))
        verb = self.pick(self.human)
        if verb.stays or verb.motion or verb.rides:
            goal = self.goal_for(verb)
            return Clause(verb, GAP, goal=goal, tense=self.relative_tense(verb)) if goal else None
        if verb.gives or "person" in verb.objects or not verb.objects:
            return None
        noun = self.pick(self.things_of[verb])
        whole_kind = someone.plural or verb.en in TALKED_OF or noun.plural in ("", noun.en)
        said = self.definite(noun) if noun.de_bare or noun.kind == "place" else self.any_of(noun, whole_kind)
        return Clause(verb, GAP, said, tense=self.relative_tense(verb))

    def object_relative(self, verb: Verb, subject: Entity) -> Clause:
        return Clause(verb, subject, GAP, tense=self.relative_tense(verb))

    def with_relative(self, said: Phrase, main: Verb | None = None) -> Phrase:
        """The book that the child reads; not read by whom the child reads it."""
        fitting = self.verbs_for.get(said.noun.kind)
        if not fitting:
            return said
        verb = self.pick(fitting)
        if verb.gives or verb is main or verb.ko_particle != "을":
            return said
        doers: tuple[Entity, ...] = (
            *(I, WE),  # he could be the subject
            self.pick(self.names),
            Phrase(self.pick(self.nouns["person"])),
        )
        return replace(said, relative=self.object_relative(verb, self.pick(doers)))

    # --- When, where, how

    def tense_for(self, verb: Verb | Adjective | Noun) -> Tense:
        if "tense" not in self.allowed:
            return "present"
        draw = self.random()
        if type(verb) is Verb and verb.mishap:
            return "past"
        if type(verb) is Verb and verb.state:
            return "present" if draw < 0.65 else "past"
        if draw < 0.3:
            return "present"
        if draw < 0.66:
            return "past"
        momentary = type(verb) is not Verb or verb.sudden or verb.times == "dawn" or verb.en in MOMENTARY
        momentary = momentary or (type(verb) is Verb and verb.stays)
        if draw < 0.85 or momentary:
            return "future"
        return "progressive"

    def goal_for(self, verb: Verb) -> Place | None:
        if verb.motion:
            return self.pick(self.places["go"])
        groups = {"live": "live", "stay": "stay", "arrive": "arrive"}
        return self.pick(self.places[groups[verb.en]]) if self.places.get(groups[verb.en]) else None

    def time_for(self, verb: Verb, tense: Tense, negative: bool) -> Time | None:
        if verb.state or not self.may("time", 0.65):
            return None
        fitting = self.times[verb.times or ("long" if verb.long else ""), tense]
        if not (verb.times or verb.long) and self.random() < 0.45:
            fitting = self.times["clock", tense]
        if tense == "present" and verb.en not in HABITS:
            fitting = self.frequencies
        if (verb.stays or verb.times == "years") and tense == "present":
            return None
        if not fitting or (negative and tense in ("present", "progressive")):
            return None
        time = self.pick(fitting)
        if negative and (time.frequency or time.scale == "clock" or verb.mishap):
            return None
        return None if time.scale == "clock" and "person" not in verb.subjects else time

    def clause(
        self, verb: Verb, subject: Entity, *, asked: Asked | None = None, bare: bool = False
    ) -> Clause:
        """What the verb needs; unless `bare`, with when, where and how."""
        tense = self.tense_for(verb)
        counted = type(subject) is Phrase and subject.count > 0
        negative = asked in (None, "why") and not counted and self.may("negation", 0.16)
        fated = verb.state or verb.sudden or verb.en in UNPLANNED
        modal = None if fated or asked in ("when", "why") else self.modal(subject)
        if asked == "when" and tense == "progressive":
            tense = "past"
        if modal and verb.times == "dawn":
            modal = "must"
        if modal and tense in ("future", "progressive"):
            tense = "present"
        plain = negative or asked is not None
        said = None if asked in ("what", "whom") else self.object_for(verb, subject, plain)
        recipient = self.recipient(said, subject) if verb.gives else None
        goal = means = None
        if verb.motion or verb.stays:
            goal = None if asked == "where" else self.goal_for(verb)
        if verb.rides:
            goal, means = self.ride()
        time = None
        if asked not in ("when", "why") and not bare:
            # What one can, wants to or has to do lies ahead.
            time = self.time_for(verb, "future" if modal and tense == "present" else tense, negative)
        if time and ((time.frequency and asked) or (modal and time.en in ("soon", "in an hour"))):
            time = None
        if time and is_animal(subject) and not (time.frequency or time.en in OBSERVED):
            time = None
        if time and time.frequency and type(said) is Phrase and said.count:
            time = None
        if verb.en_past == verb.en and tense == "past" and (time is None or time.scale == "clock"):
            tense, time = "present", None  # otherwise nobody could hear the tense
        clause = Clause(
            verb, subject, said, recipient, goal, None, tense, negative, modal, asked, time, means=means
        )
        if bare or negative or asked in ("when", "why"):
            return self.fronting(clause)
        return self.fronting(self.adorned(clause, verb))

    def modal(self, subject: Entity) -> Modal | None:
        if not self.may("modal", 0.14) or is_animal(subject):
            return None
        modals: tuple[Modal, ...] = ("can", "want", "must")
        return self.pick(modals)

    def ride(self) -> tuple[Place, Noun | None]:
        vehicles = self.nouns["transport"]
        if self.random() < 0.5:
            return self.pick(self.cities), self.pick(vehicles[:2]) if self.may("manner", 0.5) else None
        if "manner" not in self.allowed:
            return self.pick(self.cities), None
        return self.pick(self.places["go"]), self.pick(
            tuple(noun for noun in vehicles if noun.en in LOCAL) or vehicles
        )

    def adorned(self, clause: Clause, verb: Verb) -> Clause:
        """With at most two of: how, with whom, with what, where."""
        heavy = has_relative(clause.object) or has_relative(clause.recipient)
        if heavy:
            return clause
        if self.may("manner", 0.3) and not clause.modal:
            clause = self.with_manner(clause, verb)
        if clause.manner:
            return clause
        if clause.asked != "where" and self.may("place", 0.4):
            spots = self.places.get(verb.places, ())
            if verb.places == "buy" and not is_food(clause.object):
                spots = ()
            if spots:
                clause = replace(clause, place=self.pick(spots))
        return clause

    def with_manner(self, clause: Clause, verb: Verb) -> Clause:
        if verb.rides or is_animal(clause.subject):
            return clause
        social = verb.manners in SOCIAL and clause.asked is None
        if social and self.random() < 0.4 and type(clause.subject) is not Both:
            companion = self.person(clause.subject)
            return replace(clause, companion=companion) if not has_relative(companion) else clause
        tool = self.tool_for(clause, verb)
        if tool:
            return replace(clause, means=tool)
        fitting = self.manners.get(verb.manners)
        if not fitting or clause.asked:
            return clause
        manner = self.pick(fitting)
        many = clause.subject is not None and is_plural(clause.subject)
        if (manner.en == "together" and not many) or (manner.en == "alone" and many):
            return clause
        if manner.en in ("early", "late") and clause.time and clause.time.scale == "clock":
            return clause
        unsettled = clause.time or clause.tense == "progressive" or is_any(clause.object)
        if manner.en == "well" and unsettled:
            return clause
        return replace(clause, manner=manner)

    def tool_for(self, clause: Clause, verb: Verb) -> Noun | None:
        said = clause.object
        if type(said) is not Phrase or clause.asked:
            return None
        if verb.en == "write":
            return self.pick(self.nouns["pen"]) if self.random() < 0.5 and said.noun.en != "email" else None
        if verb.en == "eat" and said.noun.kind in ("dish", "rice"):
            cutlery = self.nouns["cutlery"]
            return cutlery[0] if said.noun.en in ("soup", "curry", "rice") else cutlery[-1]
        return None

    def fronting(self, clause: Clause) -> Clause:
        """A time goes first in a third of the statements, and wherever a relative clause would catch it."""
        if clause.time is None or clause.time.frequency or clause.asked:
            caught = clause.time is not None and has_relative(clause.object)
            return replace(clause, time=None) if caught and clause.asked else clause
        if has_relative(clause.object) or has_relative(clause.recipient) or self.random() < 0.35:
            return replace(clause, fronted=True)
        return clause

    # --- Kinds of sentences

    def statement(self) -> Clause:
        verb = self.pick(self.verbs)
        return self.clause(verb, self.subject_for(verb))

    def description(self) -> Clause:
        """The house is big; I was tired."""
        adjective = self.pick(self.predicative)
        subject = self.described(adjective)
        tense = self.tense_for(adjective)
        passing = adjective.en in PASSING and type(subject) is not Both
        if not passing and tense == "future":
            tense = "present"
        negative = self.may("negation", 0.16)
        time = None
        if passing and tense != "present" and self.may("time", 0.5):
            time = self.pick(self.times["mood", tense]) if self.times["mood", tense] else None
        degree = None
        if not negative and adjective.en not in COLORS and self.random() < 0.4:
            degree = self.pick(ALL_DEGREES)
        return self.fronting(
            Clause(adjective, subject, tense=tense, negative=negative, time=time, degree=degree)
        )

    def described(self, adjective: Adjective) -> Entity:
        kind = self.pick(self.kinds_of[adjective])
        if kind in PEOPLE:
            someone = self.person()
            return replace(someone, adjective=None) if type(someone) is Phrase else someone
        pool = self.nouns[kind]
        if kind in BARE:
            return Phrase(self.pick(pool), "")
        if kind in DENS:
            return self.described_animal(kind)
        noun = self.pick(pool)
        many = noun.plural == noun.en
        spot = noun.kind == "place"
        owned = not spot and kind not in (*FOOD, "building", "height", "tree", "song", "show", "flower")
        if owned and self.may("possessive", 0.4):
            return Phrase(noun, "", plural=many, possessor=self.owner(None))
        plural = many or (bool(noun.plural) and not spot and self.random() < 0.2)
        said = Phrase(noun, self.pick(("the", "the", "this")), plural=plural)
        if not spot and said.determiner == "the" and self.may("relative", 0.25):
            return self.with_relative(said)
        return said

    def described_animal(self, kind: str) -> Phrase:
        noun, plural = self.pick(self.nouns[kind]), self.random() < 0.2
        if kind == "pet" and self.may("possessive", 0.5):
            return Phrase(noun, "", plural=plural, possessor=self.owner(None))
        return Phrase(noun, self.pick(("the", "the", "this")), plural=plural)

    def profession(self) -> Clause:
        noun = self.pick(self.professions)
        people: tuple[Entity, ...] = (I, HE, SHE, THEY, HE, SHE, *self.names)
        subject = self.pick(people)
        if self.may("possessive", 0.4):
            subject = replace(self.relation(None), noun=self.pick(self.nouns["kin"]))
        tense: Tense = "past" if self.may("tense", 0.3) else "present"
        return Clause(noun, subject, tense=tense, negative=self.may("negation", 0.2))

    def asked_subject(self) -> Entity:
        draw = self.random()
        if draw < 0.45:
            return YOU
        if draw < 0.75:
            others: tuple[Entity, ...] = (HE, SHE, THEY, self.pick(self.names))
            return self.pick(others)
        return self.relation(None) if self.may("possessive", 0.5) else self.somebody()

    def question(self) -> Clause:
        draw = self.random()
        if draw < 0.07 and "adjective" in self.allowed:
            people = tuple(adjective for adjective in self.predicative if "kin" in adjective.kinds)
            if people:
                past = self.may("tense", 0.3)
                tense: Tense = "past" if past else "present"
                return Clause(self.pick(people), self.asked_subject(), tense=tense, asked="yes")
        asked, verbs = self.asking(draw)
        if not verbs:
            asked, verbs = "yes", self.human
        subject = HE if asked == "who" else self.asked_subject()
        return self.clause(self.pick(verbs), subject, asked=asked)

    def asking(self, draw: float) -> tuple[Asked, tuple[Verb, ...]]:
        """What is asked for, and the verbs that can be asked so."""
        if draw < 0.4:
            return "yes", self.human
        if draw < 0.5:
            return "who", self.human
        if draw < 0.62:
            return "what", self.with_thing
        if draw < 0.7:
            return "whom", self.with_person
        if draw < 0.8:
            return "where", self.pick((self.located, self.staying, self.going))
        return ("when", self.acts) if draw < 0.9 else ("why", self.acts)

    def command(self) -> Clause:
        verb = self.pick(self.commanded)
        negative = verb.en == "cry" or self.may("negation", 0.3)
        said = self.object_for(verb, YOU, negative)
        recipient = self.recipient(said, I) if verb.gives else None
        goal = means = None
        if verb.rides:
            goal, means = self.ride()
        elif verb.motion or verb.stays:
            goal = self.goal_for(verb)
        clause = Clause(verb, None, said, recipient, goal, negative=negative, means=means)
        fitting = self.manners.get(verb.manners, ())
        if fitting and not negative and not has_relative(said) and self.may("manner", 0.3):
            manner = self.pick(fitting)
            return clause if manner.en in ("together", "alone") else replace(clause, manner=manner)
        return clause

    def joined(self) -> Joined:
        """Two clauses of one tense, about the same kind of thing; after but, what is not so."""
        first_verb = self.pick(self.human)
        contrast = self.may("negation", 0.4)
        second_verb = first_verb
        if not contrast and first_verb in self.simple:
            others = tuple(verb for verb in self.simple if verb is not first_verb)
            second_verb = self.pick(others or self.simple)
        first = self.clause(first_verb, self.person(), bare=True)
        other = self.person(first.subject)
        if type(other) is Pronoun and other.person == 3:  # who would seem to be the first one again
            other = self.somebody(plain=False, besides=first.subject)
        second = self.clause(second_verb, other, bare=True)
        if second_verb is first_verb:
            second = replace(second, object=self.counterpart(first, second, first_verb))
        tense = first.tense
        unheard = {verb.en_past == verb.en for verb in (first_verb, second_verb)}
        if True in unheard and tense == "past":
            tense = "present"
        if tense in ("future", "progressive") and (
            second_verb.state or (second_verb.sudden and tense != "future")
        ):
            tense = "present"
        first = replace(first, tense=tense, modal=None, negative=False)
        second = replace(second, tense=tense, modal=None, negative=contrast)
        if contrast:
            second = replace(second, object=uncounted(second.object))
        return Joined(first, "but" if contrast else "and", second)

    def counterpart(self, first: Clause, second: Clause, verb: Verb) -> Entity | None:
        """Something of the kind of the first object, but not the same: coffee and tea, Mina and Peter."""
        if first.object is None:
            return None
        if type(first.object) is not Phrase or first.object.noun.kind in PEOPLE:
            if "person" not in verb.objects:
                return second.object
            other = self.person(second.subject)
            return self.somebody(plain=False) if other == first.object else other
        pool = tuple(noun for noun in self.things_of[verb] if noun.kind == first.object.noun.kind)
        if first.object.noun not in pool:
            return second.object
        others = tuple(noun for noun in pool if noun is not first.object.noun)
        return self.thing(self.pick(others or pool), verb, second.subject, second.negative)

    def because(self) -> Because:
        """Somebody does what follows from how he feels, or from the weather."""
        cause, results = self.pick(self.consequences)
        people: tuple[Entity, ...] = (I, HE, SHE, WE, THEY, self.pick(self.names))
        subject = self.pick(people)
        if self.may("possessive", 0.3):
            kin = tuple(noun for noun in self.nouns["kin"] if noun.sex) or self.nouns["kin"]
            if kin[0].sex:
                subject = Phrase(self.pick(kin), "", possessor=self.pick((I, HE, SHE)))
        tense: Tense = "past" if self.may("tense", 0.7) else "present"
        result = self.pick(results)
        if type(result.predicate) is Verb and result.predicate.en_past == result.predicate.en:
            tense = "present"
        result = replace(result, subject=subject, tense=tense, object=for_each(result, subject))
        if type(cause) is Adjective and cause.kinds != ("weather",):
            return Because(result, Clause(cause, subject, tense=tense))
        return Because(result, Weather(cause, tense=tense))

    def reported(self) -> Reported:
        speaker = self.person()
        if type(speaker) is Phrase:
            speaker = replace(speaker, relative=None)
        content = self.description() if self.may("adjective", 0.5) else self.statement()
        content = replace(content, subject=self.told_of(content, speaker))
        if content.object is speaker:
            content = replace(content, object=self.somebody(besides=content.subject))
        if content.fronted or (content.time and content.time.frequency):
            content = replace(content, time=None, fronted=False)
            if type(content.predicate) is Verb and content.predicate.en_past == content.predicate.en:
                content = replace(content, tense="present" if content.tense == "past" else content.tense)
        verbs = self.reporting
        if person_of(speaker) == 1:  # I say that I ...: one just says it
            verbs = tuple(verb for verb in verbs if verb.en != "say")
        return Reported(speaker, self.pick(verbs), content)

    def told_of(self, content: Clause, speaker: Entity) -> Entity | None:
        """The subject of what is said: somebody who is not taken for the speaker."""
        subject = content.subject
        assert subject is not None
        if type(subject) is Phrase and subject.count:
            subject = replace(subject, determiner="the", plural=True, count=0)
        third = type(subject) is Pronoun and subject.person == person_of(speaker) == 3
        if third or subject is speaker or same_word(subject, speaker):  # he says that he ...: who?
            young = type(content.predicate) is Verb and "youth" in content.predicate.subjects
            someone = self.somebody(besides=speaker)
            noun = self.pick(self.nouns["youth"]) if young else someone.noun
            return Phrase(noun, plural=is_plural(subject))
        return subject

    def existence(self) -> Existence:
        noun, spots = self.pick(self.found_somewhere)
        place = self.pick(spots)
        tense: Tense = "past" if self.may("tense", 0.35) else "present"
        negative, adjective = self.may("negation", 0.15), self.adjective_for(noun)
        asked = not negative and self.may("question", 0.2)
        if not negative and not asked and self.may("number", 0.55):
            what = Phrase(noun, "", count=2 + int(self.random() * 6), adjective=adjective)
        else:
            what = Phrase(noun, "a", adjective=adjective)
        return Existence(what, place, tense, negative, asked)

    def weather(self) -> Weather:
        kinds: tuple[Verb | Adjective, ...] = (RAINING, SNOWING, *WEATHER_ADJECTIVES)
        tenses: tuple[Tense, ...] = ("past", "present", "future") if "tense" in self.allowed else ("present",)
        kind, tense = self.pick(kinds), self.pick(tenses)
        fitting = self.times["", tense]
        time = None
        if fitting and tense != "present" and self.may("time", 0.9):
            time = self.pick(fitting)
        return Weather(kind, time, tense, self.may("negation", 0.2))


def is_animal(said: Entity | None) -> bool:
    return type(said) is Phrase and said.noun.kind in DENS


def is_any(said: Entity | None) -> bool:
    """A song, two songs, soup; but not the song, and not English."""
    if type(said) is not Phrase:
        return said is not None
    return not (said.determiner in ("the", "this") or said.possessor or said.noun.kind in BARE)


def same_word(said: Entity, other: Entity) -> bool:
    """The journalist, the sick journalists; but my guest is not the guest."""
    both = type(said) is Phrase and type(other) is Phrase and said.noun is other.noun
    return both and type(said) is Phrase and said.possessor is None


def for_each(result: Clause, subject: Entity) -> Entity | None:
    """We wear coats, not all of us one."""
    verb, said = result.predicate, result.object
    if type(verb) is Verb and verb.en == "wear" and type(said) is Phrase and is_plural(subject):
        return replace(said, determiner="", plural=True)
    return said


def is_food(said: Entity | None) -> bool:
    return type(said) is Phrase and said.noun.kind in FOOD


def uncounted(said: Entity | None) -> Entity | None:
    """An object as a negative clause can have it."""
    if type(said) is Both:
        return said.first
    if type(said) is Phrase and said.count:
        many = said.noun.plural == said.noun.en
        return replace(said, count=0, plural=many, determiner="a" if said.noun.plural and not many else "")
    return said
