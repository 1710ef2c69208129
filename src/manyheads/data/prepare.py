"""From files to a data folder: read, clean, learn subwords, encode, store. What is left out is listed.

Text goes through as a stream. Training pairs that are kept wait on disk, compressed, until the subwords are
learned from a sample of them. What grows with their number is eight bytes a pair, to know a second one by.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from manyheads.atomic_io import atomic_directory
from manyheads.config import (
    SPLITS,
    UNK_ID,
    CorpusConfig,
    InputConfig,
    Recipe,
)
from manyheads.data.report import LENGTH_BOUNDS
from manyheads.data.store import (
    DROPPED,
    MANIFEST,
    SideWriter,
    Store,
    write_manifest,
)
from manyheads.errors import ConfigError, DataError
from manyheads.progress import Progress, ReportProgress, make_counter
from manyheads.text import corpus as readers
from manyheads.text.clean import DUPLICATE, LEAKAGE, RATIO, WRONG_SCRIPT, Cleaner, Seen, pair_keys
from manyheads.text.corpus import (
    INVALID_UTF8,
    NO_COUNTERPART,
    NO_LANGUAGE,
    STRUCTURAL,
    WRONG_COLUMNS,
    WRONG_JSON,
    Bad,
    Pair,
)
from manyheads.text.languages import base, check_language, is_known
from manyheads.text.subwords import Pieces, SubwordPair

CHUNK = 20_000  # pairs handled together
HELD_OUT = "set apart for valid or test"
SHOWN = 100  # characters of a dropped side in the list
SILENT = Progress()


def prepare(recipe: Recipe, folder: Path, *, force: bool = False, tell: ReportProgress = SILENT.update) -> Store:
    """A data folder made by a recipe. `force` replaces one that is there."""
    recipe = completed(recipe)
    ready_made = SubwordPair.load(recipe.subwords.reuse_from) if recipe.subwords.reuse_from else None
    with atomic_directory(folder, MANIFEST, force) as aside:
        with (aside / DROPPED).open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as listed:
            gate = Gate(recipe.corpus.on_invalid, listed)
            held, reports = held_out(recipe, gate, tell)
            with Spool(aside) as spool:
                reports["train"] = read_training(recipe, held, gate, spool, tell)
        subwords = ready_made or learn_subwords(recipe, spool, tell)
        subwords.save(aside)
        tallies = {"train": encode(aside, "train", subwords, spool.pairs(), spool.count, tell)}
        for split, pairs in held.items():
            tallies[split] = encode(aside, split, subwords, iter(pairs), len(pairs), tell)
            write_text(aside, split, recipe.corpus, pairs)
        spool.remove()
        tell("taking checksums", 0, None)
        write_manifest(aside, describe(recipe, subwords, reports, tallies))
    return Store.open(folder)


# ---- the recipe, made whole


def completed(recipe: Recipe) -> Recipe:
    """Languages read off the file names where the recipe is silent; every input named."""
    if not recipe.train:
        raise ConfigError("no training text: give --train FILE twice, source and target, or one file of both")
    source, target = recipe.corpus.source, recipe.corpus.target
    if not (source and target):
        told = languages_of(recipe.train)
        source, target = source or told[0], target or told[1]
    corpus = replace(recipe.corpus, source=source, target=target)
    for split in SPLITS:
        for given in getattr(recipe, split):
            check_names(given, corpus)
    named: dict[str, Any] = {split: tuple(names_given(getattr(recipe, split))) for split in SPLITS}
    return replace(recipe, corpus=corpus, **named)


def languages_of(inputs: Iterable[InputConfig]) -> tuple[str, str]:
    """train.en.xz and train.ko.xz are English and Korean."""
    for given in inputs:
        codes = name_codes(given)
        if len(codes) == 2 and codes[0] != codes[1] and all(map(is_known, codes)):
            return codes[0], codes[1]
    raise ConfigError("the languages are not known, and no file name tells them: give --pair en-ko")


def name_codes(given: InputConfig) -> list[str]:
    """What stands behind the last dot of each name: en of train.en.xz."""
    return [readers.bare_name(file).suffix[1:] for file in given.files]


def check_names(given: InputConfig, corpus: CorpusConfig) -> None:
    """Wrong codes, and files whose names say that they are of another language than they are given for."""
    for code in (corpus.source, corpus.target):
        check_language(code)
    for file, code, wanted in zip(
        given.files, name_codes(given), (corpus.source, corpus.target), strict=False
    ):
        if len(given.files) == 2 and is_known(code) and base(code) != base(wanted):
            raise ConfigError(
                f"{file} is given where {wanted} belongs, but its name says {code}: give the source "
                f"first, then the target; the languages are {corpus.source} and {corpus.target} (--pair)"
            )


def names_given(inputs: Iterable[InputConfig]) -> Iterator[InputConfig]:
    taken: Counter[str] = Counter()
    for given in inputs:
        name = given.name or readers.bare_name(given.files[0]).stem
        taken[name] += 1
        yield replace(given, name=name if taken[name] == 1 else f"{name}-{taken[name]}")


# ---- reading


@dataclass
class Report:
    """What became of an input."""

    name: str
    files: tuple[str, ...]
    weight: float
    read: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    first: dict[str, str] = field(default_factory=dict)  # of each reason, where it was met first

    def as_dict(self) -> dict[str, Any]:
        """For JSON; what was most often the case stands first."""
        counts = {key: dict(getattr(self, key).most_common()) for key in ("bad", "dropped", "mended")}
        plain = {key: getattr(self, key) for key in ("name", "files", "weight", "read", "kept")}
        return plain | counts


class Gate:
    """Bad text stops the work or is listed, as the recipe says; what a filter drops is listed."""

    def __init__(self, policy: str, listed: IO[str] | None) -> None:
        self.policy, self.listed = policy, listed
        self._write("split", "file", "line", "reason", "detail", "source", "target")

    def bad(self, split: str, bad: Bad, report: Report) -> None:
        if self.policy == "stop" or (self.policy == "default" and bad.reason in STRUCTURAL):
            raise DataError(f"{bad}. {remedy(bad)}")
        report.bad[bad.reason] += 1
        report.first.setdefault(bad.reason, str(bad))
        self._write(split, bad.file, str(bad.line), bad.reason, bad.detail, "", "")

    def dropped(self, split: str, pair: Pair, reason: str, detail: str, report: Report) -> None:
        report.dropped[reason] += 1
        file = report.files[-1 if detail.startswith("target") else 0]
        report.first.setdefault(reason, f"{file}:{pair.line}: {reason}" + (f" ({detail})" if detail else ""))
        self._write(split, file, str(pair.line), reason, detail, pair.source[:SHOWN], pair.target[:SHOWN])

    def _write(self, *cells: str) -> None:
        if self.listed:
            self.listed.write("\t".join(" ".join(cell.split()) for cell in cells) + "\n")


def remedy(bad: Bad) -> str:
    if bad.reason == NO_COUNTERPART:
        return "Lines may face wrong lines: align the files, or leave out the rest with --on-bad skip"
    return "Mend it, or leave it out with --on-bad skip"


def mended_pairs(
    given: InputConfig,
    split: str,
    cleaner: Cleaner,
    gate: Gate,
    report: Report,
    progress: Callable[[int], None],
) -> Iterator[Pair]:
    """The pairs of an input that can be read, mended; the others go to the gate."""
    before = cleaner.mended.copy()
    for found in readers.read(given, cleaner.corpus, progress):
        report.read += 1
        if isinstance(found, Bad):
            gate.bad(split, found, report)
        else:
            yield Pair(cleaner.mend(found.source), cleaner.mend(found.target), found.line)
    report.mended = cleaner.mended - before


def read_split(recipe: Recipe, split: str, gate: Gate, tell: ReportProgress) -> tuple[list[Pair], list[Report]]:
    """Valid or test: mended, but never filtered, for a score is of all of them."""
    cleaner = Cleaner(recipe.clean, recipe.corpus)
    inputs: tuple[InputConfig, ...] = getattr(recipe, split)
    progress = byte_progress(f"reading {split}", inputs, tell)
    pairs: list[Pair] = []
    reports: list[Report] = []
    for given in inputs:
        report = Report(given.name, given.files, given.weight)
        before = len(pairs)
        pairs.extend(mended_pairs(given, split, cleaner, gate, report, progress))
        report.kept = len(pairs) - before
        reports.append(report)
    if inputs and not pairs:
        raise DataError(
            f"{split}: not one good pair in {', '.join(file for one in inputs for file in one.files)}"
        )
    return pairs, reports


def held_out(recipe: Recipe, gate: Gate, tell: ReportProgress) -> tuple[dict[str, list[Pair]], dict[str, list[Report]]]:
    """Valid and test, as given; where no valid is given, both are drawn from the training text."""
    held: dict[str, list[Pair]] = {}
    reports: dict[str, list[Report]] = {}
    for split in ("valid", "test"):
        if getattr(recipe, split):
            held[split], reports[split] = read_split(recipe, split, gate, tell)
    if "valid" not in held and recipe.corpus.hold_out:
        wanted = [split for split in ("valid", "test") if split not in held]
        drawn = draw_held_out(recipe, len(wanted), held, tell)
        for number, split in enumerate(wanted if drawn else []):
            held[split] = drawn[number :: len(wanted)]
            reports[split] = [Report("out of train", (), 1.0, len(held[split]), kept=len(held[split]))]
    return held, reports


def draw_held_out(recipe: Recipe, splits: int, given: dict[str, list[Pair]], tell: ReportProgress) -> list[Pair]:
    """Some good pairs of the training text, by the seed, all sides of which differ: a reading beforehand.

    So many as the recipe says for each split, but no more than a twentieth of the text.
    """
    cleaner, chance = Cleaner(recipe.clean, recipe.corpus, sides(given)), random.Random(recipe.corpus.seed)
    quiet = Gate(recipe.corpus.on_invalid, None)
    check_readable_twice(recipe.train)
    progress = byte_progress("setting pairs apart", recipe.train, tell)
    good = (
        pair
        for one in recipe.train
        for pair in mended_pairs(one, "train", cleaner, quiet, Report(one.name, one.files, 1.0), progress)
        if cleaner.fault(pair.source, pair.target) is None
    )
    wanted = recipe.corpus.hold_out * splits
    chosen, seen = reservoir(good, 2 * wanted, chance)  # twice as many, for some will be alike
    return distinct(chosen)[: min(wanted, seen // 20 * splits)]


def reservoir(pairs: Iterable[Pair], wanted: int, chance: random.Random) -> tuple[list[Pair], int]:
    """So many of a stream, each as likely as any other, in random order; and how many there were."""
    chosen: list[Pair] = []
    seen = 0
    for pair in pairs:
        place = seen if seen < wanted else int(chance.random() * (seen + 1))
        seen += 1
        if place < wanted:
            chosen[place : place + 1] = [pair]
    chance.shuffle(chosen)
    return chosen, seen


def distinct(pairs: list[Pair]) -> list[Pair]:
    """Those of which no side stood in an earlier one."""
    seen: set[str] = set()
    kept = []
    for pair in pairs:
        if pair.source not in seen and pair.target not in seen:
            kept.append(pair)
            seen |= {pair.source, pair.target}
    return kept


def sides(held: dict[str, list[Pair]]) -> dict[str, str]:
    """Every side of the pairs held out, and the split that it stands in."""
    return {
        text: split for split, pairs in held.items() for pair in pairs for text in (pair.source, pair.target)
    }


def read_training(
    recipe: Recipe, held: dict[str, list[Pair]], gate: Gate, spool: "Spool", tell: ReportProgress
) -> list[Report]:
    """Reads, filters and spools the training pairs."""
    drawn = [split for split in held if not getattr(recipe, split)]
    apart = {(pair.source, pair.target): split for split in drawn for pair in held[split]}
    cleaner = Cleaner(recipe.clean, recipe.corpus, sides(held))
    seen = Seen() if recipe.clean.duplicates else None
    progress = byte_progress("reading train", recipe.train, tell)
    reports = []
    for given in recipe.train:
        report = Report(given.name, given.files, given.weight)
        pairs = mended_pairs(given, "train", cleaner, gate, report, progress)
        while chunk := list(islice(pairs, CHUNK)):
            kept = list(filtered(chunk, cleaner, apart, gate, report))
            if seen:
                kept = list(without_duplicates(kept, seen, gate, report))
            spool.write(kept)
            report.kept += len(kept)
        reports.append(report)
    if not spool.count:
        raise DataError(f"no training pair is left: {why_none(reports)}")
    return reports


def filtered(
    chunk: list[Pair], cleaner: Cleaner, apart: dict[tuple[str, str], str], gate: Gate, report: Report
) -> Iterator[Pair]:
    for pair in chunk:
        if split := apart.get((pair.source, pair.target)):
            gate.dropped("train", pair, HELD_OUT, split, report)
        elif fault := cleaner.fault(pair.source, pair.target):
            gate.dropped("train", pair, *fault, report)
        else:
            yield pair


def without_duplicates(chunk: list[Pair], seen: Seen, gate: Gate, report: Report) -> Iterator[Pair]:
    fresh = seen.fresh(pair_keys((pair.source, pair.target) for pair in chunk))
    for pair, new in zip(chunk, fresh.tolist(), strict=True):
        if new:
            yield pair
        else:
            gate.dropped("train", pair, DUPLICATE, "", report)


def why_none(reports: list[Report]) -> str:
    """The reasons counted, the first case of the commonest, and what may be done about it."""
    read = sum(report.read for report in reports)
    reasons: Counter[str] = sum((report.bad + report.dropped for report in reports), Counter())
    if not reasons:
        return f"{read:,} read; the files are empty"
    counted = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
    most = reasons.most_common(1)[0][0]
    first = next(report.first[most] for report in reports if most in report.first)
    hint = HINTS.get(most, "Filters are set by clean.KEY=VALUE")
    return f"{read:,} read; {counted}. The first: {first}. {hint}"


HINTS = {
    WRONG_COLUMNS: "Columns are chosen by --fields 2,4 or by their names, --fields en,ko",
    WRONG_JSON: "Keys are chosen by --fields, such as translation.en,translation.ko",
    INVALID_UTF8: "If the file has another encoding: iconv -f EUC-KR -t UTF-8 converts it",
    NO_LANGUAGE: "Languages are chosen by --pair, or corpus.source and corpus.target",
    WRONG_SCRIPT: "Are source and target swapped, or the languages others (--pair)?",
    RATIO: "Are source and target the right columns (--fields)? Or set clean.ratio",
    LEAKAGE: "Is valid or test the same text? clean.leakage=false keeps it",
    HELD_OUT: "The text is too small to set pairs apart: corpus.hold_out=0",
}


def byte_progress(stage: str, inputs: Iterable[InputConfig], tell: ReportProgress) -> Callable[[int], None]:
    return make_counter(tell, stage, sum(size_of(file) for given in inputs for file in given.files))


def check_readable_twice(inputs: Iterable[InputConfig]) -> None:
    """A pipe is empty after the first reading."""
    for file in (file for given in inputs for file in given.files):
        if Path(file).exists() and not Path(file).is_file():
            raise DataError(
                f"{file}: not a file that can be read twice, which setting pairs apart needs: give --valid, "
                f"set corpus.hold_out=0, or write it to a file first"
            )


def size_of(file: str) -> int:
    try:
        return Path(file).stat().st_size
    except OSError as fault:
        raise DataError(f"{file}: {fault.strerror}") from None


# ---- between the passes


class Spool:
    """Pairs that wait on disk, in two compressed files of lines."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / "spool.source.zst", folder / "spool.target.zst"]
        self.count = 0

    def __enter__(self) -> Self:
        import pyarrow as pa

        self.files = [pa.output_stream(str(path), compression="zstd") for path in self.paths]
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.close()

    def write(self, pairs: list[Pair]) -> None:
        for side, file in enumerate(self.files):
            file.write("".join(f"{pair[side]}\n" for pair in pairs).encode())
        self.count += len(pairs)

    def pairs(self) -> Iterator[tuple[str, str]]:
        ignored: Callable[[int], None] = lambda size: None  # noqa: E731
        with (
            readers.opened(str(self.paths[0]), ignored) as one,
            readers.opened(str(self.paths[1]), ignored) as other,
        ):
            for source, target in zip(one, other, strict=True):
                yield source[:-1].decode(), target[:-1].decode()

    def sample(self, wanted: int, seed: int) -> Iterator[tuple[str, str]]:
        """So many pairs by the seed, or all, in their order; the same each time."""
        chance, needed = random.Random(seed), min(wanted, self.count)
        for left, pair in zip(range(self.count, 0, -1), self.pairs(), strict=True):
            if chance.random() * left < needed:
                needed -= 1
                yield pair

    def remove(self) -> None:
        for path in self.paths:
            path.unlink()


def learn_subwords(recipe: Recipe, spool: Spool, tell: ReportProgress) -> SubwordPair:
    tell("learning subwords", 0, None)
    pairs = (recipe.subwords.sample_pairs + 1) // 2
    config = recipe.subwords
    if recipe.clean.markup != "keep":
        config = replace(config, reserved_found=0)
    return SubwordPair.train(lambda: spool.sample(pairs, recipe.corpus.seed), config)


# ---- tokens


@dataclass
class Tally:
    """What is counted of a side as it is written."""

    tokens: int = 0
    unknown: int = 0
    longest: int = 0
    lengths: list[int] = field(default_factory=lambda: [0] * (len(LENGTH_BOUNDS) + 1))

    def add(self, pieces: Pieces) -> None:
        sizes = np.diff(pieces.offsets)
        spans = np.bincount(np.searchsorted(LENGTH_BOUNDS, sizes), minlength=len(self.lengths))
        self.tokens += len(pieces.ids)
        self.unknown += int((pieces.ids == UNK_ID).sum())
        self.longest = max(self.longest, int(sizes.max(initial=0)))
        self.lengths = [one + int(more) for one, more in zip(self.lengths, spans, strict=True)]


def encode(
    folder: Path, split: str, subwords: SubwordPair, pairs: Iterator[Any], count: int, tell: ReportProgress
) -> dict[str, Tally]:
    """Writes the tokens of both sides, and counts them."""
    sides = {"source": subwords.source, "target": subwords.target}
    writers = {side: SideWriter(folder, split, side, len(own)) for side, own in sides.items()}
    tallies = {side: Tally() for side in sides}
    done = 0
    while chunk := list(islice(pairs, CHUNK)):
        for place, (side, own) in enumerate(sides.items()):
            pieces = own.encode_many([pair[place] for pair in chunk])
            writers[side].write(pieces)
            tallies[side].add(pieces)
        done += len(chunk)
        tell(f"encoding {split}", done, count)
    for writer in writers.values():
        writer.close()
    return tallies


def write_text(folder: Path, split: str, corpus: CorpusConfig, pairs: list[Pair]) -> None:
    for side, language in enumerate((corpus.source, corpus.target)):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")


# ---- the description


def describe(
    recipe: Recipe,
    subwords: SubwordPair,
    reports: dict[str, list[Report]],
    tallies: dict[str, dict[str, Tally]],
) -> dict[str, Any]:
    taken = recipe.subwords.reuse_from
    return {
        "languages": {"source": recipe.corpus.source, "target": recipe.corpus.target},
        "splits": {
            split: {
                "pairs": sum(report.kept for report in reports[split]),
                **{side: asdict(tally) for side, tally in tallies[split].items()},
                "inputs": [report.as_dict() for report in reports[split]],
            }
            for split in SPLITS
            if split in reports
        },
        "subwords": {
            "kind": f"from {taken}" if taken else recipe.subwords.algorithm,
            "joint": subwords.joint,
            "source_vocabulary": len(subwords.source),
            "target_vocabulary": len(subwords.target),
            "sha256": {name: one.sha256 for name, one in subwords.files.items()},
        },
        "recipe": asdict(recipe),
    }
