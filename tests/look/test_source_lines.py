"""The lines of code that a walk shows are those that compute its numbers."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import manyheads as mh
from manyheads.look.forward_walk import walk_layer
from manyheads.look.source_lines import find_line, find_source_lines
from support.source_tree import ROOT
from support.walk_models import CONFIGS, SOURCE, TARGET, make_translator

# Equation (1) as the paper writes it; on a CPU the model calls torch's kernel in its stead.
REFERENCE = {"heads"}


def record_lines(translator: mh.Translator) -> set[tuple[str, int]]:
    """Return every line of the package that a forward pass executes, by file and number."""
    executed: set[tuple[str, int]] = set()
    package = str(Path(mh.__file__).parent)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(package):
            return None
        if event == "line":
            executed.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        translator.attention(SOURCE, TARGET)
    finally:
        sys.settrace(before)
    return {(Path(file).relative_to(package).as_posix(), line) for file, line in executed}


@pytest.mark.parametrize("changes", CONFIGS, ids=["paper", "pre", "additive", "batch"])
def test_every_step_names_a_line_that_the_model_executes(subwords: Any, changes: dict[str, Any]) -> None:
    translator = make_translator(subwords, **changes)
    executed = record_lines(translator)
    for stack in ("encoder", "decoder"):
        for layer in (0, 1):
            walk = walk_layer(translator, SOURCE, TARGET, stack=stack, layer=layer)  # type: ignore[arg-type]
            for step in walk["steps"]:
                name = f"{step['part']}.{step['name']}"
                line = walk["code"].get(name) or walk["code"][step["name"]]
                assert step["name"] in REFERENCE or is_executed(line, executed), f"{name}: {line}"
        for name in ("mask", "probability"):
            assert is_executed(walk["code"][name], executed)


def is_executed(line: dict[str, Any], executed: set[tuple[str, int]]) -> bool:
    """Whether the line itself was executed, or the call that it continues, up to two lines before."""
    file = line["file"].removeprefix("src/manyheads/")
    return any((file, line["line"] - back) in executed for back in (0, 1, 2))


def test_lines_are_those_of_the_files() -> None:
    for entry in find_source_lines(mh.TransformerConfig(), "decoder").values():
        text = (ROOT / entry["file"]).read_text(encoding="utf-8").splitlines()[entry["line"] - 1]
        assert text.strip() == entry["text"]


def test_a_line_that_is_gone_is_noticed() -> None:
    with pytest.raises(AssertionError, match="has 0 lines with"):
        find_line("ops/attention.py", "attention_scores", "no such text")
