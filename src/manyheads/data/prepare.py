"""From files to a data folder: read, clean, learn subwords, encode, store. What is left out is listed.

Text goes through as a stream. Training pairs that are kept wait on disk, compressed, until the subwords are
learnt from a sample of them. What grows with their number is eight bytes a pair, to know a second one by.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from manyheads.config import (
    LANGUAGE,
    SPLITS,
    UNKNOWN,
    CorpusConfig,
    InputConfig,
    Recipe,
)
from manyheads.data.report import LENGTH_BOUNDS
from manyheads.data.store import (
    MANIFEST,
    SideWriter,
    Store,
    write_manifest,
)
from manyheads.errors import ConfigError, DataError
from manyheads.folders import written_aside
from manyheads.progress import Progress, Tell, counted
from manyheads.text import corpus as readers
from manyheads.text.clean import DUPLICATE, Cleaner, Seen, pair_keys
from manyheads.text.corpus import NO_COUNTERPART, STRUCTURAL, Bad, Pair
from manyheads.text.subwords import Pieces, SubwordPair

CHUNK = 20_000  # pairs handled together
HELD_OUT = "set apart for valid or test"
DROPPED = "dropped.tsv"
SILENT = Progress()


def prepare(recipe: Recipe, folder: Path, *, force: bool = False, tell: Tell = SILENT.tell) -> Store:
    """A data folder made by a recipe. `force` replaces one that is there."""
    recipe = completed(recipe)
    with written_aside(folder, MANIFEST, force) as aside:
        with (aside / DROPPED).open("w", encoding="utf-8", newline="\n") as listed:
            gate = Gate(recipe.corpus.on_bad, listed)
            held, reports = held_out(recipe, gate, tell)
            with Spool(aside) as spool:
                reports["train"] = read_training(recipe, held, gate, spool, tell)
        subwords = learn_subwords(recipe, spool, tell)
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
        source, target = languages_of(recipe.train[0])
    named: dict[str, Any] = {split: tuple(names_given(getattr(recipe, split))) for split in SPLITS}
    corpus = replace(recipe.corpus, source=source, target=target)
    return replace(recipe, corpus=corpus, **named)


def languages_of(given: InputConfig) -> tuple[str, str]:
    """train.en.xz and train.ko.xz are English and Korean."""
    codes = [readers.bare_name(file).suffix[1:] for file in given.files]
    if len(codes) == 2 and codes[0] != codes[1] and all(LANGUAGE.fullmatch(code) for code in codes):
        return codes[0], codes[1]
    raise ConfigError(
        f"the languages are not known, and {', '.join(given.files)} does not tell them: give --pair en-ko"
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

    def as_dict(self) -> dict[str, Any]:
        """For JSON; what was most often the case stands first."""
        counts = {key: dict(getattr(self, key).most_common()) for key in ("bad", "dropped", "mended")}
        plain = {key: getattr(self, key) for key in ("name", "files", "weight", "read", "kept")}
        return plain | counts


class Gate:
    """Bad text stops the work or is listed, as the recipe says; what a filter drops is listed."""

    def __init__(self, policy: str, listed: IO[str] | None) -> None:
        self.policy, self.listed = policy, listed
        self._write("split", "file", "line", "reason", "detail")

    def bad(self, split: str, bad: Bad, report: Report) -> None:
        if self.policy == "stop" or (self.policy == "default" and bad.reason in STRUCTURAL):
            raise DataError(f"{bad}. {remedy(bad)}")
        report.bad[bad.reason] += 1
        self._write(split, bad.file, str(bad.line), bad.reason, bad.detail)

    def dropped(self, split: str, pair: Pair, reason: str, detail: str, report: Report) -> None:
        report.dropped[reason] += 1
        self._write(split, report.files[0], str(pair.line), reason, detail)

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


def read_split(recipe: Recipe, split: str, gate: Gate, tell: Tell) -> tuple[list[Pair], list[Report]]:
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


def held_out(recipe: Recipe, gate: Gate, tell: Tell) -> tuple[dict[str, list[Pair]], dict[str, list[Report]]]:
    """Valid and test, as given; where no valid is given, both are drawn from the training text."""
    held: dict[str, list[Pair]] = {}
    reports: dict[str, list[Report]] = {}
    for split in ("valid", "test"):
        if getattr(recipe, split):
            held[split], reports[split] = read_split(recipe, split, gate, tell)
    if "valid" not in held and recipe.corpus.hold_out:
        wanted = [split for split in ("valid", "test") if split not in held]
        drawn = draw_held_out(recipe, len(wanted), held.get("test", []), tell)
        for number, split in enumerate(wanted):
            held[split] = drawn[number :: len(wanted)]
            reports[split] = [Report(HELD_OUT, (), 1.0, len(held[split]), kept=len(held[split]))]
    return held, reports


def draw_held_out(recipe: Recipe, splits: int, given: list[Pair], tell: Tell) -> list[Pair]:
    """Some good pairs of the training text, by the seed, all sides of which differ: a reading beforehand.

    So many as the recipe says for each split, but no more than a twentieth of the text.
    """
    cleaner, chance = Cleaner(recipe.clean, recipe.corpus, sides(given)), random.Random(recipe.corpus.seed)
    quiet = Gate(recipe.corpus.on_bad, None)
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


def sides(pairs: Iterable[Pair]) -> frozenset[str]:
    return frozenset(text for pair in pairs for text in (pair.source, pair.target))


def read_training(
    recipe: Recipe, held: dict[str, list[Pair]], gate: Gate, spool: "Spool", tell: Tell
) -> list[Report]:
    """Reads, filters and spools the training pairs."""
    apart = {
        (pair.source, pair.target) for split in held if not getattr(recipe, split) for pair in held[split]
    }
    cleaner = Cleaner(recipe.clean, recipe.corpus, sides(pair for pairs in held.values() for pair in pairs))
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
    chunk: list[Pair], cleaner: Cleaner, apart: set[tuple[str, str]], gate: Gate, report: Report
) -> Iterator[Pair]:
    for pair in chunk:
        if (pair.source, pair.target) in apart:
            gate.dropped("train", pair, HELD_OUT, "", report)
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
    read = sum(report.read for report in reports)
    reasons: Counter[str] = sum((report.bad + report.dropped for report in reports), Counter())
    counted = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
    return f"{read:,} read" + (f"; {counted}. Filters are switched by clean.KEY=VALUE" if reasons else "")


def byte_progress(stage: str, inputs: Iterable[InputConfig], tell: Tell) -> Callable[[int], None]:
    return counted(tell, stage, sum(size_of(file) for given in inputs for file in given.files))


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


def learn_subwords(recipe: Recipe, spool: Spool, tell: Tell) -> SubwordPair:
    if recipe.subwords.take_from:
        return SubwordPair.load(recipe.subwords.take_from)
    tell("learning subwords", 0, None)
    pairs = (recipe.subwords.sample + 1) // 2
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
        self.unknown += int((pieces.ids == UNKNOWN).sum())
        self.longest = max(self.longest, int(sizes.max(initial=0)))
        self.lengths = [one + int(more) for one, more in zip(self.lengths, spans, strict=True)]


def encode(
    folder: Path, split: str, subwords: SubwordPair, pairs: Iterator[Any], count: int, tell: Tell
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
    taken = recipe.subwords.take_from
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
            "kind": f"from {taken}" if taken else recipe.subwords.kind,
            "joint": subwords.joint,
            "source_vocabulary": len(subwords.source),
            "target_vocabulary": len(subwords.target),
            "sha256": {name: one.sha256 for name, one in subwords.files.items()},
        },
        "recipe": asdict(recipe),
    }
