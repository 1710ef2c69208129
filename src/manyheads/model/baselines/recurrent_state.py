"""What decoding keeps for the models whose past has one size however long it grows: cells and convolutions.

Shapes: B sentences, W hypotheses of each, R = B W rows in that order; S slots for the longest source.
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
    """W hypotheses for each of B sentences. `model.step` moves it on in place; methods give a new one."""

    past: list[Tensor]  # each [R, ...]: what a row remembers of what it has read
    lengths: Tensor  # [R] int64: tokens that each row has read
    max_length: int  # of these, on the host
    source: list[Tensor]  # each [B, S, ...]: what is kept of each source token, zeros behind them
    source_lengths: Tensor  # [B]
    beam: int  # W
    start: Callable[[Any, int], "RecurrentState"]  # the model's, which makes a state for new sentences

    @classmethod
    def create(
        cls,
        past: list[Tensor],
        source: list[Tensor],
        text: Packed,
        beam: int,
        start: Callable[[Any, int], "RecurrentState"],
    ) -> "RecurrentState":
        """Before the first token. The past is given for each sentence, [B, ...], the source packed."""
        if beam < 1:
            raise RequestError(f"{beam} hypotheses a sentence, but there must be at least 1")
        return cls(
            past=[one.repeat_interleave(beam, 0) for one in past],
            lengths=torch.zeros(len(text) * beam, dtype=torch.int64, device=text.tokens.device),
            max_length=0,
            source=[text.pad(one) for one in source],
            source_lengths=text.lengths,
            beam=beam,
            start=start,
        )

    def __len__(self) -> int:
        """B, the sentences under way."""
        return len(self.source_lengths)

    def reorder(self, rows_R: Tensor) -> "RecurrentState":
        """Row i continues what row rows[i] has read. Both must be of one sentence, which is not checked."""
        if len(rows_R) != len(self.lengths):
            raise RequestError(f"{len(rows_R)} rows to reorder, but the state has {len(self.lengths)}")
        past = [one.index_select(0, rows_R) for one in self.past]
        return replace(self, past=past, lengths=self.lengths.index_select(0, rows_R))

    def remove(self, sentences: Tensor) -> "RecurrentState":
        """Without the sentences of these indices, and without the room that only they needed."""
        kept_B = torch.ones(len(self), dtype=torch.bool, device=self.lengths.device)
        kept_B[sentences] = False
        kept_R = kept_B.repeat_interleave(self.beam)
        lengths, source_lengths = self.lengths[kept_R], self.source_lengths[kept_B]
        room = max(1, int(source_lengths.max())) if len(source_lengths) else 1
        return replace(
            self,
            past=[one[kept_R] for one in self.past],
            lengths=lengths,
            max_length=int(lengths.max()) if len(lengths) else 0,
            source=[one[kept_B, :room] for one in self.source],
            source_lengths=source_lengths,
        )

    def append(self, memory: Any) -> "RecurrentState":
        """With new sentences behind the others, whose hypotheses have read nothing yet."""
        new = self.start(memory, self.beam)
        return replace(
            self,
            past=[torch.cat(both) for both in zip(self.past, new.past, strict=True)],
            lengths=torch.cat((self.lengths, new.lengths)),
            source=[concat_padded(*both) for both in zip(self.source, new.source, strict=True)],
            source_lengths=torch.cat((self.source_lengths, new.source_lengths)),
        )

    def check_rows(self, tokens_R: Tensor) -> None:
        if len(tokens_R) != len(self.lengths):
            raise RequestError(f"{len(tokens_R)} tokens, but the state has {len(self.lengths)} rows")

    def advance(self, past: list[Tensor]) -> None:
        """One more token of each row is read, and this is what they remember now."""
        self.past, self.lengths, self.max_length = past, self.lengths + 1, self.max_length + 1


def concat_padded(ours: Tensor, theirs: Tensor) -> Tensor:
    """[B, S, ...] of two, the second behind the first, both with room for the longest."""
    room = max(ours.shape[1], theirs.shape[1])

    def widened(one: Tensor) -> Tensor:
        return F.pad(one, (0, 0) * (one.dim() - 2) + (0, room - one.shape[1]))

    return torch.cat((widened(ours), widened(theirs)))
