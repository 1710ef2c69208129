"""From a known corpus to aligned files: train.en beside train.de, and source.json when all of it is there."""

import copy
import datetime
import fnmatch
import hashlib
import json
import os
import re
import tempfile
import urllib.parse
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from manyheads.config import SPLITS, describe_unknown_name
from manyheads.errors import DataError, RequestError
from manyheads.progress import Progress
from manyheads.text.datasets.archives import copy_lines, decompress, iterate_members, removing_damaged
from manyheads.text.datasets.catalog import Catalog, CatalogEntry, CorpusPart, LanguagePair, load_catalog
from manyheads.text.datasets.download import RETRY_DELAYS, DownloadedFile, download

MANIFEST = "source.json"  # written last: where it is, the folder is complete
OPUS_MEMBER_PATTERN = "*.{first}-{second}.{language}"
PLAYGROUND_SEED = 1

Sides = Sequence[IO[bytes]]  # the source's file and the target's


@dataclass(frozen=True)
class SplitFiles:
    """What became of a split: two files and their bytes, how many pairs, and out of which downloads."""

    files: list[str]
    sizes: list[int]
    pairs: int
    downloads: list[dict[str, Any]]


@dataclass(frozen=True)
class FetchedCorpus:
    """A corpus in its folder. `fresh` is false where an earlier call had completed it."""

    corpus: str
    pair: str
    title: str
    license: str
    license_at: str
    date: str
    splits: dict[str, SplitFiles]
    folder: Path
    fresh: bool = True

    @property
    def files(self) -> list[Path]:
        return [self.folder / name for split in self.splits.values() for name in split.files]

    @property
    def sha256(self) -> dict[str, str]:
        """Of each download, by its address."""
        return {one["address"]: one["sha256"] for split in self.splits.values() for one in split.downloads}

    @property
    def is_complete(self) -> bool:
        """Whether every file is there, with as many bytes as were written."""
        sizes = [size for split in self.splits.values() for size in split.sizes]
        found = [path.stat().st_size if path.exists() else -1 for path in self.files]
        return sizes == found

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "folder": str(self.folder)}, ensure_ascii=False, indent=1)

    def to_text(self) -> str:
        state = "is in" if self.fresh else "was complete, nothing done (--again fetches it anew):"
        lines = [f"{self.corpus} {self.pair} {state} {self.folder}"]
        lines += [f"{name}: {one.pairs:,} pairs, {' '.join(one.files)}" for name, one in self.splits.items()]
        return "\n".join([*lines, f"license: {self.license} ({self.license_at})"])


def get_corpus(
    name: str,
    pair: str | None = None,
    folder: str | Path | None = None,
    *,
    catalog: Catalog | None = None,
    cache: str | Path | None = None,
    again: bool = False,
    progress: Progress | None = None,
    retry_delays: Sequence[float] = RETRY_DELAYS,
) -> FetchedCorpus:
    """Bring a known corpus into a folder; what is complete there is left alone."""
    catalog, progress = catalog or load_catalog(), progress or Progress()
    corpus, member = catalog.find_entry(name)
    languages = corpus.choose_pair(pair)
    folder = Path(folder or f"{name.replace('/', '-')}.{languages}")
    if not again and (there := find_complete(folder, name, languages)):
        return there
    progress.message(f"{corpus.title}\nlicense: {corpus.license} ({corpus.license_at})")
    shelf = DownloadCache(Path(cache or folder / "downloads"), again, progress, retry_delays)
    work = FetchContext(corpus, member, languages, catalog, shelf)
    check_not_foreign(folder, work)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        splits = {split: write_split(work, split, parts, folder) for split, parts in work.splits.items()}
    except BaseException:
        remove_partial_files(folder)
        raise
    remove_previous(folder)
    return finalize_folder(name, work, folder, splits)


def check_not_foreign(folder: Path, work: "FetchContext") -> None:
    """Files of these names that no earlier call wrote are someone's own."""
    ours = [path.name for path in read_manifest(folder).files] if (folder / MANIFEST).exists() else []
    for split in work.splits:
        for language in work.pair.languages:
            name = f"{split}.{language}"
            if (folder / name).exists() and name not in ours:
                raise RequestError(f"{folder / name} is there and is not from get; give another --out")


def remove_partial_files(folder: Path) -> None:
    """Of a call that failed: downloads are kept to go on with, an empty folder is not."""
    for part in folder.glob("*.part"):
        part.unlink()
    for empty in (folder / "downloads", folder):
        if empty.is_dir() and not any(empty.iterdir()):
            empty.rmdir()


def finalize_folder(
    name: str, work: "FetchContext", folder: Path, splits: dict[str, SplitFiles]
) -> FetchedCorpus:
    """The files under their own names, and last of all the page that says where they are from."""
    for split in splits.values():
        for file in split.files:
            os.replace(folder / f"{file}.part", folder / file)
    corpus, today = work.corpus, datetime.date.today().isoformat()
    said = (corpus.title, corpus.license, corpus.license_at)
    got = FetchedCorpus(name, str(work.pair), *said, today, splits, folder)
    row = asdict(got)
    del row["folder"], row["fresh"]
    aside = folder / f"{MANIFEST}.part"
    with aside.open("w", encoding="utf-8") as page:
        page.write(json.dumps(row, ensure_ascii=False, indent=1) + "\n")
        page.flush()
        os.fsync(page.fileno())
    os.replace(aside, folder / MANIFEST)
    return got


def find_complete(folder: Path, name: str, pair: LanguagePair) -> FetchedCorpus | None:
    """What an earlier call completed here. Another corpus in the same folder is not overwritten."""
    try:
        got = read_manifest(folder)
    except FileNotFoundError:
        return None
    if (got.corpus, got.pair) != (name, str(pair)):
        held = f"{folder} holds {got.corpus} {got.pair}, not {name} {pair}"
        raise RequestError(f"{held}; give another --out, or --again to replace it")
    return got if got.is_complete else None


def read_manifest(folder: Path) -> FetchedCorpus:
    try:
        row = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        splits = {split: SplitFiles(**values) for split, values in row.pop("splits").items()}
        return FetchedCorpus(**row, splits=splits, folder=folder, fresh=False)
    except (ValueError, TypeError, KeyError, AttributeError):
        page = folder / MANIFEST
        raise DataError(f"{page} is not a page that get wrote; remove it, or choose another --out") from None


def remove_previous(folder: Path) -> None:
    """Without what an earlier call completed, so that no split of it stays beside the new ones."""
    if (folder / MANIFEST).exists():
        files = read_manifest(folder).files
        (folder / MANIFEST).unlink()
        for path in files:
            (folder / path.name).unlink(missing_ok=True)


@dataclass
class DownloadCache:
    """Where downloads are kept: a folder for each address, so that equal names do not meet."""

    folder: Path
    again: bool
    progress: Progress
    retry_delays: Sequence[float]
    downloads: list[DownloadedFile] = field(default_factory=list)

    def fetch(self, address: str, **published: Any) -> Path:
        digest = hashlib.sha256(address.encode()).hexdigest()[:12]
        name = re.sub(r"[^\w.-]", "_", urllib.parse.urlsplit(address).path.rpartition("/")[2]) or "file"
        path = self.folder / digest / name
        if self.again and address not in [one.url for one in self.downloads]:
            path.unlink(missing_ok=True)
        self.downloads.append(
            download(address, path, progress=self.progress, retry_delays=self.retry_delays, **published)
        )
        return path


@dataclass
class FetchContext:
    """What is being got, and with what."""

    corpus: CatalogEntry
    member: str  # what stood behind the corpus's name
    pair: LanguagePair
    catalog: Catalog
    cache: DownloadCache

    @property
    def splits(self) -> dict[str, list[CorpusPart]]:
        return self.corpus.select_parts(self.pair)

    def fill(self, pattern: str, **more: str) -> str:
        return self.catalog.fill(pattern, self.pair.get_placeholder_values() | more)


def write_split(work: FetchContext, split: str, parts: list[CorpusPart], folder: Path) -> SplitFiles:
    """The parts one behind the other, each with as many lines on one side as on the other."""
    names = [f"{split}.{language}" for language in work.pair.languages]
    paths = [folder / f"{name}.part" for name in names]
    begun, total = len(work.cache.downloads), 0
    with ExitStack() as stack:
        sides = [stack.enter_context(path.open("wb")) for path in paths]
        for part in parts:
            total += write_part(work, split, part, sides)
        for side in sides:
            side.flush()
            os.fsync(side.fileno())
    used = work.cache.downloads[begun:]
    downloads = [{"address": one.url, "size": one.size, "sha256": one.sha256} for one in used]
    work.cache.progress.message(f"{split}: {total:,} pairs")
    return SplitFiles(names, [path.stat().st_size for path in paths], total, downloads)


def write_part(work: FetchContext, split: str, part: CorpusPart, sides: Sides) -> int:
    sources, targets = PART_WRITERS[part.source_type](work, split, part, sides)
    if sources != targets or not sources:
        place = f"{work.corpus.name} {split} ({getattr(part, part.source_type)})"
        counts = f"{sources:,} lines of {work.pair.source} and {targets:,} of {work.pair.target}"
        raise DataError(f"{place} has {counts}; pairs need as many of one as of the other, and some")
    return sources


def write_from_url(work: FetchContext, split: str, part: CorpusPart, sides: Sides) -> tuple[int, int]:
    """A file for each side, or both in one archive."""
    address = work.fill(part.address or "", language="{language}")
    if "{language}" not in address:
        archive = work.cache.fetch(address, **part.get_expected_file())
        return write_members(work, archive, part.member or OPUS_MEMBER_PATTERN, sides)
    counts = []
    for language, side in zip(work.pair.languages, sides, strict=True):
        file = work.cache.fetch(address.replace("{language}", language), **part.get_expected_file(language))
        with removing_damaged(file), file.open("rb") as stream:
            counts.append(copy_lines(decompress(file.name, stream), side))
    return counts[0], counts[1]


def write_members(work: FetchContext, archive: Path, member: str, sides: Sides) -> tuple[int, int]:
    """Both sides out of one archive, each found by its name."""
    patterns = [work.fill(member, language=language) for language in work.pair.languages]
    counts: dict[str, int] = {}
    with removing_damaged(archive), closing(iterate_members(archive)) as found:
        for name, opener in found:
            for pattern, side in zip(patterns, sides, strict=True):
                if not fnmatch.fnmatchcase(name, pattern):
                    continue
                if pattern in counts:
                    raise DataError(f"{archive.name} has two members like {pattern}; name one in the table")
                with opener() as stream:
                    counts[pattern] = copy_lines(decompress(name, stream), side)
    for pattern in patterns:
        if pattern not in counts:
            raise DataError(f"{archive} has no member {pattern}; mend `member` in a table (--table FILE)")
    return counts[patterns[0]], counts[patterns[1]]


def write_opus(work: FetchContext, split: str, part: CorpusPart, sides: Sides) -> tuple[int, int]:
    name, _, version = work.fill(part.opus or "", corpus=work.member).partition("/")
    released = {"corpus": name, "version": version}
    address = work.fill("{opus_release}", **released) if version else find_latest_opus_release(work, name)
    return write_members(work, work.cache.fetch(address), OPUS_MEMBER_PATTERN, sides)


def find_latest_opus_release(work: FetchContext, name: str) -> str:
    """The address that OPUS itself names for its latest release. The reply is not kept."""
    question = work.fill("{opus_interface}", corpus=urllib.parse.quote(name))
    with tempfile.TemporaryDirectory() as passing:
        reply = download(
            question, Path(passing, "reply"), retry_delays=work.cache.retry_delays
        ).path.read_bytes()
    try:
        rows = [row for row in json.loads(reply)["corpora"] if row["source"] and row["target"]]
        addresses = [str(row["url"]) for row in rows]
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"{question} does not answer with a list of corpora; give opus/{name}/VERSION"
        ) from None
    if not addresses:
        raise DataError(
            f"OPUS has no {name} for {work.pair}; https://opus.nlpl.eu has the names, capitals and all"
        )
    return addresses[0]


def write_sacrebleu(work: FetchContext, split: str, part: CorpusPart, sides: Sides) -> tuple[int, int]:
    """sacreBLEU's list and its reading of the files, over downloads of ours: its own cannot be resumed."""
    from sacrebleu.dataset import DATASETS

    name, pair = work.fill(part.sacrebleu or "", corpus=work.member), str(work.pair)
    if name not in DATASETS:
        raise RequestError(describe_unknown_name("test set", name, sorted(DATASETS), prefix="sacrebleu/"))
    dataset: Any = copy.copy(DATASETS[name])
    if pair not in dataset.langpairs:
        raise RequestError(f"sacrebleu/{name} has no {pair}; it has {', '.join(sorted(dataset.langpairs))}")
    sums = dataset.md5 or [None] * len(dataset.data)
    files = [work.cache.fetch(address, md5=md5) for address, md5 in zip(dataset.data, sums, strict=True)]
    with tempfile.TemporaryDirectory(dir=work.cache.folder) as passing, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of tarfile, for extraction without a filter
        dataset.data = [file.absolute().as_uri() for file in files]
        dataset._outdir, dataset._rawdir = passing, os.path.join(passing, "raw")
        with removing_damaged(*files):
            texts = [dataset.get_source_file(pair), dataset.get_reference_files(pair)[0]]
        sources, targets = (copy_file(text, side) for text, side in zip(texts, sides, strict=True))
    return sources, targets


def copy_file(path: str, side: IO[bytes]) -> int:
    with open(path, "rb") as stream:
        return copy_lines(stream, side)


def write_playground(work: FetchContext, split: str, part: CorpusPart, sides: Sides) -> tuple[int, int]:
    """The built-in grammar draws all splits together, so that none repeats another's sentences."""
    from manyheads import playground

    sizes = {name: sum(part.playground or 0 for part in parts) for name, parts in work.splits.items()}
    train, valid, test = (sizes.get(name, 0) for name in SPLITS)
    turned = str(work.pair) not in playground.PAIRS  # it is written from English, and read from either side
    pair = "-".join(work.pair.languages[::-1]) if turned else str(work.pair)
    every = playground.generate_corpus(pair, train=train, valid=valid, test=test, seed=PLAYGROUND_SEED)
    drawn = [sentences[::-1] if turned else sentences for sentences in every[split]]
    for sentences in drawn:
        for sentence, side in zip(sentences, sides, strict=True):
            side.write(sentence.encode() + b"\n")
    return len(drawn), len(drawn)


PartWriter = Callable[[FetchContext, str, CorpusPart, Sides], tuple[int, int]]
PART_WRITERS: dict[str, PartWriter] = {
    "address": write_from_url,
    "opus": write_opus,
    "sacrebleu": write_sacrebleu,
    "playground": write_playground,
}
