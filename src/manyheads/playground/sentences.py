"""Sampling meanings that make sense: who can do what to what, where, when and how.

The vocabulary (vocabulary.py) is combined to noun phrases (phrases.py), clauses (clauses.py) and sentences
(here). The samples are a function of the seed alone, on every Python version: they use nothing but
`random.Random(seed).random`.
"""

from collections.abc import Callable
from dataclasses import replace

from manyheads.playground.clauses import ClauseSampler
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
    CausalSentence,
    Clause,
    CompoundSentence,
    Coordination,
    Entity,
    ExistentialClause,
    Phrase,
    Pronoun,
    QuestionType,
    ReportedSpeech,
    Sentence,
    Tense,
    Verb,
    WeatherClause,
    get_person,
    has_relative,
    is_plural,
)
from manyheads.playground.phrases import BARE, FOOD
from manyheads.playground.vocabulary import HABITATS, PEOPLE

TEMPORARY_STATES = (
    "happy",
    "tired",
    "hungry",
    "busy",
    "sad",
    "sick",
    "thirsty",
    "lonely",
)  # temporary
COLORS = ("red", "blue", "yellow", "white", "black")  # never with a degree

# Consequences of a state or of the weather: a verb, with a noun or a place if it needs one.
CONSEQUENCES = {
    "tired": "sleep; take a rest; go home; stay home; drink coffee; not work; not dance; not cook soup",
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


class SentenceSampler(ClauseSampler):
    """Samples meanings from a seed, with the allowed constructions and the first words of each class."""

    def __init__(self, seed: int, constructions: frozenset[str], words: int | None) -> None:
        super().__init__(seed, constructions, words)
        self.consequences = self.build_consequences()
        self.samplers = self.weigh_sentence_types()

    def build_consequences(self) -> tuple[tuple[Adjective | Verb, tuple[Clause, ...]], ...]:
        """Return the consequences whose words are all allowed, as clauses without subject and tense."""
        causes: dict[str, Adjective | Verb] = {}
        if "adjective" in self.allowed:
            causes = {word.en: word for word in self.adjectives if word.en in TEMPORARY_STATES}
        causes |= {word.en: word for word in WEATHER_ADJECTIVES if word.en in CONSEQUENCES}
        causes |= {"rain": RAINING, "snow": SNOWING}
        known = []
        for english, cause in causes.items():
            clauses = [self.parse_consequence(text) for text in CONSEQUENCES[english].split("; ")]
            fitting = tuple(clause for clause in clauses if clause is not None)
            if fitting:
                known.append((cause, fitting))
        return tuple(known)

    def parse_consequence(self, text: str) -> Clause | None:
        negative = text.startswith("not ")
        text = text.removeprefix("not ")
        if negative and "negation" not in self.allowed:
            return None
        fitting = (verb for verb in self.verbs if f"{text} ".startswith(f"{verb.en} "))
        for verb in (verb for verb in fitting if not verb.needs_vehicle):
            word = text.removeprefix(verb.en).strip()
            if verb.takes_goal or verb.takes_location:
                spots = (place for place in self.places["go"] if place.noun.en == word)
                return next((Clause(verb, goal=place, negative=negative) for place in spots), None)
            if not word and not verb.object_categories:
                return Clause(verb, negative=negative)
            for noun in self.things_by_verb[verb]:
                if noun.en == word:
                    object_ = (
                        Phrase(noun) if noun.category == "opening" else self.make_indefinite(noun, False)
                    )
                    return Clause(verb, object=object_, negative=negative)
        return None

    def weigh_sentence_types(self) -> tuple[tuple[float, Callable[[], Sentence]], ...]:
        """Return the sentence types with their cumulative probabilities."""
        shares: list[tuple[float, bool, Callable[[], Sentence]]] = [
            (52, True, self.sample_statement),
            (2.2, "adjective" in self.allowed, self.sample_description),
            (0.7, bool(self.professions), self.sample_profession),
            (5.5, "question" in self.allowed, self.sample_question),
            (1.2, "command" in self.allowed, self.sample_command),
            (16, "coordination" in self.allowed, self.sample_compound),
            (0.8, "subordinate" in self.allowed and bool(self.consequences), self.sample_causal),
            (15.5, "subordinate" in self.allowed, self.sample_reported),
            (1.4, "place" in self.allowed and bool(self.inhabitants), self.sample_existence),
            (0.05, True, self.sample_weather),
        ]
        shares = [share for share in shares if share[1]]
        total, sofar, samplers = sum(share for share, _, _ in shares), 0.0, []
        for share, _, sampler in shares:
            sofar += share / total
            samplers.append((sofar, sampler))
        return tuple(samplers)

    def sample_sentence(self) -> Sentence:
        draw = self.random()
        for upto, sampler in self.samplers:
            if draw < upto:
                return sampler()
        return self.sample_statement()

    # ---- sentence types

    def sample_statement(self) -> Clause:
        verb = self.pick(self.verbs)
        return self.sample_clause(verb, self.sample_subject(verb))

    def sample_description(self) -> Clause:
        """Sample a description: the house is big; I was tired."""
        adjective = self.pick(self.predicative)
        subject = self.sample_described_subject(adjective)
        tense = self.sample_tense(adjective)
        passing = adjective.en in TEMPORARY_STATES and type(subject) is not Coordination
        if not passing and tense == "future":
            tense = "present"
        negative = self.may("negation", 0.16)
        time = None
        if passing and tense != "present" and self.may("time", 0.5):
            time = self.pick(self.times["mood", tense]) if self.times["mood", tense] else None
        degree = None
        if not negative and adjective.en not in COLORS and self.random() < 0.4:
            degree = self.pick(ALL_DEGREES)
        return self.front_time(
            Clause(adjective, subject, tense=tense, negative=negative, time=time, degree=degree)
        )

    def sample_described_subject(self, adjective: Adjective) -> Entity:
        category = self.pick(self.categories_by_adjective[adjective])
        if category in PEOPLE:
            someone = self.sample_person()
            return replace(someone, adjective=None) if type(someone) is Phrase else someone
        pool = self.nouns[category]
        if category in BARE:
            return Phrase(self.pick(pool), "")
        if category in HABITATS:
            return self.sample_described_animal(category)
        noun = self.pick(pool)
        many = noun.plural == noun.en
        spot = noun.category == "place"
        owned = not spot and category not in (*FOOD, "building", "height", "tree", "song", "show", "flower")
        if owned and self.may("possessive", 0.4):
            return Phrase(noun, "", plural=many, possessor=self.sample_owner(None))
        plural = many or (bool(noun.plural) and not spot and self.random() < 0.2)
        phrase = Phrase(noun, self.pick(("the", "the", "this")), plural=plural)
        if not spot and phrase.determiner == "the" and self.may("relative", 0.25):
            return self.add_relative(phrase)
        return phrase

    def sample_described_animal(self, category: str) -> Phrase:
        noun, plural = self.pick(self.nouns[category]), self.random() < 0.2
        if category == "pet" and self.may("possessive", 0.5):
            return Phrase(noun, "", plural=plural, possessor=self.sample_owner(None))
        return Phrase(noun, self.pick(("the", "the", "this")), plural=plural)

    def sample_profession(self) -> Clause:
        noun = self.pick(self.professions)
        people: tuple[Entity, ...] = (I, HE, SHE, THEY, HE, SHE, *self.names)
        subject = self.pick(people)
        if self.may("possessive", 0.4):
            subject = replace(self.sample_relation(None), noun=self.pick(self.nouns["kin"]))
        tense: Tense = "past" if self.may("tense", 0.3) else "present"
        return Clause(noun, subject, tense=tense, negative=self.may("negation", 0.2))

    def sample_question_subject(self) -> Entity:
        draw = self.random()
        if draw < 0.45:
            return YOU
        if draw < 0.75:
            others: tuple[Entity, ...] = (HE, SHE, THEY, self.pick(self.names))
            return self.pick(others)
        return self.sample_relation(None) if self.may("possessive", 0.5) else self.sample_noun_person()

    def sample_question(self) -> Clause:
        draw = self.random()
        if draw < 0.07 and "adjective" in self.allowed:
            people = tuple(adjective for adjective in self.predicative if "kin" in adjective.categories)
            if people:
                past = self.may("tense", 0.3)
                tense: Tense = "past" if past else "present"
                return Clause(self.pick(people), self.sample_question_subject(), tense=tense, question="yes")
        question, verbs = self.choose_question_type(draw)
        if not verbs:
            question, verbs = "yes", self.human_verbs
        subject = HE if question == "who" else self.sample_question_subject()
        return self.sample_clause(self.pick(verbs), subject, question=question)

    def choose_question_type(self, draw: float) -> tuple[QuestionType, tuple[Verb, ...]]:
        """Return the type of question and the verbs that allow it."""
        if draw < 0.4:
            return "yes", self.human_verbs
        if draw < 0.5:
            return "who", self.human_verbs
        if draw < 0.62:
            return "what", self.thing_verbs
        if draw < 0.7:
            return "whom", self.person_verbs
        if draw < 0.8:
            return "where", self.pick((self.located_verbs, self.staying_verbs, self.motion_verbs))
        return ("when", self.actions) if draw < 0.9 else ("why", self.actions)

    def sample_command(self) -> Clause:
        verb = self.pick(self.imperative_verbs)
        negative = verb.en == "cry" or self.may("negation", 0.3)
        object_ = self.sample_object(verb, YOU, negative)
        recipient = self.sample_recipient(object_, YOU) if verb.is_ditransitive else None
        goal = means = None
        if verb.needs_vehicle:
            goal, means = self.sample_ride()
        elif verb.takes_goal or verb.takes_location:
            goal = self.sample_goal(verb)
        clause = Clause(verb, None, object_, recipient, goal, negative=negative, means=means)
        fitting = self.manners.get(verb.manners, ())
        if fitting and not negative and not has_relative(object_) and self.may("manner", 0.3):
            manner = self.pick(fitting)
            return clause if manner.en in ("together", "alone", "well") else replace(clause, manner=manner)
        return clause

    def sample_compound(self) -> CompoundSentence:
        """Sample clauses of one tense about things of one category. After "but", the second is negated."""
        first_verb = self.pick(self.human_verbs)
        contrast = self.may("negation", 0.4)
        second_verb = first_verb
        if not contrast and first_verb in self.intransitive:
            others = tuple(verb for verb in self.intransitive if verb is not first_verb)
            second_verb = self.pick(others or self.intransitive)
        first = self.sample_clause(first_verb, self.sample_person(), bare=True)
        other = self.sample_person(first.subject)
        if type(other) is Pronoun and other.person == 3:  # could refer to the first subject
            other = self.sample_noun_person(plain=False, other_than=first.subject)
        second = self.sample_clause(second_verb, other, bare=True)
        if second_verb is first_verb:
            second = replace(second, object=self.sample_counterpart(first, second, first_verb))
        if second.goal and second.goal is first.goal and not contrast:
            places = tuple(place for place in self.list_goals(second_verb) if place is not first.goal)
            second = replace(second, goal=self.pick(places or (second.goal,)))
        tense = first.tense
        unheard = {verb.en_past == verb.en for verb in (first_verb, second_verb)}
        if True in unheard and tense == "past":
            tense = "present"
        if tense in ("future", "progressive") and (
            second_verb.is_stative or (second_verb.is_sudden and tense != "future")
        ):
            tense = "present"
        first = replace(first, tense=tense, modal=None, negative=False)
        second = replace(second, tense=tense, modal=None, negative=contrast)
        if contrast:
            second = replace(second, object=remove_count(second.object))
        return CompoundSentence(first, "but" if contrast else "and", second)

    def sample_counterpart(self, first: Clause, second: Clause, verb: Verb) -> Entity | None:
        """Sample another object of the category of the first: coffee and tea, Mina and Peter."""
        if first.object is None:
            return None
        if type(first.object) is not Phrase or first.object.noun.category in PEOPLE:
            if "person" not in verb.object_categories:
                return second.object
            other = self.sample_person(second.subject)
            return self.sample_noun_person(plain=False) if other == first.object else other
        pool = tuple(
            noun for noun in self.things_by_verb[verb] if noun.category == first.object.noun.category
        )
        if first.object.noun not in pool:
            return second.object
        others = tuple(noun for noun in pool if noun is not first.object.noun)
        return self.sample_thing(self.pick(others or pool), verb, second.subject, second.negative)

    def sample_causal(self) -> CausalSentence:
        """Sample an action that follows from a state or from the weather."""
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
        result = replace(result, subject=subject, tense=tense, object=pluralize_worn_object(result, subject))
        if type(cause) is Adjective and cause.categories != ("weather",):
            return CausalSentence(result, Clause(cause, subject, tense=tense))
        return CausalSentence(result, WeatherClause(cause, tense=tense))

    def sample_reported(self) -> ReportedSpeech:
        speaker = self.sample_person()
        if type(speaker) is Phrase:
            speaker = replace(speaker, relative=None)
        content = self.sample_description() if self.may("adjective", 0.5) else self.sample_statement()
        content = replace(content, subject=self.choose_reported_subject(content, speaker))
        if content.object is speaker:
            content = replace(content, object=self.sample_noun_person(other_than=content.subject))
        if content.fronted or (content.time and content.time.frequency):
            content = replace(content, time=None, fronted=False)
            if type(content.predicate) is Verb and content.predicate.en_past == content.predicate.en:
                content = replace(content, tense="present" if content.tense == "past" else content.tense)
        verbs = self.reporting
        if get_person(speaker) == 1:  # not "I say that I ..."
            verbs = tuple(verb for verb in verbs if verb.en != "say")
        return ReportedSpeech(speaker, self.pick(verbs), content)

    def choose_reported_subject(self, content: Clause, speaker: Entity) -> Entity | None:
        """Return a subject of the reported clause that cannot be confused with the speaker."""
        subject = content.subject
        assert subject is not None
        if type(subject) is Phrase and subject.count:
            subject = replace(subject, determiner="the", plural=True, count=0)
        third = type(subject) is Pronoun and subject.person == get_person(speaker) == 3
        if third or subject is speaker or is_same_noun(subject, speaker):  # "he says that he" is ambiguous
            young = type(content.predicate) is Verb and "youth" in content.predicate.subject_categories
            someone = self.sample_noun_person(other_than=speaker)
            noun = self.pick(self.nouns["youth"]) if young else someone.noun
            return Phrase(noun, plural=is_plural(subject))
        return subject

    def sample_existence(self) -> ExistentialClause:
        noun, spots = self.pick(self.inhabitants)
        place = self.pick(spots)
        tense: Tense = "past" if self.may("tense", 0.35) else "present"
        negative, adjective = self.may("negation", 0.15), self.sample_adjective(noun)
        is_question = not negative and self.may("question", 0.2)
        if not negative and not is_question and self.may("number", 0.55):
            what = Phrase(noun, "", count=2 + int(self.random() * 6), adjective=adjective)
        else:
            what = Phrase(noun, "a", adjective=adjective)
        return ExistentialClause(what, place, tense, negative, is_question)

    def sample_weather(self) -> WeatherClause:
        predicates: tuple[Verb | Adjective, ...] = (RAINING, SNOWING, *WEATHER_ADJECTIVES)
        tenses: tuple[Tense, ...] = ("past", "present", "future") if "tense" in self.allowed else ("present",)
        predicate, tense = self.pick(predicates), self.pick(tenses)
        fitting = self.times["", tense]
        time = None
        if fitting and tense != "present" and self.may("time", 0.9):
            time = self.pick(fitting)
        return WeatherClause(predicate, time, tense, self.may("negation", 0.2))


def is_same_noun(entity: Entity, other: Entity) -> bool:
    """Return whether both phrases have the same noun, without a possessor."""
    both = type(entity) is Phrase and type(other) is Phrase and entity.noun is other.noun
    return both and type(entity) is Phrase and entity.possessor is None


def pluralize_worn_object(result: Clause, subject: Entity) -> Entity | None:
    """Return the object, in the plural if several people wear it: we wear coats."""
    verb, object_ = result.predicate, result.object
    if type(verb) is Verb and verb.en == "wear" and type(object_) is Phrase and is_plural(subject):
        return replace(object_, determiner="", plural=True)
    return object_


def remove_count(entity: Entity | None) -> Entity | None:
    """Return the object without a number, as a negative clause needs it."""
    if type(entity) is Coordination:
        return entity.first
    if type(entity) is Phrase and entity.count:
        many = entity.noun.plural == entity.noun.en
        return replace(
            entity, count=0, plural=many, determiner="a" if entity.noun.plural and not many else ""
        )
    return entity
