"""The case lexicon of a model: it is kept by every copy, and every reading of a source uses it."""

from pathlib import Path

import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import SubwordConfig
from manyheads.export.ctranslate2 import ensure_converted
from manyheads.export.int8 import quantize_model
from manyheads.text.casing import CaseLexicon
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.untrained_model import TEXTS

LEXICON = CaseLexicon(("we", "read", "at", "Berlin", "a", "I"), True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lexicon") / "model"
    subwords = SubwordTokenizer.train([*TEXTS, "We read at Berlin."] * 3, SubwordConfig(vocab_size=330))
    config = mh.Config(
        model=mh.TransformerConfig(vocab_size=330, layers=1, d_model=16, d_ff=32, heads=2),
        data=mh.DataConfig(max_length=40),
    )
    torch.manual_seed(0)
    weights = checkpoint.collect_weights(mh.Transformer(config.model))
    pair = SubwordPair(subwords, subwords, LEXICON)
    checkpoint.save(folder, weights, pair, config, step=1, languages={"source": "en", "target": "ko"})
    return folder


def test_every_copy_of_a_model_keeps_it(model: Path) -> None:
    quantize_model(model, model.parent / "int8")
    assert mh.load(model).subwords.casing == LEXICON
    assert mh.load(model.parent / "int8").subwords.casing == LEXICON
    assert checkpoint.read_subwords(ensure_converted(model)).casing == LEXICON


def test_translation_scores_and_attention_read_the_same_source(model: Path) -> None:
    translator = mh.load(model, device="cpu")
    lower, usual = "we read at berlin.", "We read at Berlin."
    ids = translator.subwords.source.encode_as_pieces(usual)
    assert translator.translate(lower).source_tokens == ids
    assert translator.translate(lower).text == translator.translate(usual).text
    scores = [translator.score([source], ["나는 간다."])[0] for source in (lower, usual)]
    assert scores[0].log_probability == scores[1].log_probability
    assert translator.attention(lower, "나는 간다.").source_tokens[:-1] == ids


def test_a_damaged_one_is_refused(model: Path, tmp_path: Path) -> None:
    translator = mh.load(model, device="cpu")
    translator.subwords.save(tmp_path)
    (tmp_path / CaseLexicon.FILE).write_bytes(b"nonsense\n")
    with pytest.raises(mh.DataError, match=r"casing\.txt: not a case lexicon, or damaged"):
        SubwordPair.load(tmp_path)
