"""Reports of the paper commands: tables, Markdown and CSV files, figures, and the environment."""

import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch

from manyheads.atomic_io import write_text_atomically
from manyheads.cuda.device import describe_machine
from manyheads.plot_style import import_pyplot

MAX_TABLE_WIDTH = 10_000  # characters
Cell = str | int | float | None  # None: no number is known


@dataclass(frozen=True)
class ReportTable:
    """Columns and rows that can be printed or written as Markdown and CSV."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"a row has {len(row)} values, but the table has {len(self.columns)} columns"
                )

    def to_markdown(self) -> str:
        head = [f"| {' | '.join(self.columns)} |", f"|{'---|' * len(self.columns)}"]
        rows = [
            f"| {' | '.join(format_value(value).replace('|', '&#124;') for value in row)} |"
            for row in self.rows
        ]
        notes = [f"\n{note}" for note in self.notes]
        return "\n".join([f"### {self.title}\n", *head, *rows, *notes]) + "\n"

    def to_csv(self) -> str:
        """Return the table as CSV, numbers unrounded."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if value is None else value for value in row] for row in self.rows)
        return out.getvalue()

    def show(self) -> None:
        """Print the table, numbers right-aligned. Long lines wrap; no digit is cut off."""
        from rich import box, table
        from rich.console import Console

        table_view = table.Table(title=self.title, box=box.SIMPLE, title_justify="left")
        for index, name in enumerate(self.columns):
            numeric = all(not isinstance(row[index], str) for row in self.rows)
            table_view.add_column(name, justify="right" if numeric else "left")
        for row in self.rows:
            table_view.add_row(*map(format_value, row))
        Console(width=MAX_TABLE_WIDTH, highlight=False, markup=False).print(table_view)
        console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
        for note in self.notes:
            console.print(note)


def format_value(value: Cell) -> str:
    """Format a float with four significant digits and an integer with thousands separators."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3e}" if value and not 1e-3 <= abs(value) < 1e6 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value


def format_provenance(command: str, device: str = "cpu") -> str:
    """Return the command as a code block and the environment in which it ran."""
    return format_header(command, describe_machine(device))


def format_header(command: str, machine: str) -> str:
    return f"    {command}\n\n{describe_environment(machine)}."


def describe_environment(machine: str) -> str:
    return f"{machine}; torch {torch.__version__}; {date.today().isoformat()}"


def write_report(folder: Path, name: str, markdown: str, tables: dict[str, ReportTable]) -> list[Path]:
    """Write `name`.md and one CSV file per table. Existing files of these names are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {folder / f"{name}.md": markdown}
    texts |= {folder / f"{stem}.csv": table.to_csv() for stem, table in tables.items()}
    for path, text in texts.items():
        write_text_atomically(path, text)
    return list(texts)


def save_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """Save a figure as SVG and PNG, and close it."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    figure.savefig(paths[0], metadata={"Date": None})
    figure.savefig(paths[1], dpi=150)
    import_pyplot().close(figure)
    return paths
