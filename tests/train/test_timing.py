"""Where the time of a run goes: in its log, in its messages, and in `inspect`."""

import os
import time
from pathlib import Path

import pytest

from manyheads.train import timing
from manyheads.train.run import train
from manyheads.train.run_summary import format_summary, summarize_run
from manyheads.train.timing import (
    StartupTimer,
    command_start,
    format_startup,
    format_time,
    process_age,
    summarize_time,
)
from support.small_run import make_config, read_entries


def test_a_startup_timer_adds_up_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([12.0, 15.0, 16.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    timer = StartupTimer(10.0)
    for stage in ("data", "model", "data"):
        timer.mark(stage)
    assert timer.to_entry() == {"seconds": 6.0, "data": 3.0, "model": 3.0}


def test_the_command_starts_with_its_process_or_where_the_launcher_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert 0 <= process_age() < time.monotonic()
    assert command_start() <= time.monotonic()
    monkeypatch.setenv(timing.START_VARIABLE, "3.5")
    assert command_start() == 3.5


def test_times_are_summed_over_the_entries_of_a_log() -> None:
    entries = [
        {"event": "start", "step": 0, "seconds": 5.0, "imports": 3.0, "first_step": 2.0, "compile": 1.5},
        {"event": "train", "step": 1, "run_seconds": 2.0},
        {"event": "valid", "step": 2, "seconds": 1.0, "run_seconds": 6.0},
        {"event": "checkpoint", "step": 2, "seconds": 0.5},
        {"event": "start", "step": 2, "seconds": 4.0, "restore": 4.0},
        {"event": "valid", "step": 4, "seconds": 2.0, "run_seconds": 10.0},
        {"event": "end", "step": 4, "run_seconds": 12.0, "finish_seconds": 1.25},
    ]
    summary = summarize_time(entries)
    assert summary["seconds"] == 12.0
    assert [start["step"] for start in summary["starts"]] == [0, 2]
    assert summary["validations"] == {"count": 2, "seconds": 3.0, "max_seconds": 2.0, "share": 0.25}
    assert summary["checkpoints"]["count"] == 1
    assert format_time(summary) == (
        "12.0 s of training, 2 validations 3.0 s (25.0%, at most 2.00 s each), "
        "1 checkpoint 0.5 s (4.2%, at most 0.50 s each), then 1.2 s for the final model"
    )
    assert format_startup(summary["starts"][0]) == (
        "first step 5.0 s after the command (imports 3.0, first step 2.0, of which 1.5 for kernels and "
        "CUDA graphs)"
    )
    assert summarize_time([])["seconds"] == 0.0


def test_a_log_without_times_is_summarized() -> None:
    entries = [{"event": event, "step": 1, "loss": 2.0} for event in ("train", "valid", "end")]
    summary = summarize_time(entries)
    assert (summary["validations"]["count"], summary["validations"]["seconds"]) == (1, 0)
    assert summary["finish"] is None


def test_a_run_logs_its_start_validations_checkpoints_and_end(finished_run: Path) -> None:
    (start,) = read_entries(finished_run, "start")
    assert start["step"] == 0
    stages = [start[key] for key in ("imports", "setup", "data", "model", "restore", "first_step")]
    assert min(stages) >= 0
    assert start["seconds"] == pytest.approx(sum(stages))
    validations = read_entries(finished_run, "valid")
    assert [entry["step"] for entry in validations] == [4, 8, 12]
    assert all(0 < entry["seconds"] <= entry["run_seconds"] for entry in validations)
    assert {3, 6, 9, 12} <= {entry["step"] for entry in read_entries(finished_run, "checkpoint")}
    (end,) = read_entries(finished_run, "end")
    times = [entry["run_seconds"] for entry in [*read_entries(finished_run), end]]
    assert times == sorted(times)
    assert end["finish_seconds"] > 0
    summary = summarize_run(finished_run)["time"]
    assert summary["seconds"] == end["run_seconds"]
    assert 0 < summary["validations"]["share"] + summary["checkpoints"]["share"] < 1
    text = format_summary(finished_run)
    assert "3 validations" in text
    assert "from step 0: first step" in text


def test_every_process_of_a_run_logs_its_start(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for steps in (3, 6):
        train(make_config(data, steps=steps), tmp_path / "run", device="cpu", change_config=True)
    starts = read_entries(tmp_path / "run", "start")
    assert [entry["step"] for entry in starts] == [0, 3]
    assert starts[1]["restore"] > 0
    messages = capsys.readouterr().err
    assert messages.count("s after the command (") == 2
    assert messages.count("s of training, ") == 2


def test_the_time_before_the_call_counts_as_imports(data: Path, tmp_path: Path) -> None:
    train(make_config(data, steps=1), tmp_path / "run", device="cpu", start=time.monotonic() - 100)
    (start,) = read_entries(tmp_path / "run", "start")
    assert 100 <= start["imports"] <= start["seconds"]
    assert timing.START_VARIABLE not in os.environ
