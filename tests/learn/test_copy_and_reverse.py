"""Prepare, train and translate at the smallest scale: copying and reversing without an error."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import manyheads as mh
from manyheads.config import Recipe
from manyheads.data.prepare import prepare
from manyheads.evaluate.report import exact_match
from manyheads.train.run import train

LETTERS = "가나다라마바사아자차"


def draw_words(rng: random.Random) -> list[str]:
    return [rng.choice(LETTERS) for _ in range(rng.randint(1, 7))]


def make_corpus(task: Callable[[list[str]], list[str]], count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    texts = [draw_words(rng) for _ in range(count)]
    return [(" ".join(text), " ".join(task(text))) for text in texts]


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(list, id="copy", marks=pytest.mark.heavy),
        pytest.param(lambda text: text[::-1], id="reverse"),
    ],
)
def test_every_unseen_sentence_is_right(task: Callable[[list[str]], list[str]], tmp_path: Path) -> None:
    learned, unseen = make_corpus(task, 12_000, seed=1), make_corpus(task, 300, seed=2)
    unseen = [pair for pair in unseen if pair not in set(learned)]
    assert len(unseen) > 100
    lines = "".join(f"{source}\t{target}\n" for source, target in learned)
    (tmp_path / "train.tsv").write_text(lines, encoding="utf-8")
    tables = {
        "corpus": {"source": "ko", "target": "ko-x-task", "hold_out": 50},
        "train": [{"files": [f"{tmp_path}/train.tsv"]}],
        "clean": {"identical": False},
        "subwords": {"vocab_size": 24, "byte_fallback": False, "copy_symbols": False, "term_symbols": False},
    }
    prepare(Recipe.from_mapping(tables), tmp_path / "data")
    config = mh.Config(
        model=mh.TransformerConfig(layers=2, d_model=64, d_ff=128, heads=4, dropout=0.0),
        data=mh.DataConfig(folder=f"{tmp_path}/data", batch_tokens=600),
        train=mh.TrainConfig(
            steps=450,
            schedule="linear",
            warmup=60,
            learning_rate=3e-3,
            validate_every=450,
            checkpoint_every=150,
            average_checkpoints=1,
            card=False,
        ),
    )
    train(config, tmp_path / "run", device="cpu")
    sources, references = zip(*unseen, strict=True)
    results = mh.load(tmp_path / "run" / "model", device="cpu").translate(sources, beam=1)
    assert exact_match([result.text for result in results], references) == 1.0
