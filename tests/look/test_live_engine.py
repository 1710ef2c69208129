"""The engine of the live page computes what the torch engine computes, from the same int8 weights."""

import base64
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import manyheads as mh
from manyheads import checkpoint
from manyheads.checkpoint.quantization import dequantize_arrays, quantize_arrays
from manyheads.confidence.known_words import KnownWords
from manyheads.confidence.source_model import SourceModel
from manyheads.config import BOS_ID, EOS_ID, SubwordConfig
from manyheads.export.int8 import quantize_model
from manyheads.look.forward_walk import walk_layer
from manyheads.look.live_page import build_live_data, pack_arrays, pack_known_words
from manyheads.model.encoder_decoder import Trace
from manyheads.search.driver import search
from manyheads.search.options import DecodingConstraints
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.node_engine import NodeEngine
from support.strategies import build_test_model, sentences, transformer_configs
from support.walk_models import CONFIGS, make_translator

SENTENCES = ["I go home today.", "We read a book at school.", "나는 오늘 집에 간다."]
ATOL = 1e-4  # float32 sums in another order, which the norm of a nearly constant vector enlarges


def list_texts(count: int) -> list[str]:
    rng = random.Random(0)
    words = ["I", "go", "home", "today", "We", "read", "a", "book", "at", "school", "and", "the", "cook"]
    return [" ".join(rng.choices(words, k=rng.randrange(1, 12))) + "." for _ in range(count)]


def round_model(config: mh.TransformerConfig) -> tuple[Any, dict[str, Any]]:
    """Return a random model whose matrices have int8 values, and the same model for the engine."""
    model = build_test_model(config)
    weights = {name: tensor.detach().numpy() for name, tensor in checkpoint.collect_weights(model).items()}
    quantized = quantize_arrays({name: np.asarray(array, np.float32) for name, array in weights.items()})
    rounded = dequantize_arrays(quantized, "test")
    with torch.no_grad():
        for name, tensor in checkpoint.collect_weights(model).items():
            tensor.copy_(torch.from_numpy(np.asarray(rounded[name])))
    tensors, content = pack_arrays(quantized)
    encoded = base64.b64encode(content).decode()
    return model, {"config": asdict(config), "tensors": tensors, "weights": encoded}


def forward(model: Any, source: list[int], target: list[int]) -> tuple[np.ndarray, Trace]:
    trace = Trace()
    with torch.no_grad():
        logits = model(mh.Packed.of([source]), mh.Packed.of([target]), trace=trace)
    return logits.numpy(), trace


def check_maps(maps: dict[str, Any], trace: Trace, atol: float) -> None:
    for name in ("encoder", "decoder", "cross"):
        layers = getattr(trace, name)
        assert len(maps[name]) == len(layers)
        for own, (expected,) in zip(maps[name], layers, strict=True):
            weights = np.array(own["weights"]).reshape(own["heads"], own["rows"], own["columns"])
            np.testing.assert_allclose(weights, np.nan_to_num(expected.float().numpy()), atol=atol)


def compare_forward(
    node: NodeEngine, config: mh.TransformerConfig, source: list[int], target: list[int]
) -> None:
    model, data = round_model(config)
    expected, trace = forward(model, source, target)
    for use_kernel in (False, True):  # plain JavaScript, and WebAssembly
        assert node.call("loadModel", **data, useKernel=use_kernel) == use_kernel
        result = node.call("forward", source=source, target=target)
        np.testing.assert_allclose(np.array(result["logits"]).reshape(expected.shape), expected, atol=ATOL)
        check_maps(result["maps"], trace, ATOL)
    steps = node.call("step", source=source, target=target)
    np.testing.assert_allclose(np.array(steps), expected, atol=ATOL)  # cached


def test_logits_and_maps_equal_those_of_torch_for_every_kind_of_model(node: NodeEngine) -> None:
    @settings(max_examples=25, deadline=None)
    @given(transformer_configs(), sentences(count=2, min_length=1))
    def check(config: mh.TransformerConfig, pair: list[list[int]]) -> None:
        compare_forward(node, config, *pair)

    check()


@pytest.mark.heavy
def test_logits_and_maps_equal_those_of_torch_for_many_models(node: NodeEngine) -> None:
    @settings(max_examples=400, deadline=None)
    @given(transformer_configs(), sentences(count=2, min_length=1))
    def check(config: mh.TransformerConfig, pair: list[list[int]]) -> None:
        compare_forward(node, config, *pair)

    check()


def test_a_cut_head_is_a_head_without_output(node: NodeEngine) -> None:
    config = mh.TransformerConfig(
        vocab_size=11, encoder_layers=2, decoder_layers=1, d_model=6, d_ff=7, heads=3
    )
    model, data = round_model(config)
    node.call("loadModel", **data)
    source, target = [4, 5, 6, 2], [1, 7, 8]
    attentions = {
        ("encoder", 1, 2): model.encoder[1].self_attention,
        ("decoder", 0, 0): model.decoder[0].self_attention,
        ("cross", 0, 1): model.decoder[0].cross_attention,
    }
    whole = node.call("forward", source=source, target=target)["logits"]
    for (name, layer, head), attention in attentions.items():
        kept = attention.w_o.weight.detach().clone()
        with torch.no_grad():
            attention.w_o.weight[:, 2 * head : 2 * head + 2] = 0
        expected, _ = forward(model, source, target)
        with torch.no_grad():
            attention.w_o.weight.copy_(kept)
        cut = node.call("forward", source=source, target=target, cuts=[[name, layer, head]])["logits"]
        np.testing.assert_allclose(np.array(cut).reshape(expected.shape), expected, atol=ATOL)
        assert np.abs(np.array(cut) - np.array(whole)).max() > 1e-3


# ---- search


def search_with_torch(model: Any, source: list[int], config: mh.DecodingConfig, **limits: Any) -> Any:
    with torch.no_grad():
        memory = model.encode(mh.Packed.of([source]))
        constraints = DecodingConstraints(**limits)
        state = model.start(memory, beam=config.beam)
        return search(model.step, lambda indices, _: state, [constraints], config, torch.device("cpu"))[0]


@pytest.mark.parametrize("beam", [1, 3, 4])
def test_searches_return_the_hypotheses_of_the_torch_engine(node: NodeEngine, beam: int) -> None:
    rng = random.Random(beam)
    for index in range(12):
        config = mh.TransformerConfig(
            vocab_size=23, encoder_layers=1, decoder_layers=2, d_model=8, d_ff=16, heads=2, init_gain=4.0
        )
        torch.manual_seed(index)
        model, data = round_model(config)
        node.call("loadModel", **data)
        source = [rng.randrange(3, 23) for _ in range(rng.randrange(1, 8))] + [EOS_ID]
        prefix = (5, 6) if index % 3 == 0 else ()
        ngram = 2 if index % 4 == 0 else None
        decoding = mh.DecodingConfig(beam=beam, nbest=beam, alpha=0.6, no_repeat_ngram=ngram)
        limits = {"max_length": 12, "min_length": index % 3, "prefix": prefix}
        expected = search_with_torch(model, source, decoding, **limits)
        options = {
            "beam": beam, "nbest": beam, "alpha": 0.6, "maxLength": 12, "minLength": index % 3,
            "prefix": list(prefix), "noRepeatNgram": ngram,
        }  # fmt: skip
        result = node.call("search", source=source, options=options)
        assert [own["tokens"] for own in result] == [own.tokens for own in expected]
        for own, other in zip(result, expected, strict=True):
            assert own["score"] == pytest.approx(other.score, abs=1e-4)
            np.testing.assert_allclose(own["scores"], other.token_scores, atol=1e-4)


def compare_searches(node: NodeEngine, config: mh.TransformerConfig, source: list[int], beam: int) -> None:
    """Compare all hypotheses of a beam; the decoder may be deeper or shallower than the encoder."""
    model, data = round_model(config)
    node.call("loadModel", **data)
    decoding = mh.DecodingConfig(beam=beam, nbest=beam, alpha=0.6)
    expected = search_with_torch(model, source, decoding, max_length=8)
    options = {"beam": beam, "nbest": beam, "alpha": 0.6, "maxLength": 8}
    result = node.call("search", source=source, options=options)
    assert [own["tokens"] for own in result] == [own.tokens for own in expected]
    scores = [own.score for own in expected]
    assert [own["score"] for own in result] == pytest.approx(scores, rel=1e-5, abs=1e-4)


# Without residuals such small models give the same logits at every step, and hypotheses tie.
SEARCHES = (transformer_configs(residuals=True), sentences(count=1, min_length=1), st.sampled_from([1, 2, 4]))


def test_searches_of_every_kind_of_model_equal_those_of_torch(node: NodeEngine) -> None:
    @settings(max_examples=15, deadline=None)
    @given(*SEARCHES)
    def check(config: mh.TransformerConfig, texts: list[list[int]], beam: int) -> None:
        compare_searches(node, config, texts[0], beam)

    check()


@pytest.mark.heavy
def test_searches_of_many_models_equal_those_of_torch(node: NodeEngine) -> None:
    @settings(max_examples=100, deadline=None)
    @given(*SEARCHES)
    def check(config: mh.TransformerConfig, texts: list[list[int]], beam: int) -> None:
        compare_searches(node, config, texts[0], beam)

    check()


def test_a_sample_starts_from_its_seed(node: NodeEngine) -> None:
    config = mh.TransformerConfig(vocab_size=23, layers=1, d_model=8, d_ff=16, heads=2, init_gain=1.0)
    node.call("loadModel", **round_model(config)[1])
    options = {"temperature": 1.0, "alpha": 0.6, "maxLength": 12, "seed": 1}
    first, again, other = (
        node.call("search", source=[5, 2], options={**options, "seed": seed})[0]["tokens"]
        for seed in (1, 1, 2)
    )
    assert first == again != other


# ---- subwords

CORPUS = [
    *SENTENCES * 9,
    *list_texts(60),
    *["Er sagte: „Über 100 % der Straße“ – naïve café!", "<b>bold</b> {name} %s", "🙂 a🙂b"] * 9,
]
TEXTS = st.text() | st.lists(
    st.sampled_from([*"abcdegho ,.🙂가나는집에▁ä\u0301\u00a0<>{}%s", "⟦0⟧", "home", "{name}", "ooo"])
).map("".join)


@pytest.mark.parametrize("byte_fallback", [True, False])
@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_subwords_equal_those_of_sentencepiece(node: NodeEngine, algorithm: Any, byte_fallback: bool) -> None:
    config = SubwordConfig(
        vocab_size={"bpe": 110, "unigram": 72}[algorithm] + 256 * byte_fallback,
        algorithm=algorithm,
        byte_fallback=byte_fallback,
        character_coverage=0.98,
        user_symbols=("{name}", "<b>"),
    )
    subwords = SubwordTokenizer.train(CORPUS, config)
    node.call("loadSubwords", content=base64.b64encode(subwords.model).decode())

    @settings(max_examples=60, deadline=None)
    @given(st.lists(TEXTS, min_size=1, max_size=8), st.randoms(use_true_random=False))
    def check(texts: list[str], rng: random.Random) -> None:
        encoded = node.call("encode", texts=texts)
        assert encoded == [subwords.encode(text) for text in texts]
        drawn = [[rng.randrange(len(subwords)) for _ in range(6)] for _ in texts]
        decoded = node.call("decode", sentences=[*encoded, *drawn])
        expected = [subwords.decode(ids) for ids in [*encoded, *drawn]]
        assert [text.replace("\ufffd", "") for text in decoded] == [
            text.replace("\ufffd", "")
            for text in expected  # broken bytes, which outputs lose
        ]

    check()


# ---- whole translators


@pytest.fixture(scope="module")
def quantized(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantize_model(model, tmp_path_factory.mktemp("live") / "int8").folder


def compare_translations(node: NodeEngine, folder: Path, texts: list[str], beam: int) -> float:
    """Return the share of texts whose translation is the same."""
    node.call("load", data=build_live_data(folder)["models"][0])
    translated = node.call("translate", texts=texts, options={"beam": beam})
    expected = mh.load(folder, device="cpu", engine="torch:float32").translate(
        texts, beam=beam, second_try=False
    )
    return float(np.mean([own == other.text for own, other in zip(translated, expected, strict=True)]))


def test_translations_equal_those_of_python(node: NodeEngine, quantized: Path) -> None:
    texts = [*SENTENCES, *list_texts(20), "WE READ A BOOK.", "  two   spaces ", "“Quotes” – and…", "?!", ""]
    assert compare_translations(node, quantized, texts, beam=1) == 1
    assert compare_translations(node, quantized, texts, beam=4) == 1


@pytest.mark.heavy
def test_a_thousand_translations_equal_those_of_python(node: NodeEngine, quantized: Path) -> None:
    assert compare_translations(node, quantized, list_texts(1000), beam=1) >= 0.99


def test_maps_and_scores_equal_those_of_python(node: NodeEngine, quantized: Path) -> None:
    node.call("load", data=build_live_data(quantized)["models"][0])
    attention = mh.load(quantized, device="cpu", engine="torch:float32").attention(SENTENCES[0], SENTENCES[2])
    result = node.call("attention", text=SENTENCES[0], target=SENTENCES[2])
    check_maps(result["maps"], attention.trace, 1e-4)
    np.testing.assert_allclose(result["scores"], attention.token_scores, atol=1e-3)
    assert result["begin"] == BOS_ID


@pytest.mark.parametrize("changes", CONFIGS, ids=["post", "pre", "additive", "batch"])
def test_the_walk_in_the_page_equals_that_of_python(
    node: NodeEngine, subwords: SubwordTokenizer, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Every step of every layer, the candidates at the end, and the learned numbers."""
    translator = make_translator(subwords, **changes)
    model = translator.engine.model  # type: ignore[attr-defined]
    config = mh.Config(model=model.config, data=mh.DataConfig(max_length=40))
    weights = checkpoint.collect_weights(model)
    languages = {"source": "en", "target": "ko"}
    checkpoint.save(tmp_path / "model", weights, translator.subwords, config, step=1, languages=languages)
    folder = quantize_model(tmp_path / "model", tmp_path / "int8").folder
    node.call("load", data=build_live_data(folder)["models"][0])
    translator = mh.load(folder, device="cpu", engine="torch:float32")
    for stack, layer in (("encoder", 0), ("encoder", 1), ("decoder", 0), ("decoder", 1)):
        place: dict[str, Any] = {"stack": stack, "layer": layer}
        expected = walk_layer(
            translator, SENTENCES[0], SENTENCES[2], **place, width=1000, with_parameters=True
        )
        own = node.call("walk", text=SENTENCES[0], target=SENTENCES[2], **place)
        compare_walks(own, expected)


def compare_walks(own: dict[str, Any], expected: dict[str, Any]) -> None:
    computed = ("steps", "output", "parameters", "candidates")
    same = [key for key in expected if key not in computed]
    assert {key: own[key] for key in same} == {key: expected[key] for key in same}
    kept = ("part", "name", "axes", "shape", "rows")
    for step, other in zip(own["steps"], expected["steps"], strict=True):
        assert [step[key] for key in kept] == [other[key] for key in kept]
        assert step["columns"] == other.get("columns")
        compare_numbers(step["values"], other["values"])
    if expected["output"]:
        assert own["output"]["ids"] == expected["output"]["ids"]
        assert own["output"]["pieces"] == expected["output"]["pieces"]
        compare_numbers(own["output"]["logits"], expected["output"]["logits"])
        compare_numbers(own["output"]["log_sum_exp"], expected["output"]["log_sum_exp"])
    assert own["parameters"].keys() == expected["parameters"].keys()
    for name, other in expected["parameters"].items():
        numbers = own["parameters"][name]
        assert name != "output.logits" or sorted(numbers["ids"]) == other["ids"]
        for key in ("weight", "bias", "mean", "variance"):
            if other.get(key) and name != "output.logits":
                floats = np.frombuffer(base64.b64decode(other[key]), "<f4")
                np.testing.assert_allclose(numbers[key], floats, atol=1e-6)


def compare_numbers(own: Any, expected: Any) -> None:
    pairs = list(zip(flatten(own), flatten(expected), strict=True))
    assert all((number is None) == (other is None) for number, other in pairs)
    numbers = [pair for pair in pairs if pair[0] is not None]
    pages, python = np.array(numbers, np.float64).T
    np.testing.assert_allclose(pages, python, atol=1e-3, rtol=1e-3)


def test_a_cut_head_has_no_output_in_the_walk(node: NodeEngine, quantized: Path) -> None:
    node.call("load", data=build_live_data(quantized)["models"][0])
    place: dict[str, Any] = {"stack": "decoder", "layer": 1, "cuts": [["cross", 1, 2]]}
    walk = node.call("walk", text=SENTENCES[0], target=SENTENCES[2], **place)
    assert walk["cut_heads"] == {"self": [], "cross": [2]}
    heads = next(step for step in walk["steps"] if (step["part"], step["name"]) == ("cross", "heads"))
    norms = np.abs(np.array(heads["values"])).sum((0, 2))
    assert [bool(norm) for norm in norms] == [True, True, False, True]


def flatten(values: Any) -> list[Any]:
    return [inner for value in values for inner in flatten(value)] if isinstance(values, list) else [values]


def test_two_vocabularies_translate_as_in_python(node: NodeEngine, tmp_path: Path) -> None:
    sources, targets = list_texts(60), [SENTENCES[2]] * 40
    pair = SubwordPair(
        SubwordTokenizer.train(sources, SubwordConfig(vocab_size=300, algorithm="unigram")),
        SubwordTokenizer.train(targets, SubwordConfig(vocab_size=285)),
    )
    config = mh.Config(
        model=mh.TransformerConfig(
            vocab_size=300, source_vocab_size=300, target_vocab_size=285, tie_embeddings="two-way",
            encoder_layers=2, decoder_layers=1, d_model=16, d_ff=32, heads=4, norm="pre", init_gain=2.0,
        ),
        data=mh.DataConfig(max_length=40),
        decoding=mh.DecodingConfig(max_extra_length=6),
    )  # fmt: skip
    torch.manual_seed(0)
    weights = checkpoint.collect_weights(mh.Transformer(config.model))
    languages = {"source": "en", "target": "ko"}
    checkpoint.save(tmp_path / "model", weights, pair, config, step=1, languages=languages)
    folder = quantize_model(tmp_path / "model", tmp_path / "int8").folder
    assert compare_translations(node, folder, SENTENCES[:2], beam=1) == 1


# ---- words that the model does not know


@pytest.mark.parametrize("is_calibrated", [True, False])
def test_unknown_words_are_those_that_python_finds(node: NodeEngine, is_calibrated: bool) -> None:
    """Words of the training text, others with the same letters, and some with other characters."""
    texts = [*list_texts(40), *SENTENCES]
    subwords = SubwordTokenizer.train(texts * 5, SubwordConfig(vocab_size=330))
    ids = [token for text in texts for token in [*subwords.encode(text), EOS_ID]]
    source_model = SourceModel.train(np.array(ids), len(subwords)) if is_calibrated else None
    known = KnownWords.of(subwords, "en", source_model)
    rng = random.Random(1)
    words = ["home", "schools", "naïve", "Ω", "42", "don't", "book-shop", "간다", "나무"]
    words += ["".join(rng.choices("abcehoksty", k=rng.randrange(1, 9))) for _ in range(200)]
    node.call("loadSubwords", content=base64.b64encode(subwords.model).decode())
    text = " ".join(words)
    unknown_words = node.call("findUnknown", data=pack_known_words(known), text=text)
    unknown = [words[index] for index in known.find_unknown(words)]
    assert [entry["word"] for entry in unknown_words] == unknown
    assert all(text[entry["start"] : entry["end"]] == entry["word"] for entry in unknown_words)
    assert 3 <= len(unknown) < len(words) - 5


def test_marks_around_a_word_are_not_part_of_it(node: NodeEngine) -> None:
    subwords = SubwordTokenizer.train(SENTENCES * 20, SubwordConfig(vocab_size=310))
    node.call("loadSubwords", content=base64.b64encode(subwords.model).decode())
    data = pack_known_words(KnownWords.of(subwords, "en"))
    unknown_words = node.call("findUnknown", data=data, text="‘naïve’ -- (“Ωμ”), I go 'home'.")
    assert [entry["word"] for entry in unknown_words] == ["naïve", "Ωμ"]
