"""Start and watch front-end processes, from the process that runs the engine.

A front-end that ends is started again. When this process ends, however that happens, the front-ends read the
end of their sockets, answer what waits with 503, and end too.
"""

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from manyheads.errors import ManyheadsError
from manyheads.serve.engine_process import EngineServer, FrontEndLink, describe_engine
from manyheads.serve.limits import ServerLimits
from manyheads.serve.served_model import ServedModel
from manyheads.worker_processes import create_module_command

LOG = logging.getLogger("manyheads.serve")
COMMAND = create_module_command("manyheads.serve.frontend_process")
MAX_DEFAULT_PROCESSES = 8
MAX_FAILED_STARTS = 3  # of front-ends, after which the server gives up
RESTART_SECONDS = 0.5  # until a front-end is started again
START_SECONDS = 120.0  # for a front-end to be ready
STOP_SECONDS = 10.0  # beyond the time that requests have, after which a front-end is killed


class FrontEndError(ManyheadsError):
    """Front-end processes cannot run."""


@dataclass(frozen=True)
class FrontEndSettings:
    """What every front-end is told. All values can be written as JSON."""

    folders: Sequence[Path]
    limits: ServerLimits
    allowed_hosts: tuple[str, Sequence[str], Sequence[str]]  # the arguments of AllowedHosts.for_host
    runs: Sequence[Path]
    options: dict[str, Any]  # of Endpoints
    decoding: dict[str, Any]  # search options of all models


def choose_num_processes(models: Sequence[ServedModel]) -> int:
    """Return how many front-ends there are by default: one if a model has adapters, which several refuse.

    There is also one on a CPU, where others would take cores from the engine.
    """
    if any(model.runs_on_cpu or model.list_adapters() for model in models):
        return 1
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MAX_DEFAULT_PROCESSES, num_cores // 2))


def divide_limits(limits: ServerLimits, num_processes: int) -> ServerLimits:
    """Return the limits of one front-end, so that those of all together are the limits of the server."""

    def divide(number: int) -> int:
        return -(-number // num_processes)

    return replace(
        limits,
        queue_size=divide(limits.queue_size),
        max_connections=divide(limits.max_connections),
        max_requests_per_minute=divide(limits.max_requests_per_minute),  # 0 stays 0: any number
        max_buffered_bytes=max(
            limits.max_body_bytes, limits.max_file_bytes, divide(limits.max_buffered_bytes)
        ),
    )


def run_front_ends(
    models: Sequence[ServedModel],
    settings: FrontEndSettings,
    num_processes: int,
    server_socket: socket.socket,
    description: str,
) -> None:
    """Serve with several front-ends until SIGTERM or Ctrl-C."""
    engine = EngineServer(models, settings.limits.batch_tokens)
    try:
        asyncio.run(FrontEndSupervisor(engine, settings, num_processes, server_socket, description).run())
    finally:
        engine.close()


class FrontEndSupervisor:
    """The processes, each with a socket to this one that no other process can open."""

    def __init__(
        self,
        engine: EngineServer,
        settings: FrontEndSettings,
        num_processes: int,
        server_socket: socket.socket,
        description: str,
    ) -> None:
        self.engine, self.settings, self.num_processes = engine, settings, num_processes
        self.server_socket, self.description = server_socket, description
        self.processes: dict[int, asyncio.subprocess.Process] = {}
        self.num_failed_starts = 0
        self.models = [
            (str(folder.absolute()), model.name, describe_engine(model))
            for folder, model in zip(settings.folders, engine.models.values(), strict=True)
        ]

    async def run(self) -> None:
        self.stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        tasks = [asyncio.create_task(self._keep_running(index)) for index in range(self.num_processes)]
        stopped = asyncio.create_task(self.stopping.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()  # which raises why it ended
        finally:
            self.stopping.set()
            await self._stop()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_running(self, index: int) -> None:
        """Start a front-end, and start it again whenever it ends."""
        while not self.stopping.is_set():
            process, link = await self._start()
            self.processes[index] = process
            if self.stopping.is_set():  # meanwhile, and the others are told already
                process.terminate()
            code = await process.wait()
            if self.stopping.is_set():
                return
            LOG.error("a front-end process has ended with exit code %d: starting it again", code)
            self.num_failed_starts = 0 if link.ready.is_set() else self.num_failed_starts + 1
            if self.num_failed_starts >= MAX_FAILED_STARTS:
                raise FrontEndError(
                    f"front-end processes do not start, the last one ended with exit code {code}: see the "
                    f"lines above, or serve with --processes 1"
                )
            await asyncio.sleep(RESTART_SECONDS)

    async def _start(self) -> tuple[asyncio.subprocess.Process, FrontEndLink]:
        """Start a front-end. Log the address of the server when the last of the first ones is ready."""
        own_socket, other_socket = socket.socketpair()
        with other_socket:
            descriptors = (other_socket.fileno(), self.server_socket.fileno())
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                stdin=asyncio.subprocess.PIPE,
                pass_fds=descriptors,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C reaches only this process, which lets them finish
            )
        link = await self.engine.connect(own_socket)
        settings = {
            "engine_fd": descriptors[0],
            "listen_fd": descriptors[1],
            "models": self.models,
            "limits": asdict(divide_limits(self.settings.limits, self.num_processes)),
            "allowed_hosts": self.settings.allowed_hosts,
            "runs": [str(run.absolute()) for run in self.settings.runs],
            "options": self.settings.options,
            "decoding": self.settings.decoding,
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        with suppress(BrokenPipeError, ConnectionResetError):  # its end is noticed elsewhere
            await process.stdin.drain()
        process.stdin.close()
        asyncio.create_task(self._announce(link.ready))  # noqa: RUF006
        return process, link

    async def _announce(self, ready: asyncio.Event) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(ready.wait(), START_SECONDS)
        is_complete = len(self.engine.links) == self.num_processes
        if self.description and is_complete and all(link.ready.is_set() for link in self.engine.links):
            LOG.info("%s", self.description)
            self.description = ""  # once

    async def _stop(self) -> None:
        """Let front-ends finish the requests that they have, then end them."""
        self.server_socket.close()  # new connections are refused
        processes = [process for process in self.processes.values() if process.returncode is None]
        for process in processes:
            with suppress(ProcessLookupError):
                process.terminate()
        limits = self.settings.limits
        seconds = limits.stop_seconds + STOP_SECONDS
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(process.wait() for process in processes)), seconds)
        for process in processes:
            if process.returncode is None:
                process.kill()
