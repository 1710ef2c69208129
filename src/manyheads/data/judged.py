"""The judgment of a corpus, as `manyheads judge` writes it and `prepare` reads it.

`pairs.tsv` has a line for each pair: file, line, score from 0 to 1, and the reason of a low score.
"""

from array import array
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
                    yield name, int(line_number), float(score), reason
                except ValueError:
                    raise DataError(f"{path}:{number}: not file, line, score and reason") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8: judge the text again") from None


@dataclass(frozen=True)
class JudgedScores:
    """The scores of pairs by file and line, and the lowest that is kept. Four bytes a line."""

    path: Path
    by_file: dict[str, NDArray[np.float32]]  # nan where a line has no score
    min_score: float

    @classmethod
    def load(cls, path: Path, keep: float | None) -> "JudgedScores":
        """Read scores. `keep` is the share of the pairs to keep; by default those with at least 0.5."""
        scores: dict[str, array[float]] = {}
        for name, line, score, _ in read_rows(path):
            values = scores.setdefault(name, array("f"))
            values.extend([float("nan")] * (line + 1 - len(values)))
            values[line] = score
        by_file = {name: np.frombuffer(values, np.float32) for name, values in scores.items()}
        if not by_file:
            raise DataError(f"{path}: no pair is judged: judge the text again")
        if keep is None:
            return cls(path, by_file, MIN_HELD_OUT_SCORE)
        every = np.concatenate([values[~np.isnan(values)] for values in by_file.values()])
        index = min(len(every) - 1, round((1 - keep) * len(every)))
        return cls(path, by_file, float(np.partition(every, index)[index]))

    def get(self, file: str, line: int) -> float:
        """Return the score of a pair."""
        values = self.by_file.get(file)
        score = float(values[line]) if values is not None and line < len(values) else float("nan")
        if score != score:
            raise DataError(
                f"{file}:{line}: has no score in {self.path}: judge the same files, by the same names, again"
            )
        return score

    def is_good(self, file: str, line: int) -> bool:
        """Return whether a pair is good enough for valid and test."""
        return self.get(file, line) >= max(self.min_score, MIN_HELD_OUT_SCORE)
