"""`manyheads paper table4`: constituency parsing with the model, training and search of translation (6.3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from manyheads.config import Config, DataConfig, TrainConfig, TransformerConfig
from manyheads.cuda.device import resolve_device
from manyheads.errors import ConfigError, RequestError
from manyheads.evaluate.evalb import COLLINS, BracketScores
from manyheads.paper.parsing import ParserEvaluation, train_and_evaluate
from manyheads.paper.report import (
    Cell,
    ReportTable,
    format_provenance,
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
from manyheads.plot_style import import_pyplot
from manyheads.presets import get_preset
from manyheads.progress import Progress
from manyheads.text.trees import REPAIRS

# The paper's Table 4: F1 on section 23 of the Wall Street Journal. WSJ only is about 40,000 sentences; the
# paper's own semi-supervised training uses about 17 million.
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
    seconds=180,  # two models take a few minutes on two cores
    schedule="linear",
    warmup=100,
    learning_rate=3e-3,
    log_every=50,
    validate_every=250,
    bleu_sentences=0,  # meaningless for brackets, as chrF is
    calibrate=False,
    checkpoint_every=125,
    average_checkpoints=2,
    keep_checkpoints=2,
    card=False,
)
DATA = DataConfig(batch_tokens=2500, max_length=400)
VOCAB_SIZE = 4000  # of words; brackets and tags have a vocabulary of their own
NUM_EXAMPLES = 3
LENGTH_BOUNDS = (0, 10, 20, 30, 40, 60, 1000)  # of the groups of sentences in the figure
INPUT_NAMES: dict[ParserInput, str] = {"words": "words only", "tags": "tags only", "both": "words and tags"}


@dataclass(frozen=True)
class ParsingReport:
    """The evaluation of each parser, the table and the files written."""

    treebank: Treebank
    results: Sequence[ParserEvaluation]
    table: ReportTable
    files: Sequence[Path]

    def to_dict(self) -> dict[str, Any]:
        treebank = self.treebank
        sizes = {split: len(getattr(treebank, split)) for split in ("train", "valid", "test")}
        return {
            "treebank": treebank.name,
            "test_treebank": treebank.test_name,
            **sizes,
            "notes": treebank.notes,
            "ours": [result.to_dict() for result in self.results],
            "published": [published_to_dict(row) for row in PUBLISHED],
            "files": list(map(str, self.files)),
        }


def published_to_dict(row: tuple[str, str, str, float]) -> dict[str, Any]:
    return dict(zip(("parser", "training", "sentences", "f1"), row, strict=True))


def make_config(
    model: str | None, steps: int | None, seconds: float | None, changes: Sequence[str] = ()
) -> Config:
    """Return the default config of this command with the given model preset, budget and overrides.

    A given number of steps replaces the default time limit.
    """
    parsing = get_preset("parsing")
    config = Config(
        model=MODEL if model is None else get_preset(model).model,
        data=DATA,
        train=TRAINING,
        decoding=parsing.decoding,
    )
    training = config.train if steps is None else replace(config.train, steps=steps, seconds=None)
    training = training if seconds is None else replace(training, seconds=seconds)
    return replace(config, train=training).override(changes)


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
    """Train and evaluate a parser for each kind of input, and write the report. None: stopped by a signal."""
    parser_inputs = parse_inputs(inputs)
    with make_progress() as progress:
        treebank = read_treebank(paths, progress) if paths else make_built_in_treebank()
    results = []
    for parser_input in parser_inputs:
        folder = out / "table4" / parser_input
        result = train_and_evaluate(treebank, parser_input, config, vocab_size, folder, device, make_progress)
        if result is None:
            return None
        results.append(result)
    table = make_table(treebank, results)
    return ParsingReport(
        treebank,
        results,
        table,
        write_files(out, treebank, results, table, format_provenance(command, resolve_device(device))),
    )


def parse_inputs(names: Sequence[str]) -> list[ParserInput]:
    known: dict[str, ParserInput] = {name: name for name in PARSER_INPUTS}
    for name in names:
        if name not in known:
            raise ConfigError(f"--input has {name!r}, but must be one or more of {', '.join(PARSER_INPUTS)}")
    return [known[name] for name in dict.fromkeys(names)]


# ---- the report

COLUMNS = (
    "parser",
    "training",
    "sentences",
    "test",
    "F1",
    "recall",
    "precision",
    "exact match",
    "tag accuracy",
    "F1 of first hypothesis",
    "well-formed",
)


def make_table(treebank: Treebank, results: Sequence[ParserEvaluation]) -> ReportTable:
    rows: list[list[Cell]] = [
        [
            f"ours, {INPUT_NAMES[result.parser_input]}",
            f"{result.steps:,} steps, {result.seconds:.0f} s",
            f"{result.train_trees:,} ({treebank.name})",
            f"{treebank.test_name}, {len(treebank.test):,} sentences",
            result.score.f1,
            result.score.recall,
            result.score.precision,
            result.score.exact,
            result.score.tagging if result.parser_input == "words" else None,
            result.first_score.f1,
            result.well_formed,
        ]
        for result in results
    ]
    rows += [
        [name, training, size, "WSJ section 23", f1, *[None] * 6] for name, training, size, f1 in PUBLISHED
    ]
    return ReportTable("Table 4: constituency parsing", COLUMNS, rows, make_notes(treebank, results))


def make_notes(treebank: Treebank, results: Sequence[ParserEvaluation]) -> list[str]:
    notes = [
        f"F1, recall, precision and exact match are of labeled brackets, in percent: {COLLINS.signature}. "
        f"Tag accuracy is that of the tags in the output, without punctuation. The parse is the best "
        f"well-formed hypothesis of the beam, or the first one, repaired. F1 of first hypothesis is that of "
        f"the first one alone, repaired; well-formed is the percentage that needs no repair. Rows that are "
        f"not ours are the paper's Table 4, on another test set: they show what is reached with how much "
        f"data, and are not comparable with our rows."
    ]
    for result in results:
        repairs = ", ".join(f"{rule} ({result.repairs[rule]:,})" for rule in REPAIRS if result.repairs[rule])
        evalb = f"{result.score.errors} errors, {result.score.skipped} skipped"
        notes.append(
            f"{INPUT_NAMES[result.parser_input]}: {result.parameters:,} parameters; EVALB: {evalb}; "
            f"punctuation given the gold tag: {result.retagged}; sentences repaired: {result.num_repaired}"
            + (f" ({repairs})." if repairs else ".")
        )
    return [*notes, *treebank.notes]


def write_files(
    out: Path, treebank: Treebank, results: Sequence[ParserEvaluation], table: ReportTable, provenance: str
) -> list[Path]:
    try:
        figures, figure_text = draw_figure(results, out), "![F1 by length](table4.svg)"
    except RequestError as error:  # no matplotlib: write the numbers without the figure
        figures, figure_text = [], str(error)
    parts = [
        "# Table 4, measured",
        provenance,
        table.to_markdown(),
        figure_text,
        *format_examples(treebank, results),
    ]
    return [*write_report(out, "table4", "\n\n".join(parts) + "\n", {"table4": table}), *figures]


def format_examples(treebank: Treebank, results: Sequence[ParserEvaluation]) -> list[str]:
    """Format the first sentences of the test set: the gold tree and the parse of each model."""
    parts = ["### First sentences of the test set"]
    for index, gold in enumerate(treebank.test[:NUM_EXAMPLES]):
        rows = [f"gold: `{gold}`"]
        for result in results:
            same = "the same" if result.trees[index] == gold else f"`{result.trees[index]}`"
            rows.append(f"{INPUT_NAMES[result.parser_input]}: {same}")
        parts.append("\\\n".join(rows))
    return parts


def draw_figure(results: Sequence[ParserEvaluation], out: Path) -> list[Path]:
    """Plot F1 against sentence length."""
    figure, axes = import_pyplot().subplots(figsize=(7, 4), layout="constrained")
    names = [
        f"{low + 1} to {high}" if high < LENGTH_BOUNDS[-1] else f"over {low}"
        for low, high in pairwise(LENGTH_BOUNDS)
    ]
    for result in results:
        groups = [filter_by_length(result.score, low, high) for low, high in pairwise(LENGTH_BOUNDS)]
        points = [(name, group.f1) for name, group in zip(names, groups, strict=True) if group.valid]
        axes.plot(
            *zip(*points, strict=True),
            marker="o",
            label=f"{INPUT_NAMES[result.parser_input]}: {result.score.f1:.1f} overall",
        )
    axes.set(xlabel="words per sentence", ylabel="F1 of labeled brackets", ylim=(0, 102))
    axes.grid()
    axes.legend()
    return save_figure(figure, out, "table4")


def filter_by_length(score: BracketScores, low: int, high: int) -> BracketScores:
    return BracketScores(
        [sentence for sentence in score.sentences if low < sentence.length <= high], score.signature
    )
