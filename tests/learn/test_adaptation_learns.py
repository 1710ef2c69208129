"""On the built-in corpus: adapters learn new constructions or another register, and forget little."""

from dataclasses import replace
from pathlib import Path

import pytest

import manyheads as mh
from manyheads import demo, playground
from manyheads.config import Recipe
from manyheads.data.prepare import prepare
from manyheads.loading import use_adapter
from manyheads.train.adapt import AdaptationOptions
from manyheads.train.adaptation_run import adapt
from manyheads.train.run import train

STEPS = 350
OLD = ("tense", "number", "adjective", "place", "possessive")
NEW = ("question", "negation", "coordination", "time")
CHANGES = ["train.steps=150", "train.validate_every=50", "train.calibrate=false", "train.bleu_sentences=0"]


def write_data(folder: Path, reuse_from: Path | None, pairs: int, **options: object) -> Path:
    """Write a corpus of the grammar and prepare it."""
    sizes = {"train": pairs, "valid": 60, "test": 200}
    corpus = playground.generate_corpus("en-ko", words=8, seed=2, **sizes, **options)  # type: ignore[arg-type]
    folder.mkdir()
    demo.write_corpus(folder, "en-ko", corpus)
    recipe: Recipe = demo.make_recipe(folder, "en-ko", 1200)
    if reuse_from is not None:
        recipe = replace(recipe, subwords=replace(recipe.subwords, reuse_from=str(reuse_from)))
    prepare(recipe, folder / "data")
    return folder / "data"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data and the model of some constructions."""
    folder = tmp_path_factory.mktemp("adaptation")
    # Subwords of the whole language, as those of a general model are.
    every = write_data(folder / "every", None, 6000)
    data = write_data(folder / "old", every, 8000, constructions=OLD)
    settings = mh.TrainConfig(
        steps=STEPS, warmup=80, learning_rate=3e-3, schedule="linear", validate_every=STEPS,
        checkpoint_every=STEPS, average_checkpoints=1, bleu_sentences=0, card=False, calibrate=False,
    )  # fmt: skip
    config = mh.Config(
        model=demo.MODEL, data=mh.DataConfig(folder=str(data), batch_tokens=2000), train=settings
    )
    train(config, folder / "run", device="cpu")
    return folder


@pytest.mark.heavy
def test_an_adapter_with_replay_learns_new_constructions_and_keeps_the_old_ones(folder: Path) -> None:
    model, general = folder / "run" / "model", folder / "old" / "data"
    data = write_data(folder / "new", folder / "every" / "data", 2000, constructions=NEW)
    options = AdaptationOptions(general=general, adapter="constructions", rank=16)
    report = adapt(model, data, folder / "adapted", options, changes=CHANGES, device="cpu", max_sentences=100)
    assert report is not None
    assert report.general is not None
    assert report.new.gain > 10, report.to_markdown()
    assert report.general.gain > -5, report.to_markdown()


@pytest.mark.heavy
def test_an_adapter_changes_the_register_and_the_model_keeps_its_own(folder: Path) -> None:
    model = folder / "run" / "model"
    data = write_data(
        folder / "polite", folder / "every" / "data", 2000, register="polite", constructions=OLD
    )
    options = AdaptationOptions(adapter="polite", rank=16)
    report = adapt(
        model, data, folder / "polite-run", options, changes=CHANGES, device="cpu", max_sentences=100
    )
    assert report is not None
    assert report.new.gain > 5, report.to_markdown()
    assert report.forgetting_step is not None  # nothing was replayed: plain text is another register now
    plain = mh.load(model, device="cpu")
    polite = use_adapter(plain, "polite")
    texts = ["The old man reads a book."]
    assert plain.translate(texts)[0].text.endswith("다.")
    assert polite.translate(texts)[0].text.endswith("요.")
