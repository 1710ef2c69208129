"""Baselines on a GPU: the same losses, gradients and translations as on a CPU."""

import copy
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads.config import EOS_ID
from manyheads.inference.engine import decode_all
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model import build_model
from manyheads.model.layers import Experts
from manyheads.search.options import DecodingConstraints
from manyheads.train.objective import Objective
from support.strategies import randomize_weights

pytestmark = pytest.mark.gpu

SIZES: dict[str, Any] = {"vocab_size": 60, "layers": 3, "d_model": 64, "d_ff": 96, "dropout": 0.0}
MODELS = {
    "lstm": mh.RecurrentConfig(attention="additive", **SIZES),
    "gru-dot": mh.RecurrentConfig(cell="gru", attention="dot", **SIZES),
    "rnn-alone": mh.RecurrentConfig(cell="rnn", attention="none", **SIZES),
    "convs2s": mh.ConvS2SConfig(attention="dot", positions="learned", **SIZES),
    "bytenet": mh.ByteNetConfig(dilation=4, **SIZES),
    "experts": mh.TransformerConfig(experts=4, heads=4, **SIZES),
}
SOURCES = [[3 + (7 * n + m) % 50 for m in range(2 + n % 9)] for n in range(30)]
TARGETS = [[3 + (5 * n + m) % 50 for m in range(1 + n % 7)] for n in range(30)]


def batch(device: str) -> tuple[mh.Packed, mh.Packed, torch.Tensor]:
    """Return sources, one of them empty, inputs and labels."""
    source = mh.Packed.of([[], *SOURCES[1:]]).to(device)
    inputs = mh.Packed.of([[1, *text] for text in TARGETS]).to(device)
    return source, inputs, mh.Packed.of([[*text, EOS_ID] for text in TARGETS]).to(device).tokens


@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 5e-3), (torch.bfloat16, 8e-2)])
def test_a_training_step_equals_that_of_the_cpu(model_name: str, dtype: torch.dtype, error: float) -> None:
    """Loss and gradients; on the GPU under autocast, or in float32 with TF32 in the recurrences."""
    model = build_model(MODELS[model_name])
    on_gpu = copy.deepcopy(model).cuda()
    train = mh.TrainConfig()
    expected, _ = Objective(model, train)(*batch("cpu"))
    expected.backward()
    with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
        loss, _ = Objective(on_gpu, train)(*batch("cuda"))
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=error)
    for (name, ours), theirs in zip(on_gpu.named_parameters(), model.parameters(), strict=True):
        assert ours.grad is not None, name
        error_norm = (ours.grad.cpu() - theirs.grad).norm() / (theirs.grad.norm() + 1e-2)
        if name.endswith("w_k.bias"):  # the same for every key changes no softmax: zero, but for rounding
            continue
        if "gate" not in name and "experts" not in name:  # a rounded vector may choose another expert
            assert error_norm < error * 4, name


@pytest.mark.parametrize("name", MODELS)
def test_a_search_equals_that_of_the_cpu(name: str) -> None:
    torch.manual_seed(0)
    model = build_model(MODELS[name])
    randomize_weights(model)
    sources, constraints = [[*text, EOS_ID] for text in SOURCES], [DecodingConstraints(12) for _ in SOURCES]
    decoding = mh.DecodingConfig(beam=3)
    on_cpu = decode_all(TorchEngine(copy.deepcopy(model)), sources, constraints, decoding)
    on_gpu = decode_all(TorchEngine(model, "cuda", "float32"), sources, constraints, decoding)
    same = [a[0].tokens == b[0].tokens for a, b in zip(on_cpu, on_gpu, strict=True)]
    assert sum(same) >= len(same) - 2  # two candidates may lie within rounding


def test_a_mixture_of_experts_does_not_wait_for_the_host() -> None:
    """The grouped product serves in half precision: no operation copies a number from the GPU."""
    layer = Experts(mh.TransformerConfig(experts=4, heads=4, **SIZES)).cuda()
    x = torch.randn(50, 64, device="cuda", requires_grad=True)
    for is_measured in (False, True):  # the first call may compile
        torch.cuda.set_sync_debug_mode("error" if is_measured else "default")
        try:
            with torch.autocast("cuda", torch.bfloat16):
                aux_losses: list[torch.Tensor] = []
                out = layer(x, aux_losses)
            torch.autograd.grad(out.float().square().sum() + aux_losses[0], [x])
        finally:
            torch.cuda.set_sync_debug_mode("default")
