"""Translate the text of HTML and keep its tags.

Rules. Tags, comments, and everything inside script, style, code, pre and the like, or marked translate="no"
or class="notranslate", are kept to the character. The text between two block-level tags (all that
INLINE_NAMES does not name) is translated as one. Its inline tags are placed around the words that are
aligned with those that they stood around: each pair comes out once, nested as before, and is empty if no
word is aligned with its words. Without an alignment, or where inline tags do not match, the text between any
two tags is translated separately. Entities are decoded, and written again where HTML needs them.
"""

from collections.abc import Sequence

from manyheads.confidence_policy import LOW_CONFIDENCE_MARK, ConfidencePolicy
from manyheads.serve.html_blocks import InlineElement, TextBlock, make_blocks
from manyheads.serve.html_tokenizer import HtmlToken, tokenize
from manyheads.serve.tag_placement import TagPlacement, escape_text
from manyheads.translation import Translation


class HtmlDocument:
    """A page in parts. `texts` are to be translated; `render` fills their translations in."""

    def __init__(self, page: str, whole_blocks: bool = True) -> None:
        self.parts: list[str | TextBlock] = []
        tokens: list[HtmlToken] = []
        for token in tokenize(page):
            if token.text is not None or token.is_inline:
                tokens.append(token)
                continue
            self.parts += make_blocks(tokens, whole_blocks)
            self.parts.append(token.raw)
            tokens = []
        self.parts += make_blocks(tokens, whole_blocks)

    @property
    def texts(self) -> list[str]:
        return [part.text for part in self.parts if isinstance(part, TextBlock)]

    def render(self, translations: Sequence[Translation], policy: ConfidencePolicy | None = None) -> str:
        """Fill translations in; where one is below the confidence of a policy, what that says."""
        remaining = iter(translations)
        return "".join(
            part if isinstance(part, str) else render_block(part, next(remaining), policy)
            for part in self.parts
        )


def render_block(block: TextBlock, translation: Translation, policy: ConfidencePolicy | None = None) -> str:
    below = policy.below if policy is not None and policy.is_below(translation) else "keep"
    if below == "source":
        content = render_source(block.text, block.elements, 0, len(block.text))
    elif below == "empty":
        content = ""
    else:
        text = translation.text.strip()
        content = TagPlacement(block, translation, text).render() if block.elements else escape_text(text)
        content = LOW_CONFIDENCE_MARK + content if below == "mark" else content
    return escape_text(block.before) + content + escape_text(block.after)


def render_source(text: str, elements: Sequence[InlineElement], start: int, end: int) -> str:
    """Render a part of the text of a block with its own elements."""
    parts = []
    for element in elements:
        content = render_source(text, element.children, element.start, element.end)
        parts += [escape_text(text[start : element.start]), element.opening, content, element.closing]
        start = element.end
    return "".join([*parts, escape_text(text[start:end])])
