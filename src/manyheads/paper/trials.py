"""Trials: one model of a table trained with one seed, and the measured result.

base-seed1/        the run folder, as `manyheads train` leaves it
base-seed1.json    the settings and the result; written last
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from manyheads import checkpoint
from manyheads.atomic_io import write_text_atomically
from manyheads.config import Config
from manyheads.cuda.device import describe_machine
from manyheads.data.store import Store
from manyheads.errors import CheckpointError, ConfigError, DataError
from manyheads.evaluate.bleu import Score, bleu_tokenizer
from manyheads.evaluate.perplexity import reference_perplexity
from manyheads.evaluate.report import evaluate
from manyheads.evaluate.significance import bleu_statistics
from manyheads.loading import load
from manyheads.model import count_parameters
from manyheads.paper.budget import count_tokens
from manyheads.paper.training_cost import compute_flops_per_token
from manyheads.train.run import CONFIG_FILE, train
from manyheads.train.run_summary import is_run
from manyheads.train.train_state import read_progress

FORMAT = 2
BOOTSTRAP_SAMPLES = 300  # for the confidence interval of BLEU


@dataclass(frozen=True)
class Trial:
    """A row of a table with one seed, and the split that BLEU is computed on."""

    row: str
    config: Config  # complete: includes data, budget and seed
    split: Literal["valid", "test"]

    @property
    def name(self) -> str:
        return f"{self.row}-seed{self.config.train.seed}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["row"], Config.from_mapping(data["config"]), data["split"])


@dataclass(frozen=True)
class TrialEnvironment:
    """The device that trials run on, its speed, and how many trials share it."""

    device: str
    flops_per_second: float  # of a large matrix product
    jobs: int  # concurrent runs
    jobs_per_gpu: int  # 1 on a CPU, where each run has its own threads


@dataclass(frozen=True)
class TrialResult:
    """The measurements of one trial."""

    row: str
    seed: int
    parameters: int
    steps: int
    tokens: int  # source and target tokens of training
    seconds: float  # of training
    flops: float  # of training, by formula
    flops_from_time: float  # seconds times the device's rate, the paper's estimate
    perplexity: float | None  # per subword of valid, unsmoothed; None: infinite
    bleu: Score
    compound_bleu: Score  # the paper's protocol
    split: str  # that BLEU is computed on
    jobs: int  # concurrent runs
    machine: str
    bleu_statistics: list[list[int]] = field(default_factory=list)  # of each sentence, for paired tests

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of a report, without those of each sentence."""
        data = asdict(self)
        del data["bleu_statistics"]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        scores = {name: Score(**data[name]) for name in ("bleu", "compound_bleu")}
        return cls(**{**data, **scores})


# ---- running


def run_trial(trial: Trial, folder: Path, environment: TrialEnvironment) -> bool:
    """Train, resuming an earlier run, and write the result. False: stopped by a signal; it can be resumed."""
    run = folder / trial.name
    if train(trial.config, run, device=environment.device) == "stopped":
        return False
    store = Store.open(trial.config.data.folder)
    data = {
        "format": FORMAT,
        "settings": collect_settings(trial, store),
        "result": asdict(evaluate_trial(trial, run, store, environment)),
    }
    write_text_atomically(result_path(folder, trial), json.dumps(data, ensure_ascii=False, indent=1) + "\n")
    return True


def evaluate_trial(trial: Trial, run: Path, store: Store, environment: TrialEnvironment) -> TrialResult:
    translator = load(run / "model", device=environment.device)
    sources, references = store.read_text(trial.split)
    evaluation = evaluate(translator, sources, [references], bootstrap_samples=BOOTSTRAP_SAMPLES, num_worst=0)
    perplexity = evaluation.perplexity
    if trial.split != "valid":
        perplexity, _ = reference_perplexity(translator, *store.read_text("valid"))
    progress = read_progress(checkpoint.read_info(checkpoint.list_checkpoints(run)[-1]))
    model = checkpoint.fit_to_vocabulary(trial.config.model, store.subwords)
    tokens = count_tokens(progress.step, trial.config, store)
    return TrialResult(
        row=trial.row,
        seed=trial.config.train.seed,
        parameters=count_parameters(model)["total"],
        steps=progress.step,
        tokens=tokens,
        seconds=progress.seconds,
        flops=compute_flops_per_token(model, store) * tokens,
        flops_from_time=progress.seconds * environment.flops_per_second / environment.jobs_per_gpu,
        perplexity=perplexity,
        bleu=evaluation.scores[0],
        compound_bleu=evaluation.scores[2],
        split=trial.split,
        jobs=environment.jobs,
        machine=describe_machine(environment.device),
        bleu_statistics=bleu_statistics(
            evaluation.translations, [references], bleu_tokenizer(translator.target_language)
        ),
    )


# ---- results of earlier calls


def load_result(folder: Path, trial: Trial, store: Store) -> TrialResult | None:
    """Load the result of a finished trial, or return None. Raise if it was started with other settings."""
    path = result_path(folder, trial)
    if not path.exists():
        check_started_run(folder, trial, store)
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        number, recorded = data["format"], data["settings"]
        result = TrialResult.from_dict(data["result"]) if number == FORMAT else None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{path}: not a result file of manyheads: move it away") from None
    if result is None:
        raise CheckpointError(
            f"{path}: has format {number}, but this version reads format {FORMAT}: "
            f"move it away, or choose another folder with --out"
        )
    defaults = flatten_config(Config(model=type(trial.config.model)()))  # of keys added since then
    check_unchanged(path, {**defaults, **recorded}, collect_settings(trial, store))
    return result


def check_started_run(folder: Path, trial: Trial, store: Store) -> None:
    run = folder / trial.name
    if run.is_dir() and is_run(run) and (run / CONFIG_FILE).exists():
        recorded = flatten_config(Config.load(run / CONFIG_FILE))
        check_unchanged(
            run, {**recorded, "data": store.sha256, "split": trial.split}, collect_settings(trial, store)
        )


def collect_settings(trial: Trial, store: Store) -> dict[str, Any]:
    """Return everything that a result depends on: the config, the checksum of the data, not its path."""
    fitted = replace(trial.config, model=checkpoint.fit_to_vocabulary(trial.config.model, store.subwords))
    return {**flatten_config(fitted), "data": store.sha256, "split": trial.split}


def flatten_config(config: Config) -> dict[str, Any]:
    """Return the settings by their names, as JSON holds them: a tuple is a list there."""
    tables = json.loads(json.dumps(asdict(config)))
    del tables["data"]["folder"]
    return {f"{table}.{key}": value for table, keys in tables.items() for key, value in keys.items()}


def check_unchanged(path: Path, recorded: dict[str, Any], requested: dict[str, Any]) -> None:
    changed = list(describe_differences(recorded, requested))
    if changed:
        raise ConfigError(
            f"{path}: was made with other settings ({'; '.join(changed)}): "
            f"use the same settings, or choose another folder with --out"
        )


def describe_differences(recorded: dict[str, Any], requested: dict[str, Any]) -> Iterator[str]:
    for key in sorted({*recorded, *requested}):
        before, after = recorded.get(key), requested.get(key)
        if before != after:
            yield "other data" if key == "data" else f"{key} was {before!r}, is {after!r}"


def result_path(folder: Path, trial: Trial) -> Path:
    return folder / f"{trial.name}.json"


def check_split(store: Store, split: str) -> None:
    if split not in store.splits:
        raise DataError(
            f"{store.folder}: has no {split} pairs, which this table is measured on: prepare the data "
            f"with --{split}, or hold some out with corpus.hold_out"
        )
