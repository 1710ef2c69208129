"""The zip archive and the XML of office documents, read without trust.

Nothing is written to disk. Sizes are checked before anything is unpacked; a document type declaration, which
is what entities need, is refused, and nothing outside the archive is read.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

from manyheads.documents.limits import DocumentLimits
from manyheads.errors import DataError, install_command

COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # that the formats allow
# What zipfile raises for damaged archives.
DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError)
NOT_ZIP = "File is not a zip file"  # what zipfile says of any other file
ENCRYPTED = 1  # the bit of an entry's flags


class OfficePackage:
    """A zip archive in memory. Entries that are not replaced are written as they are, in their order."""

    def __init__(self, data: bytes, name: str, limits: DocumentLimits) -> None:
        self.name = name
        try:
            self.archive = zipfile.ZipFile(io.BytesIO(data))
        except DAMAGE_ERRORS as error:
            reason = "" if str(error) == NOT_ZIP else f" ({error})"
            raise DataError(f"{name}: is not a zip archive{reason}") from None
        self.entries = {entry.filename: entry for entry in self.archive.infolist()}
        self._check(limits)

    def _check(self, limits: DocumentLimits) -> None:
        entries = self.archive.infolist()
        if len(entries) > limits.max_archive_files:
            raise DataError(
                f"{self.name}: has {len(entries):,} files, but the maximum is {limits.max_archive_files:,}"
            )
        if len(self.entries) < len(entries):
            raise DataError(f"{self.name}: has two files of the same name")
        size = sum(entry.file_size for entry in entries)
        if size > limits.max_unpacked_bytes:
            raise DataError(
                f"{self.name}: unpacks to {size:,} bytes, but the maximum is {limits.max_unpacked_bytes:,}"
            )
        for entry in entries:
            path = entry.filename.replace("\\", "/")
            if path.startswith("/") or ".." in path.split("/") or ":" in path.split("/")[0]:
                raise DataError(f"{self.name}: has a file outside of its folder: {entry.filename[:100]!r}")
            if entry.flag_bits & ENCRYPTED or entry.compress_type not in COMPRESSIONS:
                raise DataError(f"{self.name}: is encrypted or packed in an unknown way: save it without")

    def read(self, entry_name: str) -> bytes:
        if entry_name not in self.entries:
            raise DataError(f"{self.name}: has no {entry_name}: not a document of this format")
        size = self.entries[entry_name].file_size
        try:
            with self.archive.open(entry_name) as file:
                data = file.read(size) if size else b""  # never more than what the limits were checked with
                if len(data) < size:
                    raise zipfile.BadZipFile(f"{len(data)} of {size} bytes")
                return data
        except DAMAGE_ERRORS as error:
            raise DataError(f"{self.name}: {entry_name} is damaged ({error})") from None

    def write(self, replaced: Mapping[str, bytes]) -> bytes:
        """Return the archive with some entries replaced."""
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w") as archive:
            for entry in self.archive.infolist():
                copied = zipfile.ZipInfo(entry.filename, entry.date_time)
                copied.compress_type, copied.external_attr = entry.compress_type, entry.external_attr
                content = replaced.get(entry.filename)
                archive.writestr(copied, self.read(entry.filename) if content is None else content)
        return target.getvalue()


def parse_xml(data: bytes, where: str) -> Any:
    """Return the root of an XML file without a document type declaration."""
    etree = import_etree()
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    if b"<!DOCTYPE" in data[:4096]:
        raise DataError(f"{where}: has a document type declaration, which is not read: save the file anew")
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise DataError(f"{where}: is not valid XML ({error})") from None
    if root.getroottree().docinfo.internalDTD is not None:  # in another encoding, or behind a comment
        raise DataError(f"{where}: has a document type declaration, which is not read: save the file anew")
    return root


def count_characters(node: Any) -> int:
    """Return how many characters the tag and the attributes of an element take."""
    if not isinstance(node.tag, str):  # a comment
        return len(node.text or "")
    values = sum(len(name.rpartition("}")[2]) + len(value) for name, value in node.attrib.items())
    return len(node.tag.rpartition("}")[2]) + values


def write_xml(root: Any) -> bytes:
    tree = root.getroottree()
    data: bytes = import_etree().tostring(
        tree, xml_declaration=True, encoding="UTF-8", standalone=tree.docinfo.standalone
    )
    return data


def import_etree() -> Any:
    try:
        from lxml import etree
    except ImportError:
        raise DataError(
            f"reading office documents needs the extra `formats`: {install_command('formats')}"
        ) from None
    return etree
