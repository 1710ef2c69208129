"""The rows of Table 3 (6.2): variations of the base model, scaled down, trained and compared.

Compared are the differences from base in perplexity and BLEU. The variance between seeds is measured on base,
which is trained with several.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from manyheads.config import Config, describe_unknown_name
from manyheads.data.store import Store
from manyheads.errors import ConfigError
from manyheads.paper.budget import Budget
from manyheads.paper.margins import SeedMargins, combine_margins, compute_sentence_margin
from manyheads.paper.ordering import (
    Difference,
    equivalence_bound,
    summarize_orderings,
    warn_if_untrained,
)
from manyheads.paper.scaled_presets import ModelScale
from manyheads.paper.seed_variance import mean_or_none
from manyheads.paper.trials import Trial, TrialResult
from manyheads.presets import TABLE_3, Table3Row

PUBLISHED_RESULTS = {  # perplexity and BLEU on newstest2013
    "base": (4.92, 25.8),
    "A-h1": (5.29, 24.9), "A-h4": (5.00, 25.5), "A-h16": (4.91, 25.8), "A-h32": (5.01, 25.4),
    "B-dk16": (5.16, 25.1), "B-dk32": (5.01, 25.4),
    "C-n2": (6.11, 23.7), "C-n4": (5.19, 25.3), "C-n8": (4.88, 25.5),
    "C-d256": (5.75, 24.5), "C-d1024": (4.66, 26.0), "C-ff1024": (5.12, 25.4), "C-ff4096": (4.75, 26.2),
    "D-drop0": (5.77, 24.6), "D-drop2": (4.95, 25.5), "D-smooth0": (4.67, 25.3), "D-smooth2": (5.47, 25.7),
    "E-learned": (4.92, 25.7),
    "big": (4.33, 26.4),
}  # fmt: skip
MEASURES = ("perplexity", "BLEU")
SPLIT: Literal["valid"] = "valid"  # newstest2013 is the paper's development set
MIN_BASE_SEEDS = 3  # their variance gives the margin of chance
DERIVED_KEYS = ("seed", "learning_rate", "steps")  # follow from the row


# ---- trials


def select_rows(names: str | None) -> list[Table3Row]:
    """Parse row names or group letters. Rows are in the table's order; base is always included."""
    if names is None:
        return list(TABLE_3)
    requested = {name.strip() for name in names.split(",")}
    known, groups = [row.name for row in TABLE_3], sorted({get_group(row.name) for row in TABLE_3})
    for name in sorted(requested - {*known, *groups}):
        raise ConfigError(describe_unknown_name("row", name, list(dict.fromkeys([*groups, *known]))))
    return [row for row in TABLE_3 if {row.name, get_group(row.name)} & {*requested, "base"}]


def get_group(name: str) -> str:
    """Return the letter of the row's group in the paper; base and big are groups of their own."""
    return name.partition("-")[0]


def make_trials(
    rows: Sequence[Table3Row], scale: ModelScale, budget: Budget, store: Store, seeds: int
) -> list[Trial]:
    return [
        Trial(row.name, budget.apply_to(scale_row(row, scale, store, seed), store), SPLIT)
        for row in rows
        for seed in range(1, 1 + (max(seeds, MIN_BASE_SEEDS) if row.name == "base" else seeds))
    ]


def scale_row(row: Table3Row, scale: ModelScale, store: Store, seed: int) -> Config:
    """Return the config of a row at this scale."""
    config = scale.make_config(scale.scale_model(row.model), row.train, str(store.folder))
    return replace(config, train=replace(config.train, seed=seed))


# ---- comparison


@dataclass(frozen=True)
class VariationRow:
    """A row: means over seeds, and the differences from base."""

    name: str
    change: str
    parameters: int
    seeds: int
    perplexity: float | None
    bleu: float | None
    differences: dict[str, Difference]  # by measure; empty for base

    def describe(self) -> str:
        """Describe whether the paper's ordering holds."""
        text = "; ".join(difference.describe(measure) for measure, difference in self.differences.items())
        return f"{self.name} ({self.change}): {text}."


@dataclass(frozen=True)
class Variations:
    """All rows and their runs."""

    rows: list[VariationRow]
    margins: dict[str, SeedMargins]  # by measure
    results: list[TrialResult]
    scale: ModelScale
    budget: Budget

    @property
    def compared(self) -> list[VariationRow]:
        return [row for row in self.rows if row.differences]

    def summary(self) -> str:
        """Summarize how many of the paper's orderings hold."""
        if not self.compared:
            return "Only base was trained: there is nothing to compare."
        orderings = [
            summarize_orderings(measure, [row.differences[measure] for row in self.compared])
            for measure in MEASURES
        ]
        return " ".join([*orderings, *warn_if_untrained(self.rows[0].bleu)])

    def power(self) -> str:
        """State for each group how many rows differ from base by more than chance: what this run shows."""
        parts = []
        for group in dict.fromkeys(get_group(row.name) for row in self.compared):
            rows = [row for row in self.compared if get_group(row.name) == group]
            shown = sum(is_beyond_chance(row.differences["perplexity"]) for row in rows)
            parts.append(f"{group} {shown} of {len(rows)}" + (" (this run cannot tell)" if not shown else ""))
        return f"Rows that differ from base in perplexity by more than chance: {', '.join(parts)}."

    def to_dict(self) -> dict[str, Any]:
        verdicts = [
            {name: difference.verdict for name, difference in row.differences.items()} for row in self.rows
        ]
        return {
            "scale": self.scale.name,
            "budget": str(self.budget),
            "seed_variance": {measure: asdict(margins) for measure, margins in self.margins.items()},
            "rows": [
                {
                    **asdict(row),
                    "verdicts": row_verdicts,
                    "paper": dict(zip(MEASURES, PUBLISHED_RESULTS[row.name], strict=True)),
                }
                for row, row_verdicts in zip(self.rows, verdicts, strict=True)
            ],
            "runs": [result.to_dict() for result in self.results],
            "conclusions": [self.power(), self.summary(), *(row.describe() for row in self.compared)],
        }


def is_beyond_chance(difference: Difference) -> bool:
    return (
        difference.ours is not None
        and difference.margin is not None
        and abs(difference.ours) > difference.margin
    )


def compare_variations(
    results: list[TrialResult], trials: Sequence[Trial], scale: ModelScale, budget: Budget
) -> Variations:
    """Compare rows with base, in the order of the trials."""
    configs = {trial.row: trial.config for trial in trials}
    by_row = {row: [result for result in results if result.row == row] for row in configs}
    margins = {measure: estimate_margins(measure, by_row) for measure in MEASURES}
    variation_rows = [
        VariationRow(
            name=row,
            change=describe_change(configs[row], configs["base"]),
            parameters=row_results[0].parameters,
            seeds=len(row_results),
            perplexity=mean_or_none([result.perplexity for result in row_results]),
            bleu=mean_or_none([result.bleu.value for result in row_results]),
            differences={
                measure: compute_difference(row, measure, row_results, by_row["base"], margins[measure])
                for measure in MEASURES
                if row != "base"
            },
        )
        for row, row_results in by_row.items()
    ]
    return Variations(variation_rows, margins, results, scale, budget)


def read_measure(measure: str, results: Sequence[TrialResult]) -> dict[int, float]:
    """Return the finite values of a measure by seed."""
    values = {
        result.seed: result.perplexity if measure == "perplexity" else result.bleu.value for result in results
    }
    return {seed: value for seed, value in values.items() if value is not None}


def estimate_margins(measure: str, by_row: dict[str, list[TrialResult]]) -> SeedMargins:
    rows = {row: read_measure(measure, results) for row, results in by_row.items()}
    return SeedMargins.estimate(
        {row: values for row, values in rows.items() if values or row == "base"}, "base"
    )


def compute_difference(
    row: str,
    measure: str,
    results: Sequence[TrialResult],
    base: Sequence[TrialResult],
    margins: SeedMargins,
) -> Difference:
    """Return the difference from base. The margin of BLEU also covers the choice of sentences."""
    values, reference = read_measure(measure, results), read_measure(measure, base)
    published, paper_base = (PUBLISHED_RESULTS[name][MEASURES.index(measure)] for name in (row, "base"))
    paper = round(published - paper_base, 2)
    if len(values) < len(results) or len(reference) < len(base):
        return Difference(None, paper, None)
    ours, margin = margins.difference(values, reference)
    if measure == "BLEU" and margin is not None:
        margin = combine_margins(margin, compute_sentence_margin(results, base))
    bound = equivalence_bound(measure, paper, mean_or_none(list(reference.values())))
    return Difference(ours, paper, margin, bound)


def describe_change(config: Config, base: Config) -> str:
    """Return the config keys that differ from base."""
    changes = [
        f"{key} {value}"
        for table in ("model", "train")
        for key, value in asdict(getattr(config, table)).items()
        if value != getattr(getattr(base, table), key) and key not in DERIVED_KEYS
    ]
    return ", ".join(changes) or "-"
