"""The cost of several ranks: an update of one rank, the all-reduce of its gradient, and both together.

    python bench/scaling.py                     two processes with gloo on this machine's CPU
    python bench/scaling.py --json result.json

Each of two processes computes its share of a batch with one thread: first alone, then with the gradients
averaged by DDP, which overlaps the all-reduce with the backward pass, then with one all-reduce of the whole
gradient afterwards, as captured updates do. The all-reduce alone is measured too. docs/scaling.md
extrapolates with this model: an update of several ranks takes as long as that of one rank with its share,
plus the all-reduce; overlap only shortens it.
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
from train_systems import pack_batch
from workload import make_sorted_and_random

RANKS = 2


def main() -> None:
    parser = report.BenchmarkParser(__doc__)
    report.add_preset_argument(parser, "small")
    parser.add_argument("--tokens", type=int, default=2000, help="per side and rank (default: 2000)")
    parser.add_argument("--repetitions", type=report.positive_int, default=5)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        rank_arguments = (arguments, str(Path(folder) / "rendezvous"), str(Path(folder) / "seconds.json"))
        torch.multiprocessing.spawn(  # type: ignore[attr-defined, no-untyped-call]
            run_rank, args=rank_arguments, nprocs=RANKS
        )
        measured: dict[str, list[float]] = json.loads(Path(rank_arguments[2]).read_text())
    print_report(measured, arguments)


def run_rank(rank: int, arguments: argparse.Namespace, rendezvous: str, out: str) -> None:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    config = mh.presets.get_preset(arguments.preset).model
    assert isinstance(config, mh.TransformerConfig)
    (workload_batch,), _ = make_sorted_and_random(1, arguments.tokens, config.vocab_size, 1)
    packed = pack_batch(workload_batch)
    model = mh.Transformer(config).train()
    plain = Objective(model, mh.TrainConfig())
    optimizer = Optimizer(model, mh.TrainConfig())
    shared = DistributedDataParallel(plain, gradient_as_bucket_view=True)
    flat = torch.zeros(sum(parameter.numel() for parameter in model.parameters()))

    def update(objective: Callable[..., Any], all_reduce: bool = False) -> None:
        optimizer.zero_grad()
        total, _ = objective(packed.source, packed.inputs, packed.labels.tokens)
        (total / len(packed.labels.tokens)).backward()
        if all_reduce:
            distributed.all_reduce(flat)
        optimizer.set_learning_rate(1e-4)
        optimizer.step()

    updates: dict[str, Callable[[], None]] = {
        "alone": lambda: update(plain),
        "with DDP": lambda: update(shared),
        "with one all-reduce": lambda: update(plain, all_reduce=True),
        "all-reduce": lambda: distributed.all_reduce(flat),
    }
    seconds: dict[str, list[float]] = {name: [] for name in updates}
    for repetition in range(arguments.repetitions + 1):
        for name, run_update in updates.items():
            distributed.barrier()
            start = time.perf_counter()
            run_update()
            distributed.barrier()
            if repetition:  # the first one is not measured
                seconds[name].append(time.perf_counter() - start)
    if rank == 0:
        Path(out).write_text(json.dumps({**seconds, "bytes": [4.0 * flat.numel()]}))
    distributed.destroy_process_group()


def print_report(measured: dict[str, list[float]], arguments: argparse.Namespace) -> None:
    medians = {name: statistics.median(seconds) for name, seconds in measured.items()}
    expected = medians["alone"] + medians["all-reduce"]
    rows = [
        [name, f"{1000 * seconds:,.0f}", f"{seconds / expected:.2f}" if name.startswith("with") else ""]
        for name, seconds in medians.items()
        if name != "bytes"
    ]
    rows.append(["expected: alone + all-reduce", f"{1000 * expected:,.0f}", "1.00"])
    title = (
        f"{arguments.preset}, {arguments.tokens:,} tokens per side and rank, {medians['bytes'] / 1e6:,.0f} MB"
    )
    environment = report.measure_environment("cpu")
    report.print_table(f"{title}; {environment}", ["update", "ms", "of expected"], rows)
    report.write_json(arguments.json, title, environment, seconds=measured, expected=expected)


if __name__ == "__main__":
    report.run_main(main)
