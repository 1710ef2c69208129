"""onnxruntime gives what our model gives, and needs no torch."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import manyheads as mh
from manyheads import atomic_io, checkpoint
from manyheads.config import BOS_ID, EOS_ID, SubwordConfig
from manyheads.export import onnx as export
from manyheads.export import onnx_graph, onnx_model
from manyheads.export.onnx_run import MANIFEST, OnnxDecoderState, OnnxModel
from manyheads.inference.engine import decode_all
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model.positions import sinusoidal_encoding
from manyheads.search.driver import greedy_search, search
from manyheads.search.options import DecodingConstraints, SearchLimits
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.strategies import randomize_weights, transformer_configs

TEXTS = ["나는 집에 간다.", "I go home.", "우리는 학교에 간다."] * 10
SUBWORDS = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=300))
OTHERS = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=290))
JOINT, SEPARATE = SubwordPair(SUBWORDS, SUBWORDS), SubwordPair(SUBWORDS, OTHERS)
SMALL = mh.TransformerConfig(vocab_size=300, layers=2, d_model=16, d_ff=24, heads=4, dropout=0.0)
SOURCES = [[5, 6, 7, 8, 9, 10, 2], [2], [11, 12, 2], [], [280, 3, 4, 150, 2]]
RANDOM = random.Random(5)
MANY = [[*RANDOM.sample(range(3, 300), RANDOM.randrange(8)), EOS_ID] for _ in range(20)] + SOURCES
LIMITS = [RANDOM.randrange(15) for _ in MANY]
TOLERANCE: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-4}


def save_model(folder: Path, config: mh.ModelConfig = SMALL, subwords: SubwordPair = JOINT) -> mh.Transformer:
    """A model folder, whose weights and statistics are none of those that a model begins with."""
    torch.manual_seed(3)
    model = mh.Transformer(config).eval()
    randomize_weights(model)
    with torch.no_grad():
        model.output.weight[EOS_ID] *= 3  # else a random model never ends of itself
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 2)
    checkpoint.save(
        folder,
        checkpoint.collect_weights(model),
        subwords,
        mh.Config(
            model=config, data=mh.DataConfig(max_length=40), decoding=mh.DecodingConfig(max_extra_length=9)
        ),
        step=7,
        languages={"source": "en", "target": "ko"},
    )
    return model


def export_model(folder: Path, *given: Any) -> tuple[mh.Transformer, OnnxModel]:
    """Our model, and onnxruntime's."""
    model = save_model(folder / "model", *given)
    export.to_onnx(folder / "model", folder / "onnx")
    return model, OnnxModel(folder / "onnx", threads=1)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[mh.Transformer, OnnxModel]:
    return export_model(tmp_path_factory.mktemp("both"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An export that a test may spoil."""
    save_model(tmp_path / "model")
    export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    return tmp_path / "onnx"


def assert_same(ours: torch.Tensor, theirs: np.ndarray[Any, Any]) -> None:
    np.testing.assert_allclose(theirs, ours.detach().numpy(), **TOLERANCE)


# ---- the same numbers


@settings(max_examples=20, phases=[Phase.reuse, Phase.generate])  # a smaller example would take minutes
@given(st.data())
def test_every_model_gives_the_same_logits_step_by_step(data: st.DataObject) -> None:
    """Whatever the config allows: norms, positions, windows, widths, ties; hypotheses that change places."""
    config = data.draw(transformer_configs(vocab_size=300, source_vocab_size=None, target_vocab_size=None))
    if apart := config.tie_embeddings != "three-way" and data.draw(st.booleans()):
        config = replace(config, source_vocab_size=300, target_vocab_size=290)
    width = data.draw(st.sampled_from([1, 3]))
    token = st.integers(0, 289)
    sources = data.draw(st.lists(st.lists(token, max_size=9), min_size=1, max_size=4))
    with TemporaryDirectory() as folder:
        ours, theirs = export_model(Path(folder), config, SEPARATE if apart else JOINT)
        ours = ours.double()  # rounding is onnxruntime's alone
        state = ours.start(ours.encode(mh.Packed.of(sources)), width)
        other = theirs.encode(sources, width)
        rows = len(sources) * width
        for _ in range(4):
            tokens = np.array(data.draw(st.lists(token, min_size=rows, max_size=rows)))
            logits, state = ours.step(torch.from_numpy(tokens), state)
            judged, other = theirs.step(tokens, other)
            assert_same(logits, judged)
            order = np.arange(rows).reshape(-1, width)[:, ::-1].ravel().copy()
            state, other = state.reorder(torch.from_numpy(order)), other.reorder(order)


@pytest.mark.parametrize("width", [1, 3])
def test_a_batch_gives_what_each_sentence_gives_alone(both: Any, width: int) -> None:
    ours, theirs = both
    together = theirs.encode(SOURCES, width)
    alone = [theirs.encode([source], width) for source in SOURCES]
    state = ours.start(ours.encode(mh.Packed.of(SOURCES)), width)
    tokens = np.full(len(SOURCES) * width, BOS_ID)
    for _ in range(12):
        logits, state = ours.step(torch.from_numpy(tokens), state)
        judged, together = theirs.step(tokens, together)
        assert np.isfinite(judged).all()
        assert_same(logits, judged)
        for number, state_alone in enumerate(alone):
            rows = slice(number * width, (number + 1) * width)
            own, alone[number] = theirs.step(tokens[rows], state_alone)
            np.testing.assert_allclose(own, judged[rows], **TOLERANCE)
        tokens = np.random.default_rng(len(tokens)).integers(3, 300, len(tokens))


@pytest.mark.parametrize("window", [None, 4])
def test_rows_of_different_age_share_a_batch(tmp_path: Path, window: int | None) -> None:
    """The younger row's past stands to the right, behind slots that say nothing."""
    _, model = export_model(tmp_path, replace(SMALL, window=window))
    old, new = model.encode([[5, 6, 2]]), model.encode([[7, 8, 2]])
    for token in (1, 40, 50, 60):
        _, old = model.step(np.array([token]), old)
    _, new = model.step(np.array([1]), new)

    def rows(name: str, fill: int) -> Any:
        padding = ((0, 0), (0, 0), (0, 0), (fill, 0), (0, 0))
        return np.concatenate(
            [getattr(old, name), np.pad(getattr(new, name), padding, constant_values=9)], axis=1
        )

    mixed = OnnxDecoderState(
        rows("past_keys", 3),
        rows("past_values", 3),
        np.array([4, 1]),
        rows("source_keys", 0),
        rows("source_values", 0),
        np.array([3, 3]),
    )
    judged, _ = model.step(np.array([70, 80]), mixed)
    for row, (token, state) in enumerate(((70, old), (80, new))):
        np.testing.assert_allclose(judged[row], model.step(np.array([token]), state)[0][0], **TOLERANCE)


def test_sinusoids_are_exact_at_any_position(both: Any) -> None:
    import onnx
    import onnxruntime

    places = np.array([0, 1, 2, 1000, 123_456])
    graph = onnx_graph.GraphBuilder(torch.nn.Identity())
    graph.name_output("encoding", onnx_model.sinusoids(graph, "places", 16))
    port = onnx.helper.make_tensor_value_info
    given = [port("places", onnx.TensorProto.INT64, ["L"])]
    made = graph.serialize("positions", given, [port("encoding", onnx.TensorProto.FLOAT, ["L", 16])])
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    results = session.run(None, {"places": places})[0]
    np.testing.assert_allclose(results, sinusoidal_encoding(torch.from_numpy(places), 16), atol=1e-7)

    ours, theirs = both
    source = [3 + place % 290 for place in range(1500)]
    keys = ours.start(ours.encode(mh.Packed.of([source]))).source_keys
    assert_same(keys, theirs.encode([source]).source_keys)


def test_padding_may_be_any_number(both: Any) -> None:
    _, model = both
    lengths = np.array([2, 0, 3])
    results = []
    for filler in (0, -7, 10**9):
        ids = np.full((3, 4), filler)
        ids[0, :2], ids[2, :3] = [5, 2], [6, 7, 2]
        results.append(model._encoder.run(None, {"source": ids, "source_lengths": lengths}))
    for keys, values in results:
        assert np.array_equal(keys, results[0][0])
        assert np.array_equal(values, results[0][1])
        assert not values[:, 1].any()  # what an empty sentence gives to look at
        assert not values[:, 0, :, 2:].any()


def test_swish_and_output_bias_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published models have them; put in by hand, whatever a config can say."""
    save_model(tmp_path / "model")
    ours, subwords, manifest = checkpoint.load_model(tmp_path / "model")
    ours.output.bias = torch.nn.Parameter(torch.randn(300))
    for module in ours.modules():
        if hasattr(module, "activation"):
            module.activation = torch.nn.functional.silu  # type: ignore[assignment]
    object.__setattr__(ours.config, "activation", "swish")
    monkeypatch.setattr(export, "load_model", lambda folder: (ours, subwords, manifest))
    export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    results = OnnxModel(tmp_path / "onnx").score(SOURCES, SOURCES)
    for own, other in zip(TorchEngine(ours).score(SOURCES, SOURCES), results, strict=True):
        np.testing.assert_allclose(other, own, atol=1e-4)


# ---- searching and scoring


def test_greedy_search_finds_what_our_search_finds(both: Any) -> None:
    ours, theirs = both
    state = ours.start(ours.encode(mh.Packed.of(MANY)))
    expected = greedy_search(ours.step, state, LIMITS, torch.device("cpu"))
    assert theirs.greedy_search(MANY, LIMITS) == expected
    assert_some_end_early(expected)


def assert_some_end_early(results: list[list[int]]) -> None:
    """And some at their limit: else the comparison says less than it seems to."""
    early = [0 < len(tokens) < limit for tokens, limit in zip(results, LIMITS, strict=True)]
    assert sum(early) > 1
    assert any(len(tokens) == limit > 1 for tokens, limit in zip(results, LIMITS, strict=True))


@dataclass
class TorchView:
    """A state of onnxruntime's as our search handles it."""

    state: OnnxDecoderState

    def reorder(self, rows: torch.Tensor) -> "TorchView":
        return TorchView(self.state.reorder(rows.numpy()))

    def remove(self, sentences: torch.Tensor) -> "TorchView":
        kept = set(range(len(self.state.source_lengths))) - set(sentences.tolist())
        return TorchView(self.state.select(np.array(sorted(kept), np.int64)))


@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.6), (2, 0.0), (4, 0.6), (5, 2.0)])
def test_our_beam_search_finds_the_same_over_the_exported_decoder(both: Any, beam: int, alpha: float) -> None:
    ours, theirs = both
    config, limits = mh.DecodingConfig(beam=beam, alpha=alpha), SearchLimits(max_rows=beam * len(MANY))
    constraints = [DecodingConstraints(max_length) for max_length in LIMITS]

    def start_ours(indices: list[int], _: Any) -> Any:
        return ours.start(ours.encode(mh.Packed.of([MANY[index] for index in indices])), beam)

    def start_theirs(indices: list[int], _: Any) -> TorchView:
        return TorchView(theirs.encode([MANY[index] for index in indices], beam))

    def step_theirs(tokens: torch.Tensor, view: TorchView) -> tuple[torch.Tensor, TorchView]:
        logits, state = theirs.step(tokens.numpy(), view.state)
        return torch.from_numpy(logits), TorchView(state)

    cpu = torch.device("cpu")
    expected = [best[0] for best in search(ours.step, start_ours, constraints, config, cpu, limits)]
    results = [best[0] for best in search(step_theirs, start_theirs, constraints, config, cpu, limits)]
    assert [result.tokens for result in results] == [result.tokens for result in expected]
    assert [result.score for result in results] == pytest.approx(
        [result.score for result in expected], abs=1e-4
    )
    assert_some_end_early([result.tokens for result in results])
    if beam == 1:
        assert [result.tokens for result in results] == theirs.greedy_search(MANY, LIMITS)


def test_forced_decoding_gives_our_scores(both: Any) -> None:
    ours, theirs = both
    targets = [[9, 8], [], [4] * 20, [2, 7], [299]]
    results, expected = theirs.score(SOURCES, targets), TorchEngine(ours).score(SOURCES, targets)
    assert [len(scores) for scores in results] == [3, 1, 21, 3, 2]
    for own, other in zip(expected, results, strict=True):
        np.testing.assert_allclose(other, own, atol=1e-4)


def test_many_sentences_keep_their_order(both: Any) -> None:
    _, model = both
    sources = [[3 + number % 250, 2][number % 2 :] for number in range(150)]
    targets = [[3 + number] for number in range(150)]
    results = model.score(sources, targets)
    for number in (0, 1, 77, 149):
        alone = model.score([sources[number]], [targets[number]])
        np.testing.assert_allclose(results[number], alone[0], **TOLERANCE)
    assert model.score([], []) == []
    assert model.greedy_search([], []) == []


def test_texts_are_translated_as_by_our_translator(both: Any) -> None:
    ours, theirs = both
    texts = ["I go home.", "우리는  집에 간다.", "zebra \u2581 é", "x"]
    sources = [[*JOINT.source.encode(text), EOS_ID] for text in texts]
    constraints = [DecodingConstraints(len(source) - 1 + 9) for source in sources]
    results = decode_all(TorchEngine(ours), sources, constraints, mh.DecodingConfig(beam=1))
    expected = [JOINT.target.decode(hypotheses[0].tokens) for hypotheses in results]
    assert theirs.translate([texts[0], "", *texts[1:], " \t"]) == [expected[0], "", *expected[1:], " \t"]


def test_a_long_text_is_translated_with_a_warning(both: Any) -> None:
    with pytest.warns(UserWarning, match="but the model was trained with up to 40"):
        assert len(both[1].translate(["가나다라" * 30])) == 1


# ---- without torch


def test_an_export_runs_without_torch(folder: Path) -> None:
    code = f"""
import sys
sys.modules["torch"] = None  # importing it fails
from manyheads.export.onnx_run import OnnxModel
model = OnnxModel({str(folder)!r})
print(ascii(model.translate(["I go home.", "", "우리는 간다."])))
assert not [name for name in sys.modules if name.startswith("torch.")]
assert "onnx" not in sys.modules
"""
    source = str(Path(mh.__file__).parents[1])
    manifest = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": source, "PYTHONUTF8": "1"},
    )
    assert manifest.returncode == 0, manifest.stderr
    assert manifest.stdout.strip() == ascii(OnnxModel(folder).translate(["I go home.", "", "우리는 간다."]))


# ---- the folder


def test_the_graphs_are_valid_and_fix_no_variable_axis(folder: Path) -> None:
    import onnx

    for name in ("encoder.onnx", "decoder.onnx"):
        model = onnx.load(folder / name)
        onnx.checker.check_model(model, full_check=True)
        assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]
        for port in (*model.graph.input, *model.graph.output):
            axes = [axis.dim_param or axis.dim_value for axis in port.type.tensor_type.shape.dim]
            fixed = {axis for axis in axes if isinstance(axis, int)}
            assert fixed <= {2, 4, 300}  # layers; heads, and their widths; words


def test_tied_matrices_are_stored_once(tmp_path: Path) -> None:
    sizes = {}
    for tie_embeddings in ("three-way", "none"):
        export_model(tmp_path / tie_embeddings, replace(SMALL, tie_embeddings=tie_embeddings))
        sizes[tie_embeddings] = (tmp_path / tie_embeddings / "onnx" / "decoder.onnx").stat().st_size
    table = 300 * 16 * 4
    assert table <= sizes["none"] - sizes["three-way"] < table + 200


def test_the_manifest_holds_what_a_reader_needs(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["format"] == 2
    assert manifest["special"] == {"unknown": 0, "begin": 1, "end": 2}
    assert (
        manifest["max_length"],
        manifest["max_extra_length"],
        manifest["max_positions"],
        manifest["step"],
    ) == (40, 9, None, 7)
    assert manifest["languages"] == {"source": "en", "target": "ko"}
    assert manifest["sizes"]["target_vocab_size"] == 300
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {MANIFEST}


def test_an_export_returns_the_scores_of_both_models(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    checks = export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert len(checks) == 8
    assert all(abs(check.our_score - check.their_score) < 1e-3 for check in checks)


def test_an_export_with_other_scores_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(tmp_path / "model")
    monkeypatch.setattr(onnx_model, "MASKED", 0.0)  # everybody sees filler and what is not yet there
    with pytest.raises(mh.CheckpointError, match=r"the ONNX export: gives .* and was not kept"):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert os.listdir(tmp_path) == ["model"]


def test_an_export_replaces_another_only_on_request(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    with pytest.raises(mh.RequestError, match="onnx: exists already"):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    export.to_onnx(tmp_path / "model", tmp_path / "onnx", replace=True)
    OnnxModel(tmp_path / "onnx")


# ---- what is refused


def test_damaged_files_are_named(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.name == MANIFEST:
            continue
        whole = path.read_bytes()
        middle = len(whole) // 2
        for damaged in (whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :], whole[:-1], b""):
            path.write_bytes(damaged)
            with pytest.raises(mh.CheckpointError, match=f"{path.name}: damaged"):
                OnnxModel(folder)
        path.unlink()
        with pytest.raises(mh.CheckpointError, match=f"{path.name}: is missing"):
            OnnxModel(folder)
        path.write_bytes(whole)
    OnnxModel(folder)


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    manifest["sha256"] = atomic_io.compute_checksum(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda manifest: manifest.update(format=9),
            "format 9, but this version reads format 2: update manyheads",
        ),
        (
            lambda manifest: manifest.update(format=1),
            "format 1 of an older development version, but this version reads format 2: "
            "export the model again",
        ),
        (lambda manifest: manifest.clear(), "not the manifest of an ONNX export"),
        (
            lambda manifest: manifest.pop("max_positions"),
            "has no valid max_positions: export the model again",
        ),
        (lambda manifest: manifest.update(max_length="x", sizes=3), "has no valid sizes, max_length"),
        (lambda manifest: manifest["sizes"].pop("source_vocab_size"), "has no valid sizes"),
        (
            lambda manifest: manifest["special"].update(end=3),
            "special ids are .*'end': 3.* but must be .*'end': 2",
        ),
        (lambda manifest: manifest["files"].pop("decoder.onnx"), "has no valid files"),
        (lambda manifest: manifest["files"].update({"x": {}}), "has no valid files"),
        (
            lambda manifest: manifest["files"].update({"../x": {"bytes": 1, "sha256": "0"}}),
            "lists '../x', which is not in the folder",
        ),
    ],
)
def test_an_invalid_manifest_is_refused(folder: Path, change: Any, message: str) -> None:
    change_manifest(folder, change)
    with pytest.raises(mh.CheckpointError, match=message):
        OnnxModel(folder)


def test_foreign_graphs_are_refused(folder: Path) -> None:
    encoder, decoder = folder / "encoder.onnx", folder / "decoder.onnx"
    whole = encoder.read_bytes()
    for foreign, message in (
        (b"not a graph", "onnxruntime cannot open it"),
        (decoder.read_bytes(), "it was not exported by manyheads"),
    ):
        encoder.write_bytes(foreign)
        change_manifest(
            folder, lambda manifest: manifest["files"].update({encoder.name: atomic_io.hash_file(encoder)})
        )
        with pytest.raises(mh.CheckpointError, match=rf"encoder\.onnx: .*{message}"):
            OnnxModel(folder)
    encoder.write_bytes(whole)
    with pytest.raises(mh.CheckpointError, match="model: not an ONNX export"):
        OnnxModel(folder.parent / "model")


def test_unsupported_keys_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(export, "SUPPORTED_KEYS", export.SUPPORTED_KEYS - {"window"})
    save_model(tmp_path / "model", replace(SMALL, window=3))
    with pytest.raises(mh.RequestError, match=r"model\.window is 3, but ONNX export supports None only"):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    monkeypatch.delitem(onnx_model.ACTIVATIONS, "relu")
    save_model(tmp_path / "model")
    with pytest.raises(
        mh.RequestError, match=r"model\.activation is 'relu', but ONNX export supports gelu, swish"
    ):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert os.listdir(tmp_path) == ["model"]


def test_every_key_is_supported_or_must_have_its_default() -> None:
    """Whoever adds a key to ModelConfig decides here whether the graphs follow it."""
    refused = {"architecture", "experts", "experts_per_token", "experts_balance_weight"}
    assert {key.name for key in fields(mh.TransformerConfig)} - export.SUPPORTED_KEYS == refused


def test_weights_that_exceed_a_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(tmp_path / "model")
    monkeypatch.setattr(onnx_graph, "MAX_FILE_BYTES", 1000)
    with pytest.raises(mh.RequestError, match=r"encoder: .* bytes of weights, but an ONNX file holds 1,000"):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    save_model(tmp_path / "model")
    with pytest.raises(mh.RequestError, match=rf"{package} is not installed: pip install '.*\[onnx\]'"):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")


def test_wrong_arguments_are_refused(both: Any) -> None:
    _, model = both
    with pytest.raises(mh.DataError, match="token ids from 0 to 300, but the vocabulary has 300"):
        model.encode([[300], [5, 6]])
    with pytest.raises(mh.DataError, match="token ids from -1 to -1"):
        model.step(np.array([-1]), model.encode([[5]]))
    with pytest.raises(mh.DataError, match="token ids from 999 to 999"):
        model.score([[5]], [[999]])
    with pytest.raises(mh.RequestError, match="3 tokens, but the state has 2 rows"):
        model.step(np.array([1, 1, 1]), model.encode([[5]], beam=2))
    with pytest.raises(mh.RequestError, match="0 hypotheses for a sentence"):
        model.encode([[5]], beam=0)
    with pytest.raises(mh.DataError, match="1 sources, but 2 targets"):
        model.score([[5]], [[6], [7]])


def test_learned_positions_are_limited(tmp_path: Path) -> None:
    _, theirs = export_model(tmp_path, replace(SMALL, positions="learned", max_positions=6))
    with pytest.raises(
        mh.DataError, match="sentences of up to 7 tokens, but the model has 6 learned positions"
    ):
        theirs.encode([[5] * 7])
    with pytest.raises(mh.DataError, match="sentences of up to 7 tokens"):
        theirs.score([[5]], [[5] * 6])
    assert len(theirs.score([[5] * 6], [[5] * 5])[0]) == 6
    assert len(theirs.translate(["x"])) == 1
