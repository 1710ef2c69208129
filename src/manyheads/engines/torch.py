"""The torch engine: our own models, our own search, on a CPU or a GPU."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from manyheads.config import BEGIN, END
from manyheads.packed import Packed

SCORED_TOKENS = 4096  # of sources and targets together, scored at once


class TorchEngine:
    """A model that is loaded; several threads may use it at once."""

    def __init__(self, model: nn.Module, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.model = model.to(self.device).eval()
        self.name = "torch"

    @torch.inference_mode()
    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """The log-probability of each token of each target, the end token's last: forced decoding."""
        found: list[list[float]] = [[] for _ in targets]
        for numbers in groups([len(s) + len(t) for s, t in zip(sources, targets, strict=True)]):
            chosen = [targets[number] for number in numbers]
            source = Packed.of([sources[number] for number in numbers]).to(self.device)
            inputs = Packed.of([[BEGIN, *target] for target in chosen]).to(self.device)
            labels = Packed.of([[*target, END] for target in chosen]).to(self.device)
            log_p_T = label_scores(self.model(source, inputs), labels.tokens)
            for number, scores in zip(numbers, labels.split(log_p_T), strict=True):
                found[number] = scores.tolist()
        return found


def label_scores(logits_TK: Tensor, labels_T: Tensor) -> Tensor:
    """log p of each label. [T]"""
    right_T = logits_TK.gather(1, labels_T[:, None]).squeeze(1)
    return right_T.float() - logits_TK.float().logsumexp(-1)


def groups(lengths: Sequence[int], most: int = SCORED_TOKENS) -> Iterator[list[int]]:
    """Numbers of sentences of like length, of about so many tokens together."""
    group: list[int] = []
    tokens = 0
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        if group and tokens + lengths[number] > most:
            yield group
            group, tokens = [], 0
        group.append(number)
        tokens += lengths[number]
    if group:
        yield group
