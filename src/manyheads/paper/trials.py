"""A trial: one model of a table, trained in a run folder of its own, and what was measured of it.

base-seed1/        the run, as `manyheads train` leaves it
base-seed1.json    the settings that it was made with, and what came of it; written last
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from manyheads import checkpoint
from manyheads.config import Config
from manyheads.data.store import Store
from manyheads.errors import CheckpointError, ConfigError, DataError
from manyheads.evaluate.bleu import Score
from manyheads.evaluate.perplexity import reference_perplexity
from manyheads.evaluate.report import evaluate
from manyheads.model import count_parameters
from manyheads.paper.budget import count_tokens
from manyheads.paper.report import describe_machine
from manyheads.paper.training_cost import compute_flops_per_token
from manyheads.train.run import CONFIG_FILE, train
from manyheads.train.run_summary import is_run
from manyheads.train.train_state import read_progress
from manyheads.translator import load

FORMAT = 1
BOOTSTRAP_SAMPLES = 300  # samples of the sentences, for the spread of BLEU


@dataclass(frozen=True)
class Trial:
    """A row of a table with one seed, and on which split its translations are judged."""

    row: str
    config: Config  # whole: data, budget and seed in it
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
    """Where trials are carried out: how quick it is, and how many share it."""

    device: str
    flops_per_second: float  # of a matrix product, operations a second
    jobs: int  # runs at a time
    jobs_per_gpu: int  # of these on one GPU; on a CPU each has threads of its own


@dataclass(frozen=True)
class TrialResult:
    """What came of a trial."""

    row: str
    seed: int
    parameters: int
    steps: int
    tokens: int  # of source and target that were trained on
    seconds: float  # of training
    flops: float  # of training, by formula
    flops_from_time: float  # seconds times the device's rate, as the paper estimates it
    perplexity: float | None  # a subword of valid, unsmoothed; None: infinite
    bleu: Score
    compound_bleu: Score  # by the paper's protocol
    split: str  # that BLEU is of
    jobs: int  # runs at a time
    machine: str

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        scores = {name: Score(**data[name]) for name in ("bleu", "compound_bleu")}
        return cls(**{**data, **scores})


# ---- carried out


def run_trial(trial: Trial, folder: Path, environment: TrialEnvironment) -> bool:
    """Trains from where it was left, and judges. False: asked to stop, and it can go on."""
    run = folder / trial.name
    if train(trial.config, run, device=environment.device) == "stopped":
        return False
    store = Store.open(trial.config.data.folder)
    told = {
        "format": FORMAT,
        "settings": collect_settings(trial, store),
        "result": asdict(evaluate_trial(trial, run, store, environment)),
    }
    write_aside(result_path(folder, trial), json.dumps(told, ensure_ascii=False, indent=1) + "\n")
    return True


def evaluate_trial(trial: Trial, run: Path, store: Store, environment: TrialEnvironment) -> TrialResult:
    translator = load(run / "model", device=environment.device)
    sources, references = store.read_text(trial.split)
    found = evaluate(translator, sources, [references], bootstrap_samples=BOOTSTRAP_SAMPLES, num_worst=0)
    perplexity = found.perplexity
    if trial.split != "valid":
        perplexity, _ = reference_perplexity(translator, *store.read_text("valid"))
    stood = read_progress(checkpoint.read_info(checkpoint.list_checkpoints(run)[-1]))
    model = checkpoint.fit_to_vocabulary(trial.config.model, store.subwords)
    tokens = count_tokens(stood.step, trial.config, store)
    return TrialResult(
        row=trial.row,
        seed=trial.config.train.seed,
        parameters=count_parameters(model)["total"],
        steps=stood.step,
        tokens=tokens,
        seconds=stood.seconds,
        flops=compute_flops_per_token(model, store) * tokens,
        flops_from_time=stood.seconds * environment.flops_per_second / environment.jobs_per_gpu,
        perplexity=perplexity,
        bleu=found.scores[0],
        compound_bleu=found.scores[2],
        split=trial.split,
        jobs=environment.jobs,
        machine=describe_machine(environment.device),
    )


def write_aside(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.aside")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)


# ---- found again


def load_result(folder: Path, trial: Trial, store: Store) -> TrialResult | None:
    """What came of it, if it is done. One that was made or begun with other settings is refused."""
    path = result_path(folder, trial)
    if not path.exists():
        check_started_run(folder, trial, store)
        return None
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        then, result = told["settings"], TrialResult.from_dict(told["result"])
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{path}: not a result of ours: move it away") from None
    check_unchanged(
        path, {**flatten_config(Config()), **then}, collect_settings(trial, store)
    )  # keys that are newer than it
    return result


def check_started_run(folder: Path, trial: Trial, store: Store) -> None:
    run = folder / trial.name
    if run.is_dir() and is_run(run) and (run / CONFIG_FILE).exists():
        then = flatten_config(Config.load(run / CONFIG_FILE))
        check_unchanged(
            run, {**then, "data": store.sha256, "split": trial.split}, collect_settings(trial, store)
        )


def collect_settings(trial: Trial, store: Store) -> dict[str, Any]:
    """All that a result depends on. Where the data lie is not among it, what they are is."""
    fitted = replace(trial.config, model=checkpoint.fit_to_vocabulary(trial.config.model, store.subwords))
    return {**flatten_config(fitted), "data": store.sha256, "split": trial.split}


def flatten_config(config: Config) -> dict[str, Any]:
    tables = asdict(config)
    del tables["data"]["folder"]
    return {f"{table}.{key}": value for table, keys in tables.items() for key, value in keys.items()}


def check_unchanged(path: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    changed = list(describe_differences(then, now))
    if changed:
        raise ConfigError(
            f"{path}: was made with other settings ({'; '.join(changed)}): "
            f"ask for the same again, or choose another folder with --out"
        )


def describe_differences(then: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for key in sorted({*then, *now}):
        before, after = then.get(key), now.get(key)
        if before != after:
            yield "other data" if key == "data" else f"{key} was {before!r}, is {after!r}"


def result_path(folder: Path, trial: Trial) -> Path:
    return folder / f"{trial.name}.json"


def check_split(store: Store, split: str) -> None:
    if split not in store.splits:
        raise DataError(
            f"{store.folder}: has no pairs of {split}, which this table is measured on: prepare the data "
            f"with --{split}, or let corpus.hold_out set some apart"
        )
