"""The training loss: its definition, its chunks, R-Drop, and its precision."""

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
from manyheads.evaluate.perplexity import perplexity
from manyheads.ops import cross_entropy
from manyheads.train.loss import Loss, chunked_loss, reference_loss, reference_r_drop_loss

SMOOTHINGS = st.builds(
    mh.TrainConfig,
    label_smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    label_smoothing_over=st.sampled_from(["all", "others"]),
)


def make_inputs(
    tokens: int, vocab_size: int, width: int, dtype: torch.dtype = torch.float64, bias: bool = False
) -> tuple[Any, ...]:
    torch.manual_seed(tokens)
    hidden = torch.randn(tokens, width, dtype=dtype, requires_grad=True)
    output = nn.Linear(width, vocab_size, bias=bias, dtype=dtype)
    return hidden, output, torch.randint(0, vocab_size, (tokens,))


def gradients(loss: Loss, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(3 * loss.total, inputs)


@given(
    st.integers(1, 20), st.integers(3, 9), st.integers(1, 4), st.integers(1, 60), SMOOTHINGS, st.booleans()
)
def test_the_chunked_loss_equals_the_reference(
    tokens: int, vocab_size: int, width: int, chunk_logits: int, train: mh.TrainConfig, bias: bool
) -> None:
    hidden, output, labels = make_inputs(tokens, vocab_size, width, bias=bias)
    chunked = chunked_loss(hidden, output, labels, train, chunk_logits=chunk_logits)
    plain = reference_loss(output(hidden), labels, train)
    torch.testing.assert_close(chunked.total, plain.total)
    torch.testing.assert_close(chunked.nll, plain.nll)
    assert chunked.tokens == plain.tokens == tokens
    inputs = (hidden, *output.parameters())
    for fast, slow in zip(gradients(chunked, *inputs), gradients(plain, *inputs), strict=True):
        torch.testing.assert_close(fast, slow)


@given(st.integers(1, 12), st.integers(3, 9), st.integers(1, 90), SMOOTHINGS, st.floats(0, 5), st.booleans())
def test_the_chunked_r_drop_loss_equals_the_reference(
    tokens: int, vocab_size: int, chunk_logits: int, train: mh.TrainConfig, r_drop: float, bias: bool
) -> None:
    train = replace(train, r_drop=r_drop)
    hidden, output, _ = make_inputs(2 * tokens, vocab_size, 3, bias=bias)
    labels = torch.randint(0, vocab_size, (tokens,))
    chunked = chunked_loss(hidden, output, labels, train, forward_passes=2, chunk_logits=chunk_logits)
    plain = reference_r_drop_loss(output(hidden).view(2, tokens, vocab_size), labels, train)
    torch.testing.assert_close(chunked.total, plain.total)
    torch.testing.assert_close(chunked.nll, plain.nll)
    assert chunked.tokens == tokens
    inputs = (hidden, *output.parameters())
    for fast, slow in zip(gradients(chunked, *inputs), gradients(plain, *inputs), strict=True):
        torch.testing.assert_close(fast, slow)


def test_the_r_drop_divergence_is_what_torch_computes() -> None:
    hidden, output, labels = make_inputs(12, 7, 3)
    log_p = output(hidden).log_softmax(-1).view(2, 6, 7)
    kl_qp, kl_pq = (
        nn.functional.kl_div(log_p[a], log_p[1 - a], log_target=True, reduction="sum") for a in (0, 1)
    )
    with_it, without = (
        chunked_loss(hidden, output, labels[:6], mh.TrainConfig(r_drop=weight), forward_passes=2)
        for weight in (3.0, 0.0)
    )
    torch.testing.assert_close(with_it.total - without.total, 3 * (kl_qp + kl_pq) / 2)


def test_two_equal_forward_passes_have_the_loss_of_one() -> None:
    hidden, output, labels = make_inputs(9, 7, 3)
    once = chunked_loss(hidden, output, labels, mh.TrainConfig())
    twice = chunked_loss(
        torch.cat((hidden, hidden)), output, labels, mh.TrainConfig(r_drop=2.0), forward_passes=2
    )
    torch.testing.assert_close(twice.total, once.total)
    inputs = (hidden, *output.parameters())
    for a, b in zip(gradients(twice, *inputs), gradients(once, *inputs), strict=True):
        torch.testing.assert_close(a, b)


@given(st.floats(0, 0.9))
def test_smoothing_over_all_words_is_what_torch_computes(smoothing: float) -> None:
    hidden, output, labels = make_inputs(12, 7, 3)
    ours = chunked_loss(hidden, output, labels, mh.TrainConfig(label_smoothing=smoothing))
    judge = nn.functional.cross_entropy(output(hidden), labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours.total, judge)


def test_the_nll_is_unsmoothed() -> None:
    hidden, output, labels = make_inputs(12, 7, 3)
    smoothed = chunked_loss(hidden, output, labels, mh.TrainConfig(label_smoothing=0.5))
    plain = chunked_loss(hidden, output, labels, mh.TrainConfig(label_smoothing=0.0))
    torch.testing.assert_close(smoothed.nll, plain.total.detach())
    assert not smoothed.nll.requires_grad


@given(st.integers(0, 12), SMOOTHINGS)
def test_two_micro_batches_equal_one_batch(split: int, train: mh.TrainConfig) -> None:
    hidden, output, labels = make_inputs(12, 7, 3)
    whole = chunked_loss(hidden, output, labels, train)
    parts = [
        chunked_loss(hidden[part], output, labels[part], train) for part in (slice(split), slice(split, None))
    ]
    torch.testing.assert_close(parts[0].total + parts[1].total, whole.total)
    assert parts[0].tokens + parts[1].tokens == whole.tokens
    torch.testing.assert_close(
        torch.autograd.grad(parts[0].total + parts[1].total, output.weight),
        torch.autograd.grad(whole.total, output.weight),
    )


class LargestTensor(TorchDispatchMode):
    """Records the size of the largest result of any operation."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.numbers = max(self.numbers, leaf.numel())
        return result


def test_the_full_logits_matrix_is_never_held() -> None:
    hidden, output, labels = make_inputs(tokens=300, vocab_size=40, width=5)
    with LargestTensor() as chunked:
        chunked_loss(hidden, output, labels, mh.TrainConfig(), chunk_logits=800).total.backward()
    with LargestTensor() as plain:
        reference_loss(output(hidden), labels, mh.TrainConfig()).total.backward()
    assert plain.numbers == 300 * 40
    assert chunked.numbers <= 300 * 5  # the hidden states themselves are the largest thing left


def test_no_gradient_is_computed_without_grad_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    plain = cross_entropy.logit_gradient
    monkeypatch.setattr(cross_entropy, "logit_gradient", lambda *args: calls.append(1) or plain(*args))
    hidden, output, labels = make_inputs(10, 7, 3)
    with torch.no_grad():
        loss = chunked_loss(hidden, output, labels, mh.TrainConfig())
    assert not loss.total.requires_grad
    assert not calls
    chunked_loss(hidden, output, labels, mh.TrainConfig())
    assert calls == [1]


def test_the_total_can_be_divided_in_place() -> None:
    hidden, output, labels = make_inputs(10, 7, 3)
    loss = chunked_loss(hidden, output, labels, mh.TrainConfig())
    total = loss.total
    total /= loss.tokens
    total.backward()
    assert hidden.grad.isfinite().all()


def test_the_perplexity_of_a_huge_nll_is_infinite() -> None:
    assert perplexity(1e5) == math.inf
    assert perplexity(2.0) == pytest.approx(math.exp(2.0))


def test_another_number_of_labels_is_refused() -> None:
    hidden, output, labels = make_inputs(5, 7, 3)
    with pytest.raises(mh.DataError, match="5 hidden states, but 3 labels"):
        chunked_loss(hidden, output, labels[:3], mh.TrainConfig())


def test_a_word_with_a_bias_of_minus_10000_leaves_loss_and_gradients_finite() -> None:
    """As in imported models; label smoothing gives that word some probability too."""
    hidden, output, labels = make_inputs(12, 7, 3, torch.float32, bias=True)
    output.bias.data[1] = -1e4
    loss = chunked_loss(hidden, output, labels.clamp(min=2), mh.TrainConfig())
    assert loss.total.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients(loss, hidden, *output.parameters()))
    without = output.weight[[0, *range(2, 7)]]
    logits = hidden @ without.T + output.bias[[0, *range(2, 7)]]
    plain = reference_loss(logits, labels.clamp(min=2) - 1, mh.TrainConfig())
    torch.testing.assert_close(loss.nll, plain.nll)


def test_an_empty_batch_has_no_loss() -> None:
    hidden, output, _ = make_inputs(0, 7, 3)
    loss = chunked_loss(hidden, output, torch.zeros(0, dtype=torch.int64), mh.TrainConfig())
    loss.total.backward()
    assert (loss.total.item(), loss.nll.item(), loss.tokens) == (0, 0, 0)
    assert (output.weight.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_half_precision_stays_near_float64(bias: bool, autocast: bool, dtype: torch.dtype) -> None:
    hidden, output, labels = make_inputs(500, 60, 16, torch.float32, bias)
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
    results = [loss.total, loss.nll, *torch.autograd.grad(loss.total, inputs)]
    assert loss.total.dtype == loss.nll.dtype == torch.float32
    assert [result.dtype for result in results[2:]] == [tensor.dtype for tensor in inputs]
    for a, b in zip(results, exact, strict=True):
        assert ((a.double() - b).norm() / b.norm()).item() < 0.01


def test_autocast_does_not_change_float64() -> None:
    hidden, output, labels = make_inputs(20, 7, 3)
    plain = chunked_loss(hidden, output, labels, mh.TrainConfig())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(chunked_loss(hidden, output, labels, mh.TrainConfig()).total, plain.total)


def test_float16_keeps_gradients_before_loss_scaling() -> None:
    """With 20,000 words, the gradient of each wrong word is far below the smallest float16."""
    hidden = torch.zeros(1, 2, requires_grad=True)
    output = nn.Linear(2, 20_000, bias=False)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = chunked_loss(hidden + 1e-4, output, torch.tensor([3]), mh.TrainConfig(label_smoothing=0.0))
    (gradient,) = torch.autograd.grad(loss.total * 65536, output.weight)
    expected = 65536 * 1e-4 / 20_000
    assert gradient[5, 0].item() == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("forward_passes", [1, 2])
def test_a_gradient_known_in_advance_changes_when_it_is_applied_not_what_it_is(forward_passes: int) -> None:
    hidden, output, labels = make_inputs(12, 7, 3, bias=True)
    labels, train = labels[: 12 // forward_passes], mh.TrainConfig(r_drop=0.5)
    gradient, inputs = torch.tensor(0.3, dtype=torch.float64), (hidden, *output.parameters())
    losses = [
        chunked_loss(
            hidden, output, labels, train, forward_passes=forward_passes, chunk_logits=20, loss_gradient=known
        ).total
        for known in (None, gradient)
    ]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(torch.autograd.grad(loss, inputs, gradient) for loss in losses))
