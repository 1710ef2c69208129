"""Which words a head relates: the share of its attention that goes from a word to one that stands to it so.

Of each relation the best head is chosen on one half of the sentences and measured on the other, so that the
best of many heads is not taken for better than it is. Beside it stand what even attention would give; what
the same head gives to words as far away that do not stand in this relation, for a head may know positions
only; and what all other words give to the same word, for it may be one that all look at.

Shapes: L layers, H heads, W words of a sentence.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from manyheads.errors import RequestError
from manyheads.look.attention_data import in_words, sides_of, stacked, words_of
from manyheads.paper.notes.drawing import Labels, frame, heat
from manyheads.paper.notes.learning import untold
from manyheads.paper.notes.translation import CONSTRUCTIONS, WORDS
from manyheads.paper.report import Table, Value
from manyheads.playground.author import Author
from manyheads.playground.english import english, verb_parts
from manyheads.playground.meaning import (
    Both,
    Clause,
    Entity,
    Gap,
    Name,
    Phrase,
    Pronoun,
    Verb,
    is_plural,
)
from manyheads.progress import ReportProgress, make_counter
from manyheads.translator import Translator

STAGE = "which words a head relates"
SENTENCES = 120
LANGUAGE = "en"  # of the sentences, whose grammar is known
SYNTACTIC = ("verb_subject", "subject_verb", "verb_object", "object_verb")
RELATIONS = ("itself", "before", "after", "same", *SYNTACTIC, "end")
MOST_COLUMNS = 16  # heads of a figure
Pairs = list[tuple[int, int]]  # who looks, at whom


@dataclass(frozen=True)
class Said:
    """A sentence in its words, and where three of them stand; -1: it has none."""

    text: str
    subject: str
    verb: str
    object: str


@dataclass(frozen=True)
class Relation:
    """A relation, and the head that shows it best."""

    name: str
    layer: int  # from 0
    head: int
    share: float  # of the attention of those who look
    even: float  # if all words were looked at alike
    at_the_distance: float | None  # of the same head, where words as far apart stand in no such relation
    from_others: float | None  # of the same head, what all other words give to those who are looked at here
    pairs: int  # that it was measured on

    @property
    def without_grammar(self) -> float:
        """What something simpler would give, at most."""
        return max(self.even, self.at_the_distance or 0.0, self.from_others or 0.0)


@dataclass(frozen=True)
class Relations:
    """Of the encoder's heads."""

    EXPECTED: ClassVar = ("grammar",)

    layers: int
    heads: int
    sentences: int
    found: list[Relation]
    shares: dict[str, list[list[float]]]  # by relation, layer and head, over all sentences
    ours: bool  # of the model that this command trained

    def of(self, name: str) -> Relation | None:
        return next((one for one in self.found if one.name == name), None)

    @property
    def grammar(self) -> Relation | None:
        """The relation of grammar that stands out most from what anything simpler would give."""
        known = [one for one in self.found if one.name in SYNTACTIC]
        return max(known, key=lambda one: one.share - one.without_grammar, default=None)

    @property
    def findings(self) -> dict[str, bool]:
        grammar = self.grammar
        before, after = self.of("before"), self.of("after")
        near = [one.share / one.even for one in (before, after) if one is not None]
        return {
            "neighbors": max(near, default=0.0) > 2,
            "grammar": grammar is not None and grammar.share > 1.5 * grammar.without_grammar,
            "ours": self.ours,
        }

    @property
    def told(self) -> dict[str, str]:
        told = {
            "layers": f"{self.layers}",
            "heads": f"{self.heads}",
            "all_heads": f"{self.layers * self.heads}",
            "sentences": f"{self.sentences}",
        }
        for name in RELATIONS:
            one = self.of(name)
            told[f"{name}_head"] = "-" if one is None else f"{one.layer + 1}.{one.head + 1}"
            told[f"{name}_share"] = "-" if one is None else f"{one.share:.0%}"
        best = self.grammar
        told["grammar_head"] = "-" if best is None else f"{best.layer + 1}.{best.head + 1}"
        for name in ("share", "even", "at_the_distance", "from_others"):
            share = getattr(best, name, None)
            told[f"grammar_{name}"] = "-" if share is None else f"{share:.0%}"
        return told

    def named(self, labels: Labels) -> dict[str, str]:
        """What is told by a name of its own in each language."""
        return {"grammar_relation": labels[self.grammar.name] if self.grammar else "-"}


# ---- sentences, and who stands in them where


def sentences(count: int, seed: int = 7) -> Iterator[Said]:
    """Statements with a verb and a subject, out of the small model's own words."""
    author, made = Author(seed, frozenset(CONSTRUCTIONS), WORDS), 0
    while made < count:
        meaning = author.sentence()
        if type(meaning) is not Clause or type(meaning.predicate) is not Verb or meaning.subject is None:
            continue
        subject, thing = head_word(meaning.subject), head_word(meaning.object) if meaning.object else ""
        verb = verb_parts(meaning, meaning.subject)[1].split()[0]
        if subject and (thing or not meaning.object):
            made += 1
            yield Said(english(meaning), subject, verb, thing)


def head_word(entity: Entity) -> str:
    """The noun, name or pronoun itself, as it is written; a couple has none."""
    if type(entity) is Phrase:
        noun = entity.noun
        return (noun.plural if noun.plural and is_plural(entity) else noun.en).split()[-1]
    if type(entity) is Both or type(entity) is Gap:
        return ""
    assert isinstance(entity, Name | Pronoun)
    return entity.en.split()[-1]


def pairs_of(said: Said, words: list[str]) -> dict[str, Pairs]:
    """Of each relation who looks at whom, as places in the sentence. The last word is the end."""
    last = len(words) - 1
    rows = range(last)
    lowered = [word.lower() for word in words]
    places = {role: place_of(getattr(said, role), lowered) for role in ("subject", "verb", "object")}
    subject, verb, thing = places.values()
    return {
        "itself": [(row, row) for row in rows],
        "before": [(row, row - 1) for row in rows if row],
        "after": [(row, row + 1) for row in rows if row + 1 < last],
        "same": [(a, b) for a in rows for b in rows if a != b and lowered[a] == lowered[b]],
        "verb_subject": known(verb, subject),
        "subject_verb": known(subject, verb),
        "verb_object": known(verb, thing),
        "object_verb": known(thing, verb),
        "end": [(row, last) for row in rows],
    }


def place_of(word: str, lowered: list[str]) -> int:
    """Where a word stands; -1 where it does not, or more than once."""
    return lowered.index(word.lower()) if lowered.count(word.lower()) == 1 else -1


def known(looks: int, seen: int) -> Pairs:
    return [(looks, seen)] if min(looks, seen) >= 0 else []


# ---- what heads make of them


@dataclass(frozen=True)
class Looked:
    """A sentence's maps between words [L, H, W, W], and who stands where."""

    maps: NDArray[Any]
    pairs: dict[str, Pairs]


def measure(
    translator: Translator, tell: ReportProgress = untold, *, ours: bool = False, count: int = SENTENCES
) -> Relations:
    if translator.source_language != LANGUAGE:
        raise RequestError(
            f"the model translates from {translator.source_language!r}, but the sentences whose grammar is "
            f"known here are English: give a model from {LANGUAGE}, or none"
        )
    advance = make_counter(tell, STAGE, count)
    looked = []
    for said in sentences(count):
        attention = translator.attention(said.text, "")
        if not attention.trace.encoder:
            raise RequestError("the model's encoder has no attention to look at: give a Transformer, or none")
        words = words_of(sides_of(attention)["source"])
        maps = in_words(stacked(attention, "encoder"), attention, "encoder")
        looked.append(Looked(maps, pairs_of(said, words)))
        advance(1)
    layers, heads = looked[0].maps.shape[:2]
    found = [relation(name, looked[0::2], looked[1::2]) for name in RELATIONS]
    return Relations(
        layers=layers,
        heads=heads,
        sentences=count,
        found=[one for one in found if one is not None],
        shares={name: mean_share(looked, name).tolist() for name in RELATIONS},
        ours=ours,
    )


def mean_share(looked: list[Looked], name: str) -> NDArray[Any]:
    """Of each head, over all the pairs. [L, H]; zeros where there is none."""
    layers, heads = looked[0].maps.shape[:2]
    weights = [one.maps[:, :, row, column] for one in looked for row, column in one.pairs[name]]
    return np.mean(weights, axis=0) if weights else np.zeros((layers, heads))


def relation(name: str, chosen_on: list[Looked], measured_on: list[Looked]) -> Relation | None:
    pairs = [(one, row, column) for one in measured_on for row, column in one.pairs[name]]
    if not pairs or not any(one.pairs[name] for one in chosen_on):
        return None
    best = mean_share(chosen_on, name)
    layer, head = (int(place) for place in np.unravel_index(best.argmax(), best.shape))
    return Relation(
        name=name,
        layer=layer,
        head=head,
        share=float(np.mean([one.maps[layer, head, row, column] for one, row, column in pairs])),
        even=float(np.mean([1 / one.maps.shape[-1] for one, _, _ in pairs])),
        at_the_distance=at_the_distance(name, layer, head, measured_on) if name in SYNTACTIC else None,
        from_others=from_others(name, layer, head, measured_on) if name in SYNTACTIC else None,
        pairs=len(pairs),
    )


def at_the_distance(name: str, layer: int, head: int, looked: list[Looked]) -> float | None:
    """The head's mean weight between words as far apart as the pairs are, that are no such pair."""
    by_offset: dict[int, list[float]] = {}
    for one in looked:
        words = one.maps.shape[-1] - 1
        for row in range(words):
            for column in range(words):
                if (row, column) not in one.pairs[name]:
                    by_offset.setdefault(column - row, []).append(float(one.maps[layer, head, row, column]))
    offsets = [column - row for one in looked for row, column in one.pairs[name]]
    compared = [float(np.mean(by_offset[offset])) for offset in offsets if offset in by_offset]
    return math.fsum(compared) / len(compared) if compared else None


def from_others(name: str, layer: int, head: int, looked: list[Looked]) -> float | None:
    """The head's mean weight on the words that are looked at in the pairs, from words of no such pair."""
    given = [
        float(one.maps[layer, head, other, column])
        for one in looked
        for _, column in one.pairs[name]
        for other in range(one.maps.shape[-1] - 1)
        if other != column and (other, column) not in one.pairs[name]
    ]
    return math.fsum(given) / len(given) if given else None


def table(numbers: Relations, labels: Labels) -> Table:
    columns = [labels[name] for name in ("relation", "head", "share", "even", "distance", "others", "pairs")]
    rows: list[list[Value]] = [
        [
            labels[one.name],
            f"{one.layer + 1}.{one.head + 1}",
            *(None if share is None else f"{share:.1%}" for share in (one.share, one.even)),
            *(None if share is None else f"{share:.1%}" for share in (one.at_the_distance, one.from_others)),
            one.pairs,
        ]
        for one in numbers.found
    ]
    return Table(labels["table"], columns, rows)


def draw(numbers: Relations, labels: Labels) -> Any:
    """Every head in a column; of many only those that are the best at something."""
    shown = [(layer, head) for layer in range(numbers.layers) for head in range(numbers.heads)]
    if len(shown) > MOST_COLUMNS:
        shown = sorted({(one.layer, one.head) for one in numbers.found})
    figure, (axis,) = frame(1)
    figure.set_size_inches(2.2 + 0.5 * len(shown), 3.7)
    values = [[numbers.shares[name][layer][head] for layer, head in shown] for name in RELATIONS]
    columns = [f"{layer + 1}.{head + 1}" for layer, head in shown]
    heat(axis, values, [labels[name] for name in RELATIONS], columns, top=max(map(max, values)))
    axis.set_title(labels["heads"], fontsize=10, pad=8)
    return figure
