"""What several ranks cost: an update of one rank, the exchange of its gradient, and both together.

    python bench/scaling.py                     two processes with gloo on this machine's CPU
    python bench/scaling.py --json result.json

Each of two processes computes the same share of a batch, with one thread: first for itself, then with the
gradients averaged by DDP (which begins the exchange while the backward pass runs), then with one exchange of
the whole gradient behind it, as captured updates do. The exchange alone is measured too. What
docs/scaling.md extrapolates with is this model: an update of several ranks takes as long as one of a rank
with its share, and behind it the exchange; what overlaps only shortens that.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import manyheads as mh
import report
from manyheads.train.objective import Objective
from manyheads.train.optimizer import Optimizer
from train_step import host_batch
from workload import sorted_and_random

RANKS = 2


def main() -> None:
    parser = report.Parser(__doc__)
    report.add_preset(parser, "small")
    parser.add_argument("--tokens", type=int, default=2000, help="of a rank's share, a side (default: 2000)")
    parser.add_argument("--repetitions", type=report.positive, default=5)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        work = (arguments, str(Path(folder) / "meet"), str(Path(folder) / "found.json"))
        torch.multiprocessing.spawn(rank_work, args=work, nprocs=RANKS)  # type: ignore[attr-defined]
        found: dict[str, list[float]] = json.loads(Path(work[2]).read_text())
    tell(found, arguments)


def rank_work(rank: int, arguments: argparse.Namespace, meet: str, out: str) -> None:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    distributed.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    config = mh.presets.get_preset(arguments.preset).model
    (batch,), _ = sorted_and_random(1, arguments.tokens, config.vocab_size, 1)
    moved = host_batch(batch)
    model = mh.Transformer(config).train()
    plain = Objective(model, mh.TrainConfig())
    optimizer = Optimizer(model, mh.TrainConfig())
    shared = DistributedDataParallel(plain, gradient_as_bucket_view=True)
    flat = torch.zeros(sum(one.numel() for one in model.parameters()))

    def update(objective: Callable[..., Any], exchange: bool = False) -> None:
        optimizer.zero_grad()
        total, _ = objective(moved.source, moved.inputs, moved.labels.tokens)
        (total / len(moved.labels.tokens)).backward()
        if exchange:
            distributed.all_reduce(flat)
        optimizer.set_learning_rate(1e-4)
        optimizer.step()

    works: dict[str, Callable[[], None]] = {
        "alone": lambda: update(plain),
        "with DDP": lambda: update(shared),
        "with one exchange behind": lambda: update(plain, exchange=True),
        "the exchange alone": lambda: distributed.all_reduce(flat),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(arguments.repetitions + 1):
        for name, work in works.items():
            distributed.barrier()
            began = time.perf_counter()
            work()
            distributed.barrier()
            if turn:  # the first time is not measured
                seconds[name].append(time.perf_counter() - began)
    if rank == 0:
        Path(out).write_text(json.dumps({**seconds, "bytes": [4.0 * flat.numel()]}))
    distributed.destroy_process_group()


def tell(found: dict[str, list[float]], arguments: argparse.Namespace) -> None:
    middle = {name: statistics.median(seconds) for name, seconds in found.items()}
    expected = middle["alone"] + middle["the exchange alone"]
    rows = [
        [name, f"{1000 * seconds:,.0f}", f"{seconds / expected:.2f}" if name.startswith("with") else ""]
        for name, seconds in middle.items()
        if name != "bytes"
    ]
    rows.append(["expected: alone + exchange", f"{1000 * expected:,.0f}", "1.00"])
    about = (
        f"{arguments.preset}, {arguments.tokens:,} tokens a side and rank, {middle['bytes'] / 1e6:,.0f} MB"
    )
    told = report.about("cpu")
    report.print_table(f"{about}; {told}", ["an update", "ms", "of expected"], rows)
    report.write_json(arguments.json, about, told, seconds=found, expected=expected)


if __name__ == "__main__":
    report.run(main)
