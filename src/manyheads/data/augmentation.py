"""Augmentation of whole batches: noise in some sources, symbols that are copied, annotated terms.

Which pairs are changed, and how, is a function of (seed, epoch, pair). Only those are decoded, changed and
encoded again. Words are segmented independently, so the ids of a word are looked up once it has occurred.

Shapes: B pairs of a batch, C of them changed.
"""

import random

import numpy as np
from numpy.typing import NDArray

from manyheads.config import AugmentationConfig
from manyheads.data.store import Split
from manyheads.data.subword_regularization import GOLDEN_GAMMA, Hashes, Ints, concat_ranges, mix_bits
from manyheads.data.term_annotator import TermAnnotator
from manyheads.data.term_lexicon import learn_lexicon
from manyheads.data.word_codec import WordCodec, contains_unknown, count_ids
from manyheads.errors import DataError
from manyheads.text.casing import CaseLexicon
from manyheads.text.copying import insert_copy_symbols
from manyheads.text.noise import NOISES, Noise
from manyheads.text.subwords import SubwordPair, TokenSequences
from manyheads.text.term_annotation import TERM_SYMBOLS
from manyheads.text.verbatim import COPY_SYMBOLS

CASE_NOISES = ("lower", "title")
RESTORED_SHARE = 0.75  # of the sources that get them; the others are for texts that are partly so


class SourceAugmenter:
    """Changes the pairs of a batch by the rates of the configuration."""

    def __init__(
        self,
        subwords: SubwordPair,
        config: AugmentationConfig,
        seed: int,
        annotator: TermAnnotator | None = None,
    ) -> None:
        self.arguments = (subwords, config, seed, annotator)
        self.copied_rate = config.copied
        self.annotator, self.terms_rate = annotator, config.terms if annotator else 0.0
        if config.copied:
            check_copy_symbols(subwords)
        self.noises = [create_noise(name, subwords.casing) for name in config.noise_rates]
        self.bounds = np.cumsum([*config.noise_rates.values()])  # of a uniform number that chooses the noise
        self.salt = np.uint64(random.Random(f"{seed} augmentation").getrandbits(64))
        self.source = WordCodec(subwords.source)
        self.target = self.source if subwords.is_joint else WordCodec(subwords.target)
        self.rng = random.Random()

    def __reduce__(self) -> tuple[type["SourceAugmenter"], tuple[object, ...]]:
        """Let processes that we start have a copy. What it changes does not depend on earlier calls."""
        return type(self), self.arguments

    def augment(
        self, source: TokenSequences, target: TokenSequences, keys_B: Ints, max_length: int
    ) -> tuple[TokenSequences, TokenSequences]:
        """Change some pairs by their keys. A pair that would exceed `max_length` stays as stored."""
        hashes_B = mix_bits(keys_B.astype(np.uint64) + self.salt)
        noises_B = np.searchsorted(self.bounds, to_uniform(hashes_B), side="right")
        is_copied_B = to_uniform(mix_bits(hashes_B + GOLDEN_GAMMA)) < self.copied_rate
        has_terms_B = to_uniform(mix_bits(hashes_B + GOLDEN_GAMMA + GOLDEN_GAMMA)) < self.terms_rate
        changed_C = np.flatnonzero((noises_B < len(self.noises)) | is_copied_B | has_terms_B)
        changed_C = changed_C[~contains_unknown(source, changed_C) & ~contains_unknown(target, changed_C)]
        if not len(changed_C):
            return source, target
        paired = changed_C[is_copied_B[changed_C] | has_terms_B[changed_C]]  # whose targets are needed too
        sources = dict(zip(changed_C.tolist(), self.source.decode(source, changed_C), strict=True))
        targets = dict(zip(paired.tolist(), self.target.decode(target, paired), strict=True))
        stored = dict(targets)
        for pair, noise, seed in zip(
            changed_C.tolist(), noises_B[changed_C].tolist(), hashes_B[changed_C].tolist(), strict=True
        ):
            self.rng.seed(seed)
            if is_copied_B[pair]:
                sources[pair], targets[pair] = insert_copy_symbols(sources[pair], targets[pair], self.rng)
            if has_terms_B[pair] and self.annotator is not None:
                sources[pair], targets[pair] = self.annotator.annotate(sources[pair], targets[pair], self.rng)
            if noise < len(self.noises):
                sources[pair] = self.noises[noise](sources[pair], self.rng)
        new_sources = dict(zip(sources, self.source.encode(sources.values()), strict=True))
        changed = {pair: text for pair, text in targets.items() if text != stored[pair]}
        new_targets = dict(zip(changed, self.target.encode(changed.values()), strict=True))
        drop_unusable(new_sources, new_targets, max_length)
        return replace_texts(source, new_sources), replace_texts(target, new_targets)


def create_noise(name: str, casing: CaseLexicon | None) -> Noise:
    """Return a noise. Translation restores the case of a source in one case, and mostly training does."""
    noise = NOISES[name]
    if casing is None or name not in CASE_NOISES:
        return noise
    return lambda text, rng: casing.restore(text) if rng.random() < RESTORED_SHARE else noise(text, rng)


def make_augmenter(
    subwords: SubwordPair | None, config: AugmentationConfig, seed: int, split: Split
) -> SourceAugmenter | None:
    """Return the augmenter of a run; None if all rates are 0. Terms are learned from the split."""
    if not config.rates:
        return None
    if subwords is None:
        raise DataError("augmentation needs the subwords: pass those of the store")
    annotator = None
    if config.terms:
        check_term_symbols(subwords)
        annotator = TermAnnotator(learn_lexicon(split, subwords))
    return SourceAugmenter(subwords, config, seed, annotator)


def check_copy_symbols(subwords: SubwordPair) -> None:
    """Raise if a copy symbol is not a subword of its own on both sides."""
    if not subwords.has_copy_symbols:
        raise DataError(
            f"augmentation.copied needs the copy symbols {COPY_SYMBOLS[0]} to {COPY_SYMBOLS[-1]} as "
            f"subwords, which these do not have: prepare the data again with subwords.copy_symbols=true, "
            f"or set augmentation.copied=0"
        )


def check_term_symbols(subwords: SubwordPair) -> None:
    """Raise if a symbol of terms is not a subword of the source."""
    if not subwords.source.has_term_symbols:
        raise DataError(
            f"augmentation.terms needs the symbols {', '.join(TERM_SYMBOLS)} as subwords of the source, "
            f"which these do not have: prepare the data again with subwords.term_symbols=true, or set "
            f"augmentation.terms=0"
        )


def to_uniform(hashes: Hashes) -> NDArray[np.float64]:
    """Return numbers in [0, 1) from the upper 53 bits."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def drop_unusable(sources: dict[int, bytes], targets: dict[int, bytes], max_length: int) -> None:
    """Drop pairs of which a side has become empty, except for its end, or too long."""
    unusable = [
        pair
        for side in (sources, targets)
        for pair, ids in side.items()
        if not 1 < count_ids(ids) <= max_length
    ]
    for pair in unusable:
        sources.pop(pair, None)
        targets.pop(pair, None)


def replace_texts(stored: TokenSequences, new_ids: dict[int, bytes]) -> TokenSequences:
    """Return the texts, some of them replaced."""
    if not new_ids:
        return stored
    indices = np.fromiter(new_ids, np.int64)
    new_sizes = np.fromiter(map(count_ids, new_ids.values()), np.int64)
    every = np.concatenate([stored.ids, np.frombuffer(b"".join(new_ids.values()), np.int64)])
    starts_B, sizes_B = stored.offsets[:-1].copy(), np.diff(stored.offsets)
    starts_B[indices] = len(stored.ids) + np.cumsum(new_sizes) - new_sizes
    sizes_B[indices] = new_sizes
    return TokenSequences(every[concat_ranges(starts_B, sizes_B)], np.concatenate([[0], np.cumsum(sizes_B)]))
