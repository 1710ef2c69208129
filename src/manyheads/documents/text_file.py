"""Documents that are text files in UTF-8: their bytes, and the lines of plain text."""

from collections.abc import Sequence
from typing import Protocol

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.errors import DataError
from manyheads.text.segmentation import has_words
from manyheads.translation import Translation

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TextDocument(Protocol):
    """A document that is text."""

    @property
    def texts(self) -> list[str]: ...

    def render(self, translations: Sequence[Translation], policy: ConfidencePolicy | None = None) -> str: ...


class EncodedDocument:
    """A document that is a text file, with its byte order mark if it has one."""

    def __init__(self, document: TextDocument, byte_order_mark: bytes) -> None:
        self.document, self.byte_order_mark = document, byte_order_mark

    @property
    def texts(self) -> list[str]:
        return self.document.texts

    def render(self, translations: Sequence[Translation], policy: ConfidencePolicy | None = None) -> bytes:
        return self.byte_order_mark + self.document.render(translations, policy).encode("utf-8", "replace")


def decode_text(data: bytes, name: str) -> tuple[str, bytes]:
    """Return the text of a file and its byte order mark."""
    mark = BYTE_ORDER_MARK if data.startswith(BYTE_ORDER_MARK) else b""
    try:
        return data[len(mark) :].decode("utf-8"), mark
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataError(
            f"{name}:{line}: byte 0x{data[error.start]:02x} is not UTF-8: iconv -t UTF-8 converts the file"
        ) from None


class PlainTextDocument:
    """Lines, each translated by itself. Line ends and empty lines are kept."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines(keepends=True)

    @property
    def texts(self) -> list[str]:
        return [strip_line_end(line)[0] for line in self.lines if has_words(line)]

    def render(self, translations: Sequence[Translation], policy: ConfidencePolicy | None = None) -> str:
        remaining = iter(translations)
        policy = policy or ConfidencePolicy()
        return "".join(
            policy.choose_text(next(remaining)) + strip_line_end(line)[1] if has_words(line) else line
            for line in self.lines
        )


def strip_line_end(line: str) -> tuple[str, str]:
    """Return a line without its end, and the end."""
    (content,) = line.splitlines() or [""]
    return content, line[len(content) :]
