"""Serving: requests per second and latency for 1 to 1,000 clients, with and without batching.

    python bench/serve.py run/model test.en                 one or two minutes on two cores
    python bench/serve.py run/model test.en --json result.json
    python bench/serve.py run/model test.en --minutes 10    1,000 clients: does memory stay flat?

A server is started on loopback, and this script runs all clients. A client requests the translation of a
line, waits for the response, and sends the next; if it is refused, it retries after Retry-After, with a
random delay of as much again. Meanwhile another process requests /health every 50 ms. The servers with and
without batching alternate, so that a noisy machine affects both. Every response counts: 200, 503 with
Retry-After, and any other, of which there must be none.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

CLIENTS = (1, 8, 64, 1000)


@dataclass
class LoadRound:
    """The result of a number of clients for some seconds."""

    batching: bool
    clients: int
    seconds: float
    served: int = 0
    refused: int = 0
    other: dict[str, int] = field(default_factory=dict)  # unexpected responses and errors
    requests_per_second: float = 0.0
    milliseconds: dict[str, float] = field(default_factory=dict)  # of served requests, first to last byte
    refusal_milliseconds: dict[str, float] = field(default_factory=dict)
    health_milliseconds: dict[str, float] = field(default_factory=dict)
    memory_mb: list[float] = field(default_factory=list)


class Connection:
    """A minimal HTTP/1.1 client over one socket, cheap since it shares the machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self.reader is not None
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        answer = await self.reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.close()
        return int(lines[0].split()[1]), headers, answer

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.writer = None


class LoadGenerator:
    """The clients of one round."""

    def __init__(self, port: int, lines: list[str], seconds: float) -> None:
        self.port, self.lines, self.end = port, lines, time.monotonic() + seconds
        self.served: list[float] = []
        self.refused: list[float] = []
        self.other: Counter[str] = Counter()

    async def run_client(self, number: int, ramp: float) -> None:
        generator = random.Random(number)
        await asyncio.sleep(generator.random() * ramp)
        connection = Connection(self.port)
        while time.monotonic() < self.end:
            line = generator.choice(self.lines)
            body = json.dumps({"q": line, "source": "auto", "target": self.target}).encode()
            start = time.monotonic()
            try:
                status, headers, _ = await connection.request("POST", "/translate", body)
            except (OSError, asyncio.IncompleteReadError) as error:
                connection.close()
                self.other[type(error).__name__] += 1  # no response
                continue
            seconds = time.monotonic() - start
            if status == 200:
                self.served.append(seconds)
            elif status == 503 and "retry-after" in headers:
                self.refused.append(seconds)
                wait = int(headers["retry-after"]) * (1 + generator.random())
                connection.close()
                await asyncio.sleep(min(wait, max(0.0, self.end - time.monotonic())))
            else:
                self.other[str(status)] += 1
        connection.close()

    async def run(self, clients: int, ramp: float, target: str) -> None:
        self.target = target
        await asyncio.gather(*(self.run_client(n, ramp) for n in range(clients)))


def measure_health(port: int, seconds: float) -> list[float]:
    """Measure /health latency. Runs in a separate process, since clients in one loop delay each other."""

    async def watch() -> list[float]:
        connection, end = Connection(port), time.monotonic() + seconds
        latencies = []
        while time.monotonic() < end:
            start = time.monotonic()
            status, _, _ = await connection.request("GET", "/health")
            assert status == 200
            latencies.append(time.monotonic() - start)
            await asyncio.sleep(0.05)
        connection.close()
        return latencies

    return asyncio.run(watch())


class Server:
    """A server process."""

    def __init__(self, model: Path, batching: bool, options: list[str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        no_batching = [] if batching else ["--batch-tokens=1"]
        command = [sys.executable, "-m", "manyheads", "serve", str(model), f"--port={self.port}", "--quiet"]
        self.process = subprocess.Popen([*command, *no_batching, *options])
        self.languages = asyncio.run(self._wait_until_ready())

    async def _wait_until_ready(self) -> Any:
        for _ in range(600):
            try:
                return json.loads((await Connection(self.port).request("GET", "/languages"))[2])
            except OSError:
                if self.process.poll() is not None:
                    sys.exit("the server did not start")
                await asyncio.sleep(0.1)
        sys.exit("the server did not respond within a minute")

    @property
    def target(self) -> str:
        return next(language["targets"][0] for language in self.languages if language["targets"])

    @property
    def memory_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return float("nan")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0


def measure(server: Server, lines: list[str], batching: bool, clients: int, seconds: float) -> LoadRound:
    round_ = LoadRound(batching, clients, seconds, memory_mb=[round(server.memory_mb, 1)])
    load = LoadGenerator(server.port, lines, seconds)
    start = time.monotonic()
    with ProcessPoolExecutor(1) as pool:
        health = pool.submit(measure_health, server.port, seconds)
        asyncio.run(load.run(clients, min(1.0, clients / 500), server.target))
        elapsed = time.monotonic() - start
        round_.health_milliseconds = compute_percentiles(health.result())
    round_.served, round_.refused, round_.other = len(load.served), len(load.refused), dict(load.other)
    round_.requests_per_second = round(len(load.served) / elapsed, 1)
    round_.milliseconds = compute_percentiles(load.served)
    round_.refusal_milliseconds = compute_percentiles(load.refused)
    round_.memory_mb.append(round(server.memory_mb, 1))
    return round_


def compute_percentiles(seconds: list[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    quantiles = statistics.quantiles(seconds, n=100)
    values = {"p50": quantiles[49], "p90": quantiles[89], "p99": quantiles[98], "max": max(seconds)}
    return {name: round(1000 * value, 1) for name, value in values.items()}


def make_table(rounds: list[LoadRound]) -> Table:
    view = Table(title="requests served per second; milliseconds")
    for title in ("batching", "clients", "served/s", "p50", "p90", "p99", "refused", "other"):
        view.add_column(title, justify="right")
    for title in ("refusal p99", "health p50", "health p99", "health max", "MB before", "after"):
        view.add_column(title, justify="right")
    for round_ in rounds:
        served, refused, health = round_.milliseconds, round_.refusal_milliseconds, round_.health_milliseconds
        view.add_row(
            "on" if round_.batching else "off", str(round_.clients), f"{round_.requests_per_second}",
            *(f"{served.get(p, 0):.0f}" for p in ("p50", "p90", "p99")), str(round_.refused),
            str(sum(round_.other.values())), f"{refused.get('p99', 0):.0f}",
            *(f"{health.get(p, 0):.0f}" for p in ("p50", "p99", "max")),
            f"{round_.memory_mb[0]:.0f}", f"{round_.memory_mb[-1]:.0f}",
        )  # fmt: skip
    return view


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path, help="lines to translate")
    parser.add_argument("--seconds", type=float, default=10, help="of each round")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument(
        "--minutes", type=float, help="run 1,000 clients for so long, and report memory each minute"
    )
    parser.add_argument("--engine", default="torch")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    lines = [line for line in arguments.text.read_text(encoding="utf-8").splitlines() if line]
    modes = (True,) if arguments.minutes else (True, False)
    options = ["--engine", arguments.engine]
    servers = {batching: Server(arguments.model, batching, options) for batching in modes}
    rounds: list[LoadRound] = []
    try:
        if arguments.minutes:
            parts = max(1, round(arguments.minutes))
            plan = [(max(arguments.clients), 60 * arguments.minutes / parts)] * parts
        else:
            plan = [(clients, arguments.seconds) for clients in arguments.clients]
            for batching, server in servers.items():
                measure(server, lines, batching, 8, 2)  # warm-up
        for clients, seconds in plan:
            for batching, server in servers.items():
                rounds.append(measure(server, lines, batching, clients, seconds))
    finally:
        for server in servers.values():
            server.stop()
    Console(width=200).print(make_table(rounds))
    if arguments.json:
        data = {
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
            "date": str(date.today()),
            "command": " ".join(sys.argv),
            "rounds": [asdict(round_) for round_ in rounds],
        }
        arguments.json.write_text(json.dumps(data, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
