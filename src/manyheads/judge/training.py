"""Learning the models from a sample of the corpus, wrong pairs included, and scoring pairs with them.

The lexical models are cross-fitted: the sample is split into folds by a hash of the pair, and a pair is
scored by the models of the other folds. Otherwise a rare word of a wrong pair would be explained by the
pair itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manyheads.confidence.ragged import Floats, Ints, Ragged
from manyheads.judge.character_model import CharacterModel
from manyheads.judge.combination import Combination, Scaling, stack_features
from manyheads.judge.features import (
    NAMES,
    Flags,
    LexicalPair,
    PairBatch,
    identify_languages,
    measure_characters,
    measure_texts,
)
from manyheads.judge.lexical_model import LexicalModel
from manyheads.judge.negatives import MAKERS, make_negatives
from manyheads.judge.vocabulary import WordVocabulary
from manyheads.judge.word_evidence import WordEvidence
from manyheads.progress import ReportProgress
from manyheads.text.clean import hash_pairs

NUM_FOLDS = 2
TAILS = (
    0.25,
    0.05,
)  # quantiles that spreads are taken from, by round: at first, many wrong pairs are trusted
MAX_LENGTH_DEVIATION = 3.0  # of a pair that is plausible
MAX_DEVIATION = 4.0  # of any feature of a pair that serves as right
MIN_PLAUSIBLE = {
    "copy": -0.5, "repetition": -0.3, "encoding": 0.0, "language_source": 0.0, "language_target": 0.0,
    "identified_source": -2.0, "identified_target": -2.0,
}  # fmt: skip
MIN_NEGATIVES, MAX_NEGATIVES = 2_000, 14_000  # as many as pairs within these limits
MIN_WRONG_SHARE = 0.02  # that is assumed at least
USUAL = 0.3  # quantile of the fluency above which no language is identified
MIN_TRUSTED = 0.3  # of the sample

LENGTH_COLUMNS = [NAMES.index(name) for name in ("short_target", "short_source")]


class Judgment(NamedTuple):
    """The scores of pairs, the log odds that they are wrong by type, and what languages they look like."""

    scores: Floats
    odds: Floats  # [N, K]
    languages: tuple[list[str], list[str]]
    badness: Floats  # [N, F]


@dataclass(frozen=True, eq=False)
class PairJudge:
    """All models, learned from a corpus."""

    languages: tuple[str, str]
    vocabularies: tuple[WordVocabulary, WordVocabulary]
    characters: tuple[CharacterModel, CharacterModel]
    lexical: tuple[LexicalPair, ...]  # by the fold of the pairs that it may score
    combination: Combination
    usual_fluency: tuple[float, float]  # of a side that is certainly in its language

    def judge(self, sources: list[str], targets: list[str]) -> Judgment:
        batch = PairBatch.create(sources, targets, self.vocabularies)
        features = measure_texts(batch) | measure_characters(batch, self.characters)
        suspected = (
            features["fluency_source"] < self.usual_fluency[0],
            features["fluency_target"] < self.usual_fluency[1],
        )
        identified, names = identify_languages(batch, self.languages, suspected)
        features |= identified | measure_lexical(batch, assign_folds(sources, targets), self.lexical)
        values = stack_features(features)
        badness = self.combination.scaling.apply(values, batch.sizes)
        return Judgment(*self.combination.score(values, batch.sizes), names, badness)


def assign_folds(sources: Sequence[str], targets: Sequence[str]) -> Ints:
    """Return the fold of each pair: the same for equal pairs."""
    return (hash_pairs(zip(sources, targets, strict=True)) % np.uint64(NUM_FOLDS)).astype(np.int64)


def train_judge(
    sources: list[str],
    targets: list[str],
    languages: tuple[str, str],
    seed: int,
    report_progress: ReportProgress,
) -> PairJudge:
    """Learn to judge from pairs of which some are wrong."""
    report_progress("learning words", 0, None)
    vocabularies = WordVocabulary.train(sources), WordVocabulary.train(targets)
    sizes = len(vocabularies[0]), len(vocabularies[1])
    batch = PairBatch.create(sources, targets, vocabularies)
    folds = assign_folds(sources, targets)
    characters = CharacterModel.train(sources), CharacterModel.train(targets)
    features = measure_texts(batch) | measure_characters(batch, characters)
    features |= identify_languages(batch, languages)[0]
    num_negatives = max(MIN_NEGATIVES, min(MAX_NEGATIVES, len(sources)))
    is_plausible = is_trusted = find_plausible(features, batch.sizes)
    for number, tail in enumerate(TAILS):
        report_progress("learning translations", number, len(TAILS))
        trusted = np.flatnonzero(is_trusted)
        if number:
            characters = train_characters(batch, trusted)
            features |= measure_characters(batch, characters)
        lexical = train_lexical(batch.words, folds, is_trusted, sizes)
        features |= measure_lexical(batch, folds, lexical)
        kept = [sources[n] for n in trusted], [targets[n] for n in trusted]
        negatives = make_negatives(*kept, folds[trusted].tolist(), languages, num_negatives, seed)
        wrong = PairBatch.create([n.source for n in negatives], [n.target for n in negatives], vocabularies)
        wrong_features = measure_texts(wrong) | measure_characters(wrong, characters)
        wrong_features |= identify_languages(wrong, languages)[0]
        wrong_folds = folds[trusted][[n.origin for n in negatives]]
        wrong_features |= measure_lexical(wrong, wrong_folds, lexical)
        combination, scores = fit_combination(
            (stack_features(features), batch.sizes),
            (stack_features(wrong_features), wrong.sizes),
            [negative.type for negative in negatives],
            is_plausible,
            is_trusted,
            tail,
        )
        is_trusted = is_plausible & (scores >= min(0.5, float(np.quantile(scores, 1 - MIN_TRUSTED))))
    fluency = [np.quantile(features[f"fluency_{end}"][is_trusted], USUAL) for end in ("source", "target")]
    return PairJudge(
        languages, vocabularies, characters, lexical, combination, (float(fluency[0]), float(fluency[1]))
    )


def find_plausible(features: dict[str, Floats], sizes: Ints) -> Flags:
    """Return the pairs that no simple rule distrusts: copies, other lengths or languages, broken text."""
    plain = {name: features.get(name, np.zeros(len(sizes))) for name in NAMES}
    values = stack_features(plain)
    badness = Scaling.fit(values, sizes, TAILS[0]).apply(values, sizes)
    is_plausible: Flags = badness[:, LENGTH_COLUMNS].max(1) < MAX_LENGTH_DEVIATION
    for name, limit in MIN_PLAUSIBLE.items():
        is_plausible &= features[name] >= limit
    return is_plausible if is_plausible.mean() >= MIN_TRUSTED else np.ones(len(sizes), bool)


def train_characters(batch: PairBatch, trusted: Ints) -> tuple[CharacterModel, CharacterModel]:
    source, target = (CharacterModel.train(texts[n] for n in trusted) for texts in batch.texts)
    return source, target


def train_lexical(
    words: tuple[Ragged, Ragged], folds: Ints, is_trusted: Flags, sizes: tuple[int, int]
) -> tuple[LexicalPair, ...]:
    """Train a pair of models for each fold, on the trusted pairs of the others."""
    models = []
    for fold in range(NUM_FOLDS):
        source, target = (select_rows(side, np.flatnonzero(is_trusted & (folds != fold))) for side in words)
        models.append(
            (LexicalModel.train(source, target, sizes), LexicalModel.train(target, source, sizes[::-1]))
        )
    evidence = weigh_evidence(words, folds, is_trusted, models, sizes)
    return tuple(LexicalPair(pair, evidence) for pair in models)


def weigh_evidence(
    words: tuple[Ragged, Ragged],
    folds: Ints,
    is_trusted: Flags,
    models: Sequence[tuple[LexicalModel, LexicalModel]],
    sizes: tuple[int, int],
) -> tuple[WordEvidence, WordEvidence]:
    """Learn what evidence is worth, from trusted pairs and the same with sides of their neighbors."""
    weights = []
    for direction in (0, 1):
        ids: tuple[list[Ints], list[Ints]] = ([], [])
        values: tuple[list[Floats], list[Floats]] = ([], [])
        for fold, pair in enumerate(models):
            numbers = np.flatnonzero(is_trusted & (folds == fold))
            explained = select_rows(words[1 - direction], numbers)
            for shift in (0, 1):
                given = select_rows(words[direction], np.roll(numbers, shift * 7))
                ids[shift].append(explained.ids)
                values[shift].append(pair[direction].score(given, explained))
        joined_ids = np.concatenate(ids[0]), np.concatenate(ids[1])
        joined_values = np.concatenate(values[0]), np.concatenate(values[1])
        weights.append(WordEvidence.train(joined_ids, joined_values, sizes[1 - direction]))
    return weights[0], weights[1]


def measure_lexical(batch: PairBatch, folds: Ints, lexical: Sequence[LexicalPair]) -> dict[str, Floats]:
    features: dict[str, Floats] = {}
    for fold, pair in enumerate(lexical):
        numbers = np.flatnonzero(folds == fold)
        source, target = (select_rows(side, numbers) for side in batch.words)
        for name, values in pair.measure((source, target)).items():
            features.setdefault(name, np.zeros(len(folds)))[numbers] = values
    return features


def fit_combination(
    corpus: tuple[Floats, Ints],
    wrong: tuple[Floats, Ints],
    types: Sequence[str],
    is_plausible: Flags,
    is_trusted: Flags,
    tail: float,
) -> tuple[Combination, Floats]:
    """Fit plausible pairs against negatives of each type, and return the scores of the corpus.

    Some plausible pairs are wrong. If they are wrong as the negatives are, the order of scores is the same as
    if all were right.
    """
    scaling = Scaling.fit(corpus[0][is_trusted], corpus[1][is_trusted], tail)
    right, badness = scaling.apply(*corpus), scaling.apply(*wrong)
    right = right[is_plausible & (right.max(1) < MAX_DEVIATION)]
    by_type = {name: badness[[other == name for other in types]] for name in MAKERS}
    share = min(0.5, max(MIN_WRONG_SHARE, 1 - float(is_trusted.mean())))
    combination = Combination.fit(scaling, right, by_type, share)
    return combination, combination.score(*corpus)[0]


def select_rows(ragged: Ragged, numbers: Ints) -> Ragged:
    """Return some of the sentences, in the given order."""
    lengths = ragged.lengths[numbers]
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    index = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - ragged.offsets[numbers], lengths)
    return Ragged(ragged.ids[index], offsets)
