"""The endings of file names that say in which format a document is."""

from pathlib import PurePath

TEXT_SUFFIXES = (".txt", ".html", ".htm", ".srt", ".po", ".pot", ".md", ".markdown")
OFFICE_SUFFIXES = (".docx", ".odt")  # zip archives
DOCUMENT_SUFFIXES = (*TEXT_SUFFIXES, *OFFICE_SUFFIXES)


def get_document_suffix(name: str) -> str:
    """Return the ending of a name; empty if it is not that of a document."""
    suffix = PurePath(name).suffix.lower()
    return suffix if suffix in DOCUMENT_SUFFIXES else ""
