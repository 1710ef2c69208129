"""A flood of large requests: what ordinary clients of the server notice of it.

    python bench/flood.py run/model test.en                     about a minute on two cores
    python bench/flood.py run/model test.en --old ../checkout   the same for another version of the code

A server is started on loopback. Three ordinary clients send lines of the text, one after the other: first
alone, then while three others keep three large requests each in flight. Every client has an address of its
own (127.0.0.2 and so on; --one-address gives all the same, as behind a proxy). The floods:

    repeated    10,000 times "x", which the server refuses
    longest     8,000 times "x", which it accepts
    lines       "I" on 4,999 lines
    documents   lines of the text up to the largest request that the server accepts, with alternatives
    pages       the same as HTML with a tag around every word, whose place in the translation is searched

A flood ends when the ordinary clients have sent their requests, and after --seconds at the latest.
"""

import argparse
import asyncio
import html
import json
import os
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from datetime import date
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from serve import Connection, Server, compute_percentiles

QUIET, FLOOD_TYPES = "quiet", ("repeated", "longest", "lines", "documents", "pages")
ORDINARY_CLIENTS, FLOODING_CLIENTS, REQUESTS_IN_FLIGHT = 3, 3, 3
DOCUMENT_CHARACTERS, DOCUMENT_ALTERNATIVES = 8000, 2
PAUSE_SECONDS = 0.1  # of a flooding client after a refusal: it is not polite, but it is no busy loop


@dataclass
class Phase:
    """What ordinary and flooding clients got during one type of flood."""

    name: str
    statuses: dict[str, int] = field(default_factory=dict)  # of ordinary requests
    milliseconds: dict[str, float] = field(default_factory=dict)  # of ordinary requests that were served
    flood_statuses: dict[str, int] = field(default_factory=dict)
    slowdown: float | None = None  # median, relative to the quiet one


class AddressedConnection(Connection):
    """A connection from one of the addresses of the loopback interface."""

    def __init__(self, port: int, address: str) -> None:
        super().__init__(port)
        self.address = address

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(self.address, 0)
        )

    async def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json"
    ) -> tuple[int, dict[str, str], bytes]:
        if self.writer is None or self.writer.is_closing():
            await self.open()
        return await super().request(method, path, body, content_type)


class Flood:
    """The clients of one phase."""

    def __init__(self, port: int, requests: int, seconds: float, one_address: bool) -> None:
        self.port, self.requests, self.deadline = port, requests, time.monotonic() + seconds
        self.latencies: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.flood_statuses: Counter[str] = Counter()
        numbers = count(2)
        self.next_address: Callable[[], str] = lambda: f"127.0.0.{1 if one_address else next(numbers)}"

    async def run_ordinary(self, bodies: list[bytes], address: str) -> None:
        connection = AddressedConnection(self.port, address)
        for body in islice(cycle(bodies), self.requests):
            if time.monotonic() > self.deadline:
                break
            start = time.monotonic()
            status = await send(connection, body)
            self.statuses[status] += 1
            if status == "200":
                self.latencies.append(time.monotonic() - start)
        connection.close()

    async def run_flooding(self, body: bytes, address: str) -> None:
        connection = AddressedConnection(self.port, address)
        try:
            while True:
                status = await send(connection, body)
                self.flood_statuses[status] += 1
                if status != "200":
                    await asyncio.sleep(PAUSE_SECONDS)
        finally:
            connection.close()

    async def run(self, bodies: list[bytes], flood_body: bytes | None) -> None:
        ordinary: list[Coroutine[Any, Any, None]] = []
        for number in range(ORDINARY_CLIENTS):
            ordinary.append(self.run_ordinary(bodies[number::ORDINARY_CLIENTS], self.next_address()))
        flooding = []
        if flood_body is not None:
            for _ in range(FLOODING_CLIENTS):
                address = self.next_address()
                flooding += [
                    asyncio.create_task(self.run_flooding(flood_body, address))
                    for _ in range(REQUESTS_IN_FLIGHT)
                ]
            await asyncio.sleep(1)  # until the flood is at its height
        await asyncio.gather(*ordinary)
        for task in flooding:
            task.cancel()
        await asyncio.gather(*flooding, return_exceptions=True)


async def send(connection: Connection, body: bytes) -> str:
    try:
        status, _, _ = await connection.request("POST", "/translate", body)
    except (OSError, asyncio.IncompleteReadError) as error:
        connection.close()
        return type(error).__name__
    return str(status)


def make_body(text: str, target: str, **options: Any) -> bytes:
    return json.dumps({"q": text, "source": "auto", "target": target, **options}).encode()


def make_flood_body(name: str, lines: list[str], target: str, source: str) -> bytes | None:
    options: dict[str, Any] = {"source": source}  # one letter is in no language
    if name in ("repeated", "longest"):
        text = "x" * (10_000 if name == "repeated" else 8_000)
    elif name == "lines":
        text = "I\n" * 4_999
    elif name == "documents":
        text, endless = "", cycle(lines)
        while len(text) < DOCUMENT_CHARACTERS:
            text += next(endless) + "\n"
        options["alternatives"] = DOCUMENT_ALTERNATIVES
    elif name == "pages":
        text, endless = "", cycle(lines)
        while len(text) < DOCUMENT_CHARACTERS:
            words = " ".join(f"<b>{word}</b>" for word in html.escape(next(endless)).split())
            text += f"<p>{words}</p>\n"
        options |= {"alternatives": DOCUMENT_ALTERNATIVES, "format": "html"}
    else:
        return None
    return json.dumps({"q": text, "target": target, **options}).encode()


def measure(
    server: Server, floods: list[str], lines: list[str], arguments: argparse.Namespace
) -> list[Phase]:
    target = server.target
    source = next(language["code"] for language in server.languages if target in language["targets"])
    bodies = [make_body(line, target, source=source) for line in lines]
    phases: list[Phase] = []
    for name in (QUIET, *floods):
        flood = Flood(server.port, arguments.requests, arguments.seconds, arguments.one_address)
        asyncio.run(flood.run(bodies, make_flood_body(name, lines, target, source)))
        phase = Phase(
            name, dict(flood.statuses), compute_percentiles(flood.latencies), dict(flood.flood_statuses)
        )
        if flood.latencies:
            median = 1000 * statistics.median(flood.latencies)
            phase.milliseconds["p50"] = round(median, 1)
            quiet = phases[0].milliseconds.get("p50") if phases else None
            phase.slowdown = round(median / quiet, 2) if quiet else None
        phases.append(phase)
        print(
            f"{name}: {phase.statuses}, {phase.milliseconds}; flood {phase.flood_statuses}",
            file=sys.stderr,
        )
    return phases


def make_table(phases: list[Phase]) -> Table:
    view = Table(title="ordinary requests beside a flood; milliseconds")
    for title in ("flood", "answers", "p50", "p90", "max", "to quiet", "answers to the flood"):
        view.add_column(title, justify="right")
    for phase in phases:
        view.add_row(
            phase.name, format_statuses(phase.statuses),
            *(f"{phase.milliseconds.get(name, 0):.0f}" for name in ("p50", "p90", "max")),
            "" if phase.slowdown is None else f"{phase.slowdown:.2f} x",
            format_statuses(phase.flood_statuses),
        )  # fmt: skip
    return view


def format_statuses(statuses: dict[str, int]) -> str:
    return ", ".join(f"{number} x {status}" for status, number in sorted(statuses.items()))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path, help="lines that ordinary clients send")
    parser.add_argument("--requests", type=int, default=30, help="of each ordinary client")
    parser.add_argument("--seconds", type=float, default=40, help="of a phase at most")
    parser.add_argument("--floods", nargs="+", choices=FLOOD_TYPES, default=list(FLOOD_TYPES))
    parser.add_argument("--one-address", action="store_true", help="all clients have the same address")
    parser.add_argument("--engine", help="of the server; by default torch")
    parser.add_argument("--old", type=Path, metavar="CHECKOUT", help="run the server of this code")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    with arguments.text.open(encoding="utf-8", newline="\n") as file:
        lines = [line.strip() for line in islice(file, 1000) if line.strip()]
    options = ["--engine", arguments.engine] if arguments.engine else []
    server = Server(arguments.model, options, arguments.old)
    try:
        phases = measure(server, arguments.floods, lines, arguments)
    finally:
        server.stop()
    if arguments.json:
        data = {
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
            "date": str(date.today()),
            "command": " ".join(sys.argv),
            "phases": [asdict(phase) for phase in phases],
        }
        arguments.json.write_text(json.dumps(data, indent=1), encoding="utf-8")
    Console(width=160).print(make_table(phases))


if __name__ == "__main__":
    main()
