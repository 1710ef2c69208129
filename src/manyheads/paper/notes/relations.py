"""Which words a head relates: the share of its attention that goes from a word to one in a given relation.

For each relation the best head is chosen on one half of the sentences and measured on the other, to avoid the
bias of choosing the best of many. It is compared with uniform attention; with the weight of the same head
between words at the same distance that are not in this relation, since a head may depend on positions only;
and with the weight that all other words give to the same word, which may be an attention sink.

Shapes: L layers, H heads, W words of a sentence.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from manyheads.errors import RequestError
from manyheads.look.attention_data import merge_into_words, stack_maps, tokens_by_side
from manyheads.look.words import tokens_to_words
from manyheads.paper.notes.drawing import Labels, draw_heatmap, make_axes
from manyheads.paper.notes.grammar_pairs import (
    RELATIONS,
    SYNTACTIC,
    Pairs,
    find_pairs,
    generate_sentences,
)
from manyheads.paper.notes.learning import ignore_progress
from manyheads.paper.report import Cell, ReportTable
from manyheads.progress import ReportProgress, make_counter
from manyheads.translator import Translator

STAGE = "which words a head relates"
NUM_SENTENCES = 120
LANGUAGE = "en"  # of the sentences
MAX_COLUMNS = 16  # heads in the figure


@dataclass(frozen=True)
class HeadRelation:
    """A relation and the head that attends to it most."""

    name: str
    layer: int  # from 0
    head: int
    share: float  # of the attention of the querying word
    uniform_share: float  # of uniform attention
    same_distance_share: float | None  # of the same head, without the relation
    other_words_share: float | None  # of the same head, from all other words to the same word
    num_pairs: int  # that it was measured on

    @property
    def baseline_share(self) -> float:
        """The largest share that a simpler explanation would give."""
        return max(self.uniform_share, self.same_distance_share or 0.0, self.other_words_share or 0.0)


@dataclass(frozen=True)
class RelationResults:
    """Relations of the encoder's heads."""

    EXPECTED: ClassVar = ("grammar", "most")

    layers: int
    heads: int
    sentences: int
    relations: list[HeadRelation]
    shares: dict[str, list[list[float]]]  # by relation, layer and head, over all sentences
    trained_here: bool  # of the model that this command trained

    def get(self, name: str) -> HeadRelation | None:
        return next((relation for relation in self.relations if relation.name == name), None)

    @property
    def syntactic(self) -> list[HeadRelation]:
        return [relation for relation in self.relations if relation.name in SYNTACTIC]

    def count_above_baseline(self) -> int:
        """Return the number of syntactic relations whose best head is above every simpler explanation."""
        return sum(relation.share > relation.baseline_share for relation in self.syntactic)

    @property
    def grammar(self) -> HeadRelation | None:
        """The syntactic relation with the largest difference from its baseline."""
        return max(
            self.syntactic, key=lambda relation: relation.share - relation.baseline_share, default=None
        )

    @property
    def findings(self) -> dict[str, bool]:
        grammar = self.grammar
        before, after = self.get("before"), self.get("after")
        ratios = [
            relation.share / relation.uniform_share for relation in (before, after) if relation is not None
        ]
        return {
            "neighbors": max(ratios, default=0.0) > 2,
            "grammar": grammar is not None and grammar.share > 1.5 * grammar.baseline_share,
            "most": 2 * self.count_above_baseline() > len(self.syntactic),
            "trained_here": self.trained_here,
        }

    @property
    def placeholders(self) -> dict[str, str]:
        values = {
            "layers": f"{self.layers}",
            "heads": f"{self.heads}",
            "all_heads": f"{self.layers * self.heads}",
            "sentences": f"{self.sentences}",
            "above": f"{self.count_above_baseline()}",
            "syntactic": f"{len(self.syntactic)}",
        }
        for name in RELATIONS:
            relation = self.get(name)
            values[f"{name}_head"] = "-" if relation is None else f"{relation.layer + 1}.{relation.head + 1}"
            values[f"{name}_share"] = "-" if relation is None else f"{relation.share:.0%}"
        best = self.grammar
        values["grammar_head"] = "-" if best is None else f"{best.layer + 1}.{best.head + 1}"
        for name in ("share", "uniform_share", "same_distance_share", "other_words_share"):
            share = getattr(best, name, None)
            values[f"grammar_{name}"] = "-" if share is None else f"{share:.0%}"
        return values

    def labeled_placeholders(self, labels: Labels) -> dict[str, str]:
        """Return the placeholders that depend on the language."""
        return {"grammar_relation": labels[self.grammar.name] if self.grammar else "-"}


@dataclass(frozen=True)
class SentenceMaps:
    """The attention between the words of a sentence, [L, H, W, W], and the pairs of each relation."""

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
            f"the model translates from {translator.source_language!r}, but the built-in sentences are "
            f"English: give a model from {LANGUAGE}, or none"
        )
    advance = make_counter(report_progress, STAGE, num_sentences)
    sentence_maps = []
    for sentence in generate_sentences(num_sentences):
        attention = translator.attention(sentence.text, "")
        if not attention.trace.encoder:
            raise RequestError("the model's encoder has no self-attention: give a Transformer, or no model")
        words = tokens_to_words(tokens_by_side(attention)["source"])
        maps = merge_into_words(stack_maps(attention, "encoder"), attention, "encoder")
        sentence_maps.append(SentenceMaps(maps, find_pairs(sentence, words)))
        advance(1)
    layers, heads = sentence_maps[0].maps.shape[:2]
    relations = [measure_relation(name, sentence_maps[0::2], sentence_maps[1::2]) for name in RELATIONS]
    return RelationResults(
        layers=layers,
        heads=heads,
        sentences=num_sentences,
        relations=[relation for relation in relations if relation is not None],
        shares={name: compute_mean_share(sentence_maps, name).tolist() for name in RELATIONS},
        trained_here=trained_here,
    )


def compute_mean_share(sentences: list[SentenceMaps], name: str) -> NDArray[Any]:
    """Return the mean weight of each head over all pairs, or zeros if there is none. [L, H]"""
    layers, heads = sentences[0].maps.shape[:2]
    weights = [
        sentence.maps[:, :, row, column] for sentence in sentences for row, column in sentence.pairs[name]
    ]
    return np.mean(weights, axis=0) if weights else np.zeros((layers, heads))


def measure_relation(
    name: str, chosen_on: list[SentenceMaps], measured_on: list[SentenceMaps]
) -> HeadRelation | None:
    pairs = [(sentence, row, column) for sentence in measured_on for row, column in sentence.pairs[name]]
    if not pairs or not any(sentence.pairs[name] for sentence in chosen_on):
        return None
    best = compute_mean_share(chosen_on, name)
    layer, head = (int(index) for index in np.unravel_index(best.argmax(), best.shape))
    return HeadRelation(
        name=name,
        layer=layer,
        head=head,
        share=float(np.mean([sentence.maps[layer, head, row, column] for sentence, row, column in pairs])),
        uniform_share=float(np.mean([1 / sentence.maps.shape[-1] for sentence, _, _ in pairs])),
        same_distance_share=measure_same_distance(name, layer, head, measured_on)
        if name in SYNTACTIC
        else None,
        other_words_share=measure_other_words(name, layer, head, measured_on) if name in SYNTACTIC else None,
        num_pairs=len(pairs),
    )


def measure_same_distance(name: str, layer: int, head: int, sentences: list[SentenceMaps]) -> float | None:
    """Return the head's mean weight between words at the same distances that are not such pairs."""
    by_offset: dict[int, list[float]] = {}
    for sentence in sentences:
        words = sentence.maps.shape[-1] - 1
        for row in range(words):
            for column in range(words):
                if (row, column) not in sentence.pairs[name]:
                    by_offset.setdefault(column - row, []).append(
                        float(sentence.maps[layer, head, row, column])
                    )
    offsets = [column - row for sentence in sentences for row, column in sentence.pairs[name]]
    compared = [float(np.mean(by_offset[offset])) for offset in offsets if offset in by_offset]
    return math.fsum(compared) / len(compared) if compared else None


def measure_other_words(name: str, layer: int, head: int, sentences: list[SentenceMaps]) -> float | None:
    """Return the head's mean weight on the key words of the pairs, from words that are not in such a pair."""
    weights = [
        float(sentence.maps[layer, head, other, column])
        for sentence in sentences
        for _, column in sentence.pairs[name]
        for other in range(sentence.maps.shape[-1] - 1)
        if other != column and (other, column) not in sentence.pairs[name]
    ]
    return math.fsum(weights) / len(weights) if weights else None


def make_table(results: RelationResults, labels: Labels) -> ReportTable:
    columns = [labels[name] for name in ("relation", "head", "share", "even", "distance", "others", "pairs")]
    rows: list[list[Cell]] = [
        [
            labels[relation.name],
            f"{relation.layer + 1}.{relation.head + 1}",
            *(
                None if share is None else f"{share:.1%}"
                for share in (relation.share, relation.uniform_share)
            ),
            *(
                None if share is None else f"{share:.1%}"
                for share in (relation.same_distance_share, relation.other_words_share)
            ),
            relation.num_pairs,
        ]
        for relation in results.relations
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(results: RelationResults, labels: Labels) -> Any:
    """Draw every head in a column; of many only the best ones."""
    heads = [(layer, head) for layer in range(results.layers) for head in range(results.heads)]
    if len(heads) > MAX_COLUMNS:
        heads = sorted({(relation.layer, relation.head) for relation in results.relations})
    figure, (axis,) = make_axes(1)
    figure.set_size_inches(2.2 + 0.5 * len(heads), 3.7)
    values = [[results.shares[name][layer][head] for layer, head in heads] for name in RELATIONS]
    columns = [f"{layer + 1}.{head + 1}" for layer, head in heads]
    draw_heatmap(axis, values, [labels[name] for name in RELATIONS], columns, maximum=max(map(max, values)))
    axis.set_title(labels["heads"], fontsize=10, pad=8)
    return figure
