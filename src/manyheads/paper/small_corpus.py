"""Small built-in corpora, learned within a minute on a CPU.

EASY has few words and short sentences, which every system of Table 2 learns. SCARCE has the whole grammar and
so few pairs that a run reads them many times: there depth and dropout matter, as in Table 3.
"""

from dataclasses import dataclass
from pathlib import Path

from manyheads import playground
from manyheads.data.store import Store
from manyheads.demo import prepare_corpus
from manyheads.progress import ReportProgress

PAIR = "en-de"  # as in the paper


@dataclass(frozen=True)
class SmallCorpus:
    """What is generated; None stands for all constructions or words."""

    folder: str
    train: int
    vocab_size: int
    constructions: tuple[str, ...] | None = None
    words: int | None = None
    held_out: int = 300  # pairs of valid and of test

    def load(self, out: Path, report_progress: ReportProgress = lambda stage, done, total: None) -> Store:
        """Open the data folder under `out`, and prepare it if it does not exist."""
        folder = out / self.folder
        if (folder / "data").exists():
            return Store.open(folder / "data")
        corpus = playground.generate_corpus(
            PAIR,
            train=self.train,
            valid=self.held_out,
            test=self.held_out,
            seed=1,
            constructions=self.constructions,
            words=self.words,
        )
        return prepare_corpus(folder, PAIR, corpus, self.vocab_size, report_progress)


EASY = SmallCorpus("small-corpus", 8_000, 800, ("tense", "negation", "question", "adjective", "place"), 6)
SCARCE = SmallCorpus("scarce-corpus", 600, 1500)
SCARCE_BUDGET_TOKENS = 300_000  # of a run of Table 3: each pair is read about 17 times
SCARCE_ROWS = "A,B,C,D,E"  # big takes a tenth of the time, and needs three times the steps of the others
