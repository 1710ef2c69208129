"""Annotated terms of training sources: learned from the corpus, a function of seed, epoch and pair."""

import random
import re
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from manyheads import playground
from manyheads.config import AugmentationConfig, DataConfig, SubwordConfig
from manyheads.data.augmentation import make_augmenter
from manyheads.data.batches import Batches
from manyheads.data.store import Side, Split
from manyheads.data.term_annotator import TermAnnotator
from manyheads.data.term_lexicon import HangulEndings, TermEntry, TermLexicon, build_lexicon
from manyheads.errors import DataError
from manyheads.text.subwords import SubwordPair, SubwordTokenizer

TERM = re.compile("⟦t⟧ ([^⟦]*)⟦=⟧ ([^⟦]*)⟦/⟧")


@cache
def make_corpus(pair: str) -> list[tuple[str, str]]:
    return playground.generate_corpus(pair, train=5000, valid=0, test=0, seed=1)["train"]


@cache
def learn(pair: str) -> TermLexicon:
    corpus = make_corpus(pair)
    return build_lexicon([source for source, _ in corpus], [target for _, target in corpus])


def test_forms_of_a_german_noun_have_its_base_form() -> None:
    lexicon = learn("en-de")
    words = ("student", "students", "doctor", "doctors")
    assert [lexicon[word].base for word in words] == ["Student", "Student", "Arzt", "Arzt"]
    assert lexicon["doctors"].forms >= {"arzt", "ärzte"}
    assert "the" not in lexicon


def test_the_base_form_of_a_korean_noun_has_no_particle() -> None:
    lexicon = learn("en-ko")
    assert [lexicon[word].base for word in ("student", "doctor", "architect")] == ["학생", "의사", "건축가"]
    assert lexicon["students"].forms >= {"학생은", "학생이"}


def test_the_stem_is_what_productive_endings_follow() -> None:
    stems = ("고양이", "아이", "나무", "학교", "의사")
    endings = HangulEndings([stem + ending for stem in stems for ending in ("가", "를", "는", "에서")])
    assert endings.find_stem({"고양이가": 3.0, "고양이를": 2.0}) == "고양이"
    assert endings.find_stem({"학교에서": 1.0}) == "학교"
    assert endings.find_stem({"지금": 1.0}) == "지금"


@pytest.mark.parametrize("pair", ["en-de", "en-ko"])
def test_annotations_name_words_of_the_target(pair: str) -> None:
    annotator, rng = TermAnnotator(learn(pair)), random.Random(1)
    num_terms = num_swapped = num_absent = 0
    for source, target in make_corpus(pair)[:500]:
        annotated, target = annotator.annotate(source, target, rng)
        for term, translation in TERM.findall(annotated):
            num_terms += 1
            num_swapped += term.lower() not in source.lower()
            forms = {
                form for entry in learn(pair).values() if entry.base == translation for form in entry.forms
            }
            words = set(re.findall(r"\w+", target.lower()))
            num_absent += not (forms & words or translation.split()[0].lower()[:2] in target.lower())
        assert TERM.sub("", annotated).count("⟦") == 0
    assert num_terms > 400
    assert num_absent <= 0.005 * num_terms, "stems of words whose vowel or ending changes are not all right"
    assert 0.2 < num_swapped / num_terms < 0.6


def test_a_swapped_word_keeps_its_ending_and_its_capital() -> None:
    entry = TermEntry("Hund", frozenset({"hund", "hunde"}), 4)
    other = TermEntry("Lampe", frozenset({"lampe"}), 5)
    annotator = TermAnnotator({"dogs": entry, "lamps": other, "cow": TermEntry("Kuh", frozenset({"kuh"}), 3)})
    swapped = {annotator.annotate("Dogs sleep.", "Hunde schlafen.", random.Random(n))[0] for n in range(40)}
    terms = {TERM.search(text)[1] for text in swapped}  # type: ignore[index]
    assert terms == {"Dogs", "Lamps"}


def test_words_that_become_one_word_are_one_term() -> None:
    entry = TermEntry("Waschmaschine", frozenset({"waschmaschine"}), 7)
    annotator = TermAnnotator({"washing": entry, "machine": entry})
    texts = [
        annotator.annotate("a washing machine", "eine Waschmaschine", random.Random(n)) for n in range(30)
    ]
    assert ("a ⟦t⟧ washing machine⟦=⟧ Waschmaschine⟦/⟧", "eine Waschmaschine") in texts
    assert {target for _, target in texts} == {"eine Waschmaschine"}, "a word with two terms is not invented"


def test_invented_words_keep_the_endings_and_the_particles_of_those_that_they_replace() -> None:
    entry = TermEntry("Hund", frozenset({"hund", "hunde"}), 4)
    annotator = TermAnnotator({"dogs": entry, "lamp": TermEntry("Lampe", frozenset({"lampe"}), 4)})
    pairs = [annotator.annotate("Dogs sleep.", "Hunde schlafen.", random.Random(n)) for n in range(60)]
    invented = {
        (TERM.search(source)[2], target)  # type: ignore[index]
        for source, target in pairs
        if target != "Hunde schlafen."
    }
    assert invented == {("Lamnd", "Lamnde schlafen.")}
    assert 10 < sum(target.startswith("Lam") for _, target in pairs) < 30


@pytest.mark.parametrize("pair", ["en-de", "en-ko"])
def test_the_target_has_the_invented_words_of_its_source(pair: str) -> None:
    annotator, rng = TermAnnotator(learn(pair)), random.Random(2)
    bases = {entry.base.lower() for entry in learn(pair).values()}
    num_invented = 0
    for source, target in make_corpus(pair)[:300]:
        annotated, changed = annotator.annotate(source, target, rng)
        unknown = [base for _, base in TERM.findall(annotated) if base not in target]
        invented = [base for base in unknown if base.lower() not in bases and " " not in base]
        num_invented += len(invented)
        assert all(base.lower() in changed.lower() for base in invented)
        assert len(changed.split()) == len(target.split())
    assert num_invented > 50


# ---- in batches


def encode(texts: list[str], tokenizer: SubwordTokenizer) -> Side:
    sequences = tokenizer.encode_batch(texts)
    return Side(sequences.ids.astype(np.uint16), sequences.offsets)


@cache
def make_split(term_symbols: bool = True) -> tuple[Split, SubwordPair]:
    corpus = make_corpus("en-de")
    lines = [text for pair in corpus for text in pair]
    tokenizer = SubwordTokenizer.train(lines, SubwordConfig(vocab_size=900, term_symbols=term_symbols))
    sides = [encode([pair[side] for pair in corpus], tokenizer) for side in (0, 1)]
    return Split(sides[0], sides[1], (("all", 1.0, len(corpus)),)), SubwordPair(tokenizer, tokenizer)


def test_annotated_batches_are_a_function_of_seed_and_epoch() -> None:
    split, subwords = make_split()
    config = DataConfig(batch_tokens=2000, max_length=60)
    rates = AugmentationConfig(terms=0.3)

    def read(epoch: int, seed: int = 1) -> list[list[int]]:
        batches = Batches(split, config, seed=seed, subwords=subwords, augmentation=rates)
        return [batches.get_batch(epoch, index).source.tokens.tolist() for index in (0, 1)]

    first = read(0)
    assert first == read(0)
    assert first != read(1)
    plain = Batches(split, config, seed=1, subwords=subwords)
    batch = Batches(split, config, seed=1, subwords=subwords, augmentation=rates).get_batch(0, 0)
    targets, stored = (
        [own.labels.tokens[start:end].tolist() for start, end in pairwise(own.labels.offsets.tolist())]
        for own in (batch, plain.get_batch(0, 0))
    )
    share = sum(own != other for own, other in zip(targets, stored, strict=True)) / len(targets)
    assert 0.02 < share < 0.2, "only invented words change targets"
    symbol = subwords.source.pieces.index("⟦t⟧")
    starts = batch.source.offsets.tolist()
    sources = [batch.source.tokens[start:end].tolist() for start, end in pairwise(starts)]
    assert 0.15 < sum(symbol in ids for ids in sources) / len(sources) < 0.4


def test_subwords_without_term_symbols_are_refused() -> None:
    split, subwords = make_split(term_symbols=False)
    with pytest.raises(DataError, match=r"augmentation\.terms needs the symbols ⟦t⟧, ⟦=⟧, ⟦/⟧"):
        make_augmenter(subwords, AugmentationConfig(terms=0.1), 1, split)
