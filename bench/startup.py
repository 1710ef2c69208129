"""Start-up: seconds from the call of `manyheads translate` to its first line, in multiples of `import torch`.

    python bench/startup.py run/model --line "I go home."
    python bench/startup.py run/model --engines torch ctranslate2:int8 --repetitions 11 --json result.json

Everything runs on the CPU, in turns, in reverse order every second time; seconds are medians. `import torch`
is `python -c "import torch"` from start to exit, the least that a program with torch can take. The conversion
for CTranslate2 exists before. The last column lists which large packages the command has imported.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import report
from manyheads.errors import RequestError

BASELINE = "import torch"
HEAVY = (
    "torch", "torch._dynamo", "torch._inductor", "triton", "sympy", "numpy", "sentencepiece", "sentencex",
    "ctranslate2", "onnxruntime", "transformers", "sacrebleu", "rich", "typer",
)  # fmt: skip
RUN_AND_LIST = """
import atexit, json, sys
def list_modules():
    names = json.loads(sys.argv_saved[0])
    open(sys.argv_saved[1], "w").write(json.dumps([name for name in names if name in sys.modules]))
sys.argv_saved = sys.argv[1:3]
sys.argv = ["manyheads", *sys.argv[3:]]
atexit.register(list_modules)
from manyheads.cli import main
main()
"""


@dataclass
class Result:
    """A row of the table."""

    name: str
    command: list[str]
    seconds: list[float] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def time_first_line(command: list[str]) -> float:
    """Return the seconds until the first line of output, or until the exit of a command that prints none."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=make_environment()) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait()
        seconds = time.perf_counter() - start
        process.stdout.read()
    if process.returncode:
        raise RequestError(f"{' '.join(command)}: exit code {process.returncode}")
    return seconds


def make_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "src")}


def list_modules(command: list[str], folder: Path) -> list[str]:
    """Return the large packages that a command of manyheads imports."""
    out = folder / "modules.json"
    arguments = [json.dumps(HEAVY), str(out), *command[3:]]  # without python -m manyheads
    subprocess.run(
        [sys.executable, "-c", RUN_AND_LIST, *arguments],
        stdout=subprocess.DEVNULL, env=make_environment(), check=True,
    )  # fmt: skip
    modules: list[str] = json.loads(out.read_text())
    return modules


def main() -> None:
    parser = report.BenchmarkParser(__doc__)
    parser.add_argument("model", type=Path, help="model folder")
    parser.add_argument("--line", default="I go home.", help="to translate (default: %(default)s)")
    parser.add_argument("--engines", nargs="+", default=["torch", "ctranslate2:int8"])
    parser.add_argument("--repetitions", type=report.positive_int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "line.txt"
        text.write_text(f"{arguments.line}\n", encoding="utf-8")
        rows = [Result(BASELINE, [sys.executable, "-c", "import torch"])]
        for engine in arguments.engines:
            command = [sys.executable, "-m", "manyheads", "translate", str(arguments.model), str(text)]
            command += ["--engine", engine, "--device", "cpu"]
            rows.append(Result(f"translate, {engine}", command, modules=list_modules(command, folder)))
        for row in rows:
            time_first_line(row.command)  # files in memory
        for repetition in range(arguments.repetitions):
            for row in rows[:: -1 if repetition % 2 else 1]:
                row.seconds.append(time_first_line(row.command))
    print_results(rows)
    environment = report.measure_environment("cpu")
    to_json = [asdict(row) | {"median": row.median, "multiple": row.median / rows[0].median} for row in rows]
    report.write_json(arguments.json, "time to the first line", environment, rows=to_json)


def print_results(rows: list[Result]) -> None:
    report.print_table(
        f"seconds to the first line, medians of {len(rows[0].seconds)}",
        ("command", "seconds", "min", "max", "times import torch", "imports"),
        [
            (
                row.name,
                f"{row.median:.2f}",
                f"{min(row.seconds):.2f}",
                f"{max(row.seconds):.2f}",
                f"{row.median / rows[0].median:.2f}",
                ", ".join(row.modules),
            )
            for row in rows
        ],
    )


if __name__ == "__main__":
    report.run_main(main)
