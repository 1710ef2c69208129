"""Draws meanings that make sense: who can do what to what, where, when and how.

An author has words (vocabulary.py), says who and what (phrases.py), makes clauses of them with when, where
and how (clauses.py), and sentences of those: here. The draw is a function of the seed alone, on every Python:
`random.Random(seed).random` and nothing else.
"""

from collections.abc import Callable
from dataclasses import replace

from manyheads.playground.clauses import Clauses
from manyheads.playground.lexicon import (
    ALL_DEGREES,
    HE,
    RAINING,
    SHE,
    SNOWING,
    THEY,
    WE,
    WEATHER_ADJECTIVES,
    YOU,
    I,
)
from manyheads.playground.meaning import (
    Adjective,
    Asked,
    Because,
    Both,
    Clause,
    Entity,
    Existence,
    Joined,
    Phrase,
    Pronoun,
    Reported,
    Sentence,
    Tense,
    Verb,
    Weather,
    has_relative,
    is_plural,
    person_of,
)
from manyheads.playground.phrases import BARE, FOOD
from manyheads.playground.vocabulary import DENS, PEOPLE

PASSING = ("happy", "tired", "hungry", "busy", "sad", "sick", "thirsty", "lonely")  # true for a while
COLORS = ("red", "blue", "yellow", "white", "black")  # no thing is very red here

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


class Author(Clauses):
    """Writes meanings from a seed: with the constructions allowed, and the first words of each class."""

    def __init__(self, seed: int, constructions: frozenset[str], words: int | None) -> None:
        super().__init__(seed, constructions, words)
        self.consequences = self.known_consequences()
        self.makers = self.weigh()

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
            return clause if manner.en in ("together", "alone", "well") else replace(clause, manner=manner)
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


def uncounted(said: Entity | None) -> Entity | None:
    """An object as a negative clause can have it."""
    if type(said) is Both:
        return said.first
    if type(said) is Phrase and said.count:
        many = said.noun.plural == said.noun.en
        return replace(said, count=0, plural=many, determiner="a" if said.noun.plural and not many else "")
    return said
