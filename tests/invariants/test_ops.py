"""The GPU's kernels against their definitions, values and gradients: on a CPU by Triton's interpreter."""

import copy
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytest.importorskip("triton", reason="Triton is not installed: its kernels cannot be interpreted")

import manyheads as mh
from manyheads.ops import (
    add_norm_triton,
    decode_attention,
    decode_attention_triton,
    dispatch,
    dropout_seeds,
    feed_forward_triton,
    linear_triton,
    stripes_triton,
)
from manyheads.ops.attention import attend
from manyheads.ops.attention_add_norm import attention_add_norm
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.ops.split import concat, split
from support.kernel_checks import DEVICE, all_dtypes, distance, gradients, normal


def text(lengths: list[int]) -> mh.Packed:
    return mh.Packed.of([[3] * length for length in lengths]).to(DEVICE)


# ---- attention


@all_dtypes
@pytest.mark.parametrize(
    ("causal", "window"), [(False, None), (True, None), (False, 7), (True, 4), (False, 1)]
)
@pytest.mark.parametrize("widths", [(16, 16), (24, 20), (64, 64), (5, 72)])
def test_triton_self_attention_equals_the_reference(
    causal: bool, window: int | None, widths: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    rng = random.Random(f"{causal}{window}{widths}")
    lengths = [rng.choice([0, 1, 2, 9, 31, 70]) for _ in range(5)]
    compare(text(lengths), None, AttentionSpec(causal=causal, window=window), widths, dtype, tolerance)


@all_dtypes
@pytest.mark.parametrize(
    ("queries", "keys"),
    [([3, 0, 40, 5], [0, 7, 33, 90]), ([1], [1]), ([0, 0, 2], [3, 0, 0]), ([65, 64, 63], [2, 130, 1])],
)
def test_triton_cross_attention_equals_the_reference(
    queries: list[int], keys: list[int], dtype: torch.dtype, tolerance: float
) -> None:
    compare(text(queries), text(keys), AttentionSpec(), (32, 32), dtype, tolerance)


def test_long_sentences_take_several_tiles() -> None:
    lengths = [1000, 1, 0, 37] if DEVICE == "cuda" else [200, 1, 0, 37]  # the interpreter is slow
    compare(text(lengths), None, AttentionSpec(causal=True), (16, 16), torch.float32, 1e-5)


def compare(
    queries: mh.Packed,
    others: mh.Packed | None,
    rule: AttentionSpec,
    widths: tuple[int, int],
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    keys = queries if others is None else others
    d_k, d_v = widths
    q, k = normal(len(queries.tokens), 2, d_k, dtype=dtype), normal(len(keys.tokens), 2, d_k, dtype=dtype)
    v, weight = normal(len(keys.tokens), 2, d_v, dtype=dtype), normal(len(queries.tokens), 2, d_v)
    ours = [x.requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    fast = gradients(
        attend(ours[0], ours[1], ours[2], queries, keys, rule, implementation="triton"), weight, ours
    )
    plain = gradients(
        attend(exact[0], exact[1], exact[2], queries, keys, rule, implementation="reference"), weight, exact
    )
    for name, a, b in zip(("out", "d_q", "d_k", "d_v"), fast, plain, strict=True):
        assert a.isfinite().all(), name
        assert distance(a, b) < tolerance, name


@all_dtypes
@pytest.mark.parametrize("pattern", ["self", "causal", "cross"])
@pytest.mark.parametrize("widths", [(16, 16), (8, 24)])
def test_attention_add_norm_equals_its_parts(
    pattern: str, widths: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    queries, width, heads = text([70, 0, 3, 31]), 32, 2
    keys = text([5, 2, 66, 40]) if pattern == "cross" else queries
    spec, (d_k, d_v) = AttentionSpec(causal=pattern == "causal"), widths
    x, memory = normal(104, width, dtype=dtype), normal(113, width, dtype=dtype)
    layers = [nn.Linear(width, heads * d) for d in (d_k, d_k, d_v)] + [nn.Linear(heads * d_v, width)]
    modules = nn.ModuleList([*layers, nn.LayerNorm(width)]).to(DEVICE)
    for parameter in modules.parameters():
        shift = 0.25 if parameter.dim() == 1 else 0.0  # no bias is zero, no gain is one
        parameter.data = (parameter.data + shift).to(dtype).float()
    norm, upstream = modules[-1], normal(104, width)
    leaves = [x, *([memory] if pattern == "cross" else []), *modules.parameters()]
    ours = [tensor.requires_grad_() for tensor in leaves]
    projections, output, no_dropout = [*modules[:3]], modules[3], nn.Dropout(0.0)
    given = memory if pattern == "cross" else None
    fast = gradients(
        attention_add_norm(
            x,
            given,
            projections,
            output,
            heads,
            queries,
            keys,
            spec,
            norm,
            no_dropout,  # type: ignore[arg-type]
        ),
        upstream,
        ours,
    )
    exact = copy.deepcopy(modules).double()
    x, memory = (tensor.detach().double().requires_grad_() for tensor in (x, memory))
    others = x if pattern != "cross" else memory
    q, k, v = (
        layer(tokens).unflatten(1, (heads, -1))
        for layer, tokens in zip(exact[:3], (x, others, others), strict=True)
    )
    h = exact[3](attend(q, k, v, queries, keys, spec, implementation="reference").flatten(1))
    leaves = [x, *([memory] if pattern == "cross" else []), *exact.parameters()]
    plain = gradients(exact[4](x + h), upstream, leaves)
    names = ["y", "d_x", *(["d_memory"] if pattern == "cross" else [])]
    names += [f"d_{name}" for name, _ in modules.named_parameters()]
    for name, a, b in zip(names, fast, plain, strict=True):
        assert a.isfinite().all(), name
        is_zero = name == "d_1.bias"  # a number added to all keys changes no softmax: only rounding is left
        assert distance(a, b) < (100 if is_zero else 10) * tolerance, name


def test_attention_add_norm_refuses_texts_of_different_sentence_counts() -> None:
    layers, x = [nn.Linear(8, 8) for _ in range(4)], normal(3, 8)
    norm, dropout = nn.LayerNorm(8), nn.Dropout(0.0)
    with pytest.raises(mh.DataError, match="2 target sentences, but 1 source"):
        attention_add_norm(
            x, x, layers[:3], layers[3], 2, text([1, 2]), text([3]), AttentionSpec(), norm, dropout
        )


def test_gradients_of_split_projections_are_not_copied() -> None:
    """q, k and v of self-attention are parts of one tensor, and so are their gradients: nothing is copied."""
    sentences = text([4, 9])
    projection = normal(13, 3 * 16).requires_grad_()
    parts = [part.view(13, 2, 8) for part in split(projection, [16, 16, 16])]
    out = attend(parts[0], parts[1], parts[2], sentences, sentences, AttentionSpec(), implementation="triton")
    weight = normal(*out.shape)
    plain = [part.view(13, 2, 8) for part in projection.split(16, -1)]
    expected = attend(
        plain[0], plain[1], plain[2], sentences, sentences, AttentionSpec(), implementation="reference"
    )
    (ours,), (theirs,) = (torch.autograd.grad((x * weight).sum(), projection) for x in (out, expected))
    assert distance(ours, theirs) < 1e-5
    pieces = torch.randn(6, 5, device=DEVICE)
    back = split(projection[:6, :5], [2, 3])[0].grad_fn.apply(pieces[:, :2], pieces[:, 2:])[0]  # type: ignore[attr-defined]
    assert back.data_ptr() == pieces.data_ptr()
    apart = split(projection[:6, :5], [2, 3])[0].grad_fn.apply(pieces[:, 2:4], pieces[:, :3])[0]  # type: ignore[attr-defined]
    assert torch.equal(apart, torch.cat((pieces[:, 2:4], pieces[:, :3]), 1))


def test_adjacent_weights_are_concatenated_without_a_copy() -> None:
    memory = normal(9, 4)
    parts = [memory[:2].requires_grad_(), memory[2:5].requires_grad_(), memory[5:].requires_grad_()]
    whole, upstream = concat(parts), normal(9, 4)
    assert whole.data_ptr() == memory.data_ptr()
    assert torch.equal(whole, memory)
    for gradient, expected in zip(
        torch.autograd.grad(whole, parts, upstream), upstream.split([2, 3, 4]), strict=True
    ):
        assert torch.equal(gradient, expected)
    for apart in (parts[::-1], [parts[0], parts[2]], [parts[0], parts[1].detach().clone()]):
        assert torch.equal(concat(apart), torch.cat(apart))


# ---- add_norm


@all_dtypes
@pytest.mark.parametrize(
    ("tokens", "width"), [(37, 48), (1, 16), (9, 512), (3000 if DEVICE == "cuda" else 70, 130)]
)
def test_add_norm_equals_the_reference(tokens: int, width: int, dtype: torch.dtype, tolerance: float) -> None:
    inputs = [normal(tokens, width), normal(tokens, width, dtype=dtype), normal(width), normal(width)]
    ours = [x.requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    weight = normal(tokens, width)
    fast = gradients(add_norm_triton.add_norm(ours[0], ours[1], ours[2], ours[3], 1e-5, 0.0), weight, ours)
    x, h, gain, bias = exact
    plain = gradients(F.layer_norm(x + h, (width,), gain, bias, 1e-5), weight, exact)
    for name, a, b in zip(("y", "d_x", "d_h", "d_gain", "d_bias"), fast, plain, strict=True):
        assert distance(a, b) < tolerance, name


def test_dropout_masks_repeat_in_the_backward_pass_and_follow_the_seed() -> None:
    gain, bias = torch.ones(256, device=DEVICE), torch.zeros(256, device=DEVICE)
    h = torch.ones(300, 256, device=DEVICE, requires_grad=True)
    masks = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        y = add_norm_triton.add_norm(torch.zeros_like(h), h, gain, bias, 1e-5, 0.3)
        (d_h,) = torch.autograd.grad(y, h, torch.randn_like(y))
        dropped = y < 0  # a sum of zeros and equal numbers: the smaller ones
        assert torch.equal(d_h == 0, dropped)
        masks.append(dropped)
    assert torch.equal(masks[0], masks[1])
    shares = masks[2].float()
    assert shares.mean().item() == pytest.approx(0.3, abs=0.01)
    for side in (0, 1):  # by row and by column, within the error of sampling
        count = shares.shape[side]
        assert shares.mean(side).std().item() == pytest.approx((0.21 / count) ** 0.5, rel=0.25)
    both = (masks[0] & masks[2]).float().mean().item()
    assert both == pytest.approx(0.09, abs=0.01), "another seed, another choice"
    neighbors = (masks[2][:, 1:] & masks[2][:, :-1]).float().mean().item()
    assert neighbors == pytest.approx(0.09, abs=0.01)


def test_seeds_drawn_together_differ_and_follow_the_generator() -> None:
    def draw(count: int) -> list[Tensor]:
        torch.manual_seed(3)
        with dropout_seeds.drawing_together():
            return [dropout_seeds.dropout_seed(torch.device(DEVICE), 0.1) for _ in range(count)]

    seeds = draw(dropout_seeds.SEEDS_AT_ONCE + 10)
    assert len({tuple(seed.tolist()) for seed in seeds}) == len(seeds)
    assert all(seed.data_ptr() % 16 == 0 for seed in seeds), "another address would be another kernel"
    for ours, again in zip(seeds, draw(len(seeds)), strict=True):
        assert torch.equal(ours, again)
    alone = [dropout_seeds.dropout_seed(torch.device(DEVICE), 0.1) for _ in range(2)]
    assert not torch.equal(*alone)


@all_dtypes
@pytest.mark.parametrize(("tokens", "inputs", "width"), [(37, 24, 48), (1, 8, 16), (70, 96, 130)])
def test_linear_add_norm_equals_the_reference(
    tokens: int, inputs: int, width: int, dtype: torch.dtype, tolerance: float
) -> None:
    tensors = [
        normal(tokens, width),
        normal(tokens, inputs, dtype=dtype),
        (normal(width, inputs) * inputs**-0.5).to(dtype),
        normal(width, dtype=dtype),
        normal(width),
        normal(width),
    ]
    ours = [tensor.requires_grad_() for tensor in tensors]
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    weight = normal(tokens, width)
    fast = gradients(add_norm_triton.linear_add_norm(*ours, 1e-5, 0.0), weight, ours)  # type: ignore[call-arg]
    x, h, linear_weight, linear_bias, norm_weight, norm_bias = exact
    summed = x + F.linear(h, linear_weight, linear_bias)
    plain = gradients(F.layer_norm(summed, (width,), norm_weight, norm_bias, 1e-5), weight, exact)
    names = ("y", "d_x", "d_h", "d_linear_weight", "d_linear_bias", "d_weight", "d_bias")
    for name, a, b in zip(names, fast, plain, strict=True):
        assert a.isfinite().all(), name
        assert distance(a, b) < tolerance, name


@all_dtypes
@pytest.mark.parametrize(("tokens", "width", "inner"), [(37, 16, 24), (150, 64, 256), (129, 128, 128)])
def test_feed_forward_add_norm_equals_the_reference(
    tokens: int, width: int, inner: int, dtype: torch.dtype, tolerance: float
) -> None:
    """Widths that the kernel takes, and some that it leaves to cuBLAS."""
    x, weight_1, bias_1 = normal(tokens, width), normal(inner, width) * width**-0.5, normal(inner)
    weight_2, bias_2 = normal(width, inner) * inner**-0.5, normal(width)
    ours = [t.to(dtype).requires_grad_() for t in (x, weight_1, bias_1, weight_2, bias_2)]
    ours += [normal(width).requires_grad_(), normal(width).requires_grad_()]
    exact = [tensor.detach().double().requires_grad_() for tensor in ours]
    weight = normal(tokens, width)
    pairs = [(ours[index], ours[index + 1]) for index in (1, 3, 5)]
    fast = gradients(
        feed_forward_triton.feed_forward_add_norm(ours[0], pairs[0], pairs[1], pairs[2], 1e-5, 0.0),
        weight,
        ours,
    )
    h = F.linear(F.linear(*exact[:3]).relu(), *exact[3:5])
    plain = gradients(F.layer_norm(exact[0] + h, (width,), exact[5], exact[6], 1e-5), weight, exact)
    names = ("y", "d_x", "d_weight_1", "d_bias_1", "d_weight_2", "d_bias_2", "d_weight", "d_bias")
    for name, a, b in zip(names, fast, plain, strict=True):
        assert a.isfinite().all(), name
        assert distance(a, b) < tolerance, name


def test_linear_add_norm_is_a_linear_map_and_an_add_norm_with_the_same_dropout() -> None:
    x, h, weight = normal(50, 32), normal(50, 24), normal(32, 24).requires_grad_()
    bias, norm_weight, norm_bias = normal(32).requires_grad_(), normal(32), normal(32)
    upstream = normal(50, 32)
    torch.manual_seed(3)
    fused = add_norm_triton.linear_add_norm(x, h, weight, bias, norm_weight, norm_bias, 1e-5, 0.3)
    torch.manual_seed(3)
    parts = add_norm_triton.add_norm(x, F.linear(h, weight, bias), norm_weight, norm_bias, 1e-5, 0.3)
    assert distance(fused, parts) < 1e-5
    for ours, theirs in zip(
        torch.autograd.grad(fused, (weight, bias), upstream),
        torch.autograd.grad(parts, (weight, bias), upstream),
        strict=True,
    ):
        assert distance(ours, theirs) < 1e-5


def test_gradients_changed_in_place_reach_the_bias_gradient() -> None:
    """The output of a linear map has two users, and its gradient is doubled in place."""
    inputs, weight, bias, x = normal(50, 24), normal(32, 24), normal(32), normal(50, 32)
    norm_weight, norm_bias, upstream = normal(32), normal(32), normal(2, 50, 32)

    def bias_gradient(dtype: torch.dtype, linear: Any, add_norm: Any) -> Tensor:
        own = bias.to(dtype).requires_grad_()
        h = linear(inputs.to(dtype), weight.to(dtype), own)
        h.register_hook(lambda gradient: gradient.mul_(2))
        y = add_norm(x.to(dtype), h, norm_weight.to(dtype), norm_bias.to(dtype))
        (gradient,) = torch.autograd.grad((y * upstream[0] + h * upstream[1]).sum(), own)
        return gradient

    ours = bias_gradient(
        torch.float32,
        linear_triton.linear,
        lambda x, h, gain, bias: add_norm_triton.add_norm(x, h, gain, bias, 1e-5, 0.0),
    )
    expected = bias_gradient(
        torch.float64, F.linear, lambda x, h, gain, bias: F.layer_norm(x + h, (32,), gain, bias, 1e-5)
    )
    assert distance(ours, expected) < 1e-5


def test_no_gradient_carries_attributes() -> None:
    """A sum stored on a gradient would be wrong as soon as autograd adds to the gradient in place."""
    h = normal(50, 32).requires_grad_()
    seen: list[Tensor] = []
    y = add_norm_triton.add_norm(normal(50, 32), h, normal(32), normal(32), 1e-5, 0.1)
    h.register_hook(lambda gradient: seen.append(gradient))
    y.backward(normal(50, 32))
    assert not vars(seen[0])


# ---- linear


@all_dtypes
@pytest.mark.parametrize("closes", [True, False])
def test_the_backward_kernel_of_linear_masks_by_relu_and_sums(
    closes: bool, dtype: torch.dtype, tolerance: float
) -> None:
    arrived, out = normal(130, 300, dtype=dtype), normal(130, 300, dtype=dtype).relu()
    passed, summed = linear_triton.relu_backward_and_sum(arrived, out if closes else None)
    expected = arrived * (out > 0) if closes else arrived
    assert torch.equal(passed, expected)
    assert distance(summed, expected.double().sum(0)) < tolerance


@all_dtypes
@pytest.mark.parametrize("shape", [(1, 3, 40), (3, 600, 16), (3, 1100, 24)])
def test_stripes_are_summed_and_only_the_last_gradient_is_rounded(
    shape: tuple[int, int, int], dtype: torch.dtype, tolerance: float
) -> None:
    sums = normal(*shape)
    totals = stripes_triton.sum_stripes(sums, dtype)
    assert [total.dtype for total in totals] == [torch.float32] * (shape[0] - 1) + [dtype]
    for total, expected in zip(totals, sums.double().sum(1), strict=True):
        assert distance(total, expected) < (2e-5 if total.dtype == torch.float32 else tolerance)


# ---- the whole model


@pytest.mark.parametrize(
    ("changes", "fused"),
    [
        ({}, True),
        ({}, False),
        ({"norm": "pre"}, True),
        ({"activation": "gelu"}, True),
        ({"experts": 2}, True),
    ],
)
def test_a_model_over_the_kernels_equals_the_plain_model(
    changes: dict[str, Any], fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(5)
    config = mh.TransformerConfig(
        **{"vocab_size": 20, "layers": 1, "d_model": 16, "d_ff": 24, "heads": 2, "dropout": 0.0, **changes}
    )
    model = mh.Transformer(config).to(DEVICE)
    source, target = text([3, 0, 5]), text([4, 2, 1])
    weight = normal(7, 16)

    def values_and_gradients() -> list[Tensor]:
        hidden = model.hidden(source, target)
        used = [parameter for name, parameter in model.named_parameters() if not name.startswith("output")]
        return [hidden.detach(), *torch.autograd.grad((hidden * weight).sum(), used, allow_unused=True)]

    plain = values_and_gradients()
    monkeypatch.setattr(dispatch, "use_kernels", lambda _: True)
    monkeypatch.setattr(dispatch, "choose_attention", lambda *_: "triton")
    monkeypatch.setattr(dispatch, "stack_projections", lambda _: True)
    monkeypatch.setattr(dispatch, "fuse_attention", lambda *_: fused)
    monkeypatch.setattr(dispatch, "use_embedding_kernel", lambda _: True)
    monkeypatch.setattr(dispatch, "embedding_dtype", lambda *_: torch.float32)
    for ours, theirs in zip(values_and_gradients(), plain, strict=True):
        assert distance(ours, theirs) < 1e-4


# ---- decoding steps


@all_dtypes
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("widths", [(16, 16), (24, 20)])
def test_a_step_over_the_static_cache_equals_the_reference(
    window: int | None, widths: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    """Rows of different lengths, whose past lies in other rows of the cache; keys and values are appended."""
    d_k, d_v = widths
    rows, capacity, heads = 6, 41, 2
    q, k = normal(2, rows, heads, d_k, dtype=dtype)
    v = normal(rows, heads, d_v, dtype=dtype)
    caches = [normal(8, capacity, heads, width, dtype=dtype) for width in widths]
    lengths = torch.tensor([0, 1, 7, 33, 39, 40], device=DEVICE)
    own = torch.arange(rows, dtype=torch.int32, device=DEVICE)[:, None].expand(-1, capacity)
    elsewhere = torch.randint_like(own, rows, 8)  # rows that this step does not write
    ancestors = torch.where(torch.rand(rows, capacity, device=DEVICE) < 0.5, own, elsewhere)
    results = []
    for step in (decode_attention_triton.decode_self_attention, decode_attention.reference_self_attention):
        keys, values = (cache.clone() for cache in caches)
        out = step(q, k, v, keys, values, ancestors, lengths, 0.3, window)
        results.append((out, keys, values))
    (out, keys, values), (plain_out, plain_keys, plain_values) = results
    assert distance(out, plain_out) < tolerance
    assert torch.equal(keys, plain_keys)
    assert torch.equal(values, plain_values)
    assert torch.equal(keys[torch.arange(rows), lengths], k)


@all_dtypes
def test_a_step_over_packed_sources_equals_the_reference(dtype: torch.dtype, tolerance: float) -> None:
    keys, values = normal(120, 2, 24, dtype=dtype), normal(120, 2, 20, dtype=dtype)
    starts, lengths = torch.tensor([0, 5, 50, 50], device=DEVICE), torch.tensor([5, 45, 0, 70], device=DEVICE)
    q = normal(12, 2, 24, dtype=dtype)
    out = decode_attention_triton.decode_cross_attention(q, keys, values, starts, lengths, 0.3)
    plain = decode_attention.reference_cross_attention(q, keys, values, starts, lengths, 0.3)
    assert distance(out, plain) < tolerance
    assert (out[6:9] == 0).all()  # an empty source
    no_tokens = torch.zeros_like(lengths)
    assert (decode_attention.reference_cross_attention(q, keys, values, starts, no_tokens, 0.3) == 0).all()


def test_every_kernel_compiles_for_a_gpu() -> None:
    """The interpreter takes what the compiler may not; compiling needs no GPU."""
    script = Path(__file__).with_name("compiled_kernels.py")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env={**os.environ, "TRITON_INTERPRET": "0"}
    )
    assert done.returncode == 0, done.stderr
    written = "".join(path.read_text() for path in Path(dispatch.__file__).parent.glob("*.py"))
    launched = set(re.findall(r"^\s+(\w+)\[\(", written, re.MULTILINE))
    assert launched == set(done.stdout.split())
