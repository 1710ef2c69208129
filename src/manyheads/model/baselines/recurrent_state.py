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
class RowState:
    """W hypotheses for each of B sentences. `model.step` moves it on in place; methods give a new one."""

    past: list[Tensor]  # each [R, ...]: what a row remembers of what it has read
    lengths: Tensor  # [R] int64: tokens that each row has read
    longest: int  # of these, on the host
    source: list[Tensor]  # each [B, S, ...]: what is kept of each source token, zeros behind them
    source_lengths: Tensor  # [B]
    width: int  # W
    start: Callable[[Any, int], "RowState"]  # the model's, which makes a state for new sentences

    @classmethod
    def begin(
        cls,
        past: list[Tensor],
        source: list[Tensor],
        text: Packed,
        width: int,
        start: Callable[[Any, int], "RowState"],
    ) -> "RowState":
        """Before the first token. The past is given for each sentence, [B, ...], the source packed."""
        if width < 1:
            raise RequestError(f"{width} hypotheses a sentence, but there must be at least 1")
        return cls(
            past=[one.repeat_interleave(width, 0) for one in past],
            lengths=torch.zeros(len(text) * width, dtype=torch.int64, device=text.tokens.device),
            longest=0,
            source=[text.pad(one) for one in source],
            source_lengths=text.lengths,
            width=width,
            start=start,
        )

    def __len__(self) -> int:
        """B, the sentences under way."""
        return len(self.source_lengths)

    def reorder(self, rows_R: Tensor) -> "RowState":
        """Row i continues what row rows[i] has read. Both must be of one sentence, which is not checked."""
        if len(rows_R) != len(self.lengths):
            raise RequestError(f"{len(rows_R)} rows to reorder, but the state has {len(self.lengths)}")
        past = [one.index_select(0, rows_R) for one in self.past]
        return replace(self, past=past, lengths=self.lengths.index_select(0, rows_R))

    def drop(self, sentences: Tensor) -> "RowState":
        """Without the sentences of these indices, and without the room that only they needed."""
        kept_B = torch.ones(len(self), dtype=torch.bool, device=self.lengths.device)
        kept_B[sentences] = False
        kept_R = kept_B.repeat_interleave(self.width)
        lengths, source_lengths = self.lengths[kept_R], self.source_lengths[kept_B]
        room = max(1, int(source_lengths.max())) if len(source_lengths) else 1
        return replace(
            self,
            past=[one[kept_R] for one in self.past],
            lengths=lengths,
            longest=int(lengths.max()) if len(lengths) else 0,
            source=[one[kept_B, :room] for one in self.source],
            source_lengths=source_lengths,
        )

    def admit(self, memory: Any) -> "RowState":
        """With new sentences behind the others, whose hypotheses have read nothing yet."""
        new = self.start(memory, self.width)
        return replace(
            self,
            past=[torch.cat(both) for both in zip(self.past, new.past, strict=True)],
            lengths=torch.cat((self.lengths, new.lengths)),
            source=[joined(*both) for both in zip(self.source, new.source, strict=True)],
            source_lengths=torch.cat((self.source_lengths, new.source_lengths)),
        )

    def check(self, tokens_R: Tensor) -> None:
        if len(tokens_R) != len(self.lengths):
            raise RequestError(f"{len(tokens_R)} tokens, but the state has {len(self.lengths)} rows")

    def move_on(self, past: list[Tensor]) -> None:
        """One more token of each row is read, and this is what they remember now."""
        self.past, self.lengths, self.longest = past, self.lengths + 1, self.longest + 1


def joined(ours: Tensor, theirs: Tensor) -> Tensor:
    """[B, S, ...] of two, the second behind the first, both with room for the longest."""
    room = max(ours.shape[1], theirs.shape[1])

    def widened(one: Tensor) -> Tensor:
        return F.pad(one, (0, 0) * (one.dim() - 2) + (0, room - one.shape[1]))

    return torch.cat((widened(ours), widened(theirs)))
