"""Where the memory of a model is: one SQLite file."""

import hashlib
import os
from pathlib import Path

from manyheads.checkpoint.manifest import MEMORY
from manyheads.named_models.resolution import BOX, find_platform_folder

MEMORY_FILE = "corrections.sqlite"


def find_memory_path(folder: str | os.PathLike[str]) -> Path:
    """Return the file of a model's corrections, whether it exists or not.

    It is in the model folder. For a model that is installed with the package, and for a folder that cannot be
    written, it is in the user's data directory, by the name of the model or by its path.
    """
    path = Path(os.path.realpath(folder))
    if path.parent == BOX:
        return find_platform_folder("data") / MEMORY / f"{path.name}.sqlite"
    if os.access(path, os.W_OK):
        return path / MEMORY / MEMORY_FILE
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    return find_platform_folder("data") / MEMORY / f"{path.name}-{digest}.sqlite"
