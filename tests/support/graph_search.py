"""Searches over lists of requests, as tests ask for them."""

from collections.abc import Sequence

import torch

import manyheads as mh
from manyheads.inference.cuda_graph_search import CudaGraphSearch
from manyheads.inference.engine import decode_all
from manyheads.inference.torch_engine import TorchEngine
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
from manyheads.search.scheduler import ListQueue


def make_requests(sources: Sequence[list[int]], constraints: Sequence[DecodingConstraints]) -> list[Request]:
    return [Request(source, own) for source, own in zip(sources, constraints, strict=True)]


@torch.inference_mode()
def run_graph_search(
    search: CudaGraphSearch,
    sources: Sequence[list[int]],
    constraints: Sequence[DecodingConstraints],
    token_scores: bool = True,
) -> list[list[Hypothesis]]:
    """Return the results of each sentence, in order."""
    results: list[list[Hypothesis]] = [[] for _ in sources]
    for finished in search.run(ListQueue(make_requests(sources, constraints)), token_scores):
        for index, hypotheses in finished:
            results[index] = hypotheses
    return results


def run_eager_search(
    model: mh.Transformer,
    sources: Sequence[list[int]],
    constraints: Sequence[DecodingConstraints],
    config: mh.DecodingConfig,
) -> list[list[Hypothesis]]:
    """Return what the engine finds on a CPU, without graphs."""
    return decode_all(TorchEngine(model, "cpu"), sources, constraints, config)
