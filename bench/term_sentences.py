"""Sentences of the built-in grammar with terms of a glossary, and the exact form that each term must take.

A meaning with the noun "dog" is written in English; for the reference another noun takes its place, such as
Katze, and the grammar gives that its case, number and articles, or its particle. A glossary with dog = Katze
must lead to the reference.
"""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from manyheads.demo import WORDS_PER_CLASS
from manyheads.playground.english import realize_english
from manyheads.playground.generate import assign_split, make_sampler
from manyheads.playground.german import realize_german
from manyheads.playground.german_morphology import decline_noun
from manyheads.playground.korean import realize_korean
from manyheads.playground.lexicon import ALL_NOUNS
from manyheads.playground.meaning import Noun

HELD_OUT = 24  # nouns that the training text does not have
NUM_CASES = 4
NUM_SAMPLES = 100_000  # of meanings
MAX_WORDS = 16  # of a source
WORD = re.compile(r"\w+")


class TermSentence(NamedTuple):
    """A sentence with one term."""

    source: str
    reference: str
    plain_reference: str  # without the glossary
    term: str  # of the source, in the singular
    translation: str  # in its base form
    expected: str  # the form of the translation, with its particle in Korean
    is_seen: bool  # whether the translation is in the training text


def list_nouns() -> list[Noun]:
    """Return the nouns that are single words, with a plural, and unlike all others."""
    nouns = [noun for nouns in ALL_NOUNS.values() for noun in nouns[:WORDS_PER_CLASS]]
    return [
        noun
        for noun in nouns
        if " " not in noun.en + noun.de + noun.ko
        and noun.de_plural
        and noun.plural not in ("", noun.en)
        and sum(other.en == noun.en or other.ko == noun.ko or other.de == noun.de for other in nouns) == 1
    ]


def choose_held_out(nouns: Sequence[Noun]) -> list[Noun]:
    """Return every so many of the nouns."""
    step = max(1, len(nouns) // HELD_OUT)
    return list(nouns[step // 2 :: step][:HELD_OUT])


def mentions(sentence: str, nouns: Sequence[Noun]) -> bool:
    words = set(WORD.findall(sentence.lower()))
    return any(noun.en in words or noun.plural in words for noun in nouns)


def choose_partners(nouns: Sequence[Noun], others: Sequence[Noun]) -> dict[Noun, Noun]:
    """Return another noun for each, by turns, of the same sex, and of the same category if possible."""
    partners: dict[Noun, Noun] = {}
    uses: dict[str, int] = defaultdict(int)
    for noun in nouns:
        likely = [other for other in others if other is not noun and other.sex == noun.sex]
        fitting = [other for other in likely if other.category == noun.category] or likely
        if not fitting:
            continue
        uses[noun.category] += 1
        partners[noun] = fitting[uses[noun.category] % len(fitting)]
    return partners


def replace_noun(meaning: Any, old: Noun, new: Noun) -> Any:
    """Return a meaning with another noun in the place of one."""
    if meaning is old:
        return new
    if not dataclasses.is_dataclass(meaning) or isinstance(meaning, Noun):
        return meaning
    changes = {
        field.name: replace_noun(getattr(meaning, field.name), old, new)
        for field in dataclasses.fields(meaning)
    }
    if all(changes[name] is getattr(meaning, name) for name in changes):
        return meaning
    return dataclasses.replace(meaning, **changes)  # type: ignore[type-var]


def realize(meaning: Any, pair: str) -> str:
    return realize_german(meaning) if pair == "en-de" else realize_korean(meaning, "plain")


def list_forms(noun: Noun, pair: str) -> set[str]:
    if pair == "en-ko":
        return {noun.ko}
    return {decline_noun(noun, plural, case) for plural in (False, True) for case in range(NUM_CASES)}


def find_expected(reference: str, noun: Noun, pair: str) -> str | None:
    """Return the only word of a text that is a form of a noun."""
    forms = list_forms(noun, pair)
    words = [
        word
        for word in WORD.findall(reference)
        if (word.startswith(noun.ko) if pair == "en-ko" else word in forms)
    ]
    return words[0] if len(words) == 1 else None


def make_sentences(pair: str, per_term: int, num_terms: int, seed: int = 77) -> list[TermSentence]:
    """Return sentences for a number of terms: first those with translations that training has seen."""
    every = list_nouns()
    held_out = choose_held_out(every)
    nouns = [noun for noun in every if noun not in held_out]
    by_word = {word: noun for noun in nouns for word in (noun.en, noun.plural)}
    glossaries = {True: choose_partners(nouns, nouns), False: choose_partners(nouns, held_out)}
    sentences: dict[tuple[bool, str], list[TermSentence]] = defaultdict(list)
    seen: set[str] = set()
    for meaning in sample_meanings(seed):
        source, plain = realize_english(meaning), realize(meaning, pair)
        if (
            source in seen
            or assign_split(plain) == "train"
            or len(source.split()) > MAX_WORDS
            or mentions(source, held_out)
        ):
            continue
        words = [by_word[word] for word in WORD.findall(source.lower()) if word in by_word]
        for noun in (noun for noun in words if words.count(noun) == 1):
            num_seen, num_new = (len(sentences[is_new, noun.en]) for is_new in (False, True))
            is_seen = num_seen <= num_new or noun not in glossaries[False]
            own = sentences[not is_seen, noun.en]
            if len(own) < per_term and noun in glossaries[is_seen]:
                made = make_sentence(meaning, source, noun, glossaries[is_seen][noun], pair, is_seen)
                if made is not None:
                    seen.add(source)
                    own.append(made)
                    break
    complete = sorted(key for key, own in sentences.items() if len(own) == per_term)[:num_terms]
    return [sentence for key in complete for sentence in sentences[key]]


def make_sentence(
    meaning: Any, source: str, noun: Noun, partner: Noun, pair: str, is_seen: bool
) -> TermSentence | None:
    """Return a sentence with a noun that becomes another; None if that shows nothing."""
    plain, reference = realize(meaning, pair), realize(replace_noun(meaning, noun, partner), pair)
    expected = find_expected(reference, partner, pair)
    if reference == plain or expected is None or find_expected(plain, partner, pair) is not None:
        return None
    translation = partner.de if pair == "en-de" else partner.ko
    return TermSentence(source, reference, plain, noun.en, translation, expected, is_seen)


def sample_meanings(seed: int) -> Iterator[Any]:
    sampler = make_sampler(seed, None, WORDS_PER_CLASS)
    for _ in range(NUM_SAMPLES):
        yield sampler.sample_sentence()
