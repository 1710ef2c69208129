"""Lines of the source in a chapter: a line that names a file and a symbol becomes their code.

    → [`ops/attention.py`: `attention_scores`](../../src/manyheads/ops/attention.py)

In the repository this is a link; in the book it is the function as it is in the source now.
"""

import ast
import re
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "manyheads"
REFERENCE = re.compile(r"^→ \[`([\w/]+\.py)`: `([\w.]+)`\]\([^)]+\)$", flags=re.MULTILINE)

Definition = ast.FunctionDef | ast.ClassDef


def insert_code(markdown: str) -> str:
    """Return the text of a page with the code that it names."""

    def replace(match: re.Match[str]) -> str:
        file, symbol = match.groups()
        code, first = find_code(file, symbol)
        return f'```python title="{file}" linenums="{first}"\n{code}\n```'

    return REFERENCE.sub(replace, markdown)


def list_references(markdown: str) -> list[tuple[str, str]]:
    """Return file and symbol of each reference of a page."""
    return REFERENCE.findall(markdown)


@cache
def find_code(file: str, symbol: str) -> tuple[str, int]:
    """Return the lines of a function, a method or a class, and the number of the first."""
    text = (SOURCE / file).read_text(encoding="utf-8")
    body: list[ast.stmt] = ast.parse(text).body
    node: Definition | None = None
    for name in symbol.split("."):
        matches = [item for item in body if isinstance(item, Definition) and item.name == name]
        if len(matches) != 1:
            raise ValueError(f"{file}: {len(matches)} definitions of {symbol}, but there must be one")
        node = matches[0]
        body = node.body
    assert node is not None
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    lines = text.splitlines()[first - 1 : node.end_lineno]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines), first
