"""The model reads like the paper: ops/dispatch.py decides which device or dtype computes it, and how."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.source_tree import SOURCE, parse, relative_name

MODEL = sorted((SOURCE / "model").rglob("*.py"))
DEVICE_ATTRIBUTES = {
    "is_cuda",
    "is_compiling",
    "is_autocast_enabled",
    "get_autocast_dtype",
    "autocast",
    "is_available",
    "get_device_capability",
    "get_device_properties",
}
COMPARED_ATTRIBUTES = {"dtype", "device", "itemsize"}


def device_conditions(tree: ast.AST) -> Iterator[str]:
    """Yield every condition on a device, a dtype or the compiler, with its line; `dispatch` is allowed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                if isinstance(side, ast.Attribute) and side.attr in COMPARED_ATTRIBUTES:
                    yield f"{node.lineno} compares a {side.attr}"
        elif isinstance(node, ast.Attribute):
            if node.attr in DEVICE_ATTRIBUTES and ast.unparse(node.value) != "dispatch":
                yield f"{node.lineno} {node.attr}"
            if node.attr == "type" and isinstance(node.value, ast.Attribute) and node.value.attr == "device":
                yield f"{node.lineno} device.type"


def list_offenders(paths: list[Path], exceptions: tuple[str, ...] = ()) -> list[str]:
    places = [f"{relative_name(path)}:{place}" for path in paths for place in device_conditions(parse(path))]
    return [place for place in places if not place.endswith(exceptions)]


def test_the_model_has_no_device_or_dtype_condition() -> None:
    assert len(MODEL) > 10
    assert not list_offenders(MODEL)


def test_the_model_imports_no_kernel() -> None:
    """Kernels are reached through the op that has a plain torch reference beside them."""
    offenders = [relative_name(path) for path in MODEL if "_triton" in path.read_text(encoding="utf-8")]
    assert not offenders


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("x.is_cuda", "is_cuda"),
        ("x.device.type == 'cuda'", "device.type"),
        ("x.dtype in (torch.bfloat16, torch.float16)", "compares a dtype"),
        ("x.dtype == y.dtype", "compares a dtype"),
        ("torch.compiler.is_compiling()", "is_compiling"),
        ("torch.is_autocast_enabled('cuda')", "is_autocast_enabled"),
        ("torch.autocast('cuda', enabled=False)", "autocast"),
    ],
)
def test_device_conditions_are_recognized(code: str, name: str) -> None:
    assert f"1 {name}" in list(device_conditions(ast.parse(code)))


def test_only_dispatch_decides_which_implementation_serves() -> None:
    """Other ops ask it. One compares the dtypes of two tensors that it adds."""
    ops = [path for path in sorted((SOURCE / "ops").glob("*.py")) if path.stem != "dispatch"]
    assert list_offenders(ops, ("compares a dtype",)) == []
    comparing = [path.stem for path in ops if list_offenders([path])]
    assert comparing == ["cross_entropy"]
