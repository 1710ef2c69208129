"""A training step, forward to update: ours, and those of the peers, the strongest that we could make.

    python bench/train_step.py                  on this machine's GPU, or its CPU at a smaller size
    python bench/train_step.py --json result.json
    python bench/train_step.py --preset base --preset big --preset tiny --runs 2
    python bench/train_step.py --profile        where each millisecond of our step goes

The peers are plain PyTorch without padding (packed_transformer.py), JAX with packed rows (jax_transformer.py)
where it is installed, torch.nn.Transformer and Hugging Face Marian. Results are written after each system.

All rows come from one run on the same sentences, in batches of similar length (`--order random`: shuffled).
Only real tokens count, source + target, in speeds and in FLOPs. Batches are on the device before the
measurement. Each system makes several passes over them, after one that is not measured; then all systems
again in reverse order, and the spread is the difference between the two. On a CPU the systems alternate batch
by batch. Memory is the peak beyond what the other systems hold; on a CPU that of a separate process.

All have dropout only where the paper has it; torch.nn.Transformer's own dropout is another row, always on a
CPU, and on a GPU by `--only "own dropout"`. Attention without padding is FlexAttention, which was faster than
`varlen_attn`, another row by `--only varlen_attn`. Padding of the eager peers is rounded up to 8 tokens where
that is faster for them; compiled ones have one program per kind of layer, for all shapes.
"""

import argparse
import gc
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # batches differ in shape

import torch

import kernels
import manyheads as mh
import report
from jax_system import JaxSystem
from packed_transformer import PackedSystem
from train_results import (
    COLUMNS,
    SERIES_COLUMNS,
    Result,
    format_row,
    format_series,
    format_strongest,
    write_results,
    write_series,
)
from train_systems import OURS, SYSTEMS, CapturedSystem, PeerSystem, make_ours
from training_system import TrainingSystem
from workload import WorkloadBatch, make_sorted_and_random, training_flops

ORDERS = ("sorted", "random")  # batches of similar lengths, and shuffled
PASSES = 2  # the second in reverse order
Workload = dict[str, list[WorkloadBatch]]  # batches by order


# ---- measuring


def measure(
    arguments: argparse.Namespace,
    config: mh.TransformerConfig,
    save: Callable[[list[Result]], None],
) -> list[Result]:
    """Measure all systems. `save` is called whenever there is something new."""
    workload = make_workload(arguments, config)
    results = [
        Result(
            system,
            order,
            len(batches),
            sum(batch.tokens for batch in batches),
            sum(training_flops(config, batch) for batch in batches),
        )
        for order, batches in workload.items()
        for system in arguments.systems
    ]
    if arguments.device == "cpu":
        measure_memory(results)
        measure_alternately(results, workload, arguments, config)
        save(results)
        return results
    systems: dict[str, TrainingSystem] = {}
    for name in arguments.systems:
        rows = [row for row in results if row.system == name]
        record_errors(rows, partial(run_first_pass, systems, rows, workload, arguments, config))
        save(results)
    for name in reversed(list(systems)):
        rows = [row for row in results if row.system == name]
        record_errors(rows, partial(run_second_pass, systems[name], rows, workload, arguments))
        save(results)
    return results


def make_workload(arguments: argparse.Namespace, config: mh.TransformerConfig) -> Workload:
    both = make_sorted_and_random(
        arguments.batches, arguments.batch_tokens, config.vocab_size, arguments.seed
    )
    by_order = dict(zip(ORDERS, both, strict=True))
    return {order: by_order[order] for order in arguments.orders}


def record_errors(rows: list[Result], run: Callable[[], None]) -> None:
    """Run, and record an error of a peer in its rows, so that the others are measured. Ours must not fail."""
    try:
        run()
    except Exception as error:
        if rows[0].system == OURS:
            raise
        for row in rows:
            row.error, row.seconds = f"{type(error).__name__}: {str(error)[:200]}", []
        report.log(f"{rows[0].system}: {rows[0].error}\n{traceback.format_exc()}")


def measure_alternately(
    results: list[Result], workload: Workload, arguments: argparse.Namespace, config: mh.TransformerConfig
) -> None:
    """Measure all systems on each batch in turn, so that other load on a CPU affects all."""
    systems: dict[str, TrainingSystem] = {}
    for row in results:
        if row.system not in systems:
            torch.manual_seed(1)
            systems[row.system] = SYSTEMS[row.system](config, "cpu")
        system, batches = systems[row.system], workload[row.order]
        warm_up = batches if row.system.endswith("compiled") else batches[:1]
        system.time_pass(system.prepare_batches(warm_up))
        row.note = system.note
        report.log(f"{row.system}, {row.order}: ready")
    for number in range(PASSES):
        sums = {(row.system, row.order): [0.0] * arguments.rounds for row in results}
        for index, round_ in itertools.product(range(arguments.batches), range(arguments.rounds)):
            for row in results[:: -1 if number else 1]:
                system = systems[row.system]
                prepared = system.prepare_batches([workload[row.order][index]])
                sums[row.system, row.order][round_] += system.time_pass(prepared)
        for row in results:
            row.seconds.append(sums[row.system, row.order])
            report.log(f"{row.system}, {row.order}: {row.speeds[-1]:,.0f} tokens/s")


def run_first_pass(
    systems: dict[str, TrainingSystem],
    rows: list[Result],
    workload: Workload,
    arguments: argparse.Namespace,
    config: mh.TransformerConfig,
) -> None:
    """Make a system, run every shape once, and measure its speed and memory.

    A captured step holds its memory from the capture on, so its peak is counted from the start.
    """
    others = release_memory()
    torch.manual_seed(1)
    system = SYSTEMS[rows[0].system](config, arguments.device)
    captures = isinstance(system, CapturedSystem | PackedSystem)
    if isinstance(system, PeerSystem) and not rows[0].system.endswith("compiled"):
        system.choose_multiple(workload[rows[0].order][::3])
    for row in rows:
        if not captures:
            torch.cuda.reset_peak_memory_stats()
        measure_rounds(system, row, workload[row.order], arguments.rounds)
        row.peak_gib = get_peak_bytes(system, others) / 2**30
        row.note = system.note
    systems[rows[0].system] = system


def get_peak_bytes(system: TrainingSystem, others: int) -> int:
    """Return the peak memory beyond what the other systems hold."""
    if isinstance(system, JaxSystem):
        return system.peak_bytes
    return torch.cuda.max_memory_allocated() - others


def run_second_pass(
    system: TrainingSystem, rows: list[Result], workload: Workload, arguments: argparse.Namespace
) -> None:
    release_memory()
    for row in rows:
        measure_rounds(system, row, workload[row.order], arguments.rounds)


def measure_rounds(system: TrainingSystem, row: Result, batches: list[WorkloadBatch], rounds: int) -> None:
    prepared = system.prepare_batches(batches)
    for _ in range(system.warm_up_rounds):
        system.time_pass(prepared)
    report.freeze_gc()
    row.seconds.append([system.time_pass(prepared) for _ in range(rounds)])
    report.log(f"{row.system}, {row.order}: {row.speeds[-1]:,.0f} tokens/s")


def release_memory() -> int:
    """Free unused GPU memory, reset the peak, and return the bytes that are still allocated."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


# ---- memory on a CPU


def measure_memory(results: list[Result]) -> None:
    """Measure each row in a separate process, before this one grows: a child inherits its parent's peak."""
    for row in results:
        command = [sys.executable, __file__, *sys.argv[1:], "--peak-memory-of", row.system, row.order]
        finished = subprocess.run(command, capture_output=True, text=True)
        if finished.returncode != 0:
            sys.exit(f"{row.system}, {row.order}: {finished.stderr.strip()[-300:]}")
        row.peak_gib = float(finished.stdout.split()[-1])
        report.log(f"{row.system}, {row.order}: {row.peak_gib:.2f} GiB")


def measure_peak_gib(
    arguments: argparse.Namespace, config: mh.TransformerConfig, name: str, order: str
) -> float:
    """Return the peak memory of this process after two steps on the largest batch."""
    batches = make_workload(arguments, config)[order]
    system = SYSTEMS[name](config, "cpu")
    largest = max(batches, key=lambda batch: len(batch.sources) * max(map(len, batch.sources)))
    for _ in range(2):
        system.step(system.prepare(largest))
    unit = 1 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def print_step_profile(arguments: argparse.Namespace, config: mh.TransformerConfig, title: str) -> None:
    """Profile the middle batch with the first of the selected systems."""
    name = arguments.systems[0]
    batches = make_workload(arguments, config)[arguments.orders[0]]
    system = SYSTEMS[name](config, arguments.device)
    prepared = system.prepare(batches[len(batches) // 2])
    for _ in range(3):
        system.time_pass([prepared])
    profile = kernels.profile_call(lambda: system.step(prepared), arguments.device)
    environment = report.measure_environment(arguments.device)
    kernels.print_profile(profile, f"a step of {name}: {title}; {environment}")
    report.write_json(arguments.json, title, environment, system=name, profile=profile.to_dict())


# ---- command line


def parse_arguments() -> argparse.Namespace:
    parser = report.BenchmarkParser(__doc__)
    add_series_arguments(parser)
    parser.add_argument(
        "--vocab-size", "--vocabulary", type=report.positive_int, help="of the model (default: the preset's)"
    )
    parser.add_argument(
        "--batch-tokens",
        type=report.positive_int,
        help="target tokens per batch (default: 25,000; tiny 4,096; on a CPU 5,000)",
    )
    parser.add_argument(
        "--batches", type=report.positive_int, help="number of batches (default: 10; big 4; on a CPU 2)"
    )
    parser.add_argument(
        "--rounds", type=report.positive_int, help="measured rounds per pass (default: 2; on a CPU 1)"
    )
    parser.add_argument("--order", default="sorted", choices=[*ORDERS, "both"])
    report.add_only_argument(parser)
    parser.add_argument(
        "--micro-tokens", type=report.positive_int, help="per side of a micro-batch of ours (default: all)"
    )
    parser.add_argument("--compiled", action="store_true", help="compiled peers on a CPU too")
    parser.add_argument(
        "--profile", action="store_true", help="instead: profile one step of ours or of --only"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peak-memory-of", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    on_cpu = arguments.device == "cpu"
    arguments.presets = arguments.preset or ["base"]
    arguments.preset = arguments.presets[0]
    model = mh.presets.get_preset(arguments.preset).model
    arguments.vocab_size = arguments.vocab_size or model.vocab_size
    tokens = 5_000 if on_cpu else {"tiny": 4_096}.get(arguments.preset, mh.DataConfig().batch_tokens)
    arguments.batch_tokens = arguments.batch_tokens or tokens
    arguments.batches = arguments.batches or (2 if on_cpu else {"big": 4}.get(arguments.preset, 10))
    arguments.rounds = arguments.rounds or (1 if on_cpu else 2)
    arguments.orders = ORDERS if arguments.order == "both" else (arguments.order,)
    arguments.systems = report.select_systems(list_available(arguments), arguments.only)
    return arguments


def add_series_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that make several measurements, each in a process of its own."""
    parser.add_argument(
        "--preset",
        action="append",
        choices=report.PRESETS,
        help="size of the model (default: base); can be repeated",
    )
    parser.add_argument(
        "--runs", type=report.positive_int, default=1, help="repeat everything, and print the spread"
    )


def list_available(arguments: argparse.Namespace) -> list[str]:
    """Return the installed systems, without those that are slow or of little interest unless requested."""
    left_out = [] if report.get_version("transformers") else ["Marian"]
    on_cpu = arguments.device == "cpu"
    if on_cpu or not report.get_version("jax"):
        left_out.append("JAX")
    if on_cpu and not arguments.compiled:
        left_out.append("compiled")
    if not arguments.only:
        left_out += ["without padding"] if on_cpu else ["its own dropout", "varlen_attn"]
    return [name for name in SYSTEMS if not any(word in name for word in left_out)]


def measure_series(arguments: argparse.Namespace) -> None:
    """Run this script for each preset and each run, and compare the runs."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_series_arguments(parser)
    parser.add_argument("--json")
    _, others = parser.parse_known_args()
    series: dict[str, list[dict[str, Any]]] = {preset: [] for preset in arguments.presets}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        for _, preset in itertools.product(range(arguments.runs), series):
            subprocess.run(
                [sys.executable, __file__, *others, "--preset", preset, "--json", str(file)], check=True
            )
            series[preset].append(json.loads(file.read_text()))
            write_series(arguments.json, series)
    for preset, runs in series.items():
        report.print_table(f"{preset}, {arguments.runs} runs", SERIES_COLUMNS, format_series(runs))


def main() -> None:
    arguments = parse_arguments()
    if len(arguments.presets) * arguments.runs > 1:
        measure_series(arguments)
        return
    config = report.get_transformer(arguments)
    if arguments.peak_memory_of:
        print(measure_peak_gib(arguments, config, *arguments.peak_memory_of))
        return
    title = (
        f"{arguments.preset}, vocabulary {arguments.vocab_size:,}, "
        f"{arguments.batches} batches of about {arguments.batch_tokens:,} target tokens"
    )
    if arguments.micro_tokens:
        SYSTEMS[OURS] = partial(make_ours, micro_tokens=arguments.micro_tokens)
        title += f", ours in micro-batches of {arguments.micro_tokens:,}"
    if arguments.profile:
        print_step_profile(arguments, config, title)
        return
    environment = report.measure_environment(arguments.device)
    results = measure(arguments, config, partial(write_results, arguments.json, title, environment))
    rows = [format_row(row, results, environment.matmul_peak) for row in results]
    report.print_table(f"{title}; {environment}", COLUMNS, rows)
    print("\n".join(format_strongest(results)))


if __name__ == "__main__":
    report.run_main(main)
