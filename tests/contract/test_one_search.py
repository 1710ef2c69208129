"""Beam-search mathematics exists once: the length penalty, the beam step, the stopping rule."""

import ast
from collections.abc import Iterator

from support.source_tree import MODULES, imported_names, parse, relative_name

SHARED = {  # functions with one home, in search/
    "length_penalty": "search/options.py",
    "beam_step": "search/beam.py",
    "greedy_step": "search/beam.py",
    "top_candidates": "search/beam.py",
    "merge_finished": "search/beam.py",
    "update_done": "search/beam.py",
    "mask_logits": "search/constraints.py",
    "sample_tokens": "search/sampling.py",
}
DRIVERS = ("search/driver.py", "inference/cuda_graph_search.py")


def find_penalties(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of quotients such as (5 + length) / 6."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div)
            and isinstance(node.right, ast.Constant)
            and node.right.value == 6
            and isinstance(node.left, ast.BinOp)
            and isinstance(node.left.op, ast.Add)
            and any(
                isinstance(part, ast.Constant) and part.value == 5
                for part in (node.left.left, node.left.right)
            )
        ):
            yield node.lineno


def test_the_length_penalty_is_computed_once() -> None:
    places = [relative_name(path) for path in MODULES for _ in find_penalties(parse(path))]
    assert places == ["search/options.py"]


def test_the_length_penalty_is_found_where_it_is_written() -> None:
    assert sorted(find_penalties(ast.parse("x = ((5 + length) / 6) ** alpha\ny = (n + 5) / 6"))) == [1, 2]
    assert list(find_penalties(ast.parse("z = (4 + n) / 6 + 5 / n"))) == []


def test_each_function_of_the_search_is_defined_once() -> None:
    homes: dict[str, list[str]] = {name: [] for name in SHARED}
    for path in MODULES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef) and node.name in SHARED:
                homes[node.name].append(relative_name(path))
    assert {name: places for name, places in homes.items() if places != [SHARED[name]]} == {}


def test_both_drivers_take_the_same_steps() -> None:
    for path in MODULES:
        if relative_name(path) in DRIVERS:
            names = {name for _, name in imported_names(parse(path))}
            assert {"manyheads.search.beam.beam_step", "manyheads.search.beam.greedy_step"} <= names


def test_search_knows_no_model() -> None:
    offenders = [
        f"{relative_name(path)} imports {name}"
        for path in MODULES
        if relative_name(path).startswith("search/")
        for _, name in imported_names(parse(path))
        if name.startswith("manyheads.") and name.split(".")[1] not in {"search", "config", "errors", "ops"}
    ]
    assert not offenders
