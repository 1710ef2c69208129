"""The models that judge pairs, on small cases worked out by hand."""

import numpy as np
import pytest

from manyheads.confidence.ragged import Ragged
from manyheads.judge import near_duplicates
from manyheads.judge.character_model import CharacterModel, to_characters
from manyheads.judge.features import count_broken_characters, measure_copying
from manyheads.judge.lexical_model import LexicalModel, iterate_links
from manyheads.judge.negatives import MAKERS, make_negatives
from manyheads.judge.training import select_rows
from manyheads.judge.vocabulary import NUM_BUCKETS, WordVocabulary, split_words
from manyheads.judge.word_evidence import find_worst_part

ENGLISH = ["the house", "the book", "a book", "the old house"]
GERMAN = ["das haus", "das buch", "ein buch", "das alte haus"]


def encode_toy() -> tuple[WordVocabulary, WordVocabulary, Ragged, Ragged]:
    source, target = WordVocabulary.train(ENGLISH), WordVocabulary.train(GERMAN)
    return source, target, source.encode(ENGLISH), target.encode(GERMAN)


def test_words_are_cut_and_rare_ones_share_the_buckets_of_both_sides() -> None:
    assert split_words("Translations, 안녕하세요 2024!") == ["trans", ",", "안녕", "2024", "!"]
    assert split_words("東京へ行く") == list("東京へ行く")
    source, target = WordVocabulary.train(["a a b b"]), WordVocabulary.train(["c c"])
    assert source.encode(["Quixote"]).ids.tolist() == target.encode(["quixote"]).ids.tolist()
    assert 1 <= source.encode(["Quixote"]).ids[0] <= NUM_BUCKETS
    assert len(source) == 1 + NUM_BUCKETS + 2


def test_links_join_every_word_with_all_of_the_other_side_and_the_empty_word() -> None:
    source, target = Ragged.of([[5, 6], []]), Ragged.of([[1], [2, 3]])
    ((keys, owners, num_words, first),) = iterate_links(source, target, 10)
    assert keys.tolist() == [1, 51, 61, 2, 3]
    assert owners.tolist() == [0, 0, 0, 1, 2]
    assert (num_words, first) == (3, 0)


def test_the_lexical_model_learns_which_words_are_translations() -> None:
    vocabulary, other, source, target = encode_toy()
    model = LexicalModel.train(source, target, (len(vocabulary), len(other)))
    right = model.score(vocabulary.encode(["book"]), other.encode(["buch"]))[0]
    wrong = model.score(vocabulary.encode(["book"]), other.encode(["haus"]))[0]
    assert right > wrong + 0.5


def test_the_worst_part_is_the_lowest_sum_of_words_in_a_row_and_stays_in_its_sentence() -> None:
    ratios = np.array([1.0, -2.0, 1.0, -3.0, 2.0, -1.0, 5.0])
    sentences = Ragged.of([[0] * 5, [0, 0], []])
    assert find_worst_part(sentences, ratios).tolist() == [-4.0, -1.0, 0.0]


def test_rows_are_selected_in_the_given_order() -> None:
    selected = select_rows(Ragged.of([[1], [2, 3], [], [4]]), np.array([3, 1, 2]))
    assert selected.ids.tolist() == [4, 2, 3]
    assert selected.offsets.tolist() == [0, 1, 3, 3]


def test_the_character_model_prefers_its_language() -> None:
    model = CharacterModel.train([f"the book number {n} is on the table" for n in range(50)])
    texts = to_characters(["the table is on the book", "xqzj vvkw qpxz", "le livre est sur la table"])
    english, noise, french = texts.mean(model.score(texts))
    assert english > french > noise


@pytest.mark.parametrize(
    ("source", "target", "share"),
    [
        ("The Commission met today.", "The Commission met today!", 1.0),
        ("The Commission met today.", "Die Kommission tagte heute.", 0.0),
        ("12 %", "12 %", 0.0),
    ],
)
def test_copied_words_are_counted(source: str, target: str, share: float) -> None:
    assert measure_copying([source], [target]).tolist() == [share]


def test_text_in_a_wrong_encoding_is_found() -> None:
    texts = [
        "Straße für Häuser",
        "Straße für".encode().decode("cp1252"),
        "plain",
        "학교".encode().decode("latin-1"),
    ]
    assert count_broken_characters(texts).tolist() == [0, 2, 0, 2]


def test_near_duplicates_refer_to_the_first() -> None:
    sources = [
        f"Sentence {word} is about something else altogether {word}." for word in ("one", "nine", "ten")
    ]
    sources = [
        "This agreement ends on the last day of May.",
        *sources,
        "This agreement ends on the last day of May!",
    ]
    targets = [
        "Dieser Vertrag endet am letzten Tag im Mai.",
        "a",
        "b",
        "c",
        "Dieser Vertrag endet am letzten Tag im Mai.",
    ]
    keys = near_duplicates.compute_signatures(sources, targets)
    assert near_duplicates.find_first_duplicates(keys)[[0, 4]].tolist() == [0, 0]


def test_short_and_unrelated_pairs_are_no_near_duplicates() -> None:
    sources = ["Yes.", "Yes.", *(f"{chr(97 + n) * 40} {n}" for n in range(20))]
    keys = near_duplicates.compute_signatures(sources, ["Ja.", "Ja.", *sources[2:]])
    assert near_duplicates.find_first_duplicates(keys).tolist() == list(range(22))
    assert near_duplicates.compute_signatures(["a"], ["b"]).tolist() == [[0] * near_duplicates.BANDS]


def test_negatives_are_of_all_types_and_of_the_fold_of_their_origin() -> None:
    sources = [f"source words of sentence number {n}" for n in range(40)]
    targets = [f"zielwörter des satzes mit der nummer {n}" for n in range(40)]
    folds = [n % 2 for n in range(40)]
    negatives = make_negatives(sources, targets, folds, ("en", "de"), 300, seed=0)
    assert {negative.type for negative in negatives} == set(MAKERS)
    for negative in negatives:
        assert (negative.source, negative.target) != (sources[negative.origin], targets[negative.origin])
        if negative.type == "replaced":
            assert folds[targets.index(negative.target)] == folds[negative.origin]
    assert negatives == make_negatives(sources, targets, folds, ("en", "de"), 300, seed=0)
