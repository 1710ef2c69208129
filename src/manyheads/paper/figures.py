"""`manyheads paper figures`: find heads like those of Figures 3, 4 and 5 in a trained model, and draw them.

Shapes: L layers, H heads, Q querying words, K words that are attended to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads import playground
from manyheads.errors import DataError, RequestError
from manyheads.loading import load
from manyheads.look.attention_data import Maps
from manyheads.look.figures import make_lines, name_heads
from manyheads.look.fonts import fonts_covering
from manyheads.look.plots import draw_lines, save_figure
from manyheads.paper.head_ablation import HeadAblation, ablate_heads
from manyheads.paper.head_selection import MIN_LINK, NUM_TARGETS, Given, HeadFigure, choose_figures
from manyheads.paper.report import Cell, ReportTable, format_provenance, write_report
from manyheads.paper.sentence_scores import (
    compute_encoder_maps,
    find_function_words,
    find_word,
    score_sentence,
    score_sentences,
)
from manyheads.plot_style import import_pyplot
from manyheads.progress import ReportProgress
from manyheads.translator import Translator

NUM_SENTENCES = 300
WORDS_PER_CLASS = 12  # of the built-in grammar, as in the demo
MAX_SAMPLES = 200_000  # sentences of the built-in grammar

PAPER_SENTENCES = {  # of Figures 3 to 5, and the word that each shows
    3: (
        "It is in this spirit that a majority of American governments have passed new laws since 2009 making "
        "the registration or voting process more difficult.",
        "making",
    ),
    4: (
        "The Law will never be perfect, but its application should be just - this is what we are missing, in "
        "my opinion.",
        "its",
    ),
}
PAPER_SENTENCES[5] = PAPER_SENTENCES[4]

NO_MODEL = (
    "figures need a trained model: give its folder, as in "
    "manyheads paper figures manyheads-demo/run/model; make demo trains one in three minutes"
)


# ---- sentences


def read_sentences(text: Path, translator: Translator) -> Iterator[str]:
    """Yield the sentences of a text file with one or more per line."""
    for line in read_lines(text):
        yield from translator.split_sentences(line)


def read_lines(text: Path) -> Iterator[str]:
    try:
        with text.open(encoding="utf-8-sig") as lines:
            yield from lines
    except UnicodeDecodeError:
        raise DataError(f"{text}: not UTF-8; convert it, for example with iconv") from None
    except OSError as error:
        raise DataError(f"{text}: cannot be read ({error.strerror})") from None


def read_pairs(text: Path, reference: Path) -> tuple[list[str], list[str]]:
    """Read a text and its translation, one sentence per line."""
    sources, references = ([line.rstrip("\n") for line in read_lines(path)] for path in (text, reference))
    if len(sources) != len(references):
        raise DataError(
            f"{text} has {len(sources):,} lines, but {reference} has {len(references):,}: "
            f"they must be parallel"
        )
    return sources, references


def collect_pairs(
    translator: Translator, text: Path | None, reference: Path | None, num_built_in: int
) -> tuple[list[str], list[str]] | None:
    """Return sentences and their translations: those given, or built-in ones. None: no translations."""
    if text:
        return read_pairs(text, reference) if reference else None
    pairs = list(islice(generate_pairs(translator), num_built_in))
    return [source for source, _ in pairs], [target for _, target in pairs]


def generate_pairs(translator: Translator) -> Iterator[tuple[str, str]]:
    """Yield sentences of the test split of the built-in corpus and their translations."""
    pair = f"{translator.source_language}-{translator.target_language}"
    if pair not in playground.PAIRS:
        raise RequestError(
            f"the model translates {pair}, but the built-in sentences are for "
            f"{' and '.join(playground.PAIRS)}: give a TEXT, one sentence per line"
        )
    seen = set()
    for example in islice(playground.generate_examples(pair, seed=1, words=WORDS_PER_CLASS), MAX_SAMPLES):
        if playground.assign_split(example) == "test" and example.source not in seen:
            seen.add(example.source)
            yield example.source, example.target


def score_paper_sentences(translator: Translator) -> Given:
    """Return the scores of the paper's own sentences and the row of the word that each figure shows."""
    if translator.source_language != "en":
        raise RequestError(
            f"the paper's sentences are English, but the model translates from {translator.source_language}"
        )
    function_words = find_function_words([], "en")
    given = {}
    for figure, (sentence, word) in PAPER_SENTENCES.items():
        scores = score_sentence(translator, sentence, function_words)
        given[figure] = scores, find_word(scores, word)
    return given


# ---- drawing and writing


@dataclass(frozen=True)
class FiguresReport:
    """The figures, their table and the files written."""

    figures: list[HeadFigure]
    table: ReportTable
    files: list[Path]
    provenance: str
    ablation: HeadAblation | None  # None: no translations to compare with

    def to_dict(self) -> dict[str, Any]:
        figures = [asdict(figure) for figure in self.figures]
        ablation = asdict(self.ablation) if self.ablation else None
        return {
            "provenance": self.provenance,
            "figures": figures,
            "ablation": ablation,
            "files": list(map(str, self.files)),
        }


def write_figures(
    model: Path | None,
    folder: Path,
    *,
    text: Path | None = None,
    reference: Path | None = None,
    paper_sentences: bool = False,
    command: str = "manyheads paper figures",
    device: str | None = None,
    sentences: int = NUM_SENTENCES,
    report_progress: ReportProgress = lambda stage, done, total: None,
) -> FiguresReport:
    """Find heads like those of Figures 3, 4 and 5, draw them, cut them, and write the report.

    `reference` is the translation of `text`, line by line; without a text, built-in sentences have theirs.
    """
    if model is None:
        raise RequestError(NO_MODEL)
    if reference and not text:
        raise RequestError(f"--reference {reference}: needs the text that it is a translation of")
    import_pyplot()  # fail before the work if matplotlib is missing
    translator = load(model, device=device, engine="torch:float32")
    pairs = collect_pairs(translator, text, reference, sentences)
    source = read_sentences(text, translator) if text else (pair[0] for pair in generate_pairs(translator))
    scores = score_sentences(translator, source, sentences, report_progress)
    given = score_paper_sentences(translator) if paper_sentences else {}
    figures: list[HeadFigure] = []
    files: list[Path] = []
    for figure, best_sentence in choose_figures(scores, given):
        _, maps_LHQK = compute_encoder_maps(translator, best_sentence.sentence)
        with fonts_covering("".join(best_sentence.words)):
            files += save_figure(
                draw_figure(figure, best_sentence.words, maps_LHQK), folder, f"figure-{figure.figure}"
            )
        weights_K = maps_LHQK[figure.layer, figure.head, figure.position]
        figures.append(replace(figure, top_targets=list_strongest(weights_K, best_sentence.words)))
    ablation = ablate_heads(translator, *pairs, report_progress) if pairs else None
    table = make_table(figures, ablation)
    provenance = format_provenance(command, translator.engine.device.type)  # type: ignore[attr-defined]
    report = render_report(figures, table, provenance, ablation)
    files = [*write_report(folder, "figures", report, {"figures": table}), *files]
    return FiguresReport(figures, table, files, provenance, ablation)


def draw_figure(figure: HeadFigure, words: Sequence[str], maps_LHQK: Maps) -> Any:
    """Draw as in the paper: a word and all heads of a layer (3), a head and a word (4), two heads (5)."""
    first = (figure.layer, figure.head)
    heads = [first, *([figure.second_head] if figure.second_head else [])]
    lines, names = make_lines(maps_LHQK, heads), name_heads(heads)
    if figure.figure == 3:
        layer = [(figure.layer, head) for head in range(maps_LHQK.shape[1])]
        panels = [make_lines(maps_LHQK, layer, figure.position)]
        titles = [f"Figure 3: “{figure.word}” in layer {figure.layer + 1}, all heads"]
        return draw_lines(words, panels, titles, [[f"head {head + 1}" for _, head in layer]])
    if figure.figure == 4:
        alone = make_lines(maps_LHQK, heads, figure.position)
        titles = ["Figure 4: a head that points back", f"“{figure.word}” alone"]
        return draw_lines(words, [lines[:1], alone], titles, [names[:1], names])
    titles = ["Figure 5: heads that follow the structure", ""][: len(heads)]
    return draw_lines(words, [[line] for line in lines], titles, [[name] for name in names])


def list_strongest(weights_K: NDArray[Any], words: Sequence[str]) -> list[tuple[str, float]]:
    order = np.argsort(-weights_K, kind="stable")[:NUM_TARGETS]
    return [
        (words[position], round(float(weights_K[position]), 4))
        for position in order
        if weights_K[position] >= 0.01
    ]


MEASURE_NAMES = {"far": "far away", "anaphora": "back from a pronoun", "structure": "structure"}


def make_table(figures: Sequence[HeadFigure], ablation: HeadAblation | None = None) -> ReportTable:
    columns = [
        "figure",
        "shows",
        "layer.head",
        "word",
        "attends to",
        "score",
        "mean best score",
        "head mean",
        "all heads mean",
        *(["BLEU without it", "± 95 %", "BLEU without an average head"] if ablation else []),
    ]
    rows: list[list[Cell]] = [
        [
            str(figure.figure),
            MEASURE_NAMES[figure.measure],
            format_head((figure.layer, figure.head)),
            figure.word,
            ", ".join(f"{word} {weight:.2f}" for word, weight in figure.top_targets),
            figure.score,
            figure.mean_best_score,
            figure.head_mean,
            figure.all_heads_mean,
            *list_ablation_cells(figure, ablation),
        ]
        for figure in figures
    ]
    return ReportTable("Heads like those of Figures 3, 4 and 5", columns, rows)


def list_ablation_cells(figure: HeadFigure, ablation: HeadAblation | None) -> list[Cell]:
    if not ablation:
        return []
    layer, head = figure.layer, figure.head
    mean = ablation.bleu + ablation.mean_difference
    return [ablation.cut_bleu[layer][head], ablation.margins[layer][head], mean]


def format_head(layer_and_head: tuple[int, int]) -> str:
    """Format layer and head counted from 1, as on the attention page."""
    return f"{layer_and_head[0] + 1}.{layer_and_head[1] + 1}"


METHOD = """Heads of the encoder's self-attention, selected by three measures. Only attention from words
to other words counts, and of a weight only what exceeds the mean that its word receives from all rows: a
word that every row attends to is an attention sink.

- Far away: the mean share on words at least four words away; the score is that of the word shown.
- Back from a pronoun: the largest weight on one earlier word that it may refer to: not a neighbor, a pronoun
  or a function word. It shows where a head attends, not that it resolves the reference.
- Structure: the mean of each row's largest weight, times how much the word and the direction that rows point
  at vary; a head that always attends to the previous word has 0.

A head is selected by its mean over all sentences, then the word or sentence that shows it best. The mean best
score is the mean over all heads of their best score, found in the same way. The all heads mean is the mean
over all sentences and heads, the expectation of a random head. Where score and mean best score are close, the
figure shows what any head does somewhere. Layers and heads are counted from 1.
"""


ABLATION_METHOD = """Whether the model needs a head is another question than where it attends. So every
encoder head was cut, one at a time (zeros in the columns of W_O that read it, nothing trained afterwards),
and {count:,} sentences were translated by greedy search: BLEU {bleu:.2f} with all heads ({signature}). ± is a
95 % interval of the difference by paired bootstrap over sentences. It is one model: another training may
differ by more.
"""


def render_report(
    figures: Sequence[HeadFigure], table: ReportTable, provenance: str, ablation: HeadAblation | None = None
) -> str:
    parts = ["# Heads like those of Figures 3, 4 and 5\n", f"{provenance}\n", METHOD]
    if ablation:
        values = {"count": ablation.num_sentences, "bleu": ablation.bleu, "signature": ablation.signature}
        parts.append(ABLATION_METHOD.format_map(values))
    parts.append(table.to_markdown())
    return "\n".join(parts + [render_section(figure, ablation) for figure in figures])


def render_section(figure: HeadFigure, ablation: HeadAblation | None = None) -> str:
    head_name, word = format_head((figure.layer, figure.head)), f"“{figure.word}”"
    targets = ", ".join(f"“{target}” {weight:.2f}" for target, weight in figure.top_targets)
    lines = [
        f"## Figure {figure.figure}: {MEASURE_NAMES[figure.measure]}\n",
        f"![{MEASURE_NAMES[figure.measure]}, head {head_name}](figure-{figure.figure}.svg)\n",
        f"> {figure.sentence}\n",
        f"Layer {figure.layer + 1}, head {figure.head + 1}. {word} attends to {targets}.",
    ]
    if figure.second_head and figure.figure == 4:
        lines.append(
            f"Below, {word} alone, with the second-sharpest head for it, {format_head(figure.second_head)}."
        )
    if figure.second_head and figure.figure == 5:
        lines.append(
            f"Below, head {format_head(figure.second_head)}, the next that mostly points at other words."
        )
    if figure.antecedent_counts:
        counts = ", ".join(f"{name} {count}" for name, count in figure.antecedent_counts)
        lines.append(
            f"From pronouns this head points most often at: {counts} (nowhere: weight below {MIN_LINK})."
        )
    compared = (
        "the sentence is the paper's, and there the mean over all heads is"
        if figure.is_given
        else "the mean over all heads of their best score is"
    )
    lines.append(
        f"The score is {figure.score:.3f}; {compared} "
        f"{figure.mean_best_score:.3f}. Over {figure.num_sentences} sentences the mean of this head is "
        f"{figure.head_mean:.3f}, and that of all heads is {figure.all_heads_mean:.3f}."
    )
    if ablation:
        lines.append(ablation.describe((figure.layer, figure.head)))
    lines.append("")
    return "\n".join(lines)
