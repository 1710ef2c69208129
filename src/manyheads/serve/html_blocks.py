"""Blocks of text that are translated as one, with the inline elements in them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from manyheads.serve.html_tokenizer import HtmlToken

MAX_DEPTH = 20  # of nested inline elements


@dataclass
class InlineElement:
    """A pair of inline tags around the characters from start to end of the text of its block."""

    opening: str
    start: int
    end: int = 0
    closing: str = ""
    children: "list[InlineElement]" = field(default_factory=list)


@dataclass
class TextBlock:
    before: str  # white space
    text: str
    after: str
    elements: list[InlineElement]


def make_blocks(tokens: list[HtmlToken], whole_blocks: bool) -> list[str | TextBlock]:
    """Turn text and inline tags between two block-level tags into one block, or one per text token."""
    has_tags = any(token.text is None for token in tokens)
    elements = build_inline_tree(tokens) if has_tags else []
    if elements is None or (has_tags and not whole_blocks):
        parts: list[str | TextBlock] = []
        for token in tokens:
            parts += [token.raw] if token.text is None else make_blocks([token], True)
        return parts
    # White space becomes one space, as in a browser; a line break would end a sentence.
    collapsed, positions = collapse_whitespace("".join(token.text or "" for token in tokens))
    if not any(character.isalnum() for character in collapsed):
        return ["".join(token.raw for token in tokens)]
    text = collapsed.strip()
    lead = collapsed.index(text)
    for element in iterate_elements(elements):
        element.start, element.end = (
            min(max(positions[position] - lead, 0), len(text)) for position in (element.start, element.end)
        )
    return [TextBlock(collapsed[:lead], text, collapsed[lead + len(text) :], elements)]


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


def build_inline_tree(tokens: list[HtmlToken]) -> list[InlineElement] | None:
    """Return the inline elements as a tree; None where tags do not match or are nested too deeply."""
    roots: list[InlineElement] = []
    stack: list[tuple[str, InlineElement]] = []
    position = 0
    for token in tokens:
        if token.text is not None:
            position += len(token.text)
        elif not token.is_closing:
            element = InlineElement(token.raw, position)
            (stack[-1][1].children if stack else roots).append(element)
            stack.append((token.name, element))
        elif not stack or stack[-1][0] != token.name or len(stack) > MAX_DEPTH:
            return None
        else:
            _, element = stack.pop()
            element.end, element.closing = position, token.raw
    return None if stack else roots


def iterate_elements(elements: list[InlineElement]) -> Iterator[InlineElement]:
    for element in elements:
        yield element
        yield from iterate_elements(element.children)
