"""Who may import whom. Data goes one way, and there is no cycle."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "manyheads"

GROUND = {"errors", "config", "packed", "progress", "folders"}  # that every room may import
FIRST_ROOMS = {"text", "data", "kernels", "model", "search", "checkpoint", "engines", "translate", "evaluate"}
UPPER_ROOMS = {"brackets", "train", "export", "look", "serve"}
EVERYTHING = {"presets", *FIRST_ROOMS, *UPPER_ROOMS}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "config": set(),
    "presets": set(),
    "packed": set(),
    "progress": set(),
    "folders": set(),
    "text": set(),
    "data": {"text"},
    "kernels": set(),
    "model": {"kernels"},
    "search": set(),
    "checkpoint": {"model", "text"},
    "engines": {"checkpoint", "kernels", "search", "model", "text"},
    "translate": {"engines", "checkpoint", "model", "search", "text"},
    "evaluate": {"translate", "text"},
    "brackets": {"text"},  # what evaluate is for translations, for trees
    "train": {"data", "kernels", "model", "checkpoint", "engines", "evaluate", "translate"},
    "export": {"engines", "translate", "checkpoint", "model", "search", "text"},
    "look": {
        "translate",
        "checkpoint",
        "model",
    },  # a run's checkpoints one after another; a layer's parts too
    "serve": {"translate", "evaluate", "look", "train"},  # of training, the log
    "paper": {"demo", *EVERYTHING},  # the corpus that it writes
    "demo": {"text", "data", "checkpoint", "translate", "evaluate", "train", "look"},
    "cli": {"paper", "demo", *EVERYTHING},
    "__main__": {"cli"},
    "__init__": {"presets", "model", "translate"},  # the public names, each imported when it is first used
}
# What importing a module may need; the rest is imported where it is used.
CORE_NEEDS = {"torch", "numpy", "typer", "sentencepiece"}
# A room that is of use only with its extra, and imported by its verb alone, may need what the extra brings.
EXTRA_NEEDS = {
    "kernels": {"triton"},  # which is there wherever torch has a GPU
    "serve": {"fastapi", "h11", "prometheus_client", "pydantic", "starlette", "uvicorn"},
}
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc"}
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports of ours are written in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        assert "manyheads" not in names, f"{path}: a room names the rooms that it imports"
        for name in names:
            package, _, rest = name.partition(".")
            if package == "manyheads" and rest and not rest.startswith("__"):
                yield rest.partition(".")[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_what_its_row_names(path: Path) -> None:
    room = room_of(path)
    allowed = MAY_IMPORT[room] | GROUND | {room}
    assert set(imported_rooms(path)) <= allowed


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_importing_a_module_needs_the_core_alone(path: Path) -> None:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        packages = {name.partition(".")[0] for name in names} - {"manyheads", *sys.stdlib_module_names}
        assert packages <= CORE_NEEDS | EXTRA_NEEDS.get(room_of(path), set())


def test_a_room_with_needs_of_its_own_is_imported_when_its_verb_runs() -> None:
    for path in MODULES:
        if room_of(path) != "serve":
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ImportFrom):
                    names = {f"{node.module}.{alias.name}" for alias in node.names}
                    assert not {name for name in names if name.split(".")[1:2] == ["serve"]}


def test_the_rules_have_no_cycle() -> None:
    left = {room: others - {room} for room, others in MAY_IMPORT.items()}
    while left:
        free = {room for room, others in left.items() if not others & left.keys()}
        assert free, f"a cycle among {sorted(left)}"
        left = {room: others for room, others in left.items() if room not in free}


def test_the_ground_floor_stands_on_errors_alone() -> None:
    assert set(imported_rooms(SOURCE / "errors.py")) == set()
    assert set(imported_rooms(SOURCE / "packed.py")) == {"errors"}
    assert set(imported_rooms(SOURCE / "config.py")) == {"errors"}


def test_no_file_is_named_for_what_it_has_no_name_for() -> None:
    assert not [path for path in MODULES if path.stem in FORBIDDEN_NAMES]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_unpickled(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not {alias.name for alias in node.names} & {"pickle", "shelve", "marshal"}
        if isinstance(node, ast.ImportFrom):
            assert node.module not in {"pickle", "shelve", "marshal"}
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) != ("torch", "load")
