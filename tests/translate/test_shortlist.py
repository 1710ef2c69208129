"""Shortlists: learned from pairs, stored with the model, used where they change nothing but the time."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

import manyheads as mh
from manyheads import checkpoint
from manyheads.checkpoint.shortlist import SHORTLIST, Shortlist, read_shortlist, write_shortlist
from manyheads.cli.app import app
from manyheads.config import EOS_ID, NUM_SPECIAL_TOKENS, DecodingConfig, SubwordConfig
from manyheads.data.lexical_translation import Links
from manyheads.data.store import Side
from manyheads.demo import prepare_corpus
from manyheads.errors import CheckpointError, RequestError
from manyheads.export.ctranslate2 import convert
from manyheads.export.int8 import quantize_model
from manyheads.inference import shortlist_model
from manyheads.inference.conversion import VOCABULARY_MAP
from manyheads.inference.ctranslate2_engine import CTranslate2Engine
from manyheads.inference.engine import decode_all
from manyheads.inference.torch_engine import TorchEngine
from manyheads.search.options import DecodingConstraints, Request
from manyheads.text.subwords import SubwordPair, SubwordTokenizer, TokenSequences
from manyheads.train import shortlist as learning
from support.strategies import randomize_weights

VOCAB_SIZE = 40
TEXTS = ["the cat sat on the mat", "a dog ran home to sleep", "we go by sea and by land"] * 5
SUBWORDS = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=VOCAB_SIZE, byte_fallback=False))
SOURCES = [[5, 6, 7, EOS_ID], [8, 9, EOS_ID], [5, 9, 6, 6, EOS_ID]]
UNKNOWN = 30  # a source piece without candidates
GREEDY = DecodingConfig(beam=1)


def make_shortlist() -> Shortlist:
    """Piece n may become n, n + 1 and n + 10; 30 and those after it are too rare."""
    candidates = [sorted({n, n + 1, n + 10}) if n < UNKNOWN else [] for n in range(VOCAB_SIZE)]
    lengths = [len(own) for own in candidates]
    pieces = np.array([piece for own in candidates for piece in own])
    return Shortlist(np.array([3, 4]), np.cumsum([0, *lengths]), pieces)


def save_model(path: Path, end_bias: float | None = None) -> Path:
    """A random model with a shortlist; with a bias its sentences end before the limit."""
    torch.manual_seed(2)
    sizes: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 16, "d_ff": 24, "heads": 4}
    config = mh.Config(
        model=mh.TransformerConfig(vocab_size=VOCAB_SIZE, output_bias=end_bias is not None, **sizes),
        data=mh.DataConfig(max_length=30),
    )
    model = mh.Transformer(config.model)
    randomize_weights(model)
    if end_bias is not None:
        model.output.bias.data[EOS_ID] = end_bias
    languages = {"source": "en", "target": "de"}
    pair, weights = SubwordPair(SUBWORDS, SUBWORDS), checkpoint.collect_weights(model)
    checkpoint.save(path, weights, pair, config, step=1, languages=languages)
    write_shortlist(path, make_shortlist())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("shortlist") / "model")


def allowed(source: list[int]) -> set[int]:
    return {*range(NUM_SPECIAL_TOKENS), 3, 4, *(n + more for n in source for more in (0, 1, 10))}


def open_engine(folder: Path, name: str, out: Path) -> Any:
    if name == "torch":
        shortlist = read_shortlist(folder, VOCAB_SIZE, VOCAB_SIZE)
        return TorchEngine(checkpoint.load_model(folder)[0], shortlist=shortlist)
    convert(folder, out)
    return CTranslate2Engine(out, threads=1)


# ---- the list


def test_candidates_are_those_of_all_sources_and_the_frequent_ones() -> None:
    shortlist = make_shortlist()
    chosen = shortlist.select([[5, EOS_ID], [7]], others=[39])
    assert chosen.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 17, 39]
    assert shortlist.covers([5, EOS_ID])
    assert not shortlist.covers([5, UNKNOWN, EOS_ID])
    assert not shortlist.covers([VOCAB_SIZE + 3])


def test_a_stored_list_is_the_same(folder: Path) -> None:
    stored, own = read_shortlist(folder, VOCAB_SIZE, VOCAB_SIZE), make_shortlist()
    assert stored is not None
    for name in ("frequent", "offsets", "pieces"):
        assert getattr(stored, name).tolist() == getattr(own, name).tolist()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((VOCAB_SIZE + 1, VOCAB_SIZE), "source pieces, but the model has"),
        ((VOCAB_SIZE, 20), "not a shortlist"),
    ],
)
def test_a_list_of_another_model_is_refused(folder: Path, sizes: tuple[int, int], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_shortlist(folder, *sizes)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("pieces", np.full(5, -1, np.int64)),
        ("frequent", np.array([-3], np.int16)),
        ("frequent", np.array([np.nan], np.float32)),
        ("offsets", np.array([], np.uint32)),
        ("pieces", np.zeros((2, 2), np.uint16)),
    ],
)
def test_a_list_with_other_numbers_is_refused(name: str, array: NDArray[Any], tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    own = make_shortlist()
    arrays = {key: getattr(own, key).astype(np.uint32) for key in ("frequent", "offsets", "pieces")}
    if name == "pieces" and array.ndim == 1:
        arrays["offsets"] = np.minimum(np.arange(VOCAB_SIZE + 1), 5).astype(np.uint32)
    save_file({**arrays, name: array}, tmp_path / SHORTLIST)
    with pytest.raises(CheckpointError, match="not a shortlist"):
        read_shortlist(tmp_path, VOCAB_SIZE, VOCAB_SIZE)


def test_a_list_travels_with_an_int8_folder_and_a_conversion(folder: Path, tmp_path: Path) -> None:
    quantize_model(folder, tmp_path / "int8")
    convert(tmp_path / "int8", tmp_path / "ct2")
    for copied in (tmp_path / "int8", tmp_path / "ct2"):
        assert (copied / SHORTLIST).read_bytes() == (folder / SHORTLIST).read_bytes()
    lines = (tmp_path / "ct2" / VOCABULARY_MAP).read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("\t")
    assert len(lines) == 1 + UNKNOWN
    pieces = [SUBWORDS.id_to_piece(n) for n in (5, 6, 15)]
    assert f"{pieces[0]}\t{' '.join(pieces)}" in lines


# ---- decoding


@pytest.mark.parametrize("name", ["torch", "ctranslate2"])
@pytest.mark.parametrize("beam", [1, 3])
def test_only_candidates_come_out(folder: Path, tmp_path: Path, name: str, beam: int) -> None:
    engine = open_engine(folder, name, tmp_path / "ct2")
    config = DecodingConfig(beam=beam)
    constraints = [DecodingConstraints(12)]
    free = 0
    for source in SOURCES:
        for shortlist in (True, False):
            own = replace(config, shortlist=shortlist)
            ((best, *_),) = decode_all(engine, [source], constraints, own, scores="none")
            if shortlist:
                assert set(best.tokens) <= allowed(source)
            else:
                free += not set(best.tokens) <= allowed(source)
    assert free  # without the list the random model writes other pieces too


@pytest.mark.parametrize("name", ["torch", "ctranslate2"])
def test_a_source_with_an_unknown_piece_has_the_whole_vocabulary(
    folder: Path, tmp_path: Path, name: str
) -> None:
    engine = open_engine(folder, name, tmp_path / "ct2")
    sources, constraints = (
        [[*source[:-1], UNKNOWN, EOS_ID] for source in SOURCES],
        [DecodingConstraints(12)] * 3,
    )
    restricted = decode_all(engine, sources, constraints, GREEDY, scores="none")
    whole = decode_all(engine, sources, constraints, replace(GREEDY, shortlist=False), scores="none")
    assert [own[0].tokens for own in restricted] == [own[0].tokens for own in whole]


@pytest.mark.parametrize("beam", [1, 3])
def test_torch_uses_no_shortlist_if_scores_are_read(folder: Path, tmp_path: Path, beam: int) -> None:
    engine, constraints = open_engine(folder, "torch", tmp_path), [DecodingConstraints(12)] * 3
    config = DecodingConfig(beam=beam, nbest=beam)
    whole = decode_all(engine, SOURCES, constraints, replace(config, shortlist=False), scores="total")
    assert decode_all(engine, SOURCES, constraints, config, scores="total") == whole
    listed = decode_all(engine, SOURCES, constraints, config, scores="none")
    assert [own[0].tokens for own in listed] != [own[0].tokens for own in whole]


@pytest.mark.parametrize("beam", [1, 3])
def test_scores_are_those_of_the_whole_vocabulary(tmp_path: Path, beam: int) -> None:
    engine = open_engine(save_model(tmp_path / "model", end_bias=5.0), "ctranslate2", tmp_path / "ct2")
    config, constraints = DecodingConfig(beam=beam, nbest=beam), [DecodingConstraints(12)] * 3
    results = decode_all(engine, SOURCES, constraints, config, scores="total")
    assert any(len(hypotheses[0].tokens) < 12 for hypotheses in results)
    for source, hypotheses in zip(SOURCES, results, strict=True):
        for hypothesis in hypotheses:
            (forced,) = engine.score([source], [hypothesis.tokens])
            assert hypothesis.log_probability == pytest.approx(sum(forced), abs=1e-3)


def test_sampling_draws_from_the_whole_vocabulary(folder: Path, tmp_path: Path) -> None:
    engine, constraints = open_engine(folder, "torch", tmp_path), [DecodingConstraints(12)] * 3
    sampling = DecodingConfig(temperature=1.0, nbest=4)
    with_list, without = (
        decode_all(engine, SOURCES, constraints, replace(sampling, shortlist=own), scores="none")
        for own in (True, False)
    )
    assert [[h.tokens for h in own] for own in with_list] == [[h.tokens for h in own] for own in without]


def test_what_is_required_comes_out_whatever_the_source(folder: Path, tmp_path: Path) -> None:
    engine = open_engine(folder, "torch", tmp_path)
    constraints = [DecodingConstraints(12, prefix=(35, 36), required_phrases=((38, 37),))]
    ((best, *_),) = decode_all(engine, SOURCES[:1], constraints, DecodingConfig(beam=3), scores="none")
    assert best.tokens[:2] == [35, 36]
    assert {37, 38} <= set(best.tokens)


def test_sentences_that_join_a_batch_bring_their_candidates(folder: Path) -> None:
    model = checkpoint.load_model(folder)[0]
    restricted = shortlist_model.ShortlistModel(model, make_shortlist())
    restricted.admit([Request([5, EOS_ID], DecodingConstraints(5))], is_first=True)
    restricted.admit([Request([9, EOS_ID], DecodingConstraints(5))], is_first=False)
    assert {5, 6, 15, 9, 10, 19} <= restricted.rows
    restricted.admit([Request([20, EOS_ID], DecodingConstraints(5))], is_first=True)
    assert 15 not in restricted.rows
    everything = [Request([n, EOS_ID], DecodingConstraints(5)) for n in range(UNKNOWN)]
    restricted.admit(everything, is_first=False)
    assert restricted.restricted is model  # more than half of the vocabulary: nothing to gain


def test_a_piece_with_a_space_leaves_ctranslate2_without_a_map(tmp_path: Path, folder: Path) -> None:
    from manyheads.export.ctranslate2 import write_vocabulary_map

    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(["a b", *map(str, range(39))]))
    write_vocabulary_map(tmp_path, make_shortlist())
    assert not (tmp_path / VOCABULARY_MAP).exists()


# ---- learning


def make_side(sentences: list[list[int]]) -> Side:
    tokens = np.array([token for sentence in sentences for token in sentence], np.uint16)
    return Side(tokens, np.cumsum([0, *map(len, sentences)]))


def test_model_1_finds_which_piece_explains_which() -> None:
    """Each source piece n becomes n + 20, in sentences of random pieces."""
    generator = np.random.default_rng(0)
    sources = [[*generator.choice(np.arange(5, 15), 4).tolist(), EOS_ID] for _ in range(300)]
    targets = [[*(n + 20 for n in source[:-1]), EOS_ID] for source in sources]
    source, target = (
        TokenSequences(own.tokens, own.offsets) for own in (make_side(sources), make_side(targets))
    )
    is_learned = np.arange(VOCAB_SIZE) > 3
    links = Links.collect(source, target, is_learned)
    counts = links.run_em()
    for piece in range(5, 15):
        own = links.sources == piece
        assert links.targets[own][counts[own].argmax()] == piece + 20


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pairs = [
        (f"the {a} cat sees {b}", f"die {a} Katze sieht {b}")
        for a in "xyzuvwabcdefgh"
        for b in ("me", "us", "him", "her", "them", "you", "it")
    ]
    folder = tmp_path_factory.mktemp("corpus")
    held_out = {"valid": pairs[::8], "test": pairs[4::8]}
    splits = {"train": [pair for n, pair in enumerate(pairs) if n % 4], **held_out}
    prepare_corpus(folder, "en-de", splits, 300)
    return folder / "data"


def test_the_command_adds_a_list_to_the_model(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "NUM_FREQUENT", 5)
    subwords = SubwordPair.load(corpus)
    config = mh.Config(
        model=mh.TransformerConfig(vocab_size=len(subwords.source), layers=1, d_model=8, heads=2)
    )
    weights = checkpoint.collect_weights(mh.Transformer(config.model))
    languages = {"source": "en", "target": "de"}
    checkpoint.save(tmp_path / "model", weights, subwords, config, step=1, languages=languages)
    result = CliRunner().invoke(app, ["shortlist", str(tmp_path / "model"), "--data", str(corpus), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["pairs"] == 73
    assert report["coverage"] == 1.0
    size = len(subwords.source)
    shortlist = read_shortlist(tmp_path / "model", size, size)
    assert shortlist is not None
    (cat,) = subwords.source.encode("cat")[:1]
    assert cat in shortlist[cat]  # of the same text
    assert mh.load(tmp_path / "model", device="cpu").translate("the x cat", scores="none").text is not None


# ---- the command line


def test_text_without_confidence_is_plain(folder: Path) -> None:
    result = CliRunner().invoke(app, ["translate", str(folder), "--no-confidence", "--json"])
    assert isinstance(result.exception, RequestError)
    assert "--no-confidence is for plain text" in str(result.exception)
    options = ["--no-confidence", "--no-shortlist", "--engine", "torch:int8", "--device", "cpu"]
    result = CliRunner().invoke(app, ["translate", str(folder), *options], input="the cat\na dog\n")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.split("\n")) == 3
