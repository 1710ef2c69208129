"""Numbers on their way between a GPU and the host, for which nobody waits before they are read."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]


def to_device(array: IntArray, device: torch.device) -> Tensor:
    """Integers on their way to the device."""
    here = torch.from_numpy(array)
    return (here.pin_memory() if device.type == "cuda" else here).to(device, non_blocking=True)


@dataclass(frozen=True)
class AsyncCopy:
    """Numbers on their way to the host. They are what they were when they left."""

    tensors: list[Tensor]
    event: torch.cuda.Event | None

    @classmethod
    def to_host(cls, tensors: list[Tensor]) -> "AsyncCopy":
        event = torch.cuda.Event() if tensors and tensors[0].is_cuda else None
        copies = [one.to("cpu", non_blocking=True, copy=True) for one in tensors]
        if event:
            event.record()
        return cls(copies, event)

    def wait(self) -> list[Tensor]:
        if self.event:
            self.event.synchronize()
        return self.tensors


EMPTY_COPY = AsyncCopy([], None)
