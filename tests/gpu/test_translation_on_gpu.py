"""Translating on a CUDA device gives what the CPU gives."""

import pytest
import torch

import manyheads as mh
from manyheads.inference.torch_engine import TorchEngine
from manyheads.search.beam import DecodingConstraints
from support.strategies import randomize_weights

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("how", [mh.DecodingConfig(beam=1), mh.DecodingConfig(beam=4, nbest=4)])
def test_the_same_tokens_and_scores_as_on_a_cpu(how: mh.DecodingConfig) -> None:
    torch.manual_seed(3)
    model = mh.Transformer(
        mh.TransformerConfig(vocab_size=500, layers=2, d_model=64, d_ff=128, heads=4)
    ).double()
    randomize_weights(model)
    chance = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 30, (80,), generator=chance).tolist()
    sources = [[*torch.randint(3, 500, (length,), generator=chance).tolist(), 2] for length in lengths]
    wishes = [DecodingConstraints(length + 10) for length in lengths]
    on_cpu = TorchEngine(model).search(sources, wishes, how)
    scored = TorchEngine(model).score(sources, [found[0].tokens for found in on_cpu])
    engine = TorchEngine(model, "cuda", "float32")
    on_gpu = engine.search(sources, wishes, how)
    for one, other in zip(on_cpu, on_gpu, strict=True):
        assert [found.tokens for found in one] == [found.tokens for found in other]
        assert [found.score for found in one] == pytest.approx([found.score for found in other], abs=1e-4)
    for one_score, other_score in zip(
        scored, engine.score(sources, [found[0].tokens for found in on_gpu]), strict=True
    ):
        assert one_score == pytest.approx(other_score, abs=1e-4)
