"""Corrections of a systematic error: how much of it is left in other sentences, what it costs, and kills.

    python bench/corrections.py --out corrections
    python bench/corrections.py --out corrections --only kills --kills 100 --json result.json

A model of the size of the demo's is trained on the built-in corpus in which "teacher" is always translated as
"Maler" (painter). Corrections have "Lehrer". After each number of corrections `learn` trains an adapter, and
200 other sentences with this word are translated, without the memory; and general text without it. Undoing
the corrections must restore all translations. A process that writes corrections is killed again and again.
The model stays in --out and is not trained again.
"""

import os
import random
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import manyheads as mh
import report
from manyheads import checkpoint, playground
from manyheads.checkpoint.adapters import adapter_path, read_adapter
from manyheads.config import Config, DataConfig, SubwordConfig
from manyheads.data.store import Store
from manyheads.demo import CONSTRUCTIONS, MODEL, TRAINING, VOCAB_SIZE, WORDS_PER_CLASS, prepare_corpus
from manyheads.evaluate.bleu import bleu
from manyheads.loading import use_adapter
from manyheads.memory.database import CorrectionDatabase
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from manyheads.train.learn import AdapterRefused, LearningOptions, learn
from manyheads.train.run import train
from manyheads.train.trained_weights import find_linear

PARTS = ("learning", "kills", "lookup", "swap")
NUMBERS = (1, 5, 20)
UNSEEN_SENTENCES, GENERAL_SENTENCES = 200, 500
SOURCE_WORD, RIGHT_WORD, WRONG_WORD = (re.compile(rf"\b{word}") for word in ("teacher", "Lehrer", "Maler"))
OTHER_SOURCE_WORD = re.compile(r"\bpainter")  # whose translation is the wrong word
WRITER = """
import sys
from pathlib import Path
from manyheads.memory.database import CorrectionDatabase
database = CorrectionDatabase(Path(sys.argv[1]))
while True:
    print(database.add("s", [(f"source {n}", "target " * 40) for n in range(400)], "writer"), flush=True)
"""

TextPair = tuple[str, str]


@dataclass
class Result:
    """What is left of the error after some corrections."""

    corrections: int
    error_share: float  # of the unseen sentences with the wrong word
    right_share: float  # with the right word
    general_bleu: float
    undo_restores: bool = True
    seconds: float = 0.0  # that `learn` takes, evaluation included
    cpu_seconds: float = 0.0
    strength: float | None = None  # None: refused, or nothing was learned

    def format_row(self) -> tuple[str, ...]:
        return (
            str(self.corrections),
            f"{self.error_share:.1%}",
            f"{self.right_share:.1%}",
            f"{self.general_bleu:.2f}",
            f"{self.seconds:.0f}" if self.corrections else "",
            f"{self.cpu_seconds:.0f}" if self.corrections else "",
            "" if self.strength is None else f"{self.strength:g}",
            "yes" if self.undo_restores else "NO",
        )


COLUMNS = (
    "corrections", "error", "right word", "general BLEU", "seconds", "CPU s", "strength", "undo restores",
)  # fmt: skip


def main() -> None:
    parser = report.BenchmarkParser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--steps", type=int, default=TRAINING.steps, help="of the model's training")
    parser.add_argument("--seconds", type=float, default=45.0, help="of `learn`'s training")
    parser.add_argument("--kills", type=int, default=30)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    if "learning" in arguments.only or "lookup" in arguments.only:
        model = prepare_model(arguments.out, arguments.steps)
    if "learning" in arguments.only:
        rows = measure_learning(model, arguments.seconds)
        report.print_table("Corrections of a systematic error", COLUMNS, [row.format_row() for row in rows])
        results["learning"] = [asdict(row) for row in rows]
    if "lookup" in arguments.only:
        results["lookup"] = measure_lookup(model)
        print(results["lookup"])
    if "kills" in arguments.only:
        results["kills"] = measure_kills(arguments.kills)
        print(results["kills"])
    if "swap" in arguments.only:
        results["swap"] = measure_swap()
        print(results["swap"])
    report.write_json(arguments.json, "corrections", report.measure_environment("cpu"), **results)


def prepare_model(folder: Path, steps: int) -> Path:
    """Train the model with the systematic error, unless it is there already."""
    model = folder / "run" / "model"
    if not model.exists():
        corpus = playground.generate_corpus(
            "en-de",
            train=40_000,
            valid=300,
            test=6000,
            seed=1,
            constructions=CONSTRUCTIONS,
            words=WORDS_PER_CLASS,
        )
        for split in ("train", "valid"):
            corpus[split] = [spoil(pair) for pair in corpus[split]]
        prepare_corpus(folder, "en-de", corpus, VOCAB_SIZE)
        data = DataConfig(folder=str(folder / "data"), batch_tokens=2500)
        changed = Config(model=MODEL, data=data, train=TRAINING).override([f"train.steps={steps}"])
        train(changed, folder / "run", device="cpu")
    return model


def spoil(pair: TextPair) -> TextPair:
    """Return a pair with the wrong word, if it has the source word."""
    source, target = pair
    return (source, RIGHT_WORD.sub("Maler", target)) if SOURCE_WORD.search(source) else pair


# ---- learning


def measure_learning(model: Path, seconds: float) -> list[Result]:
    pairs = list(zip(*Store.open(model.parent.parent / "data").read_text("test"), strict=True))
    concerned = [
        pair for pair in pairs if SOURCE_WORD.search(pair[0]) and not OTHER_SOURCE_WORD.search(pair[0])
    ]
    others = [pair for pair in pairs if not SOURCE_WORD.search(pair[0])][-GENERAL_SENTENCES:]
    pool, unseen = concerned[:-UNSEEN_SENTENCES], concerned[-UNSEEN_SENTENCES:]
    base = mh.load(model, device="cpu", engine="torch")
    rows = [measure_errors(base, 0, unseen, others)]
    for number in NUMBERS:
        rows.append(measure_number(model, base, pool[:number], unseen, others, seconds))
    return rows


def measure_number(
    model: Path,
    base: mh.Translator,
    corrections: Sequence[TextPair],
    unseen: Sequence[TextPair],
    others: Sequence[TextPair],
    seconds: float,
) -> Result:
    assert base.memory is not None
    sources = [source for source, _ in (*corrections, *unseen)]
    before = [result.text for result in base.translate(sources)]
    base.memory.add(corrections, "bench")
    corrected = [result.text for result in base.translate(sources[: len(corrections)])]
    assert corrected == [target for _, target in corrections], "every correction is used at once"
    start, cpu_start, strength = time.monotonic(), time.process_time(), None
    adapter_path(model, "corrections").unlink(missing_ok=True)
    try:
        strength = learn(model, LearningOptions(seconds=seconds), device="cpu").strength
    except AdapterRefused as error:
        print(error)
    wall_seconds, cpu_seconds = time.monotonic() - start, time.process_time() - cpu_start
    base.memory.undo()
    restored = [result.text for result in base.translate(sources)] == before
    learned = base
    if strength is not None:
        learned = mh.load(model, device="cpu", engine="torch", adapter="corrections")
    row = measure_errors(learned, len(corrections), unseen, others)
    row.seconds, row.cpu_seconds, row.strength, row.undo_restores = (
        wall_seconds, cpu_seconds, strength, restored,
    )  # fmt: skip
    return row


def measure_errors(
    translator: mh.Translator, number: int, unseen: Sequence[TextPair], others: Sequence[TextPair]
) -> Result:
    """Translate without the memory."""
    outputs = translator.translate([source for source, _ in unseen], corrections=False)
    general = translator.translate([source for source, _ in others], corrections=False)
    wrong, right = (
        sum(bool(word.search(output.text)) for output in outputs) / len(outputs)
        for word in (WRONG_WORD, RIGHT_WORD)
    )
    references = [target for _, target in others]
    score = bleu([output.text for output in general], references, translator.target_language)
    return Result(number, wrong, right, score.value)


# ---- the memory


def measure_lookup(model: Path, num_corrections: int = 10_000) -> dict[str, float]:
    """Measure what preparing sentences costs with many corrections, none of which match."""
    sources = [source for source, _ in zip(*read_training(model), strict=True)]
    corrections = [(source, source) for source in sources[:num_corrections]]
    texts = sources[num_corrections : num_corrections + 1000]
    with tempfile.TemporaryDirectory() as folder:
        translator = mh.load(model, device="cpu", engine="torch")
        assert translator.memory is not None
        translator.memory.database = CorrectionDatabase(Path(folder) / "corrections.sqlite")
        _, preparer, _ = translator.create_stages()
        plain = measure_cpu(lambda: preparer.prepare(texts))
        translator.memory.add(corrections, "bench")
        indexing = measure_cpu(lambda: translator.memory and translator.memory.get_index())
        matched = measure_cpu(lambda: preparer.prepare(texts))
    return {
        "corrections": num_corrections,
        "index_cpu_seconds": round(indexing, 3),
        "plain_cpu_ms_per_sentence": round(1000 * plain / len(texts), 3),
        "cpu_ms_per_sentence": round(1000 * matched / len(texts), 3),
    }


def read_training(model: Path) -> tuple[list[str], list[str]]:
    folder = model.parent.parent
    sides = [(folder / f"train.{code}").read_text(encoding="utf-8").splitlines() for code in ("en", "de")]
    return sides[0], sides[1]


def measure_cpu(work: Any) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def measure_kills(num_kills: int) -> dict[str, int]:
    """Kill a process that writes corrections, and check the file after each kill."""
    rng, counts = random.Random(0), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path, acknowledged = Path(folder) / "corrections.sqlite", 0
        journal = Path(folder) / "corrections.sqlite-journal"
        for _ in range(num_kills):
            with subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE
            ) as process:
                assert process.stdout is not None
                printed = process.stdout.readline()
                time.sleep(rng.random() * 0.1)
                os.kill(process.pid, signal.SIGKILL)
                printed += process.stdout.read()
            counts["kills"] += 1
            counts["in the middle of a write"] += journal.exists()
            acknowledged = max([acknowledged, *map(int, printed.split())])
            sizes = Counter(row.number for row in CorrectionDatabase(path).list_corrections("s"))
            counts["lost"] += acknowledged not in sizes
            counts["incomplete"] += any(size != 400 for size in sizes.values())
            connection = sqlite3.connect(path)
            counts["damaged"] += connection.execute("PRAGMA integrity_check").fetchone() != ("ok",)
            connection.close()
        counts["corrections"] = sum(sizes.values())
    return dict(counts)


# ---- adapters


def measure_swap(rank: int = 32, repetitions: int = 12) -> dict[str, float]:
    """Measure the CPU time to read, to merge and to use again an adapter of the base model, in one thread.

    With several threads, `with_adapter` merges in all of them. Their CPU time is not measured: where other
    work shares the cores, it says as little about the time to wait as a clock does.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = save_base_model(Path(name) / "model", rank)
        translator = mh.load(folder, device="cpu", engine="torch")
        adapter = read_adapter(folder, "random")
        calls: dict[str, Callable[[], Any]] = {
            "read": lambda: read_adapter(folder, "random"),
            "merge": lambda: translator.engine.with_adapter(adapter),  # type: ignore[attr-defined]
            "again": lambda: use_adapter(translator, "random"),
        }
        milliseconds = {}
        for key, call in calls.items():
            call()
            times = [1000 * measure_cpu(call) for _ in range(repetitions)]
            milliseconds[f"{key}_cpu_ms_least"] = round(min(times), 2)
            milliseconds[f"{key}_cpu_ms_median"] = round(statistics.median(times), 2)
    return milliseconds


def save_base_model(folder: Path, rank: int) -> Path:
    """Save an untrained base model, but for a small vocabulary, with a random adapter."""
    texts = ["A model without training has a few subwords."] * 20
    subwords = SubwordTokenizer.train(texts, SubwordConfig(vocab_size=310))
    sizes = replace(mh.presets.BASE, vocab_size=310)
    config, model = Config(model=sizes), mh.Transformer(sizes)
    languages = {"source": "en", "target": "de"}
    pair = SubwordPair(subwords, subwords)
    checkpoint.save(folder, checkpoint.collect_weights(model), pair, config, step=1, languages=languages)
    factors = {
        name: (torch.randn(rank, weight.shape[1]), torch.randn(weight.shape[0], rank))
        for name, weight in find_linear(model)
    }
    adapter = checkpoint.Adapter("random", factors, checkpoint.hash_base(folder), {})
    checkpoint.write_adapter(adapter_path(folder, "random"), adapter)
    return folder


if __name__ == "__main__":
    report.run_main(main)
