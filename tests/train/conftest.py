"""Fixtures of the training tests: prepared data, and a run that was never interrupted."""

from pathlib import Path

import pytest

from manyheads.train.run import train
from support.small_run import make_config, prepare_data


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_data(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def finished_run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    assert train(make_config(data), run, device="cpu") == "steps"
    return run
