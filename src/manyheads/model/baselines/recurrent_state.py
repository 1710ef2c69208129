"""The decoding state of models whose past has a fixed size: recurrent cells and convolutions.

Shapes: B sentences, W hypotheses of each, R = B W rows in that order; S tokens of the longest source.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from manyheads.errors import RequestError
from manyheads.packed import Packed


@dataclass(eq=False)
class RecurrentState:
    """W hypotheses for each of B sentences. `model.step` advances it in place; methods return a new one."""

    past: list[Tensor]  # each [R, ...]: the recurrent state of a row
    lengths: Tensor  # [R] int64: tokens that each row has read
    max_length: int  # of these, on the host
    source: list[Tensor]  # each [B, S, ...]: what attention needs of each source token, zero padded
    source_lengths: Tensor  # [B]
    beam: int  # W
    start: Callable[[Any, int], "RecurrentState"]  # of the model: creates a state for new sentences

    @classmethod
    def create(
        cls,
        past: list[Tensor],
        source: list[Tensor],
        text: Packed,
        beam: int,
        start: Callable[[Any, int], "RecurrentState"],
    ) -> "RecurrentState":
        """Return the state before the first token. The past is by sentence, [B, ...], the source packed."""
        if beam < 1:
            raise RequestError(f"{beam} hypotheses a sentence, but there must be at least 1")
        return cls(
            past=[x.repeat_interleave(beam, 0) for x in past],
            lengths=torch.zeros(len(text) * beam, dtype=torch.int64, device=text.tokens.device),
            max_length=0,
            source=[text.pad(x) for x in source],
            source_lengths=text.lengths,
            beam=beam,
            start=start,
        )

    def __len__(self) -> int:
        """B"""
        return len(self.source_lengths)

    def reorder(self, rows_R: Tensor) -> "RecurrentState":
        """Row i continues row rows[i]. Both must belong to one sentence, which is not checked."""
        if len(rows_R) != len(self.lengths):
            raise RequestError(f"{len(rows_R)} rows to reorder, but the state has {len(self.lengths)}")
        past = [x.index_select(0, rows_R) for x in self.past]
        return replace(self, past=past, lengths=self.lengths.index_select(0, rows_R))

    def remove(self, sentences: Tensor) -> "RecurrentState":
        """Return the state without these sentences, and without the padding only they needed."""
        kept_B = torch.ones(len(self), dtype=torch.bool, device=self.lengths.device)
        kept_B[sentences] = False
        kept_R = kept_B.repeat_interleave(self.beam)
        lengths, source_lengths = self.lengths[kept_R], self.source_lengths[kept_B]
        source_length = max(1, int(source_lengths.max())) if len(source_lengths) else 1
        return replace(
            self,
            past=[x[kept_R] for x in self.past],
            lengths=lengths,
            max_length=int(lengths.max()) if len(lengths) else 0,
            source=[x[kept_B, :source_length] for x in self.source],
            source_lengths=source_lengths,
        )

    def append(self, memory: Any) -> "RecurrentState":
        """Return the state with new sentences behind the others, before their first token."""
        new = self.start(memory, self.beam)
        return replace(
            self,
            past=[torch.cat(pair) for pair in zip(self.past, new.past, strict=True)],
            lengths=torch.cat((self.lengths, new.lengths)),
            source=[concat_padded(*pair) for pair in zip(self.source, new.source, strict=True)],
            source_lengths=torch.cat((self.source_lengths, new.source_lengths)),
        )

    def check_rows(self, tokens_R: Tensor) -> None:
        if len(tokens_R) != len(self.lengths):
            raise RequestError(f"{len(tokens_R)} tokens, but the state has {len(self.lengths)} rows")

    def advance(self, past: list[Tensor]) -> None:
        """Record one more token of each row and the past after it."""
        self.past, self.lengths, self.max_length = past, self.lengths + 1, self.max_length + 1


def concat_padded(first: Tensor, second: Tensor) -> Tensor:
    """Return the sentences of both [B, S, ...], padded to the longer S."""
    length = max(first.shape[1], second.shape[1])

    def pad(x: Tensor) -> Tensor:
        return F.pad(x, (0, 0) * (x.dim() - 2) + (0, length - x.shape[1]))

    return torch.cat((pad(first), pad(second)))
