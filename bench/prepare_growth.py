"""Growth of time and memory of `manyheads prepare` with the corpus: a hundredth, a tenth, all of it.

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
    """Write the first lines of a file, uncompressed, and return their number."""
    count = 0
    with open_input(source, lambda size: None) as stream, target.open("wb") as out:
        for line in islice(stream, lines):
            out.write(line)
            count += 1
    return count


def run_prepare(folder: Path, files: list[str], changes: list[str]) -> tuple[float, float]:
    """Run in a separate process, and return its seconds and peak GiB."""
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
    parser.add_argument("files", nargs=2, help="source and target file")
    parser.add_argument("changes", nargs="*", help="recipe overrides, as SECTION.KEY=VALUE")
    arguments = parser.parse_args()
    table = Table("pairs", "seconds", "pairs/s", "peak GiB")
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{strip_compression_suffix(file).name}" for file in arguments.files]
        total = None
        for share in (1, 10, 100):
            lines = total // share if total else None
            for source, file in zip(arguments.files, files, strict=True):
                count = write_head(source, Path(file), lines)
            total = total or count
            seconds, peak = run_prepare(Path(folder) / "data", files, arguments.changes)
            table.add_row(f"{count:,}", f"{seconds:.1f}", f"{count / seconds:,.0f}", f"{peak:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
