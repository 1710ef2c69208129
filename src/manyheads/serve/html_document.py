"""Translate the text of HTML and keep its tags.

Rules. Tags, comments, and everything inside script, style, code, pre and the like, or marked translate="no"
or class="notranslate", are kept to the character. The text between two block-level tags (all that
INLINE_NAMES does not name) is translated as one. Its inline tags are placed around the words that are
aligned with those that they stood around: each pair comes out once, nested as before, and is empty if no
word is aligned with its words. Without an alignment, or where inline tags do not match, the text between any
two tags is translated separately. Entities are decoded, and written again where HTML needs them.
"""

from collections.abc import Sequence

from manyheads.serve.html_blocks import TextBlock, make_blocks
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

    def render(self, translations: Sequence[Translation]) -> str:
        remaining = iter(translations)
        return "".join(
            part if isinstance(part, str) else render_block(part, next(remaining)) for part in self.parts
        )


def render_block(block: TextBlock, translation: Translation) -> str:
    text = translation.text.strip()
    content = TagPlacement(block, translation, text).render() if block.elements else escape_text(text)
    return escape_text(block.before) + content + escape_text(block.after)
