import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import manyheads as mh
from manyheads.ops import cross_entropy
from manyheads.train.loss import Loss, chunked_loss, reference_loss, reference_r_drop_loss

SMOOTHINGS = st.builds(
    mh.TrainConfig,
    label_smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    smoothing=st.sampled_from(["all", "others"]),
)


def problem(
    tokens: int, words: int, width: int, dtype: torch.dtype = torch.float64, bias: bool = False
) -> tuple[Any, ...]:
    torch.manual_seed(tokens)
    hidden = torch.randn(tokens, width, dtype=dtype, requires_grad=True)
    output = nn.Linear(width, words, bias=bias, dtype=dtype)
    return hidden, output, torch.randint(0, words, (tokens,))


def gradients(loss: Loss, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(3 * loss.total, inputs)


@given(
    st.integers(1, 20), st.integers(3, 9), st.integers(1, 4), st.integers(1, 60), SMOOTHINGS, st.booleans()
)
def test_the_chunked_loss_equals_the_plain_one(
    tokens: int, words: int, width: int, chunk_logits: int, train: mh.TrainConfig, bias: bool
) -> None:
    hidden, output, labels = problem(tokens, words, width, bias=bias)
    chunked = chunked_loss(hidden, output, labels, train, chunk_logits=chunk_logits)
    plain = reference_loss(output(hidden), labels, train)
    torch.testing.assert_close(chunked.total, plain.total)
    torch.testing.assert_close(chunked.nll, plain.nll)
    assert chunked.tokens == plain.tokens == tokens
    inputs = (hidden, *output.parameters())
    for fast, slow in zip(gradients(chunked, *inputs), gradients(plain, *inputs), strict=True):
        torch.testing.assert_close(fast, slow)


@given(st.integers(1, 12), st.integers(3, 9), st.integers(1, 90), SMOOTHINGS, st.floats(0, 5), st.booleans())
def test_so_does_that_of_two_readings(
    tokens: int, words: int, chunk_logits: int, train: mh.TrainConfig, agreement: float, bias: bool
) -> None:
    train = replace(train, r_drop=agreement)
    hidden, output, _ = problem(2 * tokens, words, 3, bias=bias)
    labels = torch.randint(0, words, (tokens,))
    chunked = chunked_loss(hidden, output, labels, train, forward_passes=2, chunk_logits=chunk_logits)
    plain = reference_r_drop_loss(output(hidden).view(2, tokens, words), labels, train)
    torch.testing.assert_close(chunked.total, plain.total)
    torch.testing.assert_close(chunked.nll, plain.nll)
    assert chunked.tokens == tokens
    inputs = (hidden, *output.parameters())
    for fast, slow in zip(gradients(chunked, *inputs), gradients(plain, *inputs), strict=True):
        torch.testing.assert_close(fast, slow)


def test_disagreement_is_what_torch_computes() -> None:
    hidden, output, labels = problem(12, 7, 3)
    readings = output(hidden).log_softmax(-1).view(2, 6, 7)
    one, two = (
        nn.functional.kl_div(readings[a], readings[1 - a], log_target=True, reduction="sum") for a in (0, 1)
    )
    with_it, without = (
        chunked_loss(hidden, output, labels[:6], mh.TrainConfig(r_drop=weight), forward_passes=2)
        for weight in (3.0, 0.0)
    )
    torch.testing.assert_close(with_it.total - without.total, 3 * (one + two) / 2)


def test_two_like_readings_are_one() -> None:
    hidden, output, labels = problem(9, 7, 3)
    once = chunked_loss(hidden, output, labels, mh.TrainConfig())
    twice = chunked_loss(
        torch.cat((hidden, hidden)), output, labels, mh.TrainConfig(r_drop=2.0), forward_passes=2
    )
    torch.testing.assert_close(twice.total, once.total)
    inputs = (hidden, *output.parameters())
    for a, b in zip(gradients(twice, *inputs), gradients(once, *inputs), strict=True):
        torch.testing.assert_close(a, b)


@given(st.floats(0, 0.9))
def test_smoothing_over_all_is_what_torch_computes(smoothing: float) -> None:
    hidden, output, labels = problem(12, 7, 3)
    ours = chunked_loss(hidden, output, labels, mh.TrainConfig(label_smoothing=smoothing))
    judge = nn.functional.cross_entropy(output(hidden), labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours.total, judge)


def test_the_likelihood_is_unsmoothed_and_gives_the_perplexity() -> None:
    hidden, output, labels = problem(12, 7, 3)
    smoothed = chunked_loss(hidden, output, labels, mh.TrainConfig(label_smoothing=0.5))
    plain = chunked_loss(hidden, output, labels, mh.TrainConfig(label_smoothing=0.0))
    torch.testing.assert_close(smoothed.nll, plain.total.detach())
    assert smoothed.perplexity == pytest.approx(math.exp(plain.total.item() / 12))
    assert not smoothed.nll.requires_grad


@given(st.integers(0, 12), SMOOTHINGS)
def test_two_micro_batches_equal_one_batch(cut: int, train: mh.TrainConfig) -> None:
    hidden, output, labels = problem(12, 7, 3)
    whole = chunked_loss(hidden, output, labels, train)
    parts = [
        chunked_loss(hidden[part], output, labels[part], train) for part in (slice(cut), slice(cut, None))
    ]
    torch.testing.assert_close(parts[0].total + parts[1].total, whole.total)
    assert parts[0].tokens + parts[1].tokens == whole.tokens
    torch.testing.assert_close(
        torch.autograd.grad(parts[0].total + parts[1].total, output.weight),
        torch.autograd.grad(whole.total, output.weight),
    )


class LargestTensor(TorchDispatchMode):
    """Watches how many numbers the largest result of any operation has."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.numbers = max(self.numbers, leaf.numel())
        return result


def test_the_whole_matrix_of_logits_is_never_held() -> None:
    hidden, output, labels = problem(tokens=300, words=40, width=5)
    with LargestTensor() as chunked:
        chunked_loss(hidden, output, labels, mh.TrainConfig(), chunk_logits=800).total.backward()
    with LargestTensor() as plain:
        reference_loss(output(hidden), labels, mh.TrainConfig()).total.backward()
    assert plain.numbers == 300 * 40
    assert chunked.numbers <= 300 * 5  # the hidden states themselves are the largest thing left


def test_no_gradient_is_computed_when_nobody_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    plain = cross_entropy.logit_gradient
    monkeypatch.setattr(cross_entropy, "logit_gradient", lambda *given: calls.append(1) or plain(*given))
    hidden, output, labels = problem(10, 7, 3)
    with torch.no_grad():
        loss = chunked_loss(hidden, output, labels, mh.TrainConfig())
    assert not loss.total.requires_grad
    assert not calls
    chunked_loss(hidden, output, labels, mh.TrainConfig())
    assert calls == [1]


def test_the_total_can_be_divided_in_place_as_a_training_loop_would() -> None:
    hidden, output, labels = problem(10, 7, 3)
    loss = chunked_loss(hidden, output, labels, mh.TrainConfig())
    total = loss.total
    total /= loss.tokens
    total.backward()
    assert hidden.grad.isfinite().all()


def test_a_hopeless_model_has_an_infinite_perplexity() -> None:
    assert Loss(torch.tensor(0.0), torch.tensor(1e6), 10).perplexity == math.inf


def test_what_the_loss_cannot_serve_is_refused() -> None:
    hidden, output, labels = problem(5, 7, 3)
    with pytest.raises(mh.DataError, match="5 hidden states, but 3 labels"):
        chunked_loss(hidden, output, labels[:3], mh.TrainConfig())


def test_a_word_that_a_bias_rules_out_leaves_the_loss_and_its_gradients_finite() -> None:
    """As imported models have it: label smoothing asks for that word too."""
    hidden, output, labels = problem(12, 7, 3, torch.float32, bias=True)
    output.bias.data[1] = -1e4
    loss = chunked_loss(hidden, output, labels.clamp(min=2), mh.TrainConfig())
    assert loss.total.isfinite()
    assert all(one.isfinite().all() for one in gradients(loss, hidden, *output.parameters()))
    without = output.weight[[0, *range(2, 7)]]
    logits = hidden @ without.T + output.bias[[0, *range(2, 7)]]
    plain = reference_loss(logits, labels.clamp(min=2) - 1, mh.TrainConfig())
    torch.testing.assert_close(loss.nll, plain.nll)


def test_an_empty_batch_has_no_loss() -> None:
    hidden, output, _ = problem(0, 7, 3)
    loss = chunked_loss(hidden, output, torch.zeros(0, dtype=torch.int64), mh.TrainConfig())
    loss.total.backward()
    assert (loss.total.item(), loss.tokens, loss.perplexity) == (0, 0, 1)
    assert (output.weight.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_half_precision_stays_near_float64(bias: bool, autocast: bool, dtype: torch.dtype) -> None:
    hidden, output, labels = problem(500, 60, 16, torch.float32, bias)
    output.weight.data.normal_()
    logits = hidden.double() @ output.weight.double().T
    if bias:
        logits = logits + output.bias.double()
    plain = reference_loss(logits, labels, mh.TrainConfig())
    exact = [plain.total, plain.nll, *torch.autograd.grad(plain.total, (hidden, *output.parameters()))]
    if not autocast:
        hidden, output = hidden.detach().to(dtype).requires_grad_(), output.to(dtype)
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        loss = chunked_loss(hidden, output, labels, mh.TrainConfig(), chunk_logits=600)
    inputs = (hidden, *output.parameters())
    found = [loss.total, loss.nll, *torch.autograd.grad(loss.total, inputs)]
    assert loss.total.dtype == loss.nll.dtype == torch.float32
    assert [one.dtype for one in found[2:]] == [one.dtype for one in inputs]
    for a, b in zip(found, exact, strict=True):
        assert ((a.double() - b).norm() / b.norm()).item() < 0.01


def test_autocast_leaves_float64_alone() -> None:
    hidden, output, labels = problem(20, 7, 3)
    plain = chunked_loss(hidden, output, labels, mh.TrainConfig())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(chunked_loss(hidden, output, labels, mh.TrainConfig()).total, plain.total)


def test_float16_keeps_gradients_that_a_scaler_has_not_yet_enlarged() -> None:
    """A confident model over 20,000 words: each wrong word's gradient is far below what float16 can hold."""
    hidden = torch.zeros(1, 2, requires_grad=True)
    output = nn.Linear(2, 20_000, bias=False)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = chunked_loss(hidden + 1e-4, output, torch.tensor([3]), mh.TrainConfig(label_smoothing=0.0))
    (gradient,) = torch.autograd.grad(loss.total * 65536, output.weight)
    expected = 65536 * 1e-4 / 20_000
    assert gradient[5, 0].item() == pytest.approx(expected, rel=0.01)
