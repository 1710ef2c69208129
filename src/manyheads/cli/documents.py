"""Documents as input of `translate`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.atomic_io import read_regular, write_bytes_atomically
from manyheads.cli.confidence import print_confidence_summary
from manyheads.cli.text_io import configure_output, report_write_errors
from manyheads.documents.suffixes import OFFICE_SUFFIXES, get_document_suffix
from manyheads.errors import DataError, RequestError

if TYPE_CHECKING:
    from manyheads.confidence_policy import ConfidencePolicy


def is_document(path: Path) -> bool:
    """Whether a file is a document by its name. Others, .txt too, are lines of text."""
    return get_document_suffix(path.name) not in ("", ".txt") and not path.is_dir()


def check_document_call(files: Sequence[Path], out: Path | None, **unsupported: Any) -> None:
    """Refuse what cannot be done with documents."""
    others = [path for path in files if not is_document(path)]
    if others:
        raise RequestError(f"{others[0]}: is no document, but {files[0]} is: translate them by two commands")
    for option, value in unsupported.items():
        if value:
            name = option.replace("_", "-")
            raise RequestError(f"--{name} is for lines of text, but {files[0]} is a document: leave it out")
    if out is None and len(files) > 1:
        raise RequestError(f"{len(files)} documents, but one output: give a folder for them with --out")
    if out is None and get_document_suffix(files[0].name) in OFFICE_SUFFIXES and sys.stdout.isatty():
        raise RequestError(
            f"{files[0]}: its translation is not text: redirect the output to a file, or give a folder with "
            f"--out"
        )
    for path in files:
        if out is not None and (out / path.name).exists():
            raise RequestError(f"{out / path.name}: exists already: remove it, or give another --out")


def translate_documents(
    models: Sequence[Path],
    files: Sequence[Path],
    out: Path | None,
    engine: str | None,
    device: str | None,
    options: dict[str, Any],
    policy: "ConfidencePolicy | None",
    adapter: str | None = None,
) -> None:
    """Translate documents, each as a whole, to a folder or one to stdout."""
    from manyheads.bulk.jobs import check_calibration
    from manyheads.confidence_policy import ConfidenceCounts, ConfidencePolicy
    from manyheads.documents.document import read_document
    from manyheads.loading import load
    from manyheads.progress import create_progress

    configure_output()
    documents = [read_document(read_file(path), str(path)) for path in files]
    translator = load(*models, device=device, engine=engine, adapter=adapter)
    if policy is not None:
        check_calibration(translator)
    counts = ConfidenceCounts()
    alignment = translator.engine.capabilities.alignment
    with create_progress(sys.stderr, "items") as progress:
        for path, document in zip(files, documents, strict=True):
            translations = translator.translate(
                document.texts,
                alignment=alignment,
                report_progress=progress.update if sys.stderr.isatty() else None,
                **{"scores": "total", **options, "corrections": False},  # which have no alignment
            )
            counts.add(translations, policy or ConfidencePolicy())
            write_document(document.render(translations, policy), out and out / path.name)
    print_confidence_summary(counts, policy, as_json=False)


def read_file(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None


def write_document(data: bytes, path: Path | None) -> None:
    if path is None:
        sys.stdout.flush()
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as stream:
            stream.write(data)
        return
    with report_write_errors("--out", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomically(path, data)
