"""`manyheads paper table4`: constituency parsing with the model, training and search of translation (6.3)."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from manyheads.config import Config, DataConfig, TrainConfig, TransformerConfig
from manyheads.cuda.device import resolve_device
from manyheads.errors import ConfigError, RequestError
from manyheads.evaluate.evalb import COLLINS, BracketScores
from manyheads.evaluate.significance import bootstrap_f1_margin
from manyheads.paper.parsing import ParserEvaluation
from manyheads.paper.parsing_grid import (
    GrammarEvaluation,
    ParserGrid,
    ParserGroup,
    evaluate_grammars,
    evaluate_grid,
    group_by_seed,
)
from manyheads.paper.report import (
    Cell,
    ReportTable,
    format_provenance,
    save_figure,
    write_report,
)
from manyheads.paper.treebank import (
    FOREIGN_LABELS,
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
    grammars: Sequence[GrammarEvaluation]
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
            "grammars": [grammar.to_dict() for grammar in self.grammars],
            "published": [published_to_dict(row) for row in PUBLISHED],
            "files": list(map(str, self.files)),
        }


def published_to_dict(row: tuple[str, str, str, float]) -> dict[str, Any]:
    return dict(zip(("parser", "training", "sentences", "f1"), row, strict=True))


def make_config(
    model: str | None, steps: Sequence[int], seconds: float | None, changes: Sequence[str] = ()
) -> Config:
    """Return the default config of this command with the given model preset, budget and overrides.

    Given numbers of steps replace the default time limit; the first of them is in the config.
    """
    parsing = get_preset("parsing")
    config = Config(
        model=MODEL if model is None else get_preset(model).model,
        data=DATA,
        train=TRAINING,
        decoding=parsing.decoding,
    )
    training = replace(config.train, steps=steps[0], seconds=None) if steps else config.train
    training = training if seconds is None else replace(training, seconds=seconds)
    return replace(config, train=training).override(changes)


def write_table4(
    paths: Sequence[Path],
    out: Path,
    grid: ParserGrid,
    config: Config,
    *,
    vocab_size: int = VOCAB_SIZE,
    removed_labels: Collection[str] = FOREIGN_LABELS,
    device: str | None = None,
    command: str = "manyheads paper table4",
    make_progress: Callable[[], Progress] = Progress,
) -> ParsingReport | None:
    """Train and evaluate the parsers of a grid, and write the report. None: stopped by a signal."""
    with make_progress() as progress:
        treebank = read_treebank(paths, progress, removed_labels) if paths else make_built_in_treebank()
        grammars = evaluate_grammars(treebank, grid, progress)
    results = evaluate_grid(treebank, grid, config, vocab_size, out / "table4", device, make_progress)
    if results is None:
        return None
    table = make_table(treebank, results, grammars)
    provenance = format_provenance(command, resolve_device(device))
    files = write_files(out, treebank, results, grammars, table, provenance)
    return ParsingReport(treebank, results, grammars, table, files)


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
    "± 95 %",
    "± between seeds",
    "recall",
    "precision",
    "exact match",
    "tag accuracy",
    "F1 of first hypothesis",
    "well-formed",
)


def make_table(
    treebank: Treebank, results: Sequence[ParserEvaluation], grammars: Sequence[GrammarEvaluation]
) -> ReportTable:
    rows = [make_row(treebank, group) for group in group_by_seed(results)]
    rows += [make_grammar_row(treebank, grammar) for grammar in grammars]
    rows += [
        [name, training, size, "WSJ section 23", f1, *[None] * 8] for name, training, size, f1 in PUBLISHED
    ]
    notes = make_notes(treebank, results, grammars)
    return ReportTable("Table 4: constituency parsing", COLUMNS, rows, notes)


def make_row(treebank: Treebank, group: ParserGroup) -> list[Cell]:
    first = group.first
    seeds = f", {len(group.evaluations)} seeds" if len(group.evaluations) > 1 else ""
    return [
        f"ours, {INPUT_NAMES[first.parser_input]}",
        f"{first.steps:,} steps, {group.mean(lambda result: result.seconds):.0f} s{seeds}",
        f"{first.train_trees:,} ({treebank.name})",
        f"{treebank.test_name}, {len(treebank.test):,} sentences",
        group.mean(lambda result: result.score.f1),
        bootstrap_f1_margin([result.score for result in group.evaluations]),
        group.f1_std,
        group.mean(lambda result: result.score.recall),
        group.mean(lambda result: result.score.precision),
        group.mean(lambda result: result.score.exact),
        group.mean(lambda result: result.score.tagging) if first.parser_input == "words" else None,
        group.mean(lambda result: result.first_score.f1),
        group.mean(lambda result: result.well_formed),
    ]


def make_grammar_row(treebank: Treebank, grammar: GrammarEvaluation) -> list[Cell]:
    score = grammar.score
    return [
        f"parent-annotated PCFG, {'words only' if grammar.parser_input == 'words' else 'tags only'}",
        f"{grammar.num_rules:,} rules counted, {grammar.seconds:.0f} s of CPU with parsing",
        f"{grammar.train_trees:,} ({treebank.name})",
        f"{treebank.test_name}, {len(treebank.test):,} sentences",
        score.f1,
        bootstrap_f1_margin([score]),
        None,
        score.recall,
        score.precision,
        score.exact,
        score.tagging if grammar.parser_input == "words" else None,
        None,
        100.0 * (1 - grammar.no_parse / max(1, len(treebank.test))),
    ]


def make_notes(
    treebank: Treebank, results: Sequence[ParserEvaluation], grammars: Sequence[GrammarEvaluation]
) -> list[str]:
    notes = [
        f"F1, recall, precision and exact match are of labeled brackets, in percent: {COLLINS.signature}. "
        f"Tag accuracy is that of the tags in the output, without punctuation. The parse is the best "
        f"well-formed hypothesis of the beam, or the first one, repaired. F1 of first hypothesis is that of "
        f"the first one alone, repaired; well-formed is the percentage that needs no repair. Rows that are "
        f"not ours are the paper's Table 4, on another test set: they show what is reached with how much "
        f"data, and are not comparable with our rows. ± 95 %: bootstrap over test sentences; ± between "
        f"seeds: their standard deviation.",
        compare_with_grammars(results, grammars),
    ]
    for result in results:
        repairs = ", ".join(f"{rule} ({result.repairs[rule]:,})" for rule in REPAIRS if result.repairs[rule])
        evalb = f"{result.score.errors} errors, {result.score.skipped} skipped"
        notes.append(
            f"{describe_training(result)}, seed {result.seed}: {result.parameters:,} parameters; "
            f"EVALB: {evalb}; punctuation given the gold tag: {result.retagged}; "
            f"sentences repaired: {result.num_repaired}" + (f" ({repairs})." if repairs else ".")
        )
    return [*notes, *treebank.notes]


def compare_with_grammars(results: Sequence[ParserEvaluation], grammars: Sequence[GrammarEvaluation]) -> str:
    """State where the Transformer is better than a grammar estimated from the same trees."""
    parts = []
    for group in group_by_seed(results):
        first, f1 = group.first, group.mean(lambda result: result.score.f1)
        grammar_input = "words" if first.parser_input == "words" else "tags"
        for grammar in grammars:
            if (grammar.parser_input, grammar.train_trees) == (grammar_input, first.train_trees):
                difference = f1 - grammar.score.f1
                margin = bootstrap_f1_margin([result.score for result in group.evaluations], grammar.score)
                side = "above" if difference > 0 else "below"
                parts.append(
                    f"{INPUT_NAMES[first.parser_input]}, {first.train_trees:,} trees, {first.steps:,} steps: "
                    f"{abs(difference):.1f} ± {margin:.1f} {side} the grammar"
                )
    return (
        f"F1 beside a PCFG estimated from the same trees (docs/paper.md): {'; '.join(parts)}. ± is a 95 % "
        f"interval by paired bootstrap over test sentences, without the variance of seeds."
    )


def write_files(
    out: Path,
    treebank: Treebank,
    results: Sequence[ParserEvaluation],
    grammars: Sequence[GrammarEvaluation],
    table: ReportTable,
    provenance: str,
) -> list[Path]:
    try:
        figures, figure_text = draw_figure(results, out), "![F1 by length](table4.svg)"
        if len({grammar.train_trees for grammar in grammars}) > 1:
            figures += draw_curve(results, grammars, out)
            figure_text += "\n\n![F1 by number of trees](table4-curve.svg)"
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
        for result in (group.first for group in group_by_seed(results)):
            same = "the same" if result.trees[index] == gold else f"`{result.trees[index]}`"
            rows.append(f"{describe_training(result)}: {same}")
        parts.append("\\\n".join(rows))
    return parts


def draw_figure(results: Sequence[ParserEvaluation], out: Path) -> list[Path]:
    """Plot F1 against sentence length."""
    figure, axes = import_pyplot().subplots(figsize=(7, 4), layout="constrained")
    names = [
        f"{low + 1} to {high}" if high < LENGTH_BOUNDS[-1] else f"over {low}"
        for low, high in pairwise(LENGTH_BOUNDS)
    ]
    for group in group_by_seed(results):
        result = group.first
        groups = [filter_by_length(result.score, low, high) for low, high in pairwise(LENGTH_BOUNDS)]
        points = [(name, group.f1) for name, group in zip(names, groups, strict=True) if group.valid]
        axes.plot(
            *zip(*points, strict=True),
            marker="o",
            label=f"{describe_training(result)}: {result.score.f1:.1f} overall",
        )
    axes.set(xlabel="words per sentence", ylabel="F1 of labeled brackets", ylim=(0, 102))
    axes.grid()
    axes.legend()
    return save_figure(figure, out, "table4")


def describe_training(result: ParserEvaluation) -> str:
    return f"{INPUT_NAMES[result.parser_input]}, {result.train_trees:,} trees, {result.steps:,} steps"


def draw_curve(
    results: Sequence[ParserEvaluation], grammars: Sequence[GrammarEvaluation], out: Path
) -> list[Path]:
    """Plot F1 against the number of training trees: one line for each input and number of steps."""
    figure, axes = import_pyplot().subplots(figsize=(7, 4), layout="constrained")
    lines: dict[str, list[tuple[int, float]]] = {}
    for group in group_by_seed(results):
        name = f"{INPUT_NAMES[group.first.parser_input]}, {group.first.steps:,} steps"
        point = (group.first.train_trees, group.mean(lambda result: result.score.f1))
        lines.setdefault(name, []).append(point)
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), "o-", label=name)
    for grammar_input in dict.fromkeys(grammar.parser_input for grammar in grammars):
        points = [
            (item.train_trees, item.score.f1) for item in grammars if item.parser_input == grammar_input
        ]
        axes.plot(*zip(*sorted(points), strict=True), "s--", label=f"PCFG, {grammar_input} only")
    axes.set(xlabel="training trees", ylabel="F1 of labeled brackets", xscale="log", ylim=(0, 102))
    axes.grid(alpha=0.3)
    axes.legend()
    return save_figure(figure, out, "table4-curve")


def filter_by_length(score: BracketScores, low: int, high: int) -> BracketScores:
    return BracketScores(
        [sentence for sentence in score.sentences if low < sentence.length <= high], score.signature
    )
