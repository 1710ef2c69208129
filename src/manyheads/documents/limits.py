"""How large a document may be."""

from dataclasses import dataclass

from manyheads.errors import DataError


@dataclass(frozen=True)
class DocumentLimits:
    max_unpacked_bytes: int = 2**28  # of all files in a zip archive together
    max_archive_files: int = 10_000
    max_characters: int | None = None  # of all texts to translate

    def check_texts(self, texts: list[str]) -> None:
        num_characters = sum(map(len, texts))
        if self.max_characters is not None and num_characters > self.max_characters:
            raise DataError(
                f"the document has {num_characters:,} characters to translate, but the maximum is "
                f"{self.max_characters:,}: split it"
            )
