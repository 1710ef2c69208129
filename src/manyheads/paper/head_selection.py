"""Selection of the heads of Figures 3, 4 and 5: by the mean score over all sentences.

Then the sentence and the word that show the head best are chosen.

Shapes: L layers, H heads.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manyheads.look.measures import Array
from manyheads.paper.sentence_scores import SentenceScores

MIN_LINK = 0.05  # a weaker link counts as pointing nowhere
NOWHERE = "nowhere"
MAX_AGREEMENT = 0.5  # of the two heads of Figure 5: how often they may point at the same word
NUM_TARGETS = 4  # words listed


@dataclass(frozen=True)
class HeadFigure:
    """A figure: its head, the sentence and word that show it best, its score and those of other heads."""

    figure: int
    measure: str
    layer: int  # from 0
    head: int
    second_head: tuple[int, int] | None  # layer and head of the second one in the figure
    sentence: str
    word: str
    position: int  # of the word
    top_targets: list[tuple[str, float]]  # with their weights
    score: float  # of this word (Figures 3 and 4) or this sentence (Figure 5)
    mean_best_score: float  # mean over all heads of their best score; of a given place, of their score there
    head_mean: float  # of this head over all sentences
    all_heads_mean: float  # the expectation of a random head
    num_sentences: int  # that have this measure
    antecedent_counts: list[tuple[str, int]]  # words pointed at from pronouns
    is_given: bool = False  # the sentence and word are given, not chosen for the head


Given = Mapping[int, tuple[SentenceScores, int]]  # by figure: the sentence to show, and the row of its word


def choose_figures(
    scores: Sequence[SentenceScores], given: Given | None = None
) -> list[tuple[HeadFigure, SentenceScores]]:
    """Choose the figures: heads by all scores, what they are shown with by `given` or the best place.

    There is no Figure 4 if no pronoun has a possible antecedent.
    """
    given = given or {}
    chosen = [choose_word(3, "far", scores, given)]
    if any(sentence.antecedents for sentence in scores):
        chosen.append(choose_word(4, "anaphora", scores, given))
    chosen.append(choose_sentence(5, "structure", scores, given))
    return [(replace(figure, is_given=figure.figure in given), sentence) for figure, sentence in chosen]


def choose_word(
    figure: int, measure: str, scores: Sequence[SentenceScores], given: Given
) -> tuple[HeadFigure, SentenceScores]:
    """Choose the head with the highest mean and the word that shows it best; for Figure 4 a second head."""
    (layer, head), *_ = rank_heads(scores, measure)
    places = [
        (sentence, row)
        for sentence in scores
        for row in (sentence.antecedents if figure == 4 else range(len(sentence.query_positions)))
    ]
    candidates = [given[figure]] if figure in given else places
    values = np.stack([sentence.by_row[measure][:, :, row] for sentence, row in candidates])  # [words, L, H]
    best_sentence, row = candidates[int(values[:, layer, head].argmax())]
    other_heads = best_sentence.by_row[measure][:, :, row].copy()
    other_heads[layer, head] = -1
    second = unravel_head(other_heads.argmax(), other_heads) if figure == 4 else None
    head_figure = make_figure(figure, measure, scores, (layer, head), best_sentence, row, values)
    counts = count_antecedents(scores, layer, head) if figure == 4 else []
    score = float(values[:, layer, head].max())
    return replace(head_figure, score=score, second_head=second, antecedent_counts=counts), best_sentence


def choose_sentence(
    figure: int, measure: str, scores: Sequence[SentenceScores], given: Given
) -> tuple[HeadFigure, SentenceScores]:
    """Choose the head with the highest mean, the next that points elsewhere, and the sentence for both."""
    first, *others = rank_heads(scores, measure)
    second = next(
        (other for other in others if compute_agreement(scores, first, other) < MAX_AGREEMENT), None
    )
    candidates = [given[figure][0]] if figure in given else scores
    values = np.stack([sentence.scores[measure] for sentence in candidates])  # [sentences, L, H]
    means = np.mean(
        [values[:, *layer_and_head] for layer_and_head in (first, second) if layer_and_head], axis=0
    )
    best_sentence = candidates[int(means.argmax())]
    row = int(best_sentence.by_row[measure][first].argmax())
    head_figure = make_figure(figure, measure, scores, first, best_sentence, row, values)
    return replace(
        head_figure, score=float(best_sentence.scores[measure][first]), second_head=second
    ), best_sentence


def rank_heads(scores: Sequence[SentenceScores], measure: str) -> list[tuple[int, int]]:
    """Return layers and heads, the highest mean score first."""
    mean_LH = average_scores(scores, measure)
    return [unravel_head(index, mean_LH) for index in np.argsort(-mean_LH, axis=None, kind="stable")]


def average_scores(scores: Sequence[SentenceScores], measure: str) -> Array:
    """Average the scores of every head over the sentences that have the measure. [L, H]"""
    mean: Array = np.mean(
        [sentence.scores[measure] for sentence in scores if measure in sentence.scores], axis=0
    )
    return mean


def unravel_head(index: Any, heads_LH: Array) -> tuple[int, int]:
    layer, head = np.unravel_index(index, heads_LH.shape)
    return int(layer), int(head)


def compute_agreement(
    scores: Sequence[SentenceScores], first: tuple[int, int], second: tuple[int, int]
) -> float:
    """Return how often two heads point at the same word."""
    return float(
        np.concatenate(
            [sentence.target_positions[first] == sentence.target_positions[second] for sentence in scores]
        ).mean()
    )


def count_antecedents(scores: Sequence[SentenceScores], layer: int, head: int) -> list[tuple[str, int]]:
    """Count the words that a head points at from pronouns; weak links point nowhere."""
    counts: Counter[str] = Counter()
    for sentence in scores:
        for row, positions_LH in sentence.antecedents.items():
            weak = sentence.by_row["anaphora"][layer, head, row] < MIN_LINK
            counts[NOWHERE if weak else sentence.words[positions_LH[layer, head]]] += 1
    return counts.most_common(NUM_TARGETS + 1)


def make_figure(
    figure: int,
    measure: str,
    scores: Sequence[SentenceScores],
    layer_and_head: tuple[int, int],
    best_sentence: SentenceScores,
    row: int,
    values: Array,
) -> HeadFigure:
    """Fill the fields that all figures share. `values` are scores of all words or sentences, [..., L, H]."""
    mean_LH = average_scores(scores, measure)
    return HeadFigure(
        figure=figure,
        measure=measure,
        layer=layer_and_head[0],
        head=layer_and_head[1],
        second_head=None,
        sentence=best_sentence.sentence,
        word=best_sentence.words[best_sentence.query_positions[row]],
        position=int(best_sentence.query_positions[row]),
        top_targets=[],
        score=0.0,
        mean_best_score=float(values.max(0).mean()),
        head_mean=float(mean_LH[layer_and_head]),
        all_heads_mean=float(mean_LH.mean()),
        num_sentences=sum(measure in sentence.scores for sentence in scores),
        antecedent_counts=[],
    )
