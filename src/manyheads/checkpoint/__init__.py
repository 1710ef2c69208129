"""Model folders and the checkpoints of a run.

Names are imported when they are first used, so that manifests and subwords are read without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyheads.checkpoint.adapters import (
        Adapter,
        adapter_path,
        hash_base,
        list_adapters,
        merge_adapter,
        read_adapter,
        write_adapter,
    )
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
        check_vocabulary,
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
        is_snapshot_step,
        list_averaged_checkpoints,
        list_checkpoints,
        list_regular_checkpoints,
        list_snapshots,
        parse_step,
        snapshot_path,
    )
    from manyheads.checkpoint.tensors import (
        collect_weights,
        copy_weights,
        read_tensors,
        read_weights,
        write_tensors,
    )

_MODULES = {
    "adapters": (
        "Adapter",
        "adapter_path",
        "hash_base",
        "list_adapters",
        "merge_adapter",
        "read_adapter",
        "write_adapter",
    ),
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
        "check_vocabulary",
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
        "is_snapshot_step",
        "list_averaged_checkpoints",
        "list_checkpoints",
        "list_regular_checkpoints",
        "list_snapshots",
        "parse_step",
        "snapshot_path",
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
    "Adapter",
    "CheckpointInfo",
    "OpenModel",
    "adapter_path",
    "average_checkpoints",
    "average_weights",
    "build_opened_model",
    "check_subwords",
    "check_vocabulary",
    "checkpoint_path",
    "clean_up_checkpoints",
    "collect_weights",
    "copy_weights",
    "describe_change",
    "find_damage",
    "fit_to_vocabulary",
    "get_versions",
    "hash_base",
    "is_snapshot_step",
    "list_adapters",
    "list_averaged_checkpoints",
    "list_checkpoints",
    "list_regular_checkpoints",
    "list_snapshots",
    "load_initial_weights",
    "load_model",
    "load_weights",
    "merge_adapter",
    "open_model",
    "parse_step",
    "read_adapter",
    "read_info",
    "read_model_manifest",
    "read_subwords",
    "read_tensors",
    "read_weights",
    "rewrite_folder",
    "save",
    "snapshot_path",
    "write_adapter",
    "write_confidence",
    "write_tensors",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
