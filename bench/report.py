"""Shared parts of the benchmarks: environment, timing, tables, JSON and command-line arguments."""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

import torch
from rich.console import Console
from rich.table import Table

import manyheads as mh
from manyheads.cuda.device import describe_machine, resolve_device
from manyheads.errors import EXIT_INTERRUPTED, ManyheadsError, RequestError

PRESETS = ("base", "big", "small", "tiny")
# Large matrix products, rows x inner x columns. The fastest one differs between devices.
MATMUL_SHAPES = {
    "cuda": [(8192, 8192, 8192), (16384, 8192, 8192), (8192, 8192, 16384)],
    "cpu": [(2048, 2048, 2048)],
}
MATMUL_REPETITIONS = {"cuda": (5, 30), "cpu": (1, 3)}  # warm-up, measured


@dataclass(frozen=True)
class Environment:
    """The machine, versions and date of a measurement."""

    machine: str
    matmul_peak: float  # FLOP/s of the fastest large matrix product
    matmul_dtype: str
    versions: dict[str, str]
    date: str = field(default_factory=lambda: date.today().isoformat())
    command: list[str] = field(default_factory=lambda: sys.argv)

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        peak = f"matmul peak {self.matmul_peak / 1e12:.4g} TFLOP/s ({self.matmul_dtype})"
        return f"{self.machine}, {peak}; {versions}; {self.date}"


def measure_environment(device: str) -> Environment:
    """Describe this machine and measure its matmul peak."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    names = ("manyheads", "torch", "triton", "transformers", "jax", "ctranslate2")
    versions = {name: number for name in names if (number := get_version(name))}
    peak = measure_matmul_peak(device, dtype)
    return Environment(describe_machine(device), peak, str(dtype).removeprefix("torch."), versions)


def get_version(package: str) -> str | None:
    """Return the version of a package, or None. Manyheads may run without being installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return mh.__version__ if package == "manyheads" else None


def measure_matmul_peak(device: str, dtype: torch.dtype) -> float:
    """Return the FLOP/s of the fastest large product of random matrices; zeros would be faster."""
    best = 0.0
    for rows, inner, columns in MATMUL_SHAPES[device]:
        left = torch.randn(rows, inner, device=device, dtype=dtype)
        right = torch.randn(inner, columns, device=device, dtype=dtype)
        out = torch.empty(rows, columns, device=device, dtype=dtype)
        warm_up, measured = MATMUL_REPETITIONS[device]
        for _ in range(warm_up):
            torch.mm(left, right, out=out)
        multiply = repeat(partial(torch.mm, left, right, out=out), measured)
        best = max(best, 2 * rows * inner * columns * measured / time_call(multiply, device))
    return best


def repeat(call: Callable[[], Any], count: int) -> Callable[[], None]:
    def call_repeatedly() -> None:
        for _ in range(count):
            call()

    return call_repeatedly


def time_call(call: Callable[[], Any], device: str) -> float:
    """Return the seconds of a call, until the device has finished."""
    synchronize(device)
    start = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - start


def freeze_gc() -> None:
    """Exclude existing objects from garbage collection, which would take time during a measurement."""
    gc.collect()
    gc.freeze()


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def compute_spread(values: Sequence[float]) -> float | None:
    """Return (max - min) / mean of repeated measurements, or None if there is only one."""
    return (max(values) - min(values)) * len(values) / sum(values) if len(values) > 1 else None


def format_spread(values: Sequence[float]) -> str:
    spread = compute_spread(values)
    return "" if spread is None else f"{spread:.1%}"


def log(text: str) -> None:
    """Print progress with the elapsed time to stderr."""
    print(f"{time.perf_counter() - START:6.1f} s  {text}", file=sys.stderr, flush=True)


START = time.perf_counter()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    print(f"\n{title}")
    Console(width=150).print(table)


def write_json(path: Path | None, title: str, environment: Environment, **parts: Any) -> None:
    """Write the title, the environment and the given parts as JSON, if a path is given."""
    if path:
        content = {"title": title, **asdict(environment), **parts}
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


# ---- command line


def run_main(main: Callable[[], None]) -> None:
    """Run a benchmark. Errors of the user are printed in one line."""
    name = Path(sys.argv[0]).name
    try:
        main()
    except ManyheadsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print(f"{name}: stopped", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


class BenchmarkParser(argparse.ArgumentParser):
    """The arguments of every benchmark."""

    def __init__(self, description: str | None) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument(
            "--device", type=resolve_device, default=resolve_device(None), choices=["cpu", "cuda"]
        )
        self.add_argument("--json", type=writable_path, help="write the results to this file")

    def error(self, message: str) -> NoReturn:
        """Print one line, without the usage."""
        self.exit(RequestError.exit_code, f"{self.prog}: {message}\n")


def writable_path(text: str) -> Path:
    """Check before the work that the file can be written."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        reason = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise argparse.ArgumentTypeError(f"{path} cannot be written: {reason}")
    return path


def add_preset_argument(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--preset", default=default, choices=PRESETS, help="size of the model (default: %(default)s)"
    )


def add_vocab_size_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vocab-size",
        "--vocabulary",
        type=positive_int,
        default=mh.presets.BASE.vocab_size,
        help="of the model (default: %(default)s)",
    )


def add_only_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", action="append", metavar="SYSTEM", help="systems with this in their name; can be repeated"
    )


def get_transformer(arguments: argparse.Namespace) -> mh.TransformerConfig:
    """Return the model of --preset with --vocab-size."""
    model = mh.presets.get_preset(arguments.preset).model
    assert isinstance(model, mh.TransformerConfig)
    return replace(model, vocab_size=arguments.vocab_size)


def positive_int(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}, but must be at least 1")
    return number


def select_systems(names: Iterable[str], requested: list[str] | None) -> list[str]:
    """Return the names that are equal to a requested word, or contain it; all names if none is requested."""
    lowered = {name: name.lower() for name in names}
    words = [word.lower() for word in requested or []]
    chosen = [
        name
        for name, lowered_name in lowered.items()
        if not words
        or any(lowered_name == word if word in lowered.values() else word in lowered_name for word in words)
    ]
    if not chosen:
        raise RequestError(
            f"--only {' '.join(words)}: no system has this in its name; known: {'; '.join(lowered)}"
        )
    return chosen
