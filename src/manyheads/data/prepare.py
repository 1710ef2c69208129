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
from manyheads.text.clean import DUPLICATE, LEAKAGE, LENGTH_RATIO, WRONG_SCRIPT, Cleaner, SeenKeys, hash_pairs
from manyheads.text.corpus import (
    INVALID_UTF8,
    NO_COUNTERPART,
    NO_LANGUAGE,
    STRUCTURAL,
    WRONG_COLUMNS,
    WRONG_JSON,
    InvalidRecord,
    SentencePair,
)
from manyheads.text.languages import check_language, get_base_language, is_known_language
from manyheads.text.subwords import SubwordPair, TokenSequences

CHUNK_PAIRS = 20_000  # pairs handled together
HELD_OUT = "set apart for valid or test"
MAX_LISTED_CHARACTERS = 100  # characters of a dropped side in the list
SILENT = Progress()


def prepare(
    recipe: Recipe, folder: Path, *, force: bool = False, report_progress: ReportProgress = SILENT.update
) -> Store:
    """A data folder made by a recipe. `force` replaces one that is there."""
    recipe = complete_recipe(recipe)
    ready_made = SubwordPair.load(recipe.subwords.reuse_from) if recipe.subwords.reuse_from else None
    with atomic_directory(folder, MANIFEST, force) as aside:
        with (aside / DROPPED).open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as listed:
            gate = DropLog(recipe.corpus.on_invalid, listed)
            held, reports = load_held_out(recipe, gate, report_progress)
            with Spool(aside) as spool:
                reports["train"] = read_training(recipe, held, gate, spool, report_progress)
        subwords = ready_made or train_subwords(recipe, spool, report_progress)
        subwords.save(aside)
        tallies = {
            "train": encode_split(aside, "train", subwords, spool.pairs(), spool.count, report_progress)
        }
        for split, pairs in held.items():
            tallies[split] = encode_split(aside, split, subwords, iter(pairs), len(pairs), report_progress)
            write_text(aside, split, recipe.corpus, pairs)
        spool.remove()
        report_progress("taking checksums", 0, None)
        write_manifest(aside, build_manifest(recipe, subwords, reports, tallies))
    return Store.open(folder)


# ---- the recipe, made whole


def complete_recipe(recipe: Recipe) -> Recipe:
    """Languages read off the file names where the recipe is silent; every input named."""
    if not recipe.train:
        raise ConfigError("no training text: give --train FILE twice, source and target, or one file of both")
    source, target = recipe.corpus.source, recipe.corpus.target
    if not (source and target):
        told = infer_languages(recipe.train)
        source, target = source or told[0], target or told[1]
    corpus = replace(recipe.corpus, source=source, target=target)
    for split in SPLITS:
        for given in getattr(recipe, split):
            check_file_languages(given, corpus)
    named: dict[str, Any] = {split: tuple(name_inputs(getattr(recipe, split))) for split in SPLITS}
    return replace(recipe, corpus=corpus, **named)


def infer_languages(inputs: Iterable[InputConfig]) -> tuple[str, str]:
    """train.en.xz and train.ko.xz are English and Korean."""
    for given in inputs:
        codes = get_suffix_codes(given)
        if len(codes) == 2 and codes[0] != codes[1] and all(map(is_known_language, codes)):
            return codes[0], codes[1]
    raise ConfigError("the languages are not known, and no file name tells them: give --pair en-ko")


def get_suffix_codes(given: InputConfig) -> list[str]:
    """What stands behind the last dot of each name: en of train.en.xz."""
    return [readers.strip_compression_suffix(file).suffix[1:] for file in given.files]


def check_file_languages(given: InputConfig, corpus: CorpusConfig) -> None:
    """Wrong codes, and files whose names say that they are of another language than they are given for."""
    for code in (corpus.source, corpus.target):
        check_language(code)
    for file, code, wanted in zip(
        given.files, get_suffix_codes(given), (corpus.source, corpus.target), strict=False
    ):
        if (
            len(given.files) == 2
            and is_known_language(code)
            and get_base_language(code) != get_base_language(wanted)
        ):
            raise ConfigError(
                f"{file} is given where {wanted} belongs, but its name says {code}: give the source "
                f"first, then the target; the languages are {corpus.source} and {corpus.target} (--pair)"
            )


def name_inputs(inputs: Iterable[InputConfig]) -> Iterator[InputConfig]:
    taken: Counter[str] = Counter()
    for given in inputs:
        name = given.name or readers.strip_compression_suffix(given.files[0]).stem
        taken[name] += 1
        yield replace(given, name=name if taken[name] == 1 else f"{name}-{taken[name]}")


# ---- reading


@dataclass
class InputReport:
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


class DropLog:
    """Bad text stops the work or is listed, as the recipe says; what a filter drops is listed."""

    def __init__(self, policy: str, listed: IO[str] | None) -> None:
        self.policy, self.file = policy, listed
        self._write("split", "file", "line", "reason", "detail", "source", "target")

    def handle_invalid(self, split: str, bad: InvalidRecord, report: InputReport) -> None:
        if self.policy == "stop" or (self.policy == "default" and bad.reason in STRUCTURAL):
            raise DataError(f"{bad}. {suggest_remedy(bad)}")
        report.bad[bad.reason] += 1
        report.first.setdefault(bad.reason, str(bad))
        self._write(split, bad.file, str(bad.line), bad.reason, bad.detail, "", "")

    def record_drop(
        self, split: str, pair: SentencePair, reason: str, detail: str, report: InputReport
    ) -> None:
        report.dropped[reason] += 1
        file = report.files[-1 if detail.startswith("target") else 0]
        report.first.setdefault(reason, f"{file}:{pair.line}: {reason}" + (f" ({detail})" if detail else ""))
        self._write(
            split,
            file,
            str(pair.line),
            reason,
            detail,
            pair.source[:MAX_LISTED_CHARACTERS],
            pair.target[:MAX_LISTED_CHARACTERS],
        )

    def _write(self, *cells: str) -> None:
        if self.file:
            self.file.write("\t".join(" ".join(cell.split()) for cell in cells) + "\n")


def suggest_remedy(bad: InvalidRecord) -> str:
    if bad.reason == NO_COUNTERPART:
        return "Lines may face wrong lines: align the files, or leave out the rest with --on-invalid skip"
    return "Mend it, or leave it out with --on-invalid skip"


def read_normalized_pairs(
    given: InputConfig,
    split: str,
    cleaner: Cleaner,
    gate: DropLog,
    report: InputReport,
    progress: Callable[[int], None],
) -> Iterator[SentencePair]:
    """The pairs of an input that can be read, mended; the others go to the gate."""
    before = cleaner.normalized.copy()
    for found in readers.read_pairs(given, cleaner.corpus, progress):
        report.read += 1
        if isinstance(found, InvalidRecord):
            gate.handle_invalid(split, found, report)
        else:
            yield SentencePair(cleaner.normalize(found.source), cleaner.normalize(found.target), found.line)
    report.mended = cleaner.normalized - before


def read_held_out_split(
    recipe: Recipe, split: str, gate: DropLog, tell: ReportProgress
) -> tuple[list[SentencePair], list[InputReport]]:
    """Valid or test: mended, but never filtered, for a score is of all of them."""
    cleaner = Cleaner(recipe.clean, recipe.corpus)
    inputs: tuple[InputConfig, ...] = getattr(recipe, split)
    progress = make_byte_progress(f"reading {split}", inputs, tell)
    pairs: list[SentencePair] = []
    reports: list[InputReport] = []
    for given in inputs:
        report = InputReport(given.name, given.files, given.weight)
        before = len(pairs)
        pairs.extend(read_normalized_pairs(given, split, cleaner, gate, report, progress))
        report.kept = len(pairs) - before
        reports.append(report)
    if inputs and not pairs:
        raise DataError(
            f"{split}: not one good pair in {', '.join(file for one in inputs for file in one.files)}"
        )
    return pairs, reports


def load_held_out(
    recipe: Recipe, gate: DropLog, tell: ReportProgress
) -> tuple[dict[str, list[SentencePair]], dict[str, list[InputReport]]]:
    """Valid and test, as given; where no valid is given, both are drawn from the training text."""
    held: dict[str, list[SentencePair]] = {}
    reports: dict[str, list[InputReport]] = {}
    for split in ("valid", "test"):
        if getattr(recipe, split):
            held[split], reports[split] = read_held_out_split(recipe, split, gate, tell)
    if "valid" not in held and recipe.corpus.hold_out:
        wanted = [split for split in ("valid", "test") if split not in held]
        drawn = sample_held_out(recipe, len(wanted), held, tell)
        for number, split in enumerate(wanted if drawn else []):
            held[split] = drawn[number :: len(wanted)]
            reports[split] = [InputReport("out of train", (), 1.0, len(held[split]), kept=len(held[split]))]
    return held, reports


def sample_held_out(
    recipe: Recipe, splits: int, given: dict[str, list[SentencePair]], tell: ReportProgress
) -> list[SentencePair]:
    """Some good pairs of the training text, by the seed, all sides of which differ: a reading beforehand.

    So many as the recipe says for each split, but no more than a twentieth of the text.
    """
    cleaner, chance = (
        Cleaner(recipe.clean, recipe.corpus, index_sides(given)),
        random.Random(recipe.corpus.seed),
    )
    quiet = DropLog(recipe.corpus.on_invalid, None)
    check_readable_twice(recipe.train)
    progress = make_byte_progress("setting pairs apart", recipe.train, tell)
    good = (
        pair
        for one in recipe.train
        for pair in read_normalized_pairs(
            one, "train", cleaner, quiet, InputReport(one.name, one.files, 1.0), progress
        )
        if cleaner.find_rejection(pair.source, pair.target) is None
    )
    wanted = recipe.corpus.hold_out * splits
    chosen, seen = sample_reservoir(good, 2 * wanted, chance)  # twice as many, for some will be alike
    return keep_distinct(chosen)[: min(wanted, seen // 20 * splits)]


def sample_reservoir(
    pairs: Iterable[SentencePair], wanted: int, chance: random.Random
) -> tuple[list[SentencePair], int]:
    """So many of a stream, each as likely as any other, in random order; and how many there were."""
    chosen: list[SentencePair] = []
    seen = 0
    for pair in pairs:
        place = seen if seen < wanted else int(chance.random() * (seen + 1))
        seen += 1
        if place < wanted:
            chosen[place : place + 1] = [pair]
    chance.shuffle(chosen)
    return chosen, seen


def keep_distinct(pairs: list[SentencePair]) -> list[SentencePair]:
    """Those of which no side stood in an earlier one."""
    seen: set[str] = set()
    kept = []
    for pair in pairs:
        if pair.source not in seen and pair.target not in seen:
            kept.append(pair)
            seen |= {pair.source, pair.target}
    return kept


def index_sides(held: dict[str, list[SentencePair]]) -> dict[str, str]:
    """Every side of the pairs held out, and the split that it stands in."""
    return {
        text: split for split, pairs in held.items() for pair in pairs for text in (pair.source, pair.target)
    }


def read_training(
    recipe: Recipe, held: dict[str, list[SentencePair]], gate: DropLog, spool: "Spool", tell: ReportProgress
) -> list[InputReport]:
    """Reads, filters and spools the training pairs."""
    drawn = [split for split in held if not getattr(recipe, split)]
    apart = {(pair.source, pair.target): split for split in drawn for pair in held[split]}
    cleaner = Cleaner(recipe.clean, recipe.corpus, index_sides(held))
    seen = SeenKeys() if recipe.clean.duplicates else None
    progress = make_byte_progress("reading train", recipe.train, tell)
    reports = []
    for given in recipe.train:
        report = InputReport(given.name, given.files, given.weight)
        pairs = read_normalized_pairs(given, "train", cleaner, gate, report, progress)
        while chunk := list(islice(pairs, CHUNK_PAIRS)):
            kept = list(filter_pairs(chunk, cleaner, apart, gate, report))
            if seen:
                kept = list(drop_duplicates(kept, seen, gate, report))
            spool.write(kept)
            report.kept += len(kept)
        reports.append(report)
    if not spool.count:
        raise DataError(f"no training pair is left: {explain_empty(reports)}")
    return reports


def filter_pairs(
    chunk: list[SentencePair],
    cleaner: Cleaner,
    apart: dict[tuple[str, str], str],
    gate: DropLog,
    report: InputReport,
) -> Iterator[SentencePair]:
    for pair in chunk:
        if split := apart.get((pair.source, pair.target)):
            gate.record_drop("train", pair, HELD_OUT, split, report)
        elif fault := cleaner.find_rejection(pair.source, pair.target):
            gate.record_drop("train", pair, *fault, report)
        else:
            yield pair


def drop_duplicates(
    chunk: list[SentencePair], seen: SeenKeys, gate: DropLog, report: InputReport
) -> Iterator[SentencePair]:
    fresh = seen.add(hash_pairs((pair.source, pair.target) for pair in chunk))
    for pair, new in zip(chunk, fresh.tolist(), strict=True):
        if new:
            yield pair
        else:
            gate.record_drop("train", pair, DUPLICATE, "", report)


def explain_empty(reports: list[InputReport]) -> str:
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
    LENGTH_RATIO: "Are source and target the right columns (--fields)? Or set clean.max_length_ratio",
    LEAKAGE: "Is valid or test the same text? clean.leakage=false keeps it",
    HELD_OUT: "The text is too small to set pairs apart: corpus.hold_out=0",
}


def make_byte_progress(
    stage: str, inputs: Iterable[InputConfig], tell: ReportProgress
) -> Callable[[int], None]:
    return make_counter(tell, stage, sum(get_file_size(file) for given in inputs for file in given.files))


def check_readable_twice(inputs: Iterable[InputConfig]) -> None:
    """A pipe is empty after the first reading."""
    for file in (file for given in inputs for file in given.files):
        if Path(file).exists() and not Path(file).is_file():
            raise DataError(
                f"{file}: not a file that can be read twice, which setting pairs apart needs: give --valid, "
                f"set corpus.hold_out=0, or write it to a file first"
            )


def get_file_size(file: str) -> int:
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

    def write(self, pairs: list[SentencePair]) -> None:
        for side, file in enumerate(self.files):
            file.write("".join(f"{pair[side]}\n" for pair in pairs).encode())
        self.count += len(pairs)

    def pairs(self) -> Iterator[tuple[str, str]]:
        ignored: Callable[[int], None] = lambda size: None  # noqa: E731
        with (
            readers.open_input(str(self.paths[0]), ignored) as one,
            readers.open_input(str(self.paths[1]), ignored) as other,
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


def train_subwords(recipe: Recipe, spool: Spool, tell: ReportProgress) -> SubwordPair:
    tell("learning subwords", 0, None)
    pairs = (recipe.subwords.sample_pairs + 1) // 2
    config = recipe.subwords
    if recipe.clean.markup != "keep":
        config = replace(config, detect_placeholders=0)
    return SubwordPair.train(lambda: spool.sample(pairs, recipe.corpus.seed), config)


# ---- tokens


@dataclass
class TokenCounts:
    """What is counted of a side as it is written."""

    tokens: int = 0
    unknown: int = 0
    longest: int = 0
    lengths: list[int] = field(default_factory=lambda: [0] * (len(LENGTH_BOUNDS) + 1))

    def add(self, pieces: TokenSequences) -> None:
        sizes = np.diff(pieces.offsets)
        spans = np.bincount(np.searchsorted(LENGTH_BOUNDS, sizes), minlength=len(self.lengths))
        self.tokens += len(pieces.ids)
        self.unknown += int((pieces.ids == UNK_ID).sum())
        self.longest = max(self.longest, int(sizes.max(initial=0)))
        self.lengths = [one + int(more) for one, more in zip(self.lengths, spans, strict=True)]


def encode_split(
    folder: Path, split: str, subwords: SubwordPair, pairs: Iterator[Any], count: int, tell: ReportProgress
) -> dict[str, TokenCounts]:
    """Writes the tokens of both sides, and counts them."""
    sides = {"source": subwords.source, "target": subwords.target}
    writers = {side: SideWriter(folder, split, side, len(own)) for side, own in sides.items()}
    tallies = {side: TokenCounts() for side in sides}
    done = 0
    while chunk := list(islice(pairs, CHUNK_PAIRS)):
        for place, (side, own) in enumerate(sides.items()):
            pieces = own.encode_batch([pair[place] for pair in chunk])
            writers[side].write(pieces)
            tallies[side].add(pieces)
        done += len(chunk)
        tell(f"encoding {split}", done, count)
    for writer in writers.values():
        writer.close()
    return tallies


def write_text(folder: Path, split: str, corpus: CorpusConfig, pairs: list[SentencePair]) -> None:
    for side, language in enumerate((corpus.source, corpus.target)):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")


# ---- the description


def build_manifest(
    recipe: Recipe,
    subwords: SubwordPair,
    reports: dict[str, list[InputReport]],
    tallies: dict[str, dict[str, TokenCounts]],
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
            "algorithm": f"from {taken}" if taken else recipe.subwords.algorithm,
            "joint": subwords.is_joint,
            "source_vocab_size": len(subwords.source),
            "target_vocab_size": len(subwords.target),
            "sha256": {name: one.sha256 for name, one in subwords.files.items()},
        },
        "recipe": asdict(recipe),
    }
