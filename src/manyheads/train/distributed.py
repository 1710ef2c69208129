"""Several processes that train one model, each on its share of every batch; or one, that knows no others.

torchrun starts them and tells each its rank; nothing here starts a process.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from manyheads.errors import TrainingError

CONNECTION_LOST_MESSAGES = (
    "gloo",
    "NCCL",
    "Connection closed by peer",
    "Connection reset by peer",
)  # how torch says it


@dataclass(frozen=True)
class DistributedContext:
    """Who takes part: this process is number `rank` of `size`, and computes on `device`."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def all_reduce_sum(self, *numbers: float) -> list[float]:
        """Of each number, the sum over all ranks."""
        if self.world_size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        distributed.all_reduce(total)
        return total.tolist()

    def any_rank(self, flag: bool) -> bool:
        """Whether it holds for some rank."""
        return self.all_reduce_sum(float(flag))[0] > 0

    def barrier(self) -> None:
        if self.world_size > 1:
            distributed.barrier()

    def wrap_ddp(self, module: nn.Module) -> nn.Module:
        """The module with its gradients averaged over the ranks at the end of each backward pass."""
        if self.world_size == 1:
            return module
        places = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=places, gradient_as_bucket_view=True)

    def broadcast(self, number: int) -> int:
        """The first rank's number, for all: what is read off a disk is decided by one."""
        if self.world_size == 1:
            return number
        told = torch.tensor(number, device=self.device)
        distributed.broadcast(told, 0)
        return int(told)


@contextmanager
def init_distributed(device: str) -> Iterator[DistributedContext]:
    """The world that torchrun has started, or a world of one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield DistributedContext(0, 1, torch.device(device))
        return
    if device.startswith("cuda"):
        own = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(own)
    else:
        own = torch.device("cpu")
    if own.type == "cuda":
        distributed.init_process_group("nccl", device_id=own)
    else:
        distributed.init_process_group("gloo")
    try:
        yield DistributedContext(distributed.get_rank(), size, own)
    except RuntimeError as fault:
        if not any(word in str(fault) for word in CONNECTION_LOST_MESSAGES):
            raise
        first = str(fault).strip().splitlines()[0]
        raise TrainingError(f"rank {os.environ['RANK']} lost another one, which says why ({first})") from None
    finally:
        distributed.destroy_process_group()
