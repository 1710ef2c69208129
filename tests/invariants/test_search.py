"""Search over scripted steps, compared with exhaustive search, a plain beam search and smaller batches."""

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
from manyheads.search.constraints import count_met_tokens, mask_repeated_ngrams
from manyheads.search.driver import iterate_results, search
from manyheads.search.options import DecodingConstraints, Hypothesis, Request, SearchLimits, length_penalty
from manyheads.search.scheduler import ListQueue, QueuedRequest
from support.reference_beam import reference_beam

CPU = torch.device("cpu")
VOCAB_SIZE = 5


def log_p(key: int, written: Sequence[int], words: int = VOCAB_SIZE) -> Tensor:
    """Return a distribution that is a function of the sentence and of what was written."""
    digest = hashlib.blake2b(f"{key} {list(written)}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return (2 * torch.randn(words, generator=generator)).log_softmax(-1)


@dataclass
class Script:
    """A state that remembers every token: rows of (sentence, written)."""

    width: int
    rows: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    def reorder(self, rows: Tensor) -> "Script":
        return Script(self.width, [self.rows[row] for row in rows.tolist()])

    def remove(self, sentences: Tensor) -> "Script":
        gone = {s * self.width + w for s in sentences.tolist() for w in range(self.width)}
        return Script(self.width, [row for number, row in enumerate(self.rows) if number not in gone])


def search_scripted(
    keys: Sequence[int],
    constraints: Sequence[DecodingConstraints],
    config: mh.DecodingConfig,
    words: int = VOCAB_SIZE,
    **limits: Any,
) -> list[list[Hypothesis]]:
    """Run the search over these scripts."""

    def admit(numbers: list[int], state: Script | None) -> Script:
        new = [(keys[number], ()) for number in numbers for _ in range(config.num_hypotheses)]
        return Script(config.num_hypotheses, [*(state.rows if state else []), *new])

    def step(tokens: Tensor, state: Script) -> tuple[Tensor, Script]:
        rows = [(key, (*old, token)) for (key, old), token in zip(state.rows, tokens.tolist(), strict=True)]
        logits = torch.stack([log_p(key, written[1:], words) for key, written in rows])
        return logits + 7.0, Script(state.width, rows)  # logits need not be normalized

    return search(step, admit, constraints, config, CPU, SearchLimits(**limits))


def force_decode(key: int, tokens: Sequence[int], words: int = VOCAB_SIZE) -> float:
    """Return log p of an output by forced decoding."""
    closed = [*tokens, EOS_ID]
    return sum(log_p(key, closed[:place], words)[token].item() for place, token in enumerate(closed))


def search_exhaustively(
    key: int, own: DecodingConstraints, alpha: float, words: int = VOCAB_SIZE
) -> list[tuple[float, list[int]]]:
    others = [word for word in range(words) if word != EOS_ID]
    results = []
    for length in range(own.min_length, own.max_length + 1):
        for tokens in itertools.product(others, repeat=length):
            if tokens[: len(own.prefix)] == own.prefix and len(tokens) >= len(own.prefix):
                results.append(
                    (force_decode(key, tokens, words) / length_penalty(length + 1, alpha), list(tokens))
                )
    return sorted(results, reverse=True)


def assert_same_results(results: list[Hypothesis], expected: list[tuple[float, list[int]]]) -> None:
    assert [hypothesis.score for hypothesis in results] == pytest.approx(
        [score for score, _ in expected], abs=1e-4
    )
    gaps = [a - b for (a, _), (b, _) in itertools.pairwise(expected)]
    if all(gap > 1e-4 for gap in gaps):
        assert [hypothesis.tokens for hypothesis in results] == [tokens for _, tokens in expected]


@settings(max_examples=40, deadline=None)
@given(
    key=st.integers(0, 10**6),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    max_length=st.integers(0, 3),
    min_length=st.integers(0, 2),
    prefix=st.lists(st.sampled_from([0, 1, 3, 4]), max_size=2),
    nbest=st.integers(1, 5),
)
def test_a_wide_beam_is_exhaustive_search(
    key: int, alpha: float, max_length: int, min_length: int, prefix: list[int], nbest: int
) -> None:
    own = DecodingConstraints(max(max_length, len(prefix)), min(min_length, max_length), tuple(prefix))
    config = mh.DecodingConfig(beam=130, alpha=alpha, nbest=nbest)
    expected = search_exhaustively(key, own, alpha)
    assert_same_results(search_scripted([key], [own], config)[0], expected[:nbest])


@settings(max_examples=30, deadline=None)
@given(keys=st.lists(st.integers(0, 10**6), min_size=1, max_size=6), max_length=st.integers(0, 8))
def test_a_beam_of_one_is_greedy_search(keys: list[int], max_length: int) -> None:
    config, constraints = mh.DecodingConfig(beam=1, alpha=0.0), [DecodingConstraints(max_length)] * len(keys)
    plain = search_scripted(keys, constraints, config)
    queue = ListQueue([Request([], own) for own in constraints])

    def admit(new: list[QueuedRequest], state: Script | None) -> Script:
        return Script(1, [*(state.rows if state else []), *((keys[index], ()) for index, _ in new)])

    def step(tokens: Tensor, state: Script) -> tuple[Tensor, Script]:
        rows = [(key, (*old, token)) for (key, old), token in zip(state.rows, tokens.tolist(), strict=True)]
        return torch.stack([log_p(key, written[1:]) for key, written in rows]), Script(1, rows)

    batches = iterate_results(step, admit, queue, config, True, CPU, SearchLimits())
    beam = dict(itertools.chain.from_iterable(batches))
    assert [hypotheses[0].tokens for hypotheses in plain] == [
        beam[number][0].tokens for number in range(len(keys))
    ]
    assert [hypotheses[0].score for hypotheses in plain] == pytest.approx(
        [beam[n][0].score for n in range(len(keys))], abs=1e-5
    )
    for key, results in zip(keys, plain, strict=True):
        written: list[int] = []
        while len(written) < max_length and (best := int(log_p(key, written).argmax())) != EOS_ID:
            written.append(best)
        assert results[0].tokens == written


@pytest.mark.parametrize("alpha", [0.0, 0.6, 3.0])
@settings(max_examples=200, deadline=None)
@given(key=st.integers(0, 10**6), beam=st.integers(1, 5), max_length=st.integers(0, 12))
def test_the_search_equals_a_beam_search_in_plain_python(
    alpha: float, key: int, beam: int, max_length: int
) -> None:
    """The search stops at the same step, too: stopping too late would not change the best output."""
    num_steps = 0

    def step(tokens: Tensor, state: Script) -> tuple[Tensor, Script]:
        nonlocal num_steps
        num_steps += 1
        rows = [(key, (*old, token)) for (key, old), token in zip(state.rows, tokens.tolist(), strict=True)]
        return torch.stack([log_p(key, written[1:]) for key, written in rows]), Script(beam, rows)

    config, limits = mh.DecodingConfig(beam=beam, alpha=alpha), SearchLimits(poll_interval=1)
    constraints, rows = [DecodingConstraints(max_length)], [(key, ())] * beam
    [[best]] = search(step, lambda numbers, _: Script(beam, rows), constraints, config, CPU, limits)
    [expected], expected_steps = reference_beam(
        lambda tokens: log_p(key, tokens).tolist(), EOS_ID, max_length, beam, alpha
    )
    assert best.tokens == expected["tokens"]
    assert best.score == pytest.approx(expected["score"], abs=1e-4)
    assert num_steps == expected_steps


@settings(max_examples=30, deadline=None)
@given(
    keys=st.lists(st.integers(0, 10**6), min_size=2, max_size=9),
    beam=st.integers(1, 4),
    alpha=st.sampled_from([0.0, 0.6, 1.5]),
    rows=st.sampled_from([1, 4, 9, 100]),
    poll_interval=st.sampled_from([1, 3]),
    temperature=st.sampled_from([None, 0.8]),
)
def test_a_result_does_not_depend_on_the_rest_of_the_batch(
    keys: list[int], beam: int, alpha: float, rows: int, poll_interval: int, temperature: float | None
) -> None:
    config = mh.DecodingConfig(beam=beam, alpha=alpha, nbest=beam, temperature=temperature)
    constraints = [DecodingConstraints(max_length=2 + key % 7, min_length=key % 3, seed=key) for key in keys]
    together = search_scripted(keys, constraints, config, max_rows=rows, poll_interval=poll_interval)
    for key, own, results in zip(keys, constraints, together, strict=True):
        alone = search_scripted([key], [own], config)[0]
        assert [hypothesis.tokens for hypothesis in results] == [hypothesis.tokens for hypothesis in alone]
        assert [hypothesis.score for hypothesis in results] == pytest.approx(
            [hypothesis.score for hypothesis in alone], abs=1e-5
        )
        for hypothesis in results:
            assert hypothesis.log_probability == pytest.approx(force_decode(key, hypothesis.tokens), abs=1e-4)
            assert hypothesis.score == pytest.approx(
                hypothesis.log_probability / length_penalty(len(hypothesis.tokens) + 1, alpha), abs=1e-4
            )
            assert len(hypothesis.token_scores) == len(hypothesis.tokens) + 1
            assert own.min_length <= len(hypothesis.tokens) <= own.max_length


def test_finished_hypotheses_compete_with_unfinished_ones() -> None:
    """A short output that is likely now loses to a longer one that the penalty favors."""
    table = {(): [-9, -9, math.log(0.5), math.log(0.4)], (3,): [-9, -9, math.log(0.9), -9]}

    def step(tokens: Tensor, state: Script) -> tuple[Tensor, Script]:
        rows = [(key, (*old, token)) for (key, old), token in zip(state.rows, tokens.tolist(), strict=True)]
        never = [math.log(1e-6)] * 4
        return torch.tensor([table.get(w[1:], never) for _, w in rows]).log_softmax(-1), Script(2, rows)

    def best_tokens(alpha: float) -> list[int]:
        config = mh.DecodingConfig(beam=2, alpha=alpha)
        return search(
            step, lambda numbers, _: Script(2, [(0, ()), (0, ())]), [DecodingConstraints(5)], config, CPU
        )[0][0].tokens

    assert best_tokens(alpha=0.0) == []
    assert best_tokens(alpha=3.0) == [3]


@pytest.mark.parametrize("forbidden", [((3,),), ((3, 4), (0,)), ((4, 4, 4), (1, 3))])
def test_forbidden_phrases_do_not_occur(forbidden: tuple[tuple[int, ...], ...]) -> None:
    config = mh.DecodingConfig(beam=3, nbest=3, alpha=0.0)
    for key in range(20):
        for hypothesis in search_scripted(
            [key], [DecodingConstraints(8, min_length=5, forbidden_phrases=forbidden)], config
        )[0]:
            text = hypothesis.tokens
            for phrase in forbidden:
                assert all(tuple(text[n : n + len(phrase)]) != phrase for n in range(len(text)))
            assert hypothesis.log_probability == pytest.approx(force_decode(key, text), abs=1e-4)


def test_ngrams_may_repeat_by_default() -> None:
    def repeats(no_repeat_ngram: int | None) -> int:
        config = mh.DecodingConfig(beam=2, no_repeat_ngram=no_repeat_ngram)
        texts = [
            search_scripted([key], [DecodingConstraints(12, min_length=12)], config)[0][0].tokens
            for key in range(10)
        ]
        pairs = [list(itertools.pairwise(text)) for text in texts]
        return sum(len(own) - len(set(own)) for own in pairs)

    assert repeats(None) > 0
    assert repeats(2) == 0


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 3), min_size=0, max_size=9), min_size=1, max_size=4),
    size=st.integers(1, 4),
)
def test_a_token_that_would_repeat_an_ngram_is_ruled_out(rows: list[list[int]], size: int) -> None:
    tokens = torch.tensor([[(row + [0] * 12)[:12]] for row in rows])  # zeros beyond the lengths do not count
    logits = torch.zeros(len(rows), 1, 5)
    mask_repeated_ngrams(logits, tokens, torch.tensor([len(row) for row in rows]), size)
    for row, own in zip(rows, logits[:, 0].tolist(), strict=True):
        for token, value in enumerate(own):
            written = [*row, token]
            ngrams = [tuple(written[n : n + size]) for n in range(len(written) - size + 1)]
            is_repeated = len(ngrams) > 0 and ngrams[-1] in ngrams[:-1]
            assert (value == -math.inf) == is_repeated


def test_finished_sentences_may_stay_in_the_batch_for_long_without_repeated_ngrams() -> None:
    """Waiting sentences join a batch whose finished ones have not left yet, again and again."""
    config = mh.DecodingConfig(beam=1, no_repeat_ngram=3)
    keys = [*range(12)]
    constraints = [DecodingConstraints(max_length=3 + number % 2 * 4) for number in keys]
    together = search_scripted(
        keys, constraints, config, max_rows=4, refill_fraction=0.0, retire_fraction=0.6
    )
    alone = [search_scripted([key], [own], config)[0] for key, own in zip(keys, constraints, strict=True)]
    assert [own[0].tokens for own in together] == [own[0].tokens for own in alone]


def test_a_prefix_may_repeat_what_the_search_may_not() -> None:
    constraints, config = [DecodingConstraints(6, prefix=(4, 4, 4))], mh.DecodingConfig(no_repeat_ngram=1)
    (hypothesis,) = search_scripted([1], constraints, config)[0]
    assert hypothesis.tokens[:3] == [4, 4, 4]
    assert math.isfinite(hypothesis.log_probability)


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
def test_required_phrases_occur(
    key: int, required: list[list[int]], beam: int, spare: int, prefix: list[int]
) -> None:
    phrases = tuple(map(tuple, required))
    max_length = len(prefix) + sum(map(len, phrases)) + spare
    own = DecodingConstraints(max_length, prefix=tuple(prefix), required_phrases=phrases)
    results = search_scripted([key], [own], mh.DecodingConfig(beam=beam, nbest=1))[0]
    assert len(results) == 1
    text = results[0].tokens
    assert text[: len(prefix)] == prefix
    assert len(text) <= max_length
    for phrase in set(phrases):
        places = [n for n in range(len(text)) if tuple(text[n : n + len(phrase)]) == phrase]
        assert places, f"{phrase} is not in {text}"
        if len(phrase) == 1:
            assert len(places) >= phrases.count(phrase)
    assert results[0].log_probability == pytest.approx(force_decode(key, text), abs=1e-4)


def test_phrases_are_counted_a_few_times_for_each_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each token that may follow: a phrase of n tokens has n hypotheses with n of them each."""
    counted: list[int] = []

    def count(written: list[int], required: Any) -> int:
        counted.append(len(written))
        return count_met_tokens(written, required)

    monkeypatch.setattr("manyheads.search.constraints.count_met_tokens", count)
    phrase, beam = (4, 0, 4, 3) * 5, 21
    own = DecodingConstraints(25, required_phrases=(phrase,))
    text = search_scripted([1], [own], mh.DecodingConfig(beam=beam), words=200)[0][0].tokens
    assert phrase in [tuple(text[n : n + len(phrase)]) for n in range(len(text))]
    assert len(counted) <= 9 * beam * 27


def test_only_word_starts_follow_a_whole_word_phrase() -> None:
    followers: dict[bool, set[int]] = {True: set(), False: set()}
    for key, is_whole_word in itertools.product(range(40), (True, False)):
        own = DecodingConstraints(
            6,
            min_length=5,
            required_phrases=((4,),),
            whole_word_phrases=((4,),) if is_whole_word else (),
            word_start_ids=frozenset({0, 3}),
        )
        text = search_scripted([key], [own], mh.DecodingConfig(beam=3))[0][0].tokens
        followers[is_whole_word] |= {after for token, after in itertools.pairwise(text) if token == 4}
    assert followers[True] <= {0, 3}
    assert followers[False] > {0, 3}


def test_a_wide_beam_finds_the_best_output_with_a_required_phrase() -> None:
    config = mh.DecodingConfig(beam=130, alpha=0.0)
    for key in range(12):
        results = search_scripted([key], [DecodingConstraints(3, required_phrases=((4, 0),))], config)[0][0]
        has = [
            (s, t)
            for s, t in search_exhaustively(key, DecodingConstraints(3), 0.0)
            if (4, 0) in itertools.pairwise(t)
        ]
        assert results.tokens == has[0][1]


def test_samples_follow_the_probabilities() -> None:
    words, draws = 4, 4000
    config = mh.DecodingConfig(temperature=1.0, nbest=draws)
    results = search_scripted([5], [DecodingConstraints(1)], config, words, max_rows=draws)[0]
    p = log_p(5, [], words).exp()
    for word in range(words):
        share = sum((hypothesis.tokens or [EOS_ID])[0] == word for hypothesis in results) / draws
        assert share == pytest.approx(p[word].item(), abs=0.035)


def test_top_k_and_top_p_keep_the_likeliest_tokens() -> None:
    order = log_p(5, []).argsort(descending=True).tolist()
    p = log_p(5, []).exp()[order].cumsum(0).tolist()

    def sample(**changes: Any) -> set[int]:
        config = mh.DecodingConfig(temperature=1.0, nbest=300, **changes)
        return {
            (hypothesis.tokens or [EOS_ID])[0]
            for hypothesis in search_scripted([5], [DecodingConstraints(1)], config)[0]
        }

    assert sample(top_k=1) == {order[0]}
    assert sample(top_k=2) == set(order[:2])
    assert sample(top_p=p[0] - 1e-3) == {order[0]}
    assert sample(top_p=p[0] + 1e-3) == set(order[:2])
    assert len(sample()) > 3


def test_other_seeds_give_other_samples() -> None:
    config = mh.DecodingConfig(temperature=1.0)
    texts = {
        tuple(search_scripted([1], [DecodingConstraints(9, min_length=9, seed=seed)], config)[0][0].tokens)
        for seed in range(9)
    }
    assert len(texts) > 6
    again = search_scripted([1], [DecodingConstraints(9, min_length=9, seed=3)], config)
    assert again == search_scripted([1], [DecodingConstraints(9, min_length=9, seed=3)], config)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_that_returns_nan_ends_without_results(beam: int) -> None:
    def step(tokens: Tensor, state: Script) -> tuple[Tensor, Script]:
        return torch.full((len(tokens), VOCAB_SIZE), math.nan), state

    config = mh.DecodingConfig(beam=beam)
    rows = [(0, ())] * beam
    assert search(step, lambda numbers, _: Script(beam, rows), [DecodingConstraints(4)], config, CPU) == [[]]


def test_contradictory_options_are_refused() -> None:
    with pytest.raises(mh.RequestError, match=r"leave out decoding\.temperature"):
        search_scripted(
            [1], [DecodingConstraints(4, required_phrases=((3,),))], mh.DecodingConfig(temperature=1.0)
        )
    with pytest.raises(mh.ConfigError, match=r"decoding\.nbest is 5, but a beam of 4"):
        mh.DecodingConfig(nbest=5)
    with pytest.raises(mh.ConfigError, match=r"set decoding\.temperature"):
        mh.DecodingConfig(top_k=5)
    assert replace(mh.DecodingConfig(), temperature=0.5, nbest=9).num_hypotheses == 9
