"""Blocks of text that are translated as one, with the inline elements in them.

    <p>I <b>go</b> home.</p>  ->  "I go home." with an element around the characters 2 to 4

The elements of a translated block are placed around the words that are aligned with theirs (placement.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from manyheads.errors import DataError

MAX_DEPTH = 20  # of nested inline elements
MAX_REPEATED = 2**24  # characters of markup that may be written once more


class RepeatedMarkup:
    """Counts markup that a document has once and its translation has several times.

    Without a limit, a link around many line breaks makes a large document of a small one.
    """

    def __init__(self) -> None:
        self.remaining = MAX_REPEATED

    def add(self, num_characters: int) -> None:
        self.remaining -= num_characters
        if self.remaining < 0:
            raise DataError(
                f"the translation would repeat more than {MAX_REPEATED:,} characters of markup: remove "
                f"formatting and links around line breaks"
            )


@dataclass
class InlineElement:
    """What stands around the characters from start to end of the text of its block."""

    opening: str = ""  # markup before them, in formats that are text
    start: int = 0
    end: int = 0
    closing: str = ""
    children: "list[InlineElement]" = field(default_factory=list)
    content: str | None = (
        None  # markup that is kept in place of the words of the translation: code, a picture
    )
    node: Any = None  # of a format that is a tree
    size: int = 0  # characters that writing the node takes


@dataclass
class TextBlock:
    before: str  # white space
    text: str
    after: str
    elements: list[InlineElement]
    is_translatable: bool = True


def make_block(text: str, elements: list[InlineElement]) -> TextBlock:
    """Make a block of a text. Without a letter or digit it stays as it is.

    White space becomes one space, as in a browser; a line break would end a sentence.
    """
    collapsed, positions = collapse_whitespace(text)
    if not any(character.isalnum() for character in collapsed):
        return TextBlock("", text, "", elements, is_translatable=False)
    content = collapsed.strip()
    lead = collapsed.index(content)
    for element in iterate_elements(elements):
        element.start, element.end = (
            min(max(positions[position] - lead, 0), len(content)) for position in (element.start, element.end)
        )
    return TextBlock(collapsed[:lead], content, collapsed[lead + len(content) :], elements)


def collapse_whitespace(text: str) -> tuple[str, list[int]]:
    """Collapse white space as browsers do; also return the new position of each character and of the end."""
    characters: list[str] = []
    positions = []
    for character in text:
        is_space = character in " \t\r\n\f"
        positions.append(len(characters))
        if is_space and characters and characters[-1] == " ":
            positions[-1] -= 1
        else:
            characters.append(" " if is_space else character)
    return "".join(characters), [*positions, len(characters)]


def iterate_elements(elements: list[InlineElement]) -> Iterator[InlineElement]:
    for element in elements:
        yield element
        yield from iterate_elements(element.children)


class BlockBuilder:
    """Makes blocks of a stream of texts, opened and closed elements, and what stands between blocks."""

    def __init__(self, repeated: RepeatedMarkup) -> None:
        self.repeated = repeated
        self.parts: list[Any] = []  # blocks, and the separators between them
        self._start()

    def _start(self) -> None:
        self._texts: list[str] = []
        self._length = 0
        self._roots: list[InlineElement] = []
        self._open: list[InlineElement] = []

    @property
    def depth(self) -> int:
        return len(self._open)

    def add_text(self, text: str) -> None:
        self._texts.append(text)
        self._length += len(text)

    def open(self, element: InlineElement) -> None:
        element.start = self._length
        (self._open[-1].children if self._open else self._roots).append(element)
        self._open.append(element)

    def close(self) -> None:
        self._open.pop().end = self._length

    def add_element(self, element: InlineElement, text: str = "") -> None:
        """Add an element that holds nothing but this text."""
        self.open(element)
        self.add_text(text)
        self.close()

    def extend_element(self, text: str, node: Any) -> bool:
        """Add text to the element that has just ended, if its node equals this one."""
        siblings = self._open[-1].children if self._open else self._roots
        if not siblings or siblings[-1].end != self._length or siblings[-1].node != node:
            return False
        self.add_text(text)
        siblings[-1].end = self._length
        return True

    def add_separator(self, separator: Any) -> None:
        """End the block. Elements that are open go on in the next one."""
        going_on = [replace(element, children=[]) for element in self._open]
        self.repeated.add(sum(own.size + len(own.opening) + len(own.closing) for own in going_on))
        self.finish()
        self.parts.append(separator)
        for element in going_on:
            self.open(element)

    def finish(self) -> list[Any]:
        """End the last block, and return all parts."""
        while self._open:
            self.close()
        if self._texts or self._roots:
            self.parts.append(make_block("".join(self._texts), self._roots))
        self._start()
        return self.parts
