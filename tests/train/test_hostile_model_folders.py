"""A model folder from elsewhere: what its manifest says decides neither about memory nor about time."""

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from numpy.typing import NDArray

import manyheads as mh
from manyheads import atomic_io, checkpoint
from manyheads.checkpoint.adapters import METADATA_KEY
from manyheads.checkpoint.header import read_header
from manyheads.confidence.features import FEATURES
from manyheads.config import SubwordConfig
from manyheads.text.subwords import SubwordTokenizer
from manyheads.train.trained_weights import find_linear
from support.untrained_model import TEXTS, calibrate_untrained_model, save_untrained_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_untrained_model(tmp_path / "model")


def edit_manifest(folder: Path, changes: dict[str, Any] | None = None) -> None:
    """Change the model's configuration, and make all checksums right again."""
    path = folder / checkpoint.MANIFEST
    manifest = json.loads(path.read_text())
    manifest["config"]["model"] |= changes or {}
    manifest["files"] = {name: atomic_io.hash_file(folder / name) for name in manifest["files"]}
    manifest["sha256"] = atomic_io.compute_checksum(manifest)
    path.write_text(json.dumps(manifest))


def load_with_both_engines(folder: Path) -> list[str]:
    messages = []
    for engine in ("torch", "ctranslate2"):
        with pytest.raises(mh.CheckpointError) as caught:
            mh.load(folder, engine=engine, device="cpu")
        messages.append(str(caught.value))
    return messages


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 12_000_000}, "12,000,000|12000000"),
        ({"encoder_layers": 1023}, "1,025 layers and experts"),
        ({"encoder_layers": 1022, "experts": 1000, "experts_per_token": 1}, "1,024,000 layers and experts"),
        ({"d_ff": 1_000_000_000}, "1000000000"),
    ],
)
def test_a_manifest_with_an_enormous_model_is_refused_at_once(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    edit_manifest(folder, changes)
    start = time.monotonic()
    with pytest.raises(mh.CheckpointError) as caught:
        mh.load(folder, device="cpu")
    assert any(part in str(caught.value) for part in message.split("|"))
    assert time.monotonic() - start < 5


def test_weights_of_other_types_are_refused(folder: Path) -> None:
    path = folder / checkpoint.WEIGHTS
    weights = safetensors.torch.load_file(path)
    for dtype, name in ((torch.float64, "F64"), (torch.int16, "I16")):
        safetensors.torch.save_file({key: value.to(dtype) for key, value in weights.items()}, path)
        edit_manifest(folder)
        for message in load_with_both_engines(folder):
            assert f"is stored as {name}, but must be one of F32, BF16, F16, I8" in message


def test_int8_weights_without_scales_are_refused(folder: Path) -> None:
    path = folder / checkpoint.WEIGHTS
    weights = safetensors.torch.load_file(path)
    safetensors.torch.save_file({key: value.to(torch.int8) for key, value in weights.items()}, path)
    edit_manifest(folder)
    for message in load_with_both_engines(folder):
        assert "lacks its scales, but an int8 matrix has one scale per row" in message


def test_subwords_of_another_size_are_refused(folder: Path) -> None:
    SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=310)).save(folder / "subwords.model")
    edit_manifest(folder)
    for message in load_with_both_engines(folder):
        assert "subwords have 310 pieces, but the vocabulary of the model has 320" in message


@pytest.mark.parametrize("name", ["manyheads.json", "weights.safetensors", "subwords.model"])
@pytest.mark.parametrize("device", [None, "/dev/zero"])
def test_a_fifo_or_a_device_in_place_of_a_file_is_refused(
    folder: Path, name: str, device: str | None
) -> None:
    (folder / name).unlink()
    if device is None:
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to(device)
    for message in load_with_both_engines(folder):
        assert "is not a file" in message


HEADERS: list[tuple[Any, bytes, str]] = [
    ([], b"", "not a table"),
    ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"1234", "8 bytes of 4"),
    ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"12345678", "4 bytes of 8"),
    ({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}, b"1234", "'a' is not"),
    ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}, b"1234", "'a' is not"),
    ({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, b"1234", "'a' is not"),
    ({"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}, b"12345678", "'a' is not"),
    ({"a": 5}, b"", "'a' is not"),
    (
        {key: {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} for key in "ab"},
        b"1234",
        "leave a gap or overlap",
    ),
]


@pytest.mark.parametrize(("header", "data", "message"), HEADERS)
def test_a_wrong_header_is_refused(tmp_path: Path, header: Any, data: bytes, message: str) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "file").write_bytes(struct.pack("<Q", len(text)) + text + data)
    with pytest.raises(mh.CheckpointError, match=f"not safetensors .*{message}"):
        read_header(tmp_path / "file")


@pytest.mark.parametrize("content", [b"", b"\x00" * 8, b"\xff" * 8, struct.pack("<Q", 2**60) + b"{}", b"PK"])
def test_a_header_of_impossible_length_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(mh.CheckpointError, match="not safetensors"):
        read_header(tmp_path / "file")


def test_the_header_of_our_own_files_is_read(folder: Path) -> None:
    header = read_header(folder / checkpoint.WEIGHTS)
    tensors = checkpoint.read_tensors(folder / checkpoint.WEIGHTS)
    assert {name: own.shape for name, own in header.items()} == {
        name: tuple(tensor.shape) for name, tensor in tensors.items()
    }


# ---- adapters


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4,), (4,)), "its tensors must be matrices"),
        (((2, 7), (16, 2)), r"changes encoder\S+ \[16, 7\], which the model does not have"),
        (((2, 16), (16, 3)), "which the model does not have"),
    ],
)
def test_an_adapter_with_other_shapes_is_refused(folder: Path, shapes: Any, message: str) -> None:
    name = next(name for name, _ in find_linear(checkpoint.load_model(folder)[0]))
    a_rD, b_Fr = (torch.zeros(shape) for shape in shapes)
    adapter = checkpoint.Adapter("bad", {name: (a_rD, b_Fr)}, checkpoint.hash_base(folder), {})
    checkpoint.write_adapter(checkpoint.adapter_path(folder, "bad"), adapter)
    with pytest.raises(mh.CheckpointError, match=message):
        mh.load(folder, device="cpu", adapter="bad")


def test_an_adapter_of_other_types_and_deep_metadata_are_refused(folder: Path) -> None:
    path = checkpoint.adapter_path(folder, "bad")
    path.parent.mkdir()
    safetensors.torch.save_file({"x.a": torch.zeros(2, 2)}, path)
    with pytest.raises(mh.CheckpointError, match=r"x\.a is stored as F32"):
        mh.load(folder, device="cpu", adapter="bad")
    metadata = {METADATA_KEY: "[" * 100_000}
    safetensors.torch.save_file({"x.a": torch.zeros(2, 2, dtype=torch.float16)}, path, metadata)
    with pytest.raises(mh.CheckpointError, match="not an adapter: its metadata"):
        mh.load(folder, device="cpu", adapter="bad")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("languages", {"source": None, "target": "ko"}, "has no valid languages"),
        ("languages", {"source": ["en"], "target": "ko"}, "has no valid languages"),
        ("supported_length", -1, "has no valid supported_length"),
        ("supported_length", 0, "has no valid supported_length"),
        ("supported_length", 1.5, "has no valid supported_length"),
    ],
)
def test_other_values_of_a_manifest_are_refused(folder: Path, key: str, value: Any, message: str) -> None:
    path = folder / checkpoint.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    edit_manifest(folder)
    assert all(message in text for text in load_with_both_engines(folder))


def test_a_long_value_of_a_manifest_is_not_quoted_whole(folder: Path) -> None:
    path = folder / checkpoint.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": "x" * 5000}))
    with pytest.raises(mh.CheckpointError) as caught:
        mh.load(folder)
    assert len(str(caught.value)) < 1000


WRONG_CALIBRATIONS: dict[str, NDArray[Any]] = {
    "length_ratio": np.array([1e30], np.float32),
    "scales": np.zeros(len(FEATURES), np.float32),
    "means": np.full(len(FEATURES), np.nan, np.float32),
    "coefficients": np.full(len(FEATURES) + 1, np.inf, np.float32),
    "knots": np.array([2.0, 1.0], np.float32),
    "values": np.array([0.0, 7.0], np.float32),
    "description": np.frombuffer(b"[" * 10_000, np.uint8),
    "source.unigrams": np.zeros(5, np.uint8),
    "source.checks": np.zeros(7, np.uint8),
    "source.bigrams": np.zeros(0, np.uint8),
    "source.backoffs": np.zeros((320, 1), np.uint8),
}


@pytest.mark.parametrize("name", WRONG_CALIBRATIONS)
def test_a_calibration_with_impossible_numbers_is_refused(folder: Path, name: str) -> None:
    calibrate_untrained_model(folder)
    arrays = safetensors.numpy.load_file(folder / checkpoint.CONFIDENCE)
    changed = {**arrays, name: WRONG_CALIBRATIONS[name]}
    if name == "source.unigrams":
        changed["source.backoffs"] = WRONG_CALIBRATIONS[name]
    safetensors.numpy.save_file(changed, folder / checkpoint.CONFIDENCE)
    edit_manifest(folder)
    assert all("calibrat" in message for message in load_with_both_engines(folder))


def test_a_message_of_sentencepiece_that_is_not_utf8_is_one_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names a wrong piece by its bytes."""

    def refuse(*_: object) -> None:
        b"\xbe is already defined".decode()

    monkeypatch.setattr("sentencepiece.SentencePieceProcessor.LoadFromSerializedProto", refuse)
    with pytest.raises(mh.DataError, match="not a SentencePiece model, or damaged"):
        SubwordTokenizer.load(folder / "subwords.model")


def test_a_model_that_ctranslate2_cannot_load_is_one_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one whose int8 scales are all zero."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("variable encoder/layer_1/weight_scale not found")

    monkeypatch.setattr("ctranslate2.Translator", refuse)
    with pytest.raises(mh.CheckpointError, match=r"CTranslate2 cannot load it \(variable"):
        mh.load(folder, engine="ctranslate2", device="cpu")
