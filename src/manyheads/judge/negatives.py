"""Wrong pairs made from pairs of the corpus, from which the combination of features is learned.

They are of the types that real corpora have: the translation of another sentence, a part without counterpart,
an untranslated or hardly changed copy, another language, and text that is none.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from manyheads.confidence.corruption import list_foreign_sentences

MIN_WORDS = 4  # of a side that a part is cut from
LETTER_SHARE = 0.3  # of the letters that are replaced in garbled text


class Negative(NamedTuple):
    """A wrong pair, the number of the pair that it was made from, and its type."""

    source: str
    target: str
    origin: int
    type: str


def make_negatives(
    sources: Sequence[str],
    targets: Sequence[str],
    folds: Sequence[int],
    languages: tuple[str, str],
    count: int,
    seed: int,
) -> list[Negative]:
    """Return `count` wrong pairs, of all types in turn. Foreign parts come from the fold of the origin."""
    rng = random.Random(seed)
    members: dict[int, list[int]] = {}
    for n, fold in enumerate(folds):
        members.setdefault(fold, []).append(n)
    by_length = {
        fold: sorted(numbers, key=lambda n: (len(targets[n]), n)) for fold, numbers in members.items()
    }
    ranks = {n: rank for numbers in by_length.values() for rank, n in enumerate(numbers)}
    foreign = list_foreign_sentences(languages[0]), list_foreign_sentences(languages[1])
    makers = list(MAKERS)
    negatives = []
    for number in range(count):
        n = rng.randrange(len(sources))
        same_fold = by_length[folds[n]]
        near = same_fold[max(0, min(len(same_fold) - 1, ranks[n] + rng.randint(-50, 50)))]
        other = rng.choice(same_fold)
        maker = makers[number % len(makers)]
        pair = Material((sources[n], targets[n]), targets[near], targets[other], foreign)
        source, target = MAKERS[maker](pair, rng)
        if (source, target) != (sources[n], targets[n]) and source.strip() and target.strip():
            negatives.append(Negative(source, target, n, maker))
    return negatives


class Material(NamedTuple):
    """A right pair, and what can take the place of its sides."""

    pair: tuple[str, str]
    similar: str  # the target of another pair, of similar length
    other: str  # the target of any pair
    foreign: tuple[list[str], list[str]]  # sentences of other languages than the source's, the target's


def replace_target(material: Material, rng: random.Random) -> tuple[str, str]:
    return material.pair[0], material.similar if rng.random() < 0.7 else material.other


def cut_target(material: Material, rng: random.Random) -> tuple[str, str]:
    return material.pair[0], cut_text(material.pair[1], rng)


def cut_source(material: Material, rng: random.Random) -> tuple[str, str]:
    return cut_text(material.pair[0], rng), material.pair[1]


def extend_target(material: Material, rng: random.Random) -> tuple[str, str]:
    """Join the target and that of another pair: a wrong sentence boundary."""
    return material.pair[0], f"{material.pair[1]} {material.similar}"


def copy_side(material: Material, rng: random.Random) -> tuple[str, str]:
    """Leave the source untranslated, or nearly so."""
    text = material.pair[0 if rng.random() < 0.7 else 1]
    words = text.split()
    for n in range(len(words) if rng.random() < 0.4 else 0):
        if rng.random() < 0.2:
            words[n] = rng.choice((words[n].lower(), words[n][::-1], words[rng.randrange(len(words))]))
    return (material.pair[0], " ".join(words)) if text == material.pair[0] else (" ".join(words), text)


def use_other_language(material: Material, rng: random.Random) -> tuple[str, str]:
    side = 1 if rng.random() < 0.7 else 0
    foreign = material.foreign[side]
    text = rng.choice(foreign)
    while len(text) < 0.7 * len(material.pair[side]):
        text = f"{text} {rng.choice(foreign)}"
    return (material.pair[0], text) if side else (text, material.pair[1])


def garble_side(material: Material, rng: random.Random) -> tuple[str, str]:
    side = 1 if rng.random() < 0.8 else 0
    text = rng.choice((replace_letters, shuffle_words, repeat_words, break_encoding))(
        material.pair[side], material.other, rng
    )
    return (material.pair[0], text) if side else (text, material.pair[1])


MAKERS = {
    "replaced": replace_target,
    "target cut": cut_target,
    "source cut": cut_source,
    "extended": extend_target,
    "copied": copy_side,
    "foreign": use_other_language,
    "garbled": garble_side,
}


def cut_text(text: str, rng: random.Random) -> str:
    """Remove between a third and two thirds, from the start or the end, of words or else letters."""
    words = text.split()
    parts, joint = (words, " ") if len(words) >= MIN_WORDS else (list(text), "")
    if len(parts) < MIN_WORDS:
        return text
    kept = max(1, round(len(parts) * rng.uniform(1 / 3, 2 / 3)))
    return joint.join(parts[:kept] if rng.random() < 0.7 else parts[-kept:]).strip()


def replace_letters(text: str, other: str, rng: random.Random) -> str:
    letters = "".join(sorted(set(text + other)))
    share = rng.uniform(LETTER_SHARE, 1)
    return "".join(rng.choice(letters) if rng.random() < share else letter for letter in text)


def shuffle_words(text: str, other: str, rng: random.Random) -> str:
    words = [*text.split(), *other.split()]
    return " ".join(rng.sample(words, max(1, len(words) // 2)))


def repeat_words(text: str, other: str, rng: random.Random) -> str:
    words = text.split()
    phrase = words[: rng.randint(1, 4)]
    return " ".join(phrase * (1 + max(2, len(words)) // len(phrase)))


def break_encoding(text: str, other: str, rng: random.Random) -> str:
    """Read UTF-8 as Latin-1; text without other characters gets its letters reordered."""
    broken = text.encode("utf-8", "replace").decode("latin-1")
    return broken if broken != text else "".join(rng.sample(text, len(text)))
