"""The training loss (5.4): cross-entropy against smoothed labels, without ever holding all the logits.

A smoothed label gives the right word a and every word b, a + K b = 1 (K words, e = label_smoothing):

    over "all"     b = e / K        the right word has 1 - e + e/K, the others e/K
    over "others"  b = e / (K - 1)  the right word has 1 - e, the others share e

so that the loss of a token whose right word is y, and its gradient by the logits z, are

    - a log p_y - b sum_k log p_k            p_k - a [k = y] - b

A batch may be read twice, each time with other numbers dropped, and the readings be told to agree (R-Drop,
Liang et al. 2021): with c = agreement and the probabilities p and q of the two, a token's loss is the mean of
both, and c times the mean of KL(p|q) = sum_k p_k (log p_k - log q_k) and KL(q|p). (Their alpha is 2 c, for
they add the losses up.) By the logits of p

    KL(p|q) has the gradient  p_k (log p_k - log q_k - KL(p|q)),     KL(q|p)  p_k - q_k

Shapes: M readings, T tokens, C tokens of a chunk, D = d_model, K = vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from manyheads.config import TrainConfig
from manyheads.errors import DataError
from manyheads.ops import dispatch as kernels

CHUNK_LOGITS = 2**24  # numbers of [M, C, K] held at once, twice (with two readings oftener): 64 MiB each
KERNEL_CHUNK_LOGITS = 5 * 2**26  # by the kernel, which needs them once: 640 MiB in bfloat16


@dataclass(frozen=True)
class Loss:
    """Sums, so that micro-batches and ranks add up; whoever updates divides by all their tokens."""

    total: Tensor  # the smoothed cross-entropy and what readings disagree on, summed; has the gradient
    nll: Tensor  # -log p of the right words: the negative log-likelihood, unsmoothed, summed
    tokens: int

    @property
    def perplexity(self) -> float:
        """Per subword, of the unsmoothed likelihood."""
        return self.nll.double().div(max(1, self.tokens)).exp().item()


def smoothing_weights(vocab_size: int, train: TrainConfig) -> tuple[float, float]:
    """(a, b): what the right word gets by itself, and what every word gets."""
    everyone = vocab_size if train.smoothing == "all" else vocab_size - 1
    b = train.label_smoothing / everyone
    return 1 - vocab_size * b, b


def smoothed_targets(labels: Tensor, vocab_size: int, train: TrainConfig) -> Tensor:
    """The target distribution itself, as the paper describes it. [T, K]"""
    a, b = smoothing_weights(vocab_size, train)
    return a * nn.functional.one_hot(labels, vocab_size).double() + b


def reference_loss(logits_TK: Tensor, labels_T: Tensor, train: TrainConfig) -> Loss:
    """The definition: what chunked_loss is tested against, and what a reader reads first."""
    log_p_TK = logits_TK.log_softmax(-1)
    target_TK = smoothed_targets(labels_T, logits_TK.shape[-1], train).to(log_p_TK.dtype)
    nll = -log_p_TK.gather(1, labels_T[:, None]).sum()
    return Loss(-(target_TK * log_p_TK).sum(), nll.detach(), len(labels_T))


def reference_r_drop_loss(logits_2TK: Tensor, labels_T: Tensor, train: TrainConfig) -> Loss:
    """The same of two readings: the mean of their losses, and how far they disagree."""
    first, second = (reference_loss(logits_TK, labels_T, train) for logits_TK in logits_2TK)
    log_p_TK, log_q_TK = logits_2TK.log_softmax(-1)
    apart = ((log_p_TK.exp() - log_q_TK.exp()) * (log_p_TK - log_q_TK)).sum() / 2
    total = (first.total + second.total) / 2 + train.r_drop * apart
    return Loss(total, (first.nll + second.nll) / 2, len(labels_T))


def chunked_loss(
    hidden_TD: Tensor,
    output: nn.Linear,
    labels_T: Tensor,
    train: TrainConfig,
    *,
    forward_passes: int = 1,
    chunk_logits: int | None = None,
) -> Loss:
    """The same over `model.hidden` and `model.output`, some tokens at a time.

    Of two readings, the second's hidden states follow the first's.
    """
    if len(hidden_TD) != forward_passes * len(labels_T):
        raise DataError(
            f"{len(hidden_TD)} hidden states, but {len(labels_T)} labels: there is one for each"
            + (" in each reading" if forward_passes > 1 else "")
        )
    chunk = max(1, (chunk_logits or max_chunk_logits(hidden_TD)) // output.out_features // forward_passes)
    goal = LossWeights(*smoothing_weights(output.out_features, train), train.r_drop)
    learning = torch.is_grad_enabled() and (hidden_TD.requires_grad or output.weight.requires_grad)
    hidden_MTD = hidden_TD.view(forward_passes, len(labels_T), hidden_TD.shape[1])
    inputs = hidden_MTD, output.weight, output.bias, labels_T
    total, nll = _ChunkedLoss.apply(*inputs, goal, chunk, learning)  # type: ignore[no-untyped-call]
    return Loss(total, nll, len(labels_T))


@dataclass(frozen=True)
class LossWeights:
    """What the loss asks for, by the letters above."""

    a: float
    b: float
    c: float


def max_chunk_logits(hidden_TD: Tensor) -> int:
    """That are held at once."""
    by_kernel = kernels.use_kernels(hidden_TD.new_empty(0, dtype=matmul_dtype(hidden_TD)))
    return KERNEL_CHUNK_LOGITS if by_kernel else CHUNK_LOGITS


class _ChunkedLoss(torch.autograd.Function):
    """A chunk's gradient is known as soon as its logits are: both are used and forgotten at once."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MTD: Tensor,
        weight_KD: Tensor,
        bias_K: Tensor | None,
        labels_T: Tensor,
        goal: LossWeights,
        chunk: int,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        device, dtype = hidden_MTD.device.type, matmul_dtype(hidden_MTD)
        with torch.autocast(device, enabled=False):
            total, nll, *gradients = chunked_cross_entropy(
                hidden_MTD.to(dtype),
                weight_KD.to(dtype),
                None if bias_K is None else bias_K.to(dtype),
                labels_T,
                goal,
                chunk,
                learning,
            )
        ctx.save_for_backward(*gradients)
        ctx.dtypes = [one.dtype for one in (hidden_MTD, weight_KD, bias_K) if one is not None]
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients: list[Tensor | None] = [
            (gradient * grad_total).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *gradients, *[None] * (7 - len(gradients))  # seven inputs, and these are the first


def matmul_dtype(hidden: Tensor) -> torch.dtype:
    """As autocast has it; but float64 stays, and float16 would lose gradients before anything scales them."""
    device, dtype = hidden.device.type, hidden.dtype
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    return torch.float32 if dtype == torch.float16 else dtype


def chunked_cross_entropy(
    hidden_MTD: Tensor,
    weight_KD: Tensor,
    bias_K: Tensor | None,
    labels_T: Tensor,
    goal: LossWeights,
    chunk: int,
    needs_gradient: bool,
) -> list[Tensor]:
    """The loss and the negative log-likelihood, summed; when learning, the gradients of the inputs too.

    Products are made in the dtype of the inputs, sums are kept in at least float32.
    """
    dtype = torch.promote_types(hidden_MTD.dtype, torch.float32)
    total, nll = (hidden_MTD.new_zeros((), dtype=dtype) for _ in range(2))
    gradients = []
    if needs_gradient:
        summed = [weight_KD] if bias_K is None else [weight_KD, bias_K]
        gradients = [torch.empty_like(hidden_MTD), *(torch.zeros_like(one, dtype=dtype) for one in summed)]
    logits_MCK = hidden_MTD.new_empty(len(hidden_MTD), min(chunk, len(labels_T)), len(weight_KD))
    serves = kernels.use_kernels(logits_MCK)
    judge = (
        fused_cross_entropy if serves else reference_cross_entropy(torch.empty_like(logits_MCK, dtype=dtype))
    )
    for first in range(0, len(labels_T), chunk):
        hidden_MCD, labels_C = hidden_MTD[:, first : first + chunk], labels_T[first : first + chunk]
        logits = logits_MCK[:, : len(labels_C)]
        for hidden_CD, room_CK in zip(hidden_MCD, logits, strict=True):
            torch.mm(hidden_CD, weight_KD.T, out=room_CK)
        if bias_K is not None:
            logits += bias_K
        chunk_total, chunk_nll, exact = judge(logits, labels_C, goal, needs_gradient)
        total += chunk_total
        nll += chunk_nll
        if needs_gradient:
            by_hidden_MTD, by_weight_KD, *by_bias_K = gradients
            by_hidden_MCD = by_hidden_MTD[:, first : first + chunk]
            by_logits = exact.to(hidden_MTD.dtype)
            for by_logits_CK, hidden_CD, room_CD in zip(by_logits, hidden_MCD, by_hidden_MCD, strict=True):
                torch.mm(by_logits_CK, weight_KD, out=room_CD)
                add_matmul(by_weight_KD, by_logits_CK.T, hidden_CD)
            for by_bias in by_bias_K:
                by_bias += exact.sum((0, 1), dtype=dtype)
    return [total, nll, *gradients]


Judge = Callable[[Tensor, Tensor, LossWeights, bool], tuple[Tensor, Tensor, Tensor]]


def reference_cross_entropy(room_MCK: Tensor) -> Judge:
    """The loss, -log p of the right words and, when learning, the gradient by the logits; in a given room."""

    def judge(
        logits: Tensor, labels_C: Tensor, goal: LossWeights, learning: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        readings = len(logits)
        log_p = torch.log_softmax(logits, -1, dtype=room_MCK.dtype, out=room_MCK[:, : len(labels_C)])
        nll = -log_p.gather(2, labels_C.expand(readings, -1)[..., None]).sum() / readings
        total = goal.a * nll - goal.b * log_p.sum() / readings
        if readings == 1:
            return total, nll, logit_gradient(log_p, labels_C, goal) if learning else log_p
        apart, by_apart = symmetric_kl(log_p)
        total += goal.c * apart
        if not learning:
            return total, nll, log_p
        return total, nll, logit_gradient(log_p, labels_C, goal).div_(readings).add_(by_apart, alpha=goal.c)

    return judge


def logit_gradient(log_p_MCK: Tensor, labels_C: Tensor, goal: LossWeights) -> Tensor:
    """p - a [k = y] - b, written over the log-probabilities. [M, C, K]"""
    gradient_MCK = log_p_MCK.exp_().sub_(goal.b)
    gradient_MCK[:, torch.arange(len(labels_C), device=labels_C.device), labels_C] -= goal.a
    return gradient_MCK


def symmetric_kl(log_p_2CK: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of KL(p|q) and KL(q|p), summed over tokens, and its gradient by the logits. [2, C, K]"""
    p_2CK, apart_2CK = log_p_2CK.exp(), log_p_2CK - log_p_2CK.flip(0)
    divergence_2C1 = (p_2CK * apart_2CK).sum(-1, keepdim=True)
    gradient_2CK = apart_2CK.sub_(divergence_2C1 - 1).mul_(p_2CK).sub_(p_2CK.flip(0)).div_(2)
    return divergence_2C1.sum() / 2, gradient_2CK


def fused_cross_entropy(
    logits_MCK: Tensor, labels_C: Tensor, goal: LossWeights, learning: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The same on a GPU, over the logits themselves. Labels of -1 do not count."""
    from manyheads.ops.cross_entropy_triton import cross_entropy_

    loss_C, nll_C = cross_entropy_(logits_MCK, labels_C, (goal.a, goal.b), goal.c)
    return loss_C.sum(), nll_C.sum(), logits_MCK


def add_matmul(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, without a temporary where the dtypes allow it."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
