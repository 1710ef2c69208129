"""A model whose output is restricted to the shortlist of the sources in a batch (checkpoint/shortlist.py)."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.checkpoint.shortlist import Shortlist
from manyheads.ops.linear import ShortlistOutput
from manyheads.packed import Packed
from manyheads.search.options import Request

MAX_FRACTION = 0.5  # of the vocabulary: beyond it, the whole matrix is as fast


class ShortlistModel:
    """Encodes and steps like a model. It belongs to one search, and the model itself stays as it is."""

    def __init__(self, model: Any, shortlist: Shortlist) -> None:
        self.model, self.restricted, self.shortlist = model, model, shortlist
        self.rows: set[int] = set()

    def admit(self, requests: Sequence[Request], is_first: bool) -> None:
        """Add the candidates of sources that join the batch; the first ones begin a new list."""
        required = {token for request in requests for token in list_required_tokens(request)}
        rows = self.shortlist.select([request.source for request in requests], required)
        self.rows = {*rows.tolist(), *(() if is_first else self.rows)}
        self.restricted = self.model
        if len(self.rows) <= MAX_FRACTION * self.model.output.out_features:
            rows_C = torch.tensor(sorted(self.rows))
            self.restricted = replace_output(self.model, ShortlistOutput(self.model.output, rows_C))

    def encode(self, source: Packed) -> Any:
        return self.model.encode(source)

    def start(self, memory: Any, beam: int = 1) -> Any:
        return self.model.start(memory, beam)

    def step(self, tokens_R: Tensor, state: Any) -> tuple[Tensor, Any]:
        result: tuple[Tensor, Any] = self.restricted.step(tokens_R, state)
        return result


def list_required_tokens(request: Request) -> list[int]:
    """Return what a translation must hold, whatever its source."""
    own = request.constraints
    return [*own.prefix, *(token for phrase in own.required_phrases for token in phrase)]


def replace_output(model: nn.Module, output: nn.Module) -> nn.Module:
    """Return a model that shares everything with another one but its output projection."""
    changed = copy.copy(model)
    changed.__dict__["_modules"] = {**model._modules, "output": output}
    return changed
