"""Names in all Python files, and sizes in the source. Each test lists every offender."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from support.source_tree import MODULES, ROOT, parse, relative_name

MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 60  # with the signature, without decorators
MAX_MARKDOWN_COLUMNS = 120
# Data tables, not code.
LONG_FILES = {"playground/word_tables.py"}

# Words that name nothing, metaphors, and synonyms of terms that the project has settled on.
BANNED_NAMES = {
    "one", "told", "found", "asked", "wish", "wishes", "those", "mended", "taken", "how", "tell", "say", "up",
    "fault", "faults", "room", "rooms", "door", "doors", "house", "houses", "agreement", "ties",
    "least_length", "reach", "kind",
}  # fmt: skip
BANNED_PARAMETERS = {"longest", "shortest", "most", "least"}  # max_length, min_length, max_*, min_*
BANNED_FUNCTIONS = {
    "joined", "given", "opened", "checked", "described", "drawn", "shown", "copied", "rounded", "written",
    "named", "made", "kept", "known", "counted", "measured", "parted", "filled", "sent", "served", "settled",
}  # fmt: skip
BANNED_PREFIXES = ("of_", "that_", "told_", "with_the_")
BRITISH = re.compile(
    r"(colour|neighbour|behaviour|favour|centre|licence|learnt|spelt|labell|modell|cancell)"
    r"|(normalis|optimis|initialis|tokenis|realis|organis|summaris|serialis|recognis|parallelis|linearis)"
)


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and role ("function", "parameter", "other") of everything that a tree defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name, "function"
        elif isinstance(node, ast.ClassDef):
            yield node.lineno, node.name, "other"
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg, "parameter"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id, "other"
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr, "parameter"
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.lineno, node.name, "other"


def is_banned(name: str, role: str) -> bool:
    plain = name.lower().strip("_")
    if plain in BANNED_NAMES or BRITISH.search(plain):
        return True
    if role == "function":
        return plain in BANNED_FUNCTIONS or plain.startswith(BANNED_PREFIXES)
    return role == "parameter" and plain in BANNED_PARAMETERS


def test_names_are_terms_of_the_field() -> None:
    offenders = [
        f"{path.relative_to(ROOT).as_posix()}:{line} {name}"
        for folder in ("src", "tests", "bench", "examples", "release", "website")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name, role in defined_names(parse(path))
        if is_banned(name, role)
    ]
    assert not offenders


def test_no_class_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{relative_name(path)}:{node.lineno}")
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_no_file_is_too_long() -> None:
    lengths = {relative_name(path): count_lines(path) for path in MODULES}
    offenders = {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES}
    assert offenders.keys() <= LONG_FILES, offenders


def test_no_function_is_too_long() -> None:
    offenders = []
    for path in MODULES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    offenders.append(f"{relative_name(path)}:{node.lineno} {node.name} has {lines} lines")
    assert not offenders


def test_lines_of_markdown_have_at_most_120_characters() -> None:
    """Tables and links cannot be wrapped. Model cards are generated, a paragraph a line."""
    offenders = []
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md")]:
        if path.name == "model_card.md":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            is_exempt = line.startswith("|") or re.search(r"\]\(|https?://", line)
            if len(line) > MAX_MARKDOWN_COLUMNS and not is_exempt:
                offenders.append(f"{path.relative_to(ROOT)}:{number} has {len(line)} characters")
    assert not offenders


def count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())
