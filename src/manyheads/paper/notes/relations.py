"""Which words a head relates: the share of its attention that goes from a word to one that stands to it so.

Of each relation the best head is chosen on one half of the sentences and measured on the other, so that the
best of many heads is not taken for better than it is. Beside it stand what even attention would give; what
the same head gives to words as far away that do not stand in this relation, for a head may know positions
only; and what all other words give to the same word, for it may be one that all look at.

Shapes: L layers, H heads, W words of a sentence.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from manyheads.errors import RequestError
from manyheads.look.attention_data import merge_into_words, stack_maps, tokens_by_side
from manyheads.look.words import tokens_to_words
from manyheads.paper.notes.drawing import Labels, draw_heatmap, make_axes
from manyheads.paper.notes.learning import ignore_progress
from manyheads.paper.notes.translation import CONSTRUCTIONS, WORDS_PER_CLASS
from manyheads.paper.report import Cell, ReportTable
from manyheads.playground.author import SentenceSampler
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
from manyheads.progress import ReportProgress, make_counter
from manyheads.translator import Translator

STAGE = "which words a head relates"
NUM_SENTENCES = 120
LANGUAGE = "en"  # of the sentences, whose grammar is known
SYNTACTIC = ("verb_subject", "subject_verb", "verb_object", "object_verb")
RELATIONS = ("itself", "before", "after", "same", *SYNTACTIC, "end")
MAX_COLUMNS = 16  # heads of a figure
Pairs = list[tuple[int, int]]  # who looks, at whom


@dataclass(frozen=True)
class GrammarSentence:
    """A sentence in its words, and where three of them stand; -1: it has none."""

    text: str
    subject: str
    verb: str
    object: str


@dataclass(frozen=True)
class HeadRelation:
    """A relation, and the head that shows it best."""

    name: str
    layer: int  # from 0
    head: int
    share: float  # of the attention of those who look
    uniform_share: float  # if all words were looked at alike
    same_distance_share: float | None  # of the same head, where words as far apart stand in no such relation
    other_words_share: (
        float | None
    )  # of the same head, what all other words give to those who are looked at here
    pairs: int  # that it was measured on

    @property
    def baseline_share(self) -> float:
        """What something simpler would give, at most."""
        return max(self.uniform_share, self.same_distance_share or 0.0, self.other_words_share or 0.0)


@dataclass(frozen=True)
class RelationResults:
    """Of the encoder's heads."""

    EXPECTED: ClassVar = ("grammar",)

    layers: int
    heads: int
    sentences: int
    relations: list[HeadRelation]
    shares: dict[str, list[list[float]]]  # by relation, layer and head, over all sentences
    trained_here: bool  # of the model that this command trained

    def get(self, name: str) -> HeadRelation | None:
        return next((one for one in self.relations if one.name == name), None)

    @property
    def grammar(self) -> HeadRelation | None:
        """The relation of grammar that stands out most from what anything simpler would give."""
        known = [one for one in self.relations if one.name in SYNTACTIC]
        return max(known, key=lambda one: one.share - one.baseline_share, default=None)

    @property
    def findings(self) -> dict[str, bool]:
        grammar = self.grammar
        before, after = self.get("before"), self.get("after")
        near = [one.share / one.uniform_share for one in (before, after) if one is not None]
        return {
            "neighbors": max(near, default=0.0) > 2,
            "grammar": grammar is not None and grammar.share > 1.5 * grammar.baseline_share,
            "ours": self.trained_here,
        }

    @property
    def placeholders(self) -> dict[str, str]:
        told = {
            "layers": f"{self.layers}",
            "heads": f"{self.heads}",
            "all_heads": f"{self.layers * self.heads}",
            "sentences": f"{self.sentences}",
        }
        for name in RELATIONS:
            one = self.get(name)
            told[f"{name}_head"] = "-" if one is None else f"{one.layer + 1}.{one.head + 1}"
            told[f"{name}_share"] = "-" if one is None else f"{one.share:.0%}"
        best = self.grammar
        told["grammar_head"] = "-" if best is None else f"{best.layer + 1}.{best.head + 1}"
        for name in ("share", "even", "at_the_distance", "from_others"):
            share = getattr(best, name, None)
            told[f"grammar_{name}"] = "-" if share is None else f"{share:.0%}"
        return told

    def labeled_placeholders(self, labels: Labels) -> dict[str, str]:
        """What is told by a name of its own in each language."""
        return {"grammar_relation": labels[self.grammar.name] if self.grammar else "-"}


# ---- sentences, and who stands in them where


def generate_sentences(count: int, seed: int = 7) -> Iterator[GrammarSentence]:
    """Statements with a verb and a subject, out of the small model's own words."""
    author, made = SentenceSampler(seed, frozenset(CONSTRUCTIONS), WORDS_PER_CLASS), 0
    while made < count:
        meaning = author.sample_sentence()
        if type(meaning) is not Clause or type(meaning.predicate) is not Verb or meaning.subject is None:
            continue
        subject, thing = (
            find_head_word(meaning.subject),
            find_head_word(meaning.object) if meaning.object else "",
        )
        verb = inflect_verb(meaning, meaning.subject)[1].split()[0]
        if subject and (thing or not meaning.object):
            made += 1
            yield GrammarSentence(realize_english(meaning), subject, verb, thing)


def find_head_word(entity: Entity) -> str:
    """The noun, name or pronoun itself, as it is written; a couple has none."""
    if type(entity) is Phrase:
        noun = entity.noun
        return (noun.plural if noun.plural and is_plural(entity) else noun.en).split()[-1]
    if type(entity) is Coordination or type(entity) is Gap:
        return ""
    assert isinstance(entity, Name | Pronoun)
    return entity.en.split()[-1]


def find_pairs(said: GrammarSentence, words: list[str]) -> dict[str, Pairs]:
    """Of each relation who looks at whom, as places in the sentence. The last word is the end."""
    last = len(words) - 1
    rows = range(last)
    lowered = [word.lower() for word in words]
    places = {role: find_position(getattr(said, role), lowered) for role in ("subject", "verb", "object")}
    subject, verb, thing = places.values()
    return {
        "itself": [(row, row) for row in rows],
        "before": [(row, row - 1) for row in rows if row],
        "after": [(row, row + 1) for row in rows if row + 1 < last],
        "same": [(a, b) for a in rows for b in rows if a != b and lowered[a] == lowered[b]],
        "verb_subject": make_pair(verb, subject),
        "subject_verb": make_pair(subject, verb),
        "verb_object": make_pair(verb, thing),
        "object_verb": make_pair(thing, verb),
        "end": [(row, last) for row in rows],
    }


def find_position(word: str, lowered: list[str]) -> int:
    """Where a word stands; -1 where it does not, or more than once."""
    return lowered.index(word.lower()) if lowered.count(word.lower()) == 1 else -1


def make_pair(looks: int, seen: int) -> Pairs:
    return [(looks, seen)] if min(looks, seen) >= 0 else []


# ---- what heads make of them


@dataclass(frozen=True)
class SentenceMaps:
    """A sentence's maps between words [L, H, W, W], and who stands where."""

    maps: NDArray[Any]
    pairs: dict[str, Pairs]


def measure(
    translator: Translator,
    report_progress: ReportProgress = ignore_progress,
    *,
    trained_here: bool = False,
    num_sentences: int = NUM_SENTENCES,
) -> RelationResults:
    if translator.source_language != LANGUAGE:
        raise RequestError(
            f"the model translates from {translator.source_language!r}, but the sentences whose grammar is "
            f"known here are English: give a model from {LANGUAGE}, or none"
        )
    advance = make_counter(report_progress, STAGE, num_sentences)
    looked = []
    for said in generate_sentences(num_sentences):
        attention = translator.attention(said.text, "")
        if not attention.trace.encoder:
            raise RequestError("the model's encoder has no attention to look at: give a Transformer, or none")
        words = tokens_to_words(tokens_by_side(attention)["source"])
        maps = merge_into_words(stack_maps(attention, "encoder"), attention, "encoder")
        looked.append(SentenceMaps(maps, find_pairs(said, words)))
        advance(1)
    layers, heads = looked[0].maps.shape[:2]
    found = [measure_relation(name, looked[0::2], looked[1::2]) for name in RELATIONS]
    return RelationResults(
        layers=layers,
        heads=heads,
        sentences=num_sentences,
        relations=[one for one in found if one is not None],
        shares={name: compute_mean_share(looked, name).tolist() for name in RELATIONS},
        trained_here=trained_here,
    )


def compute_mean_share(looked: list[SentenceMaps], name: str) -> NDArray[Any]:
    """Of each head, over all the pairs. [L, H]; zeros where there is none."""
    layers, heads = looked[0].maps.shape[:2]
    weights = [one.maps[:, :, row, column] for one in looked for row, column in one.pairs[name]]
    return np.mean(weights, axis=0) if weights else np.zeros((layers, heads))


def measure_relation(
    name: str, chosen_on: list[SentenceMaps], measured_on: list[SentenceMaps]
) -> HeadRelation | None:
    pairs = [(one, row, column) for one in measured_on for row, column in one.pairs[name]]
    if not pairs or not any(one.pairs[name] for one in chosen_on):
        return None
    best = compute_mean_share(chosen_on, name)
    layer, head = (int(place) for place in np.unravel_index(best.argmax(), best.shape))
    return HeadRelation(
        name=name,
        layer=layer,
        head=head,
        share=float(np.mean([one.maps[layer, head, row, column] for one, row, column in pairs])),
        uniform_share=float(np.mean([1 / one.maps.shape[-1] for one, _, _ in pairs])),
        same_distance_share=measure_same_distance(name, layer, head, measured_on)
        if name in SYNTACTIC
        else None,
        other_words_share=measure_other_words(name, layer, head, measured_on) if name in SYNTACTIC else None,
        pairs=len(pairs),
    )


def measure_same_distance(name: str, layer: int, head: int, looked: list[SentenceMaps]) -> float | None:
    """The head's mean weight between words as far apart as the pairs are, that are no such pair."""
    by_offset: dict[int, list[float]] = {}
    for one in looked:
        words = one.maps.shape[-1] - 1
        for row in range(words):
            for column in range(words):
                if (row, column) not in one.pairs[name]:
                    by_offset.setdefault(column - row, []).append(float(one.maps[layer, head, row, column]))
    offsets = [column - row for one in looked for row, column in one.pairs[name]]
    compared = [float(np.mean(by_offset[offset])) for offset in offsets if offset in by_offset]
    return math.fsum(compared) / len(compared) if compared else None


def measure_other_words(name: str, layer: int, head: int, looked: list[SentenceMaps]) -> float | None:
    """The head's mean weight on the words that are looked at in the pairs, from words of no such pair."""
    given = [
        float(one.maps[layer, head, other, column])
        for one in looked
        for _, column in one.pairs[name]
        for other in range(one.maps.shape[-1] - 1)
        if other != column and (other, column) not in one.pairs[name]
    ]
    return math.fsum(given) / len(given) if given else None


def make_table(numbers: RelationResults, labels: Labels) -> ReportTable:
    columns = [labels[name] for name in ("relation", "head", "share", "even", "distance", "others", "pairs")]
    rows: list[list[Cell]] = [
        [
            labels[one.name],
            f"{one.layer + 1}.{one.head + 1}",
            *(None if share is None else f"{share:.1%}" for share in (one.share, one.uniform_share)),
            *(
                None if share is None else f"{share:.1%}"
                for share in (one.same_distance_share, one.other_words_share)
            ),
            one.pairs,
        ]
        for one in numbers.relations
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(numbers: RelationResults, labels: Labels) -> Any:
    """Every head in a column; of many only those that are the best at something."""
    shown = [(layer, head) for layer in range(numbers.layers) for head in range(numbers.heads)]
    if len(shown) > MAX_COLUMNS:
        shown = sorted({(one.layer, one.head) for one in numbers.relations})
    figure, (axis,) = make_axes(1)
    figure.set_size_inches(2.2 + 0.5 * len(shown), 3.7)
    values = [[numbers.shares[name][layer][head] for layer, head in shown] for name in RELATIONS]
    columns = [f"{layer + 1}.{head + 1}" for layer, head in shown]
    draw_heatmap(axis, values, [labels[name] for name in RELATIONS], columns, maximum=max(map(max, values)))
    axis.set_title(labels["heads"], fontsize=10, pad=8)
    return figure
