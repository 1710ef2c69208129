"""Flash attention on a CUDA device against the reference in float64: values and gradients."""

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import manyheads as mh
from manyheads.ops import dispatch
from manyheads.ops.attention import attend
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.ops.dispatch import choose_attention
from manyheads.train.loss import chunked_loss, reference_loss

pytestmark = pytest.mark.gpu

HALF = [(torch.bfloat16, 1e-2), (torch.float16, 2e-3)]
LENGTHS = [[0, 1, 5], [1000, 1, 0, 37], [27, 31, 25, 29], [1], [0], [128, 129, 127, 64, 65]]


def text(lengths: list[int]) -> mh.Packed:
    return mh.Packed.of([[3] * length for length in lengths]).to("cuda")


def distance(a: Tensor, b: Tensor) -> float:
    """|a - b| / |b|, where |b| is at least 0.05 a number: over one key a softmax has no gradient at all."""
    a, b = a.double(), b.double()
    return ((a - b).norm() / b.norm().clamp(min=0.05 * b.numel() ** 0.5)).item()


def run(
    inputs: list[Tensor],
    weight: Tensor,
    queries: mh.Packed,
    keys: mh.Packed,
    spec: AttentionSpec,
    implementation: str,
) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    out = attend(leaves[0], leaves[1], leaves[2], queries, keys, spec, implementation=implementation)
    (out * weight.to(out.dtype)).sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize(("dtype", "tolerance"), HALF, ids=["bf16", "fp16"])
@pytest.mark.parametrize("widths", [(64, 64), (16, 64), (32, 64), (64, 24), (5, 3), (128, 128), (256, 256)])
@pytest.mark.parametrize(
    "variant", ["encoder", "decoder", "cross", "window", "causal window", "window of 1", "dot"]
)
def test_flash_attention_equals_the_reference(
    variant: str, widths: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    spec = AttentionSpec(
        "dot" if variant == "dot" else "scaled-dot",
        causal=variant in ("decoder", "causal window"),
        window=1 if variant == "window of 1" else 7 if "window" in variant else None,
    )
    rng = random.Random(f"{variant}{widths}")
    for lengths in LENGTHS:
        keys = text(lengths)
        queries = keys if variant != "cross" else text([rng.choice([0, 1, 9, 40]) for _ in lengths])
        heads, (d_k, d_v) = 3, widths
        size = 0.5 if variant == "dot" else 1.0  # unscaled products of wide heads leave the range of fp16
        q = (size * torch.randn(len(queries.tokens), heads, d_k, device="cuda")).to(dtype)
        k = (size * torch.randn(len(keys.tokens), heads, d_k, device="cuda")).to(dtype)
        v = torch.randn(len(keys.tokens), heads, d_v, device="cuda").to(dtype)
        if not len(q) or not len(v):
            continue
        weight = torch.randn(len(q), heads, d_v, device="cuda")
        assert choose_attention(q, v, spec, 2000) == "flash"
        fast = run([q, k, v], weight, queries, keys, spec, "flash")
        exact = run([x.double() for x in (q, k, v)], weight.to(dtype), queries, keys, spec, "reference")
        for name, a, b in zip(("out", "dq", "dk", "dv"), fast, exact, strict=True):
            assert a.isfinite().all(), (name, lengths)
            assert distance(a, b) < tolerance, (name, lengths)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_query_without_keys_gives_zeros(dtype: torch.dtype) -> None:
    queries, keys = text([2, 1, 0, 130]), text([0, 3, 0, 0])
    q = torch.randn(133, 2, 64, device="cuda").to(dtype)
    k, v = torch.randn(2, 3, 2, 64, device="cuda").to(dtype)
    out, dq, dk, dv = run(
        [q, k, v], torch.ones(133, 2, 64, device="cuda"), queries, keys, AttentionSpec(), "flash"
    )
    nothing = [0, 1, *range(3, 133)]
    assert (out[nothing] == 0).all()
    assert (dq[nothing] == 0).all()
    assert all(x.isfinite().all() for x in (out, dq, dk, dv))
    assert out[2].any()


def test_unsupported_inputs_take_the_padded_implementation() -> None:
    def at(width: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(3, 2, width, dtype=dtype, device="cuda")

    half = at(64, torch.bfloat16)
    assert choose_attention(half, half, AttentionSpec(), 2000) == "flash"
    assert choose_attention(half, half, AttentionSpec(), 100) == "triton"
    assert choose_attention(half, half, AttentionSpec(dropout=0.1)) == "padded"
    assert choose_attention(half, half, AttentionSpec("additive")) == "padded"
    assert choose_attention(half.float(), half.float(), AttentionSpec()) == "padded"
    assert choose_attention(at(264, torch.bfloat16), half, AttentionSpec()) == "padded"
    assert choose_attention(half[:0], half, AttentionSpec()) == "padded"


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_padded_model_on_a_gpu_equals_the_cpu(norm: str) -> None:
    config = mh.TransformerConfig(
        vocab_size=50, layers=2, d_model=32, d_ff=48, heads=4, norm=norm, dropout=0.0
    )
    model = mh.Transformer(config).double()
    source, target = mh.Packed.of([[3, 4, 2], [], [5, 2]]), mh.Packed.of([[1, 6], [1], [1, 7, 8, 9]])
    on_cpu = model(source, target)
    on_device = model.cuda()(source.to("cuda"), target.to("cuda"))
    torch.testing.assert_close(on_device.cpu(), on_cpu, atol=1e-10, rtol=1e-10)


def test_flash_attention_in_bf16_is_as_close_to_float64_as_padded_attention(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = mh.Transformer(replace(mh.presets.SMALL, vocab_size=500, dropout=0.0)).cuda()
    rng = random.Random(0)
    texts = [[rng.randrange(3, 500) for _ in range(rng.choice([0, 1, 20, 60]))] for _ in range(20)]
    source, target = (mh.Packed.of([[*t, 2] for t in side]).to("cuda") for side in (texts, texts[::-1]))

    def learn(implementation: str, exact: bool) -> list[Tensor]:
        monkeypatch.setattr(dispatch, "choose_attention", lambda *_: implementation)
        learner = model.double() if exact else model.float()
        learner.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not exact):
            hidden = learner.hidden(source, target)
            loss = chunked_loss(hidden, learner.output, target.tokens, mh.TrainConfig())
        loss.total.backward()
        return [loss.total.detach(), *(p.grad.clone() for p in learner.parameters())]

    exact, padded, flash = learn("reference", True), learn("padded", False), learn("flash", False)
    assert distance(flash[0], exact[0]) < 1e-3
    for plain, fast, truth in zip(padded, flash, exact, strict=True):
        assert distance(fast, truth) < 1.5 * distance(plain, truth) + 1e-3


def test_decoding_on_a_gpu_equals_the_full_forward() -> None:
    config = mh.TransformerConfig(vocab_size=50, layers=2, d_model=32, d_ff=48, heads=4, dropout=0.0)
    model = mh.Transformer(config).double().cuda().eval()
    sources, read = [[3, 4, 2], [5, 2]], [[1, 6, 7], [1, 8, 9], [1, 6, 6], [1, 10, 11]]
    state = model.start(model.encode(mh.Packed.of(sources).to("cuda")), beam=2)
    for step in range(3):
        logits, state = model.step(torch.tensor([row[step] for row in read], device="cuda"), state)
    row_sources = mh.Packed.of([source for source in sources for _ in range(2)]).to("cuda")
    full = model(row_sources, mh.Packed.of(read).to("cuda"))[[2, 5, 8, 11]]
    torch.testing.assert_close(logits, full, atol=1e-10, rtol=1e-10)


def test_the_chunked_loss_on_a_gpu_equals_the_reference() -> None:
    hidden = torch.randn(700, 64, device="cuda", requires_grad=True)
    output = torch.nn.Linear(64, 900, bias=False).cuda()
    labels = torch.randint(0, 900, (700,), device="cuda")
    chunked = chunked_loss(hidden, output, labels, mh.TrainConfig(), chunk_logits=100_000)
    fast = torch.autograd.grad(chunked.total, (hidden, output.weight))
    plain = reference_loss(output.double()(hidden.double()), labels, mh.TrainConfig())
    slow = torch.autograd.grad(plain.total, (hidden, output.weight))
    assert distance(chunked.total, plain.total) < 1e-5
    for a, b in zip(fast, slow, strict=True):
        assert distance(a, b) < 1e-4
