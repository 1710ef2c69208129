"""One style for all plots with matplotlib: of runs, of the paper's tables and figures, of attention."""

from typing import Any, Literal

from manyheads.errors import RequestError, install_command

# Okabe and Ito's, with darker ones for thin lines: distinct for people with any color vision.
SERIES_COLORS = ("#0072b2", "#d55e00", "#007a59", "#a3437f", "#6a5acd", "#7f6000", "#4d4d4d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
Dash = Literal["-", "--", ":", "-."]
DASHES: tuple[Dash, ...] = ("-", "--", ":", "-.")
GRAY = "#777777"
STYLE: dict[str, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.labelsize": 9,
    "axes.axisbelow": True,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "grid.color": "0.92",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "manyheads",  # equal figures give equal files
}


def get_line_style(index: int) -> tuple[str, Dash]:
    """Return color and dash of a line among many.

    Of eight, no two have the same color, and two with the same dash differ in luminance.
    """
    color, is_dark = SERIES_COLORS[index % len(SERIES_COLORS)], index // len(DASHES) % 2
    return darken(color) if is_dark else color, DASHES[index % len(DASHES)]


def darken(color: str) -> str:
    return "#" + "".join(f"{int(color[n : n + 2], 16) * 11 // 20:02x}" for n in (1, 3, 5))


def import_pyplot() -> Any:
    """Import matplotlib.pyplot with a backend that needs no display, and with the style of all plots."""
    try:
        import matplotlib
    except ImportError:
        raise RequestError(
            f"figures need matplotlib, which is not installed: {install_command('figures')}"
        ) from None
    matplotlib.use("agg")
    from matplotlib import pyplot, rcsetup

    settings: dict[Any, Any] = {**STYLE, "axes.prop_cycle": rcsetup.cycler("color", SERIES_COLORS)}
    matplotlib.rcParams.update(settings)
    return pyplot
