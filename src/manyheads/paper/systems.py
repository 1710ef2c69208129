"""The systems of Table 2 (6.1): the Transformer and its baselines at equal size and budget."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import fmean
from typing import Any, Literal

from manyheads import checkpoint
from manyheads.config import Config, ModelConfig, TrainConfig, TransformerConfig, describe_unknown_name
from manyheads.data.store import Store
from manyheads.errors import ConfigError
from manyheads.model import count_parameters
from manyheads.paper.budget import Budget
from manyheads.paper.margins import SeedMargins, combine_margins, compute_sentence_margin
from manyheads.paper.ordering import (
    Difference,
    equivalence_bound,
    summarize_orderings,
    warn_if_untrained,
)
from manyheads.paper.scaled_presets import ModelScale
from manyheads.paper.seed_variance import SeedVariance, mean_or_none
from manyheads.paper.trials import Trial, TrialResult
from manyheads.presets import BASELINES, PAPER_TRAINING, PRESETS

BASE_BLEU = 27.3  # of the paper's base model to German


@dataclass(frozen=True)
class PublishedSystem:
    """A row of the paper's table: BLEU and training FLOPs, English to German and to French."""

    name: str
    bleu_de: float | None
    bleu_fr: float | None
    flops_de: float | None
    flops_fr: float | None

    @property
    def by_language(self) -> list[tuple[float | None, float | None]]:
        """BLEU and FLOPs, each for German and French."""
        return [(self.bleu_de, self.bleu_fr), (self.flops_de, self.flops_fr)]

    @property
    def bleu_difference(self) -> float | None:
        """BLEU to German relative to the base Transformer."""
        return None if self.bleu_de is None else round(self.bleu_de - BASE_BLEU, 2)


PUBLISHED_SYSTEMS = {
    system.name: system
    for system in (
        PublishedSystem("ByteNet", 23.75, None, None, None),
        PublishedSystem("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
        PublishedSystem("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
        PublishedSystem("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
        PublishedSystem("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
        PublishedSystem("Transformer (base)", BASE_BLEU, 38.1, 3.3e18, None),
        PublishedSystem("Transformer (big)", 28.4, 41.8, 2.3e19, None),
    )
}
REFERENCE_SYSTEM = "transformer"  # that the others are compared with
PAPER_ROWS: dict[str, str | None] = {  # our system: the row of the paper that it represents
    "transformer": "Transformer (base)",
    "big": "Transformer (big)",
    "rnn": "GNMT + RL",
    "gru": None,  # GNMT is an LSTM, which is compared once
    "plain-rnn": None,
    "seq2seq": None,
    "convs2s": "ConvS2S",
    "bytenet": "ByteNet",
    "experts": "MoE",
    "window": None,
}
SPLIT: Literal["test"] = "test"
PLAYGROUND_LEARNING_RATES = {  # the best of two to four tried on the built-in corpus for 423 steps
    "transformer": 5e-3,
    "experts": 5e-3,
    "window": 5e-3,
    "rnn": 1e-2,
    "plain-rnn": 5e-3,
    "gru": 1e-2,
    "seq2seq": 1e-2,
    "convs2s": 1.2e-2,
    "bytenet": 8e-3,
}
SIZE_TOLERANCE = 0.05  # relative difference of parameter counts that is accepted


# ---- configs and trials


@dataclass(frozen=True)
class SystemSearch:
    """The settings that are tried for every system; the best on valid counts."""

    multiples: Sequence[float] = (1.0,)  # of the peak learning rate
    both_inits: bool = False  # also other initial weights
    validations: int = 0  # during a run, whose best model counts; 0: the last one counts

    def list_settings(self) -> list[tuple[float, bool]]:
        inits = (False, True) if self.both_inits else (False,)
        return [(multiple, is_other) for is_other in inits for multiple in self.multiples]


NO_SEARCH = SystemSearch()


def list_systems(scale: ModelScale) -> dict[str, Config]:
    """Return the configs of all systems at this scale by name. Playground systems are half the tiny ones."""
    size = "base" if scale.name == "base" else "tiny"
    configs = {REFERENCE_SYSTEM: PRESETS[size], **BASELINES[size]}
    if scale.name == "playground":
        configs = {name: shrink_for_playground(name, config) for name, config in configs.items()}
    return {**configs, "big": PRESETS["big"] if size == "base" else double_width(configs[REFERENCE_SYSTEM])}


def shrink_for_playground(name: str, config: Config) -> Config:
    """Halve width and depth and lower dropout, for a corpus that is learned in seconds."""
    model = config.model
    d_ff = 2 * (model.d_ff // 4)  # even, as bidirectional cells require
    layers = max(1, model.encoder_layers // 2)
    small = replace(model, layers=layers, d_model=model.d_model // 2, d_ff=d_ff, dropout=0.1)
    return replace(
        config, model=small, train=replace(config.train, learning_rate=PLAYGROUND_LEARNING_RATES[name])
    )


def double_width(config: Config) -> Config:
    """Return a model twice as wide, as big is to base; the learning rate is proportional to d_model^-0.5."""
    model, peak = config.model, config.train.learning_rate
    assert isinstance(model, TransformerConfig)
    wide = replace(model, d_model=2 * model.d_model, d_ff=2 * model.d_ff, heads=2 * model.heads)
    return replace(config, model=wide, train=replace(config.train, learning_rate=peak and peak / 2**0.5))


def select_systems(names: str | None, scale: ModelScale) -> list[str]:
    """Parse system names. The Transformer is always included."""
    available = list(list_systems(scale))
    requested = available if names is None else [name.strip() for name in names.split(",")]
    for name in requested:
        if name not in available:
            raise ConfigError(describe_unknown_name("system", name, available))
    return [name for name in available if name in requested or name == REFERENCE_SYSTEM]


def parse_multiples(text: str) -> list[float]:
    """Parse multiples of the peak learning rate, such as 1,2,4."""
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number < 1000 for number in numbers) or len(set(numbers)) < len(numbers):
        raise ConfigError(
            f"--rate-multiples is {text!r}, but must be different numbers above 0, such as 0.5,1,2"
        )
    return numbers


def make_trials(
    names: Sequence[str],
    scale: ModelScale,
    budget: Budget,
    store: Store,
    seeds: Sequence[int],
    search: SystemSearch = NO_SEARCH,
) -> list[Trial]:
    """Return the trials of each system with each of the settings that are searched."""
    trials = []
    for name, config in configure_systems(names, scale, store).items():
        for multiple, is_other in search.list_settings():
            for seed in seeds:
                run = with_seed(config, seed, multiple)
                run = replace(run, model=use_other_init(run.model)) if is_other else run
                run = budget.apply_to(run, store, validations=search.validations)
                trials.append(Trial(label_row(name, multiple, is_other), run, SPLIT))
    return trials


def use_other_init(model: ModelConfig) -> ModelConfig:
    """Return a model with other initial weights than its default: a Transformer the authors', others half."""
    if isinstance(model, TransformerConfig):
        return replace(model, init="authors")
    return replace(model, init_gain=model.init_gain / 2)


def configure_systems(names: Sequence[str], scale: ModelScale, store: Store) -> dict[str, Config]:
    """Return configs of the Transformer's size, except for big and experts, with their presets' training."""
    presets = list_systems(scale)
    models = {
        name: checkpoint.fit_to_vocabulary(presets[name].model, store.subwords)
        for name in (REFERENCE_SYSTEM, *names)
    }
    num_parameters = count_parameters(models[REFERENCE_SYSTEM])["total"]
    configs = {}
    for name in names:
        keeps_size = name in ("big", "experts")  # experts: equal FLOPs, more parameters
        model = models[name] if keeps_size else match_size(models[name], num_parameters)
        config = scale.make_config(model, TrainConfig(), str(store.folder))
        configs[name] = replace(
            config, train=replace(config.train, **select_preset_training(presets[name].train))
        )
    return configs


def label_row(name: str, multiple: float, is_other_init: bool) -> str:
    setting = f"-x{multiple:g}" if multiple != 1 or is_other_init else ""
    return f"{name}{setting}{'-init2' if is_other_init else ''}"


def with_seed(config: Config, seed: int, multiple: float) -> Config:
    train, peak = config.train, config.train.learning_rate
    if multiple != 1:
        paper = (config.model.d_model * train.warmup) ** -0.5
        peak = multiple * (paper if peak is None else peak)
    return replace(config, train=replace(train, seed=seed, learning_rate=peak))


def select_preset_training(train: TrainConfig) -> dict[str, Any]:
    """Return the training settings in which a preset differs from the paper's, except warmup and steps."""
    settings = {
        key.name: getattr(train, key.name) for key in fields(train) if key.name not in ("warmup", "steps")
    }
    return {name: value for name, value in settings.items() if value != getattr(PAPER_TRAINING, name)}


def match_size(model: ModelConfig, num_parameters: int) -> ModelConfig:
    """Return the model with about `num_parameters`, by a change of d_ff where necessary."""

    def count(half: int) -> int:
        return count_parameters(replace(model, d_ff=2 * half))["total"]

    if abs(count(model.d_ff // 2) / num_parameters - 1) <= SIZE_TOLERANCE:
        return model
    low, high = 1, 2
    while count(high) <= num_parameters:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= num_parameters else (low, middle)
    return replace(model, d_ff=2 * low)


# ---- comparison


@dataclass(frozen=True)
class SystemRow:
    """A system under one budget: means over its seeds, and the difference from the Transformer."""

    name: str
    paper: str | None
    parameters: int
    steps: float
    tokens: float
    seconds: float
    perplexity: float | None
    bleu: float
    margin: float | None  # of BLEU, 95 %: from seeds, or with one seed from the bootstrap over sentences
    compound_bleu: float
    flops: float
    flops_from_time: float
    difference: Difference | None  # of BLEU; None for the Transformer

    def describe(self) -> str:
        text = self.difference.describe("BLEU") if self.difference else ""
        return f"{self.name}{f' ({self.paper})' if self.paper else ''}: {text}."


@dataclass(frozen=True)
class BudgetComparison:
    """All systems under one budget."""

    budget: Budget
    rows: list[SystemRow]
    results: list[TrialResult]
    seeds: int
    peaks: dict[str, float | None]  # learning rate by system; None: the paper's
    num_settings: int  # tried per system
    best: dict[str, str]  # the row of the best setting by system

    def summary(self) -> str:
        """Summarize the order of BLEU, and which systems are better and cheaper than the Transformer."""
        first = self.rows[0]
        others = [row for row in self.rows if row.difference]
        if not others:
            return "Only the Transformer was trained: there is nothing to compare."
        orderings = summarize_orderings("BLEU", [row.difference for row in others if row.difference])
        better = [row.name for row in others if row.bleu >= first.bleu and row.flops <= first.flops]
        cheaper = (
            f"Systems with at least the Transformer's BLEU for no more FLOPs: {', '.join(better) or 'none'}."
        )
        order = " > ".join(row.name for row in sorted(self.rows, key=lambda row: -row.bleu))
        return " ".join(
            [f"After {self.budget}: {orderings} Order: {order}. {cheaper}", *warn_if_untrained(first.bleu)]
        )


@dataclass(frozen=True)
class SystemsComparison:
    """All systems under all budgets."""

    comparisons: list[BudgetComparison]
    scale: ModelScale

    @property
    def results(self) -> list[TrialResult]:
        return [result for comparison in self.comparisons for result in comparison.results]

    def conclusions(self) -> Iterator[str]:
        for comparison in self.comparisons:
            yield comparison.summary()
            for row in comparison.rows:
                if row.difference:
                    yield row.describe()

    def to_dict(self) -> dict[str, Any]:
        return {
            "scale": self.scale.name,
            "comparisons": [
                {
                    "budget": str(comparison.budget),
                    "systems": [asdict(row) for row in comparison.rows],
                    "runs": [result.to_dict() for result in comparison.results],
                }
                for comparison in self.comparisons
            ],
            "paper": [asdict(system) for system in PUBLISHED_SYSTEMS.values()],
            "conclusions": list(self.conclusions()),
        }


def select_best(results: Sequence[TrialResult], trials: Sequence[Trial]) -> dict[str, str]:
    """Return the row of each system with the best perplexity on valid, by its first seed."""
    tried: dict[str, list[str]] = {}
    for row in dict.fromkeys(trial.row for trial in trials):
        tried.setdefault(row.partition("-x")[0], []).append(row)
    first_seed = {result.row: result for result in reversed(results)}

    def read_perplexity(row: str) -> float:
        perplexity = first_seed[row].perplexity
        return math.inf if perplexity is None else perplexity

    return {name: min(rows, key=read_perplexity) for name, rows in tried.items()}


def compare_systems(results: list[TrialResult], trials: Sequence[Trial], budget: Budget) -> BudgetComparison:
    """Compare every system with the Transformer, in the order of the trials.

    Of several settings the one with the best perplexity on valid counts.
    """
    best = select_best(results, trials)
    by_system = {name: [result for result in results if result.row == row] for name, row in best.items()}
    margins = SeedMargins.estimate(
        {name: read_bleu(system_results) for name, system_results in by_system.items()}, REFERENCE_SYSTEM
    )
    system_rows = []
    for name, system_results in by_system.items():
        difference = (
            None
            if name == REFERENCE_SYSTEM
            else compute_difference(name, system_results, by_system[REFERENCE_SYSTEM], margins)
        )
        system_rows.append(make_row(name, system_results, margins.single, difference))
    rates = {trial.row: trial.config.train.learning_rate for trial in trials}
    peaks = {name: rates[row] for name, row in best.items()}
    return BudgetComparison(
        budget,
        system_rows,
        results,
        len(by_system[REFERENCE_SYSTEM]),
        peaks,
        len({trial.row for trial in trials}) // len(best),
        best,
    )


def make_row(
    name: str, results: list[TrialResult], variance: SeedVariance, difference: Difference | None
) -> SystemRow:
    def average(key: str) -> float:
        return fmean(getattr(result, key) for result in results)

    return SystemRow(
        name=name,
        paper=PAPER_ROWS.get(name),
        parameters=results[0].parameters,
        steps=average("steps"),
        tokens=average("tokens"),
        seconds=average("seconds"),
        perplexity=mean_or_none([result.perplexity for result in results]),
        bleu=fmean(result.bleu.value for result in results),
        margin=variance.margin(len(results))
        if variance.degrees_of_freedom
        else results[0].bleu.margin_of_error,
        compound_bleu=fmean(result.compound_bleu.value for result in results),
        flops=average("flops"),
        flops_from_time=average("flops_from_time"),
        difference=difference,
    )


def compute_difference(
    name: str, results: list[TrialResult], reference: list[TrialResult], margins: SeedMargins
) -> Difference:
    """Return the BLEU difference from the Transformer.

    The margin covers seeds, if there are several, and test sentences, by paired bootstrap.
    """
    values, base = read_bleu(results), read_bleu(reference)
    ours, seed_margin = margins.difference(values, base)
    paper_row = PAPER_ROWS.get(name)
    paper = PUBLISHED_SYSTEMS[paper_row].bleu_difference if paper_row else None
    margin = combine_margins(seed_margin, compute_sentence_margin(results, reference))
    return Difference(ours, paper, margin, equivalence_bound("BLEU", paper, fmean(base.values())))


def read_bleu(results: Sequence[TrialResult]) -> dict[int, float]:
    return {result.seed: result.bleu.value for result in results}
