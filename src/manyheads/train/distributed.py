"""Data-parallel training: several processes train one model, each on its share of every batch.

launcher.py for `--gpus`, or torchrun, starts the processes and tells each its rank.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from manyheads.errors import TrainingError
from manyheads.train.launcher import STORE_SOCKET_VARIABLE, store_address, store_url

# In torch's messages about a rank that is gone.
CONNECTION_LOST_MESSAGES = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer")


@dataclass(frozen=True)
class DistributedContext:
    """This process is number `rank` of `world_size`, and computes on `device`."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def all_reduce_sum(self, *numbers: float) -> list[float]:
        """Return the sum over all ranks of each number."""
        if self.world_size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        distributed.all_reduce(total)
        return total.tolist()

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set on at least one rank."""
        return self.all_reduce_sum(float(flag))[0] > 0

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self.world_size > 1:
            distributed.barrier()

    def wrap_ddp(self, module: nn.Module) -> nn.Module:
        """Return a module whose gradients are averaged over the ranks after each backward pass."""
        if self.world_size == 1:
            return module
        device_ids = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=device_ids, gradient_as_bucket_view=True)

    def broadcast(self, numbers: Sequence[int]) -> list[int]:
        """Return the main rank's numbers on every rank; those of other ranks are ignored.

        The main rank decides what was read from disk, and the others may see another number of files: so the
        length is sent first.
        """
        if self.world_size == 1:
            return list(numbers)
        length = torch.tensor(len(numbers), device=self.device)
        distributed.broadcast(length, 0)
        values = torch.zeros(int(length), dtype=torch.int64, device=self.device)
        if self.is_main:
            values.copy_(torch.tensor(numbers, dtype=torch.int64))
        distributed.broadcast(values, 0)
        return values.tolist()


def make_rendezvous(world_size: int) -> dict[str, Any]:
    """Return the arguments of init_process_group by which the ranks find each other."""
    address, url = store_address(), store_url()
    if address is None and url is None:
        return {}  # those of torchrun
    meeting = {"init_method": url} if address is None else {"store": open_store(*address)}
    return {**meeting, "rank": int(os.environ["RANK"]), "world_size": world_size}


def open_store(host: str, port: int) -> Any:
    """Open the store of several machines, which rank 0 serves on the socket of the launcher.

    Nothing in it is unpickled.
    """
    is_server = os.environ["RANK"] == "0"
    listener = int(os.environ[STORE_SOCKET_VARIABLE]) if is_server else None
    return distributed.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=is_server, wait_for_workers=False, master_listen_fd=listener
    )


@contextmanager
def init_distributed(device: str) -> Iterator[DistributedContext]:
    """Join the process group that torchrun or `--gpus` has started, if there is one."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1:
        yield DistributedContext(0, 1, torch.device(device))
        return
    if device.startswith("cuda"):
        rank_device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(rank_device)
        distributed.init_process_group("nccl", device_id=rank_device, **make_rendezvous(world_size))
    else:
        rank_device = torch.device("cpu")
        distributed.init_process_group("gloo", **make_rendezvous(world_size))
    try:
        yield DistributedContext(distributed.get_rank(), world_size, rank_device)
    except RuntimeError as error:
        if not any(message in str(error) for message in CONNECTION_LOST_MESSAGES):
            raise
        first_line = str(error).strip().splitlines()[0]
        raise TrainingError(
            f"rank {os.environ['RANK']} lost the connection to another rank, which reports the cause "
            f"({first_line})"
        ) from None
    finally:
        distributed.destroy_process_group()
