"""Table 4: English constituency parsing with the same model, training and search as translation (6.3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from manyheads.config import Config, DataConfig, TrainConfig, TransformerConfig
from manyheads.errors import ConfigError, RequestError
from manyheads.evaluate.evalb import COLLINS, BracketScores
from manyheads.inference.torch_engine import resolve_device
from manyheads.paper.parsing import ParserEvaluation, train_and_evaluate
from manyheads.paper.report import (
    Cell,
    ReportTable,
    format_provenance,
    import_pyplot,
    save_figure,
    write_report,
)
from manyheads.paper.treebank import (
    PARSER_INPUTS,
    ParserInput,
    Treebank,
    make_built_in_treebank,
    read_treebank,
)
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

MODEL = TransformerConfig(layers=2, d_model=128, d_ff=512, heads=4, dropout=0.1, init_gain=1.0)
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
VOCAB_SIZE = 4000  # pieces of words; brackets and tags have a vocabulary of their own
NUM_EXAMPLES = 3
LENGTH_BOUNDS = (0, 10, 20, 30, 40, 60, 1000)  # bounds of the groups of sentences in the figure
INPUT_NAMES: dict[ParserInput, str] = {"words": "words alone", "tags": "tags alone", "both": "words and tags"}


@dataclass(frozen=True)
class ParsingReport:
    """All that came of it."""

    treebank: Treebank
    results: Sequence[ParserEvaluation]
    table: ReportTable
    files: Sequence[Path]

    def to_dict(self) -> dict[str, Any]:
        bank = self.treebank
        sizes = {split: len(getattr(bank, split)) for split in ("train", "valid", "test")}
        return {
            "trees": bank.name,
            "judged_by": bank.test_name,
            **sizes,
            "notes": bank.notes,
            "ours": [one.to_dict() for one in self.results],
            "published": [published_to_dict(row) for row in PUBLISHED],
            "files": list(map(str, self.files)),
        }


def published_to_dict(row: tuple[str, str, str, float]) -> dict[str, Any]:
    return dict(zip(("parser", "training", "sentences", "f1"), row, strict=True))


def make_config(
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


def write_table4(
    paths: Sequence[Path],
    out: Path,
    inputs: Sequence[str],
    config: Config,
    *,
    vocab_size: int = VOCAB_SIZE,
    device: str | None = None,
    command: str = "manyheads paper table4",
    make_progress: Callable[[], Progress] = Progress,
) -> ParsingReport | None:
    """Learns to parse, parses test, judges; once for each kind of input. None: it was asked to stop."""
    kinds = parse_inputs(inputs)
    with make_progress() as progress:
        bank = read_treebank(paths, progress) if paths else make_built_in_treebank()
    parsed = []
    for kind in kinds:
        one = train_and_evaluate(bank, kind, config, vocab_size, out / "table4" / kind, device, make_progress)
        if one is None:
            return None
        parsed.append(one)
    table = make_table(bank, parsed)
    return ParsingReport(
        bank,
        parsed,
        table,
        write_files(out, bank, parsed, table, format_provenance(command, resolve_device(device))),
    )


def parse_inputs(names: Sequence[str]) -> list[ParserInput]:
    known: dict[str, ParserInput] = {kind: kind for kind in PARSER_INPUTS}
    for kind in names:
        if kind not in known:
            raise ConfigError(f"the input is {kind!r}, but must be of {', '.join(PARSER_INPUTS)}")
    return [known[kind] for kind in dict.fromkeys(names)]


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


def make_table(bank: Treebank, parsed: Sequence[ParserEvaluation]) -> ReportTable:
    rows: list[list[Cell]] = [
        [
            f"ours, {INPUT_NAMES[one.parser_input]}",
            f"{one.steps:,} steps, {one.seconds:.0f} s",
            f"{one.train_trees:,} ({bank.name})",
            f"{bank.test_name}, {len(bank.test):,} sentences",
            one.score.f1,
            one.score.recall,
            one.score.precision,
            one.score.exact,
            one.score.tagging if one.parser_input == "words" else None,
            one.first_score.f1,
            one.well_formed,
        ]
        for one in parsed
    ]
    rows += [
        [name, training, size, "WSJ section 23", f1, *[None] * 6] for name, training, size, f1 in PUBLISHED
    ]
    return ReportTable("Table 4: constituency parsing", COLUMNS, rows, make_notes(bank, parsed))


def make_notes(bank: Treebank, parsed: Sequence[ParserEvaluation]) -> list[str]:
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
            f"{INPUT_NAMES[one.parser_input]}: {one.parameters:,} parameters; EVALB: {faults}; punctuation given gold's "
            f"tag: {one.retagged}; sentences mended: {one.num_repaired}" + (f" ({told})." if told else ".")
        )
    return [*notes, *bank.notes]


def write_files(
    out: Path, bank: Treebank, parsed: Sequence[ParserEvaluation], table: ReportTable, where: str
) -> list[Path]:
    try:
        figures, shown = draw_figure(parsed, out), "![F1 by length](table4.svg)"
    except RequestError as fault:  # no matplotlib: the numbers are worth telling all the same
        figures, shown = [], str(fault)
    parts = ["# Table 4, measured here", where, table.to_markdown(), shown, *format_examples(bank, parsed)]
    return [*write_report(out, "table4", "\n\n".join(parts) + "\n", {"table4": table}), *figures]


def format_examples(bank: Treebank, parsed: Sequence[ParserEvaluation]) -> list[str]:
    """The first sentences of test: the right tree, and what each model found."""
    parts = ["### The first sentences of test"]
    for number, gold in enumerate(bank.test[:NUM_EXAMPLES]):
        rows = [f"gold: `{gold}`"]
        for one in parsed:
            same = "the same" if one.trees[number] == gold else f"`{one.trees[number]}`"
            rows.append(f"{INPUT_NAMES[one.parser_input]}: {same}")
        parts.append("\\\n".join(rows))
    return parts


def draw_figure(parsed: Sequence[ParserEvaluation], out: Path) -> list[Path]:
    """F1 against the length of sentences, where there are any of that length."""
    figure, axes = import_pyplot().subplots(figsize=(7, 4), layout="constrained")
    names = [
        f"{low + 1} to {high}" if high < LENGTH_BOUNDS[-1] else f"over {low}"
        for low, high in pairwise(LENGTH_BOUNDS)
    ]
    for one in parsed:
        groups = [filter_by_length(one.score, low, high) for low, high in pairwise(LENGTH_BOUNDS)]
        shown = [(name, group.f1) for name, group in zip(names, groups, strict=True) if group.valid]
        axes.plot(
            *zip(*shown, strict=True),
            marker="o",
            label=f"{INPUT_NAMES[one.parser_input]}: {one.score.f1:.1f} in all",
        )
    axes.set(xlabel="words of the sentence", ylabel="F1 of labeled brackets", ylim=(0, 102))
    axes.grid(alpha=0.3)
    axes.legend()
    return save_figure(figure, out, "table4")


def filter_by_length(score: BracketScores, low: int, high: int) -> BracketScores:
    return BracketScores([one for one in score.sentences if low < one.length <= high], score.signature)
