"""A model that has learned the built-in corpus gives the same text as int8, by every engine."""

from dataclasses import replace
from pathlib import Path

import pytest

import manyheads as mh
from manyheads import demo
from manyheads.config import Config, DataConfig
from manyheads.evaluate.model_comparison import compare_models
from manyheads.export.int8 import quantize_model
from manyheads.playground import generate_corpus
from manyheads.train.run import train
from manyheads.train.shortlist import add_shortlist

MIN_SAME = 0.97
SIZES = {"train": 6000, "valid": 100, "test": 1000}


@pytest.mark.heavy
def test_int8_folders_give_the_same_text_by_torch_and_ctranslate2(tmp_path: Path) -> None:
    corpus = generate_corpus("en-de", **SIZES, seed=1, constructions=("tense", "negation"), words=5)
    store = demo.prepare_corpus(tmp_path, "en-de", corpus, 800)
    model = replace(demo.MODEL, layers=None, encoder_layers=3, decoder_layers=1, d_model=64, d_ff=256)
    training = replace(demo.TRAINING, steps=400, warmup=60, checkpoint_every=200, validate_every=400)
    config = Config(
        model=model,
        data=DataConfig(folder=str(tmp_path / "data"), batch_tokens=2500),
        train=replace(training, calibrate=False, card=False),
    )
    train(config, tmp_path / "run", device="cpu")
    folder, int8 = tmp_path / "run" / "model", tmp_path / "int8"
    add_shortlist(folder, tmp_path / "data")
    quantize_model(folder, int8)
    sources, references = store.read_text("test")
    assert len(sources) == SIZES["test"]
    loss = compare_models(mh.load(int8, device="cpu"), mh.load(folder, device="cpu"), sources, [references])
    bleu = loss.scores[0]
    assert bleu.baseline > 60
    assert bleu.baseline - bleu.system < 0.2
    ours, theirs = (mh.load(int8, device="cpu", engine=engine) for engine in ("torch", "ctranslate2"))
    whole = [result.text for result in ours.translate(sources, shortlist=False, beam=1)]
    for shortlist in (False, True):
        results = theirs.translate(sources, shortlist=shortlist, beam=1, scores="none")
        same = sum(text == other.text for text, other in zip(whole, results, strict=True))
        assert same / len(sources) >= MIN_SAME, f"shortlist {shortlist}"
