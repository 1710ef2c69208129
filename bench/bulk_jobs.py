"""What worker processes and Ray cost: one file through `manyheads translate` in three ways, in turns.

    python bench/bulk_jobs.py MODEL FILE --lines 200000 --engine ctranslate2:int8

Each way is the whole command, start-up included, with the same number of threads in all: one process; workers
that are local processes; workers on a Ray that is started for the job. All must write the same lines.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from statistics import median


def main() -> None:
    arguments = parse_arguments()
    ways = {"one process": [], "local workers": ["--workers", str(arguments.workers)]}
    ways["Ray"] = [*ways["local workers"], "--ray"]
    selected = {name: options for name, options in ways.items() if name in (arguments.ways or ways)}
    seconds: dict[str, list[float]] = {name: [] for name in selected}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        write_lines(arguments.file, source, arguments.lines)
        for turn in range(arguments.repetitions):
            for name, options in selected.items():
                out = Path(folder, f"{name}.{turn}")
                seconds[name].append(run_command(arguments, source, out, options))
                print(f"turn {turn + 1}, {name}: {seconds[name][-1]:.1f} s", flush=True)
        check_outputs(Path(folder), source)
    print_table(seconds, arguments)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("file", type=Path, help="text, one line each; repeated until there are enough lines")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--engine", default="ctranslate2:int8")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--ways", nargs="*", help='of "one process", "local workers", "Ray"; by default all')
    return parser.parse_args()


def write_lines(file: Path, out: Path, count: int) -> None:
    lines = file.read_bytes().removesuffix(b"\n").split(b"\n")
    out.write_bytes(b"\n".join(islice(cycle(lines), count)) + b"\n")


def run_command(arguments: argparse.Namespace, source: Path, out: Path, options: list[str]) -> float:
    """Return the seconds of a whole command."""
    command = [sys.executable, "-m", "manyheads", "translate", str(arguments.model), str(source), *options]
    command += ["--engine", arguments.engine, "--beam", str(arguments.beam)]
    start = time.perf_counter()
    with out.open("wb") as stream:
        subprocess.run(command, stdout=stream, check=True)
    return time.perf_counter() - start


def check_outputs(folder: Path, source: Path) -> None:
    first, *others = [path.read_bytes() for path in sorted(folder.iterdir()) if path != source]
    assert first.count(b"\n") == source.read_bytes().count(b"\n"), "n lines in, but not n lines out"
    assert all(other == first for other in others), "the ways give different text"


def print_table(seconds: dict[str, list[float]], arguments: argparse.Namespace) -> None:
    print(
        f"\n{arguments.lines:,} lines, {arguments.engine}, beam {arguments.beam}, {arguments.workers} workers"
    )
    print("all outputs are the same")
    baseline = median(next(iter(seconds.values())))
    for name, values in seconds.items():
        value = median(values)
        print(f"{name:14} {value:7.1f} s  {arguments.lines / value:8,.0f} lines/s  {value / baseline:.3f}")


if __name__ == "__main__":
    main()
