"""The update step: micro-batches, R-Drop, compilation."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import manyheads as mh
from manyheads.train.loss import chunked_loss, reference_r_drop_loss
from manyheads.train.objective import Objective
from manyheads.train.run import train
from manyheads.train.step import EagerStep, StepInput, StepResult
from support.small_run import make_config, read_entries, read_losses


@pytest.mark.parametrize(("micro_tokens", "count"), [(300, 1), (160, 2), (85, 4), (1, 30)])
def test_micro_batches_add_up_to_the_batch(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, micro_tokens: int, count: int
) -> None:
    train(make_config(data, dropout=0.0), tmp_path / "whole", device="cpu")
    counts = count_micro_batches(monkeypatch)
    train(make_config(data, dropout=0.0, micro_tokens=micro_tokens), tmp_path / "split", device="cpu")
    assert max(counts) >= count if count > 4 else max(counts) == count
    assert read_losses(tmp_path / "split") == pytest.approx(read_losses(tmp_path / "whole"), abs=1e-5)


def count_micro_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each update appends the number of its micro-batches."""
    counts: list[int] = []
    run, loss = EagerStep.run, EagerStep._loss

    def run_and_count(self: EagerStep, inputs: StepInput) -> StepResult:
        counts.append(0)
        return run(self, inputs)

    def count_loss(self: EagerStep, batch: Any) -> tuple[Tensor, Tensor]:
        counts[-1] += 1
        return loss(self, batch)

    monkeypatch.setattr(EagerStep, "run", run_and_count)
    monkeypatch.setattr(EagerStep, "_loss", count_loss)
    return counts


def test_two_forward_passes_halve_the_micro_batch() -> None:
    assert mh.TrainConfig(micro_tokens=100).micro_batch_tokens == 100
    assert mh.TrainConfig(micro_tokens=100, r_drop=1.0).micro_batch_tokens == 50
    assert mh.TrainConfig(r_drop=1.0).micro_batch_tokens is None


def test_r_drop_runs_two_forward_passes(data: Path, finished_run: Path, tmp_path: Path) -> None:
    train(make_config(data, r_drop=4.0), tmp_path / "run", device="cpu")
    once, twice = read_entries(finished_run), read_entries(tmp_path / "run")
    assert [entry["flops"] for entry in twice] == [2 * entry["flops"] for entry in once]
    assert [entry["tokens"] for entry in twice] == [entry["tokens"] for entry in once]
    assert twice[-1]["loss"] < 0.9 * twice[0]["loss"]
    assert [entry["loss"] for entry in twice] != pytest.approx([entry["loss"] for entry in once], rel=1e-3)


def test_the_r_drop_objective_equals_the_reference() -> None:
    torch.manual_seed(1)
    model = mh.Transformer(
        mh.TransformerConfig(vocab_size=50, layers=1, d_model=16, d_ff=32, heads=2, dropout=0.3)
    )
    config = mh.TrainConfig(r_drop=2.0)
    source, target = mh.Packed.of([[3, 4, 5], [6]]), mh.Packed.of([[7, 8], [9, 10, 11]])
    torch.manual_seed(2)
    total, nll = Objective(model.train(), config)(source, target, target.tokens)
    torch.manual_seed(2)
    logits = model(source.duplicate(), target.duplicate()).view(2, len(target.tokens), 50)
    expected = reference_r_drop_loss(logits, target.tokens, config)
    torch.testing.assert_close(total, expected.total)
    torch.testing.assert_close(nll, expected.nll)
    assert not torch.allclose(logits[0], logits[1], atol=0.1)


def test_r_drop_without_dropout_is_refused(data: Path, tmp_path: Path) -> None:
    same = make_config(data, r_drop=2.0, dropout=0.0, steps=1)
    with pytest.raises(mh.ConfigError, match=r"train\.r_drop is 2, but model\.dropout and .* are 0.*rais"):
        train(same, tmp_path / "run", device="cpu")
    other = same.override(["model.attention_dropout=0.1"])
    assert train(other, tmp_path / "other", device="cpu") == "steps"


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:.*script:DeprecationWarning")  # torch's compiler, of torch
def test_a_compiled_run_has_the_same_losses(data: Path, tmp_path: Path) -> None:
    train(make_config(data, dropout=0.0), tmp_path / "whole", device="cpu")
    train(make_config(data, dropout=0.0, compile=True), tmp_path / "compiled", device="cpu")
    for event in ("train", "valid"):
        assert read_losses(tmp_path / "compiled", event) == pytest.approx(
            read_losses(tmp_path / "whole", event), abs=1e-4
        )


@pytest.mark.heavy
def test_batches_of_every_shape_share_one_compiled_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled model takes any number of sentences of any lengths."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    model = mh.Transformer(
        mh.TransformerConfig(vocab_size=50, layers=2, d_model=16, d_ff=32, heads=2, dropout=0.0)
    )
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    objective = Objective(model, mh.TrainConfig(compile=True))
    programs: list[int] = []
    for sentences in (3, 7, 20, 2):
        source = mh.Packed.of([[3 + n % 5] * (2 + 3 * n % 11) for n in range(sentences)])
        target = mh.Packed.of([[4 + n % 5] * (2 + 5 * n % 7) for n in range(sentences)])
        total, _ = objective(source, target, target.tokens)
        expected = chunked_loss(model.hidden(source, target), model.output, target.tokens, mh.TrainConfig())
        torch.testing.assert_close(total, expected.total, rtol=1e-5, atol=1e-5)
        programs.append(counter.frame_count)
    assert programs[0] > 0
    assert set(programs) == {programs[0]}, "another shape was compiled again"
