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
from manyheads.text.corpus import BROKEN_FILE, Bad, BadText, Unreadable, decoded, lines_of, opened

ROOT = "TOP"
TRACE = "-NONE-"
LABEL = re.compile(r"[!-'*-Z\\^-~]+")  # what can be read on any terminal, but for brackets
PART = re.compile(r"[()]|[^ \t()]+")
TOKEN = re.compile(r"[()][^()\[\]\s]*|\[[^()\[\]\s]*\]")


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
        return "".join(written(parts))


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


def written(parts: Iterable[str]) -> Iterator[str]:
    """With a space before whatever opens, but for the first; closing brackets lose their labels."""
    for place, part in enumerate(parts):
        yield (")" if part.startswith(")") else f" {part}" if place else part)


def leaves(tree: Tree) -> list[Leaf]:
    return [one for one in walk(tree) if isinstance(one, Leaf)]


def words(tree: Tree) -> list[str]:
    return [leaf.word for leaf in leaves(tree)]


def tags(tree: Tree) -> list[str]:
    return [leaf.tag for leaf in leaves(tree)]


# ---- reading


def read_trees(file: str, progress: Callable[[int], None] = lambda size: None) -> Iterator[Tree | Bad]:
    """The trees of a file, one a line, compressed or not, and what is none. Empty lines are passed over."""
    number = 0
    try:
        with opened(file, progress) as stream:
            for number, line in enumerate(lines_of(stream, file), 1):
                try:
                    text = decoded(line)
                    if text.strip():
                        yield parse(text)
                except BadText as fault:
                    yield Bad(file, number, fault.reason, fault.detail)
    except Unreadable as fault:
        yield Bad(file, number + 1, BROKEN_FILE, str(fault))


def parse(line: str) -> Tree:
    """The tree that a line says. The nameless outermost bracket of the Penn Treebank is called TOP."""
    open_ones: list[Open] = []
    tree: Tree | None = None
    for found in PART.finditer(line):
        part, place = found.group(), found.start() + 1
        if tree:
            raise BadText("more than one tree", f"{part!r} at character {place} follows a whole one")
        if part == "(":
            open_ones.append(Open(place))
        elif not open_ones:
            raise BadText("no bracket is open", f"{part!r} at character {place}")
        elif part != ")":
            open_ones[-1].take_text(part, place)
        else:
            done = open_ones.pop().closed(is_root=not open_ones)
            if open_ones:
                open_ones[-1].take(done, place)
            elif isinstance(done, Leaf):
                raise BadText("a word alone is no tree", f"write ({ROOT} ({done.tag} {done.word}))")
            else:
                tree = done
    if open_ones or not tree:
        what = f"{len(open_ones)} brackets are not closed" if open_ones else "no tree"
        raise BadText(what, f"the innermost is of character {open_ones[-1].place}" if open_ones else "")
    return tree


@dataclass
class Open:
    """A bracket that is not closed yet."""

    place: int
    label: str = ""
    word: str = ""
    children: list[Tree | Leaf] = field(default_factory=list)

    def take_text(self, text: str, place: int) -> None:
        """Of two texts the first is the label, the second the word."""
        if self.children:
            raise BadText("a word without a tag", f"{text!r} at character {place} stands beside brackets")
        if self.word:
            raise BadText("two words in one bracket", f"{self.word!r} and {text!r} at character {place}")
        if not self.label:
            self.label = checked_label(text, place)
        else:
            self.word = text

    def take(self, child: Tree | Leaf, place: int) -> None:
        if self.word:
            raise BadText("a word without a tag", f"{self.word!r} before character {place}")
        self.children.append(child)

    def closed(self, is_root: bool) -> Tree | Leaf:
        if self.children:
            if not (self.label or is_root):
                raise BadText("a bracket without a label", f"that of character {self.place}")
            return Tree(self.label or ROOT, tuple(self.children))
        if not self.word:
            raise BadText("a bracket with nothing in it", f"that of character {self.place}")
        return Leaf(self.label, self.word)


def checked_label(text: str, place: int) -> str:
    if not LABEL.fullmatch(text):
        raise BadText(
            "a label that is not plain", f"{text!r} at character {place}: ASCII without white space, [ and ]"
        )
    return text


def cleaned(tree: Tree) -> Tree | None:
    """Without traces and what holds nothing else, without functions: NP-SBJ=2 is NP. None: all is gone."""
    stack: list[Tree] = [Tree("", ())]
    for one in walk(tree):
        if isinstance(one, Leaf):
            kept: Tree | Leaf | None = None if one.tag == TRACE else one
        elif one.startswith("("):
            stack.append(Tree(bare(one[1:]), ()))
            continue
        else:
            closed = stack.pop()
            kept = closed if closed.children else None
        if kept:
            stack[-1] = Tree(stack[-1].label, (*stack[-1].children, kept))
    (kept,) = stack[0].children or (None,)
    return kept if isinstance(kept, Tree) else None


def bare(label: str) -> str:
    """A label without its functions; one that begins with a hyphen has none."""
    return label if label[:1] in "-=" else re.split("[-=]", label, maxsplit=1)[0]


# ---- tokens


def linearize(tree: Tree) -> list[str]:
    """The tokens of a tree, its words left out."""
    return [f"[{one.tag}]" if isinstance(one, Leaf) else one for one in walk(tree)]


def tokens_of(text: str) -> list[str]:
    """Tokens that were written one after the other, with white space between them or without."""
    return TOKEN.findall(text)


# ---- from tokens to trees

UNKNOWN_PIECE = "what is no token is passed over"
NO_SUCH_OPEN = "a closing bracket is passed over that no open one has the label of"
CLOSED_EARLY = "brackets inside of one that closes are closed before it"
NEVER_CLOSED = "brackets that are open at the end are closed"
TOO_MANY_LEAVES = "leaves beyond the last word are passed over"
TOO_FEW_LEAVES = "words beyond the last leaf are put at the end of the outermost bracket"
EMPTY_BRACKET = "a bracket with no word in it is taken away"
NOT_ONE_ROOT = "what is not one tree is put under one root"
REPAIRS = (
    UNKNOWN_PIECE,
    NO_SUCH_OPEN,
    CLOSED_EARLY,
    NEVER_CLOSED,
    TOO_MANY_LEAVES,
    TOO_FEW_LEAVES,
    EMPTY_BRACKET,
    NOT_ONE_ROOT,
)


@dataclass(frozen=True)
class Restored:
    """The tree that some output stands for, and how often each rule was needed to make one of it."""

    tree: Tree
    repairs: Counter[str]

    @property
    def well_formed(self) -> bool:
        return not self.repairs


def restore(
    text: str, sentence: Sequence[str], given: Sequence[str] | None = None, *, unseen: str = "XX"
) -> Restored:
    """A tree over the words of a sentence, whatever the text.

    `given` are their tags where they are known, whatever the text says; `unseen` is the tag of a word that
    has none.
    """
    if not sentence:
        raise DataError("a sentence without words has no tree: leave it out")
    builder = Builder(sentence, given, unseen)
    leftover = TOKEN.sub("", text).split()
    if leftover:
        builder.repairs[UNKNOWN_PIECE] += len(leftover)
    for token in tokens_of(text):
        builder.read(token)
    return Restored(builder.finished(), builder.repairs)


class Builder:
    """Puts brackets around words, token by token."""

    def __init__(self, sentence: Sequence[str], given: Sequence[str] | None, unseen: str) -> None:
        self.sentence, self.given, self.unseen = sentence, given, unseen
        self.place = 0  # of the next word
        self.repairs: Counter[str] = Counter()
        self.labels: list[str] = []  # of the brackets that are open
        self.contents: list[list[Tree | Leaf]] = [[]]  # of all brackets together, then of each

    def read(self, token: str) -> None:
        if token.startswith("("):
            self.labels.append(token[1:])
            self.contents.append([])
        elif token.startswith("["):
            self.leaf(token[1:-1])
        elif token[1:] not in self.labels:
            self.repairs[NO_SUCH_OPEN] += 1
        else:
            while self.labels[-1] != token[1:]:
                self.repairs[CLOSED_EARLY] += 1
                self.close()
            self.close()

    def leaf(self, tag: str) -> None:
        if self.place == len(self.sentence):
            self.repairs[TOO_MANY_LEAVES] += 1
            return
        own = self.given[self.place] if self.given is not None else tag or self.unseen
        self.contents[-1].append(Leaf(own, self.sentence[self.place]))
        self.place += 1

    def close(self) -> None:
        label, inside = self.labels.pop(), self.contents.pop()
        if inside:
            self.contents[-1].append(Tree(label, tuple(inside)))
        else:
            self.repairs[EMPTY_BRACKET] += 1

    def finished(self) -> Tree:
        while self.labels:
            self.repairs[NEVER_CLOSED] += 1
            self.close()
        parts = self.contents[0]
        only = parts[0] if len(parts) == 1 else None
        if not isinstance(only, Tree):
            self.repairs[NOT_ONE_ROOT] += 1
            only = Tree(ROOT, tuple(parts))
        if self.place == len(self.sentence):
            return only
        self.repairs[TOO_FEW_LEAVES] += len(self.sentence) - self.place
        missing = [
            Leaf(self.given[place] if self.given is not None else self.unseen, self.sentence[place])
            for place in range(self.place, len(self.sentence))
        ]
        return Tree(only.label, (*only.children, *missing))
