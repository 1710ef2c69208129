"""Several models that decode together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.config import ModelConfig
from manyheads.model.encoder_decoder import Trace
from manyheads.model.kv_cache import Memory
from manyheads.packed import Packed


@dataclass
class EnsembleState:
    """The states of an ensemble's models."""

    states: list[Any]

    def reorder(self, rows: Tensor) -> "EnsembleState":
        return EnsembleState([state.reorder(rows) for state in self.states])

    def remove(self, sentences: Tensor) -> "EnsembleState":
        return EnsembleState([state.remove(sentences) for state in self.states])

    def append(self, memories: list[Memory]) -> "EnsembleState":
        pairs = zip(self.states, memories, strict=True)
        return EnsembleState([state.append(memory) for state, memory in pairs])


class Ensemble(nn.Module):
    """Several models with the same subwords: the probability of a token is the mean of theirs."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        configs: list[ModelConfig] = [model.config for model in models]  # type: ignore[misc]
        self.config = configs[0]  # whose attention the trace shows
        limits = [config.position_limit for config in configs if config.position_limit is not None]
        self.position_limit = min(limits, default=None)

    def forward(self, source: Packed, target: Packed, trace: Trace | None = None) -> Tensor:
        """Return log of the mean probability. The trace is the first model's."""
        traces = [trace, *[None] * (len(self.models) - 1)]
        pairs = zip(self.models, traces, strict=True)
        return mean_log_probs([model(source, target, own) for model, own in pairs])

    def encode(self, source: Packed) -> list[Memory]:
        return [model.encode(source) for model in self._models()]

    def start(self, memories: list[Memory], beam: int = 1) -> EnsembleState:
        pairs = zip(self._models(), memories, strict=True)
        return EnsembleState([model.start(memory, beam) for model, memory in pairs])

    def step(self, tokens_R: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        pairs = zip(self._models(), state.states, strict=True)
        steps = [model.step(tokens_R, own) for model, own in pairs]
        return mean_log_probs([logits for logits, _ in steps]), EnsembleState([own for _, own in steps])

    def _models(self) -> list[Any]:
        return list(self.models)


def mean_log_probs(logits: list[Tensor]) -> Tensor:
    """Return log of the mean of the probabilities."""
    log_p = torch.stack([values.float().log_softmax(-1) for values in logits])
    return log_p.logsumexp(0) - torch.tensor(float(len(logits))).log()
