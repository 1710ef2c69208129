"""Stage 1: the training sources as shards of text, decoded from the token arrays of the data folder.

The text is that which was tokenized, except for characters that subwords without byte fallback do not know:
pairs that have one are skipped. A shard never crosses the border of two inputs, whose weights the student's
data keeps. References are written beside the sources where a later stage needs them.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import compress, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.atomic_io import atomic_directory, report_disk_full
from manyheads.data.store import Side, Split
from manyheads.data.word_codec import contains_unknown
from manyheads.distill.plan import DistillationPlan
from manyheads.errors import DataError
from manyheads.progress import ReportProgress, make_counter
from manyheads.text.plain_lines import read_plain_lines
from manyheads.text.subwords import SubwordTokenizer, TokenSequences, normalize
from manyheads.train.model_card import find_license

SHARD_LINES = 10_000  # what a stopped translation loses at most, for each worker
CHUNK_LINES = 2_000  # decoded at once
PARTS_FILE = "parts.json"


@dataclass(frozen=True)
class TextPart:
    """The lines of one input of the data, or of one monolingual file."""

    name: str
    weight: float
    shards: tuple[str, ...]  # names of files without their languages
    lines: int
    num_unknown: int = 0  # pairs that were skipped, since they have characters that the subwords do not know
    is_monolingual: bool = False
    license: str = ""
    attribution: str = ""


def write_source_text(plan: DistillationPlan, report_progress: ReportProgress) -> None:
    """Write the shards of all inputs, unless they are complete."""
    if plan.text_folder.exists():
        return
    split = plan.store.load_split("train")
    advance = make_counter(report_progress, "reading sources", len(split))
    needed = 8 * len(split.source.tokens)
    with (
        report_disk_full(plan.text_folder, needed),
        atomic_directory(plan.text_folder, PARTS_FILE) as folder,
    ):
        parts = []
        for number, part in enumerate(list_inputs(plan, split)):
            parts.append(write_part(plan, folder, number, split, *part, advance))
        for path in plan.monolingual:
            parts.append(write_monolingual(plan, folder, len(parts), path))
        if not any(part.lines for part in parts):
            raise DataError(
                f"{plan.data}: every training pair has a character that the subwords do not know: prepare "
                f"the data with subwords.byte_fallback=true"
            )
        text = json.dumps([asdict(part) for part in parts], ensure_ascii=False, indent=1)
        (folder / PARTS_FILE).write_text(text + "\n", encoding="utf-8")


def read_parts(plan: DistillationPlan) -> list[TextPart]:
    stored = json.loads((plan.text_folder / PARTS_FILE).read_text(encoding="utf-8"))
    return [TextPart(**{**part, "shards": tuple(part["shards"])}) for part in stored]


def list_inputs(plan: DistillationPlan, split: Split) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the description of each input of the data, and where its pairs begin and end."""
    recipe = plan.store.manifest.get("recipe", {}).get("train", [])
    start = 0
    for number, (name, weight, kept) in enumerate(split.parts):
        stated = recipe[number] if number < len(recipe) else {}
        described = {
            "name": name,
            "weight": weight,
            "license": stated.get("license") or find_license(stated.get("files", ())) or "",
            "attribution": stated.get("attribution", ""),
        }
        yield described, start, start + kept
        start += kept


def write_part(
    plan: DistillationPlan,
    folder: Path,
    number: int,
    split: Split,
    described: dict[str, Any],
    start: int,
    end: int,
    advance: Any,
) -> TextPart:
    """Write the shards of an input, with references if they are needed."""
    store = plan.store
    sides = [(split.source, store.subwords.source, store.source_language)]
    if plan.needs_references:
        sides.append((split.target, store.subwords.target, store.target_language))
    names, num_known = list[str](), 0
    for first in range(start, end, SHARD_LINES):
        last = min(first + SHARD_LINES, end)
        is_known = find_known([side for side, _, _ in sides], first, last)
        if is_known.any():
            names.append(f"{number:02d}-{len(names):05d}")
            num_known += int(is_known.sum())
            for side, subwords, language in sides:
                lines = compress(decode_lines(side, subwords, first, last), is_known)
                write_lines(folder / f"{names[-1]}.{language}", lines)
        advance(last - first)
    num_unknown = end - start - num_known
    return TextPart(shards=tuple(names), lines=num_known, num_unknown=num_unknown, **described)


def find_known(sides: Sequence[Side], first: int, last: int) -> NDArray[np.bool_]:
    """Return which pairs from `first` to `last` have no unknown token, which cannot be decoded."""
    indices = np.arange(last - first)
    is_known = np.ones(last - first, bool)
    for side in sides:
        offsets = np.asarray(side.offsets[first : last + 1])
        ids = np.asarray(side.tokens[offsets[0] : offsets[-1]])
        is_known &= ~contains_unknown(TokenSequences(ids, offsets - offsets[0]), indices)
    return is_known


def decode_lines(side: Side, subwords: SubwordTokenizer, first: int, last: int) -> Iterator[str]:
    """Yield the text of the sentences of a side from `first` to `last`."""
    for start in range(first, last, CHUNK_LINES):
        end = min(start + CHUNK_LINES, last)
        begin = int(side.offsets[start])
        offsets = (side.offsets[start : end + 1] - begin).tolist()
        ids = side.tokens[begin : begin + offsets[-1]].tolist()
        sentences = [ids[here:there] for here, there in pairwise(offsets)]
        yield from subwords.decode_sentences(sentences)


def write_monolingual(plan: DistillationPlan, folder: Path, number: int, path: Path) -> TextPart:
    """Write the shards of a monolingual file, without empty lines and those that cleaning would drop."""
    max_bytes = plan.store.manifest.get("recipe", {}).get("clean", {}).get("max_length")
    lines = (
        line
        for line in map(normalize, read_plain_lines(path))
        if line and (max_bytes is None or len(line.encode()) <= max_bytes)
    )
    names, count = list[str](), 0
    while shard := list(islice(lines, SHARD_LINES)):
        names.append(f"{number:02d}-{len(names):05d}")
        write_lines(folder / f"{names[-1]}.{plan.store.source_language}", shard)
        count += len(shard)
    if not count:
        raise DataError(f"{path}: has no line to translate")
    return TextPart(path.name, 1.0, tuple(names), count, is_monolingual=True)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
