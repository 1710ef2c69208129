"""Figures 3, 4 and 5 of a trained model: heads found over many sentences, and where each is seen best.

Only what words do to other words counts, and only what exceeds the mean that a word gets from all rows
(look/measures.py). Of each sentence and head:

far         Figure 3: the mean share of attention on words at least four away
anaphora    Figure 4: from a pronoun, the largest weight on one earlier word that it may stand for: no
            neighbor, no pronoun, no function word such as "the" or "who"; the mean over the sentence's
            pronouns. In a language without lists here every word asks, and words that more than a tenth of
            the sentences have count as function words
structure   Figure 5: how strongly rows point at one other word, times how much word and direction change

A head is chosen by its mean over all sentences, so that no lucky sentence decides; then the sentence and the
word that show it best are drawn.

Shapes: L layers, H heads, Q words that look, K words that are looked at.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads import playground
from manyheads.errors import DataError, RequestError
from manyheads.look.attention_data import (
    Maps,
    head_colors,
    is_word,
    merge_into_words,
    stack_maps,
    tokens_to_words,
)
from manyheads.look.figures import draw_lines, fonts_covering, import_pyplot, save_figure
from manyheads.look.measures import Array, compute_links, score_heads
from manyheads.paper.report import Cell, ReportTable, format_provenance, write_report
from manyheads.progress import ReportProgress
from manyheads.translator import Translator, load

NUM_SENTENCES = 300  # that are looked at
MIN_WORDS, MAX_WORDS = 8, 30  # of a sentence
WORDS_PER_CLASS = 12  # words of each class of the built-in grammar, as in the demo
MAX_SAMPLES = 200_000  # of its sentences, at most
COMMON_WORD_SHARE = 0.1  # of the sentences: without a list, a word in more of them is a function word
MIN_LINK = 0.05  # a weaker one points nowhere
NOWHERE = "nowhere"
MAX_AGREEMENT = 0.5  # heads that point at the same word more often than this are of one kind
NUM_TARGETS = 4  # words that are looked at, or pointed at most often

NO_MODEL = (
    "figures are of a trained model: give its folder, as in "
    "manyheads paper figures manyheads-demo/run/model; make demo trains that one in three minutes"
)

PRONOUNS = {
    "en": "he him his himself she her hers herself it its itself they them their theirs themselves",
    "de": "er ihn ihm sie ihr ihnen es sein seine seinen seinem seiner ihre ihren ihrem ihrer sich",
}
FUNCTION_WORDS = {
    "en": "a an the this that these those i me my we us our you your who whom whose which what when where "
    "why how and or but because if than as to of in on at by with for from about into not no do does did is "
    "are was were be been being am have has had will would can could may might must shall should there",
    "de": "der die das den dem des ein eine einen einem einer eines dieser diese dieses diesen diesem ich "
    "mich mir mein meine wir uns unser unsere du dich dir dein wer wen wem wessen was wann wo wohin "
    "warum wie und oder aber weil dass wenn als zu von vom in im an am auf mit für aus bei nach um über "
    "nicht kein keine ist sind war waren bin bist hat haben hatte hatten wird werden wurde kann können "
    "konnte muss müssen will wollen soll",
}


@dataclass(frozen=True)
class SentenceScores:
    """One sentence: by measure every head's score, [L, H], and each row's part of it, [L, H, Q]."""

    sentence: str
    words: list[str]
    query_positions: NDArray[np.intp]  # the places of the words that look
    scores: dict[str, Array]
    by_row: dict[str, Array]
    target_positions: NDArray[np.intp]  # [L, H, Q] the place that each row points at
    antecedents: dict[
        int, NDArray[np.intp]
    ]  # by a pronoun's row, the earlier place that each head points at. [L, H]


@dataclass(frozen=True)
class HeadFigure:
    """A figure: its head, where it is seen best, and the measure beside what other heads get."""

    figure: int
    measure: str
    layer: int  # from 0
    head: int
    second_head: tuple[int, int] | None  # layer and head of the other one in the figure
    sentence: str
    word: str
    position: int  # its place
    top_targets: list[tuple[str, float]]  # the strongest, with their weights
    score: float  # the measure of this word (Figures 3 and 4) or of this sentence (Figure 5)
    mean_best_score: float  # the mean of what all heads have, each where it is seen best
    head_mean: float  # the measure of this head over all sentences
    all_heads_mean: float  # heads: what one drawn at random has
    num_sentences: int  # that have the measure
    antecedent_counts: list[tuple[str, int]]  # from all pronouns, how often at which word


# ---- looking at many sentences


def score_sentences(
    translator: Translator, sentences: Iterable[str], max_sentences: int, report_progress: ReportProgress
) -> list[SentenceScores]:
    """The first so many that are neither too short nor too long."""
    fitting = list(islice((one for one in sentences if has_suitable_length(one)), max_sentences))
    if not fitting:
        raise RequestError(
            f"no sentence has {MIN_WORDS} to {MAX_WORDS} words, as the figures need: give another text"
        )
    empty, found = find_function_words(fitting, translator.source_language), []
    for done, sentence in enumerate(fitting, 1):
        found.append(score_sentence(translator, sentence, empty))
        report_progress("looking at sentences", done, len(fitting))
    return found


def has_suitable_length(sentence: str) -> bool:
    return MIN_WORDS <= sum(map(is_word, sentence.split())) <= MAX_WORDS


def find_function_words(sentences: Sequence[str], language: str) -> set[str]:
    """Words that are no name of anything: as listed, or those that many of the sentences have."""
    if language in FUNCTION_WORDS:
        return set(FUNCTION_WORDS[language].split())
    having = Counter(word for one in sentences for word in {strip_punctuation(word) for word in one.split()})
    return {word for word, count in having.items() if count > COMMON_WORD_SHARE * len(sentences)}


def strip_punctuation(word: str) -> str:
    return word.strip(".,;:!?\"'()").lower()


def score_sentence(translator: Translator, sentence: str, empty: set[str]) -> SentenceScores:
    words, maps_LHQK = compute_encoder_maps(translator, sentence)
    are_words = [is_word(word) for word in words]
    rows, links_LHQK, offsets_QK = compute_links(maps_LHQK, "encoder", are_words, are_words)
    like = score_heads(links_LHQK, offsets_QK)
    pronouns, back_QK = find_antecedents(words, rows, offsets_QK, translator.source_language, empty)
    back_LHQK = links_LHQK * back_QK
    by_row = {"far": like["long"][1], "structure": like["structural"][1], "anaphora": back_LHQK.max(-1)}
    scores = {"far": like["long"][0], "structure": like["structural"][0]}
    if pronouns:
        scores["anaphora"] = by_row["anaphora"][:, :, pronouns].mean(-1)
    meant = {one: back_LHQK[:, :, one].argmax(-1) for one in pronouns}
    return SentenceScores(sentence, words, rows, scores, by_row, links_LHQK.argmax(-1), meant)


def compute_encoder_maps(translator: Translator, sentence: str) -> tuple[list[str], Maps]:
    """The sentence's words, and what they look at in the encoder. [L, H, Q, K]"""
    attention = translator.attention(sentence, "", candidates=1)  # an encoder does not know what is written
    if not attention.trace.encoder:
        raise RequestError(
            "the model's encoder has no self-attention, of which the figures are: give a Transformer"
        )
    return tokens_to_words(attention.source_tokens), merge_into_words(
        stack_maps(attention, "encoder"), attention, "encoder"
    )


def find_antecedents(
    words: Sequence[str], rows: NDArray[np.intp], offsets_QK: Array, language: str, empty: set[str]
) -> tuple[list[int], NDArray[np.bool_]]:
    """Which rows are pronouns, and which earlier words each of them may stand for. [Q, K]"""
    listed = PRONOUNS.get(language, "").split()
    plain = [strip_punctuation(word) for word in words]
    names_K = np.array([word not in listed and word not in empty for word in plain])
    back_QK = (offsets_QK <= -2) & names_K
    pronouns = [number for number, row in enumerate(rows) if plain[row] in listed or not listed]
    return [number for number in pronouns if back_QK[number].any()], back_QK


# ---- choosing heads


def choose_figures(found: Sequence[SentenceScores]) -> list[tuple[HeadFigure, SentenceScores]]:
    """The figures that these sentences have: where no pronoun stands for anything, there is no Figure 4."""
    chosen = [choose_word(3, "far", found)]
    if any(one.antecedents for one in found):
        chosen.append(choose_word(4, "anaphora", found))
    return [*chosen, choose_sentence(5, "structure", found)]


def choose_word(
    figure: int, measure: str, found: Sequence[SentenceScores]
) -> tuple[HeadFigure, SentenceScores]:
    """The head of the highest mean, and the word that shows it best; in Figure 4 the next sharpest there."""
    (layer, head), *_ = rank_heads(found, measure)
    places = [
        (one, row)
        for one in found
        for row in (one.antecedents if figure == 4 else range(len(one.query_positions)))
    ]
    values = np.stack([one.by_row[measure][:, :, row] for one, row in places])  # [words, L, H]
    shown, row = places[int(values[:, layer, head].argmax())]
    others = shown.by_row[measure][:, :, row].copy()
    others[layer, head] = -1
    second = unravel_head(others.argmax(), others) if figure == 4 else None
    chosen = make_figure(figure, measure, found, (layer, head), shown, row, values)
    points_at = count_antecedents(found, layer, head) if figure == 4 else []
    here = float(values[:, layer, head].max())
    return replace(chosen, score=here, second_head=second, antecedent_counts=points_at), shown


def choose_sentence(
    figure: int, measure: str, found: Sequence[SentenceScores]
) -> tuple[HeadFigure, SentenceScores]:
    """The head of the highest mean, the next that does something else, and the sentence that shows both."""
    first, *others = rank_heads(found, measure)
    second = next((other for other in others if compute_agreement(found, first, other) < MAX_AGREEMENT), None)
    values = np.stack([one.scores[measure] for one in found])  # [sentences, L, H]
    together = np.mean([values[:, *one] for one in (first, second) if one], axis=0)
    shown = found[int(together.argmax())]
    row = int(shown.by_row[measure][first].argmax())
    chosen = make_figure(figure, measure, found, first, shown, row, values)
    return replace(chosen, score=float(shown.scores[measure][first]), second_head=second), shown


def rank_heads(found: Sequence[SentenceScores], measure: str) -> list[tuple[int, int]]:
    """Layers and heads, the highest mean over the sentences first."""
    mean_LH = average_scores(found, measure)
    return [unravel_head(one, mean_LH) for one in np.argsort(-mean_LH, axis=None, kind="stable")]


def average_scores(found: Sequence[SentenceScores], measure: str) -> Array:
    """Of every head, over the sentences that have the measure. [L, H]"""
    mean: Array = np.mean([one.scores[measure] for one in found if measure in one.scores], axis=0)
    return mean


def unravel_head(number: Any, heads_LH: Array) -> tuple[int, int]:
    layer, head = np.unravel_index(number, heads_LH.shape)
    return int(layer), int(head)


def compute_agreement(found: Sequence[SentenceScores], one: tuple[int, int], other: tuple[int, int]) -> float:
    """How often two heads point at the same word."""
    return float(
        np.concatenate([each.target_positions[one] == each.target_positions[other] for each in found]).mean()
    )


def count_antecedents(found: Sequence[SentenceScores], layer: int, head: int) -> list[tuple[str, int]]:
    """At which words the head points from pronouns, and how often; weak links point nowhere."""
    names: Counter[str] = Counter()
    for one in found:
        for row, places_LH in one.antecedents.items():
            weak = one.by_row["anaphora"][layer, head, row] < MIN_LINK
            names[NOWHERE if weak else one.words[places_LH[layer, head]]] += 1
    return names.most_common(NUM_TARGETS + 1)


def make_figure(
    figure: int,
    measure: str,
    found: Sequence[SentenceScores],
    first: tuple[int, int],
    shown: SentenceScores,
    row: int,
    values: Array,
) -> HeadFigure:
    """What all figures tell alike; `values` are of every word or sentence, [..., L, H]."""
    mean_LH = average_scores(found, measure)
    return HeadFigure(
        figure=figure,
        measure=measure,
        layer=first[0],
        head=first[1],
        second_head=None,
        sentence=shown.sentence,
        word=shown.words[shown.query_positions[row]],
        position=int(shown.query_positions[row]),
        top_targets=[],
        score=0.0,
        mean_best_score=float(values.max(0).mean()),
        head_mean=float(mean_LH[first]),
        all_heads_mean=float(mean_LH.mean()),
        num_sentences=sum(measure in one.scores for one in found),
        antecedent_counts=[],
    )


# ---- where sentences come from


def read_sentences(text: Path, translator: Translator) -> Iterator[str]:
    """A plain file, each line of which is a sentence or several."""
    try:
        with text.open(encoding="utf-8-sig") as lines:
            for line in lines:
                yield from translator.split_sentences(line)
    except UnicodeDecodeError:
        raise DataError(f"{text}: not UTF-8; convert it, for example with iconv") from None
    except OSError as fault:
        raise DataError(f"{text}: cannot be read ({fault.strerror})") from None


def generate_sentences(translator: Translator) -> Iterator[str]:
    """Sentences of the built-in corpus that no run of it trains on."""
    pair = f"{translator.source_language}-{translator.target_language}"
    if pair not in playground.PAIRS:
        raise RequestError(
            f"the model translates {pair}, but the built-in sentences are of "
            f"{' and '.join(playground.PAIRS)}: give a TEXT, one sentence a line"
        )
    told = set()
    for example in islice(playground.generate_examples(pair, seed=1, words=WORDS_PER_CLASS), MAX_SAMPLES):
        if playground.assign_split(example) == "test" and example.source not in told:
            told.add(example.source)
            yield example.source


# ---- drawing and writing


@dataclass(frozen=True)
class FiguresReport:
    """The figures that were found, their table, and what was written."""

    figures: list[HeadFigure]
    table: ReportTable
    files: list[Path]
    provenance: str

    def to_dict(self) -> dict[str, Any]:
        figures = [asdict(one) for one in self.figures]
        return {"measured": self.provenance, "figures": figures, "files": list(map(str, self.files))}


def write_figures(
    model: Path | None,
    folder: Path,
    *,
    text: Path | None = None,
    command: str = "manyheads paper figures",
    device: str | None = None,
    sentences: int = NUM_SENTENCES,
    report_progress: ReportProgress = lambda stage, done, total: None,
) -> FiguresReport:
    """Finds the heads like those of Figures 3, 4 and 5, draws them, and reports by which measures."""
    if model is None:
        raise RequestError(NO_MODEL)
    import_pyplot()  # before the work: without matplotlib there are no figures
    translator = load(model, device=device)
    source = generate_sentences(translator) if text is None else read_sentences(text, translator)
    found = score_sentences(translator, source, sentences, report_progress)
    chosen: list[HeadFigure] = []
    files: list[Path] = []
    for one, shown in choose_figures(found):
        _, maps_LHQK = compute_encoder_maps(translator, shown.sentence)
        with fonts_covering("".join(shown.words)):
            files += save_figure(draw_figure(one, shown.words, maps_LHQK), folder, f"figure-{one.figure}")
        chosen.append(
            replace(
                one, top_targets=list_strongest(maps_LHQK[one.layer, one.head, one.position], shown.words)
            )
        )
    table = make_table(chosen)
    where = format_provenance(command, translator.engine.device.type)  # type: ignore[attr-defined]
    files = [
        *write_report(folder, "figures", render_report(chosen, table, where), {"figures": table}),
        *files,
    ]
    return FiguresReport(chosen, table, files, where)


def draw_figure(chosen: HeadFigure, words: Sequence[str], maps_LHQK: Maps) -> Any:
    """As in the paper: one word with every head of its layer; a head and below it a word; two heads."""
    palette = head_colors(maps_LHQK.shape[1])

    def lines(heads: Iterable[tuple[int, int]], row: int | None = None) -> list[tuple[Maps, str, int | None]]:
        return [(maps_LHQK[layer, head], palette[head], row) for layer, head in heads]

    first = (chosen.layer, chosen.head)
    both = [first, *([chosen.second_head] if chosen.second_head else [])]
    if chosen.figure == 3:
        panels = [lines([(chosen.layer, head) for head in range(maps_LHQK.shape[1])], chosen.position)]
    elif chosen.figure == 4:
        panels = [lines([first]), lines(both, chosen.position)]
    else:
        panels = [lines([one]) for one in both]
    return draw_lines(words, panels)


def list_strongest(weights_K: NDArray[Any], words: Sequence[str]) -> list[tuple[str, float]]:
    order = np.argsort(-weights_K, kind="stable")[:NUM_TARGETS]
    return [(words[place], round(float(weights_K[place]), 4)) for place in order if weights_K[place] >= 0.01]


MEASURE_NAMES = {"far": "far away", "anaphora": "back from a pronoun", "structure": "structure"}


def make_table(chosen: Sequence[HeadFigure]) -> ReportTable:
    columns = (
        "figure",
        "shows",
        "layer.head",
        "word",
        "looks at",
        "here",
        "all at their best",
        "mean",
        "all heads",
    )
    rows: list[list[Cell]] = [
        [
            str(one.figure),
            MEASURE_NAMES[one.measure],
            format_head((one.layer, one.head)),
            one.word,
            ", ".join(f"{word} {weight:.2f}" for word, weight in one.top_targets),
            one.score,
            one.mean_best_score,
            one.head_mean,
            one.all_heads_mean,
        ]
        for one in chosen
    ]
    return ReportTable("Heads like those of Figures 3, 4 and 5", columns, rows)


def format_head(place: tuple[int, int]) -> str:
    """Counted from 1, as on the attention page."""
    return f"{place[0] + 1}.{place[1] + 1}"


METHOD = """Heads of the encoder's self-attention, by three measures. Only what words do to other words
counts, and of a weight only what exceeds the mean that its word gets from all rows: a word that everybody
looks at is a place of rest.

- Far away: the mean share on words at least four words away; under "here", the share of the one word.
- Back from a pronoun: the largest weight on one earlier word that it may stand for: no neighbor, no
  pronoun, no function word. It says where a head looks, not that it resolves anything.
- Structure: the mean of each row's largest weight, times how much the word and the direction that rows
  point at change; a head that always looks at the word before has 0.

A head is chosen by its mean over all sentences, then the place that shows it best. "All at their best" is
the mean of what every head has at its own best place, found in the same way; "all heads" is the mean over
the sentences of all heads, which is what a head drawn at random has. Where these are near, the figure
shows what any head does somewhere. Layers and heads are counted from 1.
"""


def render_report(chosen: Sequence[HeadFigure], table: ReportTable, where: str) -> str:
    parts = ["# Figures 3, 4 and 5, found\n", f"{where}\n", METHOD, table.to_markdown()]
    return "\n".join(parts + [render_section(one) for one in chosen])


def render_section(one: HeadFigure) -> str:
    first, word = format_head((one.layer, one.head)), f"“{one.word}”"
    targets = ", ".join(f"“{target}” {weight:.2f}" for target, weight in one.top_targets)
    lines = [
        f"## Figure {one.figure}: {MEASURE_NAMES[one.measure]}\n",
        f"![{MEASURE_NAMES[one.measure]}, head {first}](figure-{one.figure}.svg)\n",
        f"> {one.sentence}\n",
        f"Layer {one.layer + 1}, head {one.head + 1}. {word} looks at {targets}.",
    ]
    if one.second_head and one.figure == 4:
        lines.append(
            f"Below, {word} alone, with the next sharpest head there, {format_head(one.second_head)}."
        )
    if one.second_head and one.figure == 5:
        lines.append(
            f"Below, head {format_head(one.second_head)}, the next that points elsewhere more often than not."
        )
    if one.antecedent_counts:
        counts = ", ".join(f"{name} {count}" for name, count in one.antecedent_counts)
        lines.append(f"From pronouns this head points most often at: {counts} (nowhere: below {MIN_LINK}).")
    lines.append(
        f"The measure is {one.score:.3f} here; all heads, each at its own best place, have "
        f"{one.mean_best_score:.3f} in the mean. Over {one.num_sentences} sentences this head has {one.head_mean:.3f}, "
        f"a head drawn at random {one.all_heads_mean:.3f}.\n"
    )
    return "\n".join(lines)
