"""Translating on a CUDA device gives what the CPU gives."""

import pytest
import torch

import manyheads as mh
from manyheads.inference.engine import decode_all
from manyheads.inference.torch_engine import TorchEngine
from manyheads.search.options import DecodingConstraints
from support.strategies import randomize_weights

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("decoding", [mh.DecodingConfig(beam=1), mh.DecodingConfig(beam=4, nbest=4)])
def test_the_same_tokens_and_scores_as_on_a_cpu(decoding: mh.DecodingConfig) -> None:
    torch.manual_seed(3)
    model = mh.Transformer(
        mh.TransformerConfig(vocab_size=500, layers=2, d_model=64, d_ff=128, heads=4)
    ).double()
    randomize_weights(model)
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 30, (80,), generator=generator).tolist()
    sources = [[*torch.randint(3, 500, (length,), generator=generator).tolist(), 2] for length in lengths]
    constraints = [DecodingConstraints(length + 10) for length in lengths]
    on_cpu = decode_all(TorchEngine(model), sources, constraints, decoding)
    scored = TorchEngine(model).score(sources, [hypotheses[0].tokens for hypotheses in on_cpu])
    engine = TorchEngine(model, "cuda", "float32")
    on_gpu = decode_all(engine, sources, constraints, decoding)
    for ours, theirs in zip(on_cpu, on_gpu, strict=True):
        assert [x.tokens for x in ours] == [x.tokens for x in theirs]
        assert [x.score for x in ours] == pytest.approx([x.score for x in theirs], abs=1e-4)
    for cpu_score, gpu_score in zip(
        scored, engine.score(sources, [hypotheses[0].tokens for hypotheses in on_gpu]), strict=True
    ):
        assert cpu_score == pytest.approx(gpu_score, abs=1e-4)
