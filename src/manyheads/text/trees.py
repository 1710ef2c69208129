"""Constituency trees (6.3): brackets to tokens and back.

    (TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))       a tree, as a file has it
    (TOP (S (NP [DT] [NN] )NP (VP [VBZ] )VP [.] )S )TOP            its tokens, as the model writes them

Words are not written: the n-th leaf, a tag, is of the n-th word of the sentence. Closing brackets carry
their label, as in the work that the paper follows (Vinyals & Kaiser et al., 2014). Tokens and words together
are the tree, without loss. What a model writes need not be one: `restore` mends it by the rules that REPAIRS
names, and counts.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
LABEL_PATTERN = re.compile(r"[!-'*-Z\\^-~]+")  # what can be read on any terminal, but for brackets
PART_PATTERN = re.compile(r"[()]|[^ \t()]+")
TOKEN_PATTERN = re.compile(r"[()][^()\[\]\s]*|\[[^()\[\]\s]*\]")


class Leaf(NamedTuple):
    """A word under its part of speech."""

    tag: str
    word: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent: its label, and what it consists of."""

    label: str
    children: "tuple[Tree | Leaf, ...]"

    def __str__(self) -> str:
        """As a file has it."""
        parts = (f"({one.tag} {one.word})" if isinstance(one, Leaf) else one for one in walk(self))
        return "".join(join_brackets(parts))


def walk(tree: Tree) -> Iterator[Leaf | str]:
    """Leaves, and brackets with their labels, from left to right. No recursion: nesting has no limit."""
    waiting: list[Tree | Leaf | str] = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Tree):
            yield f"({one.label}"
            waiting.append(f"){one.label}")
            waiting.extend(reversed(one.children))
        else:
            yield one


def join_brackets(parts: Iterable[str]) -> Iterator[str]:
    """With a space before whatever opens, but for the first; closing brackets lose their labels."""
    for place, part in enumerate(parts):
        yield (")" if part.startswith(")") else f" {part}" if place else part)


def get_leaves(tree: Tree) -> list[Leaf]:
    return [one for one in walk(tree) if isinstance(one, Leaf)]


def get_words(tree: Tree) -> list[str]:
    return [leaf.word for leaf in get_leaves(tree)]


def get_tags(tree: Tree) -> list[str]:
    return [leaf.tag for leaf in get_leaves(tree)]


# ---- reading


def read_trees(
    file: str, progress: Callable[[int], None] = lambda size: None
) -> Iterator[Tree | InvalidRecord]:
    """The trees of a file, one a line, compressed or not, and what is none. Empty lines are passed over."""
    number = 0
    try:
        with open_input(file, progress) as stream:
            for number, line in enumerate(read_lines(stream, file), 1):
                try:
                    text = decode_line(line)
                    if text.strip():
                        yield parse_tree(text)
                except InvalidTextError as fault:
                    yield InvalidRecord(file, number, fault.reason, fault.detail)
    except UnreadableFileError as fault:
        yield InvalidRecord(file, number + 1, BROKEN_FILE, str(fault))


def parse_tree(line: str) -> Tree:
    """The tree that a line says. The nameless outermost bracket of the Penn Treebank is called TOP."""
    open_ones: list[OpenBracket] = []
    tree: Tree | None = None
    for found in PART_PATTERN.finditer(line):
        part, place = found.group(), found.start() + 1
        if tree:
            raise InvalidTextError("more than one tree", f"{part!r} at character {place} follows a whole one")
        if part == "(":
            open_ones.append(OpenBracket(place))
        elif not open_ones:
            raise InvalidTextError("no bracket is open", f"{part!r} at character {place}")
        elif part != ")":
            open_ones[-1].add_text(part, place)
        else:
            done = open_ones.pop().close(is_root=not open_ones)
            if open_ones:
                open_ones[-1].add_child(done, place)
            elif isinstance(done, Leaf):
                raise InvalidTextError("a word alone is no tree", f"write ({ROOT} ({done.tag} {done.word}))")
            else:
                tree = done
    if open_ones or not tree:
        what = f"{len(open_ones)} brackets are not closed" if open_ones else "no tree"
        raise InvalidTextError(
            what, f"the innermost is of character {open_ones[-1].position}" if open_ones else ""
        )
    return tree


@dataclass
class OpenBracket:
    """A bracket that is not closed yet."""

    position: int
    label: str = ""
    word: str = ""
    children: list[Tree | Leaf] = field(default_factory=list)

    def add_text(self, text: str, place: int) -> None:
        """Of two texts the first is the label, the second the word."""
        if self.children:
            raise InvalidTextError(
                "a word without a tag", f"{text!r} at character {place} stands beside brackets"
            )
        if self.word:
            raise InvalidTextError(
                "two words in one bracket", f"{self.word!r} and {text!r} at character {place}"
            )
        if not self.label:
            self.label = check_label(text, place)
        else:
            self.word = text

    def add_child(self, child: Tree | Leaf, place: int) -> None:
        if self.word:
            raise InvalidTextError("a word without a tag", f"{self.word!r} before character {place}")
        self.children.append(child)

    def close(self, is_root: bool) -> Tree | Leaf:
        if self.children:
            if not (self.label or is_root):
                raise InvalidTextError("a bracket without a label", f"that of character {self.position}")
            return Tree(self.label or ROOT, tuple(self.children))
        if not self.word:
            raise InvalidTextError("a bracket with nothing in it", f"that of character {self.position}")
        return Leaf(self.label, self.word)


def check_label(text: str, place: int) -> str:
    if not LABEL_PATTERN.fullmatch(text):
        raise InvalidTextError(
            "a label that is not plain", f"{text!r} at character {place}: ASCII without white space, [ and ]"
        )
    return text


def strip_annotations(tree: Tree) -> Tree | None:
    """Without traces and what holds nothing else, without functions: NP-SBJ=2 is NP. None: all is gone."""
    stack: list[Tree] = [Tree("", ())]
    for one in walk(tree):
        if isinstance(one, Leaf):
            kept: Tree | Leaf | None = None if one.tag == TRACE else one
        elif one.startswith("("):
            stack.append(Tree(strip_functions(one[1:]), ()))
            continue
        else:
            closed = stack.pop()
            kept = closed if closed.children else None
        if kept:
            stack[-1] = Tree(stack[-1].label, (*stack[-1].children, kept))
    (kept,) = stack[0].children or (None,)
    return kept if isinstance(kept, Tree) else None


def strip_functions(label: str) -> str:
    """A label without its functions; one that begins with a hyphen has none."""
    return label if label[:1] in "-=" else re.split("[-=]", label, maxsplit=1)[0]


# ---- tokens


def linearize(tree: Tree) -> list[str]:
    """The tokens of a tree, its words left out."""
    return [f"[{one.tag}]" if isinstance(one, Leaf) else one for one in walk(tree)]


def split_tokens(text: str) -> list[str]:
    """Tokens that were written one after the other, with white space between them or without."""
    return TOKEN_PATTERN.findall(text)


# ---- from tokens to trees

UNKNOWN_TOKEN = "what is no token is passed over"
UNMATCHED_CLOSING = "a closing bracket is passed over that no open one has the label of"
IMPLICIT_CLOSING = "brackets inside of one that closes are closed before it"
UNCLOSED = "brackets that are open at the end are closed"
TOO_MANY_LEAVES = "leaves beyond the last word are passed over"
TOO_FEW_LEAVES = "words beyond the last leaf are put at the end of the outermost bracket"
EMPTY_BRACKET = "a bracket with no word in it is taken away"
MISSING_ROOT = "what is not one tree is put under one root"
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
    """The tree that some output stands for, and how often each rule was needed to make one of it."""

    tree: Tree
    repairs: Counter[str]

    @property
    def is_well_formed(self) -> bool:
        return not self.repairs


def restore_tree(
    text: str, sentence: Sequence[str], tags: Sequence[str] | None = None, *, default_tag: str = "XX"
) -> RestoredTree:
    """A tree over the words of a sentence, whatever the text.

    `given` are their tags where they are known, whatever the text says; `unseen` is the tag of a word that
    has none.
    """
    if not sentence:
        raise DataError("a sentence without words has no tree: leave it out")
    builder = TreeBuilder(sentence, tags, default_tag)
    leftover = TOKEN_PATTERN.sub("", text).split()
    if leftover:
        builder.repairs[UNKNOWN_TOKEN] += len(leftover)
    for token in split_tokens(text):
        builder.add_token(token)
    return RestoredTree(builder.finish(), builder.repairs)


class TreeBuilder:
    """Puts brackets around words, token by token."""

    def __init__(self, sentence: Sequence[str], given: Sequence[str] | None, unseen: str) -> None:
        self.sentence, self.tags, self.default_tag = sentence, given, unseen
        self.position = 0  # of the next word
        self.repairs: Counter[str] = Counter()
        self.labels: list[str] = []  # of the brackets that are open
        self.contents: list[list[Tree | Leaf]] = [[]]  # of all brackets together, then of each

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
        own = self.tags[self.position] if self.tags is not None else tag or self.default_tag
        self.contents[-1].append(Leaf(own, self.sentence[self.position]))
        self.position += 1

    def close_bracket(self) -> None:
        label, inside = self.labels.pop(), self.contents.pop()
        if inside:
            self.contents[-1].append(Tree(label, tuple(inside)))
        else:
            self.repairs[EMPTY_BRACKET] += 1

    def finish(self) -> Tree:
        while self.labels:
            self.repairs[UNCLOSED] += 1
            self.close_bracket()
        parts = self.contents[0]
        only = parts[0] if len(parts) == 1 else None
        if not isinstance(only, Tree):
            self.repairs[MISSING_ROOT] += 1
            only = Tree(ROOT, tuple(parts))
        if self.position == len(self.sentence):
            return only
        self.repairs[TOO_FEW_LEAVES] += len(self.sentence) - self.position
        missing = [
            Leaf(self.tags[place] if self.tags is not None else self.default_tag, self.sentence[place])
            for place in range(self.position, len(self.sentence))
        ]
        return Tree(only.label, (*only.children, *missing))
