"""With augmentation and a case lexicon careless input is translated nearly as well; without, it fails."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

import manyheads as mh
from manyheads import demo, playground
from manyheads.config import AugmentationConfig
from manyheads.data.store import Store
from manyheads.evaluate.bleu import greedy_bleu
from manyheads.text.noise import NOISES
from manyheads.train.run import train

RATES = {"lower": 0.1, "title": 0.05, "typos": 0.1, "punctuation": 0.05}
AUGMENTATIONS = {"plain": AugmentationConfig(), "augmented": AugmentationConfig(**RATES)}
STEPS = 400


def prepare_corpus(folder: Path) -> Store:
    corpus = playground.generate_corpus(
        "en-ko",
        train=15_000,
        valid=50,
        test=300,
        seed=1,
        constructions=demo.CONSTRUCTIONS,
        words=demo.WORDS_PER_CLASS,
    )
    return demo.prepare_corpus(folder, "en-ko", corpus, vocab_size=1200)


def train_model(folder: Path, data: Path, augmentation: AugmentationConfig) -> mh.Translator:
    config = mh.Config(
        model=demo.MODEL,
        data=mh.DataConfig(folder=str(data), batch_tokens=2000),
        augmentation=augmentation,
        train=mh.TrainConfig(
            steps=STEPS,
            warmup=80,
            learning_rate=3e-3,
            schedule="linear",
            validate_every=STEPS,
            checkpoint_every=STEPS,
            average_checkpoints=1,
            bleu_sentences=0,
            card=False,
            calibrate=False,
        ),
    )
    train(config, folder, device="cpu")
    translator = mh.load(folder / "model", device="cpu")
    if not augmentation.rates:  # text is read as it is
        translator.subwords = replace(translator.subwords, casing=None)
    return translator


def score(translator: mh.Translator, sources: list[str], references: list[str], noise: str | None) -> float:
    if noise:
        sources = [NOISES[noise](source, random.Random(f"test {source}")) for source in sources]
    return greedy_bleu(translator, sources, references)[0].value


@pytest.mark.heavy
def test_augmentation_makes_careless_input_as_good_as_careful_input(tmp_path: Path) -> None:
    store = prepare_corpus(tmp_path)
    sources, references = store.read_text("test")
    scores: dict[str, dict[str, float]] = {}
    for name, augmentation in AUGMENTATIONS.items():
        translator = train_model(tmp_path / name, tmp_path / "data", augmentation)
        scores[name] = {
            noise or "clean": score(translator, sources, references, noise)
            for noise in (None, "lower", "title", "typos")
        }
        capitals = greedy_bleu(translator, [source.upper() for source in sources], references)[0].value
        scores[name]["capitals"] = capitals
    plain, augmented = scores["plain"], scores["augmented"]
    assert augmented["clean"] > plain["clean"] - 5, scores
    assert augmented["lower"] > max(plain["lower"] + 5, augmented["clean"] - 5), scores
    assert augmented["title"] > plain["title"] + 20, scores
    assert augmented["capitals"] > augmented["clean"] - 5, scores
    assert augmented["typos"] > plain["typos"] - 3, scores  # at this size typos gain little: docs/log.md
