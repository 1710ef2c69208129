"""A training step, from forward pass to update: ours against torch.nn.Transformer and Hugging Face Marian.

    python bench/train_step.py                  on this machine's GPU, or its CPU at a size that it can take
    python bench/train_step.py --json result.json
    python bench/train_step.py --profile        where each millisecond of our step goes

All rows come from one run on the same sentences, in batches of like length (`--order random`: as they come).
Tokens are real ones, source + target; the work that the share of the ceiling counts is that of real tokens.
Batches lie on the device before the clock runs. Each system goes through them several times, after once that
is not measured; then all of them again in reverse order, and the spread is what lies between the two; on a
CPU they take turns batch by batch. Memory is the peak beyond what the other systems hold; on a CPU that of a
process of its own.

All have dropout only where the paper has it; torch.nn.Transformer's own is another row, on a CPU always, on a
GPU by `--only "own dropout"`. Padding of the eager peers is rounded up to 8 tokens where that is faster for
them; compiled ones have one program for each kind of layer, whatever the shape.
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
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # batches differ in shape

import numpy as np
import torch
from torch import Tensor

import kernels
import manyheads as mh
import report
from manyheads.data import batches as data
from manyheads.train.captured_step import CapturedStep, can_capture
from manyheads.train.distributed import DistributedContext
from manyheads.train.objective import Objective
from manyheads.train.optimizer import Optimizer
from manyheads.train.step import StepResult
from peers import Marian, TorchTransformer, TorchTransformerAsItComes, padded
from workload import Batch, sorted_and_random, training_flops

TRAIN = mh.TrainConfig()
RATE = 1e-4
ORDERS = ("sorted", "random")  # batches of like lengths, and as they come
OURS = "manyheads"
PASSES = 2  # the second in reverse order


class System(Protocol):
    """What a row measures."""

    device: str
    note: str  # for the JSON
    unmeasured: int  # ways through the batches before the clock runs

    def prepare(self, batch: Batch) -> Any:
        """The batch on the device, as the system wants it. Not measured."""
        ...

    def step(self, batch: Any) -> None:
        """Forward, loss, backward, update. Measured; nobody waits for the device in between."""
        ...


class Ours:
    """Manyheads as `manyheads train` trains it."""

    note = ""
    unmeasured = 1

    def __init__(self, config: mh.ModelConfig, device: str, micro_tokens: int | None = None) -> None:
        self.device, self.micro_tokens = device, micro_tokens
        self.model = mh.Transformer(config).to(device).train()
        self.objective = Objective(self.model, TRAIN)
        self.optimizer = Optimizer(self.model, TRAIN)

    def prepare(self, batch: Batch) -> list[data.Batch]:
        """In parts, where the step takes them one after another."""
        return [part.to(self.device) for part in host_batch(batch).split_micro_batches(self.micro_tokens)]

    def step(self, batch: list[data.Batch]) -> None:
        self.optimizer.zero_grad()
        for part in batch:
            with low_precision(self.device):
                total, _ = self.objective(part.source, part.inputs, part.labels.tokens)
            (total / tokens_of(batch)).backward()
        self.optimizer.set_learning_rate(RATE)
        self.optimizer.step()


class OursCaptured(Ours):
    """The same on a GPU: captured graphs, a batch copied there by each step, the loss read one step later."""

    unmeasured = 2  # a graph is made when a size comes a second time

    def __init__(self, config: mh.ModelConfig, device: str, micro_tokens: int | None = None) -> None:
        super().__init__(config, device, micro_tokens)
        world = DistributedContext(0, 1, torch.device(device))
        full = micro_tokens or mh.DataConfig().batch_tokens
        self.captured = CapturedStep(
            self.objective,
            self.optimizer,
            TRAIN,
            world,
            full_tokens=full,
            max_length=mh.DataConfig().max_length,
        )
        self.outcome: StepResult | None = None
        self.steps = 0

    def prepare(self, batch: Batch) -> list[data.Batch]:
        return list(host_batch(batch).split_micro_batches(self.micro_tokens))

    def step(self, batch: list[data.Batch]) -> None:
        self.steps += 1
        self.captured.zero_grad()
        for part in batch:
            self.captured.accumulate(part, 1 / tokens_of(batch), self.steps)
        outcome = self.captured.apply_update(RATE)
        if self.outcome:
            self.outcome.read()
        self.outcome = outcome


def host_batch(batch: Batch) -> data.Batch:
    source, inputs, labels = map(mh.Packed.of, (batch.sources, batch.inputs, batch.labels))
    return data.Batch(source, inputs, labels, np.zeros(0, np.int64), 0, 0)


def tokens_of(parts: list[data.Batch]) -> int:
    return sum(len(part.labels.tokens) for part in parts)


def ours(config: mh.ModelConfig, device: str, micro_tokens: int | None = None) -> Ours:
    captures = can_capture(mh.Config(model=config, train=TRAIN), torch.device(device))
    return (OursCaptured if captures else Ours)(config, device, micro_tokens)


class Peer:
    """A model of others', whose forward pass is the loss; fused Adam with the paper's numbers."""

    unmeasured = 1

    def __init__(self, kind: type, compiled: bool, config: mh.ModelConfig, device: str) -> None:
        self.device, self.multiple = device, 8 if compiled else 1
        self.model = kind(config, TRAIN).to(device).train()
        self.adam = torch.optim.Adam(
            self.model.parameters(),
            lr=RATE,
            betas=(TRAIN.beta1, TRAIN.beta2),
            eps=TRAIN.epsilon,
            fused=True,
        )
        if compiled:
            self.model.compile_it()

    @property
    def note(self) -> str:
        return f"padded to multiples of {self.multiple}"

    def prepare(self, batch: Batch) -> list[Tensor]:
        sides = batch.sources, batch.inputs, batch.labels
        return [padded(side, self.model.pad, self.multiple).to(self.device) for side in sides]

    def step(self, batch: list[Tensor]) -> None:
        self.adam.zero_grad(set_to_none=True)
        with low_precision(self.device):
            loss = self.model(*batch)
        loss.backward()
        self.adam.step()

    def choose_multiple(self, batches: list[Batch]) -> None:
        """The rounding that suits it better here."""
        seconds = {}
        for self.multiple in (1, 8):
            prepared = [self.prepare(batch) for batch in batches]
            once(self, prepared)
            seconds[self.multiple] = min(once(self, prepared) for _ in range(2))
        self.multiple = min(seconds, key=lambda multiple: seconds[multiple])


def low_precision(device: str) -> torch.autocast:
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")


SYSTEMS: dict[str, Callable[[mh.ModelConfig, str], System]] = {
    OURS: ours,
    "torch.nn.Transformer": lambda *rest: Peer(TorchTransformer, False, *rest),
    "torch.nn.Transformer, compiled": lambda *rest: Peer(TorchTransformer, True, *rest),
    "torch.nn.Transformer, its own dropout": lambda *rest: Peer(TorchTransformerAsItComes, False, *rest),
    "Hugging Face Marian": lambda *rest: Peer(Marian, False, *rest),
    "Hugging Face Marian, compiled": lambda *rest: Peer(Marian, True, *rest),
}


@dataclass
class Result:
    """A row of the table. Seconds are of one way through all batches: of each pass, its rounds."""

    system: str
    order: str
    steps: int
    tokens: int
    flops: int
    seconds: list[list[float]] = field(default_factory=list)
    peak_gib: float = math.nan
    note: str = ""
    fault: str = ""  # why there are no numbers

    @property
    def speeds(self) -> list[float]:
        """Real tokens a second, source + target, of each pass."""
        return [self.tokens / statistics.median(rounds) for rounds in self.seconds]

    @property
    def speed(self) -> float:
        return statistics.mean(self.speeds) if self.seconds else math.nan

    @property
    def step_ms(self) -> float:
        return 1000 * self.tokens / self.speed / self.steps

    @property
    def rate(self) -> float:
        """FLOP/s of real tokens' work."""
        return self.flops * self.speed / self.tokens


# ---- measuring


def measure(arguments: argparse.Namespace, config: mh.ModelConfig) -> list[Result]:
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
        in_turns(results, workload, arguments, config)
        return results
    made: dict[str, System] = {}
    for system in arguments.systems:
        rows = [row for row in results if row.system == system]
        shielded(rows, lambda rows=rows: first_pass(made, rows, workload, arguments, config))
    for system in reversed(list(made)):
        rows = [row for row in results if row.system == system]
        shielded(rows, lambda rows=rows, it=made[system]: second_pass(it, rows, workload, arguments))
    return results


def make_workload(arguments: argparse.Namespace, config: mh.ModelConfig) -> dict[str, list[Batch]]:
    made = sorted_and_random(arguments.batches, arguments.batch_tokens, config.vocab_size, arguments.seed)
    kinds = dict(zip(ORDERS, made, strict=True))
    return {order: kinds[order] for order in arguments.orders}


def shielded(rows: list[Result], work: Callable[[], None]) -> None:
    """A peer that fails must not cost the other rows; ours must not fail."""
    try:
        work()
    except Exception as fault:
        if rows[0].system == OURS:
            raise
        for row in rows:
            row.fault, row.seconds = f"{type(fault).__name__}: {str(fault)[:200]}", []
        report.say(f"{rows[0].system}: {rows[0].fault}")


def in_turns(
    results: list[Result],
    workload: dict[str, list[Batch]],
    arguments: argparse.Namespace,
    config: mh.ModelConfig,
) -> None:
    """On a CPU: batch by batch, so that a machine that does other things too is slow for all."""
    systems: dict[str, System] = {}
    for row in results:
        if row.system not in systems:
            torch.manual_seed(1)
            systems[row.system] = SYSTEMS[row.system](config, "cpu")
        system, batches = systems[row.system], workload[row.order]
        seen = batches if row.system.endswith("compiled") else batches[:1]
        once(system, [system.prepare(batch) for batch in seen])
        row.note = system.note
        report.say(f"{row.system}, {row.order}: ready")
    for turn in range(PASSES):
        sums = {(row.system, row.order): [0.0] * arguments.rounds for row in results}
        for number, round_ in itertools.product(range(arguments.batches), range(arguments.rounds)):
            for row in results[:: -1 if turn else 1]:
                system = systems[row.system]
                prepared = [system.prepare(workload[row.order][number])]
                sums[row.system, row.order][round_] += once(system, prepared)
        for row in results:
            row.seconds.append(sums[row.system, row.order])
            report.say(f"{row.system}, {row.order}: {row.speeds[-1]:,.0f} tokens/s")


def first_pass(
    made: dict[str, System],
    rows: list[Result],
    workload: dict[str, list[Batch]],
    arguments: argparse.Namespace,
    config: mh.ModelConfig,
) -> None:
    """The system is made, sees every shape once, and is measured; so is its memory.

    A captured step holds its memory from its capture on, so that the peak is counted from the beginning.
    """
    others = held_by_others()
    torch.manual_seed(1)
    system = SYSTEMS[rows[0].system](config, arguments.device)
    if isinstance(system, Peer) and not rows[0].system.endswith("compiled"):
        system.choose_multiple(workload[rows[0].order][::3])
    for row in rows:
        if isinstance(system, Peer):
            torch.cuda.reset_peak_memory_stats()
        measure_rounds(system, row, workload[row.order], arguments.rounds)
        row.peak_gib = (torch.cuda.max_memory_allocated() - others) / 2**30
        row.note = system.note
    made[rows[0].system] = system


def second_pass(
    system: System, rows: list[Result], workload: dict[str, list[Batch]], arguments: argparse.Namespace
) -> None:
    held_by_others()
    for row in rows:
        measure_rounds(system, row, workload[row.order], arguments.rounds)


def measure_rounds(system: System, row: Result, batches: list[Batch], rounds: int) -> None:
    prepared = [system.prepare(batch) for batch in batches]
    for _ in range(system.unmeasured):
        once(system, prepared)
    report.settle_memory()
    row.seconds.append([once(system, prepared) for _ in range(rounds)])
    report.say(f"{row.system}, {row.order}: {row.speeds[-1]:,.0f} tokens/s")


def once(system: System, prepared: list[Any]) -> float:
    """Seconds of one way through the batches."""

    def steps() -> None:
        for batch in prepared:
            system.step(batch)

    return report.seconds_of(steps, system.device)


def held_by_others() -> int:
    """Bytes of the GPU, once all is forgotten that can be; the peak is counted anew."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


# ---- memory on a CPU


def measure_memory(results: list[Result]) -> None:
    """Each row in a process of its own, and before this one grows: a child inherits its parent's peak."""
    for row in results:
        command = [sys.executable, __file__, *sys.argv[1:], "--peak-of", row.system, row.order]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{row.system}, {row.order}: {done.stderr.strip()[-300:]}")
        row.peak_gib = float(done.stdout.split()[-1])
        report.say(f"{row.system}, {row.order}: {row.peak_gib:.2f} GiB")


def peak_gib(arguments: argparse.Namespace, config: mh.ModelConfig, name: str, order: str) -> float:
    """Of this whole process, after two steps on the largest batch."""
    batches = make_workload(arguments, config)[order]
    system = SYSTEMS[name](config, "cpu")
    largest = max(batches, key=lambda batch: len(batch.sources) * max(map(len, batch.sources)))
    for _ in range(2):
        system.step(system.prepare(largest))
    unit = 1 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


# ---- telling


def against(results: list[Result], row: Result) -> tuple[float, float] | None:
    """How much faster ours is on the same batches, and its share of the memory; None: ours is not there."""
    ours = next((one for one in results if (one.system, one.order) == (OURS, row.order)), None)
    if ours is None or row.fault:
        return None
    return ours.speed / row.speed, ours.peak_gib / row.peak_gib


def told(row: Result, results: list[Result], ceiling: float) -> tuple[str, ...]:
    if row.fault:
        return row.system, row.order, *[""] * 7, row.fault[:40]
    compared = against(results, row)
    return (
        row.system,
        row.order,
        f"{row.speed:,.0f}",
        f"{row.step_ms:,.1f}",
        f"{row.rate / ceiling:.1%}",
        f"{row.rate / 1e12:.3g}",
        f"{row.peak_gib:.2f}",
        report.told_spread(row.speeds),
        *(f"{times:.2f} x" for times in compared or ()),
    )


COLUMNS = (
    *("system", "batches", "tokens/s", "ms/step", "of ceiling", "TFLOP/s", "peak GiB", "spread"),
    *("ours is faster by", "ours needs memory"),
)


def as_json(row: Result, results: list[Result], ceiling: float) -> dict[str, Any]:
    """What is not known is None."""
    found = {key: value for key, value in asdict(row).items() if key != "peak_gib"}
    if row.fault:
        return found
    faster, memory = against(results, row) or (None, None)
    return found | {
        "tokens_per_second": row.speed,
        "ms_per_step": row.step_ms,
        "share_of_ceiling": row.rate / ceiling,
        "flops_per_second": row.rate,
        "peak_gib": row.peak_gib,
        "spread": report.spread(row.speeds),
        "ours_is_faster_by": faster,
        "ours_needs_memory": memory,
    }


def show_profile(arguments: argparse.Namespace, config: mh.ModelConfig, title: str) -> None:
    """Of the middle batch, by the first of the systems asked for."""
    name = arguments.systems[0]
    batches = make_workload(arguments, config)[arguments.orders[0]]
    system = SYSTEMS[name](config, arguments.device)
    prepared = system.prepare(batches[len(batches) // 2])
    for _ in range(3):
        once(system, [prepared])
    found = kernels.profiled(lambda: system.step(prepared), arguments.device)
    about = report.about(arguments.device)
    kernels.print_profile(found, f"a step of {name}: {title}; {about}")
    report.write_json(arguments.json, title, about, system=name, profile=found.to_dict())


def parse_arguments() -> argparse.Namespace:
    parser = report.Parser(__doc__)
    report.add_preset(parser, "base")
    parser.add_argument("--vocabulary", type=int, default=mh.presets.BASE.vocab_size)
    parser.add_argument(
        "--batch-tokens", type=report.positive, help="target tokens a batch (default: 25,000; on a CPU 5,000)"
    )
    parser.add_argument("--batches", type=report.positive, help="different ones (default: 10; on a CPU 2)")
    parser.add_argument(
        "--rounds", type=report.positive, help="ways through them, twice (default: 2; on a CPU 1)"
    )
    parser.add_argument("--order", default="sorted", choices=[*ORDERS, "both"])
    parser.add_argument(
        "--only", action="append", metavar="SYSTEM", help="those with this in their name; may repeat"
    )
    parser.add_argument(
        "--micro-tokens", type=report.positive, help="of a side, that ours takes at once (default: all)"
    )
    parser.add_argument("--compiled", action="store_true", help="compiled peers on a CPU too")
    parser.add_argument(
        "--profile", action="store_true", help="instead: one step, kernel by kernel, of ours or of --only"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    on_cpu = arguments.device == "cpu"
    arguments.batch_tokens = arguments.batch_tokens or (5_000 if on_cpu else mh.DataConfig().batch_tokens)
    arguments.batches = arguments.batches or (2 if on_cpu else 10)
    arguments.rounds = arguments.rounds or (1 if on_cpu else 2)
    arguments.orders = ORDERS if arguments.order == "both" else (arguments.order,)
    arguments.systems = report.only(there(arguments), arguments.only)
    return arguments


def there(arguments: argparse.Namespace) -> list[str]:
    """Those that this machine has; what takes long or tells little only where it was asked for."""
    left_out = [] if report.version_of("transformers") else ["Marian"]
    if arguments.device == "cpu" and not arguments.compiled:
        left_out.append("compiled")
    if arguments.device == "cuda" and not arguments.only:
        left_out.append("its own dropout")
    return [name for name in SYSTEMS if not any(word in name for word in left_out)]


def main() -> None:
    arguments = parse_arguments()
    config = replace(mh.presets.get_preset(arguments.preset).model, vocab_size=arguments.vocabulary)
    if arguments.peak_of:
        print(peak_gib(arguments, config, *arguments.peak_of))
        return
    title = (
        f"{arguments.preset}, vocabulary {arguments.vocabulary:,}, "
        f"{arguments.batches} batches of about {arguments.batch_tokens:,} target tokens"
    )
    if arguments.micro_tokens:
        SYSTEMS[OURS] = partial(ours, micro_tokens=arguments.micro_tokens)
        title += f", ours in parts of {arguments.micro_tokens:,}"
    if arguments.profile:
        show_profile(arguments, config, title)
        return
    results = measure(arguments, config)
    about = report.about(arguments.device)
    rows = [told(row, results, about.ceiling) for row in results]
    report.print_table(f"{title}; {about}", COLUMNS, rows)
    report.write_json(
        arguments.json, title, about, rows=[as_json(row, results, about.ceiling) for row in results]
    )


if __name__ == "__main__":
    report.run(main)
