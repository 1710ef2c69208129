"""Stages that are stopped, and what the same command does then. The stages themselves do nothing here."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from manyheads.distill import run as run_module
from manyheads.distill.report import has_report
from manyheads.distill.run import distill
from manyheads.distill.state import DistillState
from support.distillation import REPORT


class Killed(BaseException):
    """Stands for a signal that leaves no time to clean up."""


def make_plan(run: Path, measures_again: bool = False, until: str | None = None) -> Any:
    return SimpleNamespace(
        check=lambda: None, run=run, list_settings=dict, command="", measures_again=measures_again,
        is_fixed=None, until=until,
    )  # fmt: skip


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The measurements that are made, by name. There are two, and the second may be interrupted."""
    made: list[str] = []

    def measure_all(plan: Any, state: DistillState) -> None:
        for name in ("quality", "speed"):
            state.measure(name, partial(made.append, name))

    monkeypatch.setattr(run_module, "STAGES", {"report": measure_all})
    monkeypatch.setattr(run_module, "build_report", lambda plan, state: {**REPORT, "seconds": state.seconds})
    return made


def test_a_call_may_end_after_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[str] = []
    stages = {name: partial(lambda name, plan, state: run.append(name), name) for name in "abc"}
    monkeypatch.setattr(run_module, "STAGES", stages)
    monkeypatch.setattr(run_module, "STAGE_TITLES", dict.fromkeys("abc", ""))
    monkeypatch.setattr(run_module, "has_report", lambda _: True)
    assert distill(make_plan(tmp_path, until="b")) == "until"
    assert distill(make_plan(tmp_path, until="b")) == "until"
    assert run == ["a", "b"]
    assert distill(make_plan(tmp_path)) == "done"
    assert run == ["a", "b", "c"]


def test_a_report_that_was_not_written_is_written_by_the_next_call(
    tmp_path: Path, measurements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "write_report", kill)
        with pytest.raises(Killed):
            distill(make_plan(tmp_path))
    assert DistillState.read(tmp_path).done == []
    assert distill(make_plan(tmp_path)) == "done"
    assert measurements == ["quality", "speed"]
    assert has_report(tmp_path)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["seconds"] == DistillState.read(tmp_path).seconds


@pytest.mark.parametrize("name", ["report.md", "report.json"])
def test_a_deleted_report_is_written_from_the_measurements(
    tmp_path: Path, measurements: list[str], name: str
) -> None:
    distill(make_plan(tmp_path))
    (tmp_path / name).unlink()
    distill(make_plan(tmp_path))
    assert has_report(tmp_path)
    assert measurements == ["quality", "speed"]


def test_measuring_again_goes_on_when_it_was_stopped(
    tmp_path: Path, measurements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    distill(make_plan(tmp_path))

    def measure_first_and_stop(plan: Any, state: DistillState) -> None:
        state.measure("quality", lambda: measurements.append("quality"))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "STAGES", {"report": measure_first_and_stop})
        assert distill(make_plan(tmp_path, measures_again=True)) == "stopped"
    assert distill(make_plan(tmp_path, measures_again=True)) == "done"
    assert measurements == ["quality", "speed", "quality", "speed"]
    distill(make_plan(tmp_path, measures_again=True))
    assert len(measurements) == 6


# Sends itself SIGTERM: while modules are imported, or later, where it is an interrupt as Ctrl-C is.
SIGNALED = """
import os, signal, sys, time
sys.argv = ["manyheads", "distill", "teacher"]
from manyheads.train import early_exit
from manyheads.train.preemption import interrupt_on_sigterm

if {is_early}:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
for number in (signal.SIGTERM, signal.SIGINT):
    try:
        with interrupt_on_sigterm():
            os.kill(os.getpid(), number)
            time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted")
time.sleep(0.2)  # in which the thread that ends the process would do so
"""


@pytest.mark.parametrize(
    ("is_early", "exit_code", "output"),
    [
        (True, 75, "manyheads: distill: stopped; the same command goes on\n"),
        (False, 0, "interrupted\ninterrupted\n"),
    ],
)
def test_sigterm_counts_from_the_first_import(is_early: bool, exit_code: int, output: str) -> None:
    command = [sys.executable, "-c", SIGNALED.format(is_early=is_early)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout + done.stderr) == (exit_code, output)
