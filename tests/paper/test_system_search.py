"""The settings that are searched for every system of Table 2, and equal FLOPs."""

from pathlib import Path

import pytest

import manyheads as mh
from manyheads.data.store import Store
from manyheads.evaluate.bleu import Score
from manyheads.paper import systems
from manyheads.paper.budget import Budget
from manyheads.paper.scaled_presets import SCALES
from manyheads.paper.trials import TrialResult
from support.small_trials import small_store

STEPS = Budget(100, "steps")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder: Path = tmp_path_factory.mktemp("little")
    return small_store(folder)


def result(row: str, seed: int, perplexity: float, bleu: float) -> TrialResult:
    score = Score("BLEU", bleu, "tok:13a|v", 1.5)
    return TrialResult(
        row, seed, 1000, 100, 5000, 2.5, 1e9, 2e9, perplexity, score, score, "test", 2, "a CPU"
    )


def test_every_system_is_searched_with_the_same_settings(store: Store) -> None:
    search = systems.SystemSearch([0.5, 1], both_inits=True, validations=4)
    trials = systems.make_trials(["transformer", "rnn"], SCALES["playground"], STEPS, store, [1], search)
    assert [trial.row for trial in trials if trial.row.startswith("rnn")] == [
        "rnn-x0.5", "rnn", "rnn-x0.5-init2", "rnn-x1-init2",
    ]  # fmt: skip
    config = {trial.row: trial.config for trial in trials}
    model = config["transformer-x1-init2"].model
    assert isinstance(model, mh.TransformerConfig)
    assert model.init == "authors"
    assert config["rnn-x1-init2"].model.init_gain == 0.5
    assert {item.train.validate_every for item in config.values()} == {25}
    runs = [result(row, 1, float(number), 30) for number, row in enumerate(reversed(config), 1)]
    assert systems.select_best(runs, trials) == {"transformer": "transformer-x1-init2", "rnn": "rnn-x1-init2"}


def test_equal_flops_give_a_cheaper_model_more_steps(store: Store) -> None:
    trials = systems.make_trials(
        ["transformer", "big"], SCALES["playground"], Budget(2e10, "FLOPs"), store, [1]
    )
    steps = {trial.row: trial.config.train.steps for trial in trials}
    assert steps["transformer"] > 2 * steps["big"]
    assert Budget.parse("5e15FLOPs") == Budget(5e15, "FLOPs")
