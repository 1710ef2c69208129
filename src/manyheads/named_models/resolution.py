"""From a name or a path to a model folder.

`en-de` is the folder `en-de` in the user's own folder of models, or else in the box: the models that are
installed with this package. A path that exists is always that path.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from manyheads.config.fields import find_nearest_name
from manyheads.errors import CheckpointError, RequestError

MANIFESTS = ("manyheads.json", "conversion.json")  # of a model folder, of one converted to CTranslate2
BOX = Path(__file__).resolve().parent.parent / "box"
MODELS_VARIABLE = "MANYHEADS_MODELS"

Origin = Literal["box", "own"]


@dataclass(frozen=True)
class NamedModel:
    """A model folder that can be called by its name."""

    name: str
    folder: Path
    origin: Origin  # installed with the package, or in the user's own folder


def find_own_folder() -> Path:
    """Return the user's folder of models: MANYHEADS_MODELS, or one in the data directory of the platform."""
    stated = os.environ.get(MODELS_VARIABLE)
    return Path(stated) if stated else find_platform_folder("data") / "models"


def find_platform_folder(purpose: Literal["data", "cache"]) -> Path:
    """Return the folder of this program in the user's data or cache directory."""
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():  # it stays ~ for a user without a home
        home = Path(tempfile.gettempdir())
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / ("Caches" if purpose == "cache" else "Application Support")
    elif purpose == "cache":
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    return base / "manyheads"


def list_models() -> list[NamedModel]:
    """Return all models that have a name, by name. One of the user's own replaces the box's of that name."""
    by_name = {
        model.name: model for model in [*scan_folder(BOX, "box"), *scan_folder(find_own_folder(), "own")]
    }
    return [by_name[name] for name in sorted(by_name)]


def scan_folder(parent: Path, origin: Origin) -> Iterator[NamedModel]:
    """Yield the model folders in a folder, which need not exist."""
    try:
        folders = sorted(path for path in parent.iterdir() if not path.name.startswith("."))
    except OSError:
        return
    for folder in folders:
        if (folder / MANIFESTS[0]).is_file():
            yield NamedModel(folder.name, folder, origin)


def resolve_model(model: str | os.PathLike[str]) -> Path:
    """Return the folder of a model that is given by its path or by its name.

    A path that does not exist is returned as it is if it is not a mere name: whoever opens it says so.
    """
    path = Path(model)
    text = os.fspath(model)
    if path.exists() or path.name != text:
        return path
    models = list_models()
    for named in models:
        if named.name == text:
            return named.folder
    names = [named.name for named in models]
    nearest = find_nearest_name(text, names)
    hint = f"; did you mean {nearest}?" if nearest else ""
    raise CheckpointError(
        f"{text}: not a model folder, nor the name of a model{hint} ({describe_known(names)})"
    )


def describe_known(names: list[str]) -> str:
    if names:
        return f"known names: {', '.join(names)}"
    return f"no model has a name: none is installed with this version, and none is in {find_own_folder()}"


def require_models() -> list[NamedModel]:
    """Return all models that have a name; if there is none, raise what to do about it."""
    models = list_models()
    if not models:
        raise RequestError(
            f"no model is given, and {describe_known([])}: give a model folder, such as run/model, copy one "
            f"to {find_own_folder()}/NAME, or train one with `manyheads demo`"
        )
    return models


def has_name(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder is that of a named model."""
    parent = Path(os.path.abspath(folder)).parent
    return parent in (BOX, Path(os.path.abspath(find_own_folder())))
