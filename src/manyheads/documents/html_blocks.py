"""The blocks of HTML: text and inline tags between two block-level tags."""

from manyheads.documents.html_tokenizer import HtmlToken
from manyheads.documents.inline import MAX_DEPTH, InlineElement, TextBlock, make_block


def make_blocks(tokens: list[HtmlToken]) -> list[str | TextBlock]:
    """Turn text and inline tags into one block; where tags do not match, into one per text token."""
    has_tags = any(token.text is None for token in tokens)
    elements = build_inline_tree(tokens) if has_tags else []
    if elements is None:
        parts: list[str | TextBlock] = []
        for token in tokens:
            parts += [token.raw] if token.text is None else make_blocks([token])
        return parts
    block = make_block("".join(token.text or "" for token in tokens), elements)
    return [block] if block.is_translatable else ["".join(token.raw for token in tokens)]


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
