"""Serving: requests a second and how long they take, for 1 to 1,000 clients, with batching and without.

    python bench/serve.py run/model test.en                 a minute or two on two cores
    python bench/serve.py run/model test.en --json result.json
    python bench/serve.py run/model test.en --minutes 10    1,000 clients: does memory stay flat?

A server is started on loopback, and this script is all of its clients. A client asks for the translation of a
line, waits for the answer, and asks for the next; if it is refused, it comes again when Retry-After says,
spread over that much time again, as polite clients do. Meanwhile another process asks /health every 50 ms.
The servers with batching and without take turns, so that a noisy machine is noisy for both. Every answer
counts: 200, 503 with Retry-After, and anything else, of which there must be none.
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
class Round:
    """Some clients for some seconds."""

    batching: bool
    clients: int
    seconds: float
    served: int = 0
    refused: int = 0
    other: dict[str, int] = field(default_factory=dict)  # what should not be
    requests_a_second: float = 0.0
    milliseconds: dict[str, float] = field(default_factory=dict)  # of those served, from first byte to last
    refusal_milliseconds: dict[str, float] = field(default_factory=dict)
    health_milliseconds: dict[str, float] = field(default_factory=dict)
    memory_mb: list[float] = field(default_factory=list)


class Connection:
    """Plain HTTP/1.1 over one socket: a client that costs little, since it shares the machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
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


class Load:
    """All clients of one round."""

    def __init__(self, port: int, lines: list[str], seconds: float) -> None:
        self.port, self.lines, self.end = port, lines, time.monotonic() + seconds
        self.served: list[float] = []
        self.refused: list[float] = []
        self.other: Counter[str] = Counter()

    async def client(self, number: int, ramp: float) -> None:
        chance = random.Random(number)
        await asyncio.sleep(chance.random() * ramp)
        connection = Connection(self.port)
        while time.monotonic() < self.end:
            line = chance.choice(self.lines)
            body = json.dumps({"q": line, "source": "auto", "target": self.target}).encode()
            start = time.monotonic()
            try:
                status, headers, _ = await connection.ask("POST", "/translate", body)
            except (OSError, asyncio.IncompleteReadError) as fault:
                connection.close()
                self.other[type(fault).__name__] += 1  # no answer at all
                continue
            taken = time.monotonic() - start
            if status == 200:
                self.served.append(taken)
            elif status == 503 and "retry-after" in headers:
                self.refused.append(taken)
                wait = int(headers["retry-after"]) * (1 + chance.random())
                connection.close()
                await asyncio.sleep(min(wait, max(0.0, self.end - time.monotonic())))
            else:
                self.other[str(status)] += 1
        connection.close()

    async def run(self, clients: int, ramp: float, target: str) -> None:
        self.target = target
        await asyncio.gather(*(self.client(n, ramp) for n in range(clients)))


def watch_health(port: int, seconds: float) -> list[float]:
    """In a process of its own: a thousand clients in one loop wait for each other."""

    async def watch() -> list[float]:
        connection, end, found = Connection(port), time.monotonic() + seconds, []
        while time.monotonic() < end:
            start = time.monotonic()
            status, _, _ = await connection.ask("GET", "/health")
            assert status == 200
            found.append(time.monotonic() - start)
            await asyncio.sleep(0.05)
        connection.close()
        return found

    return asyncio.run(watch())


class Server:
    """A process of its own."""

    def __init__(self, model: Path, batching: bool, more: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        alone = [] if batching else ["--batch-tokens=1"]
        command = [sys.executable, "-m", "manyheads", "serve", str(model), f"--port={self.port}", "--quiet"]
        self.process = subprocess.Popen([*command, *alone, *more])
        self.languages = asyncio.run(self._ready())

    async def _ready(self) -> Any:
        for _ in range(600):
            try:
                return json.loads((await Connection(self.port).ask("GET", "/languages"))[2])
            except OSError:
                if self.process.poll() is not None:
                    sys.exit("the server did not start")
                await asyncio.sleep(0.1)
        sys.exit("the server did not answer within a minute")

    @property
    def target(self) -> str:
        return next(one["targets"][0] for one in self.languages if one["targets"])

    @property
    def memory_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return float("nan")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0


def measure(server: Server, lines: list[str], batching: bool, clients: int, seconds: float) -> Round:
    found = Round(batching, clients, seconds, memory_mb=[round(server.memory_mb, 1)])
    load = Load(server.port, lines, seconds)
    start = time.monotonic()
    with ProcessPoolExecutor(1) as apart:
        health = apart.submit(watch_health, server.port, seconds)
        asyncio.run(load.run(clients, min(1.0, clients / 500), server.target))
        taken = time.monotonic() - start
        found.health_milliseconds = percentiles(health.result())
    found.served, found.refused, found.other = len(load.served), len(load.refused), dict(load.other)
    found.requests_a_second = round(len(load.served) / taken, 1)
    found.milliseconds = percentiles(load.served)
    found.refusal_milliseconds = percentiles(load.refused)
    found.memory_mb.append(round(server.memory_mb, 1))
    return found


def percentiles(seconds: list[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=100)
    named = {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "max": max(seconds)}
    return {name: round(1000 * value, 1) for name, value in named.items()}


def table(rounds: list[Round]) -> Table:
    shown = Table(title="requests served a second; milliseconds")
    for title in ("batching", "clients", "served/s", "p50", "p90", "p99", "refused", "other"):
        shown.add_column(title, justify="right")
    for title in ("refusal p99", "health p50", "health p99", "health max", "MB before", "after"):
        shown.add_column(title, justify="right")
    for one in rounds:
        took, no, health = one.milliseconds, one.refusal_milliseconds, one.health_milliseconds
        shown.add_row(
            "on" if one.batching else "off", str(one.clients), f"{one.requests_a_second}",
            *(f"{took.get(p, 0):.0f}" for p in ("p50", "p90", "p99")), str(one.refused),
            str(sum(one.other.values())), f"{no.get('p99', 0):.0f}",
            *(f"{health.get(p, 0):.0f}" for p in ("p50", "p99", "max")),
            f"{one.memory_mb[0]:.0f}", f"{one.memory_mb[-1]:.0f}",
        )  # fmt: skip
    return shown


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("model", type=Path)
    options.add_argument("text", type=Path, help="lines to translate")
    options.add_argument("--seconds", type=float, default=10, help="of a round")
    options.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    options.add_argument("--minutes", type=float, help="1,000 clients for so long, and memory each minute")
    options.add_argument("--engine", default="torch")
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    lines = [line for line in asked.text.read_text(encoding="utf-8").splitlines() if line]
    ways = (True,) if asked.minutes else (True, False)
    servers = {batching: Server(asked.model, batching, ["--engine", asked.engine]) for batching in ways}
    rounds: list[Round] = []
    try:
        if asked.minutes:
            parts = max(1, round(asked.minutes))
            plan = [(max(asked.clients), 60 * asked.minutes / parts)] * parts
        else:
            plan = [(clients, asked.seconds) for clients in asked.clients]
            for batching, server in servers.items():
                measure(server, lines, batching, 8, 2)  # what is slow once
        for clients, seconds in plan:
            for batching, server in servers.items():
                rounds.append(measure(server, lines, batching, clients, seconds))
    finally:
        for server in servers.values():
            server.stop()
    Console(width=200).print(table(rounds))
    if asked.json:
        told = {
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
            "date": str(date.today()),
            "command": " ".join(sys.argv),
            "rounds": [asdict(one) for one in rounds],
        }
        asked.json.write_text(json.dumps(told, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
