"""The results of bench/train_step.py: rows, comparisons with ours, tables and JSON."""

import json
import math
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import report
from train_systems import OURS


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
    def family(self) -> str:
        """The name without what distinguishes variants of one system."""
        return self.system.split(",")[0]

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


def find_strongest(results: list[Result]) -> list[Result]:
    """Return the fastest row of each family of peers, fastest first."""
    peers = [row for row in results if row.system != OURS and row.seconds]
    families = {row.family: row for row in sorted(peers, key=lambda row: row.speed)}
    return sorted(families.values(), key=lambda row: -row.speed)


def format_strongest(results: list[Result]) -> list[str]:
    """Return a line for each family of peers: its strongest system, and how much faster ours is."""
    lines = []
    for row in find_strongest(results):
        ratios = compare_with_ours(results, row)
        ours = f"; ours is {ratios[0]:.2f} x as fast" if ratios else ""
        lines.append(f"strongest {row.family}: {row.system}, {row.order}, {row.speed:,.0f} tokens/s{ours}")
    return lines


def write_results(
    path: Path | None, title: str, environment: report.Environment, results: list[Result]
) -> None:
    """Write the rows that have been measured so far."""
    done = [row for row in results if row.seconds or row.error]
    strongest = next(iter(find_strongest(done)), None)
    ratios = compare_with_ours(done, strongest) if strongest else None
    report.write_json(
        path,
        title,
        environment,
        rows=[to_json(row, done, environment.matmul_peak) for row in done],
        strongest_peer=strongest.system if strongest else None,
        speedup_over_strongest=ratios[0] if ratios else None,
    )


# ---- several runs

SERIES_COLUMNS = ("system", "batches", "tokens/s", "spread between runs", "speedup of ours")


def format_series(runs: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for each system: its speed in each run, the spread, and the mean speedup of ours."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        for row in run["rows"]:
            rows.setdefault((row["system"], row["order"]), []).append(row)
    table: list[tuple[str, ...]] = []
    for (system, order), repeated in rows.items():
        speeds = [row["tokens_per_second"] for row in repeated if not row["error"]]
        speedups = [row["speedup_of_ours"] for row in repeated if row.get("speedup_of_ours")]
        speedup = f"{statistics.mean(speedups):.2f} x" if speedups else ""
        text = ", ".join(f"{speed:,.0f}" for speed in speeds)
        table.append((system, order, text, report.format_spread(speeds), speedup))
    return table


def write_series(path: Path | None, series: dict[str, list[dict[str, Any]]]) -> None:
    """Write the results of all runs so far, by preset."""
    if path:
        path.write_text(json.dumps(series, indent=1, ensure_ascii=False) + "\n")
