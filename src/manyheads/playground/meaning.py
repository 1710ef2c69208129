"""The meaning of a sentence, independent of language: each realizer turns it into a sentence.

A word has its three spellings; everything else (case, particle, word order, ending) is up to the realizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tense = Literal["present", "progressive", "past", "future"]
Modal = Literal["can", "want", "must"]
QuestionType = Literal["yes", "who", "what", "whom", "where", "when", "why"]
Determiner = Literal["the", "a", "this", ""]


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun. `plural` is empty if English has none; `measure` is for uncountable nouns."""

    en: str
    plural: str
    ko: str
    counter: str
    de: str
    de_plural: str
    gender: Literal["m", "f", "n"]
    category: str
    weak: bool = False
    feminine: str = ""  # German: the word for a woman of this profession
    sex: str = ""
    honored: bool = False  # by the verb and the particles of polite Korean
    measure: tuple[str, str, str, str] | None = None  # cup, cups, Tasse, Tassen
    de_bare: bool = False  # without article in German: Klavier, the piano


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    en: str
    ko: str
    de: str
    sex: str


@dataclass(frozen=True, slots=True, eq=False)
class Pronoun:
    """A pronoun. `you` is one familiar person: du, 너."""

    en: str
    en_object: str
    en_possessive: str
    ko: str
    person: int
    plural: bool
    sex: str
    de: tuple[str, str, str]  # nominative, accusative, dative
    de_possessive: str


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    en: str
    ko: str
    ko_class: str
    de: str
    de_stem: str
    categories: tuple[str, ...]
    attributive: bool = True
    predicative: bool = True
    ko_attributive: str = ""  # before a noun, if that is another word: 힘센


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb, with the categories of nouns that can be its subject and object."""

    en: str  # "wait for": the first word is inflected
    en_past: str
    ko: str
    ko_class: str
    ko_particle: str  # of the object, written after a consonant: 을, 과, or 에게
    ko_goal: str  # the particle of the goal: 에, or 으로
    ko_place: str  # the particle of the place: 에서; 에 of what stays there; 을 of where one walks
    de: str
    de_prefix: str
    de_third: str
    de_participle: str
    de_is: bool  # Perfekt with sein
    de_object: str  # acc, dat, sich, or a preposition with its case: "auf acc"
    subject_categories: tuple[str, ...]
    object_categories: tuple[str, ...] = ()
    places: str = ""
    manners: str = ""
    is_ditransitive: bool = False
    takes_goal: bool = False
    takes_location: bool = False  # in Korean with 에
    needs_vehicle: bool = False  # German distinguishes walking from riding
    is_stative: bool = False  # no progressive, command, future or time
    is_sudden: bool = False  # no progressive or command
    is_mishap: bool = False  # past only
    is_long: bool = False  # takes months rather than hours
    times: str = ""  # dawn, dusk, years


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A place. `at` and `to` are English phrases; `de_at` and `de_to` are German prepositions."""

    noun: Noun
    at: str
    to: str
    de_at: str
    de_to: str
    proper: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Time:
    en: str
    ko: str
    de: str
    tenses: tuple[Tense, ...]
    frequency: bool = False  # often: before the verb in English
    scale: str = ""  # clock: for actions of hours; long: of months


@dataclass(frozen=True, slots=True, eq=False)
class Manner:
    en: str
    ko: str
    de: str


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun phrase. `count` is an explicit number; `plural` is a plural without a number."""

    noun: Noun
    determiner: Determiner = "the"
    plural: bool = False
    count: int = 0
    adjective: Adjective | None = None
    possessor: Entity | None = None
    relative: Clause | None = None


@dataclass(frozen=True, slots=True)
class Coordination:
    first: Entity
    second: Entity


@dataclass(frozen=True, slots=True)
class Gap:
    """The place of the head in a relative clause."""


GAP = Gap()
Entity = Phrase | Coordination | Name | Pronoun | Gap


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause. Without a subject it is a command."""

    predicate: Verb | Adjective | Noun
    subject: Entity | None = None
    object: Entity | None = None
    recipient: Entity | None = None
    goal: Place | None = None
    place: Place | None = None
    tense: Tense = "present"
    negative: bool = False
    modal: Modal | None = None
    question: QuestionType | None = None
    time: Time | None = None
    fronted: bool = False
    manner: Manner | None = None
    companion: Entity | None = None
    means: Noun | None = None
    degree: Manner | None = None


@dataclass(frozen=True, slots=True)
class ExistentialClause:
    """For example: There are three cats in the garden."""

    phrase: Phrase
    place: Place
    tense: Tense = "present"
    negative: bool = False
    is_question: bool = False


@dataclass(frozen=True, slots=True)
class WeatherClause:
    """For example: It is cold today."""

    predicate: Verb | Adjective
    time: Time | None = None
    tense: Tense = "present"
    negative: bool = False


@dataclass(frozen=True, slots=True)
class CompoundSentence:
    first: Clause
    conjunction: Literal["and", "but"]
    second: Clause


@dataclass(frozen=True, slots=True)
class CausalSentence:
    """A result and its reason. For a shared subject English has a pronoun, Korean nothing."""

    result: Clause
    reason: Clause | WeatherClause


@dataclass(frozen=True, slots=True)
class ReportedSpeech:
    """For example: The child says that the house is big."""

    speaker: Entity
    verb: Verb
    content: Clause


Sentence = Clause | ExistentialClause | WeatherClause | CompoundSentence | CausalSentence | ReportedSpeech


def is_plural(entity: Entity) -> bool:
    if type(entity) is Phrase:
        return entity.plural or entity.count > 1
    if type(entity) is Pronoun:
        return entity.plural
    return type(entity) is Coordination


def has_relative(entity: Entity | None) -> bool:
    return type(entity) is Phrase and entity.relative is not None


def get_person(entity: Entity) -> int:
    """Return 1, 2 or 3; 1 for a coordination that includes the speaker."""
    if type(entity) is Pronoun:
        return entity.person
    if type(entity) is Coordination:
        return min(get_person(entity.first), get_person(entity.second))
    return 3


def get_sex(entity: Entity) -> str:
    if type(entity) is Phrase:
        return entity.noun.sex
    return entity.sex if isinstance(entity, Name | Pronoun) else ""


def refers_back(possessor: Entity | None, subject: Entity | None) -> bool:
    """Return whether a possessor must refer to the subject: he ... his, Mina ... her."""
    if type(possessor) is not Pronoun or possessor.person != 3 or subject is None or type(subject) is Gap:
        return False
    if get_person(subject) != 3 or is_plural(subject) != possessor.plural:
        return False
    return possessor.plural or get_sex(subject) == possessor.sex
