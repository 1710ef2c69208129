"""Constituency trees (6.3): brackets to tokens and back.

    (TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))       a tree in a file
    (TOP (S (NP [DT] [NN] )NP (VP [VBZ] )VP [.] )S )TOP            its tokens, as the model writes them

Words are not among the tokens: the n-th leaf, a tag, belongs to the n-th word of the sentence. Closing
brackets carry their label, as in the work that the paper follows (Vinyals & Kaiser et al., 2014). Tokens and
words together are the tree, without loss. The output of a model need not be a tree: `restore_tree` repairs
it by the rules of REPAIRS and counts them.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from manyheads.errors import DataError
from manyheads.text.input_files import open_input, read_lines
from manyheads.text.invalid import (
    BROKEN_FILE,
    InvalidRecord,
    InvalidTextError,
    UnreadableFileError,
    decode_line,
)

ROOT = "TOP"
TRACE = "-NONE-"
LABEL_PATTERN = re.compile(r"[!-'*-Z\\^-~]+")  # printable ASCII without brackets
PART_PATTERN = re.compile(r"[()]|[^ \t()]+")
TOKEN_PATTERN = re.compile(r"[()][^()\[\]\s]*|\[[^()\[\]\s]*\]")


class Leaf(NamedTuple):
    """A word and its part-of-speech tag."""

    tag: str
    word: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent: its label and its children."""

    label: str
    children: "tuple[Tree | Leaf, ...]"

    def __str__(self) -> str:
        """Format as in a file."""
        parts = (f"({node.tag} {node.word})" if isinstance(node, Leaf) else node for node in walk(self))
        return "".join(join_brackets(parts))


def walk(tree: Tree) -> Iterator[Leaf | str]:
    """Yield leaves, and brackets with labels, from left to right. Not recursive: nesting has no limit."""
    pending: list[Tree | Leaf | str] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Tree):
            yield f"({node.label}"
            pending.append(f"){node.label}")
            pending.extend(reversed(node.children))
        else:
            yield node


def join_brackets(parts: Iterable[str]) -> Iterator[str]:
    """Put a space before each opening bracket but the first, and strip labels of closing brackets."""
    for index, part in enumerate(parts):
        yield (")" if part.startswith(")") else f" {part}" if index else part)


def get_leaves(tree: Tree) -> list[Leaf]:
    return [node for node in walk(tree) if isinstance(node, Leaf)]


def get_words(tree: Tree) -> list[str]:
    return [leaf.word for leaf in get_leaves(tree)]


# ---- reading


def read_trees(
    file: str, progress: Callable[[int], None] = lambda size: None
) -> Iterator[Tree | InvalidRecord]:
    """Yield the trees of a file, one a line, and the invalid lines. Empty lines are skipped."""
    number = 0
    try:
        with open_input(file, progress) as stream:
            for number, line in enumerate(read_lines(stream, file), 1):
                try:
                    text = decode_line(line)
                    if text.strip():
                        yield parse_tree(text)
                except InvalidTextError as error:
                    yield InvalidRecord(file, number, error.reason, error.detail)
    except UnreadableFileError as error:
        yield InvalidRecord(file, number + 1, BROKEN_FILE, str(error))


def parse_tree(line: str) -> Tree:
    """Parse a tree. The outermost bracket of the Penn Treebank, which has no label, is called TOP."""
    stack: list[OpenBracket] = []
    tree: Tree | None = None
    for match in PART_PATTERN.finditer(line):
        part, position = match.group(), match.start() + 1
        if tree:
            raise InvalidTextError("more than one tree", f"{part!r} at character {position} follows the tree")
        if part == "(":
            stack.append(OpenBracket(position))
        elif not stack:
            raise InvalidTextError("no bracket is open", f"{part!r} at character {position}")
        elif part != ")":
            stack[-1].add_text(part, position)
        else:
            closed = stack.pop().close(is_root=not stack)
            if stack:
                stack[-1].add_child(closed, position)
            elif isinstance(closed, Leaf):
                raise InvalidTextError(
                    "a word alone is no tree", f"write ({ROOT} ({closed.tag} {closed.word}))"
                )
            else:
                tree = closed
    if stack:
        detail = f"the innermost is at character {stack[-1].position}"
        raise InvalidTextError(f"{len(stack)} brackets are not closed", detail)
    if not tree:
        raise InvalidTextError("no tree")
    return tree


@dataclass
class OpenBracket:
    """A bracket that is not closed yet."""

    position: int
    label: str = ""
    word: str = ""
    children: list[Tree | Leaf] = field(default_factory=list)

    def add_text(self, text: str, position: int) -> None:
        """Add the label, or after it the word."""
        if self.children:
            raise InvalidTextError(
                "a word without a tag", f"{text!r} at character {position} is beside brackets"
            )
        if self.word:
            raise InvalidTextError(
                "two words in one bracket", f"{self.word!r} and {text!r} at character {position}"
            )
        if not self.label:
            self.label = check_label(text, position)
        else:
            self.word = text

    def add_child(self, child: Tree | Leaf, position: int) -> None:
        if self.word:
            raise InvalidTextError("a word without a tag", f"{self.word!r} before character {position}")
        self.children.append(child)

    def close(self, is_root: bool) -> Tree | Leaf:
        if self.children:
            if not (self.label or is_root):
                raise InvalidTextError("a bracket without a label", f"at character {self.position}")
            return Tree(self.label or ROOT, tuple(self.children))
        if not self.word:
            raise InvalidTextError("a bracket with nothing in it", f"at character {self.position}")
        return Leaf(self.label, self.word)


def check_label(text: str, position: int) -> str:
    if not LABEL_PATTERN.fullmatch(text):
        raise InvalidTextError(
            "a label that is not plain",
            f"{text!r} at character {position}: ASCII without white space, [ and ]",
        )
    return text


def strip_annotations(tree: Tree) -> Tree | None:
    """Remove traces with the brackets that hold nothing else, and functions: NP-SBJ=2 becomes NP.

    Return None if nothing remains.
    """
    stack: list[Tree] = [Tree("", ())]
    for node in walk(tree):
        if isinstance(node, Leaf):
            kept: Tree | Leaf | None = None if node.tag == TRACE else node
        elif node.startswith("("):
            stack.append(Tree(strip_functions(node[1:]), ()))
            continue
        else:
            closed = stack.pop()
            kept = closed if closed.children else None
        if kept:
            stack[-1] = Tree(stack[-1].label, (*stack[-1].children, kept))
    (kept,) = stack[0].children or (None,)
    return kept if isinstance(kept, Tree) else None


def remove_labels(tree: Tree, labels: Collection[str]) -> tuple[Tree, int]:
    """Remove the brackets with these labels, and keep what is in them. Return also how many were removed."""
    stack: list[list[Tree | Leaf]] = [[]]
    removed = 0
    for node in walk(tree):
        if isinstance(node, Leaf):
            stack[-1].append(node)
        elif node.startswith("("):
            stack.append([])
        else:
            children, is_root = stack.pop(), len(stack) == 1
            is_removed = node[1:] in labels and not is_root
            removed += is_removed
            stack[-1].extend(children if is_removed else [Tree(node[1:], tuple(children))])
    ((kept,),) = stack
    assert isinstance(kept, Tree)
    return kept, removed


def strip_functions(label: str) -> str:
    """Return a label without its functions. A label that starts with a hyphen has none."""
    return label if label[:1] in "-=" else re.split("[-=]", label, maxsplit=1)[0]


# ---- tokens


def linearize(tree: Tree) -> list[str]:
    """Return the tokens of a tree, without its words."""
    return [f"[{node.tag}]" if isinstance(node, Leaf) else node for node in walk(tree)]


def split_tokens(text: str) -> list[str]:
    """Split a text into tokens, with or without white space between them."""
    return TOKEN_PATTERN.findall(text)


# ---- from tokens to trees

UNKNOWN_TOKEN = "text that is no token is skipped"
UNMATCHED_CLOSING = "a closing bracket without an open bracket of its label is skipped"
IMPLICIT_CLOSING = "brackets inside a closing bracket are closed first"
UNCLOSED = "brackets open at the end are closed"
TOO_MANY_LEAVES = "leaves beyond the last word are skipped"
TOO_FEW_LEAVES = "words beyond the last leaf are added to the root"
EMPTY_BRACKET = "a bracket without a word is removed"
MISSING_ROOT = "output that is not a single tree is put under one root"
REPAIRS = (
    UNKNOWN_TOKEN,
    UNMATCHED_CLOSING,
    IMPLICIT_CLOSING,
    UNCLOSED,
    TOO_MANY_LEAVES,
    TOO_FEW_LEAVES,
    EMPTY_BRACKET,
    MISSING_ROOT,
)


@dataclass(frozen=True)
class RestoredTree:
    """The tree of some output, and how often each repair was applied."""

    tree: Tree
    repairs: Counter[str]

    @property
    def is_well_formed(self) -> bool:
        return not self.repairs


def restore_tree(
    text: str, sentence: Sequence[str], tags: Sequence[str] | None = None, *, default_tag: str = "XX"
) -> RestoredTree:
    """Build a tree over the words of a sentence from any text.

    `tags` replace those of the text if given; `default_tag` is for words without a tag.
    """
    if not sentence:
        raise DataError("a sentence without words has no tree: remove it")
    builder = TreeBuilder(sentence, tags, default_tag)
    leftover = TOKEN_PATTERN.sub("", text).split()
    if leftover:
        builder.repairs[UNKNOWN_TOKEN] += len(leftover)
    for token in split_tokens(text):
        builder.add_token(token)
    return RestoredTree(builder.finish(), builder.repairs)


class TreeBuilder:
    """Builds a tree token by token."""

    def __init__(self, sentence: Sequence[str], tags: Sequence[str] | None, default_tag: str) -> None:
        self.sentence, self.tags, self.default_tag = sentence, tags, default_tag
        self.position = 0  # of the next word
        self.repairs: Counter[str] = Counter()
        self.labels: list[str] = []  # of the brackets that are open
        self.contents: list[list[Tree | Leaf]] = [[]]  # of the root, then of each open bracket

    def add_token(self, token: str) -> None:
        if token.startswith("("):
            self.labels.append(token[1:])
            self.contents.append([])
        elif token.startswith("["):
            self.add_leaf(token[1:-1])
        elif token[1:] not in self.labels:
            self.repairs[UNMATCHED_CLOSING] += 1
        else:
            while self.labels[-1] != token[1:]:
                self.repairs[IMPLICIT_CLOSING] += 1
                self.close_bracket()
            self.close_bracket()

    def add_leaf(self, tag: str) -> None:
        if self.position == len(self.sentence):
            self.repairs[TOO_MANY_LEAVES] += 1
            return
        tag = self.tags[self.position] if self.tags is not None else tag or self.default_tag
        self.contents[-1].append(Leaf(tag, self.sentence[self.position]))
        self.position += 1

    def close_bracket(self) -> None:
        label, children = self.labels.pop(), self.contents.pop()
        if children:
            self.contents[-1].append(Tree(label, tuple(children)))
        else:
            self.repairs[EMPTY_BRACKET] += 1

    def finish(self) -> Tree:
        while self.labels:
            self.repairs[UNCLOSED] += 1
            self.close_bracket()
        parts = self.contents[0]
        root = parts[0] if len(parts) == 1 else None
        if not isinstance(root, Tree):
            self.repairs[MISSING_ROOT] += 1
            root = Tree(ROOT, tuple(parts))
        if self.position == len(self.sentence):
            return root
        words = self.sentence[self.position :]
        self.repairs[TOO_FEW_LEAVES] += len(words)
        tags = [self.default_tag] * len(words) if self.tags is None else self.tags[self.position :]
        missing = [Leaf(tag, word) for tag, word in zip(tags, words, strict=True)]
        return Tree(root.label, (*root.children, *missing))
