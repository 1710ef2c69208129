"""Training on a CUDA device: it learns in bfloat16, and resumes bit by bit in deterministic mode."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import Recipe
from manyheads.data.prepare import prepare
from manyheads.train import trainer as loop
from manyheads.train.log import read_log
from manyheads.train.run import train

pytestmark = pytest.mark.gpu

PAIRS = [
    (f"{who} has {n} {what}.", f"{누구} {무엇} {n}개 있다.")
    for n in range(40)
    for who, 누구 in (("She", "그녀는"), ("He", "그는"))
    for what, 무엇 in (("books", "책이"), ("cups", "컵이"))
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for side, code in enumerate(("en", "ko")):
        (folder / f"a.{code}").write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    tables: dict[str, Any] = {"train": [{"files": [f"{folder}/a.en", f"{folder}/a.ko"]}]}
    prepare(Recipe.from_mapping({**tables, "subwords": {"vocab_size": 340}}), folder / "data")
    return folder / "data"


def config(data: Path, **changes: Any) -> mh.Config:
    numbers: dict[str, Any] = {
        "steps": 40,
        "warmup": 10,
        "learning_rate": 3e-3,
        "log_every": 1,
        "bleu_sentences": 2,
        "card": False,
    }
    numbers |= {"validate_every": 20, "checkpoint_every": 10, "average_checkpoints": 2, **changes}
    return mh.Config(
        model=mh.TransformerConfig(layers=2, d_model=64, d_ff=128, heads=4),
        data=mh.DataConfig(folder=str(data), batch_tokens=600),
        train=mh.TrainConfig(**numbers),
    )


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in read_log(run / "log.jsonl") if line["event"] == "train"]


def test_it_learns_in_half_precision_and_reports_model_flops_utilization(data: Path, tmp_path: Path) -> None:
    assert train(config(data), tmp_path / "run", device="cuda") == "steps"
    own = losses(tmp_path / "run")
    assert own[-1] < 0.7 * own[0]
    lines = [line for line in read_log(tmp_path / "run" / "log.jsonl") if line["event"] == "train"]
    assert all(0 < line["mfu"] < 1 for line in lines)
    plain = config(data, precision="float32")
    train(plain, tmp_path / "plain", device="cuda")
    assert own[:5] == pytest.approx(losses(tmp_path / "plain")[:5], rel=0.02)
    weights = checkpoint.read_tensors(tmp_path / "run" / "model" / "weights.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


@pytest.mark.filterwarnings("ignore:.*script:DeprecationWarning")  # torch's compiler, of torch
def test_a_compiled_run_equals_the_plain_run(data: Path, tmp_path: Path) -> None:
    for name in ("plain", "compiled"):
        made = config(data, compile=name == "compiled")
        made = replace(made, model=replace(made.model, dropout=0.0))
        train(made, tmp_path / name, device="cuda")
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "plain"), rel=0.02)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_resumed_run_in_deterministic_mode_equals_the_uninterrupted_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    made = config(data, deterministic=True, precision=precision)
    train(made, tmp_path / "whole", device="cuda")
    step = loop.Trainer._step

    def failing_step(self: loop.Trainer, *rest: Any) -> None:
        if self.progress.step == 26:
            raise ZeroDivisionError
        step(self, *rest)

    monkeypatch.setattr(loop.Trainer, "_step", failing_step)
    with pytest.raises(ZeroDivisionError):
        train(made, tmp_path / "cut", device="cuda")
    monkeypatch.undo()
    train(made, tmp_path / "cut", device="cuda")
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    whole, resumed = (
        checkpoint.read_tensors(tmp_path / run / "model" / checkpoint.WEIGHTS) for run in ("whole", "cut")
    )
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
