"""Where the pairs of a part come from: URLs, OPUS, the test sets of sacreBLEU, the built-in grammar.

Each writer appends the lines of a part to the files of source and target, and returns the number of each.
"""

import copy
import fnmatch
import hashlib
import json
import os
import re
import tempfile
import urllib.parse
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from manyheads.config import SPLITS, describe_unknown_name
from manyheads.errors import DataError, RequestError
from manyheads.progress import Progress
from manyheads.text.datasets.archives import (
    UnpackLimit,
    copy_lines,
    decompress,
    iterate_members,
    removing_damaged,
)
from manyheads.text.datasets.catalog import Catalog, CatalogEntry, CorpusPart, LanguagePair
from manyheads.text.datasets.download import DownloadedFile, download

OPUS_MEMBER_PATTERN = "*.{first}-{second}.{language}"
PLAYGROUND_SEED = 1
PLAYGROUND_REGISTERS = ("plain", "polite")  # of Korean; the first is the default

Sides = Sequence[IO[bytes]]  # the files of source and target
LineCounts = tuple[int, int]


@dataclass
class DownloadCache:
    """The folder of downloads, with a subfolder for each URL, so that equal file names do not collide."""

    folder: Path
    force: bool
    progress: Progress
    retry_delays: Sequence[float]
    downloads: list[DownloadedFile] = field(default_factory=list)

    def fetch(self, url: str, **expected: Any) -> Path:
        digest = hashlib.sha256(url.encode()).hexdigest()[:12]
        name = re.sub(r"[^\w.-]", "_", urllib.parse.urlsplit(url).path.rpartition("/")[2]) or "file"
        path = self.folder / digest / name
        if self.force and url not in [downloaded.url for downloaded in self.downloads]:
            path.unlink(missing_ok=True)
        downloaded = download(url, path, progress=self.progress, retry_delays=self.retry_delays, **expected)
        self.downloads.append(downloaded)
        return path


@dataclass
class FetchContext:
    """The corpus that is being fetched, and the catalog and cache for it."""

    corpus: CatalogEntry
    member: str  # what follows the name of a family: Tatoeba of opus/Tatoeba
    pair: LanguagePair
    catalog: Catalog
    cache: DownloadCache
    register: str = ""  # of the Korean that the built-in grammar generates; empty: its default

    @property
    def splits(self) -> dict[str, list[CorpusPart]]:
        return self.corpus.select_parts(self.pair)

    def fill(self, pattern: str, **values: str) -> str:
        return self.catalog.fill(pattern, self.pair.get_placeholder_values() | values)


def write_from_url(context: FetchContext, split: str, part: CorpusPart, sides: Sides) -> LineCounts:
    """Write a file for each side, or both sides of one archive."""
    url = context.fill(part.url or "", language="{language}")
    if "{language}" not in url:
        archive = context.cache.fetch(url, **part.get_expected_file())
        return write_members(context, archive, part.member or OPUS_MEMBER_PATTERN, sides)
    counts = []
    for language, side in zip(context.pair.languages, sides, strict=True):
        file = context.cache.fetch(url.replace("{language}", language), **part.get_expected_file(language))
        with removing_damaged(file), file.open("rb") as stream:
            counts.append(copy_lines(decompress(file.name, stream), side, UnpackLimit(file)))
    return counts[0], counts[1]


def write_members(context: FetchContext, archive: Path, member: str, sides: Sides) -> LineCounts:
    """Write both sides of an archive, each found by the pattern of its member."""
    patterns = [context.fill(member, language=language) for language in context.pair.languages]
    counts: dict[str, int] = {}
    limit = UnpackLimit(archive)
    with removing_damaged(archive), closing(iterate_members(archive)) as members:
        for name, open_member in members:
            for pattern, side in zip(patterns, sides, strict=True):
                if not fnmatch.fnmatchcase(name, pattern):
                    continue
                if pattern in counts:
                    raise DataError(
                        f"{archive.name} has two members like {pattern}; name one in a file (--catalog FILE)"
                    )
                with open_member() as stream:
                    counts[pattern] = copy_lines(decompress(name, stream), side, limit)
    for pattern in patterns:
        if pattern not in counts:
            raise DataError(f"{archive} has no member {pattern}; correct `member` in a file (--catalog FILE)")
    return counts[patterns[0]], counts[patterns[1]]


def write_opus(context: FetchContext, split: str, part: CorpusPart, sides: Sides) -> LineCounts:
    name, _, version = context.fill(part.opus or "", corpus=context.member).partition("/")
    if version:
        url = context.fill("{opus_release}", corpus=name, version=version)
    else:
        url = find_latest_opus_release(context, name)
    return write_members(context, context.cache.fetch(url), OPUS_MEMBER_PATTERN, sides)


def find_latest_opus_release(context: FetchContext, name: str) -> str:
    """Ask OPUS for the URL of the latest release. The reply is not cached."""
    query = context.fill("{opus_interface}", corpus=urllib.parse.quote(name))
    with tempfile.TemporaryDirectory() as folder:
        reply = download(query, Path(folder, "reply"), retry_delays=context.cache.retry_delays)
        body = reply.path.read_bytes()
    try:
        rows = [row for row in json.loads(body)["corpora"] if row["source"] and row["target"]]
        urls = [str(row["url"]) for row in rows]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{query} does not reply with a list of corpora; give opus/{name}/VERSION") from None
    if not urls:
        raise DataError(
            f"OPUS has no {name} for {context.pair}; https://opus.nlpl.eu has the names, with capitals"
        )
    return urls[0]


def write_sacrebleu(context: FetchContext, split: str, part: CorpusPart, sides: Sides) -> LineCounts:
    """Read a test set with sacreBLEU from our own downloads, since sacreBLEU cannot resume."""
    from sacrebleu.dataset import DATASETS

    name, pair = context.fill(part.sacrebleu or "", corpus=context.member), str(context.pair)
    if name not in DATASETS:
        raise RequestError(describe_unknown_name("test set", name, sorted(DATASETS), prefix="sacrebleu/"))
    dataset: Any = copy.copy(DATASETS[name])
    if pair not in dataset.langpairs:
        raise RequestError(f"sacrebleu/{name} has no {pair}; it has {', '.join(sorted(dataset.langpairs))}")
    checksums = dataset.md5 or [None] * len(dataset.data)
    files = [context.cache.fetch(url, md5=md5) for url, md5 in zip(dataset.data, checksums, strict=True)]
    with tempfile.TemporaryDirectory(dir=context.cache.folder) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # tarfile: extraction without a filter
        dataset.data = [file.absolute().as_uri() for file in files]
        dataset._outdir, dataset._rawdir = folder, os.path.join(folder, "raw")
        with removing_damaged(*files):
            texts = [dataset.get_source_file(pair), dataset.get_reference_files(pair)[0]]
        sources, targets = (copy_file(text, side) for text, side in zip(texts, sides, strict=True))
    return sources, targets


def copy_file(path: str, side: IO[bytes]) -> int:
    with open(path, "rb") as stream:
        return copy_lines(stream, side)


def write_playground(context: FetchContext, split: str, part: CorpusPart, sides: Sides) -> LineCounts:
    """Generate all splits of the built-in grammar together, so that no sentence is in two of them."""
    from manyheads import playground

    sizes = {name: sum(part.playground or 0 for part in parts) for name, parts in context.splits.items()}
    train, valid, test = (sizes.get(name, 0) for name in SPLITS)
    is_reversed = str(context.pair) not in playground.PAIRS  # generated from English, used in both directions
    pair = "-".join(context.pair.languages[::-1]) if is_reversed else str(context.pair)
    corpus = playground.generate_corpus(
        pair,
        train=train,
        valid=valid,
        test=test,
        seed=PLAYGROUND_SEED,
        register=context.register or PLAYGROUND_REGISTERS[0],
    )
    pairs = [sentences[::-1] if is_reversed else sentences for sentences in corpus[split]]
    for sentences in pairs:
        for sentence, side in zip(sentences, sides, strict=True):
            side.write(sentence.encode() + b"\n")
    return len(pairs), len(pairs)


def check_register(register: str, corpus: CatalogEntry, pair: LanguagePair) -> None:
    """Refuse a register for anything but the Korean of the built-in grammar."""
    parts = [part for parts in corpus.select_parts(pair).values() for part in parts]
    is_generated = all(part.source_type == "playground" for part in parts) and "ko" in pair.languages
    if register and not is_generated:
        raise RequestError(f"--register is for the Korean of playground, not for {corpus.name} {pair}")
    if register and register not in PLAYGROUND_REGISTERS:
        raise RequestError(describe_unknown_name("register", register, list(PLAYGROUND_REGISTERS)))


PartWriter = Callable[[FetchContext, str, CorpusPart, Sides], LineCounts]
PART_WRITERS: dict[str, PartWriter] = {
    "url": write_from_url,
    "opus": write_opus,
    "sacrebleu": write_sacrebleu,
    "playground": write_playground,
}
