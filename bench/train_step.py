"""A training step, forward + loss + backward + Adam: ours against torch.nn.Transformer as commonly written.

    python bench/train_step.py                  on this machine's GPU, or its CPU at a size that it can take
    python bench/train_step.py --json result.json

All rows come from one run on the same sentences, the systems taking turns batch by batch, so that a noisy
machine is noisy for all. `sorted` batches hold sentences of like length, `random` ones the same sentences as
they come. Tokens are real ones, source + target. Memory is the peak of a process of its own for each row.

torch.nn.Transformer drops attention weights and feed-forward activations too, which the paper does not and
which costs time; the row "dropout as ours" has that switched off, so that both do the same arithmetic.
"""

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # batches differ in shape

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

import manyheads as mh
from manyheads.model.positions import sinusoids
from manyheads.train.loss import chunked_loss
from workload import Batch, sorted_and_random, training_flops

SMOOTHING = mh.TrainConfig().label_smoothing
PAD = 0  # the peer's; no sentence of the workload holds it
KINDS = ("sorted", "random")  # batches of like lengths, and as they come


class Ours(nn.Module):
    """Manyheads as it is."""

    def __init__(self, config: mh.ModelConfig):
        super().__init__()
        self.model = mh.Transformer(config)

    @staticmethod
    def prepare(batch: Batch, device: str) -> tuple[mh.Packed, mh.Packed, Tensor]:
        source, target, labels = map(mh.Packed.of, (batch.sources, batch.inputs, batch.labels))
        return source.to(device), target.to(device), labels.tokens.to(device)

    def forward(self, source: mh.Packed, target: mh.Packed, labels: Tensor) -> Tensor:
        hidden = self.model.hidden(source, target)
        loss = chunked_loss(hidden, self.model.output, labels, mh.TrainConfig())
        return loss.total / loss.tokens


class TorchTransformer(nn.Module):
    """torch.nn.Transformer in the common way: padded batches, masks, cross-entropy over all logits."""

    def __init__(self, config: mh.ModelConfig):
        super().__init__()
        self.d_model = config.d_model
        self.embedding = nn.Embedding(config.vocabulary, config.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.transformer = nn.Transformer(
            config.d_model,
            config.heads,
            config.layers,
            config.layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        self.output = nn.Linear(config.d_model, config.vocabulary, bias=False)
        self.output.weight = self.embedding.weight
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("positions", sinusoids(torch.arange(128), config.d_model).float())

    def embed(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens) * math.sqrt(self.d_model)
        return self.dropout(embedded + self.positions[: tokens.shape[1]])

    @staticmethod
    def prepare(batch: Batch, device: str) -> tuple[Tensor, ...]:
        return tuple(pad(texts).to(device) for texts in (batch.sources, batch.inputs, batch.labels))

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=source.device)
        out = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=mask.isinf(),
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        logits = self.output(out)
        return F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
        )


class TorchTransformerWithOurDropout(TorchTransformer):
    """The same, with dropout only where the paper has it."""

    def __init__(self, config: mh.ModelConfig):
        super().__init__(config)
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Identity()  # the one inside the feed-forward layer


def pad(sentences: list[list[int]]) -> Tensor:
    tensors = [torch.tensor(sentence) for sentence in sentences]
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)


SYSTEMS: dict[str, type[Ours] | type[TorchTransformer]] = {
    "manyheads": Ours,
    "torch.nn.Transformer": TorchTransformer,
    "torch.nn.Transformer, dropout as ours": TorchTransformerWithOurDropout,
}
ROWS = [
    *((system, "sorted") for system in SYSTEMS),
    *((system, "random") for system in ("manyheads", "torch.nn.Transformer")),
]


@dataclass
class Result:
    """A row of the table."""

    system: str
    batches: str
    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    flops: int = 0
    peak_gib: float = math.nan

    def count(self, batch: Batch, seconds: float, flops: int) -> None:
        self.steps += 1
        self.seconds += seconds
        self.tokens += batch.tokens
        self.flops += flops

    @property
    def speed(self) -> float:
        """Real tokens a second, source + target."""
        return self.tokens / self.seconds


class Trainer:
    """One system, and a step of it: Adam with the paper's numbers, bf16 products on a GPU."""

    def __init__(self, system: str, config: mh.ModelConfig, device: str):
        torch.manual_seed(1)
        self.device = device
        self.model = SYSTEMS[system](config).to(device).train()
        train = mh.TrainConfig()
        self.adam = torch.optim.Adam(
            self.model.parameters(),
            lr=1e-4,
            betas=(train.beta1, train.beta2),
            eps=train.epsilon,
            fused=True,
        )

    def step(self, batch: Batch) -> float:
        """Seconds that it took, once the batch lay on the device."""
        tensors = self.model.prepare(batch, self.device)
        self.synchronise()
        began = time.perf_counter()
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda"):
            loss = self.model(*tensors)
        loss.backward()
        self.adam.step()
        self.adam.zero_grad()
        self.synchronise()
        return time.perf_counter() - began

    def synchronise(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def measure_speed(
    arguments: argparse.Namespace, config: mh.ModelConfig, results: list[Result], progress: Progress
) -> None:
    """Every system on every batch, in turns. Before that, unmeasured: on a GPU all of it, else one batch."""
    kinds = make_workload(arguments, config)
    trainers = {system: Trainer(system, config, arguments.device) for system in SYSTEMS}
    warm_up = list(range(arguments.batches if arguments.device == "cuda" else 1))
    numbers = [*warm_up, *range(arguments.batches)]
    for turn, number in enumerate(progress.track(numbers, description="training steps")):
        for result in results:
            batch = kinds[result.batches][number]
            seconds = trainers[result.system].step(batch)
            if turn >= len(warm_up):
                result.count(batch, seconds, training_flops(config, batch))


def make_workload(arguments: argparse.Namespace, config: mh.ModelConfig) -> dict[str, list[Batch]]:
    made = sorted_and_random(arguments.batches, arguments.batch_tokens, config.vocabulary, arguments.seed)
    return dict(zip(KINDS, made, strict=True))


def peak_gib(arguments: argparse.Namespace, config: mh.ModelConfig, system: str, kind: str) -> float:
    """The peak of a step on the largest batch; on a CPU that of the whole process."""
    batches = make_workload(arguments, config)[kind]
    trainer = Trainer(system, config, arguments.device)
    largest = max(batches, key=lambda batch: len(batch.sources) * max(map(len, batch.sources)))
    for _ in range(2):
        trainer.step(largest)
    if arguments.device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    unit = 1 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def measure_memory(arguments: argparse.Namespace, results: list[Result], progress: Progress) -> None:
    """Each row in a process of its own, and before this one grows: a child inherits its parent's peak."""
    for result in progress.track(results, description="peak memory"):
        row = ["--peak-of", result.system, result.batches]
        command = [sys.executable, __file__, *sys.argv[1:], *row]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{result.system}, {result.batches} batches: {done.stderr.strip()[-300:]}")
        result.peak_gib = float(done.stdout)


def machine(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{(names or [platform.processor()])[0]}, {torch.get_num_threads()} threads"


def ours_of_the_same_kind(results: list[Result], row: Result) -> Result:
    return next(result for result in results if result.batches == row.batches)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}, but must be at least 1")
    return number


def print_table(results: list[Result], title: str) -> None:
    table = Table(
        *("system", "batches", "tokens/s", "ms/step", "TFLOP/s", "peak GiB"),
        *("ours is faster by", "ours needs memory"),
        title=title,
    )
    for row in results:
        ours = ours_of_the_same_kind(results, row)
        table.add_row(
            row.system,
            row.batches,
            f"{row.speed:,.0f}",
            f"{1000 * row.seconds / row.steps:,.1f}",
            f"{row.flops / row.seconds / 1e12:.3g}",
            f"{row.peak_gib:.2f}",
            f"{ours.speed / row.speed:.2f} x",
            f"{ours.peak_gib / row.peak_gib:.2f} x",
        )
    Console(width=130).print(table)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    there = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=there, choices=["cpu", "cuda"])
    parser.add_argument("--preset", default="base", choices=["base", "big", "small", "tiny"])
    parser.add_argument("--vocabulary", type=int, default=mh.presets.BASE.vocabulary)
    parser.add_argument(
        "--batch-tokens", type=positive, help="target tokens a batch (default: 25,000; on a CPU 5,000)"
    )
    parser.add_argument("--batches", type=positive, help="measured, of each kind (default: 20; on a CPU 3)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the rows there as well")
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    on_cpu = arguments.device == "cpu"
    arguments.batch_tokens = arguments.batch_tokens or (5_000 if on_cpu else mh.DataConfig().batch_tokens)
    arguments.batches = arguments.batches or (3 if on_cpu else 20)
    return arguments


def write_json(results: list[Result], title: str, path: Path) -> None:
    rows = [{**asdict(row), "tokens_per_second": row.speed} for row in results]
    for row, result in zip(rows, results, strict=True):
        ours = ours_of_the_same_kind(results, result)
        row["ours_is_faster_by"] = ours.speed / result.speed
        row["ours_needs_memory"] = ours.peak_gib / result.peak_gib
    path.write_text(json.dumps({"title": title, "rows": rows}, indent=1, allow_nan=False) + "\n")


def main() -> None:
    arguments = parse_arguments()
    config = replace(mh.presets.preset(arguments.preset).model, vocabulary=arguments.vocabulary)
    if arguments.peak_of:
        print(peak_gib(arguments, config, *arguments.peak_of))
        return
    results = [Result(system, kind) for system, kind in ROWS]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        measure_memory(arguments, results, progress)
        measure_speed(arguments, config, results, progress)
    title = (
        f"{arguments.preset}, vocabulary {arguments.vocabulary:,}, about {arguments.batch_tokens:,} target "
        f"tokens a batch; {machine(arguments.device)}, torch {torch.__version__}"
    )
    print_table(results, title)
    if arguments.json:
        write_json(results, title, arguments.json)


if __name__ == "__main__":
    main()
