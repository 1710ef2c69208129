"""The built-in corpus: English-Korean and English-German sentence pairs without end, from a seed.

A meaning is drawn (author.py) and then said in two languages (english.py, korean.py, german.py). The target
is a function of the source: an English sentence has one Korean sentence in each register, and one German.
"""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from manyheads.config import describe_unknown_name
from manyheads.errors import ConfigError, DataError
from manyheads.playground.author import SentenceSampler
from manyheads.playground.english import realize_english
from manyheads.playground.german import realize_german
from manyheads.playground.korean import realize_korean
from manyheads.playground.meaning import (
    Adjective,
    CausalSentence,
    Clause,
    CompoundSentence,
    Coordination,
    Entity,
    ExistentialClause,
    Phrase,
    ReportedSpeech,
    Sentence,
    WeatherClause,
)
from manyheads.playground.trees import build_english_tree
from manyheads.text.trees import Tree

PAIRS = ("en-ko", "en-de")
REGISTERS = ("plain", "polite", "tagged")
CONSTRUCTIONS = (
    "tense",
    "negation",
    "question",
    "command",
    "coordination",
    "relative",
    "possessive",
    "number",
    "adjective",
    "time",
    "place",
    "manner",
    "modal",
    "subordinate",
)
Split = Literal["train", "valid", "test"]
Made = TypeVar("Made")

HELD_OUT_PERCENT = 5  # per cent of all target sentences, for valid and again for test
MAX_FRUITLESS_DRAWS = 20_000  # draws without a new sentence, after which there are no more


@dataclass(frozen=True, slots=True)
class PlaygroundExample:
    """A sentence pair, and which constructions it is an example of."""

    source: str
    target: str
    constructions: frozenset[str]


def generate_examples(
    pair: str = "en-ko",
    *,
    seed: int = 0,
    register: str = "plain",
    constructions: Collection[str] | None = None,
    words: int | None = None,
) -> Iterator[PlaygroundExample]:
    """Pairs without end. The same pair may come again: who needs distinct ones keeps a set (see `corpus`).

    `constructions` names those that may occur; without it, all. `words` is how many of each class of words
    may occur (the first ones). `register` is of Korean: plain, polite, or tagged, which draws one of the two
    for each sentence and says so at the head of the source: "<polite> I go home."
    """
    check_options(pair, register, constructions, words)
    allowed = frozenset(CONSTRUCTIONS if constructions is None else constructions)
    return realize_examples(pair, register, SentenceSampler(seed, allowed, words))


def check_options(pair: str, register: str, constructions: Collection[str] | None, words: int | None) -> None:
    if pair not in PAIRS:
        raise ConfigError(describe_unknown_name("pair", pair, list(PAIRS)))
    if register not in REGISTERS:
        raise ConfigError(describe_unknown_name("register", register, list(REGISTERS)))
    if pair == "en-de" and register != "plain":
        raise ConfigError(f'register is "{register}", but German has one here: leave it "plain"')
    if isinstance(constructions, str):
        raise ConfigError(f'constructions is "{constructions}", but must be a list: ["{constructions}"]')
    for name in constructions or ():
        if name not in CONSTRUCTIONS:
            raise ConfigError(describe_unknown_name("construction", name, list(CONSTRUCTIONS)))
    if words is not None and words < 2:
        raise ConfigError(f"words is {words}, but must be at least 2 of each class")


def realize_examples(pair: str, register: str, author: SentenceSampler) -> Iterator[PlaygroundExample]:
    while True:
        meaning = author.sample_sentence()
        source = realize_english(meaning)
        if pair == "en-de":
            target = realize_german(meaning)
        elif register == "tagged":
            drawn = "plain" if author.random() < 0.5 else "polite"
            source, target = f"<{drawn}> {source}", realize_korean(meaning, drawn)
        else:
            target = realize_korean(meaning, register)
        yield PlaygroundExample(source, target, find_constructions(meaning))


def assign_split(example_or_target: PlaygroundExample | str) -> Split:
    """Where a pair belongs, by its target alone: neither its source nor its target is in another split."""
    target = example_or_target if isinstance(example_or_target, str) else example_or_target.target
    digest = hashlib.blake2b(target.encode(), digest_size=8).digest()
    hundredth = int.from_bytes(digest, "big") % 100
    return (
        "test" if hundredth < HELD_OUT_PERCENT else "valid" if hundredth < 2 * HELD_OUT_PERCENT else "train"
    )


def generate_corpus(
    pair: str,
    *,
    train: int,
    valid: int,
    test: int,
    seed: int = 0,
    register: str = "plain",
    constructions: Collection[str] | None = None,
    words: int | None = None,
) -> dict[str, list[tuple[str, str]]]:
    """So many distinct pairs for each split. Larger corpora of a seed begin with the smaller ones."""
    stream = generate_examples(pair, seed=seed, register=register, constructions=constructions, words=words)
    drawn = ((one.source, one.target, (one.source, one.target)) for one in stream)
    return fill_splits(drawn, {"train": train, "valid": valid, "test": test})


def generate_treebank(
    *,
    train: int,
    valid: int,
    test: int,
    seed: int = 0,
    constructions: Collection[str] | None = None,
    words: int | None = None,
) -> dict[str, list[Tree]]:
    """So many trees of distinct English sentences for each split."""
    check_options("en-ko", "plain", constructions, words)
    author = SentenceSampler(
        seed, frozenset(CONSTRUCTIONS if constructions is None else constructions), words
    )
    drawn = ((said, said, build_english_tree(one)) for one, said in sample_meanings(author))
    return fill_splits(drawn, {"train": train, "valid": valid, "test": test})


def sample_meanings(author: SentenceSampler) -> Iterator[tuple[Sentence, str]]:
    """Without end, each with its English sentence."""
    while True:
        meaning = author.sample_sentence()
        yield meaning, realize_english(meaning)


def fill_splits(drawn: Iterator[tuple[str, str, Made]], wanted: dict[str, int]) -> dict[str, list[Made]]:
    """So many of each split. What is drawn comes with what it is known by, and what tells its split."""
    for name, count in wanted.items():
        if count < 0:
            raise ConfigError(f"{name} is {count}, but must be at least 0")
    made: dict[str, list[Made]] = {name: [] for name in wanted}
    seen: set[str] = set()
    missing, fruitless = sum(wanted.values()), 0
    while missing:
        known_by, told_by, one = next(drawn)
        split = assign_split(told_by)
        if len(made[split]) < wanted[split] and known_by not in seen:
            seen.add(known_by)
            made[split].append(one)
            missing, fruitless = missing - 1, 0
            continue
        fruitless += 1
        if fruitless == MAX_FRUITLESS_DRAWS:
            raise DataError(describe_shortfall(wanted, {name: len(own) for name, own in made.items()}))
    return made


def describe_shortfall(wanted: dict[str, int], made: dict[str, int]) -> str:
    name = next(name for name in wanted if made[name] < wanted[name])
    return (
        f"{name} is {wanted[name]}, but only {made[name]} distinct ones were found in it, and none in "
        f"the last {MAX_FRUITLESS_DRAWS} draws: ask for fewer, allow more constructions, or raise words"
    )


# --- Which constructions a meaning shows


def find_constructions(meaning: Sentence) -> frozenset[str]:
    found: set[str] = set()
    if type(meaning) is Clause:
        add_clause_constructions(meaning, found)
    elif type(meaning) is CompoundSentence:
        found.add("coordination")
        add_clause_constructions(meaning.first, found)
        add_clause_constructions(meaning.second, found)
    elif type(meaning) is CausalSentence:
        found.add("subordinate")
        add_clause_constructions(meaning.result, found)
        if type(meaning.reason) is Clause:
            add_clause_constructions(meaning.reason, found)
    elif type(meaning) is ReportedSpeech:
        found.add("subordinate")
        add_entity_constructions(meaning.speaker, found)
        add_clause_constructions(meaning.content, found)
    else:
        assert isinstance(meaning, ExistentialClause | WeatherClause)
        add_scene_constructions(meaning, found)
    return frozenset(found)


def add_scene_constructions(meaning: ExistentialClause | WeatherClause, found: set[str]) -> None:
    if meaning.tense != "present":
        found.add("tense")
    if meaning.negative:
        found.add("negation")
    if type(meaning) is WeatherClause:
        if meaning.time:
            found.add("time")
    elif type(meaning) is ExistentialClause:
        found.add("place")
        if meaning.is_question:
            found.add("question")
        add_entity_constructions(meaning.phrase, found)


def add_clause_constructions(clause: Clause, found: set[str]) -> None:
    if clause.tense != "present":
        found.add("tense")
    if clause.negative:
        found.add("negation")
    if clause.modal:
        found.add("modal")
    if clause.question:
        found.add("question")
    if clause.subject is None:
        found.add("command")
    if clause.time:
        found.add("time")
    if clause.place:
        found.add("place")
    if clause.manner or clause.companion or clause.means:
        found.add("manner")
    if type(clause.predicate) is Adjective:
        found.add("adjective")
    for said in (clause.subject, clause.object, clause.recipient, clause.companion):
        if said is not None:
            add_entity_constructions(said, found)


def add_entity_constructions(said: Entity, found: set[str]) -> None:
    if type(said) is Phrase:
        if said.adjective:
            found.add("adjective")
        if said.count:
            found.add("number")
        if said.possessor:
            found.add("possessive")
        if said.relative:
            found.add("relative")
            add_clause_constructions(said.relative, found)
    elif type(said) is Coordination:
        found.add("coordination")
        add_entity_constructions(said.first, found)
        add_entity_constructions(said.second, found)
