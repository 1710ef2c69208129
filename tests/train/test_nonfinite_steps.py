"""Steps without a finite gradient are skipped; several in a row roll the run back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import manyheads as mh
from manyheads import checkpoint
from manyheads.train.run import train
from manyheads.train.run_summary import format_summary
from manyheads.train.step import EagerStep, StepInput, StepResult
from manyheads.train.trainer import Trainer
from support.slow_saves import slow_down_saves
from support.small_run import are_identical, make_config, read_entries, read_losses, read_weights


def make_nonfinite(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], bool]) -> None:
    """Make the loss NaN in the steps for which `fails(step)` is true; it is called once a step."""
    run, loss = EagerStep.run, EagerStep._loss
    factor = 1.0

    def run_step(self: EagerStep, inputs: StepInput) -> StepResult:
        nonlocal factor
        factor = float("nan") if fails(inputs.step) else 1.0
        return run(self, inputs)

    def spoil_loss(self: EagerStep, batch: Any) -> tuple[Tensor, Tensor]:
        total, nll = loss(self, batch)
        return total * factor, nll

    monkeypatch.setattr(EagerStep, "run", run_step)
    monkeypatch.setattr(EagerStep, "_loss", spoil_loss)


def test_a_nonfinite_step_is_skipped_and_counted(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_nonfinite(monkeypatch, lambda step: step in (5, 6))
    assert train(make_config(data), tmp_path / "run", device="cpu") == "steps"
    skipped = [entry["skipped_steps"] for entry in read_entries(tmp_path / "run")]
    assert skipped == [0] * 4 + [1] + [2] * 7
    assert all(torch.isfinite(weight).all() for weight in read_weights(tmp_path / "run").values())


def test_nonfinite_steps_in_a_row_roll_back_once_and_then_fail(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_nonfinite(monkeypatch, lambda step: step >= 7)
    message = "5 steps in a row had no finite gradient, the last was step 11"
    with pytest.raises(mh.TrainingError, match=message):
        train(make_config(data, steps=30), tmp_path / "run", device="cpu")
    assert "back to step-00000006" in capsys.readouterr().err
    assert [entry["step"] for entry in read_entries(tmp_path / "run")] == list(range(1, 12))
    assert read_entries(tmp_path / "run", "rollback") == [
        {"event": "rollback", "step": 6, "from_step": 11, "skipped_steps": 5}
    ]
    assert "NaN" not in (tmp_path / "run" / "log.jsonl").read_text()
    assert "loss" in format_summary(tmp_path / "run")


def test_a_rollback_skips_a_damaged_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_nonfinite(monkeypatch, lambda step: step >= 8)
    roll_back = Trainer._roll_back

    def damage_and_roll_back(self: Trainer) -> None:
        self.checkpointer.writer.wait()
        file = checkpoint.list_checkpoints(self.run_folder)[-1] / "weights.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        roll_back(self)

    monkeypatch.setattr(Trainer, "_roll_back", damage_and_roll_back)
    with pytest.raises(mh.TrainingError):
        train(make_config(data, steps=30, validate_every=100), tmp_path / "run", device="cpu")
    assert "back to step-00000003" in capsys.readouterr().err


def test_a_rollback_from_transient_errors_ends_bit_identical(
    data: Path, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine failed, not the model: after the rollback the same steps are finite."""
    failed: list[int] = []

    def fails_once(step: int) -> bool:
        if step not in range(7, 12) or len(failed) == 5:
            return False
        failed.append(step)
        return True

    make_nonfinite(monkeypatch, fails_once)
    assert train(make_config(data), tmp_path / "run", device="cpu") == "steps"
    assert are_identical(read_weights(tmp_path / "run"), read_weights(finished_run))


def test_a_skipped_step_leaves_running_statistics_unchanged(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = mh.Transformer.hidden

    def spoil(self: mh.Transformer, *rest: Any) -> Tensor:
        if self.training and current_step() == 5:
            with torch.no_grad():
                self.encoder[0].feed_forward_residual.norm.running_mean.fill_(float("nan"))  # type: ignore
            return hidden(self, *rest) * float("nan")
        return hidden(self, *rest)

    trainers: list[Trainer] = []
    init = Trainer.__init__
    monkeypatch.setattr(
        Trainer, "__init__", lambda self, *rest: (init(self, *rest), trainers.append(self))[0]
    )
    current_step = lambda: trainers[-1].progress.step + 1  # noqa: E731
    monkeypatch.setattr(mh.Transformer, "hidden", spoil)
    config = make_config(data).override(["model.normalization=batch"])
    train(config, tmp_path / "run", device="cpu")
    assert all(loss is not None for loss in read_losses(tmp_path / "run", "valid"))


def test_a_rollback_waits_for_the_checkpoint_being_written(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow_down_saves(monkeypatch, 1.0)
    make_nonfinite(monkeypatch, lambda step: step >= 7)
    with pytest.raises(mh.TrainingError):
        train(make_config(data, steps=30, validate_every=100), tmp_path / "run", device="cpu")
    assert "back to step-00000006" in capsys.readouterr().err
