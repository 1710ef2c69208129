"""Generating corpora and treebanks of distinct sentences from a seed, split into train, valid and test."""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from manyheads.config import describe_unknown_name
from manyheads.errors import ConfigError, DataError
from manyheads.playground.constructions import CONSTRUCTIONS, find_constructions
from manyheads.playground.english import realize_english
from manyheads.playground.german import realize_german
from manyheads.playground.korean import realize_korean
from manyheads.playground.sentences import SentenceSampler
from manyheads.playground.trees import build_english_tree
from manyheads.text.trees import Tree

PAIRS = ("en-ko", "en-de")
REGISTERS = ("plain", "polite", "tagged")
HELD_OUT_PERCENT = 5  # of all target sentences, for valid and again for test
MAX_FRUITLESS_SAMPLES = 20_000  # in a row, after which there are no more new sentences

SplitName = Literal["train", "valid", "test"]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class PlaygroundExample:
    """A sentence pair, and the constructions in it."""

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
    """Yield sentence pairs without end. Pairs may repeat; `generate_corpus` returns distinct ones.

    `constructions` are those that may occur, by default all. `words` limits each class of words to its first
    ones. `register` is of Korean: plain, polite, or tagged, which samples one for each sentence and
    puts it before the source: "<polite> I go home."
    """
    check_options(pair, register, constructions, words)
    return realize_examples(pair, register, make_sampler(seed, constructions, words))


def check_options(pair: str, register: str, constructions: Collection[str] | None, words: int | None) -> None:
    if pair not in PAIRS:
        raise ConfigError(describe_unknown_name("pair", pair, list(PAIRS)))
    if register not in REGISTERS:
        raise ConfigError(describe_unknown_name("register", register, list(REGISTERS)))
    if pair == "en-de" and register != "plain":
        raise ConfigError(f'register is "{register}", but German has only "plain" here')
    if isinstance(constructions, str):
        raise ConfigError(f'constructions is "{constructions}", but must be a list: ["{constructions}"]')
    for name in constructions or ():
        if name not in CONSTRUCTIONS:
            raise ConfigError(describe_unknown_name("construction", name, list(CONSTRUCTIONS)))
    if words is not None and words < 2:
        raise ConfigError(f"words is {words}, but must be at least 2 of each class")


def make_sampler(seed: int, constructions: Collection[str] | None, words: int | None) -> SentenceSampler:
    return SentenceSampler(seed, frozenset(CONSTRUCTIONS if constructions is None else constructions), words)


def realize_examples(pair: str, register: str, sampler: SentenceSampler) -> Iterator[PlaygroundExample]:
    while True:
        meaning = sampler.sample_sentence()
        source = realize_english(meaning)
        if pair == "en-de":
            target = realize_german(meaning)
        elif register == "tagged":
            sampled = "plain" if sampler.random() < 0.5 else "polite"
            source, target = f"<{sampled}> {source}", realize_korean(meaning, sampled)
        else:
            target = realize_korean(meaning, register)
        yield PlaygroundExample(source, target, find_constructions(meaning))


def assign_split(example_or_target: PlaygroundExample | str) -> SplitName:
    """Return the split of a pair by its target alone, so that no sentence is in two splits."""
    target = example_or_target if isinstance(example_or_target, str) else example_or_target.target
    digest = hashlib.blake2b(target.encode(), digest_size=8).digest()
    percentile = int.from_bytes(digest, "big") % 100
    if percentile < HELD_OUT_PERCENT:
        return "test"
    return "valid" if percentile < 2 * HELD_OUT_PERCENT else "train"


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
    """Return distinct pairs for each split. A larger corpus of the same seed starts with the smaller one."""
    examples = generate_examples(pair, seed=seed, register=register, constructions=constructions, words=words)
    items = ((example.source, example.target, (example.source, example.target)) for example in examples)
    return fill_splits(items, {"train": train, "valid": valid, "test": test})


def generate_treebank(
    *,
    train: int,
    valid: int,
    test: int,
    seed: int = 0,
    constructions: Collection[str] | None = None,
    words: int | None = None,
) -> dict[str, list[Tree]]:
    """Return trees of distinct English sentences for each split."""
    check_options("en-ko", "plain", constructions, words)
    trees = realize_trees(make_sampler(seed, constructions, words))
    return fill_splits(trees, {"train": train, "valid": valid, "test": test})


def realize_trees(sampler: SentenceSampler) -> Iterator[tuple[str, str, Tree]]:
    while True:
        meaning = sampler.sample_sentence()
        sentence = realize_english(meaning)
        yield sentence, sentence, build_english_tree(meaning)


def fill_splits(items: Iterator[tuple[str, str, Item]], sizes: dict[str, int]) -> dict[str, list[Item]]:
    """Fill each split to its size. An item comes with its key and the text that determines its split."""
    for name, size in sizes.items():
        if size < 0:
            raise ConfigError(f"{name} is {size}, but must be at least 0")
    splits: dict[str, list[Item]] = {name: [] for name in sizes}
    seen: set[str] = set()
    missing, fruitless = sum(sizes.values()), 0
    while missing:
        key, split_text, item = next(items)
        split = assign_split(split_text)
        if len(splits[split]) < sizes[split] and key not in seen:
            seen.add(key)
            splits[split].append(item)
            missing, fruitless = missing - 1, 0
            continue
        fruitless += 1
        if fruitless == MAX_FRUITLESS_SAMPLES:
            raise DataError(describe_shortfall(sizes, {name: len(items) for name, items in splits.items()}))
    return splits


def describe_shortfall(sizes: dict[str, int], counts: dict[str, int]) -> str:
    name = next(name for name in sizes if counts[name] < sizes[name])
    return (
        f"{name} is {sizes[name]}, but only {counts[name]} distinct sentences were found, and none among the "
        f"last {MAX_FRUITLESS_SAMPLES} samples: lower {name}, allow more constructions, or raise words"
    )
