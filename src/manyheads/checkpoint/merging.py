"""A model folder from a model and one of its adapters."""

from pathlib import Path

from manyheads.checkpoint.adapters import merge_adapter, read_adapter
from manyheads.checkpoint.manifest import write_confidence
from manyheads.checkpoint.model_folder import load_model, save
from manyheads.checkpoint.tensors import collect_weights


def save_merged(folder: Path, name: str, out: Path) -> None:
    """Write a model with an adapter as a model folder of its own, for conversion to other formats."""
    adapter = read_adapter(folder, name)
    model, subwords, info = load_model(folder)
    save(
        out,
        collect_weights(merge_adapter(model, adapter)),
        subwords,
        info.config,
        step=info.step,
        languages=info.languages,
        supported_length=info.supported_length,
    )
    if adapter.confidence is not None:
        write_confidence(out, adapter.confidence)
