"""Which words of a corpus translate each other, in which forms: terms to annotate training sources with.

IBM Model 1 links the words of a sample of pairs. The words that a source word becomes, as far as they begin
alike, are forms of one word; the source words "dog" and "dogs" have those of Hund in common. Nothing is known
about the languages. What a glossary would hold is the base form: the shortest of the forms, or in Hangul,
where particles follow, the stem before those endings that follow many others.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from manyheads.data.lexical_translation import Links
from manyheads.data.store import Split, gather_sentences
from manyheads.data.word_codec import WordCodec, contains_unknown
from manyheads.text.subwords import SubwordPair, TokenSequences
from manyheads.text.term_matching import fold, is_hangul

MAX_PAIRS = 100_000  # that the lexicon is learned from
MAX_SHARE = 0.003  # of all words: more frequent ones are articles, particles and the like
MIN_COUNT = 3  # of a source word
MIN_PROBABILITY = 0.02  # of a form, given the source word
MIN_SOURCE_SHARE = 0.2  # of what explains a form, that is due to the source word
MIN_FAMILY = 0.5  # probability of all forms together, given the source word
MIN_BASE_SHARE = 0.1  # of the occurrences of all forms: rarer ones are no base form
SHARED_PREFIX = 0.6  # of the letters of the shorter form
MAX_SOURCE_ENDING = 2  # letters by which source words with the same translation differ: dog, dogs
MAX_PARTICLE = 3  # syllables after a stem in Hangul
BARE_STEMS = 5  # stems that an ending would follow which is as likely as none
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


@dataclass(frozen=True)
class TermEntry:
    """What a source word becomes."""

    base: str  # as a glossary has it
    forms: frozenset[str]  # in lower case
    stem_length: int  # letters of the source word without the particles that follow in Hangul
    is_name: bool = False  # whether the source word begins with a capital inside of sentences


TermLexicon = dict[str, TermEntry]  # by source words in lower case


def learn_lexicon(split: Split, subwords: SubwordPair) -> TermLexicon:
    """Learn from pairs that are spread over a split. The result is a function of the split."""
    indices = np.unique(np.linspace(0, len(split) - 1, min(len(split), MAX_PAIRS)).astype(np.int64))
    sides = gather_sentences(split.source, indices), gather_sentences(split.target, indices)
    everything = np.arange(len(indices))
    known = everything[~(contains_unknown(sides[0], everything) | contains_unknown(sides[1], everything))]
    texts = [
        WordCodec(tokenizer).decode(side, known)
        for tokenizer, side in zip((subwords.source, subwords.target), sides, strict=True)
    ]
    return build_lexicon(texts[0], texts[1])


def build_lexicon(sources: Sequence[str], targets: Sequence[str]) -> TermLexicon:
    """Learn the lexicon of aligned texts."""
    source, target = SideWords(sources), SideWords(targets)
    is_content = target.counts <= max(MIN_COUNT, MAX_SHARE * target.counts.sum())
    links = Links.collect(source.sequences, target.sequences, is_content)
    counts = links.run_em()
    likely = (links.share_of_sources(counts) >= MIN_PROBABILITY) & (
        links.share_of_targets(counts) >= MIN_SOURCE_SHARE
    )
    is_frequent = (source.counts >= MIN_COUNT) & (
        source.counts <= MAX_SHARE * source.counts.sum() + MIN_COUNT
    )
    likely &= is_frequent[links.sources]
    candidates: dict[int, dict[str, float]] = defaultdict(dict)
    totals = np.bincount(links.sources, counts, minlength=len(source.words))
    for word, form, count in zip(
        links.sources[likely].tolist(), links.targets[likely].tolist(), counts[likely].tolist(), strict=True
    ):
        candidates[word][target.words[form]] = count
    families = {
        source.words[word]: family
        for word, forms in candidates.items()
        if (family := select_family(forms)) and sum(family.values()) >= MIN_FAMILY * totals[word]
    }
    return join_families(families, source, target)


class SideWords:
    """The words of one side in lower case, by id."""

    def __init__(self, texts: Iterable[str]) -> None:
        ids: dict[str, int] = {}
        spellings: dict[str, Counter[str]] = defaultdict(Counter)
        flat: list[int] = []
        offsets = [0]
        for text in texts:
            for word in WORD.findall(text):
                key = word.lower()
                spellings[key][word] += 1
                flat.append(ids.setdefault(key, len(ids)))
            offsets.append(len(flat))
        self.words = list(ids)
        self.counts = np.bincount(np.array(flat, np.int64), minlength=len(ids))
        self.sequences = TokenSequences(np.array(flat, np.int64), np.array(offsets, np.int64))
        self.spellings = {key: counter.most_common(1)[0][0] for key, counter in spellings.items()}


def select_family(forms: dict[str, float]) -> dict[str, float]:
    """Return the likeliest form, and others that begin like it, with their counts."""
    best = max(forms, key=lambda form: (forms[form], form))
    return {form: count for form, count in forms.items() if are_related(form, best)}


def are_related(word: str, other: str) -> bool:
    """Return whether words begin alike, as forms of one word do."""
    shared = count_shared_letters(fold(word), fold(other))
    length = min(len(word), len(other))
    if is_hangul(word[0]):
        return shared >= max(1, length - MAX_PARTICLE)
    return shared >= max(min(3, length), SHARED_PREFIX * length)


def count_shared_letters(word: str, other: str) -> int:
    pairs = zip(word, other, strict=False)
    differing = (index for index, (own, letter) in enumerate(pairs) if own != letter)
    return next(differing, min(len(word), len(other)))


def join_families(families: dict[str, dict[str, float]], source: SideWords, target: SideWords) -> TermLexicon:
    """Return the lexicon, in which a source word shares the forms of the word that it is a form of."""
    groups: dict[str, list[str]] = defaultdict(list)  # of source words, by the shortest
    for word in families:
        groups[find_source_base(word, families)].append(word)
    source_endings, target_endings = HangulEndings(source.words), HangulEndings(target.words)
    lexicon: TermLexicon = {}
    for first, words in groups.items():
        forms: Counter[str] = Counter()
        for word in words:
            forms.update(families[word])
        if any(is_hangul(form[-1]) for form in forms):
            base = target_endings.find_stem(forms)
        else:
            base = target.spellings[find_base(families[first])]
        for word in words:
            stem = source_endings.find_stem({word: 1.0}) if is_hangul(word[-1]) else word
            spelling = source.spellings[word]
            lexicon[word] = TermEntry(base, frozenset(forms), len(stem), spelling[0].isupper())
    return lexicon


def find_source_base(word: str, families: dict[str, dict[str, float]]) -> str:
    """Return the shortest source word that a word is a form of: dog of dogs."""
    max_ending = MAX_PARTICLE if is_hangul(word[0]) else MAX_SOURCE_ENDING
    best = max(families[word], key=lambda form: families[word][form])
    for size in range(max(1, len(word) - max_ending), len(word)):
        shorter = families.get(word[:size])
        if shorter and any(are_related(best, form) for form in shorter):
            return word[:size]
    return word


def find_base(forms: dict[str, float]) -> str:
    """Return the base form of a word without particles: the shortest that is not rare."""
    common = [form for form, count in forms.items() if count >= MIN_BASE_SHARE * sum(forms.values())]
    return min(common, key=lambda form: (len(form), -forms[form], form))


class HangulEndings:
    """The endings of words in Hangul: how many stems each follows."""

    def __init__(self, words: Iterable[str]) -> None:
        endings: dict[str, set[str]] = defaultdict(set)  # by stem
        for word in words:
            if is_hangul(word[-1]):
                for size in range(max(1, len(word) - MAX_PARTICLE), len(word)):
                    endings[word[:size]].add(word[size:])
        self.num_stems = Counter(ending for own in endings.values() if len(own) > 1 for ending in own)

    def find_stem(self, forms: Mapping[str, float]) -> str:
        """Return the stem of forms with their counts: that which the most productive endings follow."""
        best = max(forms, key=lambda form: (forms[form], form))
        stems = [best[:size] for size in range(max(1, len(best) - MAX_PARTICLE), len(best) + 1)]
        return max(stems, key=lambda stem: (self.rate(stem, forms), len(stem)))

    def rate(self, stem: str, forms: Mapping[str, float]) -> float:
        return sum(
            count * log(self.count_stems(form[len(stem) :]) if form.startswith(stem) else 0.5)
            for form, count in forms.items()
        )

    def count_stems(self, ending: str) -> float:
        return self.num_stems[ending] + 0.5 if ending else BARE_STEMS
