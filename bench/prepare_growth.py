"""How the time and the memory of `manyheads prepare` grow with the corpus: a hundredth, a tenth, all of it.

python bench/prepare_growth.py train.en.xz train.de.xz subwords.vocab_size=37000
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from manyheads.text.input_files import open_input, strip_compression_suffix


def write_head(source: str, target: Path, lines: int | None) -> int:
    """The first lines of a file, uncompressed; how many there were."""
    count = 0
    with open_input(source, lambda size: None) as stream, target.open("wb") as out:
        for line in islice(stream, lines):
            out.write(line)
            count += 1
    return count


def run(folder: Path, files: list[str], changes: list[str]) -> tuple[float, float]:
    """Seconds and peak GiB of one run, in a process of its own."""
    trains = [f"--train={file}" for file in files]
    command = [sys.executable, "-m", "manyheads", "prepare", str(folder), "--force", *trains, *changes]
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs=2, help="source and target")
    parser.add_argument("changes", nargs="*", help="settings of the recipe")
    given = parser.parse_args()
    table = Table("pairs", "seconds", "pairs/s", "peak GiB")
    with tempfile.TemporaryDirectory() as place:
        files = [f"{place}/{strip_compression_suffix(file).name}" for file in given.files]
        whole = None
        for share in (1, 10, 100):
            lines = whole // share if whole else None
            for source, file in zip(given.files, files, strict=True):
                count = write_head(source, Path(file), lines)
            whole = whole or count
            seconds, peak = run(Path(place) / "data", files, given.changes)
            table.add_row(f"{count:,}", f"{seconds:.1f}", f"{count / seconds:,.0f}", f"{peak:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
