"""One run of a table: equal budgets, going on, settings that changed, and what is measured of it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import manyheads as mh
from manyheads.data.batches import Batches
from manyheads.data.store import Store
from manyheads.errors import CheckpointError, ConfigError, DataError
from manyheads.evaluate.bleu import Score
from manyheads.paper import trials
from manyheads.paper.budget import Budget, count_steps, count_tokens, parse_budgets
from manyheads.paper.training_cost import compute_flops_per_token, measure_matmul_rate
from manyheads.paper.trial_worker import handle_request
from manyheads.paper.trials import Trial, TrialEnvironment, TrialResult, check_split, load_result, run_trial
from manyheads.train.flops import training_flops
from manyheads.train.log import read_log
from support.small_trials import MODEL, small_store, small_trial

HERE = TrialEnvironment("cpu", flops_per_second=1e9, jobs=1, jobs_per_gpu=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return small_store(tmp_path_factory.mktemp("little"))


# ---- budgets


@pytest.mark.parametrize(
    ("text", "amount", "unit", "formatted"),
    [
        ("2000000tokens", 2e6, "tokens", "2,000,000 tokens"),
        ("500steps", 500, "steps", "500 steps"),
        ("1.5s", 1.5, "s", "1.5 seconds"),
        ("4_000steps", 4000, "steps", "4,000 steps"),
    ],
)
def test_a_budget_is_an_amount_and_its_unit(text: str, amount: float, unit: str, formatted: str) -> None:
    assert Budget.parse(text) == Budget(amount, unit)
    assert str(Budget.parse(text)) == formatted


@pytest.mark.parametrize(
    "text", ["", "500", "0steps", "-5s", "1.5tokens", "3 hours", "s", "9" * 400 + "tokens"]
)
def test_an_invalid_budget_is_rejected_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be tokens, FLOPs, steps or seconds, such as 2000000tokens"):
        Budget.parse(text)


def test_both_units_adds_tokens_and_seconds() -> None:
    tokens, seconds = Budget(100, "tokens"), Budget(5, "s")
    assert parse_budgets([], False, 100, 5) == [tokens]
    assert parse_budgets([], True, 100, 5) == [tokens, seconds]
    assert parse_budgets(["7s"], True, 100, 5) == [Budget(7, "s"), tokens]
    assert parse_budgets(["9steps"], True, 100, 5) == [Budget(9, "steps"), seconds]
    with pytest.raises(ConfigError, match="only one of each unit is allowed"):
        parse_budgets(["7s", "9s"], False, 100, 5)


def test_a_token_budget_is_converted_to_steps(store: Store) -> None:
    config = small_trial(store).config
    batches = Batches(store.load_split("train"), config.data, seed=config.train.seed)
    count = batches.count_batches(0)
    drawn = [*(batches.get_batch(0, index) for index in range(count)), batches.get_batch(1, 0)]
    sizes = [len(batch.source.tokens) + len(batch.labels.tokens) for batch in drawn]
    assert count_tokens(count + 1, config, store) == sum(sizes)
    assert count_steps(sum(sizes), config, store) == count + 1
    assert count_steps(sum(sizes[:3]), config, store) == 3
    assert count_steps(sum(sizes[:3]) + 1, config, store) == 4
    assert Budget(sum(sizes[:3]), "tokens").apply_to(config, store).train.steps == 3


# ---- a trial


def test_a_trial_writes_a_run_and_its_result(store: Store, tmp_path: Path) -> None:
    trial = small_trial(store, "5steps")
    assert load_result(tmp_path, trial, store) is None
    assert run_trial(trial, tmp_path, HERE)
    result = load_result(tmp_path, trial, store)
    assert result is not None
    assert (result.row, result.seed, result.steps, result.split) == ("base", 1, 5, "valid")
    logged = [line["tokens"] for line in read_log(tmp_path / "base-seed1" / "log.jsonl") if "tokens" in line]
    assert result.tokens == sum(logged) == count_tokens(5, trial.config, store)
    model = mh.Transformer(mh.Config.load(tmp_path / "base-seed1" / "config.toml").model)
    assert result.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert result.flops_from_time == pytest.approx(result.seconds * 1e9)
    assert 1 < result.perplexity < 2 * result.parameters
    assert "tok:13a" in result.bleu.signature
    assert "compounds:split" in result.compound_bleu.signature


def test_a_time_budget_ends_a_run(store: Store, tmp_path: Path) -> None:
    trial = small_trial(store, "0.05s")
    assert run_trial(trial, tmp_path, replace(HERE, jobs_per_gpu=2))
    result = load_result(tmp_path, trial, store)
    assert result is not None
    assert 0.05 <= result.seconds < 2
    assert result.tokens == count_tokens(result.steps, trial.config, store)
    assert result.flops_from_time == pytest.approx(result.seconds * 1e9 / 2)  # half of a GPU


def test_a_finished_trial_is_not_repeated(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = small_trial(store, "1steps")
    run_trial(trial, tmp_path, HERE)
    monkeypatch.setattr(trials, "train", lambda *_, **__: pytest.fail("trained again"))
    assert load_result(tmp_path, trial, store) is not None


def test_an_interrupted_trial_resumes_to_the_same_result(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = small_trial(store, "6steps")
    with monkeypatch.context() as patched:
        patched.setattr("manyheads.train.run.watch_stop_signals", lambda: stop_after(3))
        assert not run_trial(trial, tmp_path / "cut", HERE)
    assert load_result(tmp_path / "cut", trial, store) is None
    for folder in ("cut", "whole"):
        assert run_trial(trial, tmp_path / folder, HERE)
    resumed, uninterrupted = (load_result(tmp_path / folder, trial, store) for folder in ("cut", "whole"))
    assert resumed is not None
    assert uninterrupted is not None
    assert (resumed.perplexity, resumed.bleu, resumed.steps) == (
        uninterrupted.perplexity,
        uninterrupted.bleu,
        uninterrupted.steps,
    )


@contextmanager
def stop_after(num_checks: int) -> Iterator[Callable[[], bool]]:
    answers = iter([False] * num_checks)
    yield lambda: next(answers, True)


def test_a_result_with_other_settings_is_rejected(store: Store, tmp_path: Path) -> None:
    run_trial(small_trial(store, "2steps"), tmp_path, HERE)
    longer = small_trial(store, "3steps", model_d_ff=32)
    with pytest.raises(ConfigError, match=r"model.d_ff was 16, is 32; .*train.steps was 2, is 3.*--out"):
        load_result(tmp_path, longer, store)


def test_a_started_run_with_other_settings_is_rejected(store: Store, tmp_path: Path) -> None:
    run_trial(small_trial(store, "2steps"), tmp_path, HERE)
    (tmp_path / "base-seed1.json").unlink()
    assert load_result(tmp_path, small_trial(store, "2steps"), store) is None
    with pytest.raises(ConfigError, match=r"base-seed1: was made with .*train.warmup was 2, is 9"):
        load_result(tmp_path, small_trial(store, "2steps", train_warmup=9), store)


def test_a_result_with_other_data_is_rejected(store: Store, tmp_path: Path) -> None:
    run_trial(small_trial(store, "1steps"), tmp_path, HERE)
    others = small_store(tmp_path / "others", seed=2)
    with pytest.raises(ConfigError, match="other data"):
        load_result(tmp_path, small_trial(others, "1steps"), others)


def test_data_may_be_moved(store: Store, tmp_path: Path) -> None:
    run_trial(small_trial(store, "1steps"), tmp_path, HERE)
    moved = tmp_path / "moved"
    moved.symlink_to(store.folder.resolve())
    again = Store.open(moved)
    assert load_result(tmp_path, small_trial(again, "1steps"), again) is not None


@pytest.mark.parametrize("text", ["", "{}", '{"settings": {}, "result": {"row": "base"}}', "[1]"])
def test_a_file_that_is_not_a_result_is_rejected(store: Store, tmp_path: Path, text: str) -> None:
    (tmp_path / "base-seed1.json").write_text(text)
    with pytest.raises(CheckpointError, match="not a result file of manyheads"):
        load_result(tmp_path, small_trial(store), store)


def test_missing_settings_have_their_defaults(store: Store, tmp_path: Path) -> None:
    trial = small_trial(store, "1steps")
    run_trial(trial, tmp_path, HERE)
    path = tmp_path / "base-seed1.json"
    data = json.loads(path.read_text())
    del data["settings"]["model.activation"]  # its value is the default
    path.write_text(json.dumps(data))
    assert load_result(tmp_path, trial, store) is not None


def test_a_trial_survives_json(store: Store) -> None:
    trial = small_trial(store)
    assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))) == trial


def test_a_missing_split_is_rejected(store: Store) -> None:
    check_split(store, "valid")
    with pytest.raises(DataError, match="has no dev pairs, which this table is measured on"):
        check_split(store, "dev")


def test_the_worker_reports_user_errors(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = small_trial(store, "1steps", data_max_length=2)
    environment = {"device": "cpu", "flops_per_second": 1.0, "jobs": 1, "jobs_per_gpu": 1}
    reply = handle_request({"trial": trial.to_dict(), "folder": str(tmp_path), "environment": environment})
    assert reply["status"] == "failed"
    assert "none of 120 pairs has at most 2 tokens" in reply["message"]
    assert reply["code"] == 3
    assert "---- base-seed1" in capsys.readouterr().err


# ---- arithmetic


def test_flops_per_token_are_the_mean_over_the_training_pairs(store: Store) -> None:
    split = store.load_split("train")
    pairs = [(len(split.source[n]), len(split.target[n])) for n in range(len(split))]
    each = [training_flops(MODEL, np.array([source]), np.array([target])) for source, target in pairs]
    assert compute_flops_per_token(MODEL, store) == pytest.approx(sum(each) / sum(map(sum, pairs)))


def test_the_rate_of_a_device_is_that_of_its_matrix_products() -> None:
    assert 1e8 < measure_matmul_rate("cpu", 1) < 1e13


def test_the_result_of_a_baseline_is_reused(store: Store, tmp_path: Path) -> None:
    """Its architecture has other config keys than the Transformer."""
    trial = replace(small_trial(store, "1steps"), row="rnn")
    trial = replace(trial, config=replace(trial.config, model=mh.presets.PRESETS["tiny-rnn"].model))
    score = Score("BLEU", 1.0, "v")
    result = TrialResult("rnn", 1, 1, 1, 1, 1.0, 1.0, 1.0, 2.0, score, score, "valid", 1, "a CPU")
    settings = trials.collect_settings(trial, store)
    data = {"format": trials.FORMAT, "settings": settings, "result": asdict(result)}
    trials.result_path(tmp_path, trial).write_text(json.dumps(data))
    assert load_result(tmp_path, trial, store) == result
