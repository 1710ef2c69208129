"""Options of `translate` for lines of low confidence, and the summary of them on stderr."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from manyheads.errors import RequestError

if TYPE_CHECKING:
    from manyheads.confidence_policy import Below as BelowChoice
    from manyheads.confidence_policy import ConfidenceCounts, ConfidencePolicy

MinConfidence = Annotated[
    float | None,
    typer.Option(
        "--min-confidence",
        help="Confidence, from 0 to 1, below which lines are counted and --below applies; by default 0.5.",
        metavar="P",
    ),
]
Below = Annotated[
    str | None,
    typer.Option(
        "--below",
        help="What to write for a line below it: the translation (keep), [?] and the translation (mark), "
        "the source text (source) or an empty line (empty); by default keep.",
        metavar="keep|mark|source|empty",
    ),
]
Flag = Annotated[bool, typer.Option("--flag", help="Mark lines of low confidence: short for --below mark.")]

UseConfidence = Annotated[
    bool,
    typer.Option(
        "--confidence/--no-confidence",
        help="Compute the confidence of a calibrated model; without it, a shortlist is faster.",
    ),
]


def select_score_detail(confidence: bool, as_json: bool, policy: "ConfidencePolicy | None") -> dict[str, Any]:
    """Return the option of `Translator.translate` for text without confidence."""
    if confidence:
        return {}
    if as_json or policy is not None:
        raise RequestError(
            "--no-confidence is for plain text: leave out --json, --min-confidence and --below"
        )
    return {"scores": "none"}


def create_policy(min_confidence: float | None, below: str | None, flag: bool) -> "ConfidencePolicy | None":
    """Return the policy that the options describe; None without any of them."""
    from manyheads.confidence_policy import DEFAULT_MIN_CONFIDENCE, ConfidencePolicy

    if min_confidence is None and below is None and not flag:
        return None
    if flag and below not in (None, "mark"):
        raise RequestError(f"--flag is short for --below mark, but --below is {below}: give one of them")
    action = cast("BelowChoice", "mark" if flag else below or "keep")
    return ConfidencePolicy(DEFAULT_MIN_CONFIDENCE if min_confidence is None else min_confidence, action)


def print_confidence_summary(
    counts: "ConfidenceCounts", policy: "ConfidencePolicy | None", as_json: bool
) -> None:
    """Print to stderr how many lines are below the threshold, and how many were not translated, if any."""
    from manyheads.confidence_policy import ConfidencePolicy, describe_foreign

    if counts.num_foreign:
        print(f"manyheads: {describe_foreign(counts.num_foreign, counts.num_lines)}", file=sys.stderr)

    if counts.num_below:
        used = policy or ConfidencePolicy()
        hint = "; --flag marks them" if used.below == "keep" and not as_json else ""
        print(f"manyheads: {used.describe(counts.num_below, counts.num_lines)}{hint}", file=sys.stderr)
