"""Splitting words anew at each reading, so that a model sees the parts of a word too.

BPE-dropout (Provilkov and others, 2020): each possible merge is passed over with probability p. For a unigram
model, sampling among all splits by their probability (Kudo, 2018), smoothed by an exponent.

SentencePiece can do both, but mixes something of the process into its seed: a resumed run would read other
splits. Here they are a function of the seed alone; without dropout they are SentencePiece's own.
"""

import math
import random
import re
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from manyheads.config import NUM_SPECIAL_TOKENS
from manyheads.errors import DataError
from manyheads.text.subwords import WORD_START, SubwordTokenizer, normalize

BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
UNKNOWN_PENALTY = 10.0  # below the least likely piece, as SentencePiece has it


class MergeState(NamedTuple):
    """A word on its way from characters to pieces."""

    pieces: list[str]
    scores: list[float]  # of merging each with the next
    best_index: int | None  # the place of the best merge, where there is any

    @classmethod
    def from_scores(cls, pieces: list[str], scores: list[float]) -> "MergeState":
        best = max(scores, default=-math.inf)
        return cls(pieces, scores, scores.index(best) if best > -math.inf else None)


class SubwordSampler:
    """Splits texts by chance: `rate` is BPE-dropout's p, or the exponent of a unigram model's weights."""

    def __init__(self, subwords: SubwordTokenizer, rate: float) -> None:
        table = subwords.get_scored_vocabulary()
        self.rate = rate
        self.bytes = {
            int(found[1], 16): one
            for one, (piece, _) in enumerate(table)
            if (found := BYTE_PIECE.fullmatch(piece))
        }
        if len(self.bytes) < 256:
            raise DataError(
                "data.subword_regularization reads the text out of the ids, which needs subwords that spell what "
                "they do not know: prepare the data with subwords.byte_fallback=true"
            )
        special = {*range(NUM_SPECIAL_TOKENS), *self.bytes.values()}
        scored = [(one, piece, score) for one, (piece, score) in enumerate(table) if one not in special]
        is_bpe = all(score == round(score) for _, _, score in scored)  # ranks; log-probabilities otherwise
        unscored = [piece for _, piece, score in scored if score == 0]
        reserved = unscored[:-1] if is_bpe else unscored  # the best merge scores 0 too, and stands after them
        self.ids = {piece: one for one, piece, _ in scored}
        self.scores = {piece: score for _, piece, score in scored if piece not in set(reserved)}
        self.unknown_score = min(self.scores.values(), default=0.0) - UNKNOWN_PENALTY
        self.max_piece_length = max(map(len, self.scores), default=1)
        longest_first = sorted(reserved, key=len, reverse=True)
        self.symbol_pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if reserved else None
        self.cached_merges: tuple[str | None, list[MergeState]] = None, []  # word and its way without chance
        self._split: Callable[[str, random.Random], list[str]] = (
            self._bpe_dropout if is_bpe else self._sample_unigram
        )

    def sample(self, text: str, rng: random.Random) -> list[int]:
        """Ids of a text, without begin and end."""
        mended = normalize(text)
        words = (WORD_START + word for word in mended.split(" ")) if mended else ()
        return [
            one
            for word in words
            for part in self._split_symbols(word)
            for one in self._sample_part(part, rng)
        ]

    def _split_symbols(self, word: str) -> list[str]:
        """Reserved symbols stand apart: they are never split."""
        return [part for part in self.symbol_pattern.split(word) if part] if self.symbol_pattern else [word]

    def _sample_part(self, part: str, chance: random.Random) -> list[int]:
        if part in self.ids and part not in self.scores:
            return [self.ids[part]]
        ids: list[int] = []
        for piece in self._split(part, chance):
            ids += [self.ids[piece]] if piece in self.ids else self._encode_bytes(piece)
        return ids

    def _encode_bytes(self, character: str) -> list[int]:
        return [self.bytes[byte] for byte in character.encode()]

    def _bpe_dropout(self, word: str, chance: random.Random) -> list[str]:
        """Byte-pair encoding: the best merge that is possible and not passed over, until there is none."""
        merging = self._merge_until_dropped(word, chance)
        pieces, scores = merging.pieces.copy(), merging.scores.copy()
        open_to_us = scores.copy()
        if merging.best_index is not None:
            open_to_us[merging.best_index] = -math.inf
        while (best := max(open_to_us, default=-math.inf)) > -math.inf:
            place = open_to_us.index(best)
            if chance.random() < self.rate:
                open_to_us[place] = -math.inf  # until the next merge
                continue
            self._apply_merge(pieces, scores, place)
            open_to_us = scores.copy()
        return pieces

    def _merge_until_dropped(self, word: str, chance: random.Random) -> MergeState:
        """The best merge each time, up to one that is passed over: where every drawing of a word begins."""
        if self.cached_merges[0] != word:
            pieces = list(word)
            self.cached_merges = (
                word,
                [MergeState.from_scores(pieces, [self._merge_score(*both) for both in pairwise(pieces)])],
            )
        way, step = self.cached_merges[1], 0
        while (best := way[step].best_index) is not None and chance.random() >= self.rate:
            step += 1
            if step == len(way):
                pieces, scores = way[-1].pieces.copy(), way[-1].scores.copy()
                self._apply_merge(pieces, scores, best)
                way.append(MergeState.from_scores(pieces, scores))
        return way[step]

    def _apply_merge(self, pieces: list[str], scores: list[float], place: int) -> None:
        """The merge at a place, and what may then be merged beside it."""
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        del scores[place]
        for left in range(max(0, place - 1), min(place + 1, len(scores))):
            scores[left] = self._merge_score(pieces[left], pieces[left + 1])

    def _merge_score(self, left: str, right: str) -> float:
        return self.scores.get(left + right, -math.inf)

    def _sample_unigram(self, word: str, chance: random.Random) -> list[str]:
        """Unigram: sums over all splits from the left, then a walk back that draws each last piece."""
        sums = [0.0] + [-math.inf] * len(word)  # log of the smoothed weight of all splits of word[:i]
        for end in range(1, len(word) + 1):
            sums[end] = logsumexp(
                [sums[start] + weight for start, weight in self._pieces_ending_at(word, end)]
            )
        pieces: list[str] = []
        end = len(word)
        while end > 0:
            start = sample_by_log_weight(
                [(start, sums[start] + weight) for start, weight in self._pieces_ending_at(word, end)], chance
            )
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _pieces_ending_at(self, word: str, end: int) -> list[tuple[int, float]]:
        """Where a piece that ends here may begin, and its smoothed weight."""
        found = []
        for start in range(max(0, end - self.max_piece_length), end):
            score = self.scores.get(word[start:end], self.unknown_score if end - start == 1 else None)
            if score is not None:
                found.append((start, self.rate * score))
        return found


def logsumexp(logs: list[float]) -> float:
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs))


def sample_by_log_weight(weighted: list[tuple[int, float]], chance: random.Random) -> int:
    """One of the choices, by log weights."""
    top = max(log for _, log in weighted)
    left = chance.random() * sum(math.exp(log - top) for _, log in weighted)
    for choice, log in weighted:
        left -= math.exp(log - top)
        if left < 0:
            return choice
    return weighted[-1][0]
