"""Subword regularization: random segmentations of words, so that a model also sees the parts of a word.

BPE-dropout (Provilkov et al., 2020) skips each possible merge with probability p. Unigram sampling (Kudo,
2018) draws among all segmentations by their probability, smoothed by an exponent.

SentencePiece implements both, but its seed also depends on the process, so a resumed run would see other
segmentations. Here they are a function of the seed alone. Without randomness they equal SentencePiece's.
"""

import math
import random
import re
from itertools import pairwise
from typing import NamedTuple

from manyheads.config import NUM_SPECIAL_TOKENS
from manyheads.errors import DataError
from manyheads.text.subwords import WORD_START, SubwordTokenizer, normalize

BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
UNKNOWN_PENALTY = 10.0  # below the least likely piece, as in SentencePiece


class SubwordSampler:
    """Encodes text randomly: `rate` is p of BPE-dropout, or the exponent of unigram sampling."""

    def __init__(self, tokenizer: SubwordTokenizer, rate: float) -> None:
        vocabulary = tokenizer.get_scored_vocabulary()
        self.byte_ids = {
            int(match[1], 16): token_id
            for token_id, (piece, _) in enumerate(vocabulary)
            if (match := BYTE_PIECE.fullmatch(piece))
        }
        if len(self.byte_ids) < 256:
            raise DataError(
                "data.subword_regularization decodes the ids to text, so the subwords must spell unknown "
                "characters in bytes: prepare the data with subwords.byte_fallback=true"
            )
        special = {*range(NUM_SPECIAL_TOKENS), *self.byte_ids.values()}
        scored = [
            (token_id, piece, score)
            for token_id, (piece, score) in enumerate(vocabulary)
            if token_id not in special
        ]
        is_bpe = all(score == round(score) for _, _, score in scored)  # ranks; log-probabilities otherwise
        unscored = [piece for _, piece, score in scored if score == 0]
        symbols = unscored[:-1] if is_bpe else unscored  # the best merge comes after them, also with score 0
        self.ids = {piece: token_id for token_id, piece, _ in scored}
        self.scores = {piece: score for _, piece, score in scored if piece not in set(symbols)}
        by_length = sorted(symbols, key=len, reverse=True)
        self.symbol_pattern = re.compile(f"({'|'.join(map(re.escape, by_length))})") if symbols else None
        self.segmenter: BpeDropout | UnigramSampler = (
            BpeDropout(self.scores, rate) if is_bpe else UnigramSampler(self.scores, rate)
        )

    def sample(self, text: str, rng: random.Random) -> list[int]:
        """Return the ids of a text, without begin and end."""
        normalized = normalize(text)
        words = (WORD_START + word for word in normalized.split(" ")) if normalized else ()
        return [
            token_id
            for word in words
            for part in self._split_symbols(word)
            for token_id in self._sample_part(part, rng)
        ]

    def _split_symbols(self, word: str) -> list[str]:
        """Separate user-defined symbols, which are never segmented."""
        return [part for part in self.symbol_pattern.split(word) if part] if self.symbol_pattern else [word]

    def _sample_part(self, part: str, rng: random.Random) -> list[int]:
        if part in self.ids and part not in self.scores:
            return [self.ids[part]]
        ids: list[int] = []
        for piece in self.segmenter.segment(part, rng):
            if piece in self.ids:
                ids.append(self.ids[piece])
            else:
                ids += [self.byte_ids[byte] for byte in piece.encode()]
        return ids


class MergeState(NamedTuple):
    """A partly merged word."""

    pieces: list[str]
    scores: list[float]  # of merging each piece with the next
    best_index: int | None  # of the best merge, if any is possible

    @classmethod
    def from_scores(cls, pieces: list[str], scores: list[float]) -> "MergeState":
        best = max(scores, default=-math.inf)
        return cls(pieces, scores, scores.index(best) if best > -math.inf else None)


class BpeDropout:
    """Byte-pair encoding that skips each possible merge with probability `rate`."""

    def __init__(self, scores: dict[str, float], rate: float) -> None:
        self.scores, self.rate = scores, rate
        self.cached_word: str | None = None
        self.cached_states: list[MergeState] = []  # of the cached word, without dropout

    def segment(self, word: str, rng: random.Random) -> list[str]:
        """Apply the best merge that is not dropped, until there is none."""
        state = self._merge_until_dropped(word, rng)
        pieces, scores = state.pieces.copy(), state.scores.copy()
        candidates = scores.copy()
        if state.best_index is not None:
            candidates[state.best_index] = -math.inf
        while (best := max(candidates, default=-math.inf)) > -math.inf:
            index = candidates.index(best)
            if rng.random() < self.rate:
                candidates[index] = -math.inf  # until the next merge
                continue
            self._apply_merge(pieces, scores, index)
            candidates = scores.copy()
        return pieces

    def _merge_until_dropped(self, word: str, rng: random.Random) -> MergeState:
        """Apply the best merges up to the first that is dropped. The states are cached."""
        if self.cached_word != word:
            pieces = list(word)
            scores = [self._get_merge_score(left, right) for left, right in pairwise(pieces)]
            self.cached_word, self.cached_states = word, [MergeState.from_scores(pieces, scores)]
        states, step = self.cached_states, 0
        while (best := states[step].best_index) is not None and rng.random() >= self.rate:
            step += 1
            if step == len(states):
                pieces, scores = states[-1].pieces.copy(), states[-1].scores.copy()
                self._apply_merge(pieces, scores, best)
                states.append(MergeState.from_scores(pieces, scores))
        return states[step]

    def _apply_merge(self, pieces: list[str], scores: list[float], index: int) -> None:
        """Merge two pieces in place, and update the scores of the merges beside them."""
        pieces[index : index + 2] = [pieces[index] + pieces[index + 1]]
        del scores[index]
        for left in range(max(0, index - 1), min(index + 1, len(scores))):
            scores[left] = self._get_merge_score(pieces[left], pieces[left + 1])

    def _get_merge_score(self, left: str, right: str) -> float:
        return self.scores.get(left + right, -math.inf)


class UnigramSampler:
    """Samples a segmentation with probability proportional to P(segmentation) ** `rate`."""

    def __init__(self, scores: dict[str, float], rate: float) -> None:
        self.scores, self.rate = scores, rate
        self.unknown_score = min(scores.values(), default=0.0) - UNKNOWN_PENALTY
        self.max_piece_length = max(map(len, scores), default=1)

    def segment(self, word: str, rng: random.Random) -> list[str]:
        """Filter forward over all segmentations, then sample pieces backward from the end."""
        sums = [0.0] + [-math.inf] * len(word)  # log of the smoothed weight of all segmentations of word[:i]
        for end in range(1, len(word) + 1):
            sums[end] = logsumexp(
                [sums[start] + weight for start, weight in self._find_pieces_ending_at(word, end)]
            )
        pieces: list[str] = []
        end = len(word)
        while end > 0:
            starts = [
                (start, sums[start] + weight) for start, weight in self._find_pieces_ending_at(word, end)
            ]
            start = sample_by_log_weight(starts, rng)
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _find_pieces_ending_at(self, word: str, end: int) -> list[tuple[int, float]]:
        """Return the start and smoothed log weight of every piece that ends at `end`."""
        pieces = []
        for start in range(max(0, end - self.max_piece_length), end):
            score = self.scores.get(word[start:end], self.unknown_score if end - start == 1 else None)
            if score is not None:
                pieces.append((start, self.rate * score))
        return pieces


def logsumexp(logs: list[float]) -> float:
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs))


def sample_by_log_weight(choices: list[tuple[int, float]], rng: random.Random) -> int:
    """Return one of the choices, which come with their log weights."""
    top = max(log for _, log in choices)
    remaining = rng.random() * sum(math.exp(log - top) for _, log in choices)
    for choice, log in choices:
        remaining -= math.exp(log - top)
        if remaining < 0:
            return choice
    return choices[-1][0]
