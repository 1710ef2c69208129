"""Text to ids and back without loss; sampled segmentations are a function of the seed."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

import manyheads as mh
from manyheads.config import BOS_ID, EOS_ID, UNK_ID, SubwordConfig
from manyheads.text.subword_regularization import SubwordSampler
from manyheads.text.subwords import SubwordPair, SubwordTokenizer, normalize
from manyheads.text.verbatim import COPY_SYMBOLS

ENGLISH = [
    "I go home.",
    "You go to school today.",
    "We went home with %s yesterday.",
    "The homes are going.",
    "My mother drinks coffee at home in the morning.",
    "They are drinking water because of the hot weather.",
    "Her little brother reads three books about birds.",
    "Who wrote the letter that she was reading?",
] * 20
KOREAN = [
    "나는 집에 간다.",
    "너는 오늘 학교에 간다.",
    "우리는 어제 %s와 집에 갔다.",
    "집들이 간다.",
    "어머니는 아침에 집에서 커피를 마신다.",
    "그들은 더운 날씨 때문에 물을 마시고 있다.",
    "그녀의 남동생은 새에 관한 책 세 권을 읽는다.",
    "그녀가 읽던 편지는 누가 썼니?",
] * 20
SMALL = SubwordConfig(vocab_size=400, copy_symbols=False)
ALGORITHMS = ("bpe", "unigram")


def train_tokenizer(algorithm: str = "bpe", **changes: object) -> SubwordTokenizer:
    config = replace(SMALL, algorithm=algorithm, **changes)
    return SubwordTokenizer.train(ENGLISH + KOREAN, config, ["%s", "<b>"])


SUBWORDS = {algorithm: train_tokenizer(algorithm) for algorithm in ALGORITHMS}

ODD = "나는 집에 간다 각 \u1100\u1161\u11a8 e\u0301 \u2581"
ODD += "👩\u200d👩\u200d👧 漢 <b>%s</b> <0x41> </s> \u00a0\n\x00\ufeff\ud800"
ANY_TEXT = st.text(max_size=40) | st.text(st.sampled_from(ODD), max_size=40)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(text=ANY_TEXT)
@example(text="\u2581a\u2581")
@example(text="half \ud83d and whole \ud83d\ude00")
@example(text="<s> </s> <unk> <0x0A> \u2047")
def test_decoding_returns_the_normalized_text(algorithm: str, text: str) -> None:
    subwords = SUBWORDS[algorithm]
    ids = subwords.encode(text)
    assert subwords.decode(ids) == normalize(text)
    assert not {UNK_ID, BOS_ID, EOS_ID} & set(ids)


def test_normalizing_composes_strips_and_replaces_unencodable_characters() -> None:
    assert normalize("\u1100\u1161\u11a8") == "각"
    assert normalize(" a\u3000\n b ") == "a b"
    assert normalize("a\u2581b") == "a_b"
    assert normalize("\ud83d\ude00 \ud83d") == "😀 \ufffd"


@given(ANY_TEXT)
def test_normalizing_is_idempotent(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_fixed_ids_and_the_size(algorithm: str) -> None:
    subwords = SUBWORDS[algorithm]
    assert [subwords.id_to_piece(token_id) for token_id in (UNK_ID, BOS_ID, EOS_ID)] == [
        "<unk>",
        "<s>",
        "</s>",
    ]
    assert len(subwords) == SMALL.vocab_size


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_training_is_deterministic(algorithm: str) -> None:
    assert train_tokenizer(algorithm).model == SUBWORDS[algorithm].model


def test_user_symbols_are_one_piece_in_any_position() -> None:
    subwords = train_tokenizer(user_symbols=("<polite>",))
    assert subwords.encode_as_pieces("<polite> a%sb<b>") == ["▁", "<polite>", "▁a", "%s", "b", "<b>"]
    for wrong in ("a b", "", "<s>", "</s>", "<unk>", "<0x41>", "a\u2581"):
        with pytest.raises(mh.ConfigError, match=r"subwords\.user_symbols holds"):
            SubwordConfig(user_symbols=(wrong,))


def test_copy_symbols_are_one_piece_each() -> None:
    subwords = train_tokenizer(copy_symbols=True)
    assert SubwordConfig().copy_symbols
    assert subwords.has_copy_symbols
    text = "".join(f"집 {symbol}를 " for symbol in COPY_SYMBOLS).strip()
    pieces = subwords.encode_as_pieces(text)
    assert [piece for piece in pieces if "\u27e6" in piece] == list(COPY_SYMBOLS)
    assert subwords.decode(subwords.encode(text)) == text


def test_subwords_without_copy_symbols_have_none() -> None:
    subwords = SUBWORDS["bpe"]
    assert not subwords.has_copy_symbols
    assert subwords.decode(subwords.encode(COPY_SYMBOLS[0])) == COPY_SYMBOLS[0]  # in bytes


def test_text_with_special_token_names_can_be_trained_on() -> None:
    texts = [f"<s> {text} </s> <unk>" for text in ENGLISH]
    pair = SubwordPair.train(lambda: iter(zip(texts, KOREAN, strict=True)), replace(SMALL, vocab_size=360))
    assert pair.source.decode(pair.source.encode(texts[0])) == texts[0]


def test_an_error_in_the_sentences_is_raised_unchanged() -> None:
    def torn() -> Iterator[str]:
        yield "one"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SubwordTokenizer.train(torn(), SMALL)


def test_a_batch_is_encoded_like_single_texts_with_end_tokens() -> None:
    subwords = SUBWORDS["bpe"]
    texts = ["나는", "", "I go", "home  again"]
    for threads in (1, 3):
        many = subwords.encode_batch(texts, threads)
        split = [many.ids[a:b].tolist() for a, b in zip(many.offsets, many.offsets[1:], strict=False)]
        assert split == [[*subwords.encode(text), EOS_ID] for text in texts]
    assert subwords.encode_batch([]).offsets.tolist() == [0]


def test_decoding_ignores_begin_and_end_and_refuses_invalid_ids() -> None:
    subwords = SUBWORDS["bpe"]
    assert subwords.decode([BOS_ID, *subwords.encode("나는"), EOS_ID]) == "나는"
    with pytest.raises(mh.DataError, match="ids from 5 to 400, but the vocabulary has 0 to 399"):
        subwords.decode([5, 400])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vocab_size": 37_000},
            r"vocab_size is 37,000, but this corpus has pieces for (\d+) only: set .*=\1 or less",
        ),
        ({"vocab_size": 100}, r"alone need (\d+): set subwords.vocab_size=\1 or more"),
        (
            {"vocab_size": 20, "byte_fallback": False, "algorithm": "bpe"},
            r"is 20, but .* need (\d+): set .*=\1 or more",
        ),
    ],
)
def test_an_impossible_vocabulary_names_the_limit_and_the_remedy(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(mh.DataError, match=message):
        train_tokenizer(**changes)


def test_the_remedy_works() -> None:
    with pytest.raises(mh.DataError) as error:
        train_tokenizer(vocab_size=37_000)
    max_size = int(str(error.value).split("subwords.vocab_size=")[1].split()[0])
    assert len(train_tokenizer(vocab_size=max_size)) == max_size


def test_training_without_sentences_is_an_error() -> None:
    with pytest.raises(mh.DataError, match="no sentence is left"):
        SubwordTokenizer.train([], SMALL)


def test_foreign_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "subwords.model").write_bytes(b"no model")
    with pytest.raises(mh.DataError, match=r"subwords\.model: not a SentencePiece model"):
        SubwordPair.load(tmp_path)
    with pytest.raises(mh.DataError, match="no subwords"):
        SubwordPair.load(tmp_path / "elsewhere")
    import io

    other = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH), model_writer=other, vocab_size=40, pad_id=0, unk_id=3, minloglevel=2
    )
    with pytest.raises(mh.DataError, match=r"begin and end are \(3, 1, 2\), but must be \(0, 1, 2\)"):
        SubwordTokenizer(other.getvalue())


def test_joint_and_separate_vocabularies_are_loaded_from_their_folder(tmp_path: Path) -> None:
    for joint in (True, False):
        config = replace(SMALL, vocab_size=360, joint=joint)
        pair = SubwordPair.train(lambda: iter(zip(ENGLISH, KOREAN, strict=True)), config)
        folder = tmp_path / str(joint)
        folder.mkdir()
        pair.save(folder)
        again = SubwordPair.load(folder)
        assert again.is_joint == joint
        assert (again.source.sha256, again.target.sha256) == (pair.source.sha256, pair.target.sha256)
        assert again.source.encode_as_pieces("We %s")[-1] == "%s"  # detected in the text


# ---- subword regularization


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(text=ANY_TEXT)
def test_without_randomness_segmentations_equal_sentencepiece(algorithm: str, text: str) -> None:
    certain = SubwordSampler(SUBWORDS[algorithm], 0.0 if algorithm == "bpe" else 1000.0)
    assert certain.sample(text, random.Random(0)) == SUBWORDS[algorithm].encode(text)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(text=ANY_TEXT, seed=st.integers(0, 1000))
def test_a_sampled_segmentation_decodes_to_the_same_text(algorithm: str, text: str, seed: int) -> None:
    sampled = SubwordSampler(SUBWORDS[algorithm], 0.3).sample(text, random.Random(seed))
    assert SUBWORDS[algorithm].decode(sampled) == normalize(text)


def test_user_symbols_are_never_split() -> None:
    sampler = SubwordSampler(SUBWORDS["bpe"], 0.9)
    symbol = SUBWORDS["bpe"].encode("%s")[-1]
    assert all(symbol in sampler.sample("a %s b", random.Random(seed)) for seed in range(50))


def test_the_longest_user_symbol_matches_first() -> None:
    subwords = train_tokenizer(user_symbols=("<x", "<x>", "<x>y"))
    sampler = SubwordSampler(subwords, 0.0)
    for text in ("<x>y", "<x>", "<xy", "a<x><x>yb"):
        assert sampler.sample(text, random.Random(0)) == subwords.encode(text)


def test_the_best_merge_is_dropped_like_any_other() -> None:
    subwords = SUBWORDS["bpe"]
    best = [piece for piece, score in subwords.get_scored_vocabulary() if score == 0][-1]
    sampler, rng = SubwordSampler(subwords, 0.9), random.Random(0)
    text = best.replace("▁", "")
    assert best in subwords.encode_as_pieces(text)
    sampled = [list(map(subwords.id_to_piece, sampler.sample(text, rng))) for _ in range(50)]
    assert 10 < sum(best not in pieces for pieces in sampled) < 50


def test_bpe_dropout_skips_merges_at_its_rate() -> None:
    """Of a word of two characters that merge, a share p is left in two."""
    subwords = SUBWORDS["bpe"]
    word = next(
        piece[1:]
        for piece, _ in subwords.get_scored_vocabulary()
        if len(piece) == 2 and piece[0] == "▁" and piece[1].isalpha()
    )
    sampler, rng = SubwordSampler(subwords, 0.25), random.Random(1)
    lengths = Counter(len(sampler.sample(word, rng)) for _ in range(4000))
    assert lengths[2] / 4000 == pytest.approx(0.25, abs=0.03)


def test_unigram_sampling_follows_the_weights_of_all_segmentations() -> None:
    """Counted against the probabilities that enumerating every split of a word gives."""
    import math

    subwords, rate = SUBWORDS["unigram"], 0.02
    scores = dict(subwords.get_scored_vocabulary())
    word = "▁drinking"

    def splits(rest: str) -> list[list[str]]:
        if not rest:
            return [[]]
        heads = [rest[:n] for n in range(1, len(rest) + 1) if rest[:n] in scores]
        return [[head, *tail] for head in heads for tail in splits(rest[len(head) :])]

    weights = {tuple(split): math.exp(rate * sum(scores[piece] for piece in split)) for split in splits(word)}
    total = sum(weights.values())
    assert len(weights) >= 3
    sampler, rng = SubwordSampler(subwords, rate), random.Random(3)
    sampled = Counter(tuple(map(subwords.id_to_piece, sampler.sample("drinking", rng))) for _ in range(4000))
    for split, weight in weights.items():
        assert sampled[split] / 4000 == pytest.approx(weight / total, abs=0.035)


def test_sampling_is_the_same_in_another_process() -> None:
    """SentencePiece's own is not: a resumed run would read other splits."""
    code = (
        "import sys; sys.path.insert(0, 'tests/text')\n"
        "import random; from test_subwords import SUBWORDS, SubwordSampler, KOREAN, ALGORITHMS\n"
        "s = [SubwordSampler(SUBWORDS[algorithm], 0.2) for algorithm in ALGORITHMS]\n"
        "print([[sampler.sample(text, random.Random(7)) for text in KOREAN[:8]] for sampler in s])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        ).stdout
        for _ in range(2)
    }
    samplers = [SubwordSampler(SUBWORDS[algorithm], 0.2) for algorithm in ALGORITHMS]
    here = [[sampler.sample(text, random.Random(7)) for text in KOREAN[:8]] for sampler in samplers]
    assert outputs == {f"{here}\n"}


def test_sampling_needs_byte_fallback() -> None:
    with pytest.raises(mh.DataError, match="byte_fallback=true"):
        SubwordSampler(train_tokenizer(vocab_size=100, byte_fallback=False), 0.1)
