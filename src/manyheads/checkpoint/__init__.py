"""Model folders and the checkpoints of a run.

Names are imported when they are first used, so that manifests and subwords are read without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyheads.checkpoint.averaging import average_checkpoints, average_weights
    from manyheads.checkpoint.background_reading import OpenModel, open_model
    from manyheads.checkpoint.compatibility import (
        CHANGEABLE_KEYS,
        check_subwords,
        describe_change,
        fit_to_vocabulary,
        load_initial_weights,
    )
    from manyheads.checkpoint.manifest import (
        CONFIDENCE,
        MANIFEST,
        MODEL_CARD,
        OPTIMIZER,
        WEIGHTS,
        CheckpointInfo,
        get_versions,
        read_info,
        read_model_manifest,
        read_subwords,
        rewrite_folder,
        write_confidence,
    )
    from manyheads.checkpoint.model_folder import build_opened_model, load_model, load_weights, save
    from manyheads.checkpoint.run_checkpoints import (
        checkpoint_path,
        clean_up_checkpoints,
        find_damage,
        list_averaged_checkpoints,
        list_checkpoints,
        list_regular_checkpoints,
        parse_step,
    )
    from manyheads.checkpoint.tensors import (
        collect_weights,
        copy_weights,
        read_tensors,
        read_weights,
        write_tensors,
    )

_MODULES = {
    "averaging": ("average_checkpoints", "average_weights"),
    "background_reading": ("OpenModel", "open_model"),
    "compatibility": (
        "CHANGEABLE_KEYS",
        "check_subwords",
        "describe_change",
        "fit_to_vocabulary",
        "load_initial_weights",
    ),
    "manifest": (
        "CONFIDENCE",
        "MANIFEST",
        "MODEL_CARD",
        "OPTIMIZER",
        "WEIGHTS",
        "CheckpointInfo",
        "get_versions",
        "read_info",
        "read_model_manifest",
        "read_subwords",
        "rewrite_folder",
        "write_confidence",
    ),
    "model_folder": ("build_opened_model", "load_model", "load_weights", "save"),
    "run_checkpoints": (
        "checkpoint_path",
        "clean_up_checkpoints",
        "find_damage",
        "list_averaged_checkpoints",
        "list_checkpoints",
        "list_regular_checkpoints",
        "parse_step",
    ),
    "tensors": ("collect_weights", "copy_weights", "read_tensors", "read_weights", "write_tensors"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "CHANGEABLE_KEYS",
    "CONFIDENCE",
    "MANIFEST",
    "MODEL_CARD",
    "OPTIMIZER",
    "WEIGHTS",
    "CheckpointInfo",
    "OpenModel",
    "average_checkpoints",
    "average_weights",
    "build_opened_model",
    "check_subwords",
    "checkpoint_path",
    "clean_up_checkpoints",
    "collect_weights",
    "copy_weights",
    "describe_change",
    "find_damage",
    "fit_to_vocabulary",
    "get_versions",
    "list_averaged_checkpoints",
    "list_checkpoints",
    "list_regular_checkpoints",
    "load_initial_weights",
    "load_model",
    "load_weights",
    "open_model",
    "parse_step",
    "read_info",
    "read_model_manifest",
    "read_subwords",
    "read_tensors",
    "read_weights",
    "rewrite_folder",
    "save",
    "write_confidence",
    "write_tensors",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
