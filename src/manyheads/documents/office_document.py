"""Office documents: the paragraphs of .docx and .odt, each translated as one, everything else kept.

A format says how the content of a paragraph becomes blocks with elements, and how translated blocks are
written back (docx_format.py, odt_format.py). Files of the archive without text are copied.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.documents.inline import TextBlock
from manyheads.documents.limits import DocumentLimits
from manyheads.documents.office_package import OfficePackage, parse_xml, write_xml
from manyheads.documents.placement import Part, place_source, place_translation
from manyheads.translation import Translation


class OfficeFormat(Protocol):
    def list_parts(self, package: OfficePackage) -> list[str]:
        """Return the files of the archive that hold paragraphs."""
        ...

    def find_paragraphs(self, root: Any) -> Iterable[Any]: ...

    def read(self, paragraph: Any) -> list[Any]:
        """Return the blocks of a paragraph, and the nodes between them. The paragraph stays as it is."""
        ...

    def write(self, paragraph: Any, contents: "list[Any]") -> None:
        """Replace the content of a paragraph by nodes and placed blocks."""
        ...


@dataclass
class PlacedBlock:
    """What is written for a block: text and elements."""

    parts: list[Part]


class OfficeDocument:
    """`render` can be called once: it changes the trees."""

    def __init__(self, data: bytes, name: str, limits: DocumentLimits, office_format: OfficeFormat) -> None:
        self.format = office_format
        self.package = OfficePackage(data, name, limits)
        self.roots = {
            part: parse_xml(self.package.read(part), f"{name}: {part}")
            for part in office_format.list_parts(self.package)
        }
        self.paragraphs: list[tuple[Any, list[Any]]] = []
        for root in self.roots.values():
            for paragraph in list(office_format.find_paragraphs(root)):
                contents = office_format.read(paragraph)
                if any(map(is_translated, contents)):
                    self.paragraphs.append((paragraph, contents))

    @property
    def texts(self) -> list[str]:
        return [part.text for _, contents in self.paragraphs for part in contents if is_translated(part)]

    def render(self, translations: Sequence[Translation], policy: ConfidencePolicy | None = None) -> bytes:
        remaining = iter(translations)
        for paragraph, contents in self.paragraphs:
            written = []
            for part in contents:
                if not isinstance(part, TextBlock):
                    written.append(part)
                elif part.is_translatable:
                    placed = place_translation(part, next(remaining), policy)
                    written.append(PlacedBlock(join_texts([part.before, *placed, part.after])))
                else:
                    written.append(PlacedBlock(join_texts(place_source(part))))
            self.format.write(paragraph, written)
        return self.package.write({part: write_xml(root) for part, root in self.roots.items()})


def join_texts(parts: Sequence[Part]) -> list[Part]:
    """Join texts that follow each other."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def is_translated(part: Any) -> bool:
    return isinstance(part, TextBlock) and part.is_translatable
