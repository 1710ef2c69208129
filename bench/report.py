"""What a benchmark tells beside its rows: machine, matmul ceiling, versions and day; tables and JSON."""

import argparse
import gc
import json
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

import torch
from rich.console import Console
from rich.table import Table

from manyheads.cuda.device import resolve_device
from manyheads.errors import EXIT_INTERRUPTED, ManyheadsError, RequestError

# Of large matrix products, rows x inner x columns: which of them is fastest differs between devices.
LARGE = {"cuda": [(8192, 8192, 8192), (16384, 8192, 8192), (8192, 8192, 16384)], "cpu": [(2048, 2048, 2048)]}
PRODUCTS = {"cuda": (5, 30), "cpu": (1, 3)}  # unmeasured, measured


@dataclass(frozen=True)
class About:
    """Where and when a table was measured."""

    machine: str
    ceiling: float  # FLOP/s of the best large matrix product
    ceiling_dtype: str
    versions: dict[str, str]
    date: str = field(default_factory=lambda: date.today().isoformat())
    command: list[str] = field(default_factory=lambda: sys.argv)

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        ceiling = f"matmul ceiling {self.ceiling / 1e12:.4g} TFLOP/s ({self.ceiling_dtype})"
        return f"{self.machine}, {ceiling}; {versions}; {self.date}"


def about(device: str) -> About:
    """Of this machine; the ceiling is measured now."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    names = ("manyheads", "torch", "triton", "transformers", "ctranslate2")
    found = {name: number for name in names if (number := version_of(name))}
    return About(machine(device), matmul_ceiling(device, dtype), str(dtype).removeprefix("torch."), found)


def machine(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{(names or [platform.processor()])[0]}, {torch.get_num_threads()} threads"


def version_of(package: str) -> str | None:
    """None: the machine has it not. Ours may run from its folder, without being installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        import manyheads

        return manyheads.__version__ if package == "manyheads" else None


def matmul_ceiling(device: str, dtype: torch.dtype) -> float:
    """FLOP/s of the fastest of some large products of random matrices: zeros would flatter."""
    best = 0.0
    for rows, inner, columns in LARGE[device]:
        left = torch.randn(rows, inner, device=device, dtype=dtype)
        right = torch.randn(inner, columns, device=device, dtype=dtype)
        out = torch.empty(rows, columns, device=device, dtype=dtype)
        unmeasured, measured = PRODUCTS[device]
        for _ in range(unmeasured):
            torch.mm(left, right, out=out)
        multiply = repeated(lambda a=left, b=right, c=out: torch.mm(a, b, out=c), measured)
        best = max(best, 2 * rows * inner * columns * measured / seconds_of(multiply, device))
    return best


def repeated(work: Callable[[], Any], times: int) -> Callable[[], None]:
    def many() -> None:
        for _ in range(times):
            work()

    return many


def seconds_of(work: Callable[[], Any], device: str) -> float:
    """Until the device has done all of it."""
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


def settle_memory() -> None:
    """What exists is not searched for garbage again, which would take parts of a second now and then."""
    gc.collect()
    gc.freeze()


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def spread(values: Sequence[float]) -> float | None:
    """How far measurements of the same lie apart, as a share of their mean; None: there is but one."""
    return (max(values) - min(values)) * len(values) / sum(values) if len(values) > 1 else None


def told_spread(values: Sequence[float]) -> str:
    found = spread(values)
    return "" if found is None else f"{found:.1%}"


def say(text: str) -> None:
    """On the way: to the screen and not into the table."""
    print(f"{time.perf_counter() - BEGAN:6.1f} s  {text}", file=sys.stderr, flush=True)


BEGAN = time.perf_counter()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    print(f"\n{title}")
    Console(width=150).print(table)


def write_json(path: Path | None, title: str, told: About, **parts: Any) -> None:
    """A title, where it was measured, and the rows; nothing where there is no path."""
    if path:
        whole = {"title": title, **asdict(told), **parts}
        path.write_text(json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


# ---- arguments that several benchmarks have


def run(main: Callable[[], None]) -> None:
    """What a benchmark does; wrong input is told in one line."""
    name = Path(sys.argv[0]).name
    try:
        main()
    except ManyheadsError as fault:
        print(f"{name}: {fault}", file=sys.stderr)
        sys.exit(fault.exit_code)
    except KeyboardInterrupt:
        print(f"{name}: stopped", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


class Parser(argparse.ArgumentParser):
    """Of what every benchmark is told."""

    def __init__(self, description: str | None) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument(
            "--device", type=resolve_device, default=resolve_device(None), choices=["cpu", "cuda"]
        )
        self.add_argument("--json", type=can_be_written, help="write everything there as well")

    def error(self, message: str) -> NoReturn:
        """One line; the usage is --help's."""
        self.exit(RequestError.exit_code, f"{self.prog}: {message}\n")


def can_be_written(text: str) -> Path:
    """Known before the work is done and not after it."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        why = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise argparse.ArgumentTypeError(f"{path} cannot be written: {why}")
    return path


def add_preset(parser: argparse.ArgumentParser, default: str) -> None:
    sizes = ["base", "big", "small", "tiny"]
    parser.add_argument(
        "--preset", default=default, choices=sizes, help="the model's size (default: %(default)s)"
    )


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}, but must be at least 1")
    return number


def only(names: Iterable[str], wanted: list[str] | None) -> list[str]:
    """The names that are wanted, whole or by a word in them; all of them where none is wanted."""
    lower = {name: name.lower() for name in names}
    words = [one.lower() for one in wanted or []]
    chosen = [
        name
        for name, low in lower.items()
        if not words or any(low == word if word in lower.values() else word in low for word in words)
    ]
    if not chosen:
        raise RequestError(f"--only {' '.join(words)}: none has that in its name among {'; '.join(lower)}")
    return chosen
