"""Serving: requests per second and latency for 1 to 1,000 clients, beside no batching or an older version.

    python bench/serve.py run/model test.en                 one or two minutes on two cores
    python bench/serve.py run/model test.en --old ../checkout --clients 1 64 1000 --json result.json
    python bench/serve.py run/model test.en --minutes 10    1,000 clients: does memory stay flat?

Servers are started on loopback; several processes run the clients, so that these are not the limit. A client
requests the translation of a line, waits for the response, and sends the next; if it is refused, it retries
after Retry-After, with a random delay of as much again. Meanwhile another process requests /health every
50 ms. The servers (this code with batching, and without it; with --old, this code and that of another
checkout) take turns, so that a noisy machine affects both. Every response counts: 200, 503 with Retry-After,
and any other, of which there must be none. The share of a core that the busiest client process used says
whether the clients were the limit.
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
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

CLIENTS = (1, 8, 64, 1000)
NEW, UNBATCHED, OLD = "new", "no batching", "old"  # servers


@dataclass
class LoadRound:
    """The result of a number of clients for some seconds."""

    server: str
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
    client_cpu: float = 0.0  # share of a core that the busiest client process used


class Connection:
    """A minimal HTTP/1.1 client over one socket, cheap since it shares the machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json"
    ) -> tuple[int, dict[str, str], bytes]:
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self.reader is not None
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n"
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


@dataclass
class Load:
    """The responses that the clients of one process got."""

    served: list[float] = field(default_factory=list)  # seconds of each
    refused: list[float] = field(default_factory=list)
    other: Counter[str] = field(default_factory=Counter)
    cpu_share: float = 0.0

    def add(self, load: "Load") -> None:
        self.served += load.served
        self.refused += load.refused
        self.other += load.other
        self.cpu_share = max(self.cpu_share, load.cpu_share)


class LoadGenerator:
    """The clients of one process."""

    def __init__(self, port: int, bodies: list[bytes], end: float) -> None:
        self.port, self.bodies, self.end, self.load = port, bodies, end, Load()

    async def run_client(self, number: int, ramp: float) -> None:
        generator, load = random.Random(number), self.load
        await asyncio.sleep(generator.random() * ramp)
        connection = Connection(self.port)
        while time.monotonic() < self.end:
            body = generator.choice(self.bodies)
            start = time.monotonic()
            try:
                status, headers, _ = await connection.request("POST", "/translate", body)
            except (OSError, asyncio.IncompleteReadError) as error:
                connection.close()
                load.other[type(error).__name__] += 1  # no response
                continue
            seconds = time.monotonic() - start
            if status == 200:
                load.served.append(seconds)
            elif status == 503 and "retry-after" in headers:
                load.refused.append(seconds)
                wait = int(headers["retry-after"]) * (1 + generator.random())
                connection.close()
                await asyncio.sleep(min(wait, max(0.0, self.end - time.monotonic())))
            else:
                load.other[str(status)] += 1
        connection.close()

    async def run(self, numbers: Sequence[int], ramp: float) -> None:
        await asyncio.gather(*(self.run_client(number, ramp) for number in numbers))


def run_clients(port: int, bodies: list[bytes], end: float, numbers: Sequence[int], ramp: float) -> Load:
    """Run some of the clients, in a process of their own."""
    generator = LoadGenerator(port, bodies, end)
    start, cpu = time.monotonic(), time.process_time()
    asyncio.run(generator.run(numbers, ramp))
    generator.load.cpu_share = (time.process_time() - cpu) / max(1e-9, time.monotonic() - start)
    return generator.load


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
    """A server process, of this code or of another checkout."""

    def __init__(self, model: Path, options: list[str], checkout: Path | None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [sys.executable, "-m", "manyheads", "serve", str(model), f"--port={self.port}", "--quiet"]
        source = (checkout or Path(__file__).parents[1]) / "src"
        environment = {**os.environ, "PYTHONPATH": os.fspath(source.resolve())}
        self.process = subprocess.Popen([*command, *options], env=environment)
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
        """Of all its processes."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sum(map(read_memory_mb, [pid, *map(int, children)]))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0


def read_memory_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


class ClientPool:
    """Processes that run the clients, and one that watches /health."""

    def __init__(self, processes: int, lines: list[str], target: str) -> None:
        self.processes, self.pool = processes, ProcessPoolExecutor(processes + 1)
        self.bodies = [json.dumps({"q": line, "source": "auto", "target": target}).encode() for line in lines]

    def measure(self, name: str, server: Server, clients: int, seconds: float) -> LoadRound:
        """Run so many clients, dealt out to the processes."""
        round_ = LoadRound(name, clients, seconds, memory_mb=[round(server.memory_mb, 1)])
        start, ramp, load = time.monotonic(), min(1.0, clients / 500), Load()
        health = self.pool.submit(measure_health, server.port, seconds)
        shares = [range(clients)[part :: self.processes] for part in range(min(clients, self.processes))]
        parts = [
            self.pool.submit(run_clients, server.port, self.bodies, start + seconds, share, ramp)
            for share in shares
        ]
        for part in parts:
            load.add(part.result())
        elapsed = time.monotonic() - start
        round_.health_milliseconds = compute_percentiles(health.result())
        round_.served, round_.refused, round_.other = len(load.served), len(load.refused), dict(load.other)
        round_.requests_per_second = round(len(load.served) / elapsed, 1)
        round_.milliseconds = compute_percentiles(load.served)
        round_.refusal_milliseconds = compute_percentiles(load.refused)
        round_.memory_mb.append(round(server.memory_mb, 1))
        round_.client_cpu = round(load.cpu_share, 2)
        return round_


def compute_percentiles(seconds: list[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    quantiles = statistics.quantiles(seconds, n=100)
    values = {"p50": quantiles[49], "p90": quantiles[89], "p99": quantiles[98], "max": max(seconds)}
    return {name: round(1000 * value, 1) for name, value in values.items()}


def make_table(rounds: list[LoadRound]) -> Table:
    view = Table(title="requests served per second; milliseconds")
    for title in ("server", "clients", "served/s", "p50", "p90", "p99", "refused", "other", "client CPU"):
        view.add_column(title, justify="right")
    for title in ("refusal p99", "health p50", "health p99", "health max", "MB before", "after", "new is"):
        view.add_column(title, justify="right")
    for round_ in rounds:
        served, refused, health = round_.milliseconds, round_.refusal_milliseconds, round_.health_milliseconds
        ratio = compute_ratio(rounds, round_)
        view.add_row(
            round_.server, str(round_.clients), f"{round_.requests_per_second}",
            *(f"{served.get(p, 0):.0f}" for p in ("p50", "p90", "p99")), str(round_.refused),
            str(sum(round_.other.values())), f"{round_.client_cpu:.0%}", f"{refused.get('p99', 0):.0f}",
            *(f"{health.get(p, 0):.0f}" for p in ("p50", "p99", "max")),
            f"{round_.memory_mb[0]:.0f}", f"{round_.memory_mb[-1]:.0f}",
            "" if ratio is None else f"{ratio:.2f} x",
        )  # fmt: skip
    return view


def compute_ratio(rounds: list[LoadRound], other: LoadRound) -> float | None:
    """Return the requests per second of the new server relative to those of another, for as many clients."""
    if other.server == NEW or not other.requests_per_second:
        return None
    new = [r.requests_per_second for r in rounds if (r.server, r.clients) == (NEW, other.clients)]
    return statistics.mean(new) / other.requests_per_second if new else None


def parse_arguments() -> argparse.Namespace:
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
    parser.add_argument("--engine", help="of the servers; by default their own default, torch")
    parser.add_argument("--device", help="of the servers, such as cpu; by default a GPU where there is one")
    parser.add_argument(
        "--server-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="of the servers of this code, such as --server-option=--processes=4; can be repeated",
    )
    parser.add_argument("--old", type=Path, metavar="CHECKOUT", help="compare with the server of this code")
    parser.add_argument(
        "--old-model", type=Path, metavar="MODEL", help="the same model in the format that --old reads"
    )
    parser.add_argument(
        "--processes", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 2)), help="of clients"
    )
    parser.add_argument("--max-lines", type=int, default=20_000, help="of the text (default: %(default)s)")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def start_servers(arguments: argparse.Namespace) -> dict[str, Server]:
    options = ["--engine", arguments.engine] if arguments.engine else []
    options += ["--device", arguments.device] if arguments.device else []
    new_options = [*options, *arguments.server_option]
    servers = {NEW: Server(arguments.model, new_options, None)}
    if arguments.old:
        servers[OLD] = Server(arguments.old_model or arguments.model, options, arguments.old)
    elif not arguments.minutes:
        servers[UNBATCHED] = Server(arguments.model, [*new_options, "--batch-tokens=1"], None)
    return servers


def write_json(path: Path | None, rounds: list[LoadRound]) -> None:
    """Write what is known so far, if a path is given."""
    if path:
        data = {
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
            "date": str(date.today()),
            "command": " ".join(sys.argv),
            "rounds": [asdict(round_) | {"new_is": compute_ratio(rounds, round_)} for round_ in rounds],
        }
        path.write_text(json.dumps(data, indent=1), encoding="utf-8")


def main() -> None:
    arguments = parse_arguments()
    with arguments.text.open(encoding="utf-8", newline="\n") as file:
        lines = [line.strip() for line in islice(file, arguments.max_lines) if line.strip()]
    servers = start_servers(arguments)
    rounds: list[LoadRound] = []
    pool = ClientPool(arguments.processes, lines, servers[NEW].target)
    try:
        if arguments.minutes:
            parts = max(1, round(arguments.minutes))
            plan = [(max(arguments.clients), 60 * arguments.minutes / parts)] * parts
        else:
            plan = [(clients, arguments.seconds) for clients in arguments.clients]
            for name, server in servers.items():
                pool.measure(name, server, min(64, max(arguments.clients)), 3)  # warm-up
        for clients, seconds in plan:
            for name, server in servers.items():
                rounds.append(pool.measure(name, server, clients, seconds))
                write_json(arguments.json, rounds)
                print(f"{name}, {clients} clients: {rounds[-1].requests_per_second}/s", file=sys.stderr)
    finally:
        for server in servers.values():
            server.stop()
        pool.pool.shutdown()
    Console(width=200).print(make_table(rounds))


if __name__ == "__main__":
    main()
