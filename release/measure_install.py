"""Report the size of an installation and the time that imports take in it.

    python release/measure_install.py .venv-core/bin/python

Times are medians of user and system CPU time over several new processes, with warm file caches.
"""

import argparse
import json
import resource
import statistics
import subprocess
from pathlib import Path

STATEMENTS = {
    "python": "pass",
    "import manyheads": "import manyheads",
    "manyheads --help": "import sys; sys.argv = ['', '--help']; from manyheads.cli import main; main()",
    "import manyheads; manyheads.load": "import manyheads; manyheads.load",
    "import torch": "import torch",
}
SIZES = """
import json, importlib.metadata
sizes = {}
for distribution in importlib.metadata.distributions():
    files = [distribution.locate_file(file) for file in distribution.files or []]
    sizes[distribution.name] = sum(file.stat().st_size for file in files if file.is_file())
print(json.dumps(sizes))
"""


def measure_cpu_seconds(python: Path, code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python.absolute(), "-c", code], check=True, stdout=subprocess.DEVNULL, cwd="/")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_sizes(python: Path) -> dict[str, float]:
    """Return megabytes by distribution, largest first."""
    command = [str(python.absolute()), "-c", SIZES]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/")
    sizes = sorted(json.loads(done.stdout).items(), key=lambda item: -item[1])
    return {name: round(size / 1e6, 1) for name, size in sizes}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("python", type=Path)
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    sizes = measure_sizes(arguments.python)
    times = {}
    for name, code in STATEMENTS.items():
        measure_cpu_seconds(arguments.python, code)
        repeated = [measure_cpu_seconds(arguments.python, code) for _ in range(arguments.repetitions)]
        times[name] = round(statistics.median(repeated), 2)
    report = {
        "distributions": len(sizes),
        "total_mb": round(sum(sizes.values()), 1),
        "manyheads_mb": sizes.get("manyheads"),
        "largest_mb": dict(list(sizes.items())[:6]),
        "cpu_seconds": times,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
