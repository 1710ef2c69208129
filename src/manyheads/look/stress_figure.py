"""The picture of the stress tests: quality by case, and the risk at each coverage."""

from pathlib import Path
from typing import Any

from manyheads.errors import RequestError
from manyheads.evaluate.stress_results import Calibration, StressReport
from manyheads.look.fonts import fonts_covering
from manyheads.look.plots import FORMATS, reproducible_metadata, set_tight_layout
from manyheads.plot_style import SERIES_COLORS, import_pyplot


def check_picture(path: Path) -> None:
    """Refuse a file that could not be written at the end: its format, or matplotlib is missing."""
    if path.suffix[1:] not in FORMATS:
        raise RequestError(f"{path}: unknown image format {path.suffix!r}; use one of .{', .'.join(FORMATS)}")
    import_pyplot()


def save_stress_figure(report: StressReport, path: Path) -> None:
    """Plot the results into a file."""
    check_picture(path)
    with fonts_covering(""):
        figure = draw_stress(report)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=200, metadata=reproducible_metadata(path.suffix[1:]))
        import_pyplot().close(figure)


def draw_stress(report: StressReport) -> Any:
    """Draw chrF and BLEU of each case as bars; beside them the risk-coverage curve if there is one."""
    num_panels = 1 if report.calibration is None else 2
    height = 0.42 * len(report.rows) + 1.4
    figure, axes = import_pyplot().subplots(
        1, num_panels, figsize=(6.5 + 4.5 * (num_panels - 1), height), squeeze=False
    )
    draw_scores(axes[0, 0], report)
    if report.calibration is not None:
        draw_risk_coverage(axes[0, 1], report.calibration)
    set_tight_layout(figure)
    return figure


def draw_scores(axis: Any, report: StressReport) -> None:
    names = [row.name + ("*" if row.ignores_case else "") for row in report.rows]
    for offset, name, color in ((-0.2, "chrF", SERIES_COLORS[0]), (0.2, "BLEU", SERIES_COLORS[1])):
        scores = [row.chrf if name == "chrF" else row.bleu for row in report.rows]
        values = [score.value for score in scores]
        margins = [score.margin_of_error or 0.0 for score in scores]
        positions = [index + offset for index in range(len(scores))]
        axis.barh(positions, values, 0.38, xerr=margins, color=color, label=name, error_kw={"lw": 0.8})
        for position, value, margin in zip(positions, values, margins, strict=True):
            axis.text(value + margin + 0.8, position, f"{value:.1f}", va="center", fontsize=7)
    axis.axvline(report.clean.chrf.value, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    has_caseless = any(row.ignores_case for row in report.rows)
    axis.set(
        title=f"Quality by kind of input ({' to '.join(report.languages)})",
        xlabel=f"score, {report.lines:,} lines" + (", * without case" if has_caseless else ""),
        xlim=(0, 1.12 * max(1.0, *(row.chrf.value for row in report.rows))),
    )
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def draw_risk_coverage(axis: Any, calibration: Calibration) -> None:
    axis.plot(calibration.coverage, calibration.risk, color=SERIES_COLORS[0])
    axis.axhline(calibration.risk[-1], color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    axis.set(
        title="Risk of the most confident lines",
        xlabel="coverage: share of lines kept",
        ylabel="risk: 1 - chrF / 100",
        xlim=(0, 1),
        ylim=(0, max(0.01, 1.1 * max(calibration.risk))),
    )
