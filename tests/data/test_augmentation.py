"""Augmented batches: a function of seed, epoch and pair alone, with the stated shares, and a valid result."""

import numpy as np
import pytest

from manyheads.config import EOS_ID, AugmentationConfig, DataConfig, SubwordConfig
from manyheads.data import word_codec
from manyheads.data.augmentation import SourceAugmenter, make_augmenter
from manyheads.data.batches import Batch, Batches
from manyheads.data.parallel_augmentation import ParallelAugmenter
from manyheads.data.store import Side, Split
from manyheads.data.word_codec import WordCodec
from manyheads.errors import ConfigError, DataError
from manyheads.text.casing import CaseLexicon
from manyheads.text.noise import NOISES
from manyheads.text.subwords import SubwordPair, SubwordTokenizer, TokenSequences
from manyheads.text.verbatim import COPY_SYMBOLS

ENGLISH = [f"Alice saw Bob and his {noun}, did she not?" for noun in ("House", "dog", "Café", "friend Eve")]
KOREAN = [f"앨리스는 밥의 {noun} 보았다, 그렇지 않니?" for noun in ("집을", "개를", "카페를", "친구 Eve를")]
LINES = [ENGLISH[number % 4] + " 7" * (number % 3) for number in range(300)]
TARGETS = [KOREAN[number % 4] + " 7" * (number % 3) for number in range(300)]
TOKENIZER = SubwordTokenizer.train(ENGLISH * 9 + KOREAN * 9, SubwordConfig(vocab_size=420))
SUBWORDS = SubwordPair(TOKENIZER, TOKENIZER)
ALL = {name: 0.1 for name in NOISES if name != "shuffle_words"}


def augment(
    lines: list[str] = LINES,
    start: int = 0,
    epoch: int = 0,
    max_length: int = 999,
    seed: int = 1,
    **rates: float,
) -> tuple[list[str], list[str]]:
    augmenter = SourceAugmenter(SUBWORDS, AugmentationConfig(**rates), seed)
    keys = np.arange(start, len(lines)) + (epoch << 32)
    sides = TOKENIZER.encode_batch(lines[start:]), TOKENIZER.encode_batch(TARGETS[start : len(lines)])
    source, target = augmenter.augment(*sides, keys, max_length)
    return decode(source), decode(target)


def decode(sequences: TokenSequences) -> list[str]:
    texts = [ids.tolist() for ids in np.split(sequences.ids, sequences.offsets[1:-1])]
    assert all(ids[-1] == EOS_ID and EOS_ID not in ids[:-1] for ids in texts)
    return [TOKENIZER.decode(ids) for ids in texts]


def split_of(sources: list[str], targets: list[str]) -> Split:
    sides = [TOKENIZER.encode_batch(texts) for texts in (sources, targets)]
    source, target = (Side(side.ids.astype(np.uint16), side.offsets) for side in sides)
    return Split(source, target, (("all", 1.0, len(sources)),))


def make_batches(rank: int = 0, world: int = 1, **rates: float) -> Batches:
    data = DataConfig(batch_tokens=900, max_length=99)
    split, rates = split_of(LINES, TARGETS), rates or ALL | {"copied": 0.2}
    return Batches(
        split,
        data,
        seed=3,
        rank=rank,
        world_size=world,
        subwords=SUBWORDS,
        augmentation=AugmentationConfig(**rates),
    )


def read_pairs(batches: list[Batch]) -> dict[int, tuple[list[int], list[int]]]:
    return {
        int(pair): (source.tolist(), label.tolist())
        for batch in batches
        for pair, source, label in zip(batch.pairs, batch.source.split(), batch.labels.split(), strict=True)
    }


# ---- which pairs


@pytest.mark.parametrize("name", ALL)
def test_the_share_of_changed_sources_is_the_rate(name: str) -> None:
    lines = ['Alice has said "no" to my naïve Café, did she not?'] * 300
    changed, targets = augment(lines, **{name: 0.3})
    num_changed = sum(new != old for new, old in zip(changed, lines, strict=True))
    assert 0.15 * 300 < num_changed < 0.4 * 300  # some noises leave some texts as they are
    assert targets == TARGETS


def test_rates_are_shares_of_different_pairs() -> None:
    lower = [text == old.lower() != old for text, old in zip(augment(lower=0.5)[0], LINES, strict=True)]
    both = augment(lower=0.5, title=0.49)[0]
    unchanged = [text == old for text, old in zip(both, LINES, strict=True)]
    assert [text == old.lower() for text, old in zip(both, LINES, strict=True)] == lower
    assert sum(unchanged) < 0.05 * 300


def test_the_seed_the_epoch_and_the_pair_decide() -> None:
    rates = ALL | {"copied": 0.3}
    assert augment(**rates) == augment(**rates)
    assert augment(**rates) != augment(epoch=1, **rates)
    assert augment(**rates) != augment(seed=2, **rates)
    later = augment(start=100, **rates)[0]
    assert later == augment(**rates)[0][100:]


def test_nothing_else_changes() -> None:
    sources, targets = augment(lower=0.2)
    assert {new for new, old in zip(sources, LINES, strict=True) if new != old} <= {
        line.lower() for line in LINES
    }
    assert targets == TARGETS


def test_without_rates_there_is_no_augmenter() -> None:
    assert make_augmenter(SUBWORDS, AugmentationConfig(), 1, split_of(LINES, TARGETS)) is None
    assert make_batches(lower=0.0).augmenter is None


# ---- batches


def test_ranks_and_resumed_runs_read_the_same_augmented_pairs() -> None:
    alone = make_batches()
    every = [alone.get_batch(2, index) for index in range(alone.count_batches(2))]
    ranks = [make_batches(rank, 3) for rank in range(3)]
    shares = [rank.get_batch(2, index) for index in range(len(every)) for rank in ranks]
    assert read_pairs(shares) == read_pairs(every)
    with make_batches().stream(2, 3) as stream:  # as a run that is resumed there
        resumed = [next(stream) for _ in range(len(every) - 3)]
    assert read_pairs(resumed) == read_pairs(every[3:])


def test_processes_read_the_same_batches_in_the_same_order() -> None:
    alone = make_batches()
    count = alone.count_batches(0) + 2  # into the next epoch
    with alone.stream() as stream:
        expected = [next(stream) for _ in range(count)]
    parallel = make_batches()
    with parallel.stream(num_processes=2) as stream:
        batches = [next(stream) for _ in range(count)]
        assert isinstance(parallel.augmenter, ParallelAugmenter), "processes are used"
    assert isinstance(parallel.augmenter, SourceAugmenter)
    for batch, other in zip(batches, expected, strict=True):
        assert (batch.epoch, batch.index) == (other.epoch, other.index)
        assert batch.source.tokens.tolist() == other.source.tokens.tolist()
        assert batch.labels.tokens.tolist() == other.labels.tokens.tolist()


@pytest.mark.filterwarnings("always:the processes that augment")
def test_training_goes_on_when_the_processes_are_killed(recwarn: pytest.WarningsRecorder) -> None:
    expected, batches = make_batches(), make_batches()
    with batches.stream(num_processes=1) as stream:
        read = [next(stream)]
        pool = getattr(batches.augmenter, "pool", None)
        assert pool is not None
        for process in list(pool._processes.values()):
            process.kill()
        read += [next(stream) for _ in range(expected.count_batches(0) - 1)]
    assert any("augmenting in the training process" in str(warning.message) for warning in recwarn)
    for index, batch in enumerate(read):
        assert batch.source.tokens.tolist() == expected.get_batch(0, index).source.tokens.tolist()


def test_an_epoch_changes_other_pairs() -> None:
    batches = make_batches(lower=0.3)
    epochs = [
        read_pairs([batches.get_batch(epoch, index) for index in range(batches.count_batches(epoch))])
        for epoch in (0, 1)
    ]
    num_different = sum(epochs[0][pair] != epochs[1][pair] for pair in range(300))
    assert 0.3 * 300 < num_different < 0.55 * 300  # about 2 * 0.3 * 0.7


def test_subword_regularization_applies_to_augmented_text() -> None:
    data = DataConfig(batch_tokens=900, max_length=99, subword_regularization=0.5)
    batches = Batches(
        split_of(LINES, TARGETS), data, subwords=SUBWORDS, augmentation=AugmentationConfig(lower=0.99)
    )
    sources = [TOKENIZER.decode(ids.tolist()) for ids in batches.get_batch(0, 0).source.split()]
    assert sum(text == text.lower() for text in sources) > 0.9 * len(sources)


# ---- the texts


def test_a_text_that_would_exceed_the_limit_stays_as_stored() -> None:
    limit = int(np.diff(TOKENIZER.encode_batch(LINES).offsets).max())
    changed = augment(max_length=limit, typos=0.9)[0]
    sizes = np.diff(TOKENIZER.encode_batch(changed).offsets)
    assert sizes.max() <= limit
    assert np.diff(TOKENIZER.encode_batch(augment(typos=0.9)[0]).offsets).max() > limit
    sources, targets = augment(max_length=limit, copied=0.9)
    for source, target in zip(sources, targets, strict=True):
        assert find_symbols(source) == find_symbols(target)


def test_copy_symbols_are_on_both_sides_and_all_of_them_occur() -> None:
    sources, targets = augment(copied=0.5, typos=0.2, lower=0.2, spacing=0.2)
    symbols = [find_symbols(text) for text in sources]
    assert symbols == [find_symbols(text) for text in targets]
    assert 0.4 * 300 < sum(map(bool, symbols)) < 0.6 * 300
    assert {symbol for own in symbols for symbol in own} == set(COPY_SYMBOLS)


def find_symbols(text: str) -> list[str]:
    return sorted(symbol for symbol in COPY_SYMBOLS for _ in range(text.count(symbol)))


def test_texts_with_bytes_and_with_unknown_characters_survive() -> None:
    lines = ["Bob saw 漢字 in the House", "A <0x41> B", "🙂"] * 20
    lower = augment(lines, lower=0.99)[0]
    assert "bob saw 漢字 in the house" in lower
    assert set(lower) <= {*lines, "bob saw 漢字 in the house", "a <0x41> b"}
    tokenizer = SubwordTokenizer.train(
        ENGLISH * 9, SubwordConfig(vocab_size=60, byte_fallback=False, character_coverage=1.0)
    )
    stored = tokenizer.encode_batch(["Bob saw 漢 House", "Bob saw Alice"])
    augmenter = SourceAugmenter(SubwordPair(tokenizer, tokenizer), AugmentationConfig(lower=0.99), 1)
    source, _ = augmenter.augment(stored, stored, np.arange(2), 99)
    first = slice(0, stored.offsets[1])
    assert source.ids[first].tolist() == stored.ids[first].tolist()
    known = tokenizer.encode_batch(["Bob saw Alice"] * 2)
    source, _ = augmenter.augment(known, stored, np.arange(2), 99)  # the target of the first has an unknown
    parts = np.split(source.ids, source.offsets[1:-1])
    assert [part.tolist() == known.ids[: known.offsets[1]].tolist() for part in parts] == [True, False]


@pytest.mark.parametrize("noise", ["lower", "title"])
def test_with_a_case_lexicon_most_of_the_case_noise_is_restored(noise: str) -> None:
    subwords = SubwordPair(
        TOKENIZER, TOKENIZER, CaseLexicon(("did", "she", "not", "and", "his", "Bob"), True)
    )
    lines = [ENGLISH[0]] * 400  # "Alice saw Bob and his House, did she not?"
    augmenter = SourceAugmenter(subwords, AugmentationConfig(**{noise: 0.99}), 1)
    sides = TOKENIZER.encode_batch(lines), TOKENIZER.encode_batch(TARGETS[:1] * 400)
    texts = decode(augmenter.augment(*sides, np.arange(400), 99)[0])
    restored = "Alice Saw Bob and his House, did she not?"
    plain = {"lower": str.lower, "title": str.title}[noise](ENGLISH[0])
    assert set(texts) <= {restored, plain, ENGLISH[0]}
    assert 0.65 < texts.count(restored) / 400 < 0.83
    assert 0.15 < texts.count(plain) / 400 < 0.35


def test_an_empty_batch_stays_empty() -> None:
    empty = TokenSequences(np.zeros(0, np.int64), np.zeros(1, np.int64))
    augmenter = SourceAugmenter(SUBWORDS, AugmentationConfig(lower=0.9, copied=0.9), 1)
    source, target = augmenter.augment(empty, empty, np.zeros(0, np.int64), 9)
    assert len(source.ids) == len(target.ids) == 0


@pytest.mark.parametrize(
    "text", [*ENGLISH, *KOREAN, "⟦3⟧를 보라 ⟦0⟧.", "漢字 <0x41>", "", "7", "Größe — “no”…"]
)
def test_the_codec_reads_and_writes_as_the_tokenizer(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_codec, "MAX_WORDS", 2)  # the table is emptied again and again
    codec = WordCodec(TOKENIZER)
    for _ in range(2):
        ids = np.frombuffer(codec.encode([text, "other"])[0], np.int64)
        assert ids.tolist() == [*TOKENIZER.encode(text), EOS_ID]
    assert codec.decode(TOKENIZER.encode_batch(["a", text]), np.array([1])) == [text]


# ---- refusals


def test_rates_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"add up to 1.2, .* lower them .*\(lower, typos\)"):
        AugmentationConfig(lower=0.6, typos=0.6)
    with pytest.raises(ConfigError, match=r"augmentation\.lower is 1\.0, but must be at least 0 and below 1"):
        AugmentationConfig(lower=1)
    assert AugmentationConfig(lower=0.6, copied=0.6).rates == {"lower": 0.6, "copied": 0.6}


def test_subwords_without_copy_symbols_are_refused() -> None:
    tokenizer = SubwordTokenizer.train(ENGLISH * 9, SubwordConfig(vocab_size=300, copy_symbols=False))
    subwords = SubwordPair(tokenizer, tokenizer)
    with pytest.raises(DataError, match=r"augmentation\.copied needs the copy symbols ⟦0⟧ to ⟦7⟧"):
        SourceAugmenter(subwords, AugmentationConfig(copied=0.1), 1)
    SourceAugmenter(subwords, AugmentationConfig(lower=0.1), 1)
    with pytest.raises(DataError, match="needs the subwords"):
        make_augmenter(None, AugmentationConfig(lower=0.1), 1, split_of(LINES, TARGETS))
