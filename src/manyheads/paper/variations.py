"""The rows of Table 3 (6.2): the base model with one thing changed, made smaller, trained and compared.

What is compared is the difference from base, of perplexity and of BLEU. How far seeds alone move a result is
measured on base, which has several.
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
MIN_BASE_SEEDS = 3  # at least: their spread is the yardstick
DERIVED_KEYS = ("seed", "learning_rate", "steps")  # follow from the row, and are not what it changes


# ---- what is trained


def select_rows(names: str | None) -> list[Table3Row]:
    """Rows by name or by the letter of their group, in the table's order; base is always one of them."""
    if names is None:
        return list(TABLE_3)
    wanted = {one.strip() for one in names.split(",")}
    known, groups = [row.name for row in TABLE_3], sorted({get_group(row.name) for row in TABLE_3})
    for one in sorted(wanted - {*known, *groups}):
        raise ConfigError(describe_unknown_name("row", one, list(dict.fromkeys([*groups, *known]))))
    return [row for row in TABLE_3 if {row.name, get_group(row.name)} & {*wanted, "base"}]


def get_group(name: str) -> str:
    """The letter that the paper gives it; base and big are by themselves."""
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
    """The row at this scale."""
    config = scale.make_config(scale.scale_model(row.model), row.train, str(store.folder))
    return replace(config, train=replace(config.train, seed=seed))


# ---- what is found


@dataclass(frozen=True)
class VariationRow:
    """A row: its means over seeds, and how they differ from base."""

    name: str
    change: str
    parameters: int
    seeds: int
    perplexity: float | None
    bleu: float | None
    differences: dict[str, Difference]  # by measure; of base there are none

    def describe(self) -> str:
        """Whether the paper's ordering holds here, in words."""
        told = "; ".join(one.describe(measure) for measure, one in self.differences.items())
        return f"{self.name} ({self.change}): {told}."


@dataclass(frozen=True)
class Variations:
    """Everything that the report says."""

    rows: list[VariationRow]
    variances: dict[str, SeedVariance]  # by measure
    results: list[TrialResult]
    scale: ModelScale
    budget: Budget

    @property
    def compared(self) -> list[VariationRow]:
        return [line for line in self.rows if line.differences]

    def summary(self) -> str:
        """What the rows come to."""
        if not self.compared:
            return "Base alone was trained: there is nothing to compare."
        judged = [
            summarize_orderings(measure, [line.differences[measure] for line in self.compared])
            for measure in MEASURES
        ]
        return " ".join([*judged, *warn_if_untrained(self.rows[0].bleu)])

    def to_dict(self) -> dict[str, Any]:
        verdicts = [{name: one.verdict for name, one in line.differences.items()} for line in self.rows]
        return {
            "scale": self.scale.name,
            "budget": str(self.budget),
            "spread": {measure: asdict(spread) for measure, spread in self.variances.items()},
            "rows": [
                {
                    **asdict(line),
                    "verdicts": found,
                    "paper": dict(zip(MEASURES, PUBLISHED_RESULTS[line.name], strict=True)),
                }
                for line, found in zip(self.rows, verdicts, strict=True)
            ],
            "runs": [asdict(result) for result in self.results],
            "reading": [self.summary(), *(line.describe() for line in self.compared)],
        }


def compare_variations(
    results: list[TrialResult], trials: Sequence[Trial], scale: ModelScale, budget: Budget
) -> Variations:
    """Rows against base, in the order of the trials."""
    configs = {trial.row: trial.config for trial in trials}
    own = {row: [one for one in results if one.row == row] for row in configs}
    values: dict[str, dict[str, list[float | None]]] = {
        "perplexity": {row: [one.perplexity for one in found] for row, found in own.items()},
        "BLEU": {row: [one.bleu.value for one in found] for row, found in own.items()},
    }
    spreads = {
        measure: SeedVariance.estimate([drop_missing(one) for one in rows.values()])
        for measure, rows in values.items()
    }
    lines = [
        VariationRow(
            name=row,
            change=describe_change(configs[row], configs["base"]),
            parameters=found[0].parameters,
            seeds=len(found),
            perplexity=mean_or_none(values["perplexity"][row]),
            bleu=mean_or_none(values["BLEU"][row]),
            differences={
                measure: compute_difference(row, measure, values[measure], spreads[measure])
                for measure in MEASURES
                if row != "base"
            },
        )
        for row, found in own.items()
    ]
    return Variations(lines, spreads, results, scale, budget)


def compute_difference(
    row: str, measure: str, values: dict[str, list[float | None]], spread: SeedVariance
) -> Difference:
    own, base = mean_or_none(values[row]), mean_or_none(values["base"])
    ours = None if own is None or base is None else own - base
    theirs, paper_base = (PUBLISHED_RESULTS[name][MEASURES.index(measure)] for name in (row, "base"))
    return Difference(
        ours, round(theirs - paper_base, 2), spread.margin(len(values[row]), len(values["base"]))
    )


def describe_change(config: Config, base: Config) -> str:
    """What parts it from base, by the keys of the configuration."""
    changed = [
        f"{key} {value}"
        for table in ("model", "train")
        for key, value in asdict(getattr(config, table)).items()
        if value != getattr(getattr(base, table), key) and key not in DERIVED_KEYS
    ]
    return ", ".join(changed) or "-"
