"""Translating a file: the command, the engine alone, and the peers, in output tokens per second.

    python bench/translate_file.py run/model test.en              200,000 lines on a GPU, 3,000 on a CPU
    python bench/translate_file.py run/model test.en --profile --json result.json
    python bench/translate_file.py run/model test.en --engine ctranslate2:int8 --busy     on a CPU
    python bench/translate_file.py run/model test.en --old ../checkout --same-as old.txt

The command is `manyheads translate` as a process, from start to exit, from a file to text. Beside it, in
turns in the same run: the engine alone, warm, from ids to ids; Hugging Face's generate with the same weights
on a sample of the sentences, in batches by length, of the size that is fastest; on a CPU, CTranslate2 called
directly on tokens, with the threads, batch type and size that are fastest on a sample, without scores, which
a confidence needs (--option=--no-confidence compares like with like). The tokens of an output are those of
its text in the model's subwords, end tokens not counted, for all of them. `start-up` is the same command on
the first line alone. --busy measures everything again beside processes that keep each core busy.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import report
from manyheads.errors import DataError, RequestError
from manyheads.loading import load
from manyheads.text.subwords import count_cpus
from translate_systems import (
    Command,
    DirectCTranslate2,
    EngineAlone,
    HuggingFace,
    Output,
    System,
    Workload,
    make_busy_processes,
)

LINES = {"cpu": 3000, "cuda": 200_000}
PEER_SENTENCES = {"cpu": 300, "cuda": 4096}
COMPARED_LINES = 1000
COMMAND, OLD, ENGINE, DIRECT, PEER = (
    "manyheads translate", "manyheads translate, old", "engine alone", "CTranslate2 directly",
    "Hugging Face generate",
)  # fmt: skip


@dataclass
class Result:
    """A row of the table."""

    system: str
    beam: int
    busy: bool = False
    lines: int = 0  # lines of the command, sentences of the others
    tokens: int = 0
    seconds: list[float] = field(default_factory=list)  # of each repetition
    startup: float | None = None  # seconds of the same command with one line
    cpu_seconds: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def speed(self) -> float:
        return self.tokens / statistics.median(self.seconds)

    @property
    def steady_speed(self) -> float | None:
        """Tokens per second with the start-up subtracted."""
        if self.startup is None:
            return None
        return self.tokens / max(1e-9, statistics.median(self.seconds) - self.startup)

    @property
    def search(self) -> str:
        return ("greedy" if self.beam == 1 else f"beam {self.beam}") + (", busy cores" if self.busy else "")


# ---- measuring


def measure(systems: list[System], arguments: argparse.Namespace, workload: Workload) -> list[Result]:
    """Run all systems in turns, in reverse order every second time."""
    results: list[Result] = []
    outputs: dict[tuple[str, int], list[str]] = {}
    for beam in arguments.beams:
        for system in systems:
            system.prepare(beam)
            report.log(f"{system.name}, beam {beam}: ready {system.note}")
        for busy in (False, True) if arguments.busy else (False,):
            rows = {system.name: Result(system.name, beam, busy) for system in systems}
            with busy_cores(busy):
                for repetition in range(arguments.repetitions):
                    for system in systems[:: -1 if repetition % 2 else 1]:
                        output = system.run(beam)
                        record(rows[system.name], output, workload)
                        outputs.setdefault((system.name, beam), output.texts)
                for system in systems:
                    if isinstance(system, Command):
                        rows[system.name].startup = measure_startup(system, beam)
            for system in systems:
                rows[system.name].note = system.note
            results += rows.values()
            write_results(arguments, workload, results)
        compare_texts(arguments, outputs, beam)
    return results


@contextmanager
def busy_cores(busy: bool) -> Iterator[None]:
    processes = make_busy_processes(count_cpus() if busy else 0)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def record(row: Result, output: Output, workload: Workload) -> None:
    row.seconds.append(output.seconds)
    row.lines, row.tokens = len(output.texts), workload.count_tokens(output.texts)
    if not row.tokens:
        raise DataError(f"{row.system}: every translation is empty: give a trained model")
    if output.cpu_seconds is not None:
        row.cpu_seconds.append(output.cpu_seconds)
    report.log(
        f"{row.system}, {row.search}: {row.tokens:,} tokens in {output.seconds:.2f} s, "
        f"{row.tokens / output.seconds:,.0f} tokens/s"
    )


def measure_startup(system: Command, beam: int) -> float:
    """Return the seconds of the command on the first line."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        with system.text.open(encoding="utf-8", newline="\n") as text:
            file.write(text.readline())
        file.flush()
        return min(system.run(beam, text=Path(file.name)).seconds for _ in range(2))


def compare_texts(
    arguments: argparse.Namespace, outputs: dict[tuple[str, int], list[str]], beam: int
) -> None:
    """Say how many of the first lines are the same as those of --same-as, and of the old code."""
    ours = outputs.get((COMMAND, beam), [])[:COMPARED_LINES]
    references: dict[str, list[str]] = {}
    if (OLD, beam) in outputs:
        references["the old code"] = outputs[OLD, beam]
    for path in arguments.same_as or []:
        references[str(path)] = path.read_text(encoding="utf-8").split("\n")
    for name, lines in references.items():
        same = sum(a == b for a, b in zip(ours, lines, strict=False))
        count = min(len(ours), len(lines))
        arguments.comparisons.append({"reference": name, "beam": beam, "lines": count, "same": same})
        report.log(f"beam {beam}: {same:,} of the first {count:,} lines are the same as those of {name}")
    if arguments.keep and ours:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        path = arguments.keep / f"beam{beam}.txt"
        path.write_text("".join(f"{line}\n" for line in outputs[COMMAND, beam]), encoding="utf-8")


# ---- the host's share


def profile_command(command: Command, beam: int, lines: int, folder: Path) -> dict[str, Any]:
    """Run the command under bench/host_profile.py; return seconds by stage."""
    out = folder / f"profile{beam}.json"
    script = Path(__file__).with_name("host_profile.py")
    command.run(beam, prefix=(str(script), str(out)))
    profile: dict[str, Any] = json.loads(out.read_text())
    rows = [
        (thread, stage, wall, times["cpu"].get(stage, 0.0))
        for thread, times in profile["threads"].items()
        for stage, wall in sorted(times["wall"].items(), key=lambda item: -item[1])
    ]
    report.print_table(
        f"host, beam {beam}: {profile['seconds']:.1f} s, process CPU {profile['process_cpu']:.1f} s",
        ("thread", "stage", "seconds", "of the run", "CPU seconds", "CPU ms per 1,000 lines"),
        [
            (
                thread,
                stage,
                f"{wall:.2f}",
                f"{wall / profile['seconds']:.0%}",
                f"{cpu:.2f}",
                f"{1e6 * cpu / lines:.1f}",
            )
            for thread, stage, wall, cpu in rows
            if wall > 0.005 * profile["seconds"] or cpu > 0.02
        ],
    )
    return {"beam": beam, **profile}


# ---- reporting


COLUMNS = (
    "system", "search", "lines/s", "output tokens/s", "without start-up", "start-up s", "spread",
    "command is", "note",
)  # fmt: skip


def find_row(results: list[Result], row: Result, name: str) -> Result | None:
    return next((r for r in results if (r.system, r.beam, r.busy) == (name, row.beam, row.busy)), None)


def compute_ratio(results: list[Result], row: Result) -> float | None:
    """Return the speed of the command, start-up included, relative to a row."""
    command = find_row(results, row, COMMAND)
    return command.speed / row.speed if command and command is not row else None


def compute_steady_ratio(results: list[Result], row: Result) -> float | None:
    command = find_row(results, row, COMMAND)
    if command is None or command is row or command.steady_speed is None:
        return None
    return command.steady_speed / (row.steady_speed or row.speed)


def format_row(row: Result, results: list[Result]) -> tuple[str, ...]:
    ratio, steady = compute_ratio(results, row), compute_steady_ratio(results, row)
    return (
        row.system,
        row.search,
        f"{row.lines / statistics.median(row.seconds):,.1f}",
        f"{row.speed:,.0f}",
        "" if row.steady_speed is None else f"{row.steady_speed:,.0f}",
        "" if row.startup is None else f"{row.startup:.2f}",
        report.format_spread(row.seconds),
        "" if ratio is None else f"{ratio:.3g} x" + ("" if steady is None else f" ({steady:.3g} x)"),
        row.note,
    )


def to_json(row: Result, results: list[Result]) -> dict[str, Any]:
    return {
        **asdict(row),
        "tokens_per_second": row.speed,
        "tokens_per_second_without_startup": row.steady_speed,
        "lines_per_second": row.lines / statistics.median(row.seconds),
        "spread": report.compute_spread(row.seconds),
        "command_relative_speed": compute_ratio(results, row),
        "command_relative_speed_without_startup": compute_steady_ratio(results, row),
    }


def describe(arguments: argparse.Namespace, workload: Workload) -> str:
    return (
        f"{arguments.model}: {len(workload.lines):,} lines of {arguments.text.name}, engine "
        f"{arguments.engine} on {arguments.device}, {count_cpus()} cores"
        + "".join(f", {option}" for option in arguments.option)
    )


def write_results(arguments: argparse.Namespace, workload: Workload, results: list[Result]) -> None:
    """Write what is known so far."""
    report.write_json(
        arguments.json,
        describe(arguments, workload),
        arguments.environment,
        rows=[to_json(row, results) for row in results],
        comparisons=arguments.comparisons,
        profiles=arguments.profiles,
    )


# ---- the command line


def parse_arguments() -> argparse.Namespace:
    parser = report.BenchmarkParser(__doc__)
    parser.add_argument("model", type=Path, help="model folder")
    parser.add_argument("text", type=Path, help="text to translate, one line each")
    parser.add_argument("--lines", type=report.positive_int, help="of the text (default: 200,000; CPU 3,000)")
    parser.add_argument("--engine", default="torch", help="torch, ctranslate2:int8, ... (default: torch)")
    parser.add_argument("--beams", type=report.positive_int, nargs="+", default=[1, 4])
    parser.add_argument("--repetitions", type=report.positive_int, default=1)
    parser.add_argument("--peer-sentences", type=report.positive_int, help="for Hugging Face, which is slow")
    parser.add_argument("--busy", action="store_true", help="measure again beside a busy process per core")
    parser.add_argument("--profile", action="store_true", help="also profile the host's share by stage")
    parser.add_argument(
        "--option", action="append", default=[], help="of the command, such as --option=--no-confidence"
    )
    parser.add_argument("--old", type=Path, metavar="CHECKOUT", help="also measure the command of this code")
    parser.add_argument("--same-as", type=Path, action="append", help="compare the first 1,000 lines with it")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the command's translations there")
    report.add_only_argument(parser)
    arguments = parser.parse_args()
    arguments.lines = arguments.lines or LINES[arguments.device]
    arguments.peer_sentences = arguments.peer_sentences or PEER_SENTENCES[arguments.device]
    arguments.comparisons, arguments.profiles = [], []
    if not arguments.text.is_file():
        raise RequestError(f"{arguments.text}: no such file")
    names = [COMMAND, ENGINE]
    names += [OLD] if arguments.old else []
    names += [DIRECT] if arguments.engine.startswith("ctranslate2") else []
    names += [PEER] if report.get_version("transformers") else []
    arguments.systems = report.select_systems(names, arguments.only)
    return arguments


def make_systems(arguments: argparse.Namespace, workload: Workload, folder: Path) -> list[System]:
    model, engine, device = arguments.model, arguments.engine, arguments.device
    compute_type = engine.partition(":")[2] or "float32"
    makers: dict[str, Callable[[], System]] = {
        COMMAND: lambda: Command(
            COMMAND, model, workload.text, engine, device, extra=tuple(arguments.option)
        ),
        OLD: lambda: Command(OLD, model, workload.text, engine, device, arguments.old),
        ENGINE: lambda: EngineAlone(ENGINE, workload, model, engine, device),
        DIRECT: lambda: DirectCTranslate2(DIRECT, workload, model, compute_type, count_cpus()),
        PEER: lambda: HuggingFace(workload, model, device, arguments.peer_sentences, folder / "marian"),
    }
    return [makers[name]() for name in arguments.systems]


def read_workload(arguments: argparse.Namespace, folder: Path) -> Workload:
    """Write the lines to translate into a file of their own. A line ends at a line feed alone."""
    lines = []
    with arguments.text.open(encoding="utf-8", newline="\n") as file:
        for line, _ in zip(file, range(arguments.lines), strict=False):
            lines.append(line.removesuffix("\n"))
    if not lines:
        raise DataError(f"{arguments.text}: is empty")
    text = folder / "lines.txt"
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return Workload(text, lines, load(arguments.model, engine="torch", device="cpu"))


def main() -> None:
    arguments = parse_arguments()
    arguments.environment = report.measure_environment(arguments.device)
    if arguments.device == "cpu":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", count_cpus())))
    with tempfile.TemporaryDirectory() as name:
        workload = read_workload(arguments, Path(name))
        report.log(f"{len(workload.lines):,} lines, {len(workload.sources):,} sentences")
        systems = make_systems(arguments, workload, Path(name))
        results = measure(systems, arguments, workload)
        rows = [format_row(row, results) for row in results]
        report.print_table(f"{describe(arguments, workload)}; {arguments.environment}", COLUMNS, rows)
        sys.stdout.flush()
        command = next((system for system in systems if isinstance(system, Command)), None)
        if arguments.profile and command:
            for beam in arguments.beams:
                profile = profile_command(command, beam, len(workload.lines), Path(name))
                arguments.profiles.append(profile)
                write_results(arguments, workload, results)


if __name__ == "__main__":
    report.run_main(main)
