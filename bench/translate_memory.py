"""Memory and interruption of `manyheads translate`: flat over a million lines, a closed pipe, Ctrl-C.

    python bench/translate_memory.py run/model test.en           a million lines, most without words
    python bench/translate_memory.py run/model test.en --lines 100000 --engine ctranslate2:int8

The lines of the text are repeated, mixed with as many lines without words as --words-every says, which are
copied without the model, so that a million lines take minutes. The resident memory of the process is read
every 0.2 s. The memory after a tenth of the lines is compared with the highest after it: bounded queues fill
up first. Then the same command ends when its reader is gone (`| head -1`), and by SIGINT in the middle.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import IO, Any

import report
from manyheads.errors import DataError

SAMPLE_SECONDS = 0.2
WARM_UP_SHARE = 0.1  # of the lines, after which memory may no longer grow


def generate_lines(lines: list[str], count: int, words_every: int) -> Iterator[bytes]:
    """Yield `count` lines: every n-th has words, the others have none."""
    texts = cycle(lines)
    for number in range(count):
        yield (f"{next(texts)}\n" if number % words_every == 0 else f"{'-' * (1 + number % 40)}\n").encode()


def read_memory(process: int) -> float:
    """Return the resident memory of a process in MiB, 0 when it is gone."""
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


class Translation:
    """A running command that is fed lines by a thread; its output is counted."""

    def __init__(self, arguments: argparse.Namespace, lines: list[str], count: int) -> None:
        command = [sys.executable, "-m", "manyheads", "translate", str(arguments.model), "--beam", "1"]
        command += ["--engine", arguments.engine, "--device", arguments.device]
        source = Path(__file__).resolve().parents[1] / "src"
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(source)},
        )
        assert self.process.stdin
        assert self.process.stdout
        self.output: IO[bytes] = self.process.stdout
        self.num_read = 0
        text = generate_lines(lines, count, arguments.words_every)
        self.feeder = threading.Thread(target=self._feed, args=(self.process.stdin, text), daemon=True)
        self.feeder.start()

    def _feed(self, stream: IO[bytes], lines: Iterator[bytes]) -> None:
        try:
            while chunk := b"".join(islice(lines, 1000)):
                stream.write(chunk)
            stream.close()
        except OSError:
            pass  # the command has ended

    def count_output(self) -> None:
        for _ in self.output:
            self.num_read += 1

    def finish(self) -> tuple[int, float, str]:
        """Wait; return the exit code, the seconds that it took, and what was printed to stderr."""
        start = time.perf_counter()
        code = self.process.wait(60)
        seconds = time.perf_counter() - start
        assert self.process.stderr
        return code, seconds, self.process.stderr.read().decode()


def measure_memory(arguments: argparse.Namespace, lines: list[str]) -> dict[str, Any]:
    """Translate all lines; return memory over time."""
    running = Translation(arguments, lines, arguments.lines)
    counter = threading.Thread(target=running.count_output, daemon=True)
    counter.start()
    samples: list[tuple[float, int, float]] = []  # seconds, lines, MiB
    start = last_log = time.perf_counter()
    while counter.is_alive():
        counter.join(SAMPLE_SECONDS)
        now = time.perf_counter()
        if memory := read_memory(running.process.pid):
            samples.append((now - start, running.num_read, memory))
        if now - last_log > 10:
            last_log = now
            report.log(f"{running.num_read:,} lines, {samples[-1][2]:.0f} MiB")
    code, _, errors = running.finish()
    if code or running.num_read != arguments.lines:
        raise DataError(
            f"exit code {code}, {running.num_read:,} lines of {arguments.lines:,}: {errors[-500:]}"
        )
    warm = [memory for _, done, memory in samples if done >= WARM_UP_SHARE * arguments.lines]
    seconds = time.perf_counter() - start
    return {
        "lines": running.num_read,
        "seconds": seconds,
        "memory_after_warm_up": warm[0],
        "memory_max": max(warm),
        "memory_last": warm[-1],
        "growth": max(warm) / warm[0] - 1,
        "samples": samples[:: max(1, len(samples) // 100)],
    }


def measure_closed_pipe(arguments: argparse.Namespace, lines: list[str]) -> dict[str, Any]:
    """Read one line and close the pipe, as `head -1` does."""
    running = Translation(arguments, lines, arguments.lines)
    running.output.readline()
    running.output.close()
    code, seconds, errors = running.finish()
    return {"exit_code": code, "seconds": seconds, "stderr": errors}


def measure_interrupt(arguments: argparse.Namespace, lines: list[str]) -> dict[str, Any]:
    """Send SIGINT after some output, as Ctrl-C does."""
    running = Translation(arguments, lines, arguments.lines)
    for _ in range(10):
        running.output.readline()
    counter = threading.Thread(target=running.count_output, daemon=True)
    counter.start()
    running.process.send_signal(signal.SIGINT)
    code, seconds, errors = running.finish()
    return {"exit_code": code, "seconds": seconds, "stderr": errors}


def main() -> None:
    parser = report.BenchmarkParser(__doc__)
    parser.add_argument("model", type=Path, help="model folder; a tiny one is enough")
    parser.add_argument("text", type=Path, help="lines to translate, repeated")
    parser.add_argument("--lines", type=report.positive_int, default=1_000_000)
    parser.add_argument("--words-every", type=report.positive_int, default=50, help="1: all lines have words")
    parser.add_argument("--engine", default="torch")
    arguments = parser.parse_args()
    lines = [line for line in arguments.text.read_text(encoding="utf-8").split("\n") if line.strip()]
    if not lines:
        raise DataError(f"{arguments.text}: is empty")
    results: dict[str, Any] = {}
    for name, call in (("closed pipe", measure_closed_pipe), ("SIGINT", measure_interrupt)):
        results[name] = outcome = call(arguments, lines)
        tail = outcome["stderr"].strip().splitlines()[-1:] or [""]
        print(f"{name}: exit code {outcome['exit_code']} after {outcome['seconds']:.2f} s; stderr: {tail[0]}")
    results["memory"] = memory = measure_memory(arguments, lines)
    print(
        f"{memory['lines']:,} lines in {memory['seconds']:.0f} s: {memory['memory_after_warm_up']:.0f} MiB "
        f"after a tenth, at most {memory['memory_max']:.0f} MiB after that ({memory['growth']:+.1%})"
    )
    report.write_json(
        arguments.json, "memory of translate", report.measure_environment(arguments.device), **results
    )


if __name__ == "__main__":
    report.run_main(main)
