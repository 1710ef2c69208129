"""Training pairs with copy symbols on both sides, from which a model learns to copy them.

Words that are the same on both sides (numbers, names, codes, placeholders) are replaced by symbols, or put
between two of them like text between tags. Pairs without such words get symbols at the same place of both.
"""

import random
import re
from typing import NamedTuple

from manyheads.text.noise import is_verbatim
from manyheads.text.verbatim import COPY_SYMBOLS

MARKS = ".,;:!?…\"'“”„«»‘’()。、！？，"
PARTICLE = re.compile(r"(?<=[!-~])[가-힣]+$")  # 10년, React를
END_MARKS = re.compile(r"[.!?…。！？]*[\"'”’»)]*$")
REPLACE_RATE = 0.7  # of the words that are the same on both sides
TAG_RATE = 0.2  # of the replaced words that stay, between two symbols
ADDITION_RATE = 0.2  # of the pairs with replaced words that get symbols elsewhere too
NUM_ADDED = (1, 1, 1, 1, 1, 1, 1, 2, 2, 3)  # symbols in a row, each as likely


class SharedWord(NamedTuple):
    """A word that occurs once on both sides, without the marks around it."""

    text: str
    source_index: int
    target_index: int


def insert_copy_symbols(source: str, target: str, rng: random.Random) -> tuple[str, str]:
    """Put copy symbols into both sides of a pair."""
    symbols = rng.sample(COPY_SYMBOLS, len(COPY_SYMBOLS))
    shared = find_shared_words(source, target)
    if not shared:
        return add_symbols(source, target, symbols, rng)
    sides = source.split(" "), target.split(" ")
    chosen = [word for word in shared if rng.random() < REPLACE_RATE] or [rng.choice(shared)]
    for word in chosen[: len(COPY_SYMBOLS) // 2]:
        symbol = symbols.pop()
        replacement = f"{symbol}{word.text}{symbols.pop()}" if rng.random() < TAG_RATE else symbol
        for words, index in zip(sides, word[1:], strict=True):
            words[index] = words[index].replace(word.text, replacement, 1)
    source, target = (" ".join(words) for words in sides)
    if len(symbols) >= max(NUM_ADDED) and rng.random() < ADDITION_RATE:
        return add_symbols(source, target, symbols, rng)
    return source, target


def find_shared_words(source: str, target: str) -> list[SharedWord]:
    """Return the words that are the same on both sides, and probably mean the same: names and codes."""
    in_source = {word: place for word, place in index_copied_words(source).items() if word in target}
    in_target = index_copied_words(target) if in_source else {}
    return [
        SharedWord(word, place, other)
        for word, place in in_source.items()
        if place >= 0 and (other := in_target.get(word, -1)) >= 0
    ]


def index_copied_words(text: str) -> dict[str, int]:
    """Return the places of names, numbers and codes; -1 for those that occur more than once.

    A capital is a sign of a name, except in the first word.
    """
    places: dict[str, int] = {}
    for index, word in enumerate(text.split(" ")):
        if word.isalpha() and word.islower():
            continue
        core = PARTICLE.sub("", word.strip(MARKS))
        if is_verbatim(core) or (index and len(core) > 1 and core[0].isupper()):
            places[core] = -1 if core in places else index
    return places


def add_symbols(source: str, target: str, symbols: list[str], rng: random.Random) -> tuple[str, str]:
    """Add symbols at the start or the end of both sides, around them, or after their only colon."""
    place = rng.random()
    if place < 0.1:
        before, after = symbols[:2]
        return f"{before}{source}{after}", f"{before}{target}{after}"
    added = " ".join(symbols[: rng.choice(NUM_ADDED)])
    if source.count(": ") == target.count(": ") == 1:
        return source.replace(": ", f": {added} "), target.replace(": ", f": {added} ")
    if place < 0.35:
        mark = ":" if place < 0.15 else ""
        return f"{added}{mark} {source}", f"{added}{mark} {target}"
    if place < 0.5:
        return f"{source} {added}", f"{target} {added}"
    added = f" ({added})" if place < 0.6 else f" {added}"
    return insert_before_end_marks(source, added), insert_before_end_marks(target, added)


def insert_before_end_marks(text: str, added: str) -> str:
    marks = END_MARKS.search(text)
    assert marks  # it matches the empty end
    return text[: marks.start()] + added + text[marks.start() :]
