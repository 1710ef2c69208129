"""Runs: what they leave, what ends them, and what may change when they resume."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import Recipe
from manyheads.data.prepare import prepare
from manyheads.train.checkpointing import Checkpointer
from manyheads.train.optimizer import make_optimizers
from manyheads.train.run import train
from support.small_run import (
    are_identical,
    make_config,
    read_entries,
    read_log_without_times,
    read_losses,
    read_weights,
)


def test_a_run_leaves_config_log_tensorboard_checkpoints_and_model(finished_run: Path) -> None:
    assert {path.name for path in finished_run.iterdir()} == {
        "config.toml",
        "log.jsonl",
        "tensorboard",
        "checkpoints",
        "model",
    }
    info = checkpoint.read_info(finished_run / "model")
    assert (info.step, info.languages) == (12, {"source": "en", "target": "ko"})
    assert info.config.model.vocab_size == 330
    kept = [path.name for path in checkpoint.list_checkpoints(finished_run)]
    assert kept[-2:] == ["step-00000009", "step-00000012"]
    valid = read_entries(finished_run, "valid")
    assert [entry["step"] for entry in valid] == [4, 8, 12]
    assert all("tok:char" in entry["signature"] for entry in valid)
    assert read_losses(finished_run)[-1] < read_losses(finished_run)[0]


def test_two_runs_of_one_config_are_bit_identical(data: Path, finished_run: Path, tmp_path: Path) -> None:
    train(make_config(data), tmp_path / "run", device="cpu")
    assert are_identical(read_weights(tmp_path / "run"), read_weights(finished_run))
    assert read_log_without_times(tmp_path / "run") == read_log_without_times(finished_run)


def test_resuming_a_finished_run_changes_nothing(data: Path, finished_run: Path) -> None:
    before, log = read_weights(finished_run), read_log_without_times(finished_run)
    assert train(make_config(data), finished_run, device="cpu") == "steps"
    assert are_identical(read_weights(finished_run), before)
    assert read_log_without_times(finished_run) == log


def test_the_best_checkpoint_is_kept_between_regular_ones(data: Path, tmp_path: Path) -> None:
    train(make_config(data, validate_every=2, checkpoint_every=5), tmp_path / "run", device="cpu")
    valid = read_entries(tmp_path / "run", "valid")
    best = min(valid, key=lambda entry: entry["loss"])["step"]
    assert checkpoint.read_info(checkpoint.checkpoint_path(tmp_path / "run", best)).step == best


def test_patience_and_the_time_limit_end_a_run(data: Path, tmp_path: Path) -> None:
    impatient = make_config(data, learning_rate=1e-12, validate_every=1, patience=2, steps=50)
    assert train(impatient, tmp_path / "impatient", device="cpu") == "patience"
    assert len(read_losses(tmp_path / "impatient")) < 20
    assert train(make_config(data, seconds=0.01, steps=10**6), tmp_path / "short", device="cpu") == "seconds"
    assert (tmp_path / "short" / "model").exists()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_every_optimizer_learns_and_resumes_bit_identically(
    data: Path, tmp_path: Path, optimizer: str
) -> None:
    config = make_config(data, optimizer=optimizer, learning_rate=2e-3, clip_norm=1.0, weight_decay=0.01)
    train(config, tmp_path / "uninterrupted", device="cpu")
    train(replace(config, train=replace(config.train, steps=6)), tmp_path / "resumed", device="cpu")
    train(config, tmp_path / "resumed", change_config=True, device="cpu")
    assert read_losses(tmp_path / "uninterrupted")[-1] < read_losses(tmp_path / "uninterrupted")[0]
    assert read_losses(tmp_path / "resumed") == read_losses(tmp_path / "uninterrupted")
    assert are_identical(read_weights(tmp_path / "resumed"), read_weights(tmp_path / "uninterrupted"))


def test_muon_updates_hidden_matrices_only() -> None:
    untied = mh.TransformerConfig(
        vocab_size=50, layers=1, d_model=16, d_ff=32, heads=2, tie_embeddings="none"
    )
    model = mh.Transformer(untied)
    muon, adam = make_optimizers(model, mh.TrainConfig(optimizer="muon"), list(model.parameters()))
    embeddings = {model.output.weight, model.source_embedding.weight, model.target_embedding.weight}
    assert embeddings <= set(adam.param_groups[0]["params"])
    assert model.encoder[0].feed_forward.w_1.weight in set(muon.param_groups[0]["params"])  # type: ignore[union-attr]


def test_validation_skips_pairs_beyond_learned_positions(data: Path, tmp_path: Path) -> None:
    config = make_config(data, bleu_sentences=7)
    config = config.override(["model.positions=learned", "model.max_positions=14", "data.max_length=14"])
    assert train(config, tmp_path / "run", device="cpu") == "steps"


def test_wrong_devices_and_lengths_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(mh.ConfigError, match="'tpu', but must be cpu or cuda"):
        train(make_config(data), tmp_path / "run", device="tpu")
    learned = replace(
        make_config(data), model=mh.TransformerConfig(layers=1, positions="learned", max_positions=100)
    )
    with pytest.raises(mh.ConfigError, match=r"data\.max_length is 256, but learned positions reach 100"):
        train(learned, tmp_path / "run", device="cpu")


def test_a_changed_config_is_refused_with_the_changed_key(
    data: Path, finished_run: Path, tmp_path: Path
) -> None:
    with pytest.raises(mh.ConfigError, match=r"train\.steps was 12, is 14.*--change-config"):
        train(make_config(data, steps=14), finished_run, device="cpu")


def test_change_config_allows_another_config(data: Path, tmp_path: Path) -> None:
    train(make_config(data, steps=3), tmp_path / "run", device="cpu")
    assert train(make_config(data, steps=5), tmp_path / "run", change_config=True, device="cpu") == "steps"
    assert len(read_losses(tmp_path / "run")) == 5


def test_init_gain_may_change_when_a_run_resumes(data: Path, tmp_path: Path) -> None:
    started = make_config(data, steps=3)
    train(started, tmp_path / "run", device="cpu")
    assert isinstance(started.model, mh.TransformerConfig)
    other = replace(started, model=replace(started.model, init_gain=2 * started.model.init_gain))
    assert train(other, tmp_path / "run", device="cpu") == "steps"
    tuned = replace(other, train=replace(other.train, init_from=str(tmp_path / "run" / "model")))
    assert train(tuned, tmp_path / "tuned", device="cpu") == "steps"


def test_the_architecture_of_a_run_cannot_change(data: Path, tmp_path: Path) -> None:
    started = make_config(data, steps=3)
    train(started, tmp_path / "run", device="cpu")
    other = replace(started, model=mh.RecurrentConfig(layers=1, d_model=16, d_ff=16))
    message = r"model\.architecture was 'transformer', is 'recurrent'.*model\.cell was none, is 'lstm'"
    with pytest.raises(mh.ConfigError, match=rf"started with another configuration.*{message}"):
        train(other, tmp_path / "run", device="cpu")
    with pytest.raises(mh.ConfigError, match=rf"the model of a run cannot change.*{message}"):
        train(other, tmp_path / "run", change_config=True, device="cpu")
    tuned = replace(other, train=replace(other.train, init_from=str(tmp_path / "run" / "model")))
    with pytest.raises(mh.ConfigError, match=rf"train\.init_from is .*, another model: {message}"):
        train(tuned, tmp_path / "tuned", device="cpu")


def test_the_optimizer_of_a_run_cannot_change(data: Path, tmp_path: Path) -> None:
    train(make_config(data, steps=3), tmp_path / "run", device="cpu")
    with pytest.raises(mh.CheckpointError, match="optimizer of a run cannot change"):
        train(
            make_config(data, steps=6, optimizer="muon"), tmp_path / "run", change_config=True, device="cpu"
        )


def test_other_data_and_other_subwords_are_refused(data: Path, tmp_path: Path) -> None:
    train(make_config(data, steps=3), tmp_path / "run", device="cpu")
    tables = json.loads((data / "corpus.json").read_text())["recipe"]
    other = dict(tables, corpus={**tables["corpus"], "hold_out": 5})
    store = prepare(Recipe.from_mapping(other), tmp_path / "other")
    config = make_config(tmp_path / "other", steps=3)
    with pytest.raises(mh.ConfigError, match="was prepared again"):
        train(config, tmp_path / "run", device="cpu")
    assert len(store.subwords.source) == 330  # the same size, but other subwords
    with pytest.raises(mh.CheckpointError, match="was trained with other subwords than the data's"):
        train(config, tmp_path / "run", change_config=True, device="cpu")


def test_two_processes_cannot_train_in_one_folder(data: Path, tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "run").mkdir()
    handle = os.open(tmp_path / "run", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(mh.DataError, match="another process is writing it"):
        train(make_config(data), tmp_path / "run", device="cpu")
    assert (tmp_path / "run").exists()  # it belongs to the other process
    os.close(handle)


def test_a_moved_run_folder_is_not_created_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run, save = tmp_path / "run", Checkpointer.save

    def move_and_save(checkpointer: Checkpointer) -> None:
        if run.exists():
            run.rename(tmp_path / "moved")
        save(checkpointer)

    monkeypatch.setattr(Checkpointer, "save", move_and_save)
    with pytest.raises(mh.CheckpointError, match=r"run: was moved or deleted while it was trained"):
        train(make_config(data), run, device="cpu")
    assert not run.exists()
    assert (tmp_path / "moved" / "log.jsonl").exists()
    assert "Traceback" not in capfd.readouterr().err  # of a thread


def test_a_run_folder_may_be_a_link(data: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    train(make_config(data, steps=2), tmp_path / "run", device="cpu")
    assert (tmp_path / "disk" / "model").is_dir()


def test_fine_tuning_resumes_bit_identically(data: Path, finished_run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(finished_run / "model", other)
    tuned = make_config(data, init_from=str(other))
    train(tuned, tmp_path / "uninterrupted", device="cpu")
    train(replace(tuned, train=replace(tuned.train, steps=6)), tmp_path / "resumed", device="cpu")
    shutil.rmtree(other)  # which a resumed run does not need
    train(tuned, tmp_path / "resumed", change_config=True, device="cpu")
    assert are_identical(read_weights(tmp_path / "resumed"), read_weights(tmp_path / "uninterrupted"))


def test_fine_tuning_starts_from_another_models_weights(
    data: Path, finished_run: Path, tmp_path: Path
) -> None:
    tuned = make_config(data, init_from=str(finished_run / "model"), steps=1, learning_rate=1e-9)
    train(tuned, tmp_path / "run", device="cpu")
    assert read_losses(tmp_path / "run")[0] < read_losses(finished_run)[0] - 0.3
    other = data.parent / "other"
    tables = json.loads((data / "corpus.json").read_text())["recipe"]
    tables["subwords"]["vocab_size"] = 320
    if not other.exists():
        prepare(Recipe.from_mapping(tables), other)
    heads = make_config(data, init_from=str(finished_run / "model"), heads=4)
    with pytest.raises(mh.ConfigError, match=r"another model: model\.heads was 2, is 4"):
        train(heads, tmp_path / "heads", device="cpu")
    with pytest.raises(mh.ConfigError, match=r"whose subwords are not the data's: prepare.*reuse_from="):
        train(make_config(other, init_from=str(finished_run / "model")), tmp_path / "wrong", device="cpu")
