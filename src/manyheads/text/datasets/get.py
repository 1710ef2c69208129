"""Fetch a known corpus as aligned files: train.en and train.de, with source.json once all of it is there."""

import datetime
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from manyheads.atomic_io import clear_temporary_file, open_locked, report_disk_full
from manyheads.errors import DataError
from manyheads.progress import Progress
from manyheads.text.datasets.catalog import Catalog, CorpusPart, load_catalog
from manyheads.text.datasets.download import RETRY_DELAYS
from manyheads.text.datasets.fetched import (
    FetchedCorpus,
    SplitFiles,
    check_not_foreign,
    find_complete,
    remove_partial_files,
    remove_previous,
)
from manyheads.text.datasets.sources import (
    PART_WRITERS,
    DownloadCache,
    FetchContext,
    Sides,
    check_register,
)


def get_corpus(
    name: str,
    pair: str | None = None,
    folder: str | Path | None = None,
    *,
    catalog: Catalog | None = None,
    cache: str | Path | None = None,
    register: str = "",
    force: bool = False,
    progress: Progress | None = None,
    retry_delays: Sequence[float] = RETRY_DELAYS,
) -> FetchedCorpus:
    """Fetch a known corpus into a folder. A complete folder is left alone unless `force` is set.

    `register` is of the Korean of the built-in grammar: plain or polite.
    """
    catalog, progress = catalog or load_catalog(), progress or Progress()
    corpus, member = catalog.find_entry(name)
    language_pair = corpus.choose_pair(pair)
    check_register(register, corpus, language_pair)
    folder = Path(folder or f"{name.replace('/', '-')}.{language_pair}")
    if not force and (complete := find_complete(folder, name, language_pair, register)):
        return complete
    progress.message(f"{corpus.title}\nlicense: {corpus.license} ({corpus.license_url})")
    downloads = DownloadCache(Path(cache or folder / "downloads"), force, progress, retry_delays)
    context = FetchContext(corpus, member, language_pair, catalog, downloads, register)
    names = [f"{split}.{language}" for split in context.splits for language in language_pair.languages]
    with open_locked(folder.resolve()):
        check_not_foreign(folder, names)
        return write_corpus(name, context, folder, names)


def write_corpus(name: str, context: FetchContext, folder: Path, names: Sequence[str]) -> FetchedCorpus:
    """Write all splits. If one fails, the files of an earlier call stay as they are."""
    try:
        splits = {
            split: write_split(context, split, parts, folder) for split, parts in context.splits.items()
        }
    except BaseException:
        remove_partial_files(folder, names)
        raise
    remove_previous(folder)
    return finalize_folder(name, context, folder, splits)


def write_split(context: FetchContext, split: str, parts: list[CorpusPart], folder: Path) -> SplitFiles:
    """Write the parts of a split one after the other, each with as many source as target lines."""
    names = [f"{split}.{language}" for language in context.pair.languages]
    paths = [folder / f"{name}.part" for name in names]
    num_before, num_pairs = len(context.cache.downloads), 0
    with ExitStack() as stack:
        stack.enter_context(report_disk_full(paths[0], None, "Complete downloads are kept"))
        sides = [stack.enter_context(clear_temporary_file(path).open("wb")) for path in paths]
        for part in parts:
            num_pairs += write_part(context, split, part, sides)
        for side in sides:
            side.flush()
            os.fsync(side.fileno())
    downloads = [
        {"url": downloaded.url, "size": downloaded.size, "sha256": downloaded.sha256}
        for downloaded in context.cache.downloads[num_before:]
    ]
    context.cache.progress.message(f"{split}: {num_pairs:,} pairs")
    return SplitFiles(names, [path.stat().st_size for path in paths], num_pairs, downloads)


def write_part(context: FetchContext, split: str, part: CorpusPart, sides: Sides) -> int:
    sources, targets = PART_WRITERS[part.source_type](context, split, part, sides)
    if sources != targets or not sources:
        name = f"{context.corpus.name} {split} ({getattr(part, part.source_type)})"
        counts = f"{sources:,} lines of {context.pair.source} and {targets:,} of {context.pair.target}"
        raise DataError(f"{name} has {counts}; both sides need the same number, and at least one")
    return sources


def finalize_folder(
    name: str, context: FetchContext, folder: Path, splits: dict[str, SplitFiles]
) -> FetchedCorpus:
    """Rename the files to their final names, and write the manifest last."""
    for split in splits.values():
        for file in split.files:
            os.replace(folder / f"{file}.part", folder / file)
    corpus = context.corpus
    fetched = FetchedCorpus(
        corpus=name,
        pair=str(context.pair),
        title=corpus.title,
        license=corpus.license,
        license_url=corpus.license_url,
        date=datetime.date.today().isoformat(),
        splits=splits,
        folder=folder,
        register=context.register,
    )
    fetched.write_manifest()
    return fetched
