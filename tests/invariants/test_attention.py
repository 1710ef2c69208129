from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import manyheads as mh
from manyheads.ops import attention_spec
from manyheads.ops.attention import attend
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.ops.dispatch import choose_attention, flash_supports
from support.strategies import attention_problems, random_tensor


def values_and_gradients(problem: dict[str, Any], implementation: str) -> list[Tensor]:
    """What `attend` gives, and the gradient of a fixed random sum of it by each input."""
    inputs = [problem["q_THK"], problem["k_SHK"], problem["v_SHV"]]
    if problem["spec"].energy_HK is not None:
        inputs.append(problem["spec"].energy_HK)
    out = attend(**problem, implementation=implementation)
    torch.manual_seed(1)
    gradients = torch.autograd.grad((out * torch.randn_like(out)).sum(), inputs, allow_unused=True)
    unused = [torch.zeros_like(x) for x in inputs]
    return [out, *(zero if g is None else g for g, zero in zip(gradients, unused, strict=True))]


@given(attention_problems())
def test_padded_attention_equals_the_reference(problem: dict[str, Any]) -> None:
    for fast, plain in zip(
        values_and_gradients(problem, "padded"), values_and_gradients(problem, "reference"), strict=True
    ):
        torch.testing.assert_close(fast, plain, atol=1e-10, rtol=1e-10)


@given(attention_problems(), st.integers(1, 8), st.integers(1, 4))
def test_banded_attention_equals_the_reference(problem: dict[str, Any], window: int, block: int) -> None:
    """Blocks so small that sentences cross them, and that several sentences lie in a block."""
    if problem["queries"] is not problem["keys"]:
        return
    problem["spec"] = replace(problem["spec"], window=window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_spec, "BAND_MIN_BLOCK", block)
        fast = values_and_gradients(problem, "banded")
    for ours, plain in zip(fast, values_and_gradients(problem, "reference"), strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-10, rtol=1e-10)


def test_narrow_windows_choose_the_banded_implementation() -> None:
    """A block and its neighbors in reach are 32 + 32 + 32 keys here; twice that is enough."""
    q = torch.zeros(1, 1, 4)
    assert choose_attention(q, q, AttentionSpec(window=64), 192) == "banded"
    assert choose_attention(q, q, AttentionSpec(window=64), 191) == "padded"
    assert choose_attention(q, q, AttentionSpec(window=64, causal=True), 128) == "banded"
    assert choose_attention(q, q, AttentionSpec(), 10_000) == "padded"


def reference_varlen_attn(
    q: Tensor, k: Tensor, v: Tensor, q_ends: Tensor, k_ends: Tensor, *_: int, scale: float, window_size: Any
) -> Tensor:
    """varlen_attn as torch documents it, sentence by sentence: a width, a scale, a (left, right) window."""
    assert q.shape[-1] == k.shape[-1] == v.shape[-1]
    assert q.shape[-1] % 8 == 0
    out = []
    for s in range(len(q_ends) - 1):
        mine, theirs = slice(q_ends[s], q_ends[s + 1]), slice(k_ends[s], k_ends[s + 1])
        scores = torch.einsum("qhd,khd->hqk", q[mine], k[theirs]) * scale
        ahead = torch.arange(scores.shape[2]) - torch.arange(scores.shape[1])[:, None]
        left, right = (10**6 if size < 0 else size for size in window_size)
        scores = scores.masked_fill((ahead < -left) | (ahead > right), -torch.inf)
        out.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[theirs]))
    return torch.cat(out)


@given(attention_problems())
def test_flash_attention_calls_its_kernel_correctly(problem: dict[str, Any]) -> None:
    """The kernel itself is judged on a GPU; here it is what torch documents, in float64."""
    if problem["spec"].score == "additive" or not len(problem["queries"]):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.nn.attention.varlen.varlen_attn", reference_varlen_attn)
        fused = values_and_gradients(problem, "flash")
    for fast, plain in zip(fused, values_and_gradients(problem, "reference"), strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-10, rtol=1e-10)


@given(attention_problems())
def test_weights_of_a_query_sum_to_one_over_visible_keys(problem: dict[str, Any]) -> None:
    maps: list[Tensor] = []
    attend(**problem, maps=maps)
    rule, lengths = problem["spec"], problem["keys"].lengths.tolist()
    assert len(maps) == len(lengths)
    for weights_HQL, keys in zip(maps, lengths, strict=True):
        assert weights_HQL.shape[2] == keys
        if keys:
            torch.testing.assert_close(weights_HQL.sum(-1), torch.ones_like(weights_HQL[:, :, 0]))
        for i in range(weights_HQL.shape[1]):
            for j in range(keys):
                hidden = (rule.causal and j > i) or (rule.window and abs(i - j) > rule.window // 2)
                assert not hidden or (weights_HQL[:, i, j] == 0).all()


@pytest.mark.parametrize("implementation", ["reference", "padded"])
@pytest.mark.parametrize("score", ["scaled-dot", "dot", "additive"])
def test_a_query_without_keys_gives_zeros(implementation: str, score: str) -> None:
    queries, keys = mh.Packed.of([[1, 2], [3], []]), mh.Packed.of([[], [4, 5, 6], []])
    rule = AttentionSpec(score, energy_HK=random_tensor(2, 4) if score == "additive" else None)
    q, k, v = random_tensor(3, 2, 4), random_tensor(3, 2, 4), random_tensor(3, 2, 5)
    out = attend(q, k, v, queries, keys, rule, implementation=implementation)
    assert (out[:2] == 0).all()
    assert (out[2] != 0).any()
    out.square().sum().backward()
    for gradient in (q.grad, k.grad, v.grad):
        assert gradient.isfinite().all()
    assert (q.grad[:2] == 0).all()


@pytest.mark.parametrize("implementation", ["reference", "padded"])
def test_a_batch_without_keys_gives_zeros(implementation: str) -> None:
    queries, keys = mh.Packed.of([[1, 2], [3]]), mh.Packed.of([[], []])
    q, empty = random_tensor(3, 2, 4), random_tensor(0, 2, 4)
    out = attend(q, empty, empty, queries, keys, AttentionSpec(), implementation=implementation)
    out.sum().backward()
    assert (out == 0).all()
    assert (q.grad == 0).all()


@pytest.mark.parametrize("score", ["scaled-dot", "dot", "additive"])
@pytest.mark.parametrize("causal", [True, False])
def test_narrow_windows_over_sentences_of_very_different_lengths(score: str, causal: bool) -> None:
    """In the padded view the filler behind the short sentence is too far from it to see any of it."""
    text = mh.Packed.of([[1], [2] * 9, []])
    energy = random_tensor(2, 3) if score == "additive" else None
    shapes = {"q_THK": (10, 2, 3), "k_SHK": (10, 2, 3), "v_SHV": (10, 2, 4)}
    problem: dict[str, Any] = {name: random_tensor(*shape) for name, shape in shapes.items()}
    problem |= {
        "queries": text,
        "keys": text,
        "spec": AttentionSpec(score, causal, window=2, energy_HK=energy),
    }
    for fast, plain in zip(
        values_and_gradients(problem, "padded"), values_and_gradients(problem, "reference"), strict=True
    ):
        torch.testing.assert_close(fast, plain, atol=1e-10, rtol=1e-10)


def test_hand_computed_attention() -> None:
    """Two keys with scores 0 and ln 3 get 1/4 and 3/4 of the weight."""
    text, query = mh.Packed.of([[1, 2]]), mh.Packed.of([[1]])
    q = torch.tensor([[[2.0]]])
    k = torch.tensor([[[0.0]], [[torch.tensor(3.0).log() / 2]]])
    v = torch.tensor([[[8.0]], [[16.0]]])
    for implementation in ("reference", "padded"):
        assert attend(
            q, k, v, query, text, AttentionSpec(), implementation=implementation
        ).item() == pytest.approx(14.0)


def test_scaled_dot_attention_divides_by_the_root_of_d_k() -> None:
    text = mh.Packed.of([[1, 2, 3]])
    q, k, v = random_tensor(3, 1, 16), random_tensor(3, 1, 16), random_tensor(3, 1, 2)
    for implementation in ("reference", "padded"):
        scaled = attend(q, k, v, text, text, AttentionSpec("scaled-dot"), implementation=implementation)
        torch.testing.assert_close(
            scaled, attend(q / 4, k, v, text, text, AttentionSpec("dot"), implementation=implementation)
        )


@given(attention_problems())
def test_collecting_maps_changes_no_bit(problem: dict[str, Any]) -> None:
    for implementation in ("reference", "padded"):
        maps: list[Tensor] = []
        assert torch.equal(
            attend(**problem, implementation=implementation),
            attend(**problem, implementation=implementation, maps=maps),
        )


def test_dropout_of_weights_keeps_their_mean() -> None:
    text = mh.Packed.of([[0] * 2000])
    q, k = torch.zeros(2000, 1, 2), torch.zeros(2000, 1, 2)
    v = torch.ones(2000, 1, 2)
    for implementation in ("reference", "padded"):
        out = attend(q, k, v, text, text, AttentionSpec(dropout=0.25), implementation=implementation)
        assert out.mean().item() == pytest.approx(1, abs=0.01)
        assert out.std().item() > 0.001


def test_causal_attention_between_two_texts_is_refused() -> None:
    here, there = mh.Packed.of([[1]]), mh.Packed.of([[1]])
    q = random_tensor(1, 1, 1)
    with pytest.raises(ValueError, match="one and the same text"):
        attend(q, q, q, here, there, AttentionSpec(causal=True))


def test_queries_and_keys_need_as_many_sentences() -> None:
    single, three = mh.Packed.of([[1]]), mh.Packed.of([[1], [2], [3]])
    for implementation in ("reference", "padded"):
        for queries, keys in ((single, three), (three, single)):
            q, k = random_tensor(len(queries), 1, 1), random_tensor(len(keys), 1, 1)
            counts = f"{len(queries)} target sentences, but {len(keys)} source sentences"
            with pytest.raises(mh.DataError, match=counts):
                attend(q, k, k, queries, keys, AttentionSpec(), implementation=implementation)


@pytest.mark.parametrize("score", ["scaled-dot", "additive"])
def test_maps_have_no_gradient(score: str) -> None:
    text = mh.Packed.of([[1, 2]])
    maps: list[Tensor] = []
    q = random_tensor(2, 1, 3)
    attend(q, q, q, text, text, AttentionSpec(score, energy_HK=random_tensor(1, 3)), maps=maps)
    assert not maps[0].requires_grad


def test_flash_attention_supports_narrow_heads_in_half_precision() -> None:
    half = torch.zeros(3, 2, 256, dtype=torch.bfloat16)
    assert flash_supports(half, half, AttentionSpec())
    assert flash_supports(half.half(), half.half(), AttentionSpec("dot", causal=True, window=3))
    assert not flash_supports(half.float(), half.float(), AttentionSpec())
    assert not flash_supports(half, half, AttentionSpec(dropout=0.1))
    assert not flash_supports(half, half, AttentionSpec("additive"))
    assert not flash_supports(half, torch.zeros(3, 2, 257, dtype=torch.bfloat16), AttentionSpec())
    assert not flash_supports(half[:0], half, AttentionSpec())
    assert not flash_supports(half, half[:0], AttentionSpec())
    assert choose_attention(half, half, AttentionSpec()) == "padded"  # there is no kernel on a CPU
