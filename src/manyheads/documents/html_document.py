"""Translate the text of HTML and keep its tags.

Rules. Tags, comments, and everything inside script, style, code, pre and the like, or marked translate="no"
or class="notranslate", are kept to the character. The text between two block-level tags (all that
INLINE_NAMES does not name) is translated as one. Its inline tags are placed around the words that are
aligned with those that they stood around: each pair comes out once, nested as before, and is empty if no
word is aligned with its words. Where inline tags do not match, the text between any two tags is translated
separately. Entities are decoded, and written again where HTML needs them.
"""

from collections.abc import Sequence
from html import escape

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.documents.html_blocks import make_blocks
from manyheads.documents.html_tokenizer import HtmlToken, tokenize
from manyheads.documents.inline import TextBlock
from manyheads.documents.placement import place_translation, render_markup
from manyheads.translation import Translation


class HtmlDocument:
    """A page in parts. `texts` are to be translated; `render` fills their translations in."""

    def __init__(self, page: str) -> None:
        self.parts: list[str | TextBlock] = []
        tokens: list[HtmlToken] = []
        for token in tokenize(page):
            if token.text is not None or token.is_inline:
                tokens.append(token)
                continue
            self.parts += make_blocks(tokens)
            self.parts.append(token.raw)
            tokens = []
        self.parts += make_blocks(tokens)

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
    parts = [block.before, *place_translation(block, translation, policy), block.after]
    return render_markup(parts, escape_text)


def escape_text(text: str) -> str:
    return escape(text, quote=False).replace("\xa0", "&nbsp;")
