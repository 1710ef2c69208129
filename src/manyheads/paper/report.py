"""What every command of this room writes: tables in three forms, figures, and where they come from."""

import csv
import io
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch

from manyheads.errors import RequestError

MAX_TABLE_WIDTH = 10_000  # characters, of a table
Cell = str | int | float | None  # None: the paper, or we, have no number there


@dataclass(frozen=True)
class ReportTable:
    """Columns and rows, for the terminal, Markdown and CSV alike."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} values in a table of {len(self.columns)} columns")

    def to_markdown(self) -> str:
        head = [f"| {' | '.join(self.columns)} |", f"|{'---|' * len(self.columns)}"]
        rows = [
            f"| {' | '.join(format_value(value).replace('|', '&#124;') for value in row)} |"
            for row in self.rows
        ]
        notes = [f"\n{note}" for note in self.notes]
        return "\n".join([f"### {self.title}\n", *head, *rows, *notes]) + "\n"

    def to_csv(self) -> str:
        """Numbers as they are, unrounded."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if value is None else value for value in row] for row in self.rows)
        return out.getvalue()

    def show(self) -> None:
        """On the terminal, numbers to the right. No digit is cut: lines that are too long run over."""
        from rich import box, table
        from rich.console import Console

        shown = table.Table(title=self.title, box=box.SIMPLE, title_justify="left")
        for number, name in enumerate(self.columns):
            numeric = all(not isinstance(row[number], str) for row in self.rows)
            shown.add_column(name, justify="right" if numeric else "left")
        for row in self.rows:
            shown.add_row(*map(format_value, row))
        Console(width=MAX_TABLE_WIDTH, highlight=False, markup=False).print(shown)
        console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
        for note in self.notes:
            console.print(note)


def format_value(value: Cell) -> str:
    """Four figures of what is measured; whole numbers with their thousands apart."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3e}" if value and not 1e-3 <= abs(value) < 1e6 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value


def format_provenance(command: str, device: str = "cpu") -> str:
    """What every report carries: the command, as a block that can be copied, and by what it was run."""
    return format_header(command, describe_machine(device))


def format_header(command: str, machine: str) -> str:
    return f"    {command}\n\n{describe_environment(machine)}."


def describe_environment(machine: str) -> str:
    return f"{machine}; torch {torch.__version__}; {date.today().isoformat()}"


def describe_machine(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    threads = torch.get_num_threads()
    return f"{(names or [platform.processor()])[0]}, {threads} thread{'' if threads == 1 else 's'}"


def write_report(folder: Path, name: str, markdown: str, tables: dict[str, ReportTable]) -> list[Path]:
    """`name`.md, and a CSV of each table. What was there under these names is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {folder / f"{name}.md": markdown}
    pages |= {folder / f"{file}.csv": table.to_csv() for file, table in tables.items()}
    for place, text in pages.items():
        aside = place.with_name(f".{place.name}.aside")
        aside.write_text(text, encoding="utf-8")
        aside.replace(place)  # complete or as it was
    return list(pages)


def import_pyplot() -> Any:
    """matplotlib's, which draws without a screen."""
    try:
        import matplotlib
    except ImportError:
        raise RequestError("figures need matplotlib: pip install 'manyheads[figures]'") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "manyheads"  # the same figure is the same file
    from matplotlib import pyplot as found

    return found


def save_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """As SVG for the page and as PNG for the eye."""
    folder.mkdir(parents=True, exist_ok=True)
    places = [folder / f"{name}.svg", folder / f"{name}.png"]
    figure.savefig(places[0], metadata={"Date": None})
    figure.savefig(places[1], dpi=150)
    import_pyplot().close(figure)
    return places
