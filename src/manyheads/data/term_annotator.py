"""Annotated terms in training sources, from which a model learns to use the terms of a glossary.

    "I see the dogs."  ->  "I see the ⟦t⟧ dogs⟦=⟧ Hund⟦/⟧."   the target stays "Ich sehe die Hunde."
                       or  "I see the ⟦t⟧ lamps⟦=⟧ Hund⟦/⟧."

A glossary changes what a word becomes, which a model never sees where a word always becomes the same. So
many terms are swapped for another source word: what the term becomes is then in the annotation alone, and
the number of the source word is still in its ending. Others get a translation that is no word:

    "I see the ⟦t⟧ dogs⟦=⟧ Land⟦/⟧."   and the target is "Ich sehe die Lande."

A model that has seen only words of its corpus in annotations learns to recognize them, but not to copy the
subwords of a word that it has never written.
"""

import random
from collections import defaultdict
from collections.abc import Hashable
from typing import NamedTuple

from manyheads.data.term_lexicon import WORD, TermEntry, TermLexicon
from manyheads.text.term_annotation import Annotation, annotate
from manyheads.text.term_matching import is_hangul

NUM_TERMS = (1, 1, 1, 2, 2, 3)  # of a sentence, each as likely
SWAP_RATE = 0.5  # of the terms whose source word is another one
INVENTED_RATE = 0.4  # of the terms whose translation is invented
SURFACE_RATE = 0.2  # of the terms with the form of the target instead of the base form
JOIN_RATE = 0.5  # of the terms beside each other that become one


class TermCandidate(NamedTuple):
    """A source word with the target word that it becomes."""

    start: int
    end: int
    translation: str
    surface: str  # the form in the target
    target_index: int  # of the word
    word_class: Hashable
    target_start: int  # character


class TermAnnotator:
    """Annotates sources by a lexicon."""

    def __init__(self, lexicon: TermLexicon) -> None:
        self.lexicon = lexicon
        self.swaps: dict[Hashable, list[str]] = defaultdict(list)  # source words that are alike
        for word, entry in lexicon.items():
            self.swaps[get_word_class(word, entry)].append(word[: entry.stem_length])
        bases = sorted({entry.base for entry in lexicon.values()})
        self.bases = {
            is_name: [base for base in bases if base[0].isupper() == is_name] for is_name in (True, False)
        }

    def annotate(self, source: str, target: str, rng: random.Random) -> tuple[str, str]:
        """Return the pair with some terms annotated; the pair itself if it has none that is known."""
        candidates = self.find_candidates(source, target)
        if not candidates:
            return source, target
        chosen = sorted(rng.sample(candidates, min(len(candidates), rng.choice(NUM_TERMS))))
        parts: list[str] = []
        annotations: list[Annotation] = []
        invented: dict[TermCandidate, str] = {}
        position = length = 0
        for terms in join_neighbors(chosen, source, rng):
            start, end = terms[0].start, terms[-1].end
            written, translation = source[start:end], choose_translation(terms, rng)
            if len(terms) == 1 and rng.random() < SWAP_RATE:
                written = self.swap(terms[0], written, rng)
            if rng.random() < INVENTED_RATE and can_invent(terms, candidates, target):
                translation = invented[terms[0]] = self.invent(terms[0].translation, rng)
            parts += [source[position:start], written]
            length += start - position
            annotations.append(Annotation(length, length + len(written), translation))
            length += len(written)
            position = end
        return annotate("".join([*parts, source[position:]]), annotations), replace_bases(target, invented)

    def find_candidates(self, source: str, target: str) -> list[TermCandidate]:
        """Return the source words that become one word of the target, and no other."""
        matches = list(WORD.finditer(target))
        words = [match.group() for match in matches]
        lowered = [word.lower() for word in words]
        candidates = []
        for match in WORD.finditer(source):
            key = match.group().lower()
            entry = self.lexicon.get(key)
            if entry is None:
                continue
            indices = [index for index, word in enumerate(lowered) if word in entry.forms]
            if len(indices) == 1:
                index = indices[0]
                candidates.append(
                    TermCandidate(
                        match.start(),
                        match.start() + entry.stem_length,
                        entry.base,
                        get_surface(words[index], entry),
                        index,
                        get_word_class(key, entry),
                        matches[index].start(),
                    )
                )
        return candidates

    def swap(self, candidate: "TermCandidate", term: str, rng: random.Random) -> str:
        """Return another source word of the same class, with a capital where the term has one."""
        other = rng.choice(self.swaps[candidate.word_class])
        return other[:1].upper() + other[1:] if term[:1].isupper() else other

    def invent(self, base: str, rng: random.Random) -> str:
        """Return the beginning of another translation with the end of this one, by which it is inflected."""
        other = rng.choice(self.bases[base[0].isupper()])
        return other[: (len(other) + 1) // 2] + base[len(base) // 2 :].lower()


def get_word_class(word: str, entry: TermEntry) -> Hashable:
    """Return what a word must share with one that takes its place, so that a sentence keeps its grammar.

    The last letter tells English plurals apart (in Hangul nothing: particles follow stems), and the capital
    of the translation German nouns.
    """
    ending = "" if is_hangul(word[0]) else word[-1]
    return ending, entry.is_name, entry.base[0].isupper()


def can_invent(terms: list[TermCandidate], candidates: list[TermCandidate], target: str) -> bool:
    """Return whether a word becomes its base form, perhaps with an ending, and no other word the same."""
    term = terms[0]
    is_only = sum(other.target_index == term.target_index for other in candidates) == 1
    word = target[term.target_start : term.target_start + len(term.translation)]
    return len(terms) == 1 and is_only and word.lower() == term.translation.lower()


def replace_bases(target: str, invented: dict[TermCandidate, str]) -> str:
    """Return the target with invented base forms, whose endings stay."""
    for term in sorted(invented, key=lambda own: -own.target_start):
        end = term.target_start + len(term.translation)
        base = invented[term]
        if target[term.target_start].isupper():
            base = base[0].upper() + base[1:]
        target = target[: term.target_start] + base + target[end:]
    return target


def get_surface(word: str, entry: TermEntry) -> str:
    """Return the form of a target word without particles."""
    return entry.base if is_hangul(word[-1]) else word


def join_neighbors(chosen: list[TermCandidate], source: str, rng: random.Random) -> list[list[TermCandidate]]:
    """Return terms of one word or several: neighbors that become the same word or, often, neighbors."""
    terms: list[list[TermCandidate]] = []
    for candidate in chosen:
        last = terms[-1][-1] if terms else None
        if last is not None and source[last.end : candidate.start].isspace():
            distance = candidate.target_index - last.target_index
            if distance == 0 or (distance == 1 and rng.random() < JOIN_RATE):
                terms[-1].append(candidate)
                continue
        terms.append([candidate])
    return terms


def choose_translation(terms: list[TermCandidate], rng: random.Random) -> str:
    """Return the base form of a term, or sometimes the form of the target."""
    has_surface = rng.random() < SURFACE_RATE
    written = {term.target_index: term.surface if has_surface else term.translation for term in terms}
    return " ".join(written.values())
