"""The judgment of a corpus, as `manyheads judge` writes it and `prepare` reads it.

`pairs.tsv` has a line for each pair: file, line, score from 0 to 1, and the reason of a low score.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from manyheads.atomic_io import ManifestSchema
from manyheads.errors import DataError

PAIRS_FILE = "pairs.tsv"
HEADER = ("file", "line", "score", "reason")
JUDGED_BAD = "judged bad"
MIN_HELD_OUT_SCORE = 0.5  # of pairs that are held out for valid and test
NO_SCORES = np.empty(0, np.int64), np.empty(0, np.float32)

JUDGE_SCHEMA = ManifestSchema(
    file_name="judge.json",
    format=1,
    folder_type="a folder of judge",
    keys={"recipe": ("train",)},
    remedy="judge the text again",
    required_files=(PAIRS_FILE,),
    error=DataError,
)

Row = tuple[str, int, float, str]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.write("\t".join(HEADER) + "\n")
        file.writelines(f"{name}\t{line}\t{score:.4g}\t{reason}\n" for name, line, score, reason in rows)


def read_rows(path: Path) -> Iterator[Row]:
    """Read a judged file, or the one in a folder that `judge` wrote."""
    path = path / PAIRS_FILE if path.is_dir() else path
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            if tuple(next(file, "").rstrip("\n").split("\t")) != HEADER:
                raise DataError(
                    f"{path}:1: the columns are not {', '.join(HEADER)}: give the {PAIRS_FILE} that "
                    f"`manyheads judge` wrote, or its folder"
                )
            for number, line in enumerate(file, 2):
                try:
                    name, line_number, score, reason = line.rstrip("\n").split("\t")
                    row = name, check_line(int(line_number)), check_score(float(score)), reason
                except ValueError:
                    raise DataError(f"{path}:{number}: not file, line, score and reason") from None
                yield row
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8: judge the text again") from None


def check_line(line: int) -> int:
    if not 0 <= line < 2**63:
        raise ValueError(line)
    return line


def check_score(score: float) -> float:
    if not 0 <= score <= 1:  # nor nan
        raise ValueError(score)
    return score


@dataclass(frozen=True)
class JudgedScores:
    """The scores of pairs in the order in which they were judged, and the lowest that is kept.

    Lines do not identify pairs: several may begin at one line, and inputs may share a file. Twelve bytes a
    pair.
    """

    path: Path
    by_file: dict[str, tuple[NDArray[np.int64], NDArray[np.float32]]]  # lines and scores
    min_score: float

    @classmethod
    def load(cls, path: Path, keep: float | None) -> "JudgedScores":
        """Read scores. `keep` is the share of the pairs to keep; by default those with at least 0.5."""
        rows: dict[str, tuple[array[int], array[float]]] = {}
        for name, line, score, _ in read_rows(path):
            lines, scores = rows.setdefault(name, (array("q"), array("f")))
            lines.append(line)
            scores.append(score)
        if not rows:
            raise DataError(f"{path}: no pair is judged: judge the text again")
        by_file = {
            name: (np.frombuffer(lines, np.int64), np.frombuffer(scores, np.float32))
            for name, (lines, scores) in rows.items()
        }
        if keep is None:
            return cls(path, by_file, MIN_HELD_OUT_SCORE)
        every = np.concatenate([scores for _, scores in by_file.values()])
        index = min(len(every) - 1, round((1 - keep) * len(every)))
        return cls(path, by_file, float(np.partition(every, index)[index]))

    def start_pass(self) -> "ScorePass":
        """Return the scores for a pass over the pairs of all inputs."""
        return ScorePass(self)


class ScorePass:
    """Gives the scores of pairs that are read in the order in which they were judged."""

    def __init__(self, judged: JudgedScores) -> None:
        self.judged, self.min_score = judged, judged.min_score
        self.num_read: Counter[str] = Counter()  # pairs by file

    def get_next(self, file: str, line: int) -> float:
        """Return the score of the next pair of a file, which begins at this line."""
        lines, scores = self.judged.by_file.get(file, NO_SCORES)
        number = self.num_read[file]
        if number >= len(lines) or lines[number] != line:
            raise DataError(
                f"{file}:{line}: has no score in {self.judged.path}: judge the same files, by the same "
                f"names, again"
            )
        self.num_read[file] += 1
        return float(scores[number])

    def is_next_good(self, file: str, line: int) -> bool:
        """Return whether the next pair of a file is good enough for valid and test."""
        return self.get_next(file, line) >= max(self.min_score, MIN_HELD_OUT_SCORE)
