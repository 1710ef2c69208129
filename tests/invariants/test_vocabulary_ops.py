"""Kernels of embeddings, logits and the loss against their definitions; on a CPU interpreted by Triton."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed: its kernels cannot be interpreted")

import manyheads as mh
from manyheads.ops import cross_entropy_triton, embedding_triton, topk, topk_triton
from manyheads.ops.cross_entropy import IGNORE_INDEX
from manyheads.train.loss import reference_loss, reference_r_drop_loss, smoothing_weights
from support.kernel_checks import DEVICE, all_dtypes, distance, gradients, normal

# ---- embeddings


@all_dtypes
@pytest.mark.parametrize("width", [16, 48, 512])
def test_embeddings_equal_the_reference(width: int, dtype: torch.dtype, tolerance: float) -> None:
    tokens, positions = torch.randint(0, 11, (2, 37), device=DEVICE)
    weight, encoding = normal(11, width).requires_grad_(), normal(11, width)
    upstream = normal(37, width)
    out = embedding_triton.embed_tokens(tokens, weight, positions, encoding, 3.0, 0.0, dtype)
    assert out.dtype == dtype
    exact = weight.detach().double().requires_grad_()
    expected = F.embedding(tokens, exact) * 3 + encoding[positions]
    fast, plain = gradients(out, upstream, [weight]), gradients(expected, upstream, [exact])
    assert distance(fast[0], plain[0]) < tolerance
    assert distance(fast[1], plain[1]) < tolerance


def test_dropout_of_embeddings_repeats_in_the_backward_pass() -> None:
    tokens, weight = torch.arange(300, device=DEVICE), torch.ones(300, 64, device=DEVICE, requires_grad=True)
    zeros = torch.zeros(300, 64, device=DEVICE)
    out = embedding_triton.embed_tokens(tokens, weight, tokens, zeros, 2.0, 0.25, torch.float32)
    (gradient,) = torch.autograd.grad(out.sum(), weight)
    assert torch.equal(gradient, out)
    assert out.unique().tolist() == pytest.approx([0, 2 / 0.75])
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)


# ---- search


@all_dtypes
@pytest.mark.parametrize(("classes", "k"), [(7, 5), (128, 3), (1000, 9)])
def test_topk_and_logsumexp_equal_the_reference(
    classes: int, k: int, dtype: torch.dtype, tolerance: float
) -> None:
    logits = normal(5, classes, dtype=dtype)
    values, indices, log_sum = topk_triton.topk_logsumexp(logits, k)
    plain_values, _, plain_log_sum = topk.topk_logsumexp(logits.cpu(), k)
    assert torch.equal(values.cpu(), plain_values)
    assert torch.equal(logits.gather(1, indices).float(), values)
    assert distance(log_sum.cpu(), plain_log_sum) < tolerance
    assert torch.equal(topk.logsumexp(logits.cpu().float()), logits.cpu().float().logsumexp(-1))


# ---- the loss


@all_dtypes
@pytest.mark.parametrize("classes", [5, 300, 9000])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_equals_the_reference(
    classes: int, smoothing: float, dtype: torch.dtype, tolerance: float
) -> None:
    train = mh.TrainConfig(label_smoothing=smoothing)
    logits, labels = 3 * normal(7, classes, dtype=dtype), torch.randint(0, classes, (7,), device=DEVICE)
    labels[3] = IGNORE_INDEX
    counts = labels >= 0
    exact = logits.double().requires_grad_()
    plain = reference_loss(exact[counts], labels[counts], train)
    (expected,) = torch.autograd.grad(plain.total, exact)
    loss, nll = cross_entropy_triton.cross_entropy_(logits[None], labels, smoothing_weights(classes, train))
    assert loss.sum().item() == pytest.approx(plain.total.item(), rel=1e-5)
    assert nll.sum().item() == pytest.approx(plain.nll.item(), rel=1e-5)
    assert distance(logits, expected) < tolerance
    assert (logits[3] == 0).all()
    assert loss[3] == nll[3] == 0


@all_dtypes
@pytest.mark.parametrize("passes", [1, 2])
def test_the_kernel_multiplies_the_gradient_by_that_of_the_loss(
    passes: int, dtype: torch.dtype, tolerance: float
) -> None:
    logits, labels = 3 * normal(passes, 7, 300, dtype=dtype), torch.randint(0, 300, (7,), device=DEVICE)
    labels[3] = IGNORE_INDEX
    plain, scaled = logits.clone(), logits.clone()
    scale = torch.tensor(0.3, device=DEVICE)
    results = [
        cross_entropy_triton.cross_entropy_(x, labels, (0.9, 3e-4), 0.7, loss_gradient=gradient)
        for x, gradient in ((plain, None), (scaled, scale))
    ]
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert distance(scaled, 0.3 * plain.double()) < tolerance
    assert (scaled[:, 3] == 0).all()


@all_dtypes
@pytest.mark.parametrize("classes", [5, 300, 9000])
@pytest.mark.parametrize("r_drop", [0.0, 2.5])
def test_cross_entropy_with_r_drop_equals_the_reference(
    classes: int, r_drop: float, dtype: torch.dtype, tolerance: float
) -> None:
    train = mh.TrainConfig(r_drop=r_drop)
    buffer, labels = 3 * normal(2, 9, classes, dtype=dtype), torch.randint(0, classes, (7,), device=DEVICE)
    logits, rest = buffer[:, :7], buffer[:, 7:].clone()  # as the last chunk of a batch lies in its buffer
    labels[3] = IGNORE_INDEX
    counts = labels >= 0
    exact = logits.double().requires_grad_()
    plain = reference_r_drop_loss(exact[:, counts], labels[counts], train)
    (expected,) = torch.autograd.grad(plain.total, exact)
    loss, nll = cross_entropy_triton.cross_entropy_(
        logits, labels, smoothing_weights(classes, train), train.r_drop
    )
    assert loss.sum().item() == pytest.approx(plain.total.item(), rel=1e-5)
    assert nll.sum().item() == pytest.approx(plain.nll.item(), rel=1e-5)
    assert distance(logits, expected) < tolerance
    assert (logits[:, 3] == 0).all()
    assert torch.equal(buffer[:, 7:], rest)
    assert loss[3] == nll[3] == 0
