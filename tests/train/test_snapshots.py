"""Snapshots: small models of log-spaced steps, which show how a run began."""

from pathlib import Path

import numpy as np
import pytest

import manyheads as mh
from manyheads import checkpoint
from manyheads.checkpoint import run_checkpoints
from manyheads.look.training_walk import compare_checkpoints
from manyheads.train.run import train
from support.small_run import are_identical, make_config, read_weights


def test_snapshot_steps_double() -> None:
    steps = [step for step in range(1000) if checkpoint.is_snapshot_step(step)]
    assert steps == [0, 25, 50, 100, 200, 400, 800]


def test_a_run_keeps_small_models_of_its_first_steps(
    data: Path, finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_checkpoints, "FIRST_SNAPSHOT", 3)
    train(make_config(data, snapshots=True), tmp_path / "run", device="cpu")
    folders = checkpoint.list_snapshots(tmp_path / "run")
    assert list(map(checkpoint.parse_step, folders)) == [0, 3, 6, 12]
    assert are_identical(read_weights(tmp_path / "run"), read_weights(finished_run))
    exact = mh.load(checkpoint.list_checkpoints(tmp_path / "run")[-1], device="cpu")
    rounded = mh.load(folders[-1], device="cpu", engine="torch:float32")
    pair = ("She sees 3 books.", "그녀는 책 3 본다.")
    maps = [translator.attention(*pair).trace.cross[0][0] for translator in (exact, rounded)]
    np.testing.assert_allclose(maps[0], maps[1], atol=0.05)
    page = compare_checkpoints(tmp_path / "run", "She sees 3 books.", device="cpu")
    assert [snapshot["step"] for snapshot in page["snapshots"]] == [0, 3, 6, 12]
