"""A run that is interrupted anywfolder ends bit-identical, and survives damage."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import AugmentationConfig
from manyheads.train.final_model import FinalModel
from manyheads.train.run import train
from manyheads.train.trainer import Trainer
from support.small_run import (
    are_identical,
    make_config,
    read_log_without_times,
    read_weights,
)


@pytest.mark.parametrize("last_step", range(1, 12))
def test_a_run_killed_after_any_step_ends_bit_identical(
    data: Path, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_step: int
) -> None:
    """Nothing is saved when the run is killed."""
    step = Trainer._step

    def fail_at_step(self: Trainer, *rest: Any) -> None:
        if self.progress.step == last_step:
            raise ZeroDivisionError
        step(self, *rest)

    monkeypatch.setattr(Trainer, "_step", fail_at_step)
    with pytest.raises(ZeroDivisionError):
        train(make_config(data), tmp_path / "run", device="cpu")
    monkeypatch.undo()
    assert train(make_config(data), tmp_path / "run", device="cpu") == "steps"
    assert are_identical(read_weights(tmp_path / "run"), read_weights(finished_run))
    assert read_log_without_times(tmp_path / "run") == read_log_without_times(finished_run)


def test_a_run_stopped_by_signals_ends_bit_identical(
    data: Path, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoints that are written when it stops are not averaged."""
    for stop in (5, 10, 11):

        def stop_at_step(self: Trainer, should_stop: object, stop: int = stop) -> str | None:
            return "stopped" if self.progress.step == stop else None

        monkeypatch.setattr(Trainer, "_reason_to_stop", stop_at_step)
        assert train(make_config(data), tmp_path / "run", device="cpu") == "stopped"
        monkeypatch.undo()
    assert train(make_config(data), tmp_path / "run", device="cpu") == "steps"
    assert are_identical(read_weights(tmp_path / "run"), read_weights(finished_run))
    assert read_log_without_times(tmp_path / "run") == read_log_without_times(finished_run)


def test_a_resumed_run_with_augmentation_ends_bit_identical(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = AugmentationConfig(lower=0.2, typos=0.2, spacing=0.2, copied=0.2)
    config = replace(make_config(data), augmentation=rates)
    train(config, tmp_path / "whole", device="cpu")
    assert "augmentation, shares of the pairs: lower 0.2, typos 0.2," in capsys.readouterr().err
    monkeypatch.setattr(
        Trainer, "_reason_to_stop", lambda self, _: "stopped" if self.progress.step == 5 else None
    )
    assert train(config, tmp_path / "run", device="cpu") == "stopped"
    monkeypatch.undo()
    assert train(config, tmp_path / "run", device="cpu") == "steps"
    assert are_identical(read_weights(tmp_path / "run"), read_weights(tmp_path / "whole"))
    train(make_config(data), tmp_path / "plain", device="cpu")
    assert not are_identical(read_weights(tmp_path / "plain"), read_weights(tmp_path / "whole"))


def test_a_checkpoint_that_was_being_replaced_is_restored(data: Path, tmp_path: Path) -> None:
    train(make_config(data, steps=3), tmp_path / "run", device="cpu")
    folder = tmp_path / "run" / "checkpoints"
    (folder / "step-00000003").rename(folder / ".step-00000003.manyheads-old")
    assert train(make_config(data, steps=3), tmp_path / "run", device="cpu") == "steps"
    assert checkpoint.read_info(folder / "step-00000003").step == 3


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(
    data: Path, finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(make_config(data, steps=9), tmp_path / "run", device="cpu")
    newest = checkpoint.list_checkpoints(tmp_path / "run")[-1]
    file = newest / "optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    train(make_config(data), tmp_path / "run", change_config=True, device="cpu")
    output = capsys.readouterr().err
    assert "step-00000009/optimizer.safetensors: damaged" in output
    assert (tmp_path / "run" / "checkpoints" / "step-00000009.damaged").exists()
    assert "resumed after step 8" in output
    assert are_identical(read_weights(tmp_path / "run"), read_weights(finished_run))


def test_a_checkpoint_damaged_during_the_run_is_not_averaged(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = FinalModel.write

    def damage_and_write(self: FinalModel, *arguments: Any) -> dict[str, Any]:
        file = checkpoint.checkpoint_path(self.run_folder, 9) / "weights.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        return write(self, *arguments)

    monkeypatch.setattr(FinalModel, "write", damage_and_write)
    assert train(make_config(data), tmp_path / "run", device="cpu") == "steps"
    assert "step-00000009/weights.safetensors: damaged" in capsys.readouterr().err
    assert checkpoint.read_info(tmp_path / "run" / "model").step == 12


def test_a_log_that_ends_in_nul_bytes_is_repaired(data: Path, finished_run: Path, tmp_path: Path) -> None:
    train(make_config(data, steps=9), tmp_path / "run", device="cpu")
    with (tmp_path / "run" / "log.jsonl").open("ab") as file:
        file.write(b"\0" * 500)
    train(make_config(data), tmp_path / "run", change_config=True, device="cpu")
    assert read_log_without_times(tmp_path / "run") == read_log_without_times(finished_run)


def test_a_checkpoint_with_a_damaged_manifest_is_skipped(
    data: Path, finished_run: Path, tmp_path: Path
) -> None:
    train(make_config(data, steps=9), tmp_path / "run", device="cpu")
    newest = checkpoint.list_checkpoints(tmp_path / "run")[-1]
    (newest / "manyheads.json").write_text("{")
    train(make_config(data), tmp_path / "run", change_config=True, device="cpu")
    assert are_identical(read_weights(tmp_path / "run"), read_weights(finished_run))


def test_a_run_without_intact_checkpoints_is_left_untouched(data: Path, tmp_path: Path) -> None:
    train(make_config(data, steps=6), tmp_path / "run", device="cpu")
    for path in checkpoint.list_checkpoints(tmp_path / "run"):
        (path / "manyheads.json").write_text('{"format": 3}')
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(mh.CheckpointError, match=r"no checkpoint is intact.*format 3.*will not start over"):
        train(make_config(data, steps=6), tmp_path / "run", device="cpu")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_leftovers_of_a_killed_run_are_removed(data: Path, tmp_path: Path) -> None:
    train(make_config(data, steps=3), tmp_path / "run", device="cpu")
    folder = tmp_path / "run" / "checkpoints"
    for name in ("step-00000001.gone", ".step-00000006.manyheads-part"):
        (folder / name).mkdir()
        (folder / name / "half").write_text("half")
    train(make_config(data, steps=6), tmp_path / "run", change_config=True, device="cpu")
    assert all(path.name.startswith("step-") and path.suffix == "" for path in folder.iterdir())
