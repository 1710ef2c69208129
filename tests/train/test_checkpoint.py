"""A model folder is complete or absent; a damaged or foreign one is refused; nothing is unpickled."""

import errno
import json
import os
import pickle
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

import manyheads as mh
from manyheads import atomic_io, checkpoint
from manyheads.config import SubwordConfig
from manyheads.model import build_model
from manyheads.text.subwords import SubwordPair, SubwordTokenizer

TEXTS = ["나는 집에 간다.", "I go home.", "우리는 학교에 간다."] * 10
SUBWORDS = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=300))
PAIR = SubwordPair(SUBWORDS, SUBWORDS)
CONFIG = mh.Config(model=mh.TransformerConfig(vocab_size=300, layers=1, d_model=8, d_ff=8, heads=2))
LANGUAGES = {"source": "en", "target": "ko"}


def save_model(folder: Path, seed: int = 0, config: mh.Config = CONFIG) -> mh.Transformer:
    torch.manual_seed(seed)
    model = mh.Transformer(config.model)
    checkpoint.save(
        folder,
        checkpoint.collect_weights(model),
        PAIR,
        config,
        step=7,
        languages=LANGUAGES,
        training={"epoch": 2},
        optimizer={"a/exp_avg": torch.ones(3), "a/step": torch.tensor(7.0)},
    )
    return model


def test_a_loaded_model_equals_the_saved_one(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model")
    loaded, subwords, info = checkpoint.load_model(tmp_path / "model")
    source, target = mh.Packed.of([[5, 2]]), mh.Packed.of([[1, 9]])
    assert torch.equal(loaded(source, target), model.eval()(source, target))
    assert not loaded.training
    assert subwords.source.sha256 == SUBWORDS.sha256
    assert (info.step, info.languages, info.training, info.config) == (7, LANGUAGES, {"epoch": 2}, CONFIG)
    state = checkpoint.read_tensors(tmp_path / "model" / "optimizer.safetensors")
    assert {name: tensor.tolist() for name, tensor in state.items()} == {
        "a/exp_avg": [1.0, 1.0, 1.0],
        "a/step": 7.0,
    }


@pytest.mark.parametrize("tie_embeddings", ["three-way", "two-way", "none"])
def test_tied_matrices_are_stored_once_and_stay_tied(tmp_path: Path, tie_embeddings: Any) -> None:
    config = mh.Config(
        model=CONFIG.override([f"model.tie_embeddings={tie_embeddings}", "model.normalization=batch"]).model
    )
    save_model(tmp_path / "model", config=config)
    stored = checkpoint.read_tensors(tmp_path / "model" / "weights.safetensors")
    large = [name for name, tensor in stored.items() if tensor.shape == (300, 8)]
    assert len(large) == {"three-way": 1, "two-way": 2, "none": 3}[tie_embeddings]
    model, _, _ = checkpoint.load_model(tmp_path / "model")
    assert (model.output.weight is model.target_embedding.weight) == (tie_embeddings != "none")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_file_modes_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        save_model(tmp_path / "model")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()} == {mode}


def test_damage_in_any_file_is_reported_with_its_name(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    for path in sorted((tmp_path / "model").iterdir()):
        whole = path.read_bytes()
        if path.name == checkpoint.MANIFEST:
            continue  # below
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        for damaged in (flipped, whole[:-1], whole + b"x", b""):
            path.write_bytes(damaged)
            with pytest.raises(mh.CheckpointError, match=f"{path.name}: damaged"):
                checkpoint.load_model(tmp_path / "model")
        path.unlink()
        with pytest.raises(mh.CheckpointError, match=f"{path.name}: is missing"):
            checkpoint.load_model(tmp_path / "model")
        path.write_bytes(whole)
    checkpoint.load_model(tmp_path / "model")


def test_a_flipped_bit_in_the_manifest_is_detected(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    path = tmp_path / "model" / checkpoint.MANIFEST
    whole = path.read_bytes()
    original = json.loads(whole)
    for position in range(0, len(whole), 3):
        path.write_bytes(
            whole[:position] + bytes([whole[position] ^ 1 << position % 7]) + whole[position + 1 :]
        )
        try:
            checkpoint.read_info(tmp_path / "model")
        except mh.CheckpointError:
            continue
        kept = json.loads(path.read_bytes())
        assert all(kept.get(key) == original[key] for key in original if key != "sha256"), (
            "only white space differs"
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not the manifest of a model folder"),
        ("[1]", "not the manifest of a model folder"),
        ('{"format": 9}', "format 9, but this version reads format 2: update manyheads"),
        ('{"format": "1"}', "format 1, but this version reads"),
        (
            '{"format": 1}',
            "format 1 of an older development version, but this version reads format 2: train the model",
        ),
        (
            '{"format": 2, "step": 3}',
            "has no valid languages, training, config, files: train the model again",
        ),
    ],
)
def test_a_foreign_manifest_is_refused(tmp_path: Path, text: str, message: str) -> None:
    save_model(tmp_path / "model")
    (tmp_path / "model" / checkpoint.MANIFEST).write_text(text)
    with pytest.raises(mh.CheckpointError, match=message):
        checkpoint.load_model(tmp_path / "model")


class Trap:
    """If unpickled, it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_instead_of_weights_is_refused_and_not_executed(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    weights = tmp_path / "model" / checkpoint.WEIGHTS
    weights.write_bytes(pickle.dumps(Trap(tmp_path / "created")))
    manifest = json.loads((tmp_path / "model" / checkpoint.MANIFEST).read_text())
    manifest["files"][weights.name] = atomic_io.hash_file(weights)
    manifest["sha256"] = atomic_io.compute_checksum(manifest)
    (tmp_path / "model" / checkpoint.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(mh.CheckpointError, match=r"weights\.safetensors: not safetensors"):
        checkpoint.load_model(tmp_path / "model")
    assert not (tmp_path / "created").exists()


def test_a_manifest_has_the_keys_of_its_own_architecture_only(tmp_path: Path) -> None:
    """So a changed default of another architecture does not matter to it."""
    folder = tmp_path / "model"
    config = replace(CONFIG, model=mh.RecurrentConfig(vocab_size=300, layers=1, d_model=8, d_ff=8))
    recurrent = build_model(config.model)
    checkpoint.save(
        folder, checkpoint.collect_weights(recurrent), PAIR, config, step=1, languages=LANGUAGES, training={}
    )
    manifest = json.loads((folder / checkpoint.MANIFEST).read_text())
    assert not {"init", "norm"} & manifest["config"]["model"].keys()
    assert checkpoint.load_model(folder)[2].config.model == config.model
    manifest["config"]["model"] |= {"heads": 3, "norm": "pre"}
    manifest["sha256"] = atomic_io.compute_checksum(manifest)
    (folder / checkpoint.MANIFEST).write_text(json.dumps(manifest))
    message = r"manyheads\.json: model\.heads is 3, but the architecture 'recurrent' has no such key"
    with pytest.raises(mh.CheckpointError, match=message):
        checkpoint.load_model(folder)


def test_weights_of_another_model_are_refused_with_name_or_shape(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    for changes, message in (
        ({"vocab_size": 301}, r"is \[300, 8\], but the model's is \[301, 8\]"),
        ({"layers": 2}, r"lacks decoder\.1\."),
        ({"positions": "learned"}, "lacks source_positions"),
    ):
        other = mh.Transformer(replace(CONFIG.model, **changes))
        with pytest.raises(mh.CheckpointError, match=message):
            checkpoint.load_weights(other, tmp_path / "model")


def test_an_average_is_the_mean_of_each_weight(tmp_path: Path) -> None:
    folders = [tmp_path / "run" / "checkpoints" / f"step-{n:08d}" for n in (1000, 2000, 3000)]
    models = [save_model(folder, seed) for seed, folder in enumerate(folders)]
    mean = checkpoint.average_weights(folders[1:])
    for name, weight in mean.items():
        expected = sum(checkpoint.collect_weights(model)[name].double() for model in models[1:]) / 2
        assert torch.equal(weight, expected.to(weight.dtype))
    names = checkpoint.average_checkpoints(tmp_path / "run", 2, tmp_path / "m")
    assert names == ["step-00002000", "step-00003000"]
    assert checkpoint.load_model(tmp_path / "m")[2].step == 7
    with pytest.raises(mh.CheckpointError, match="4 checkpoints are requested, but it has 3: use --last 3"):
        checkpoint.average_checkpoints(tmp_path / "run", 4, tmp_path / "m")


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that limits how many bytes can be written, after which the disk is full."""
    write = Path.write_bytes

    def limit(size: int) -> None:
        left = [size]

        def full(path: Path, data: bytes) -> int:
            write(path, data[: max(0, left[0])])
            left[0] -= len(data)
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            return len(data)

        def full_for_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None) -> None:
            try:
                full(path, safetensors.torch.save(tensors, metadata))
            except OSError as error:
                raise SafetensorError(f"I/O error: {error.strerror} (os error {error.errno})") from None

        monkeypatch.setattr(Path, "write_bytes", full)
        monkeypatch.setattr(safetensors.torch, "save_file", full_for_tensors)

    return limit


@pytest.mark.parametrize("share", range(20))
def test_a_full_disk_keeps_the_previous_checkpoint_and_reports_the_bytes_needed(
    tmp_path: Path, small_disk: Callable[[int], None], share: int
) -> None:
    save_model(tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    size = sum(len(data) for data in before.values())
    small_disk(size * share // 20)
    with pytest.raises(
        mh.ResourceError, match=r"model: the disk is full; about [\d,]+ bytes are needed"
    ) as error:
        save_model(tmp_path / "model", seed=1)
    assert error.value.exit_code == 4
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
    assert os.listdir(tmp_path) == ["model"]


def test_a_full_disk_is_recognized_in_errors_of_safetensors(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(mh.ResourceError, match=r"model: the disk is full; about [\d,]+ bytes are needed"):
            save_model(tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []
