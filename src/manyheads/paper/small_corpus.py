"""The built-in corpus in a small world: few words, short sentences, learned within a minute on a CPU."""

from pathlib import Path

from manyheads import playground
from manyheads.data.prepare import prepare
from manyheads.data.store import Store
from manyheads.demo import make_recipe, write_corpus
from manyheads.progress import ReportProgress

PAIR = "en-de"  # the paper's
SIZES = {"train": 8_000, "valid": 300, "test": 300}
CONSTRUCTIONS = ("tense", "negation", "question", "adjective", "place")
WORDS = 6  # of each class
VOCABULARY = 800


def small_world(folder: Path, tell: ReportProgress = lambda stage, done, total: None) -> Store:
    """Its data folder, made now or by an earlier call."""
    data = folder / "data"
    if not data.exists():
        corpus = playground.corpus(
            PAIR,
            train=SIZES["train"],
            valid=SIZES["valid"],
            test=SIZES["test"],
            seed=1,
            constructions=CONSTRUCTIONS,
            words=WORDS,
        )
        write_corpus(folder, PAIR, corpus)
        return prepare(make_recipe(folder, PAIR, VOCABULARY), data, tell=tell)
    return Store.open(data)
