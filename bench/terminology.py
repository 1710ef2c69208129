"""Glossaries: how many terms come out, in the right form, at what BLEU and in what time.

    python bench/terminology.py --pair en-de --out terms-de
    python bench/terminology.py --pair en-ko --out terms-ko --steps 2400 --json result.json

Two models of the built-in grammar are trained, without and with annotated terms, and measured on a CPU; a run
that is complete in --out is not repeated. The grammar knows the case and the gender of its German nouns and
the particles of its Korean ones, so the form of every term is known exactly (term_sentences.py). Of the
terms, most have translations that occur in the training text; those of the others are new to the model.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress
from pathlib import Path

import manyheads as mh
from manyheads import playground
from manyheads.config import AugmentationConfig, Config, DataConfig
from manyheads.data.store import Store
from manyheads.demo import MODEL, TRAINING, VOCAB_SIZE, WORDS_PER_CLASS, prepare_corpus
from manyheads.evaluate.bleu import bleu, greedy_bleu
from manyheads.text.term_matching import Glossary, contains_inflected
from manyheads.train.run import train
from manyheads.translation import Translation
from term_sentences import WORD, TermSentence, choose_held_out, list_nouns, make_sentences, mentions

NUM_PAIRS = 40_000
TERMS_RATE = 0.2
WARM_UP = 20  # sentences
RUNS = ("annotated", "plain")
GROUPS = {"seen": True, "new": False}  # of terms, by whether training has seen their translations


def prepare_data(folder: Path, pair: str) -> None:
    """Prepare text of the grammar in which the held-out nouns do not occur."""
    if (folder / "data").exists():
        Store.open(folder / "data")
        return
    held_out = choose_held_out(list_nouns())
    corpus = playground.generate_corpus(
        pair, train=NUM_PAIRS, valid=300, test=1000, seed=1, words=WORDS_PER_CLASS
    )
    kept = {
        split: [own for own in pairs if not mentions(own[0], held_out)] for split, pairs in corpus.items()
    }
    prepare_corpus(folder, pair, kept, VOCAB_SIZE)


def train_model(run: Path, terms: float, steps: int, device: str) -> None:
    """Train a model with a share of annotated pairs, unless it is there."""
    if not (run / "model").exists():
        config = Config(
            model=MODEL,
            data=DataConfig(folder=str(run.parent / "data"), batch_tokens=2500),
            augmentation=AugmentationConfig(terms=terms),
            train=replace(TRAINING, steps=steps, checkpoint_every=steps // 10, validate_every=steps // 5),
        )
        if train(config, run, change_config=True, device=device) == "stopped":
            raise SystemExit("terminology.py: stopped")


# ---- measurement


@dataclass(frozen=True)
class Row:
    """How a way to use a glossary does."""

    name: str
    engine: str
    term_rate: dict[str, float]  # share of the sentences with the term in some form, of seen and new ones
    inflected: dict[str, float]  # with the term in exactly the right form
    exact: dict[str, float]  # sentences that are the reference as a whole
    bleu: float
    forced: dict[str, float]  # share of the sentences whose term was put in afterwards
    time_ratio: dict[str, float]  # of CPU time, against the same sentences without a glossary


def measure(name: str, translator: mh.Translator, sentences: Sequence[TermSentence], repeats: int) -> Row:
    """Translate sentences, each with the glossary of its own term, and without one."""
    sources = [sentence.source for sentence in sentences]
    glossaries = [Glossary({sentence.term: sentence.translation}) for sentence in sentences]

    translator.translate(sources[:WARM_UP])
    results: list[Translation] = []
    seconds = {"plain": [math.inf] * len(sources), "terms": [math.inf] * len(sources)}
    for _ in range(repeats):
        results.clear()
        for index, (source, glossary) in enumerate(zip(sources, glossaries, strict=True)):
            for way, options in (("plain", {}), ("terms", {"glossary": glossary})):
                start = time.process_time()
                result = translator.translate(source, **options)
                seconds[way][index] = min(seconds[way][index], time.process_time() - start)
            results.append(result)
    texts = [result.text for result in results]
    rows = list(zip(sentences, texts, strict=True))
    groups = {name: [own.is_seen == is_seen for own in sentences] for name, is_seen in GROUPS.items()}
    references = [sentence.reference for sentence in sentences]
    return Row(
        name,
        translator.engine.name,
        share_of_groups(groups, [contains_inflected(text, own.translation) for own, text in rows]),
        share_of_groups(groups, [own.expected in WORD.findall(text) for own, text in rows]),
        share_of_groups(groups, [own.reference == text for own, text in rows]),
        bleu(texts, references, translator.target_language).value,
        share_of_groups(groups, ["term forced" in result.notes for result in results]),
        {
            name: sum(compress(seconds["terms"], chosen)) / max(1e-9, sum(compress(seconds["plain"], chosen)))
            for name, chosen in groups.items()
        },
    )


def share_of_groups(groups: dict[str, list[bool]], values: Sequence[bool]) -> dict[str, float]:
    """Return the share of true values in each group."""
    chosen = {name: list(compress(values, own)) for name, own in groups.items()}
    return {name: sum(own) / max(1, len(own)) for name, own in chosen.items()}


def load_ways(
    folder: Path, runs: Sequence[str], engines: Sequence[str]
) -> Iterator[tuple[str, mh.Translator]]:
    """Yield the ways to use a glossary: annotated terms, and forced forms."""
    for engine in engines:
        for run in runs:
            yield run, mh.load(folder / run / "model", engine=engine, device="cpu")
            if run == "annotated":
                forced = mh.load(folder / run / "model", engine=engine, device="cpu")
                forced.uses_term_symbols = False
                yield "annotated, forced form", forced


def measure_general(folder: Path, runs: Sequence[str]) -> dict[str, float]:
    """Return the BLEU of the models on the test set, without a glossary."""
    store = Store.open(folder / "data")
    sources, references = store.read_text("test")
    return {
        run: greedy_bleu(mh.load(folder / run / "model", device="cpu"), sources, references)[0].value
        for run in runs
    }


def print_rows(rows: Sequence[Row], general: dict[str, float], sentences: Sequence[TermSentence]) -> None:
    terms = {(own.is_seen, own.term, own.translation) for own in sentences}
    num_seen = sum(is_seen for is_seen, _, _ in terms)
    print(f"{len(sentences)} sentences: {num_seen} terms seen in training, {len(terms) - num_seen} new ones")
    print("BLEU without a glossary: " + ", ".join(f"{run} {value:.2f}" for run, value in general.items()))
    print("| way | engine | term rate | right form | whole sentence | term forced | BLEU | CPU time |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        shares = " | ".join(
            f"{own['seen']:.1%} / {own['new']:.1%}"
            for own in (row.term_rate, row.inflected, row.exact, row.forced)
        )
        times = f"{row.time_ratio['seen']:.2f} / {row.time_ratio['new']:.2f}"
        print(f"| {row.name} | {row.engine} | {shares} | {row.bleu:.2f} | {times} |")


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--pair", choices=("en-de", "en-ko"), default="en-de")
    parser.add_argument("--out", type=Path, default=Path("terminology"), help="folder of data and runs")
    parser.add_argument("--steps", type=int, default=1200, help="of training")
    parser.add_argument("--models", nargs="+", choices=RUNS, default=RUNS, help="which to train and measure")
    parser.add_argument("--device", default="cpu", help="of training")
    parser.add_argument("--train-only", action="store_true", help="stop after training")
    parser.add_argument("--terms", type=int, default=200, help="number of terms")
    parser.add_argument("--per-term", type=int, default=2, help="sentences of each")
    parser.add_argument("--repeats", type=int, default=1, help="of the timed translations")
    parser.add_argument("--engines", nargs="+", default=["torch", "ctranslate2"])
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    prepare_data(arguments.out, arguments.pair)
    for run in arguments.models:
        rate = TERMS_RATE if run == "annotated" else 0.0
        train_model(arguments.out / run, rate, arguments.steps, arguments.device)
    if arguments.train_only:
        return
    sentences = make_sentences(arguments.pair, arguments.per_term, arguments.terms)
    rows = [
        measure(name, translator, sentences, arguments.repeats)
        for name, translator in load_ways(arguments.out, arguments.models, arguments.engines)
    ]
    general = measure_general(arguments.out, arguments.models)
    print_rows(rows, general, sentences)
    if arguments.json:
        arguments.json.write_text(json.dumps({"general": general, "rows": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()
