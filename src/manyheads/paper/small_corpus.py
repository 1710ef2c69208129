"""A small built-in corpus: few words and short sentences, learned within a minute on a CPU."""

from pathlib import Path

from manyheads import playground
from manyheads.data.store import Store
from manyheads.demo import prepare_corpus
from manyheads.progress import ReportProgress

PAIR = "en-de"  # as in the paper
SPLIT_SIZES = {"train": 8_000, "valid": 300, "test": 300}
CONSTRUCTIONS = ("tense", "negation", "question", "adjective", "place")
WORDS_PER_CLASS = 6
VOCAB_SIZE = 800


def load_small_corpus(
    folder: Path, report_progress: ReportProgress = lambda stage, done, total: None
) -> Store:
    """Open the data folder, and prepare it if it does not exist."""
    if (folder / "data").exists():
        return Store.open(folder / "data")
    corpus = playground.generate_corpus(
        PAIR,
        train=SPLIT_SIZES["train"],
        valid=SPLIT_SIZES["valid"],
        test=SPLIT_SIZES["test"],
        seed=1,
        constructions=CONSTRUCTIONS,
        words=WORDS_PER_CLASS,
    )
    return prepare_corpus(folder, PAIR, corpus, VOCAB_SIZE, report_progress)
