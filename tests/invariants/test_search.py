"""Search over scripted steps: against exhaustive search, and whatever else is in the batch."""

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import manyheads as mh
from manyheads.config import EOS_ID
from manyheads.search.beam import (
    DecodingConstraints,
    Hypothesis,
    SearchLimits,
    iterate_results,
    length_penalty,
    search,
)

CPU = torch.device("cpu")
WORDS = 5


def log_p(key: int, written: Sequence[int], words: int = WORDS) -> Tensor:
    """A distribution that is a function of the sentence and of what was written."""
    digest = hashlib.blake2b(f"{key} {list(written)}".encode(), digest_size=8).digest()
    chance = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return (2 * torch.randn(words, generator=chance)).log_softmax(-1)


@dataclass
class Script:
    """A state that remembers every token: rows of (sentence, written)."""

    width: int
    rows: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    def reorder(self, rows: Tensor) -> "Script":
        return Script(self.width, [self.rows[row] for row in rows.tolist()])

    def drop(self, sentences: Tensor) -> "Script":
        gone = {s * self.width + w for s in sentences.tolist() for w in range(self.width)}
        return Script(self.width, [row for number, row in enumerate(self.rows) if number not in gone])


def scripted(
    keys: Sequence[int],
    wishes: Sequence[DecodingConstraints],
    how: mh.DecodingConfig,
    words: int = WORDS,
    **limits: Any,
) -> list[list[Hypothesis]]:
    """The search over these scripts."""

    def open_sentences(numbers: list[int], state: Script | None) -> Script:
        new = [(keys[number], ()) for number in numbers for _ in range(how.num_hypotheses)]
        return Script(how.num_hypotheses, [*(state.rows if state else []), *new])

    def step(tokens: Tensor, state: Script) -> tuple[Tensor, Script]:
        rows = [(key, (*old, token)) for (key, old), token in zip(state.rows, tokens.tolist(), strict=True)]
        logits = torch.stack([log_p(key, written[1:], words) for key, written in rows])
        return logits + 7.0, Script(state.width, rows)  # logits need not be normalized

    return search(step, open_sentences, wishes, how, CPU, SearchLimits(**limits))


def total(key: int, tokens: Sequence[int], words: int = WORDS) -> float:
    """Forced decoding."""
    closed = [*tokens, EOS_ID]
    return sum(log_p(key, closed[:place], words)[token].item() for place, token in enumerate(closed))


def exhaustive(
    key: int, wish: DecodingConstraints, alpha: float, words: int = WORDS
) -> list[tuple[float, list[int]]]:
    others = [word for word in range(words) if word != EOS_ID]
    found = []
    for length in range(wish.min_length, wish.max_length + 1):
        for tokens in itertools.product(others, repeat=length):
            if tokens[: len(wish.prefix)] == wish.prefix and len(tokens) >= len(wish.prefix):
                found.append((total(key, tokens, words) / length_penalty(length + 1, alpha), list(tokens)))
    return sorted(found, reverse=True)


def same(found: list[Hypothesis], expected: list[tuple[float, list[int]]]) -> None:
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-4)
    gaps = [a - b for (a, _), (b, _) in itertools.pairwise(expected)]
    if all(gap > 1e-4 for gap in gaps):
        assert [one.tokens for one in found] == [tokens for _, tokens in expected]


@settings(max_examples=40, deadline=None)
@given(
    key=st.integers(0, 10**6),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    limit=st.integers(0, 3),
    least=st.integers(0, 2),
    prefix=st.lists(st.sampled_from([0, 1, 3, 4]), max_size=2),
    nbest=st.integers(1, 5),
)
def test_a_wide_beam_is_exhaustive_search(
    key: int, alpha: float, limit: int, least: int, prefix: list[int], nbest: int
) -> None:
    wish = DecodingConstraints(max(limit, len(prefix)), min(least, limit), tuple(prefix))
    how = mh.DecodingConfig(beam=130, alpha=alpha, nbest=nbest)
    expected = exhaustive(key, wish, alpha)
    same(scripted([key], [wish], how)[0], expected[:nbest])


@settings(max_examples=30, deadline=None)
@given(keys=st.lists(st.integers(0, 10**6), min_size=1, max_size=6), limit=st.integers(0, 8))
def test_a_beam_of_one_is_greedy_search(keys: list[int], limit: int) -> None:
    how, wishes = mh.DecodingConfig(beam=1, alpha=0.0), [DecodingConstraints(limit)] * len(keys)
    plain = scripted(keys, wishes, how)
    beam: dict[int, list[Hypothesis]] = {}

    def open_sentences(numbers: list[int], state: Script | None) -> Script:
        return Script(1, [*(state.rows if state else []), *((keys[number], ()) for number in numbers)])

    def step(tokens: Tensor, state: Script) -> tuple[Tensor, Script]:
        rows = [(key, (*old, token)) for (key, old), token in zip(state.rows, tokens.tolist(), strict=True)]
        return torch.stack([log_p(key, written[1:]) for key, written in rows]), Script(1, rows)

    beam = dict(iterate_results(step, open_sentences, wishes, how, True, CPU, SearchLimits()))
    assert [one[0].tokens for one in plain] == [beam[number][0].tokens for number in range(len(keys))]
    assert [one[0].score for one in plain] == pytest.approx(
        [beam[n][0].score for n in range(len(keys))], abs=1e-5
    )
    for key, results in zip(keys, plain, strict=True):
        written: list[int] = []
        while len(written) < limit and (best := int(log_p(key, written).argmax())) != EOS_ID:
            written.append(best)
        assert results[0].tokens == written


@settings(max_examples=30, deadline=None)
@given(
    keys=st.lists(st.integers(0, 10**6), min_size=2, max_size=9),
    beam=st.integers(1, 4),
    alpha=st.sampled_from([0.0, 0.6, 1.5]),
    rows=st.sampled_from([1, 4, 9, 100]),
    look_every=st.sampled_from([1, 3]),
    temperature=st.sampled_from([None, 0.8]),
)
def test_a_sentence_gets_the_same_whatever_else_is_in_the_batch(
    keys: list[int], beam: int, alpha: float, rows: int, look_every: int, temperature: float | None
) -> None:
    how = mh.DecodingConfig(beam=beam, alpha=alpha, nbest=beam, temperature=temperature)
    wishes = [DecodingConstraints(max_length=2 + key % 7, min_length=key % 3, seed=key) for key in keys]
    together = scripted(keys, wishes, how, rows=rows, look_every=look_every)
    for key, wish, found in zip(keys, wishes, together, strict=True):
        alone = scripted([key], [wish], how)[0]
        assert [one.tokens for one in found] == [one.tokens for one in alone]
        assert [one.score for one in found] == pytest.approx([one.score for one in alone], abs=1e-5)
        for one in found:
            assert one.log_probability == pytest.approx(total(key, one.tokens), abs=1e-4)
            assert one.score == pytest.approx(
                one.log_probability / length_penalty(len(one.tokens) + 1, alpha), abs=1e-4
            )
            assert len(one.token_scores) == len(one.tokens) + 1
            assert wish.min_length <= len(one.tokens) <= wish.max_length


def test_what_is_finished_stands_against_what_goes_on() -> None:
    """A short end that is likely now loses to a longer one that the penalty favors."""
    table = {(): [-9, -9, math.log(0.5), math.log(0.4)], (3,): [-9, -9, math.log(0.9), -9]}

    def step(tokens: Tensor, state: Script) -> tuple[Tensor, Script]:
        rows = [(key, (*old, token)) for (key, old), token in zip(state.rows, tokens.tolist(), strict=True)]
        never = [math.log(1e-6)] * 4
        return torch.tensor([table.get(w[1:], never) for _, w in rows]).log_softmax(-1), Script(2, rows)

    def found(alpha: float) -> list[int]:
        how = mh.DecodingConfig(beam=2, alpha=alpha)
        return search(
            step, lambda numbers, _: Script(2, [(0, ()), (0, ())]), [DecodingConstraints(5)], how, CPU
        )[0][0].tokens

    assert found(alpha=0.0) == []
    assert found(alpha=3.0) == [3]


@pytest.mark.parametrize("forbidden", [((3,),), ((3, 4), (0,)), ((4, 4, 4), (1, 3))])
def test_forbidden_words_do_not_come_out(forbidden: tuple[tuple[int, ...], ...]) -> None:
    how = mh.DecodingConfig(beam=3, nbest=3, alpha=0.0)
    for key in range(20):
        for one in scripted([key], [DecodingConstraints(8, min_length=5, forbidden_phrases=forbidden)], how)[
            0
        ]:
            text = one.tokens
            for phrase in forbidden:
                assert all(tuple(text[n : n + len(phrase)]) != phrase for n in range(len(text)))
            assert one.log_probability == pytest.approx(total(key, text), abs=1e-4)


def test_the_guard_against_repetition_is_off_by_default() -> None:
    def repeats(no_repeat_ngram: int | None) -> int:
        how = mh.DecodingConfig(beam=2, no_repeat_ngram=no_repeat_ngram)
        texts = [
            scripted([key], [DecodingConstraints(12, min_length=12)], how)[0][0].tokens for key in range(10)
        ]
        pairs = [list(itertools.pairwise(text)) for text in texts]
        return sum(len(own) - len(set(own)) for own in pairs)

    assert repeats(None) > 0
    assert repeats(2) == 0


@settings(max_examples=40, deadline=None)
@given(
    key=st.integers(0, 10**6),
    required=st.lists(
        st.lists(st.sampled_from([0, 1, 3, 4]), min_size=1, max_size=3), min_size=1, max_size=3
    ),
    beam=st.integers(1, 5),
    spare=st.integers(0, 4),
    prefix=st.lists(st.sampled_from([0, 3]), max_size=1),
)
def test_what_is_required_comes_out(
    key: int, required: list[list[int]], beam: int, spare: int, prefix: list[int]
) -> None:
    phrases = tuple(map(tuple, required))
    limit = len(prefix) + sum(map(len, phrases)) + spare
    wish = DecodingConstraints(limit, prefix=tuple(prefix), required_phrases=phrases)
    found = scripted([key], [wish], mh.DecodingConfig(beam=beam, nbest=1))[0]
    assert len(found) == 1
    text = found[0].tokens
    assert text[: len(prefix)] == prefix
    assert len(text) <= limit
    for phrase in set(phrases):
        places = [n for n in range(len(text)) if tuple(text[n : n + len(phrase)]) == phrase]
        assert places, f"{phrase} is not in {text}"
        if len(phrase) == 1:
            assert len(places) >= phrases.count(phrase)
    assert found[0].log_probability == pytest.approx(total(key, text), abs=1e-4)


def test_only_the_beginning_of_a_word_follows_what_stands_apart() -> None:
    followers: dict[bool, set[int]] = {True: set(), False: set()}
    for key, apart in itertools.product(range(40), (True, False)):
        wish = DecodingConstraints(
            6,
            min_length=5,
            required_phrases=((4,),),
            whole_word_phrases=((4,),) if apart else (),
            word_start_ids=frozenset({0, 3}),
        )
        text = scripted([key], [wish], mh.DecodingConfig(beam=3))[0][0].tokens
        followers[apart] |= {after for one, after in itertools.pairwise(text) if one == 4}
    assert followers[True] <= {0, 3}
    assert followers[False] > {0, 3}


def test_a_wide_beam_finds_the_best_with_what_is_required() -> None:
    how = mh.DecodingConfig(beam=130, alpha=0.0)
    for key in range(12):
        found = scripted([key], [DecodingConstraints(3, required_phrases=((4, 0),))], how)[0][0]
        has = [
            (s, t) for s, t in exhaustive(key, DecodingConstraints(3), 0.0) if (4, 0) in itertools.pairwise(t)
        ]
        assert found.tokens == has[0][1]


def test_what_is_drawn_follows_the_probabilities() -> None:
    words, draws = 4, 4000
    how = mh.DecodingConfig(temperature=1.0, nbest=draws)
    found = scripted([5], [DecodingConstraints(1)], how, words, rows=draws)[0]
    p = log_p(5, [], words).exp()
    for word in range(words):
        share = sum((one.tokens or [EOS_ID])[0] == word for one in found) / draws
        assert share == pytest.approx(p[word].item(), abs=0.035)


def test_top_k_and_top_p_leave_the_likeliest() -> None:
    order = log_p(5, []).argsort(descending=True).tolist()
    p = log_p(5, []).exp()[order].cumsum(0).tolist()

    def drawn(**changes: Any) -> set[int]:
        how = mh.DecodingConfig(temperature=1.0, nbest=300, **changes)
        return {(one.tokens or [EOS_ID])[0] for one in scripted([5], [DecodingConstraints(1)], how)[0]}

    assert drawn(top_k=1) == {order[0]}
    assert drawn(top_k=2) == set(order[:2])
    assert drawn(top_p=p[0] - 1e-3) == {order[0]}
    assert drawn(top_p=p[0] + 1e-3) == set(order[:2])
    assert len(drawn()) > 3


def test_other_seeds_draw_otherwise() -> None:
    how = mh.DecodingConfig(temperature=1.0)
    texts = {
        tuple(scripted([1], [DecodingConstraints(9, min_length=9, seed=seed)], how)[0][0].tokens)
        for seed in range(9)
    }
    assert len(texts) > 6
    again = scripted([1], [DecodingConstraints(9, min_length=9, seed=3)], how)
    assert again == scripted([1], [DecodingConstraints(9, min_length=9, seed=3)], how)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_whose_numbers_are_none_comes_to_an_end(beam: int) -> None:
    def step(tokens: Tensor, state: Script) -> tuple[Tensor, Script]:
        return torch.full((len(tokens), WORDS), math.nan), state

    how = mh.DecodingConfig(beam=beam)
    rows = [(0, ())] * beam
    assert search(step, lambda numbers, _: Script(beam, rows), [DecodingConstraints(4)], how, CPU) == [[]]


def test_wrong_ways_to_search_are_refused() -> None:
    with pytest.raises(mh.RequestError, match=r"leave decoding\.temperature out"):
        scripted([1], [DecodingConstraints(4, required_phrases=((3,),))], mh.DecodingConfig(temperature=1.0))
    with pytest.raises(mh.ConfigError, match=r"decoding\.nbest is 5, but a beam of 4"):
        mh.DecodingConfig(nbest=5)
    with pytest.raises(mh.ConfigError, match=r"set decoding\.temperature"):
        mh.DecodingConfig(top_k=5)
    assert replace(mh.DecodingConfig(), temperature=0.5, nbest=9).num_hypotheses == 9
