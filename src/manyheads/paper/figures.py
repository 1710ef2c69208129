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
from manyheads.look.attention_data import Maps, colors, in_words, is_word, stacked, words_of
from manyheads.look.figures import drawing, fonts_for, lines_figure, saved
from manyheads.look.measures import Array, likenesses, links
from manyheads.paper.report import Table, Value, where_measured, write_report
from manyheads.progress import ReportProgress
from manyheads.translator import Translator, load

SENTENCES = 300  # that are looked at
LEAST_WORDS, MOST_WORDS = 8, 30  # of a sentence
WORLD = 12  # words of each class of the built-in grammar, as in the demo
DRAWN = 200_000  # of its sentences, at most
COMMON = 0.1  # of the sentences: without a list, a word in more of them is a function word
LEAST_LINK = 0.05  # a weaker one points nowhere
NOWHERE = "nowhere"
ALIKE = 0.5  # heads that point at the same word more often than this are of one kind
TOLD = 4  # words that are looked at, or pointed at most often

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
class Seen:
    """One sentence: by measure every head's score, [L, H], and each row's part of it, [L, H, Q]."""

    sentence: str
    words: list[str]
    rows: NDArray[np.intp]  # the places of the words that look
    scores: dict[str, Array]
    by_row: dict[str, Array]
    points_at: NDArray[np.intp]  # [L, H, Q] the place that each row points at
    meant: dict[
        int, NDArray[np.intp]
    ]  # by a pronoun's row, the earlier place that each head points at. [L, H]


@dataclass(frozen=True)
class Chosen:
    """A figure: its head, where it is seen best, and the measure beside what other heads get."""

    figure: int
    measure: str
    layer: int  # from 0
    head: int
    second: tuple[int, int] | None  # layer and head of the other one in the figure
    sentence: str
    word: str
    row: int  # its place
    looks_at: list[tuple[str, float]]  # the strongest, with their weights
    here: float  # the measure of this word (Figures 3 and 4) or of this sentence (Figure 5)
    best_of_all: float  # the mean of what all heads have, each where it is seen best
    mean: float  # the measure of this head over all sentences
    mean_of_all: float  # heads: what one drawn at random has
    sentences: int  # that have the measure
    points_at: list[tuple[str, int]]  # from all pronouns, how often at which word


# ---- looking at many sentences


def looked_at(translator: Translator, sentences: Iterable[str], most: int, tell: ReportProgress) -> list[Seen]:
    """The first so many that are neither too short nor too long."""
    fitting = list(islice((one for one in sentences if fits(one)), most))
    if not fitting:
        raise RequestError(
            f"no sentence has {LEAST_WORDS} to {MOST_WORDS} words, as the figures need: give another text"
        )
    empty, found = function_words(fitting, translator.source_language), []
    for done, sentence in enumerate(fitting, 1):
        found.append(seen(translator, sentence, empty))
        tell("looking at sentences", done, len(fitting))
    return found


def fits(sentence: str) -> bool:
    return LEAST_WORDS <= sum(map(is_word, sentence.split())) <= MOST_WORDS


def function_words(sentences: Sequence[str], language: str) -> set[str]:
    """Words that are no name of anything: as listed, or those that many of the sentences have."""
    if language in FUNCTION_WORDS:
        return set(FUNCTION_WORDS[language].split())
    having = Counter(word for one in sentences for word in {bare(word) for word in one.split()})
    return {word for word, count in having.items() if count > COMMON * len(sentences)}


def bare(word: str) -> str:
    return word.strip(".,;:!?\"'()").lower()


def seen(translator: Translator, sentence: str, empty: set[str]) -> Seen:
    words, maps_LHQK = encoder_maps(translator, sentence)
    are_words = [is_word(word) for word in words]
    rows, links_LHQK, offsets_QK = links(maps_LHQK, "encoder", are_words, are_words)
    like = likenesses(links_LHQK, offsets_QK)
    pronouns, back_QK = may_be_meant(words, rows, offsets_QK, translator.source_language, empty)
    back_LHQK = links_LHQK * back_QK
    by_row = {"far": like["long"][1], "structure": like["structural"][1], "anaphora": back_LHQK.max(-1)}
    scores = {"far": like["long"][0], "structure": like["structural"][0]}
    if pronouns:
        scores["anaphora"] = by_row["anaphora"][:, :, pronouns].mean(-1)
    meant = {one: back_LHQK[:, :, one].argmax(-1) for one in pronouns}
    return Seen(sentence, words, rows, scores, by_row, links_LHQK.argmax(-1), meant)


def encoder_maps(translator: Translator, sentence: str) -> tuple[list[str], Maps]:
    """The sentence's words, and what they look at in the encoder. [L, H, Q, K]"""
    attention = translator.attention(sentence, "", candidates=1)  # an encoder does not know what is written
    if not attention.trace.encoder:
        raise RequestError(
            "the model's encoder has no self-attention, of which the figures are: give a Transformer"
        )
    return words_of(attention.source_tokens), in_words(stacked(attention, "encoder"), attention, "encoder")


def may_be_meant(
    words: Sequence[str], rows: NDArray[np.intp], offsets_QK: Array, language: str, empty: set[str]
) -> tuple[list[int], NDArray[np.bool_]]:
    """Which rows are pronouns, and which earlier words each of them may stand for. [Q, K]"""
    listed = PRONOUNS.get(language, "").split()
    plain = [bare(word) for word in words]
    names_K = np.array([word not in listed and word not in empty for word in plain])
    back_QK = (offsets_QK <= -2) & names_K
    pronouns = [number for number, row in enumerate(rows) if plain[row] in listed or not listed]
    return [number for number in pronouns if back_QK[number].any()], back_QK


# ---- choosing heads


def choose(found: Sequence[Seen]) -> list[tuple[Chosen, Seen]]:
    """The figures that these sentences have: where no pronoun stands for anything, there is no Figure 4."""
    chosen = [best_word(3, "far", found)]
    if any(one.meant for one in found):
        chosen.append(best_word(4, "anaphora", found))
    return [*chosen, best_sentence(5, "structure", found)]


def best_word(figure: int, measure: str, found: Sequence[Seen]) -> tuple[Chosen, Seen]:
    """The head of the highest mean, and the word that shows it best; in Figure 4 the next sharpest there."""
    (layer, head), *_ = by_mean(found, measure)
    places = [(one, row) for one in found for row in (one.meant if figure == 4 else range(len(one.rows)))]
    values = np.stack([one.by_row[measure][:, :, row] for one, row in places])  # [words, L, H]
    shown, row = places[int(values[:, layer, head].argmax())]
    others = shown.by_row[measure][:, :, row].copy()
    others[layer, head] = -1
    second = place_of(others.argmax(), others) if figure == 4 else None
    chosen = told(figure, measure, found, (layer, head), shown, row, values)
    points_at = pointed_at(found, layer, head) if figure == 4 else []
    here = float(values[:, layer, head].max())
    return replace(chosen, here=here, second=second, points_at=points_at), shown


def best_sentence(figure: int, measure: str, found: Sequence[Seen]) -> tuple[Chosen, Seen]:
    """The head of the highest mean, the next that does something else, and the sentence that shows both."""
    first, *others = by_mean(found, measure)
    second = next((other for other in others if agreement(found, first, other) < ALIKE), None)
    values = np.stack([one.scores[measure] for one in found])  # [sentences, L, H]
    together = np.mean([values[:, *one] for one in (first, second) if one], axis=0)
    shown = found[int(together.argmax())]
    row = int(shown.by_row[measure][first].argmax())
    chosen = told(figure, measure, found, first, shown, row, values)
    return replace(chosen, here=float(shown.scores[measure][first]), second=second), shown


def by_mean(found: Sequence[Seen], measure: str) -> list[tuple[int, int]]:
    """Layers and heads, the highest mean over the sentences first."""
    mean_LH = means(found, measure)
    return [place_of(one, mean_LH) for one in np.argsort(-mean_LH, axis=None, kind="stable")]


def means(found: Sequence[Seen], measure: str) -> Array:
    """Of every head, over the sentences that have the measure. [L, H]"""
    mean: Array = np.mean([one.scores[measure] for one in found if measure in one.scores], axis=0)
    return mean


def place_of(number: Any, heads_LH: Array) -> tuple[int, int]:
    layer, head = np.unravel_index(number, heads_LH.shape)
    return int(layer), int(head)


def agreement(found: Sequence[Seen], one: tuple[int, int], other: tuple[int, int]) -> float:
    """How often two heads point at the same word."""
    return float(np.concatenate([each.points_at[one] == each.points_at[other] for each in found]).mean())


def pointed_at(found: Sequence[Seen], layer: int, head: int) -> list[tuple[str, int]]:
    """At which words the head points from pronouns, and how often; weak links point nowhere."""
    names: Counter[str] = Counter()
    for one in found:
        for row, places_LH in one.meant.items():
            weak = one.by_row["anaphora"][layer, head, row] < LEAST_LINK
            names[NOWHERE if weak else one.words[places_LH[layer, head]]] += 1
    return names.most_common(TOLD + 1)


def told(
    figure: int,
    measure: str,
    found: Sequence[Seen],
    first: tuple[int, int],
    shown: Seen,
    row: int,
    values: Array,
) -> Chosen:
    """What all figures tell alike; `values` are of every word or sentence, [..., L, H]."""
    mean_LH = means(found, measure)
    return Chosen(
        figure=figure,
        measure=measure,
        layer=first[0],
        head=first[1],
        second=None,
        sentence=shown.sentence,
        word=shown.words[shown.rows[row]],
        row=int(shown.rows[row]),
        looks_at=[],
        here=0.0,
        best_of_all=float(values.max(0).mean()),
        mean=float(mean_LH[first]),
        mean_of_all=float(mean_LH.mean()),
        sentences=sum(measure in one.scores for one in found),
        points_at=[],
    )


# ---- where sentences come from


def sentences_of(text: Path, translator: Translator) -> Iterator[str]:
    """A plain file, each line of which is a sentence or several."""
    try:
        with text.open(encoding="utf-8-sig") as lines:
            for line in lines:
                yield from translator.split_sentences(line)
    except UnicodeDecodeError:
        raise DataError(f"{text}: not UTF-8; convert it, for example with iconv") from None
    except OSError as fault:
        raise DataError(f"{text}: cannot be read ({fault.strerror})") from None


def built_in(translator: Translator) -> Iterator[str]:
    """Sentences of the built-in corpus that no run of it trains on."""
    pair = f"{translator.source_language}-{translator.target_language}"
    if pair not in playground.PAIRS:
        raise RequestError(
            f"the model translates {pair}, but the built-in sentences are of "
            f"{' and '.join(playground.PAIRS)}: give a TEXT, one sentence a line"
        )
    told = set()
    for example in islice(playground.examples(pair, seed=1, words=WORLD), DRAWN):
        if playground.split_of(example) == "test" and example.source not in told:
            told.add(example.source)
            yield example.source


# ---- drawing and writing


@dataclass(frozen=True)
class Outcome:
    """The figures that were found, their table, and what was written."""

    chosen: list[Chosen]
    table: Table
    files: list[Path]
    where: str

    def data(self) -> dict[str, Any]:
        figures = [asdict(one) for one in self.chosen]
        return {"measured": self.where, "figures": figures, "files": list(map(str, self.files))}


def figures(
    model: Path | None,
    folder: Path,
    *,
    text: Path | None = None,
    command: str = "manyheads paper figures",
    device: str | None = None,
    sentences: int = SENTENCES,
    tell: ReportProgress = lambda stage, done, total: None,
) -> Outcome:
    """Finds the heads like those of Figures 3, 4 and 5, draws them, and reports by which measures."""
    if model is None:
        raise RequestError(NO_MODEL)
    drawing()  # before the work: without matplotlib there are no figures
    translator = load(model, device=device)
    source = built_in(translator) if text is None else sentences_of(text, translator)
    found = looked_at(translator, source, sentences, tell)
    chosen: list[Chosen] = []
    files: list[Path] = []
    for one, shown in choose(found):
        _, maps_LHQK = encoder_maps(translator, shown.sentence)
        with fonts_for("".join(shown.words)):
            files += saved(drawn(one, shown.words, maps_LHQK), folder, f"figure-{one.figure}")
        chosen.append(replace(one, looks_at=strongest(maps_LHQK[one.layer, one.head, one.row], shown.words)))
    table = table_of(chosen)
    where = where_measured(command, translator.engine.device.type)  # type: ignore[attr-defined]
    files = [*write_report(folder, "figures", page(chosen, table, where), {"figures": table}), *files]
    return Outcome(chosen, table, files, where)


def drawn(chosen: Chosen, words: Sequence[str], maps_LHQK: Maps) -> Any:
    """As in the paper: one word with every head of its layer; a head and below it a word; two heads."""
    palette = colors(maps_LHQK.shape[1])

    def lines(heads: Iterable[tuple[int, int]], row: int | None = None) -> list[tuple[Maps, str, int | None]]:
        return [(maps_LHQK[layer, head], palette[head], row) for layer, head in heads]

    first = (chosen.layer, chosen.head)
    both = [first, *([chosen.second] if chosen.second else [])]
    if chosen.figure == 3:
        panels = [lines([(chosen.layer, head) for head in range(maps_LHQK.shape[1])], chosen.row)]
    elif chosen.figure == 4:
        panels = [lines([first]), lines(both, chosen.row)]
    else:
        panels = [lines([one]) for one in both]
    return lines_figure(words, panels)


def strongest(weights_K: NDArray[Any], words: Sequence[str]) -> list[tuple[str, float]]:
    order = np.argsort(-weights_K, kind="stable")[:TOLD]
    return [(words[place], round(float(weights_K[place]), 4)) for place in order if weights_K[place] >= 0.01]


SHOWS = {"far": "far away", "anaphora": "back from a pronoun", "structure": "structure"}


def table_of(chosen: Sequence[Chosen]) -> Table:
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
    rows: list[list[Value]] = [
        [
            str(one.figure),
            SHOWS[one.measure],
            numbered((one.layer, one.head)),
            one.word,
            ", ".join(f"{word} {weight:.2f}" for word, weight in one.looks_at),
            one.here,
            one.best_of_all,
            one.mean,
            one.mean_of_all,
        ]
        for one in chosen
    ]
    return Table("Heads like those of Figures 3, 4 and 5", columns, rows)


def numbered(place: tuple[int, int]) -> str:
    """Counted from 1, as on the attention page."""
    return f"{place[0] + 1}.{place[1] + 1}"


HOW = """Heads of the encoder's self-attention, by three measures. Only what words do to other words
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


def page(chosen: Sequence[Chosen], table: Table, where: str) -> str:
    parts = ["# Figures 3, 4 and 5, found\n", f"{where}\n", HOW, table.markdown()]
    return "\n".join(parts + [told_of(one) for one in chosen])


def told_of(one: Chosen) -> str:
    first, word = numbered((one.layer, one.head)), f"“{one.word}”"
    targets = ", ".join(f"“{target}” {weight:.2f}" for target, weight in one.looks_at)
    lines = [
        f"## Figure {one.figure}: {SHOWS[one.measure]}\n",
        f"![{SHOWS[one.measure]}, head {first}](figure-{one.figure}.svg)\n",
        f"> {one.sentence}\n",
        f"Layer {one.layer + 1}, head {one.head + 1}. {word} looks at {targets}.",
    ]
    if one.second and one.figure == 4:
        lines.append(f"Below, {word} alone, with the next sharpest head there, {numbered(one.second)}.")
    if one.second and one.figure == 5:
        lines.append(
            f"Below, head {numbered(one.second)}, the next that points elsewhere more often than not."
        )
    if one.points_at:
        counts = ", ".join(f"{name} {count}" for name, count in one.points_at)
        lines.append(f"From pronouns this head points most often at: {counts} (nowhere: below {LEAST_LINK}).")
    lines.append(
        f"The measure is {one.here:.3f} here; all heads, each at its own best place, have "
        f"{one.best_of_all:.3f} in the mean. Over {one.sentences} sentences this head has {one.mean:.3f}, "
        f"a head drawn at random {one.mean_of_all:.3f}.\n"
    )
    return "\n".join(lines)
