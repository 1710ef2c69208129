"""Model folders and the checkpoints of a run."""

from manyheads.checkpoint.averaging import average_checkpoints, average_weights
from manyheads.checkpoint.compatibility import (
    CHANGEABLE_KEYS,
    check_subwords,
    describe_change,
    fit_to_vocabulary,
    load_initial_weights,
)
from manyheads.checkpoint.model_folder import (
    MANIFEST,
    OPTIMIZER,
    WEIGHTS,
    CheckpointInfo,
    get_versions,
    load_model,
    load_weights,
    read_info,
    read_model_manifest,
    read_subwords,
    save,
)
from manyheads.checkpoint.run_checkpoints import (
    checkpoint_path,
    clean_up_checkpoints,
    find_damage,
    list_averaged_checkpoints,
    list_checkpoints,
    list_regular_checkpoints,
    parse_step,
)
from manyheads.checkpoint.tensors import collect_weights, copy_weights, read_tensors, write_tensors

__all__ = [
    "CHANGEABLE_KEYS",
    "MANIFEST",
    "OPTIMIZER",
    "WEIGHTS",
    "CheckpointInfo",
    "average_checkpoints",
    "average_weights",
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
    "parse_step",
    "read_info",
    "read_model_manifest",
    "read_subwords",
    "read_tensors",
    "save",
    "write_tensors",
]
