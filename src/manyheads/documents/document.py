"""Read a document of any format: what is to be translated, and the document with its translations."""

from collections.abc import Callable, Sequence
from typing import Protocol

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.documents.docx_format import DocxFormat
from manyheads.documents.html_document import HtmlDocument
from manyheads.documents.limits import DocumentLimits
from manyheads.documents.markdown_document import MarkdownDocument
from manyheads.documents.odt_format import OdtFormat
from manyheads.documents.office_document import OfficeDocument, OfficeFormat
from manyheads.documents.po_document import PoDocument
from manyheads.documents.subtitles import SubtitleDocument
from manyheads.documents.suffixes import DOCUMENT_SUFFIXES, get_document_suffix
from manyheads.documents.text_file import EncodedDocument, PlainTextDocument, TextDocument, decode_text
from manyheads.errors import DataError
from manyheads.translation import Translation

MARKUP_FACTOR = 4  # a text file may have so many times the characters that may be translated

TEXT_FORMATS: dict[str, Callable[[str, str], TextDocument]] = {
    ".txt": lambda text, name: PlainTextDocument(text),
    ".html": lambda text, name: HtmlDocument(text),
    ".htm": lambda text, name: HtmlDocument(text),
    ".srt": SubtitleDocument,
    ".po": PoDocument,
    ".pot": PoDocument,
    ".md": lambda text, name: MarkdownDocument(text),
    ".markdown": lambda text, name: MarkdownDocument(text),
}
OFFICE_FORMATS: dict[str, Callable[[], OfficeFormat]] = {".docx": DocxFormat, ".odt": OdtFormat}


class Document(Protocol):
    @property
    def texts(self) -> list[str]:
        """What is to be translated, in order."""
        ...

    def render(self, translations: Sequence[Translation], policy: ConfidencePolicy | None = None) -> bytes:
        """Return the document with translations, one for each text. Call it once."""
        ...


def read_document(data: bytes, name: str, limits: DocumentLimits | None = None) -> Document:
    """Read a document. The ending of its name says in which format it is."""
    limits, suffix = limits or DocumentLimits(), get_document_suffix(name)
    document: Document
    if suffix in OFFICE_FORMATS:
        document = OfficeDocument(data, name, limits, OFFICE_FORMATS[suffix]())
    elif suffix in TEXT_FORMATS:
        text, mark = decode_text(data, name)
        if limits.max_characters is not None and len(text) > MARKUP_FACTOR * limits.max_characters:
            raise DataError(
                f"{name}: has {len(text):,} characters, but the maximum is "
                f"{MARKUP_FACTOR * limits.max_characters:,}: split it"
            )
        document = EncodedDocument(TEXT_FORMATS[suffix](text, name), mark)
    else:
        raise DataError(f"{name[:200]}: not a document: its name must end in {', '.join(DOCUMENT_SUFFIXES)}")
    limits.check_texts(document.texts)
    return document
