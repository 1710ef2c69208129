"""Asynchronous copies between host and GPU."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]


def to_device(array: IntArray, device: torch.device) -> Tensor:
    """Start to copy integers to the device."""
    tensor = torch.from_numpy(array)
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


@dataclass(frozen=True)
class AsyncCopy:
    """A copy to the host. Later changes of the originals do not reach it."""

    tensors: list[Tensor]
    event: torch.cuda.Event | None

    @classmethod
    def to_host(cls, tensors: list[Tensor]) -> "AsyncCopy":
        """Start to copy these tensors, all of one device."""
        event = torch.cuda.Event() if tensors and tensors[0].is_cuda else None
        copies = [tensor.to("cpu", non_blocking=True, copy=True) for tensor in tensors]
        if event:
            event.record()
        return cls(copies, event)

    def wait(self) -> list[Tensor]:
        """Return the copies once they are complete."""
        if self.event:
            self.event.synchronize()
        return self.tensors


EMPTY_COPY = AsyncCopy([], None)
