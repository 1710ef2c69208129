"""Judge a corpus: learn from a sample of it, score every pair in a stream, and write a folder.

Scores go into parts beside the output, so that a run that was stopped goes on with the next part. Learning
is repeated then: it takes minutes, and gives the same models. Memory holds the sample, the models, and 32
bytes a pair for near-duplicates.
"""

import json
import multiprocessing
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.atomic_io import (
    atomic_directory,
    clear_temporary_file,
    open_locked,
    write_manifest,
    write_text_atomically,
)
from manyheads.config import Recipe
from manyheads.data.held_out import check_readable_twice
from manyheads.data.judged import JUDGE_SCHEMA, PAIRS_FILE, read_rows, write_rows
from manyheads.errors import DataError
from manyheads.judge.corpus_reader import CorpusReader, Position
from manyheads.judge.near_duplicates import compute_signatures, find_first_duplicates
from manyheads.judge.reasons import name_reasons
from manyheads.judge.report import JudgeReport, collect_report
from manyheads.judge.training import PairJudge, train_judge
from manyheads.progress import ReportProgress
from manyheads.text.corpus import SentencePair
from manyheads.text.subwords import count_cpus
from manyheads.worker_processes import create_process_pool

SAMPLE_PAIRS = 100_000  # that the models learn from
CHUNK_PAIRS = 2_000  # judged together
PART_CHUNKS = 10  # in a part that a stopped run need not repeat
NEAR_DUPLICATE_FACTOR = 0.5  # of the score: a repeated pair is right, but worth less


@dataclass(frozen=True)
class Part:
    """The results of some pairs in a row."""

    inputs: NDArray[np.int32]
    lines: NDArray[np.int64]
    scores: NDArray[np.float32]
    reasons: list[str]
    keys: NDArray[np.uint64]  # [N, BANDS]


@dataclass(frozen=True)
class JudgeOptions:
    """How a corpus is judged."""

    sample: int = SAMPLE_PAIRS
    workers: int = 0  # processes; 0: one per core
    seed: int = 0


def judge_corpus(
    recipe: Recipe,
    folder: Path,
    options: JudgeOptions,
    *,
    force: bool = False,
    report_progress: ReportProgress,
) -> JudgeReport:
    """Judge the training inputs of a recipe, and write pairs.tsv and the report into a folder."""
    check_readable_twice(recipe.train)
    reader = CorpusReader(recipe, report_progress)
    folder = folder.resolve()  # `.` has no name, beside which parts could be
    parts_folder = folder.with_name(f".{folder.name}.judge-parts")
    with atomic_directory(folder, JUDGE_SCHEMA.file_name, force) as aside, open_locked(parts_folder):
        forget_other_job(parts_folder, describe_job(recipe, options))
        sample = reader.sample(options.sample, options.seed)
        languages = recipe.corpus.source, recipe.corpus.target
        judge = train_judge(*sample, languages, options.seed, report_progress)
        paths = list(score_parts(reader, judge, parts_folder, options))
        report_progress("finding near-duplicates", 0, None)
        first = find_first_duplicates(np.concatenate([load_part(path).keys for path in paths]))
        files = [input_config.files[0] for input_config in recipe.train]
        write_rows(aside / PAIRS_FILE, iterate_rows(paths, first, files))
        report = collect_report(read_rows(aside / PAIRS_FILE), reader.read("writing the report"), reader)
        (aside / "report.json").write_text(report.to_json(), encoding="utf-8")
        (aside / "report.md").write_text(report.to_markdown(), encoding="utf-8")
        write_manifest(
            aside, JUDGE_SCHEMA, {"files_judged": describe_files(recipe), "recipe": asdict(recipe)}
        )
        shutil.rmtree(parts_folder, ignore_errors=True)
    return report


# ---- scoring


def score_parts(
    reader: CorpusReader, judge: PairJudge, folder: Path, options: JudgeOptions
) -> Iterator[Path]:
    """Score the corpus part by part, and yield the files of the parts. Complete ones are not repeated."""
    pairs = reader.read("judging")
    with create_pool(options.workers, judge) as map_chunks:
        number = 0
        while rows := list(islice(pairs, CHUNK_PAIRS * PART_CHUNKS)):
            path = folder / f"{number:06d}.npz"
            if not path.exists():
                chunks = [rows[start : start + CHUNK_PAIRS] for start in range(0, len(rows), CHUNK_PAIRS)]
                save_part(path, [row[0] for row in rows], map_chunks([get_sides(chunk) for chunk in chunks]))
            yield path
            number += 1


def get_sides(rows: Sequence[tuple[Position, SentencePair]]) -> tuple[list[str], list[str]]:
    return [pair.source for _, pair in rows], [pair.target for _, pair in rows]


ChunkResult = tuple[NDArray[np.float32], list[str], NDArray[np.uint64]]
Sides = tuple[list[str], list[str]]
_worker_judge: list[PairJudge] = []  # of a forked process, which inherits the models without copying them


@contextmanager
def create_pool(workers: int, judge: PairJudge) -> Iterator[Callable[[list[Sides]], list[ChunkResult]]]:
    """Yield a function that judges chunks, in processes that share the models where the system can fork."""
    workers = workers or count_cpus()
    _worker_judge[:] = [judge]
    try:
        if workers == 1 or "fork" not in multiprocessing.get_all_start_methods():
            yield lambda chunks: [judge_chunk(chunk) for chunk in chunks]
        else:
            with create_process_pool(workers, "fork", "lower --workers") as pool:
                yield lambda chunks: list(pool.map(judge_chunk, chunks))
    finally:
        _worker_judge.clear()


def judge_chunk(sides: Sides) -> ChunkResult:
    (judge,) = _worker_judge
    judgment = judge.judge(*sides)
    reasons = name_reasons(judgment, judge.combination.types)
    return judgment.scores.astype(np.float32), reasons, compute_signatures(*sides)


def save_part(path: Path, positions: Sequence[Position], results: Sequence[ChunkResult]) -> None:
    reasons = "\n".join(reason for _, chunk_reasons, _ in results for reason in chunk_reasons)
    temporary = clear_temporary_file(path.with_suffix(".part"))
    with temporary.open("wb") as file:
        np.savez(
            file,
            inputs=np.array([position.input for position in positions], np.int32),
            lines=np.array([position.line for position in positions], np.int64),
            scores=np.concatenate([scores for scores, _, _ in results]),
            reasons=np.frombuffer(reasons.encode(), np.uint8),
            keys=np.concatenate([keys for _, _, keys in results]),
        )
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load_part(path: Path) -> Part:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            reasons = arrays["reasons"].tobytes().decode().split("\n")
            return Part(arrays["inputs"], arrays["lines"], arrays["scores"], reasons, arrays["keys"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        raise DataError(f"{path}: damaged: remove the folder {path.parent}, and run again") from None


def iterate_rows(
    paths: Sequence[Path], first: NDArray[np.int64], files: Sequence[str]
) -> Iterator[tuple[str, int, float, str]]:
    """Yield file, line, score and reason of every pair, near-duplicates of earlier ones marked."""
    inputs = np.concatenate([load_part(path).inputs for path in paths])
    lines = np.concatenate([load_part(path).lines for path in paths])
    number = 0
    for path in paths:
        part = load_part(path)
        for n in range(len(part.scores)):
            score, reason, original = float(part.scores[n]), part.reasons[n], int(first[number])
            if original != number:
                is_same_file = inputs[original] == inputs[number]
                place = "line " if is_same_file else f"{files[inputs[original]]}:"
                reason = reason or f"near-duplicate of {place}{lines[original]}"
                score *= NEAR_DUPLICATE_FACTOR
            yield files[part.inputs[n]], int(part.lines[n]), score, reason
            number += 1


# ---- jobs


def describe_files(recipe: Recipe) -> list[dict[str, Any]]:
    """Return names, sizes and times of the input files."""
    names = [file for item in recipe.train for file in item.files]
    stats = [os.stat(name) for name in names]
    return [
        {"file": name, "bytes": stat.st_size, "modified": stat.st_mtime_ns}
        for name, stat in zip(names, stats, strict=True)
    ]


def describe_job(recipe: Recipe, options: JudgeOptions) -> str:
    """Return what decides the scores, as JSON."""
    decides = {"sample": options.sample, "seed": options.seed}
    return json.dumps({"files": describe_files(recipe), "recipe": asdict(recipe), **decides}, sort_keys=True)


def forget_other_job(folder: Path, job: str) -> None:
    """Remove parts that another job left, and note this one."""
    path = folder / "job.json"
    if path.exists() and path.read_text(encoding="utf-8") == job:
        return
    for left in folder.iterdir():
        left.unlink()
    write_text_atomically(path, job)
