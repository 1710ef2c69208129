"""A run can be cut anywhere, shared out and taken up again, and is the same run."""

import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import Recipe
from manyheads.data.prepare import prepare
from manyheads.train import trainer as loop
from manyheads.train.log import Bar, RunLog, read_log
from manyheads.train.loss import chunked_loss, reference_r_drop_loss
from manyheads.train.objective import Objective
from manyheads.train.optimizer import make_optimizers
from manyheads.train.run import train
from manyheads.train.run_summary import format_summary

SENTENCES = [
    (f"{who} {does} {n} {what}.", f"{누구} {무엇} {n} {하다}.")
    for n in range(1, 13)
    for who, 누구 in (("She", "그녀는"), ("He", "그는"), ("Mina", "미나는"))
    for what, 무엇 in (("books", "책"), ("apples", "사과"))
    for does, 하다 in (("sees", "본다"), ("buys", "산다"))
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for side, code in enumerate(("en", "ko")):
        text = "".join(f"{pair[side]}\n" for pair in SENTENCES)
        (folder / f"a.{code}").write_text(text, encoding="utf-8")
    files = [f"{folder}/a.en", f"{folder}/a.ko"]
    tables = {"train": [{"files": files}], "subwords": {"vocab_size": 330}, "corpus": {"hold_out": 7}}
    prepare(Recipe.from_mapping(tables), folder / "data")
    return folder / "data"


def config(data: Path, **changes: Any) -> mh.Config:
    model = {"layers": 1, "d_model": 16, "d_ff": 32, "heads": 2, "dropout": 0.1}
    training = {
        "steps": 12,
        "warmup": 4,
        "learning_rate": 5e-3,
        "log_every": 1,
        "validate_every": 4,
        "checkpoint_every": 3,
        "bleu_sentences": 3,
        "average_checkpoints": 2,
        "keep_checkpoints": 2,
    }
    for table in (model, training):
        table |= {key: changes.pop(key) for key in list(changes) if key in table}
    return mh.Config(
        model=mh.TransformerConfig(**model),
        data=mh.DataConfig(folder=str(data), batch_tokens=300),
        train=mh.TrainConfig(**training, **changes),
    )


def weights(run: Path) -> dict[str, Tensor]:
    return checkpoint.read_tensors(run / "model" / "weights.safetensors")


def losses(run: Path, kind: str = "train") -> list[float]:
    return [line["loss"] for line in read_log(run / "log.jsonl") if line["event"] == kind]


def without_times(run: Path) -> list[dict[str, Any]]:
    times = ("seconds", "tokens_per_second", "share_of_peak")
    return [
        {key: value for key, value in line.items() if key not in times}
        for line in read_log(run / "log.jsonl")
    ]


def identical(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert train(config(data), run, device="cpu") == "steps"
    return run


def test_a_run_leaves_what_the_design_names(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} == {
        "config.toml",
        "log.jsonl",
        "tensorboard",
        "checkpoints",
        "model",
    }
    told = checkpoint.read_info(whole / "model")
    assert (told.step, told.languages) == (12, {"source": "en", "target": "ko"})
    assert told.config.model.vocab_size == 330
    kept = [path.name for path in checkpoint.list_checkpoints(whole)]
    assert kept[-2:] == ["step-00000009", "step-00000012"]
    valid = [line for line in read_log(whole / "log.jsonl") if line["event"] == "valid"]
    assert [line["step"] for line in valid] == [4, 8, 12]
    assert all("tok:char" in line["signature"] for line in valid)
    assert losses(whole)[-1] < losses(whole)[0]


def test_the_same_run_twice_is_the_same_to_the_bit(data: Path, whole: Path, tmp_path: Path) -> None:
    train(config(data), tmp_path / "run", device="cpu")
    assert identical(weights(tmp_path / "run"), weights(whole))
    assert without_times(tmp_path / "run") == without_times(whole)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_run_cut_after_any_step_is_the_uninterrupted_one(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Without a word of warning: nothing is saved at the cut."""
    step = loop.Trainer._step

    def falling(self: loop.Trainer, *rest: Any) -> None:
        if self.progress.step == cut:
            raise ZeroDivisionError
        step(self, *rest)

    monkeypatch.setattr(loop.Trainer, "_step", falling)
    with pytest.raises(ZeroDivisionError):
        train(config(data), tmp_path / "run", device="cpu")
    monkeypatch.undo()
    assert train(config(data), tmp_path / "run", device="cpu") == "steps"
    assert identical(weights(tmp_path / "run"), weights(whole))
    assert without_times(tmp_path / "run") == without_times(whole)


def test_a_finished_run_has_nothing_more_to_do(data: Path, whole: Path) -> None:
    before, log = weights(whole), without_times(whole)
    assert train(config(data), whole, device="cpu") == "steps"
    assert identical(weights(whole), before)
    assert without_times(whole) == log


def test_a_run_that_was_asked_to_stop_ends_as_the_uninterrupted_one(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoints that it wrote on being asked are not among those that are averaged."""
    for stop in (5, 10, 11):
        asking = lambda self, asked, stop=stop: "asked" if self.place.step == stop else None  # noqa: E731
        monkeypatch.setattr(loop.Trainer, "_reason_to_stop", asking)
        assert train(config(data), tmp_path / "run", device="cpu") == "asked"
        monkeypatch.undo()
    assert train(config(data), tmp_path / "run", device="cpu") == "steps"
    assert identical(weights(tmp_path / "run"), weights(whole))
    assert without_times(tmp_path / "run") == without_times(whole)


def test_the_best_checkpoint_is_there_though_none_was_due(data: Path, tmp_path: Path) -> None:
    train(config(data, validate_every=2, checkpoint_every=5), tmp_path / "run", device="cpu")
    valid = [line for line in read_log(tmp_path / "run" / "log.jsonl") if line["event"] == "valid"]
    best = min(valid, key=lambda line: line["loss"])["step"]
    assert checkpoint.read_info(checkpoint.checkpoint_path(tmp_path / "run", best)).step == best


@pytest.mark.parametrize(("micro_tokens", "parts"), [(300, 1), (160, 2), (85, 4), (1, 30)])
def test_a_batch_summed_up_of_parts_is_the_batch(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, micro_tokens: int, parts: int
) -> None:
    train(config(data, dropout=0.0), tmp_path / "plain", device="cpu")
    counts = count_parts(monkeypatch)
    train(config(data, dropout=0.0, micro_tokens=micro_tokens), tmp_path / "parts", device="cpu")
    assert max(counts) >= parts if parts > 4 else max(counts) == parts
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "plain"), abs=1e-5)


def count_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """In how many parts each update was computed."""
    counts: list[int] = []
    update, loss = loop.Trainer._update, loop.Trainer._loss

    def counted_update(self: loop.Trainer, batch: Any) -> dict[str, Any]:
        counts.append(0)
        return update(self, batch)

    def counted_loss(self: loop.Trainer, part: Any) -> tuple[Tensor, Tensor]:
        counts[-1] += 1
        return loss(self, part)

    monkeypatch.setattr(loop.Trainer, "_update", counted_update)
    monkeypatch.setattr(loop.Trainer, "_loss", counted_loss)
    return counts


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:.*script:DeprecationWarning")  # torch's compiler, of torch
def test_a_compiled_run_is_the_run(data: Path, tmp_path: Path) -> None:
    train(config(data, dropout=0.0), tmp_path / "plain", device="cpu")
    train(config(data, dropout=0.0, compile=True), tmp_path / "compiled", device="cpu")
    for kind in ("train", "valid"):
        assert losses(tmp_path / "compiled", kind) == pytest.approx(
            losses(tmp_path / "plain", kind), abs=1e-4
        )


@pytest.mark.heavy
def test_batches_of_every_shape_are_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch.compile makes of the model serves any number of sentences of any lengths."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    model = mh.Transformer(
        mh.TransformerConfig(vocab_size=50, layers=2, d_model=16, d_ff=32, heads=2, dropout=0.0)
    )
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    objective = Objective(model, mh.TrainConfig(compile=True))
    made: list[int] = []
    for sentences in (3, 7, 20, 2):
        source = mh.Packed.of([[3 + n % 5] * (2 + 3 * n % 11) for n in range(sentences)])
        target = mh.Packed.of([[4 + n % 5] * (2 + 5 * n % 7) for n in range(sentences)])
        total, _ = objective(source, target, target.tokens)
        expected = chunked_loss(model.hidden(source, target), model.output, target.tokens, mh.TrainConfig())
        torch.testing.assert_close(total, expected.total, rtol=1e-5, atol=1e-5)
        made.append(counter.frame_count)
    assert made[0] > 0
    assert set(made) == {made[0]}, "another shape was another program"


def test_a_changed_configuration_is_refused_by_its_keys(data: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(mh.ConfigError, match=r"train\.steps was 12, is 14.*--change-config"):
        train(config(data, steps=14), whole, device="cpu")


def test_a_batch_that_is_read_twice_is_told_to_agree(data: Path, whole: Path, tmp_path: Path) -> None:
    train(config(data, r_drop=4.0), tmp_path / "run", device="cpu")
    once, twice = (
        [one for one in read_log(run / "log.jsonl") if one["kind"] == "train"]
        for run in (whole, tmp_path / "run")
    )
    assert [one["flops"] for one in twice] == [2 * one["flops"] for one in once]
    assert [one["tokens"] for one in twice] == [one["tokens"] for one in once]
    assert twice[-1]["loss"] < 0.9 * twice[0]["loss"]
    assert [one["loss"] for one in twice] != pytest.approx([one["loss"] for one in once], rel=1e-3)


def test_the_objective_of_two_readings_is_the_definition() -> None:
    torch.manual_seed(1)
    model = mh.Transformer(
        mh.TransformerConfig(vocab_size=50, layers=1, d_model=16, d_ff=32, heads=2, dropout=0.3)
    )
    asked = mh.TrainConfig(r_drop=2.0)
    source, target = mh.Packed.of([[3, 4, 5], [6]]), mh.Packed.of([[7, 8], [9, 10, 11]])
    torch.manual_seed(2)
    total, nll = Objective(model.train(), asked)(source, target, target.tokens)
    torch.manual_seed(2)
    logits = model(source.duplicate(), target.duplicate()).view(2, len(target.tokens), 50)
    expected = reference_r_drop_loss(logits, target.tokens, asked)
    torch.testing.assert_close(total, expected.total)
    torch.testing.assert_close(nll, expected.nll)
    assert not torch.allclose(logits[0], logits[1], atol=0.1)


def test_agreement_of_readings_that_cannot_differ_is_refused(data: Path, tmp_path: Path) -> None:
    same = config(data, r_drop=2.0, dropout=0.0, steps=1)
    with pytest.raises(mh.ConfigError, match=r"train\.r_drop is 2, but model\.dropout and .* are 0.*rais"):
        train(same, tmp_path / "run", device="cpu")
    other = replace(same, model=replace(same.model, attention_dropout=0.1))
    assert train(other, tmp_path / "other", device="cpu") == "steps"


def test_no_more_than_micro_tokens_are_computed_at_once() -> None:
    assert mh.TrainConfig(micro_tokens=100).micro_batch_tokens == 100
    assert mh.TrainConfig(micro_tokens=100, r_drop=1.0).micro_batch_tokens == 50
    assert mh.TrainConfig(r_drop=1.0).micro_batch_tokens is None


def test_initial_weights_are_no_matter_to_a_run_that_has_begun(data: Path, tmp_path: Path) -> None:
    begun = config(data, steps=3)
    train(begun, tmp_path / "run", device="cpu")
    other = replace(begun, model=replace(begun.model, init_gain=2 * begun.model.init_gain))
    assert train(other, tmp_path / "run", device="cpu") == "steps"
    tuned = replace(other, train=replace(other.train, init_from=str(tmp_path / "run" / "model")))
    assert train(tuned, tmp_path / "tuned", device="cpu") == "steps"


def test_a_changed_configuration_may_be_insisted_on(data: Path, tmp_path: Path) -> None:
    train(config(data, steps=3), tmp_path / "run", device="cpu")
    assert train(config(data, steps=5), tmp_path / "run", change_config=True, device="cpu") == "steps"
    assert len(losses(tmp_path / "run")) == 5


def test_patience_and_time_end_a_run(data: Path, tmp_path: Path) -> None:
    stubborn = config(data, learning_rate=1e-12, validate_every=1, patience=2, steps=50)
    assert train(stubborn, tmp_path / "patient", device="cpu") == "patience"
    assert len(losses(tmp_path / "patient")) < 20
    assert train(config(data, seconds=0.01, steps=10**6), tmp_path / "short", device="cpu") == "seconds"
    assert (tmp_path / "short" / "model").exists()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_every_optimizer_learns_and_resumes_to_the_bit(data: Path, tmp_path: Path, optimizer: str) -> None:
    made = config(data, optimizer=optimizer, learning_rate=2e-3, clip_norm=1.0, weight_decay=0.01)
    train(made, tmp_path / "whole", device="cpu")
    train(replace(made, train=replace(made.train, steps=6)), tmp_path / "cut", device="cpu")
    train(made, tmp_path / "cut", change_config=True, device="cpu")
    assert losses(tmp_path / "whole")[-1] < losses(tmp_path / "whole")[0]
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert identical(weights(tmp_path / "cut"), weights(tmp_path / "whole"))


def test_muon_has_the_matrices_inside_alone() -> None:
    untied = mh.TransformerConfig(
        vocab_size=50, layers=1, d_model=16, d_ff=32, heads=2, tie_embeddings="none"
    )
    model = mh.Transformer(untied)
    muon, adam = make_optimizers(model, mh.TrainConfig(optimizer="muon"))
    outside = {model.output.weight, model.source_embedding.weight, model.target_embedding.weight}
    assert outside <= set(adam.param_groups[0]["params"])
    assert model.encoder[0].feed_forward.w_1.weight in set(muon.param_groups[0]["params"])  # type: ignore[union-attr]


# ---- faults


def fail_gradients(monkeypatch: pytest.MonkeyPatch, steps: set[int]) -> None:
    loss = loop.Trainer._loss

    def spoilt(self: loop.Trainer, part: Any) -> tuple[Tensor, Tensor]:
        total, nll = loss(self, part)
        return (total * float("nan"), nll) if self.progress.step + 1 in steps else (total, nll)

    monkeypatch.setattr(loop.Trainer, "_loss", spoilt)


def test_a_step_without_a_finite_gradient_is_skipped_and_counted(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_gradients(monkeypatch, {5, 6})
    assert train(config(data), tmp_path / "run", device="cpu") == "steps"
    lines = [line for line in read_log(tmp_path / "run" / "log.jsonl") if line["event"] == "train"]
    assert [line["skipped"] for line in lines] == [0] * 4 + [1] + [2] * 7
    assert all(torch.isfinite(one).all() for one in weights(tmp_path / "run").values())


def test_several_in_a_row_go_back_once_and_then_end_with_the_diagnosis(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_gradients(monkeypatch, set(range(7, 30)))
    message = "5 steps in a row had no finite gradient, the last of them step 11"
    with pytest.raises(mh.TrainingError, match=message):
        train(config(data, steps=30), tmp_path / "run", device="cpu")
    assert "back to step-00000006" in capsys.readouterr().err
    steps = [line["step"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["event"] == "train"]
    assert steps == list(range(1, 12))
    log = read_log(tmp_path / "run" / "log.jsonl")
    assert [line for line in log if line["event"] == "back"] == [
        {"kind": "back", "step": 6, "from": 11, "skipped": 5}
    ]
    assert "NaN" not in (tmp_path / "run" / "log.jsonl").read_text()
    assert "loss" in format_summary(tmp_path / "run")


def test_going_back_passes_over_a_damaged_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_gradients(monkeypatch, set(range(8, 30)))
    back = loop.Trainer._go_back

    def damaged(self: loop.Trainer) -> None:
        self.writer.wait()
        file = checkpoint.list_checkpoints(self.run_folder)[-1] / "weights.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        back(self)

    monkeypatch.setattr(loop.Trainer, "_go_back", damaged)
    with pytest.raises(mh.TrainingError):
        train(config(data, steps=30, validate_every=100), tmp_path / "run", device="cpu")
    assert "back to step-00000003" in capsys.readouterr().err


def test_a_skipped_step_leaves_running_statistics_alone(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = mh.Transformer.hidden

    def spoilt(self: mh.Transformer, *rest: Any) -> Tensor:
        if self.training and step_now() == 5:
            with torch.no_grad():
                self.encoder[0].around_feed_forward.norm.running_mean.fill_(float("nan"))  # type: ignore
            return hidden(self, *rest) * float("nan")
        return hidden(self, *rest)

    trainers: list[loop.Trainer] = []
    init = loop.Trainer.__init__
    monkeypatch.setattr(
        loop.Trainer, "__init__", lambda self, *rest: (init(self, *rest), trainers.append(self))[0]
    )
    step_now = lambda: trainers[-1].progress.step + 1  # noqa: E731
    monkeypatch.setattr(mh.Transformer, "hidden", spoilt)
    made = config(data)
    train(replace(made, model=replace(made.model, normalization="batch")), tmp_path / "run", device="cpu")
    assert all(loss is not None for loss in losses(tmp_path / "run", "valid"))


def test_learned_positions_end_where_they_end(data: Path, tmp_path: Path) -> None:
    made = config(data, bleu_sentences=7)
    short = replace(made.model, positions="learned", max_positions=14)
    made = replace(made, model=short, data=replace(made.data, max_length=14))
    assert train(made, tmp_path / "run", device="cpu") == "steps"


def test_a_checkpoint_that_was_being_replaced_comes_back(data: Path, tmp_path: Path) -> None:
    train(config(data, steps=3), tmp_path / "run", device="cpu")
    here = tmp_path / "run" / "checkpoints"
    (here / "step-00000003").rename(here / ".step-00000003.manyheads-old")
    assert train(config(data, steps=3), tmp_path / "run", device="cpu") == "steps"
    assert checkpoint.read_info(here / "step-00000003").step == 3


def test_tensorboard_holds_what_the_log_holds(whole: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(whole / "tensorboard"))
    events.Reload()
    drawn = [event.value for event in events.Scalars("train/loss")]
    assert drawn == pytest.approx(losses(whole), rel=1e-6)
    assert [event.step for event in events.Scalars("valid/bleu")] == [4, 8, 12]


def test_a_terminal_of_eighty_columns_shows_everything() -> None:
    shown = io.StringIO()
    bar = Bar(shown, 200, width=80)
    bar.step(120, 200)
    numbers = {"loss": 3.2, "perplexity": 9.9, "learning_rate": 7e-4, "tokens_per_second": 6e5}
    bar.log(120, 200, numbers | {"share_of_peak": 0.15, "bleu": 26.4, "left": 75})
    bar.say("valid at step 100")
    bar.close()
    text = " ".join(shown.getvalue().split())
    expected = "120/200", "loss 3.200", "perplexity 9.90", "rate 7.00e-04", "600,000 tokens/s"
    for part in (*expected, "15% of peak", "BLEU 26.40", "0:01:15 left", "valid at step 100"):
        assert part in text


def test_a_full_disk_under_the_log_is_said_with_its_name(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    log = RunLog(tmp_path, 0)
    log.close()
    monkeypatch.setattr(log, "file", Full())
    with pytest.raises(mh.ResourceError, match=r"log\.jsonl: no room; about \d+ bytes"):
        log.write("train", 1, {"loss": 1.0})


def test_faults_that_pass_leave_the_run_as_if_they_had_not_been(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine's fault, not the model's: on going back the same steps are sound."""
    loss = loop.Trainer._loss
    failed: list[int] = []

    def once(self: loop.Trainer, part: Any) -> tuple[Tensor, Tensor]:
        total, nll = loss(self, part)
        if self.progress.step + 1 in range(7, 12) and len(failed) < 5:
            failed.append(self.progress.step)
            return total * float("nan"), nll
        return total, nll

    monkeypatch.setattr(loop.Trainer, "_loss", once)
    assert train(config(data), tmp_path / "run", device="cpu") == "steps"
    assert identical(weights(tmp_path / "run"), weights(whole))


def test_steps_go_on_while_a_checkpoint_is_written_and_do_not_change_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, step, further = checkpoint.save, loop.Trainer._step, threading.Event()
    waited: list[bool] = []

    def slow(folder: Path, tensors: dict[str, Tensor], *rest: Any, **more: Any) -> None:
        if folder.name == "step-00000003":
            before = {name: one.clone() for name, one in tensors.items()}
            waited.append(further.wait(20))
            assert identical(tensors, before)
        save(folder, tensors, *rest, **more)

    def told(self: loop.Trainer, batch: Any) -> None:
        step(self, batch)
        if self.progress.step == 3:  # saved, and being written
            assert not checkpoint.checkpoint_path(self.run_folder, 3).exists()
        if self.progress.step == 5:
            further.set()

    monkeypatch.setattr(checkpoint, "save", slow)
    monkeypatch.setattr(loop.Trainer, "_step", told)
    given = config(data, validate_every=10**6, checkpoint_every=3, keep_checkpoints=9)
    assert train(given, tmp_path / "run", device="cpu") == "steps"
    assert waited == [True]
    saved = checkpoint.read_tensors(checkpoint.checkpoint_path(tmp_path / "run", 3) / "weights.safetensors")
    train(
        config(data, steps=3, average_checkpoints=1, validate_every=10**6), tmp_path / "short", device="cpu"
    )
    assert identical(saved, weights(tmp_path / "short"))


def test_what_goes_wrong_in_writing_a_checkpoint_ends_the_run_soon(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, *rest: Any, **more: Any) -> None:
        raise mh.ResourceError(f"{folder}: no room")

    monkeypatch.setattr(checkpoint, "save", full)
    given = config(data, steps=200, validate_every=10**6, checkpoint_every=50)
    with pytest.raises(mh.ResourceError, match="step-00000050: no room"):
        train(given, tmp_path / "run", device="cpu")
    assert 50 <= len(losses(tmp_path / "run")) < 100


def slow_saves(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    save = checkpoint.save

    def slow(*given: Any, **more: Any) -> None:
        time.sleep(seconds)
        save(*given, **more)

    monkeypatch.setattr(checkpoint, "save", slow)


def test_a_run_that_fails_ends_when_its_checkpoint_is_written(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_saves(monkeypatch, 1.0)
    step = loop.Trainer._step

    def failing(self: loop.Trainer, batch: Any) -> None:
        if self.progress.step == 4:
            raise mh.DataError("unreadable")
        step(self, batch)

    monkeypatch.setattr(loop.Trainer, "_step", failing)
    with pytest.raises(mh.DataError, match="unreadable"):
        train(config(data, validate_every=10**6), tmp_path / "run", device="cpu")
    assert [checkpoint.read_info(one).step for one in checkpoint.list_checkpoints(tmp_path / "run")] == [3]
    assert not [one.name for one in threading.enumerate() if one.name.startswith("manyheads-background")]


def test_going_back_waits_for_the_checkpoint_that_is_being_written(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow_saves(monkeypatch, 1.0)
    fail_gradients(monkeypatch, set(range(7, 30)))
    with pytest.raises(mh.TrainingError):
        train(config(data, steps=30, validate_every=100), tmp_path / "run", device="cpu")
    assert "back to step-00000006" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    data: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(config(data, steps=9), tmp_path / "run", device="cpu")
    newest = checkpoint.list_checkpoints(tmp_path / "run")[-1]
    file = newest / "optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    train(config(data), tmp_path / "run", change_config=True, device="cpu")
    told = capsys.readouterr().err
    assert "step-00000009/optimizer.safetensors: damaged" in told
    assert (tmp_path / "run" / "checkpoints" / "step-00000009.damaged").exists()
    assert "goes on after step 8" in told
    assert identical(weights(tmp_path / "run"), weights(whole))


def test_a_checkpoint_damaged_while_the_run_went_on_is_left_out_of_the_mean(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    choose = loop.Trainer._choose_model

    def damaged(self: loop.Trainer) -> None:
        file = checkpoint.checkpoint_path(self.run_folder, 9) / "weights.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        choose(self)

    monkeypatch.setattr(loop.Trainer, "_choose_model", damaged)
    assert train(config(data), tmp_path / "run", device="cpu") == "steps"
    assert "step-00000009/weights.safetensors: damaged" in capsys.readouterr().err
    assert checkpoint.read_info(tmp_path / "run" / "model").step == 12


def test_a_log_that_the_power_failed_under_is_taken_up(data: Path, whole: Path, tmp_path: Path) -> None:
    train(config(data, steps=9), tmp_path / "run", device="cpu")
    with (tmp_path / "run" / "log.jsonl").open("ab") as file:
        file.write(b"\0" * 500)
    train(config(data), tmp_path / "run", change_config=True, device="cpu")
    assert without_times(tmp_path / "run") == without_times(whole)


def test_a_damaged_description_is_no_obstacle(data: Path, whole: Path, tmp_path: Path) -> None:
    train(config(data, steps=9), tmp_path / "run", device="cpu")
    newest = checkpoint.list_checkpoints(tmp_path / "run")[-1]
    (newest / "manyheads.json").write_text("{")
    train(config(data), tmp_path / "run", change_config=True, device="cpu")
    assert identical(weights(tmp_path / "run"), weights(whole))


def test_where_no_checkpoint_is_sound_nothing_is_touched(data: Path, tmp_path: Path) -> None:
    train(config(data, steps=6), tmp_path / "run", device="cpu")
    for folder in checkpoint.list_checkpoints(tmp_path / "run"):
        (folder / "manyheads.json").write_text('{"format": 2}')
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(
        mh.CheckpointError, match=r"not one checkpoint is sound.*format 2.*will not begin anew"
    ):
        train(config(data, steps=6), tmp_path / "run", device="cpu")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_other_data_and_other_subwords_are_not_gone_on_with(data: Path, tmp_path: Path) -> None:
    train(config(data, steps=3), tmp_path / "run", device="cpu")
    tables = json.loads((data / "corpus.json").read_text())["recipe"]
    other = dict(tables, corpus={**tables["corpus"], "hold_out": 5})
    again = prepare(Recipe.from_mapping(other), tmp_path / "again")
    made = config(tmp_path / "again", steps=3)
    with pytest.raises(mh.ConfigError, match="were prepared anew"):
        train(made, tmp_path / "run", device="cpu")
    same_size = len(again.subwords.source) == 330
    assert same_size
    with pytest.raises(mh.CheckpointError, match="was trained with other subwords than the data's"):
        train(made, tmp_path / "run", change_config=True, device="cpu")


def test_what_a_killed_run_left_half_done_is_cleared_away(data: Path, tmp_path: Path) -> None:
    train(config(data, steps=3), tmp_path / "run", device="cpu")
    here = tmp_path / "run" / "checkpoints"
    for name in ("step-00000001.gone", ".step-00000006.manyheads-part"):
        (here / name).mkdir()
        (here / name / "half").write_text("half")
    train(config(data, steps=6), tmp_path / "run", change_config=True, device="cpu")
    assert all(path.name.startswith("step-") and path.suffix == "" for path in here.iterdir())


def test_two_processes_do_not_train_in_one_folder(data: Path, tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "run").mkdir()
    handle = os.open(tmp_path / "run", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(mh.DataError, match="another process is writing it"):
        train(config(data), tmp_path / "run", device="cpu")
    os.close(handle)


def test_the_optimizer_of_a_run_cannot_change(data: Path, tmp_path: Path) -> None:
    train(config(data, steps=3), tmp_path / "run", device="cpu")
    with pytest.raises(mh.CheckpointError, match="optimizer of a run cannot change"):
        train(config(data, steps=6, optimizer="muon"), tmp_path / "run", change_config=True, device="cpu")


def test_wrong_devices_and_lengths_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(mh.ConfigError, match="'tpu', but must be cpu or cuda"):
        train(config(data), tmp_path / "run", device="tpu")
    learned = replace(
        config(data), model=mh.TransformerConfig(layers=1, positions="learned", max_positions=100)
    )
    with pytest.raises(mh.ConfigError, match=r"data\.max_length is 256, but learned positions reach 100"):
        train(learned, tmp_path / "run", device="cpu")


# ---- from outside


def command(data: Path, folder: Path, **changes: Any) -> list[str]:
    config(data, **changes).save(folder / "run.toml")
    return [sys.executable, "-m", "manyheads", "train", f"{folder}/run.toml", "--device", "cpu"]


def test_asked_to_stop_it_saves_and_says_75_and_goes_on_as_if_nothing_had_happened(
    data: Path, tmp_path: Path
) -> None:
    call = command(data, tmp_path, steps=400, checkpoint_every=100, validate_every=100)
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        while "step 5 of" not in child.stderr.readline():
            pass
        child.send_signal(signal.SIGTERM)
        told = child.stderr.read()
    assert child.returncode == 75
    assert "stopped as asked; the same command goes on" in told
    stopped = checkpoint.read_info(checkpoint.list_checkpoints(tmp_path / "run")[-1]).step
    assert 5 <= stopped < 400
    again = subprocess.run(call, stderr=subprocess.PIPE, text=True)
    assert again.returncode == 0, again.stderr
    assert f"goes on after step {stopped}" in again.stderr
    assert [
        line["step"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["event"] == "train"
    ] == list(range(1, 401))


def with_ranks(number: int, call: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={number}"]
    return subprocess.run([*launcher, *call[1:]], env=environment, capture_output=True, text=True)


def test_asked_twice_it_leaves_at_once(data: Path, tmp_path: Path) -> None:
    """Though it is saving, which would take a minute, in one call that no handler of Python's interrupts."""
    spoil = """
import threading
from manyheads import checkpoint
def slow(folder, *rest, **more):
    print("saving", flush=True)
    threading.Event().wait(60)
checkpoint.save = slow"""
    call = spoilt_command(tmp_path, spoil, command(data, tmp_path, steps=10**6, checkpoint_every=10**6))
    call += ["train.validate_every=1000000"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        while "step 5 of" not in child.stderr.readline():
            pass
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "saving\n"
        time.sleep(1)
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 75
    assert checkpoint.list_checkpoints(tmp_path / "run") == []


def ranks(number: int, call: list[str]) -> None:
    done = with_ranks(number, call)
    assert done.returncode == 0, done.stderr


def spoilt_command(folder: Path, spoil: str, call: list[str]) -> list[str]:
    """The same command by way of a script that breaks something first."""
    script = folder / "spoilt.py"
    imports = "import os", "from manyheads import cli, errors", "from manyheads.train import loop"
    script.write_text("\n".join([*imports, 'rank = os.environ.get("RANK")', spoil, "cli.main()\n"]))
    return [call[0], str(script), *call[3:]]


def test_one_rank_failing_ends_all_with_its_error(data: Path, tmp_path: Path) -> None:
    spoil = """
step = loop.Trainer._step
def failing(self, batch):
    if rank == "1" and self.place.step == 3:
        raise errors.DataError("rank 1 cannot read its share")
    step(self, batch)
loop.Trainer._step = failing"""
    done = with_ranks(2, spoilt_command(tmp_path, spoil, command(data, tmp_path, steps=10**6)))
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if line.startswith("manyheads: ")]
    assert ours[0] == "manyheads: rank 1 cannot read its share"
    assert all("lost another one" in line for line in ours[1:])


def test_what_is_not_finite_on_one_rank_is_skipped_on_all(data: Path, tmp_path: Path) -> None:
    spoil = """
loss = loop.Trainer._loss
def spoilt(self, part):
    total, nll = loss(self, part)
    return (total * float("nan") if rank == "1" and self.place.step == 4 else total), nll
loop.Trainer._loss = spoilt"""
    ranks(2, spoilt_command(tmp_path, spoil, command(data, tmp_path)))
    lines = [line for line in read_log(tmp_path / "run" / "log.jsonl") if line["event"] == "train"]
    assert [line["skipped"] for line in lines] == [0] * 4 + [1] * 8
    assert all(torch.isfinite(one).all() for one in weights(tmp_path / "run").values())


def test_a_rank_may_have_nothing_to_do(data: Path, tmp_path: Path) -> None:
    """Batches of a pair or two, so that the second rank's share is often empty."""
    few = replace(config(data, dropout=0.0), data=mh.DataConfig(folder=str(data), batch_tokens=13))
    train(few, tmp_path / "1" / "run", device="cpu")
    (tmp_path / "2").mkdir()
    ranks(2, [*command(data, tmp_path / "2", dropout=0.0), "data.batch_tokens=13"])
    assert losses(tmp_path / "2" / "run") == pytest.approx(losses(tmp_path / "1" / "run"), abs=1e-5)


def test_two_ranks_are_one_run_and_their_number_may_change(data: Path, tmp_path: Path) -> None:
    def go_on(number: int, folder: Path, steps: int) -> None:
        changes = {"dropout": 0.0, "steps": steps, "checkpoint_every": 25, "validate_every": 25}
        if number == 1:
            train(config(data, **changes), folder / "run", change_config=True, device="cpu")
        else:
            ranks(number, [*command(data, folder, **changes), "--change-config"])

    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        go_on(number, tmp_path / str(number), 25)
    for first, then in ((1, 1), (2, 2), (2, 1), (1, 2)):
        folder = tmp_path / f"{first}-{then}"
        shutil.copytree(tmp_path / str(first), folder)
        go_on(then, folder, 50)
        for kind in ("train", "valid"):
            one = losses(tmp_path / "1-1" / "run", kind)
            assert losses(folder / "run", kind) == pytest.approx(one, abs=1e-5)
            assert len(one) == (50 if kind == "train" else 2)


def test_fine_tuning_goes_on_where_it_was(data: Path, whole: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(whole / "model", other)
    tuned = config(data, init_from=str(other))
    train(tuned, tmp_path / "uncut", device="cpu")
    train(replace(tuned, train=replace(tuned.train, steps=6)), tmp_path / "cut", device="cpu")
    shutil.rmtree(other)  # a run that has begun needs it no more
    train(tuned, tmp_path / "cut", change_config=True, device="cpu")
    assert identical(weights(tmp_path / "cut"), weights(tmp_path / "uncut"))


def test_fine_tuning_begins_with_another_models_weights(data: Path, whole: Path, tmp_path: Path) -> None:
    tuned = config(data, init_from=str(whole / "model"), steps=1, learning_rate=1e-9)
    train(tuned, tmp_path / "run", device="cpu")
    assert losses(tmp_path / "run")[0] < losses(whole)[0] - 0.3
    other = data.parent / "other"
    tables = json.loads((data / "corpus.json").read_text())["recipe"]
    tables["subwords"]["vocab_size"] = 320
    if not other.exists():
        prepare(Recipe.from_mapping(tables), other)
    heads = config(data, init_from=str(whole / "model"), heads=4)
    with pytest.raises(mh.ConfigError, match=r"another model: model\.heads was 2, is 4"):
        train(heads, tmp_path / "heads", device="cpu")
    with pytest.raises(mh.ConfigError, match=r"whose subwords are not the data's: prepare.*reuse_from="):
        train(config(other, init_from=str(whole / "model")), tmp_path / "wrong", device="cpu")
