"""A soak test: mixed traffic for an hour while things break. Nothing is lost, memory stays flat.

    python bench/soak.py run/model test.en                         an hour, on loopback
    python bench/soak.py run/model test.en --minutes 5 --clients 8 --json soak.json

A server with front-end processes is started for a copy of the model, and the clients send what real ones do:
lines, long texts, HTML, lists, alternatives, files, DeepL's requests, requests that are wrong, and requests
for /health, /languages and /metrics. Meanwhile, in turn:

    kill a front-end     SIGKILL; the server must start another one
    slow clients         they send a byte a second, and go
    lost clients         they disconnect in the middle of a request or of a response
    a full disk          an export of the same model beside the server may write no more bytes: exit code 4
    corrections          POST /suggest; none that the server took may be lost

Every request is answered (200), refused (400, 403, 413, 429, 503) or cut by a kill, and no more are cut
than were open at the kills. The translations of a set of lines are the same before and after. Memory is read
every few seconds: its median in the last quarter of the time is at most 10 % or 20 MB above that of the
second quarter. The test ends by itself; --minutes is its length.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from serve import Connection, Server

ANSWERED, REFUSED = {200}, {400, 403, 413, 429, 503}  # 403: without the key, where one is required
PROBE_LINES = 20  # translated before and after
MEMORY_SECONDS = 2.0
FAULT_SECONDS = 10.0  # between faults
RESTART_SECONDS = 60.0  # for a front-end to be started again
GROWTH, GROWTH_MB = 1.1, 20.0  # of memory that is still called flat
CUT = "cut"  # the connection was closed without a response
BOUNDARY = "--soak"


@dataclass
class SoakResult:
    """What happened."""

    seconds: float = 0.0
    responses: Counter[str] = field(default_factory=Counter)
    unexpected: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    cut_allowed: int = 0
    memory_mb: list[float] = field(default_factory=list)
    corrections: int = 0  # taken by the server, and there at the end
    problems: list[str] = field(default_factory=list)


class SoakServer(Server):
    """A server with front-ends, and what it offers."""

    def __init__(self, model: Path, options: list[str], api_key: str | None) -> None:
        super().__init__(model, options, None)
        self.api_key = api_key

    @property
    def source(self) -> str:
        return next(str(language["code"]) for language in self.languages if language["targets"])


class Traffic:
    """Clients that send one request after the other until the end."""

    def __init__(self, server: "SoakServer", lines: list[str], end: float, seed: int) -> None:
        self.server, self.lines, self.end = server, lines, end
        self.random = random.Random(seed)
        self.result = SoakResult()
        self.open_connections = 0
        self.corrections: dict[str, str] = {}
        self.access = {"api_key": server.api_key} if server.api_key else {}

    async def run_client(self) -> None:
        connection = Connection(self.server.port)
        while time.monotonic() < self.end:
            method, path, body = self.choose_request()
            self.open_connections += 1
            try:
                status, headers, answer = await self.send(connection, method, path, body)
            except (OSError, asyncio.IncompleteReadError):
                connection.close()
                self.result.responses[CUT] += 1
                await asyncio.sleep(0.2)
                continue
            except TimeoutError:
                connection.close()
                self.result.unexpected[f"{path}: no response within 90 s"] += 1
                continue
            finally:
                self.open_connections -= 1
            self.record(path, status, answer)
            if status in (429, 503):
                await asyncio.sleep(
                    min(5.0, float(headers.get("retry-after", "1"))) * self.random.uniform(0.2, 1)
                )
        connection.close()

    @staticmethod
    async def send(
        connection: Connection, method: str, path: str, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        is_file = path == "/translate_file"
        content_type = f"multipart/form-data; boundary={BOUNDARY}" if is_file else "application/json"
        return await asyncio.wait_for(connection.request(method, path, body, content_type), 90)

    def record(self, path: str, status: int, answer: bytes) -> None:
        self.result.responses[str(status)] += 1
        if status not in ANSWERED | REFUSED:
            self.result.unexpected[f"{path}: {status}"] += 1
        elif path == "/translate" and status == 200 and "translatedText" not in json.loads(answer):
            self.result.unexpected[f"{path}: 200 without a translation"] += 1

    def choose_request(self) -> tuple[str, str, bytes]:
        draw, target, line = self.random.random(), self.server.target, self.random.choice(self.lines)
        common = {"source": "auto", "target": target, **self.access}
        few = self.random.sample(self.lines, min(5, len(self.lines)))
        if draw < 0.50:
            return "POST", "/translate", encode({"q": line, **common})
        if draw < 0.55:
            return "POST", "/translate_file", encode_file("\n".join(few), common)
        if draw < 0.60:
            key = {"auth_key": self.server.api_key} if self.server.api_key else {}
            return "POST", "/v2/translate", encode({"text": few, "target_lang": target.upper(), **key})
        if draw < 0.70:
            return "POST", "/translate", encode({"q": few, **common, "alternatives": 2})
        if draw < 0.78:
            html = "".join(f"<p class='x'>{line} <b>{line}</b></p>" for line in few)
            return "POST", "/translate", encode({"q": html, "format": "html", **common})
        if draw < 0.82:
            return "POST", "/translate", encode({"q": " ".join(few * 3), **common})
        if draw < 0.88:
            return "GET", self.random.choice(["/health", "/languages", "/metrics", "/frontend/settings"]), b""
        if draw < 0.92:
            return "POST", "/detect", encode({"q": line, **self.access})
        wrong: list[bytes] = [b"{", encode({"q": line}), encode({"q": "x" * 20_000, **common}), b"\xff" * 50]
        return "POST", "/translate", self.random.choice(wrong)


def encode(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode()


def encode_file(text: str, fields: dict[str, str]) -> bytes:
    """Encode a form with a text file."""
    parts = [f'form-data; name="{name}"\r\n\r\n{value}' for name, value in fields.items()]
    parts.append(f'form-data; name="file"; filename="lines.txt"\r\n\r\n{text}')
    body = "".join(f"--{BOUNDARY}\r\nContent-Disposition: {part}\r\n" for part in parts)
    return f"{body}--{BOUNDARY}--\r\n".encode()


# ---- faults


class FaultInjector:
    """What goes wrong, one after the other."""

    def __init__(self, traffic: Traffic, folder: Path) -> None:
        self.traffic, self.server, self.folder = traffic, traffic.server, folder
        self.result = traffic.result

    async def run(self) -> None:
        turns: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = [
            ("front-end killed", self.kill_front_end),
            ("slow clients", self.send_slowly),
            ("lost clients", self.disconnect),
            ("full disk", self.fill_disk),
            ("corrections", self.write_corrections),
        ]
        number = 0
        while time.monotonic() + FAULT_SECONDS < self.traffic.end:
            await asyncio.sleep(FAULT_SECONDS)
            name, cause = turns[number % len(turns)]
            await cause()
            self.result.injected[name] += 1
            number += 1

    async def kill_front_end(self) -> None:
        before = list_children(self.server.process.pid)
        if not before:
            return
        victim = self.traffic.random.choice(before)
        self.result.cut_allowed += self.traffic.open_connections
        os.kill(victim, signal.SIGKILL)
        start = time.monotonic()
        while len(set(list_children(self.server.process.pid)) - {victim}) < len(before):
            if time.monotonic() - start > RESTART_SECONDS:
                self.result.problems.append("a killed front-end was not started again")
                return
            await asyncio.sleep(0.2)

    async def send_slowly(self) -> None:
        """Send the first bytes of a body one by one, and close."""
        body = encode({"q": self.traffic.lines[0], "source": "auto", "target": self.server.target})
        head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        writers = []
        for _ in range(5):
            _, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
            writer.write(head)
            writers.append(writer)
        for byte in body[:5]:
            for writer in writers:
                writer.write(bytes([byte]))
            await asyncio.sleep(1)
        for writer in writers:
            writer.close()

    async def disconnect(self) -> None:
        body = encode({"q": self.traffic.lines, "source": "auto", "target": self.server.target})
        for length in (10, len(body) // 2, len(body)):
            _, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
            head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body[:length])
            await asyncio.sleep(0.3)
            writer.transport.abort()

    async def fill_disk(self) -> None:
        """Copy the model to a file system that is too small: exit code 4, and nothing but whole files."""
        command = [sys.executable, "-m", "manyheads", "export", str(self.folder / "model"), "--to", "int8"]
        command += ["--out", str(self.folder / "disk" / "copy")]
        weights = self.folder / "model" / "weights.safetensors"
        kilobytes = max(4, weights.stat().st_size // 2**13)  # an eighth; int8 weights are a quarter
        limit = f'ulimit -f {kilobytes}; exec "$@"'
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", limit, "bash", *command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _, errors = await process.communicate()
        left = list((self.folder / "disk").glob("*"))
        if process.returncode != 4 or left:
            text = errors.decode(errors="replace")[-300:]
            self.result.problems.append(f"a full disk: exit code {process.returncode}, left {left}, {text}")

    async def write_corrections(self) -> None:
        """Correct a sentence that no client sends; remember it if the server says that it took it."""
        connection, number = Connection(self.server.port), len(self.traffic.corrections)
        source, target = self.server.source, self.server.target
        sentence, correction = f"Sentence {number} is corrected.", f"correction {number}"
        values = {"q": sentence, "s": correction, "source": source, "target": target, **self.traffic.access}
        try:
            status, _, _ = await connection.request("POST", "/suggest", encode(values))
        except (OSError, asyncio.IncompleteReadError):
            return  # its front-end was killed meanwhile: not taken
        finally:
            connection.close()
        if status == 200:
            self.traffic.corrections[sentence] = correction


def list_children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# ---- the whole


async def watch_memory(traffic: Traffic) -> None:
    while time.monotonic() < traffic.end:
        with suppress(FileNotFoundError, ProcessLookupError):  # a front-end has just been killed
            traffic.result.memory_mb.append(round(traffic.server.memory_mb, 1))
        await asyncio.sleep(MEMORY_SECONDS)


async def translate_probes(traffic: Traffic, lines: list[str]) -> list[str]:
    server, texts = traffic.server, []
    connection = Connection(server.port)
    for line in lines:
        body = encode({"q": line, "source": server.source, "target": server.target, **traffic.access})
        status, _, answer = await connection.request("POST", "/translate", body)
        texts.append(json.loads(answer).get("translatedText", f"status {status}"))
    connection.close()
    return texts


async def soak(
    server: SoakServer, lines: list[str], folder: Path, arguments: argparse.Namespace
) -> SoakResult:
    start = time.monotonic()
    traffic = Traffic(server, lines, start + 60 * arguments.minutes, arguments.seed)
    probes = lines[:PROBE_LINES]
    before = await translate_probes(traffic, probes)
    clients = [traffic.run_client() for _ in range(arguments.clients)]
    await asyncio.gather(*clients, FaultInjector(traffic, folder).run(), watch_memory(traffic))
    result = traffic.result
    if await translate_probes(traffic, probes) != before:
        result.problems.append("the translations of the probe lines have changed")
    corrected = await translate_probes(traffic, list(traffic.corrections))
    result.corrections = sum(map(str.__eq__, corrected, traffic.corrections.values()))
    if result.corrections < len(traffic.corrections):
        result.problems.append(f"{len(traffic.corrections) - result.corrections} corrections are lost")
    result.seconds = round(time.monotonic() - start, 1)
    check_result(result)
    return result


def check_result(result: SoakResult) -> None:
    """Add what must not have happened to the problems."""
    result.problems += [f"{count} x {name}" for name, count in result.unexpected.items()]
    if result.responses[CUT] > result.cut_allowed:
        result.problems.append(
            f"{result.responses[CUT]} requests were cut, but only {result.cut_allowed} by kills"
        )
    if result.injected["corrections"] and not result.corrections:
        result.problems.append("no correction was stored")
    if not result.responses["200"]:
        result.problems.append("no request was answered")
    quarter = len(result.memory_mb) // 4
    if quarter:
        early = statistics.median(result.memory_mb[quarter : 2 * quarter])
        late = statistics.median(result.memory_mb[-quarter:])
        if late > early * GROWTH and late > early + GROWTH_MB:
            result.problems.append(f"memory grew from {early} to {late} MB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path, help="lines in the source language")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--processes", type=int, default=2, help="front-ends of the server")
    parser.add_argument("--option", action="append", default=[], help="another option of manyheads serve")
    parser.add_argument("--api-key", help="that the options of the server require; by default a new one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    lines = [line for line in arguments.text.read_text(encoding="utf-8").splitlines() if line.strip()][:200]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "disk").mkdir()
        shutil.copytree(arguments.model, folder / "model")  # the corrections are written there
        options = [f"--processes={arguments.processes}", "--corrections", *arguments.option]
        if arguments.api_key is None:
            arguments.api_key = secrets.token_hex(16)
            options.append(f"--api-key={arguments.api_key}")
        server = SoakServer(folder / "model", options, arguments.api_key)
        try:
            result = asyncio.run(soak(server, lines, folder, arguments))
        finally:
            server.stop()
    report = {
        **vars(result),
        "memory_mb": {
            "first": result.memory_mb[0],
            "most": max(result.memory_mb),
            "last": result.memory_mb[-1],
        },
        "machine": platform.processor() or platform.machine(),
        "date": date.today().isoformat(),
    }
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps({**report, "memory_mb": result.memory_mb}, indent=1))
    sys.exit(1 if result.problems else 0)


if __name__ == "__main__":
    main()
