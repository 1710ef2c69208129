"""Checkpoints are written while training goes on."""

import threading
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import manyheads as mh
from manyheads import checkpoint
from manyheads.train.run import train
from manyheads.train.trainer import Trainer
from support.slow_saves import slow_down_saves
from support.small_run import are_identical, make_config, read_losses, read_weights


def test_steps_run_while_a_checkpoint_is_written_and_do_not_change_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, step, step_5_done = checkpoint.save, Trainer._step, threading.Event()
    waited: list[bool] = []

    def save_slowly(folder: Path, tensors: dict[str, Tensor], *rest: Any, **more: Any) -> None:
        if folder.name == "step-00000003":
            before = {name: tensor.clone() for name, tensor in tensors.items()}
            waited.append(step_5_done.wait(20))
            assert are_identical(tensors, before)
        save(folder, tensors, *rest, **more)

    def step_and_check(self: Trainer, batch: Any) -> None:
        step(self, batch)
        if self.progress.step == 3:  # being written
            assert not checkpoint.checkpoint_path(self.run_folder, 3).exists()
        if self.progress.step == 5:
            step_5_done.set()

    monkeypatch.setattr(checkpoint, "save", save_slowly)
    monkeypatch.setattr(Trainer, "_step", step_and_check)
    config = make_config(data, validate_every=10**6, checkpoint_every=3, keep_checkpoints=9)
    assert train(config, tmp_path / "run", device="cpu") == "steps"
    assert waited == [True]
    saved = checkpoint.read_tensors(checkpoint.checkpoint_path(tmp_path / "run", 3) / "weights.safetensors")
    train(
        make_config(data, steps=3, average_checkpoints=1, validate_every=10**6),
        tmp_path / "short",
        device="cpu",
    )
    assert are_identical(saved, read_weights(tmp_path / "short"))


def test_a_failed_checkpoint_ends_the_run_soon(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, *rest: Any, **more: Any) -> None:
        raise mh.ResourceError(f"{folder}: the disk is full")

    monkeypatch.setattr(checkpoint, "save", full)
    config = make_config(data, steps=200, validate_every=10**6, checkpoint_every=50)
    with pytest.raises(mh.ResourceError, match="step-00000050: the disk is full"):
        train(config, tmp_path / "run", device="cpu")
    assert 50 <= len(read_losses(tmp_path / "run")) < 100


def test_a_failing_run_waits_for_its_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_down_saves(monkeypatch, 1.0)
    step = Trainer._step

    def failing(self: Trainer, batch: Any) -> None:
        if self.progress.step == 4:
            raise mh.DataError("unreadable")
        step(self, batch)

    monkeypatch.setattr(Trainer, "_step", failing)
    with pytest.raises(mh.DataError, match="unreadable"):
        train(make_config(data, validate_every=10**6), tmp_path / "run", device="cpu")
    assert [
        checkpoint.read_info(folder).step for folder in checkpoint.list_checkpoints(tmp_path / "run")
    ] == [3]
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("manyheads-writer")]
