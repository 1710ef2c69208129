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
from manyheads.paper.ordering import Difference, summarize_orderings, warn_if_untrained
from manyheads.paper.scaled_presets import ModelScale
from manyheads.paper.seed_variance import SeedVariance, drop_missing, mean_or_none
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
    variances: dict[str, SeedVariance]  # by measure
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

    def to_dict(self) -> dict[str, Any]:
        verdicts = [
            {name: difference.verdict for name, difference in row.differences.items()} for row in self.rows
        ]
        return {
            "scale": self.scale.name,
            "budget": str(self.budget),
            "seed_variance": {measure: asdict(variance) for measure, variance in self.variances.items()},
            "rows": [
                {
                    **asdict(row),
                    "verdicts": row_verdicts,
                    "paper": dict(zip(MEASURES, PUBLISHED_RESULTS[row.name], strict=True)),
                }
                for row, row_verdicts in zip(self.rows, verdicts, strict=True)
            ],
            "runs": [asdict(result) for result in self.results],
            "conclusions": [self.summary(), *(row.describe() for row in self.compared)],
        }


def compare_variations(
    results: list[TrialResult], trials: Sequence[Trial], scale: ModelScale, budget: Budget
) -> Variations:
    """Compare rows with base, in the order of the trials."""
    configs = {trial.row: trial.config for trial in trials}
    by_row = {row: [result for result in results if result.row == row] for row in configs}
    values: dict[str, dict[str, list[float | None]]] = {
        "perplexity": {
            row: [result.perplexity for result in row_results] for row, row_results in by_row.items()
        },
        "BLEU": {row: [result.bleu.value for result in row_results] for row, row_results in by_row.items()},
    }
    variances = {
        measure: SeedVariance.estimate([drop_missing(seeds) for seeds in rows.values()])
        for measure, rows in values.items()
    }
    variation_rows = [
        VariationRow(
            name=row,
            change=describe_change(configs[row], configs["base"]),
            parameters=row_results[0].parameters,
            seeds=len(row_results),
            perplexity=mean_or_none(values["perplexity"][row]),
            bleu=mean_or_none(values["BLEU"][row]),
            differences={
                measure: compute_difference(row, measure, values[measure], variances[measure])
                for measure in MEASURES
                if row != "base"
            },
        )
        for row, row_results in by_row.items()
    ]
    return Variations(variation_rows, variances, results, scale, budget)


def compute_difference(
    row: str, measure: str, values: dict[str, list[float | None]], variance: SeedVariance
) -> Difference:
    value, base = mean_or_none(values[row]), mean_or_none(values["base"])
    ours = None if value is None or base is None else value - base
    published, paper_base = (PUBLISHED_RESULTS[name][MEASURES.index(measure)] for name in (row, "base"))
    return Difference(
        ours, round(published - paper_base, 2), variance.margin(len(values[row]), len(values["base"]))
    )


def describe_change(config: Config, base: Config) -> str:
    """Return the config keys that differ from base."""
    changes = [
        f"{key} {value}"
        for table in ("model", "train")
        for key, value in asdict(getattr(config, table)).items()
        if value != getattr(getattr(base, table), key) and key not in DERIVED_KEYS
    ]
    return ", ".join(changes) or "-"
