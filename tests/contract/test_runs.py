"""Every recipe under runs/ loads, and says what it means to say."""

from dataclasses import replace
from pathlib import Path

import pytest

import manyheads as mh
from manyheads.config import Recipe
from manyheads.presets import BASE, BIG, STUDENT

RUNS = Path(__file__).parents[2] / "runs"


@pytest.mark.parametrize("path", sorted(RUNS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_loads(path: Path) -> None:
    assert mh.Config.load(path).data.folder != "data"


def test_base_and_big_are_the_papers() -> None:
    base, big = (mh.Config.load(RUNS / f"{name}.toml") for name in ("base", "big"))
    assert (base.model, big.model) == (BASE, BIG)
    for config, steps, averaged in ((base, 100_000, 5), (big, 300_000, 20)):
        assert (config.train.steps, config.train.average_checkpoints) == (steps, averaged)
        assert (config.train.warmup, config.train.schedule, config.train.learning_rate) == (
            4000,
            "paper",
            None,
        )
        assert (config.train.beta1, config.train.beta2, config.train.epsilon) == (0.9, 0.98, 1e-9)
        assert (config.train.label_smoothing, config.data.batch_tokens) == (0.1, 25_000)


def test_the_student_is_the_preset_and_hears_the_noise_of_its_teacher() -> None:
    student, teacher = (mh.Config.load(RUNS / f"{name}.toml") for name in ("student", "europarl"))
    assert replace(student.model, vocab_size=STUDENT.vocab_size) == STUDENT
    assert student.augmentation == teacher.augmentation
    assert student.decoding.beam == 1
    assert student.train.seconds + teacher.train.seconds < 2000


def test_every_corpus_of_the_student_states_its_license() -> None:
    recipe = Recipe.load(RUNS / "data" / "europarl.toml")
    assert not [entry.name for entry in recipe.train if not (entry.license and entry.attribution)]


@pytest.mark.parametrize("name", ["europarl", "koen", "base", "big", "student"])
def test_recipes_augment_a_small_share_of_the_pairs(name: str) -> None:
    config = mh.Config.load(RUNS / f"{name}.toml").augmentation
    assert 0.1 < sum(config.noise_rates.values()) < 0.4
    assert 0 < config.copied < 0.1


def test_measured_results_without_augmentation_stay_reproducible() -> None:
    assert not mh.Config.load(RUNS / "multi30k.toml").augmentation.rates
