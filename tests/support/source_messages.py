"""The texts in the source of the package, with `◇` for what is inserted."""

import ast
from functools import cache

from support.source_tree import MODULES, parse

INSERTED = "◇"


def text_of(node: ast.AST) -> str | None:
    """Return the text of a string, an f-string or a sum of them; None for any other expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else INSERTED for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = text_of(node.left), text_of(node.right)
        return None if sides == (None, None) else "".join(side or INSERTED for side in sides)
    return None


@cache
def source_messages() -> frozenset[str]:
    texts = (text_of(node) for path in MODULES for node in ast.walk(parse(path)))
    return frozenset(text for text in texts if text)
