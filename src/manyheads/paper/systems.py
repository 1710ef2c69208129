"""The systems of Table 2 (6.1): the Transformer and what it is compared with, of one size and budget."""

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
from manyheads.paper.ordering import Difference, summarize_orderings, warn_if_untrained
from manyheads.paper.scaled_presets import ModelScale
from manyheads.paper.seed_variance import SeedVariance, mean_or_none
from manyheads.paper.trials import Trial, TrialResult
from manyheads.presets import BASELINES, PAPER_TRAINING, PRESETS

BASE_BLEU = 27.3  # of the paper's base model, to German


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
        """BLEU, then FLOPs, of German and of French."""
        return [(self.bleu_de, self.bleu_fr), (self.flops_de, self.flops_fr)]

    @property
    def bleu_difference(self) -> float | None:
        """From the base Transformer, in BLEU, to German."""
        return None if self.bleu_de is None else round(self.bleu_de - BASE_BLEU, 2)


PUBLISHED_SYSTEMS = {
    one.name: one
    for one in (
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
PAPER_ROWS: dict[str, str | None] = {  # our system: the row of the paper that it stands for, if there is one
    "transformer": "Transformer (base)",
    "big": "Transformer (big)",
    "rnn": "GNMT + RL",
    "gru": "GNMT + RL",
    "seq2seq": None,
    "convs2s": "ConvS2S",
    "bytenet": "ByteNet",
    "experts": "MoE",
    "window": None,
}
SPLIT: Literal["test"] = "test"
PLAYGROUND_LEARNING_RATES = {  # of two to four that were tried on the built-in corpus, the best after 423 steps
    "transformer": 5e-3,
    "experts": 5e-3,
    "window": 5e-3,
    "rnn": 1e-2,
    "gru": 1e-2,
    "seq2seq": 1e-2,
    "convs2s": 1.2e-2,
    "bytenet": 8e-3,
}
SIZE_TOLERANCE = 0.05  # share by which sizes may differ before a width is changed


# ---- what is trained


def list_systems(scale: ModelScale) -> dict[str, Config]:
    """Every system there is at this scale, by its short name. The playground's are half the tiny ones."""
    of = "base" if scale.name == "base" else "tiny"
    found = {REFERENCE_SYSTEM: PRESETS[of], **BASELINES[of]}
    if scale.name == "playground":
        found = {name: shrink_for_playground(name, one) for name, one in found.items()}
    return {**found, "big": PRESETS["big"] if of == "base" else double_width(found[REFERENCE_SYSTEM])}


def shrink_for_playground(name: str, config: Config) -> Config:
    """Half as wide and deep, for a corpus that is learned in seconds, where much dropout only delays."""
    model = config.model
    inner = 2 * (model.d_ff // 4)  # even, as cells that read both ways ask
    layers = max(1, model.encoder_layers // 2)
    small = replace(model, layers=layers, d_model=model.d_model // 2, d_ff=inner, dropout=0.1)
    return replace(
        config, model=small, train=replace(config.train, learning_rate=PLAYGROUND_LEARNING_RATES[name])
    )


def double_width(config: Config) -> Config:
    """What big is to base: twice as wide, with a rate that goes with d_model^-0.5."""
    model, peak = config.model, config.train.learning_rate
    assert isinstance(model, TransformerConfig)
    wide = replace(model, d_model=2 * model.d_model, d_ff=2 * model.d_ff, heads=2 * model.heads)
    return replace(config, model=wide, train=replace(config.train, learning_rate=peak and peak / 2**0.5))


def select_systems(names: str | None, scale: ModelScale) -> list[str]:
    """Systems by name; the Transformer is always one of them."""
    known = list(list_systems(scale))
    wanted = known if names is None else [one.strip() for one in names.split(",")]
    for one in wanted:
        if one not in known:
            raise ConfigError(describe_unknown_name("system", one, known))
    return [name for name in known if name in wanted or name == REFERENCE_SYSTEM]


def parse_multiples(text: str) -> list[float]:
    """Numbers that a peak is multiplied by, as 1,2,4."""
    try:
        found = [float(one) for one in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < one < 1000 for one in found) or len(set(found)) < len(found):
        raise ConfigError(f"--peaks is {text!r}, but must be different numbers above 0, such as 0.5,1,2")
    return found


def make_trials(
    names: Sequence[str],
    scale: ModelScale,
    budget: Budget,
    store: Store,
    seeds: int,
    multiples: Sequence[float] = (1.0,),
) -> list[Trial]:
    """Each system with each of these multiples of its own peak of the learning rate."""
    return [
        Trial(label_row(name, multiple), budget.apply_to(with_seed(config, seed, multiple), store), SPLIT)
        for name, config in configure_systems(names, scale, store).items()
        for multiple in multiples
        for seed in range(1, seeds + 1)
    ]


def configure_systems(names: Sequence[str], scale: ModelScale, store: Store) -> dict[str, Config]:
    """Of the Transformer's size all, but for big; with what the presets ask for of their training."""
    found = list_systems(scale)
    models = {
        name: checkpoint.fit_to_vocabulary(found[name].model, store.subwords)
        for name in (REFERENCE_SYSTEM, *names)
    }
    wanted = count_parameters(models[REFERENCE_SYSTEM])["total"]
    made = {}
    for name in names:
        model = models[name] if name == "big" else match_size(models[name], wanted)
        config = scale.make_config(model, TrainConfig(), str(store.folder))
        made[name] = replace(config, train=replace(config.train, **select_preset_training(found[name].train)))
    return made


def label_row(name: str, multiple: float) -> str:
    return name if multiple == 1 else f"{name}-x{multiple:g}"


def with_seed(config: Config, seed: int, multiple: float) -> Config:
    train, peak = config.train, config.train.learning_rate
    if multiple != 1:
        paper = (config.model.d_model * train.warmup) ** -0.5
        peak = multiple * (paper if peak is None else peak)
    return replace(config, train=replace(train, seed=seed, learning_rate=peak))


def select_preset_training(train: TrainConfig) -> dict[str, Any]:
    """What a preset asks for that is not everybody's: its peak, clipping. The warm-up is the scale's."""
    own = {key.name: getattr(train, key.name) for key in fields(train) if key.name not in ("warmup", "steps")}
    return {name: value for name, value in own.items() if value != getattr(PAPER_TRAINING, name)}


def match_size(model: ModelConfig, wanted: int) -> ModelConfig:
    """With nearly so many parameters: where it has not, its inner width d_ff is changed."""

    def size(half: int) -> int:
        return count_parameters(replace(model, d_ff=2 * half))["total"]

    if abs(size(model.d_ff // 2) / wanted - 1) <= SIZE_TOLERANCE:
        return model
    low, high = 1, 2
    while size(high) <= wanted:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) <= wanted else (low, middle)
    return replace(model, d_ff=2 * low)


# ---- what is found


@dataclass(frozen=True)
class SystemRow:
    """A system under one budget: the means over its seeds, and how it differs from the Transformer."""

    name: str
    paper: str | None
    parameters: int
    steps: float
    tokens: float
    seconds: float
    perplexity: float | None
    bleu: float
    margin: float | None  # of BLEU: 95 % of the bootstrap over sentences, or of seeds where there are several
    compound_bleu: float
    flops: float
    flops_from_time: float
    difference: Difference | None  # of BLEU; None: it is the Transformer

    def describe(self) -> str:
        told = self.difference.describe("BLEU") if self.difference else ""
        return f"{self.name}{f' ({self.paper})' if self.paper else ''}: {told}."


@dataclass(frozen=True)
class BudgetComparison:
    """All systems under one budget."""

    budget: Budget
    rows: list[SystemRow]
    results: list[TrialResult]
    seeds: int
    peaks: dict[str, float | None]  # of the learning rate, by system; None: the paper's
    num_peaks: int  # so many of each

    def summary(self) -> str:
        """What the lines come to: the order of BLEU, and whether anything is better and cheaper."""
        first = self.rows[0]
        others = [line for line in self.rows if line.difference]
        if not others:
            return "The Transformer alone was trained: there is nothing to compare."
        judged = summarize_orderings("BLEU", [line.difference for line in others if line.difference])
        ahead = [line.name for line in others if line.bleu >= first.bleu and line.flops <= first.flops]
        cheaper = f"At least the Transformer's BLEU for no more counted FLOPs: {', '.join(ahead) or 'none'}."
        order = " > ".join(line.name for line in sorted(self.rows, key=lambda line: -line.bleu))
        return " ".join(
            [f"After {self.budget}: {judged} Order here: {order}. {cheaper}", *warn_if_untrained(first.bleu)]
        )


@dataclass(frozen=True)
class SystemComparison:
    """Everything that the report says."""

    comparisons: list[BudgetComparison]
    scale: ModelScale

    @property
    def results(self) -> list[TrialResult]:
        return [result for contest in self.comparisons for result in contest.results]

    def conclusions(self) -> Iterator[str]:
        for contest in self.comparisons:
            yield contest.summary()
            for line in contest.rows:
                if line.difference:
                    yield line.describe()

    def to_dict(self) -> dict[str, Any]:
        return {
            "scale": self.scale.name,
            "contests": [
                {
                    "budget": str(contest.budget),
                    "systems": [asdict(line) for line in contest.rows],
                    "runs": [asdict(result) for result in contest.results],
                }
                for contest in self.comparisons
            ],
            "paper": [asdict(one) for one in PUBLISHED_SYSTEMS.values()],
            "reading": list(self.conclusions()),
        }


def compare_systems(results: list[TrialResult], trials: Sequence[Trial], budget: Budget) -> BudgetComparison:
    """Every system against the Transformer, in the order of the trials.

    Of a system that was tried with several peaks the one with the best perplexity of valid counts.
    """
    tried: dict[str, list[str]] = {}
    for row in dict.fromkeys(trial.row for trial in trials):
        tried.setdefault(row.partition("-x")[0], []).append(row)
    by_row = {row: [one for one in results if one.row == row] for rows in tried.values() for row in rows}
    best = {name: min(rows, key=lambda row: mean_perplexity(by_row[row])) for name, rows in tried.items()}
    own = {name: by_row[row] for name, row in best.items()}
    spread = SeedVariance.estimate([[one.bleu.value for one in found] for found in own.values()])
    lines = []
    for name, found in own.items():
        difference = (
            None
            if name == REFERENCE_SYSTEM
            else compute_difference(name, found, own[REFERENCE_SYSTEM], spread)
        )
        lines.append(make_row(name, found, spread, difference))
    rates = {trial.row: trial.config.train.learning_rate for trial in trials}
    peaks = {name: rates[row] for name, row in best.items()}
    return BudgetComparison(
        budget, lines, results, len(own[REFERENCE_SYSTEM]), peaks, max(map(len, tried.values()))
    )


def mean_perplexity(found: list[TrialResult]) -> float:
    known = mean_or_none([one.perplexity for one in found])
    return math.inf if known is None else known


def make_row(
    name: str, found: list[TrialResult], spread: SeedVariance, difference: Difference | None
) -> SystemRow:
    def average(key: str) -> float:
        return fmean(getattr(one, key) for one in found)

    return SystemRow(
        name=name,
        paper=PAPER_ROWS.get(name),
        parameters=found[0].parameters,
        steps=average("steps"),
        tokens=average("tokens"),
        seconds=average("seconds"),
        perplexity=mean_or_none([one.perplexity for one in found]),
        bleu=fmean(one.bleu.value for one in found),
        margin=spread.margin(len(found)) if spread.degrees_of_freedom else found[0].bleu.margin_of_error,
        compound_bleu=fmean(one.compound_bleu.value for one in found),
        flops=average("flops"),
        flops_from_time=average("flops_by_time"),
        difference=difference,
    )


def compute_difference(
    name: str, own: list[TrialResult], first: list[TrialResult], spread: SeedVariance
) -> Difference:
    """From the Transformer, in BLEU. With one seed each, chance is that of the test's sentences alone."""
    ours = fmean(one.bleu.value for one in own) - fmean(one.bleu.value for one in first)
    row = PAPER_ROWS.get(name)
    paper = PUBLISHED_SYSTEMS[row].bleu_difference if row else None
    margin = spread.margin(len(own), len(first))
    if (
        margin is None
        and own[0].bleu.margin_of_error is not None
        and first[0].bleu.margin_of_error is not None
    ):
        margin = math.hypot(own[0].bleu.margin_of_error, first[0].bleu.margin_of_error)
    return Difference(ours, paper, margin)
