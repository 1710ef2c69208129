"""A training step, forward to update: ours, torch.nn.Transformer and Hugging Face Marian.

    python bench/train_step.py                  on this machine's GPU, or its CPU at a smaller size
    python bench/train_step.py --json result.json
    python bench/train_step.py --profile        where each millisecond of our step goes

All rows come from one run on the same sentences, in batches of similar length (`--order random`: shuffled).
Only real tokens count, source + target, in speeds and in FLOPs. Batches are on the device before the
measurement. Each system makes several passes over them, after one that is not measured; then all systems
again in reverse order, and the spread is the difference between the two. On a CPU the systems alternate batch
by batch. Memory is the peak beyond what the other systems hold; on a CPU that of a separate process.

All have dropout only where the paper has it; torch.nn.Transformer's own dropout is another row, always on a
CPU, and on a GPU by `--only "own dropout"`. Padding of the eager peers is rounded up to 8 tokens where that
is faster for them; compiled ones have one program per kind of layer, for all shapes.
"""

import argparse
import gc
import itertools
import math
import os
import resource
import statistics
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # batches differ in shape

import torch

import kernels
import manyheads as mh
import report
from jax_system import JaxSystem
from packed_transformer import PackedSystem
from train_systems import OURS, SYSTEMS, CapturedSystem, PeerSystem, make_ours
from training_system import TrainingSystem
from workload import WorkloadBatch, make_sorted_and_random, training_flops

ORDERS = ("sorted", "random")  # batches of similar lengths, and shuffled
PASSES = 2  # the second in reverse order
Workload = dict[str, list[WorkloadBatch]]  # batches by order


@dataclass
class Result:
    """A row of the table. Seconds are those of all batches, by pass and round."""

    system: str
    order: str
    steps: int
    tokens: int
    flops: int
    seconds: list[list[float]] = field(default_factory=list)
    peak_gib: float = math.nan
    note: str = ""
    error: str = ""  # why there are no numbers

    @property
    def speeds(self) -> list[float]:
        """Real tokens per second, source + target, of each pass."""
        return [self.tokens / statistics.median(rounds) for rounds in self.seconds]

    @property
    def speed(self) -> float:
        return statistics.mean(self.speeds) if self.seconds else math.nan

    @property
    def step_ms(self) -> float:
        return 1000 * self.tokens / self.speed / self.steps

    @property
    def flops_per_second(self) -> float:
        """FLOP/s of real tokens."""
        return self.flops * self.speed / self.tokens


# ---- measuring


def measure(arguments: argparse.Namespace, config: mh.TransformerConfig) -> list[Result]:
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
        return results
    systems: dict[str, TrainingSystem] = {}
    for name in arguments.systems:
        rows = [row for row in results if row.system == name]
        record_errors(rows, partial(run_first_pass, systems, rows, workload, arguments, config))
    for name in reversed(list(systems)):
        rows = [row for row in results if row.system == name]
        record_errors(rows, partial(run_second_pass, systems[name], rows, workload, arguments))
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


# ---- reporting


def compare_with_ours(results: list[Result], row: Result) -> tuple[float, float] | None:
    """Return the speedup and the memory ratio of ours on the same batches, or None if not measured."""
    ours = next((other for other in results if (other.system, other.order) == (OURS, row.order)), None)
    if ours is None or row.error:
        return None
    return ours.speed / row.speed, ours.peak_gib / row.peak_gib


def format_row(row: Result, results: list[Result], matmul_peak: float) -> tuple[str, ...]:
    if row.error:
        return row.system, row.order, *[""] * 7, row.error[:40]
    ratios = compare_with_ours(results, row)
    return (
        row.system,
        row.order,
        f"{row.speed:,.0f}",
        f"{row.step_ms:,.1f}",
        f"{row.flops_per_second / matmul_peak:.1%}",
        f"{row.flops_per_second / 1e12:.3g}",
        f"{row.peak_gib:.2f}",
        report.format_spread(row.speeds),
        *(f"{ratio:.2f} x" for ratio in ratios or ()),
    )


COLUMNS = (
    *("system", "batches", "tokens/s", "ms/step", "of matmul peak", "TFLOP/s", "peak GiB", "spread"),
    *("speedup of ours", "memory of ours"),
)


def to_json(row: Result, results: list[Result], matmul_peak: float) -> dict[str, Any]:
    """Return a row for the JSON; what is unknown is None."""
    numbers = {key: value for key, value in asdict(row).items() if key != "peak_gib"}
    if row.error:
        return numbers
    speedup, memory_ratio = compare_with_ours(results, row) or (None, None)
    return numbers | {
        "tokens_per_second": row.speed,
        "ms_per_step": row.step_ms,
        "share_of_matmul_peak": row.flops_per_second / matmul_peak,
        "flops_per_second": row.flops_per_second,
        "peak_gib": row.peak_gib,
        "spread": report.compute_spread(row.speeds),
        "speedup_of_ours": speedup,
        "memory_ratio_of_ours": memory_ratio,
    }


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
    report.add_preset_argument(parser, "base")
    report.add_vocab_size_argument(parser)
    parser.add_argument(
        "--batch-tokens",
        type=report.positive_int,
        help="target tokens per batch (default: 25,000; on a CPU 5,000)",
    )
    parser.add_argument(
        "--batches", type=report.positive_int, help="number of batches (default: 10; on a CPU 2)"
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
    arguments.batch_tokens = arguments.batch_tokens or (5_000 if on_cpu else mh.DataConfig().batch_tokens)
    arguments.batches = arguments.batches or (2 if on_cpu else 10)
    arguments.rounds = arguments.rounds or (1 if on_cpu else 2)
    arguments.orders = ORDERS if arguments.order == "both" else (arguments.order,)
    arguments.systems = report.select_systems(list_available(arguments), arguments.only)
    return arguments


def list_available(arguments: argparse.Namespace) -> list[str]:
    """Return the installed systems, without those that are slow or of little interest unless requested."""
    left_out = [] if report.get_version("transformers") else ["Marian"]
    on_cpu = arguments.device == "cpu"
    if on_cpu or not report.get_version("jax"):
        left_out.append("JAX")
    if on_cpu and not arguments.compiled:
        left_out.append("compiled")
    if not arguments.only:
        left_out.append("without padding" if on_cpu else "its own dropout")
    return [name for name in SYSTEMS if not any(word in name for word in left_out)]


def main() -> None:
    arguments = parse_arguments()
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
    results = measure(arguments, config)
    environment = report.measure_environment(arguments.device)
    peak = environment.matmul_peak
    rows = [format_row(row, results, peak) for row in results]
    report.print_table(f"{title}; {environment}", COLUMNS, rows)
    report.write_json(
        arguments.json, title, environment, rows=[to_json(row, results, peak) for row in results]
    )


if __name__ == "__main__":
    report.run_main(main)
