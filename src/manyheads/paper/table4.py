"""Table 4: English constituency parsing with the same model, training and search as translation (6.3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from manyheads.config import Config, DataConfig, ModelConfig, TrainConfig
from manyheads.errors import ConfigError, RequestError
from manyheads.evaluate.evalb import COLLINS, BracketScores
from manyheads.inference.torch_engine import resolve_device
from manyheads.paper.parsing import Parsed, measured
from manyheads.paper.report import Table, Value, pyplot, save_figure, where_measured, write_report
from manyheads.paper.treebank import READS, Reads, Treebank, built_in, read_treebank
from manyheads.presets import get_preset
from manyheads.progress import Progress
from manyheads.text.trees import REPAIRS

# The paper's Table 4: F1 on section 23 of the Wall Street Journal. Of the data it says that WSJ only is about
# 40,000 sentences and its own semi-supervised training about 17 million.
WSJ, MORE = "WSJ only", "semi-supervised"
PUBLISHED: tuple[tuple[str, str, str, float], ...] = (
    ("Vinyals & Kaiser et al. (2014)", WSJ, "40 thousand", 88.3),
    ("Petrov et al. (2006)", WSJ, "40 thousand", 90.4),
    ("Zhu et al. (2013)", WSJ, "40 thousand", 90.4),
    ("Dyer et al. (2016)", WSJ, "40 thousand", 91.7),
    ("Transformer (4 layers)", WSJ, "40 thousand", 91.3),
    ("Zhu et al. (2013)", MORE, "more", 91.3),
    ("Huang & Harper (2009)", MORE, "more", 91.3),
    ("McClosky et al. (2006)", MORE, "more", 92.1),
    ("Vinyals & Kaiser et al. (2014)", MORE, "more", 92.1),
    ("Transformer (4 layers)", MORE, "17 million", 92.7),
    ("Luong et al. (2015)", "multi-task", "more", 93.0),
    ("Dyer et al. (2016)", "generative", "40 thousand", 93.3),
)

MODEL = ModelConfig(layers=2, d_model=128, d_ff=512, heads=4, dropout=0.1, init_gain=1.0)
TRAINING = TrainConfig(
    steps=1000,
    seconds=180,  # two models then take some minutes on two cores
    schedule="linear",
    warmup=100,
    learning_rate=3e-3,
    log_every=50,
    validate_every=250,
    bleu_sentences=0,  # of brackets it would say nothing
    checkpoint_every=125,
    average_checkpoints=2,
    keep_checkpoints=2,
)
DATA = DataConfig(batch_tokens=2500, max_length=400)
VOCABULARY = 4000  # pieces of words; brackets and tags have a vocabulary of their own
SHOWN = 3
LENGTHS = (0, 10, 20, 30, 40, 60, 1000)  # bounds of the groups of sentences in the figure
NAMES: dict[Reads, str] = {"words": "words alone", "tags": "tags alone", "both": "words and tags"}


@dataclass(frozen=True)
class Report:
    """All that came of it."""

    treebank: Treebank
    parsed: Sequence[Parsed]
    table: Table
    files: Sequence[Path]

    def to_dict(self) -> dict[str, Any]:
        bank = self.treebank
        sizes = {split: len(getattr(bank, split)) for split in ("train", "valid", "test")}
        return {
            "trees": bank.name,
            "judged_by": bank.judged_by,
            **sizes,
            "notes": bank.notes,
            "ours": [one.to_dict() for one in self.parsed],
            "published": [asdict_row(row) for row in PUBLISHED],
            "files": list(map(str, self.files)),
        }


def asdict_row(row: tuple[str, str, str, float]) -> dict[str, Any]:
    return dict(zip(("parser", "training", "sentences", "f1"), row, strict=True))


def configured(
    model: str | None, steps: int | None, seconds: float | None, changes: Sequence[str] = ()
) -> Config:
    """The small recipe of this command, with a preset's model, another budget, and any key changed.

    Who asks for so many steps gets them: the recipe's own limit of time is then off.
    """
    parsing = get_preset("parsing")
    own = Config(
        model=MODEL if model is None else get_preset(model).model,
        data=DATA,
        train=TRAINING,
        decoding=parsing.decoding,
    )
    training = own.train if steps is None else replace(own.train, steps=steps, seconds=None)
    training = training if seconds is None else replace(training, seconds=seconds)
    return replace(own, train=training).override(changes)


def table4(
    places: Sequence[Path],
    out: Path,
    reads: Sequence[str],
    config: Config,
    *,
    vocabulary: int = VOCABULARY,
    device: str | None = None,
    command: str = "manyheads paper table4",
    watch: Callable[[], Progress] = Progress,
) -> Report | None:
    """Learns to parse, parses test, judges; once for each kind of input. None: it was asked to stop."""
    kinds = checked_reads(reads)
    with watch() as progress:
        bank = read_treebank(places, progress) if places else built_in()
    parsed = []
    for kind in kinds:
        one = measured(bank, kind, config, vocabulary, out / "table4" / kind, device, watch)
        if one is None:
            return None
        parsed.append(one)
    table = made_table(bank, parsed)
    return Report(
        bank, parsed, table, written(out, bank, parsed, table, where_measured(command, resolve_device(device)))
    )


def checked_reads(asked: Sequence[str]) -> list[Reads]:
    known: dict[str, Reads] = {kind: kind for kind in READS}
    for kind in asked:
        if kind not in known:
            raise ConfigError(f"the input is {kind!r}, but must be of {', '.join(READS)}")
    return [known[kind] for kind in dict.fromkeys(asked)]


# ---- the report

COLUMNS = (
    "parser",
    "training",
    "sentences",
    "test",
    "F1",
    "recall",
    "precision",
    "exact",
    "tags",
    "F1 of the first",
    "well-formed",
)


def made_table(bank: Treebank, parsed: Sequence[Parsed]) -> Table:
    rows: list[list[Value]] = [
        [
            f"ours, {NAMES[one.reads]}",
            f"{one.steps:,} steps, {one.seconds:.0f} s",
            f"{one.learned_from:,} ({bank.name})",
            f"{bank.judged_by}, {len(bank.test):,} sentences",
            one.score.f1,
            one.score.recall,
            one.score.precision,
            one.score.exact,
            one.score.tagging if one.reads == "words" else None,
            one.first_score.f1,
            one.well_formed,
        ]
        for one in parsed
    ]
    rows += [
        [name, training, size, "WSJ section 23", f1, *[None] * 6] for name, training, size, f1 in PUBLISHED
    ]
    return Table("Table 4: constituency parsing", COLUMNS, rows, table_notes(bank, parsed))


def table_notes(bank: Treebank, parsed: Sequence[Parsed]) -> list[str]:
    notes = [
        f"F1, recall, precision and exact match are of labeled brackets, in per cent: {COLLINS.signature}. "
        f"Tags are those that the model wrote, punctuation left out. Of what the beam holds the best tree "
        f"over the words is taken, and where there is none the first is mended; F1 of the first is that of "
        f"the beam's best alone, mended, and well-formed its share that needs none. Rows that are not ours "
        f"are the paper's Table 4, of another test set: they say what is reached with how much data, not "
        f"what is reached here."
    ]
    for one in parsed:
        told = ", ".join(f"{rule} ({one.repairs[rule]:,})" for rule in REPAIRS if one.repairs[rule])
        faults = f"{one.score.errors} errors, {one.score.skipped} skipped"
        notes.append(
            f"{NAMES[one.reads]}: {one.parameters:,} parameters; EVALB: {faults}; punctuation given gold's "
            f"tag: {one.retagged}; sentences mended: {one.mended}" + (f" ({told})." if told else ".")
        )
    return [*notes, *bank.notes]


def written(out: Path, bank: Treebank, parsed: Sequence[Parsed], table: Table, where: str) -> list[Path]:
    try:
        figures, shown = draw(parsed, out), "![F1 by length](table4.svg)"
    except RequestError as fault:  # no matplotlib: the numbers are worth telling all the same
        figures, shown = [], str(fault)
    parts = ["# Table 4, measured here", where, table.markdown(), shown, *examples(bank, parsed)]
    return [*write_report(out, "table4", "\n\n".join(parts) + "\n", {"table4": table}), *figures]


def examples(bank: Treebank, parsed: Sequence[Parsed]) -> list[str]:
    """The first sentences of test: the right tree, and what each model found."""
    parts = ["### The first sentences of test"]
    for number, gold in enumerate(bank.test[:SHOWN]):
        rows = [f"gold: `{gold}`"]
        for one in parsed:
            same = "the same" if one.found[number] == gold else f"`{one.found[number]}`"
            rows.append(f"{NAMES[one.reads]}: {same}")
        parts.append("\\\n".join(rows))
    return parts


def draw(parsed: Sequence[Parsed], out: Path) -> list[Path]:
    """F1 against the length of sentences, where there are any of that length."""
    figure, axes = pyplot().subplots(figsize=(7, 4), layout="constrained")
    names = [
        f"{low + 1} to {high}" if high < LENGTHS[-1] else f"over {low}" for low, high in pairwise(LENGTHS)
    ]
    for one in parsed:
        groups = [by_length(one.score, low, high) for low, high in pairwise(LENGTHS)]
        shown = [(name, group.f1) for name, group in zip(names, groups, strict=True) if group.valid]
        axes.plot(
            *zip(*shown, strict=True), marker="o", label=f"{NAMES[one.reads]}: {one.score.f1:.1f} in all"
        )
    axes.set(xlabel="words of the sentence", ylabel="F1 of labeled brackets", ylim=(0, 102))
    axes.grid(alpha=0.3)
    axes.legend()
    return save_figure(figure, out, "table4")


def by_length(score: BracketScores, low: int, high: int) -> BracketScores:
    return BracketScores([one for one in score.sentences if low < one.length <= high], score.signature)
