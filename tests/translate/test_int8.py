"""int8 model folders: rounded once, carried along whole, and read by every engine as the same model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from typer.testing import CliRunner

import manyheads as mh
from manyheads import checkpoint
from manyheads.checkpoint.arrays import read_arrays
from manyheads.checkpoint.quantization import dequantize_rows, quantize_arrays, quantize_rows
from manyheads.cli.app import app
from manyheads.config import EOS_ID, SubwordConfig
from manyheads.errors import CheckpointError, RequestError
from manyheads.export.ctranslate2 import ConvertibleModel, convert, to_ctranslate2
from manyheads.export.ctranslate2_spec import build_spec
from manyheads.export.int8 import quantize_model
from manyheads.export.onnx import to_onnx
from manyheads.export.to_huggingface import to_huggingface
from manyheads.inference.ctranslate2_engine import CTranslate2Engine
from manyheads.inference.torch_engine import TorchEngine
from manyheads.presets import PRESETS
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.strategies import randomize_weights
from support.untrained_model import calibrate_untrained_model, save_untrained_model

TEXTS = ["the cat sat on the mat", "a dog ran home to sleep", "we go by sea and by land"] * 5
SUBWORDS = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=40, byte_fallback=False))
STUDENT: dict[str, Any] = {
    "vocab_size": 40, "encoder_layers": 3, "decoder_layers": 1, "d_model": 16, "d_ff": 24, "heads": 4,
}  # fmt: skip
SOURCES, TARGETS = [[5, 6, 7, EOS_ID], [8, 30, EOS_ID]], [[9, 10], [11, 12, 13]]

Matrices = arrays(np.float32, (4, 6), elements=st.floats(-1e3, 1e3, width=32))


def save_student(folder: Path, **keys: Any) -> Path:
    torch.manual_seed(1)
    config = mh.Config(model=mh.TransformerConfig(**{**STUDENT, **keys}), data=mh.DataConfig(max_length=30))
    model = mh.Transformer(config.model)
    randomize_weights(model)
    languages = {"source": "en", "target": "de"}
    pair = SubwordPair(SUBWORDS, SUBWORDS)
    weights = checkpoint.collect_weights(model)
    checkpoint.save(folder, weights, pair, config, step=1, languages=languages, supported_length=25)
    return folder


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An int8 folder; the original is beside it."""
    folder = tmp_path_factory.mktemp("student")
    quantize_model(save_student(folder / "model"), folder / "int8")
    return folder / "int8"


def score(folder: Path) -> list[list[float]]:
    return TorchEngine(checkpoint.load_model(folder)[0]).score(SOURCES, TARGETS)


# ---- rounding


@given(Matrices)
def test_rounding_errs_by_half_a_step_at_most(matrix: Any) -> None:
    rows, scales = quantize_rows(matrix)
    assert rows.dtype == np.int8
    assert scales.dtype == np.float32
    assert np.abs(rows).max() <= 127
    assert (np.abs(dequantize_rows(rows, scales) - matrix) <= scales[:, None] * 0.5001).all()


@given(Matrices)
def test_what_is_rounded_stays_as_it_is_when_rounded_again(matrix: Any) -> None:
    rows, scales = quantize_rows(matrix)
    again, _ = quantize_rows(dequantize_rows(rows, scales))
    assert (again == rows).all()


def test_rows_of_zeros_and_of_tiny_numbers_are_finite() -> None:
    rows, scales = quantize_rows(np.array([[0, 0], [1e-45, -1e-45], [2, -1]], np.float32))
    assert scales[0] == 1
    assert not rows[0].any()
    assert np.isfinite(1 / scales).all()
    assert rows[2].tolist() == [127, -64]


def test_a_model_that_diverged_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not finite"):
        quantize_rows(np.array([[1.0, np.nan]]))


def test_matrices_become_int8_and_the_rest_stays() -> None:
    layers = {
        "output.weight": np.ones((3, 2), np.float32),
        "output.bias": np.ones(3, np.float32),
        "decoder.0.norm.weight": np.ones(2, np.float32),
        "source_positions.table.weight": np.ones((5, 2), np.float32),
    }
    quantized = quantize_arrays(layers)
    assert [name for name, array in quantized.items() if array.dtype == np.int8] == ["output.weight"]
    assert set(quantized) == {*layers, "output.weight_scale"}


# ---- the folder


def test_everything_that_a_folder_carries_travels_along(tmp_path: Path) -> None:
    folder = calibrate_untrained_model(save_untrained_model(tmp_path / "model", supported_length=17))
    (folder / "model_card.md").write_text("# A card\n", encoding="utf-8")
    quantized = quantize_model(folder, tmp_path / "int8")
    old, new = checkpoint.read_info(folder), checkpoint.read_info(tmp_path / "int8")
    assert (old.quantization, new.quantization) == (None, "int8")
    assert (new.config, new.languages, new.step, new.supported_length) == (
        old.config, old.languages, old.step, 17,
    )  # fmt: skip
    for name in ("subwords.model", "confidence.safetensors", "model_card.md"):
        assert (tmp_path / "int8" / name).read_bytes() == (folder / name).read_bytes()
    assert quantized.num_bytes < quantized.original_bytes
    assert 0 < quantized.relative_error < 0.01


def test_torch_computes_with_the_rounded_weights(student: Path) -> None:
    model = checkpoint.load_model(student)[0]
    stored = read_arrays(student / checkpoint.WEIGHTS)
    name = "source_embedding.weight"  # tied with the output
    expected = dequantize_rows(stored[name], stored[f"{name}_scale"])
    assert torch.equal(model.output.weight, torch.from_numpy(expected))
    ours, original = (np.concatenate(score(folder)) for folder in (student, student.with_name("model")))
    assert not np.array_equal(ours, original)
    assert np.allclose(ours, original, atol=0.2)


def test_an_int8_folder_is_not_quantized_again(student: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is int8 already"):
        quantize_model(student, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def rewrite(folder: Path, out: Path, change: Callable[[dict[str, Any]], None], **values: Any) -> Path:
    from safetensors.numpy import save

    stored = dict(read_arrays(folder / checkpoint.WEIGHTS))
    change(stored)
    checkpoint.rewrite_folder(folder, out, {checkpoint.WEIGHTS: save(stored)}, **values)
    return out


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.parametrize("shape", [None, (3,)])
def test_int8_weights_without_their_scales_are_refused(
    student: Path, tmp_path: Path, engine: str, shape: tuple[int, ...] | None
) -> None:
    def damage(stored: dict[str, Any]) -> None:
        del stored["decoder.0.feed_forward.w_1.weight_scale"]
        if shape is not None:
            stored["decoder.0.feed_forward.w_1.weight_scale"] = np.ones(shape, np.float32)

    folder = rewrite(student, tmp_path / "damaged", damage)
    with pytest.raises(CheckpointError, match=r"feed_forward.w_1.weight is int8 .* one scale per row"):
        mh.load(folder, engine=engine, device="cpu")


def test_an_unknown_quantization_is_refused(student: Path, tmp_path: Path) -> None:
    folder = rewrite(student, tmp_path / "int4", lambda stored: None, quantization="int4")
    with pytest.raises(CheckpointError, match=r"quantization is 'int4'.*update manyheads"):
        mh.load(folder)


def test_a_run_starts_from_int8_weights_and_an_average_takes_them(student: Path) -> None:
    model = mh.Transformer(mh.TransformerConfig(**STUDENT))
    checkpoint.load_initial_weights(model, SubwordPair(SUBWORDS, SUBWORDS), student)
    average = checkpoint.average_weights([student, student])
    expected = dict(checkpoint.load_model(student)[0].named_parameters())
    for name, weight in model.named_parameters():
        assert torch.equal(weight, expected[name])
        assert torch.equal(average[name], expected[name])


# ---- other engines and formats


@pytest.mark.parametrize("keys", [{}, {"tie_embeddings": "none", "output_bias": True}, {"attention": "dot"}])
def test_ctranslate2_takes_the_int8_numbers_as_they_are(tmp_path: Path, keys: dict[str, Any]) -> None:
    quantize_model(save_student(tmp_path / "model", **keys), tmp_path / "int8")
    model = ConvertibleModel.load(tmp_path / "int8")
    spec = build_spec(model.config, model.arrays, model.subwords, "weights")
    variables = {name: value.numpy() for name, value in spec.variables().items() if hasattr(value, "numpy")}
    queries = model.arrays["encoder.2.self_attention.w_q.weight"]
    linear = variables["encoder/layer_2/self_attention/linear_0/weight"]
    assert linear.dtype == np.int8
    assert (linear[: len(queries)] == queries).all()
    checks = to_ctranslate2(tmp_path / "int8", tmp_path / "ct2")  # raises unless both scores agree
    assert checks
    engine = CTranslate2Engine(tmp_path / "ct2", "int8", threads=1)
    theirs = engine.score(SOURCES, TARGETS)
    for own, other in zip(score(tmp_path / "int8"), theirs, strict=True):
        assert own == pytest.approx(other, abs=0.3)  # int8 products round activations too


def test_ctranslate2_computes_in_int8_unless_told_otherwise(student: Path, tmp_path: Path) -> None:
    convert(student, tmp_path / "ct2")
    assert mh.load(tmp_path / "ct2", engine="ctranslate2", threads=1).engine.name == "ctranslate2 int8"
    chosen = mh.load(tmp_path / "ct2", engine="ctranslate2:float32", threads=1).engine
    assert chosen.name == "ctranslate2 float32"
    assert np.concatenate(chosen.score(SOURCES, TARGETS)) == pytest.approx(
        np.concatenate(score(student)), abs=1e-4
    )


@pytest.mark.parametrize("keys", [{}, {"tie_embeddings": "none", "output_bias": True}])
def test_onnx_takes_the_int8_numbers_as_they_are(tmp_path: Path, keys: dict[str, Any]) -> None:
    import onnx
    from onnx.numpy_helper import to_array

    quantize_model(save_student(tmp_path / "model", **keys), tmp_path / "int8")
    assert to_onnx(tmp_path / "int8", tmp_path / "onnx")  # raises unless both scores agree
    stored = read_arrays(tmp_path / "int8" / checkpoint.WEIGHTS)
    for file in ("encoder.onnx", "decoder.onnx"):
        graph = onnx.load(tmp_path / "onnx" / file).graph
        initializers = {tensor.name: to_array(tensor) for tensor in graph.initializer}
        weights = [name for name in initializers if name.removesuffix(".transposed") in stored]
        int8 = [name for name in weights if initializers[name].dtype == np.int8]
        assert any(name.endswith("embedding.weight") for name in int8)
        for name in int8:
            rows = initializers[name].T if name.endswith(".transposed") else initializers[name]
            assert (rows == stored[name.removesuffix(".transposed")]).all()
        assert not [name for name in weights if initializers[name].ndim == 2 and name not in int8]


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_hugging_face_gives_the_scores_of_an_int8_folder(student: Path, tmp_path: Path) -> None:
    assert to_huggingface(student, tmp_path / "marian")  # raises unless both scores agree


# ---- the command


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_states_the_loss_on_a_test_set(tmp_path: Path) -> None:
    folder = save_untrained_model(tmp_path / "model")
    (tmp_path / "test.en").write_text("I go home.\nWe read a book.\n", encoding="utf-8")
    test = "--test", tmp_path / "test.en", tmp_path / "test.en"
    result = run("export", folder, "--to", "int8", "--out", tmp_path / "a", *test)
    assert result.exit_code == 0, result.output
    assert "BLEU" in result.output
    assert "of 2 lines" in result.output
    result = run("export", folder, "--to", "int8", "--out", tmp_path / "b", "--json", *test)
    report = json.loads(result.stdout)
    assert report["loss"]["num_lines"] == 2
    assert report["num_bytes"] < report["original_bytes"]
    result = run("export", folder, "--to", "int8", "--out", tmp_path / "c")
    assert f"manyheads evaluate {tmp_path / 'c'} SOURCE REFERENCE --baseline {folder}" in result.output
    assert "parameters as int8" in run("inspect", tmp_path / "c").output


def test_a_test_set_is_for_int8_only(tmp_path: Path) -> None:
    test = "--test", tmp_path / "a", tmp_path / "b"
    result = run("export", tmp_path, "--to", "onnx", "--out", tmp_path / "out", *test)
    assert isinstance(result.exception, RequestError)
    assert "--test is for --to int8" in str(result.exception)


# ---- presets


@pytest.mark.parametrize(("name", "max_megabytes"), [("student", 18.0), ("student-tiny", 2.5)])
def test_students_are_small_and_greedy(name: str, max_megabytes: float) -> None:
    config = PRESETS[name]
    assert config.decoding.beam == 1
    assert config.model.encoder_layers > config.model.decoder_layers
    with torch.device("meta"):
        model = mh.Transformer(config.model)
    sizes = {
        name: tensor.shape[0] * (tensor.shape[1] + 4) if tensor.ndim == 2 else 4 * tensor.numel()
        for name, tensor in checkpoint.collect_weights(model).items()
    }
    assert sum(sizes.values()) < max_megabytes * 1e6
