"""onnxruntime, given the graphs that we built of a model, gives what the model gives, and needs no torch."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
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
from manyheads.export.onnx_run import MANIFEST, OnnxDecoderState, OnnxModel
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model.positions import sinusoidal_encoding
from manyheads.search.driver import greedy_search, search
from manyheads.search.options import DecodingConstraints, SearchLimits
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.strategies import randomize_weights, transformer_configs

TEXTS = ["나는 집에 간다.", "I go home.", "우리는 학교에 간다."] * 10
SUBWORDS = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=300))
OTHERS = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=290))
JOINT, APART = SubwordPair(SUBWORDS, SUBWORDS), SubwordPair(SUBWORDS, OTHERS)
SMALL = mh.TransformerConfig(vocab_size=300, layers=2, d_model=16, d_ff=24, heads=4, dropout=0.0)
SOURCES = [[5, 6, 7, 8, 9, 10, 2], [2], [11, 12, 2], [], [280, 3, 4, 150, 2]]
CHANCE = random.Random(5)
MANY = [[*CHANCE.sample(range(3, 300), CHANCE.randrange(8)), EOS_ID] for _ in range(20)] + SOURCES
LIMITS = [CHANCE.randrange(15) for _ in MANY]
TOLERANCE = {"atol": 1e-5, "rtol": 1e-4}


def saved(folder: Path, config: mh.ModelConfig = SMALL, subwords: SubwordPair = JOINT) -> mh.Transformer:
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


def exported(folder: Path, *given: Any) -> tuple[mh.Transformer, OnnxModel]:
    """Our model, and onnxruntime's."""
    model = saved(folder / "model", *given)
    export.to_onnx(folder / "model", folder / "onnx")
    return model, OnnxModel(folder / "onnx", threads=1)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[mh.Transformer, OnnxModel]:
    return exported(tmp_path_factory.mktemp("both"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An export that a test may spoil."""
    saved(tmp_path / "model")
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
        ours, theirs = exported(Path(folder), config, APART if apart else JOINT)
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
def test_a_batch_of_mixed_lengths_gives_what_each_gives_alone(both: Any, width: int) -> None:
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
        for number, one in enumerate(alone):
            rows = slice(number * width, (number + 1) * width)
            own, alone[number] = theirs.step(tokens[rows], one)
            np.testing.assert_allclose(own, judged[rows], **TOLERANCE)
        tokens = np.random.default_rng(len(tokens)).integers(3, 300, len(tokens))


@pytest.mark.parametrize("window", [None, 4])
def test_rows_of_different_age_lie_in_one_batch(tmp_path: Path, window: int | None) -> None:
    """The younger row's past stands to the right, behind slots that say nothing."""
    _, model = exported(tmp_path, replace(SMALL, window=window))
    old, new = model.encode([[5, 6, 2]]), model.encode([[7, 8, 2]])
    for token in (1, 40, 50, 60):
        _, old = model.step(np.array([token]), old)
    _, new = model.step(np.array([1]), new)

    def rows(name: str, fill: int) -> Any:
        room = ((0, 0), (0, 0), (0, 0), (fill, 0), (0, 0))
        return np.concatenate(
            [getattr(old, name), np.pad(getattr(new, name), room, constant_values=9)], axis=1
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


def test_positions_have_no_end_and_stay_exact(both: Any) -> None:
    import onnx
    import onnxruntime

    places = np.array([0, 1, 2, 1000, 123_456])
    graph = export.GraphBuilder(torch.nn.Identity())
    graph.name_output("encoding", export.sinusoids(graph, "places", 16))
    port = onnx.helper.make_tensor_value_info
    given = [port("places", onnx.TensorProto.INT64, ["L"])]
    made = graph.serialize("positions", given, [port("encoding", onnx.TensorProto.FLOAT, ["L", 16])])
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    found = session.run(None, {"places": places})[0]
    np.testing.assert_allclose(found, sinusoidal_encoding(torch.from_numpy(places), 16), atol=1e-7)

    ours, theirs = both
    source = [3 + place % 290 for place in range(1500)]
    keys = ours.start(ours.encode(mh.Packed.of([source]))).source_keys
    assert_same(keys, theirs.encode([source]).source_keys)


def test_filler_may_be_anything(both: Any) -> None:
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


def test_swish_and_a_bias_of_the_output_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published models have them; put in by hand, whatever a config can say."""
    saved(tmp_path / "model")
    ours, subwords, told = checkpoint.load_model(tmp_path / "model")
    ours.output.bias = torch.nn.Parameter(torch.randn(300))
    for module in ours.modules():
        if hasattr(module, "activation"):
            module.activation = torch.nn.functional.silu
    object.__setattr__(ours.config, "activation", "swish")
    monkeypatch.setattr(export, "load_model", lambda folder: (ours, subwords, told))
    export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    found = OnnxModel(tmp_path / "onnx").score(SOURCES, SOURCES)
    for own, other in zip(TorchEngine(ours).score(SOURCES, SOURCES), found, strict=True):
        np.testing.assert_allclose(other, own, atol=1e-4)


# ---- searching and scoring


def test_greedy_search_is_ours(both: Any) -> None:
    ours, theirs = both
    state = ours.start(ours.encode(mh.Packed.of(MANY)))
    expected = greedy_search(ours.step, state, LIMITS, torch.device("cpu"))
    assert theirs.greedy(MANY, LIMITS) == expected
    assert_some_end_of_themselves(expected)


def assert_some_end_of_themselves(found: list[list[int]]) -> None:
    """And some at their limit: else the comparison says less than it seems to."""
    early = [0 < len(tokens) < limit for tokens, limit in zip(found, LIMITS, strict=True)]
    assert sum(early) > 1
    assert any(len(tokens) == limit > 1 for tokens, limit in zip(found, LIMITS, strict=True))


@pytest.mark.parametrize(("width", "alpha"), [(1, 0.6), (2, 0.0), (4, 0.6), (5, 2.0)])
def test_beam_search_is_ours(both: Any, width: int, alpha: float) -> None:
    ours, theirs = both

    def begun(numbers: list[int], _: Any) -> Any:
        return ours.start(ours.encode(mh.Packed.of([MANY[number] for number in numbers])), width)

    how, together = mh.DecodingConfig(beam=width, alpha=alpha), SearchLimits(max_rows=width * len(MANY))
    wishes = [DecodingConstraints(limit) for limit in LIMITS]
    expected = [best[0] for best in search(ours.step, begun, wishes, how, torch.device("cpu"), together)]
    found = [theirs.beam(source, limit, width, alpha) for source, limit in zip(MANY, LIMITS, strict=True)]
    assert [tokens for tokens, _ in found] == [one.tokens for one in expected]
    assert [score for _, score in found] == pytest.approx([one.score for one in expected], abs=1e-4)
    assert_some_end_of_themselves([tokens for tokens, _ in found])
    if width == 1:
        assert [tokens for tokens, _ in found] == theirs.greedy(MANY, LIMITS)


class Scripted(OnnxModel):
    """What follows depends on the last token alone."""

    def __init__(self, table_KK: np.ndarray[Any, Any]) -> None:
        self.table_KK = table_KK

    def encode(self, sources: Any, width: int = 1) -> Any:
        return SimpleNamespace(reorder=lambda rows: self.encode(sources), drop=lambda gone: None)

    def step(self, tokens_R: Any, state: Any) -> Any:
        return self.table_KK[tokens_R], state


@given(
    seed=st.integers(0, 999),
    width=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.6, 3.0]),
    limit=st.integers(0, 12),
)
@settings(max_examples=200)
def test_beam_search_stops_exactly_where_ours_does(seed: int, width: int, alpha: float, limit: int) -> None:
    model = Scripted(np.random.default_rng(seed).normal(size=(6, 6)).astype(np.float32))
    expected = search(
        lambda tokens, state: (torch.from_numpy(model.table_KK)[tokens], state),
        lambda numbers, state: model.encode([[]]),
        [DecodingConstraints(limit)],
        mh.DecodingConfig(beam=width, alpha=alpha),
        torch.device("cpu"),
    )[0][0]
    tokens, score = model.beam([], limit, width, alpha)
    assert tokens == expected.tokens
    assert score == pytest.approx(expected.score, abs=1e-4)


def test_forced_decoding_gives_our_scores(both: Any) -> None:
    ours, theirs = both
    targets = [[9, 8], [], [4] * 20, [2, 7], [299]]
    found, expected = theirs.score(SOURCES, targets), TorchEngine(ours).score(SOURCES, targets)
    assert [len(scores) for scores in found] == [3, 1, 21, 3, 2]
    for own, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, own, atol=1e-4)


def test_more_sentences_than_are_run_at_once_come_back_in_their_order(both: Any) -> None:
    _, model = both
    sources = [[3 + number % 250, 2][number % 2 :] for number in range(150)]
    targets = [[3 + number] for number in range(150)]
    found = model.score(sources, targets)
    for number in (0, 1, 77, 149):
        alone = model.score([sources[number]], [targets[number]])
        np.testing.assert_allclose(found[number], alone[0], **TOLERANCE)
    assert model.score([], []) == []
    assert model.greedy([], []) == []


def test_texts_are_translated_as_ours_are(both: Any) -> None:
    ours, theirs = both
    texts = ["I go home.", "우리는  집에 간다.", "zebra \u2581 é", "x"]
    translator = mh.Translator(TorchEngine(ours), JOINT, {"source": "en", "target": "ko"})
    expected = [one.text for one in translator.translate(texts, beam=1, max_extra_length=9, split=False)]
    assert theirs.translate([texts[0], "", *texts[1:], " \t"]) == [expected[0], "", *expected[1:], " \t"]
    assert len(theirs.translate(texts, beam=3)) == 4


def test_text_beyond_what_the_model_was_trained_for_is_translated_with_a_warning(both: Any) -> None:
    with pytest.warns(UserWarning, match="but the model was trained with up to 40"):
        assert len(both[1].translate(["가나다라" * 30])) == 1


# ---- without torch


def test_the_folder_is_run_without_torch(folder: Path) -> None:
    code = f"""
import sys
sys.modules["torch"] = None  # importing it fails
from manyheads.export.onnx_run import OnnxModel
model = OnnxModel({str(folder)!r})
print(ascii(model.translate(["I go home.", "", "우리는 간다."], beam=1)))
assert not [name for name in sys.modules if name.startswith("torch.")]
assert "onnx" not in sys.modules
"""
    source = str(Path(mh.__file__).parents[1])
    told = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": source, "PYTHONUTF8": "1"},
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip() == ascii(OnnxModel(folder).translate(["I go home.", "", "우리는 간다."]))


# ---- the folder


def test_the_graphs_pass_onnx_s_own_check_and_fix_no_axis_that_may_vary(folder: Path) -> None:
    import onnx

    for name in ("encoder.onnx", "decoder.onnx"):
        model = onnx.load(folder / name)
        onnx.checker.check_model(model, full_check=True)
        assert [(one.domain, one.version) for one in model.opset_import] == [("", 17)]
        for port in (*model.graph.input, *model.graph.output):
            axes = [axis.dim_param or axis.dim_value for axis in port.type.tensor_type.shape.dim]
            fixed = {axis for axis in axes if isinstance(axis, int)}
            assert fixed <= {2, 4, 300}  # layers; heads, and their widths; words


def test_tied_matrices_are_stored_once_in_a_file(tmp_path: Path) -> None:
    sizes = {}
    for ties in ("three-way", "none"):
        exported(tmp_path / ties, replace(SMALL, tie_embeddings=ties))
        sizes[ties] = (tmp_path / ties / "onnx" / "decoder.onnx").stat().st_size
    table = 300 * 16 * 4
    assert table <= sizes["none"] - sizes["three-way"] < table + 200


def test_the_folder_says_what_its_reader_must_know(folder: Path) -> None:
    told = json.loads((folder / MANIFEST).read_text())
    assert told["format"] == 2
    assert told["special"] == {"unknown": 0, "begin": 1, "end": 2}
    assert (told["max_length"], told["max_extra_length"], told["positions"], told["step"]) == (40, 9, None, 7)
    assert told["languages"] == {"source": "en", "target": "ko"}
    assert told["sizes"]["target_vocab_size"] == 300
    assert set(told["files"]) == {path.name for path in folder.iterdir()} - {MANIFEST}


def test_the_scores_of_both_are_handed_back(tmp_path: Path) -> None:
    saved(tmp_path / "model")
    checks = export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert len(checks) == 8
    assert all(abs(check.our_score - check.their_score) < 1e-3 for check in checks)


def test_an_export_that_is_another_model_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "model")
    monkeypatch.setattr(export, "NEVER", 0.0)  # everybody sees filler and what is not yet there
    with pytest.raises(mh.CheckpointError, match=r"the ONNX export: gives .* and was not kept"):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert os.listdir(tmp_path) == ["model"]


def test_an_export_replaces_another_only_where_that_is_asked(tmp_path: Path) -> None:
    saved(tmp_path / "model")
    export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    with pytest.raises(mh.DataError, match="onnx: exists already"):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    export.to_onnx(tmp_path / "model", tmp_path / "onnx", replace=True)
    OnnxModel(tmp_path / "onnx")


# ---- what is refused


def test_damage_in_any_part_is_named(folder: Path) -> None:
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


def changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    told = json.loads((folder / MANIFEST).read_text())
    change(told)
    told["sha256"] = atomic_io.compute_checksum(told)
    (folder / MANIFEST).write_text(json.dumps(told))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told.update(format=9), "format 9, but this version reads format 2: update manyheads"),
        (
            lambda told: told.update(format=1),
            "format 1 of an older development version, but this version reads format 2: export the model",
        ),
        (lambda told: told.clear(), "not the manifest of an ONNX export"),
        (lambda told: told.pop("positions"), "has no valid positions: export the model again"),
        (lambda told: told.update(max_length="x", sizes=3), "has no valid sizes, max_length"),
        (lambda told: told["sizes"].pop("source_vocab_size"), "has no valid sizes"),
        (lambda told: told["special"].update(end=3), "special ids are .*'end': 3.* but must be .*'end': 2"),
        (lambda told: told["files"].pop("decoder.onnx"), "has no valid files"),
        (lambda told: told["files"].update({"x": {}}), "has no valid files"),
        (
            lambda told: told["files"].update({"../x": {"bytes": 1, "sha256": "0"}}),
            "lists '../x', which is not in the folder",
        ),
    ],
)
def test_a_foreign_description_is_refused(folder: Path, change: Any, message: str) -> None:
    changed(folder, change)
    with pytest.raises(mh.CheckpointError, match=message):
        OnnxModel(folder)


def test_files_that_are_no_graphs_of_ours_are_refused(folder: Path) -> None:
    encoder, decoder = folder / "encoder.onnx", folder / "decoder.onnx"
    whole = encoder.read_bytes()
    for foreign, message in (
        (b"not a graph", "onnxruntime cannot open it"),
        (decoder.read_bytes(), "not a graph of ours"),
    ):
        encoder.write_bytes(foreign)
        changed(folder, lambda told: told["files"].update({encoder.name: atomic_io.hash_file(encoder)}))
        with pytest.raises(mh.CheckpointError, match=rf"encoder\.onnx: .*{message}"):
            OnnxModel(folder)
    encoder.write_bytes(whole)
    with pytest.raises(mh.CheckpointError, match="model: not an ONNX export"):
        OnnxModel(folder.parent / "model")


def test_what_has_no_operators_is_refused_by_its_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(export, "KNOWN", export.SUPPORTED_KEYS - {"window"})
    saved(tmp_path / "model", replace(SMALL, window=3))
    with pytest.raises(mh.RequestError, match=r"model\.window is 3, but ONNX export knows None only"):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    monkeypatch.delitem(export.ACTIVATIONS, "relu")
    saved(tmp_path / "model")
    with pytest.raises(
        mh.RequestError, match=r"model\.activation is 'relu', but ONNX export knows gelu, swish"
    ):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert os.listdir(tmp_path) == ["model"]


def test_every_key_of_a_model_is_known_or_must_have_its_default() -> None:
    """Whoever adds a key to ModelConfig decides here whether the graphs follow it."""
    refused = {"architecture", "experts", "experts_per_token", "experts_balance_weight"}
    assert {key.name for key in fields(mh.TransformerConfig)} - export.SUPPORTED_KEYS == refused


def test_weights_that_no_file_can_carry_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "model")
    monkeypatch.setattr(export, "LARGEST_FILE", 1000)
    with pytest.raises(mh.RequestError, match=r"encoder: .* bytes of weights, but an ONNX file holds 1,000"):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_package_that_is_missing_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    saved(tmp_path / "model")
    with pytest.raises(
        mh.RequestError, match=rf"{package} is not installed: pip install 'manyheads\[onnx\]'"
    ):
        export.to_onnx(tmp_path / "model", tmp_path / "onnx")


def test_wrong_calls_are_refused(both: Any) -> None:
    _, model = both
    with pytest.raises(mh.DataError, match="token ids from 0 to 300, but the vocabulary has 300"):
        model.encode([[300], [5, 6]])
    with pytest.raises(mh.DataError, match="token ids from -1 to -1"):
        model.step(np.array([-1]), model.encode([[5]]))
    with pytest.raises(mh.DataError, match="token ids from 999 to 999"):
        model.score([[5]], [[999]])
    with pytest.raises(mh.RequestError, match="3 tokens, but the state has 2 rows"):
        model.step(np.array([1, 1, 1]), model.encode([[5]], width=2))
    with pytest.raises(mh.RequestError, match="0 hypotheses a sentence"):
        model.encode([[5]], width=0)
    with pytest.raises(mh.DataError, match="1 sources, but 2 targets"):
        model.score([[5]], [[6], [7]])


def test_learned_positions_end_where_the_model_s_do(tmp_path: Path) -> None:
    _, theirs = exported(tmp_path, replace(SMALL, positions="learned", max_positions=6))
    with pytest.raises(mh.DataError, match="sentences of up to 7 tokens, but learned positions reach 6"):
        theirs.encode([[5] * 7])
    with pytest.raises(mh.DataError, match="sentences of up to 7 tokens"):
        theirs.score([[5]], [[5] * 6])
    assert len(theirs.score([[5] * 6], [[5] * 5])[0]) == 6
    assert len(theirs.translate(["x"])) == 1
