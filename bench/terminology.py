"""Glossaries: how many terms come out, in the right form, at what BLEU and in what time.

    python bench/terminology.py --pair en-de --out terms-de
    python bench/terminology.py --pair en-ko --out terms-ko --steps 2400 --json result.json

Two models of the built-in grammar are trained on a CPU, without and with annotated terms; a run that is
complete in --out is not repeated. The grammar knows the case and the gender of its German nouns and the
particles of its Korean ones, so the form of every term is known exactly (term_sentences.py). Of the terms,
most have translations that occur in the training text; those of the others are new to the model.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from manyheads import playground
from manyheads.config import AugmentationConfig, Config, DataConfig
from manyheads.data.store import Store
from manyheads.demo import MODEL, TRAINING, VOCAB_SIZE, WORDS_PER_CLASS, prepare_corpus
from manyheads.train.run import train
from term_sentences import choose_held_out, list_nouns, mentions

NUM_PAIRS = 40_000
TERMS_RATE = 0.2


def prepare_data(folder: Path, pair: str) -> None:
    """Prepare text of the grammar in which the held-out nouns do not occur."""
    if (folder / "data").exists():
        Store.open(folder / "data")
        return
    held_out = choose_held_out(list_nouns())
    corpus = playground.generate_corpus(pair, train=NUM_PAIRS, valid=300, test=1000, seed=1, words=WORDS_PER_CLASS)
    kept = {
        split: [own for own in pairs if not mentions(own[0], held_out)] for split, pairs in corpus.items()
    }
    prepare_corpus(folder, pair, kept, VOCAB_SIZE)


def train_model(folder: Path, terms: float, steps: int) -> Path:
    """Train a model with a share of annotated pairs, unless it is there."""
    run = folder / ("annotated" if terms else "plain")
    if not (run / "model").exists():
        config = Config(
            model=MODEL,
            data=DataConfig(folder=str(folder / "data"), batch_tokens=2500),
            augmentation=AugmentationConfig(terms=terms),
            train=replace(TRAINING, steps=steps, checkpoint_every=steps // 10, validate_every=steps // 5),
        )
        if train(config, run, change_config=True, device="cpu") == "stopped":
            raise SystemExit("terminology.py: stopped")
    return run / "model"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", choices=("en-de", "en-ko"), default="en-de")
    parser.add_argument("--out", type=Path, default=Path("terminology"))
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--only", choices=("plain", "annotated"))
    arguments = parser.parse_args()
    prepare_data(arguments.out, arguments.pair)
    for terms in (0.0, TERMS_RATE):
        name = "annotated" if terms else "plain"
        if arguments.only in (None, name):
            train_model(arguments.out, terms, arguments.steps)


if __name__ == "__main__":
    main()
