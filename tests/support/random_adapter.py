"""An adapter with random factors, for a model that is not trained."""

from pathlib import Path

import torch

from manyheads import checkpoint
from manyheads.train.trained_weights import find_linear


def save_random_adapter(folder: Path, name: str, *, rank: int = 2, seed: int = 0) -> Path:
    generator = torch.Generator().manual_seed(seed)
    factors = {}
    for weight_name, weight in find_linear(checkpoint.load_model(folder)[0]):
        outputs, inputs = weight.shape
        shapes = (rank, inputs), (outputs, rank)
        a_rD, b_Fr = (torch.randn(shape, generator=generator) for shape in shapes)
        factors[weight_name] = a_rD, b_Fr
    adapter = checkpoint.Adapter(name, factors, checkpoint.hash_base(folder), {"rank": rank})
    path = checkpoint.adapter_path(folder, name)
    checkpoint.write_adapter(path, adapter)
    return path
