"""The source files of the package, each parsed once."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "manyheads"
MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def relative_name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def module_name(path: Path) -> str:
    """Return the dotted name of a file: `manyheads.model.layers`, `manyheads.model` for `__init__.py`."""
    parts = ["manyheads", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Yield every import below a node, lazy ones included, as dotted names (`manyheads.config.Config`)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = "." * node.level + (node.module or "")
            yield from ((node, f"{prefix}.{alias.name}") for alias in node.names)
