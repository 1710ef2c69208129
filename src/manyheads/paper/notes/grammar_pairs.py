"""Sentences of the built-in grammar with known subject, verb and object, and pairs of words in a relation."""

from collections.abc import Iterator
from dataclasses import dataclass

from manyheads.paper.notes.translation import CONSTRUCTIONS, WORDS_PER_CLASS
from manyheads.playground.english import inflect_verb, realize_english
from manyheads.playground.meaning import (
    Clause,
    Coordination,
    Entity,
    Gap,
    Name,
    Phrase,
    Pronoun,
    Verb,
    is_plural,
)
from manyheads.playground.sentences import SentenceSampler

SYNTACTIC = ("verb_subject", "subject_verb", "verb_object", "object_verb")
RELATIONS = ("itself", "before", "after", "same", *SYNTACTIC, "end")
Pairs = list[tuple[int, int]]  # query and key position


@dataclass(frozen=True)
class GrammarSentence:
    """A sentence and its subject, verb and object words; an empty string if there is none."""

    text: str
    subject: str
    verb: str
    object: str


def generate_sentences(count: int, seed: int = 7) -> Iterator[GrammarSentence]:
    """Yield statements with a verb and a subject in the vocabulary of the small model."""
    sampler, generated = SentenceSampler(seed, frozenset(CONSTRUCTIONS), WORDS_PER_CLASS), 0
    while generated < count:
        meaning = sampler.sample_sentence()
        if type(meaning) is not Clause or type(meaning.predicate) is not Verb or meaning.subject is None:
            continue
        subject, object_word = (
            find_head_word(meaning.subject),
            find_head_word(meaning.object) if meaning.object else "",
        )
        verb = inflect_verb(meaning, meaning.subject)[1].split()[0]
        if subject and (object_word or not meaning.object):
            generated += 1
            yield GrammarSentence(realize_english(meaning), subject, verb, object_word)


def find_head_word(entity: Entity) -> str:
    """Return the noun, name or pronoun as it is written; a coordination has none."""
    if type(entity) is Phrase:
        noun = entity.noun
        return (noun.plural if noun.plural and is_plural(entity) else noun.en).split()[-1]
    if type(entity) is Coordination or type(entity) is Gap:
        return ""
    assert isinstance(entity, Name | Pronoun)
    return entity.en.split()[-1]


def find_pairs(sentence: GrammarSentence, words: list[str]) -> dict[str, Pairs]:
    """Return the query and key positions of each relation. The last word is the end token."""
    last = len(words) - 1
    rows = range(last)
    lowered = [word.lower() for word in words]
    positions = {
        role: find_position(getattr(sentence, role), lowered) for role in ("subject", "verb", "object")
    }
    subject_position, verb_position, object_position = positions.values()
    return {
        "itself": [(row, row) for row in rows],
        "before": [(row, row - 1) for row in rows if row],
        "after": [(row, row + 1) for row in rows if row + 1 < last],
        "same": [
            (first, second)
            for first in rows
            for second in rows
            if first != second and lowered[first] == lowered[second]
        ],
        "verb_subject": make_pair(verb_position, subject_position),
        "subject_verb": make_pair(subject_position, verb_position),
        "verb_object": make_pair(verb_position, object_position),
        "object_verb": make_pair(object_position, verb_position),
        "end": [(row, last) for row in rows],
    }


def find_position(word: str, lowered: list[str]) -> int:
    """Return the position of a word, or -1 if it is missing or not unique."""
    return lowered.index(word.lower()) if lowered.count(word.lower()) == 1 else -1


def make_pair(query: int, key: int) -> Pairs:
    return [(query, key)] if min(query, key) >= 0 else []
