"""Load the models, listen, and finish accepted requests before stopping."""

import gc
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn

from manyheads.errors import ConfigError, RequestError
from manyheads.loading import load
from manyheads.named_models.resolution import resolve_model
from manyheads.serve.allowed_hosts import AllowedHosts
from manyheads.serve.api_keys import MISSING_KEY
from manyheads.serve.app import ServerApp, create_app
from manyheads.serve.frontends import FrontEndSettings, choose_num_processes, run_front_ends
from manyheads.serve.glossaries import GlossaryStore
from manyheads.serve.http_protocol import create_protocol
from manyheads.serve.limits import ServerLimits
from manyheads.serve.served_model import name_models, set_decoding
from manyheads.serve.training import TrainingRuns

LOG = logging.getLogger("manyheads.serve")
ACCEPT_BATCH = 16  # connections that the event loop accepts in one go
BACKLOG = 2048  # connections that wait to be accepted
SWITCH_INTERVAL = 0.0005  # seconds after which the worker thread yields to the event loop


def serve(
    folders: Sequence[Path],
    host: str = "127.0.0.1",
    port: int = 5000,
    *,
    engine: str = "torch",
    device: str | None = None,
    limits: ServerLimits | None = None,
    api_key: str | None = None,
    user_keys: Mapping[str, str] | None = None,
    corrections: bool = False,
    allow_hosts: Sequence[str] = (),
    allow_origins: Sequence[str] = (),
    log_text: bool = False,
    log_requests: bool = True,
    runs: Sequence[Path] = (),
    glossaries: Path | None = None,
    processes: int | None = None,
    decoding: dict[str, Any] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; requests that were accepted are finished.

    With several processes this one runs the engine, and as many front-ends do all else (frontends.py). By
    default there is one on a CPU or if a model has adapters, else one for every two cores, at most 8.
    """
    allowed_hosts = AllowedHosts.for_host(host, allow_hosts, allow_origins)
    check_keys(api_key, user_keys, corrections)
    server_socket = bind_socket(host, port)
    configure_logging()
    LOG.info("loading %s", ", ".join(map(str, folders)))
    models = name_models([load(folder, engine=engine, device=device) for folder in folders])
    for model in models:
        set_decoding(model.translator, decoding or {})
        model.warm_up()
    limits = limits or ServerLimits()
    options: dict[str, Any] = {
        "api_key": api_key, "user_keys": dict(user_keys or {}), "corrections": corrections,
        "log_text": log_text, "log_requests": log_requests,
        "glossaries": None if glossaries is None else str(glossaries.resolve()),
    }  # fmt: skip
    GlossaryStore(glossaries, limits)  # which refuses a folder that is none
    description = ", ".join(f"{model.name} ({model.translator.engine.name})" for model in models)
    num_processes = processes or choose_num_processes(models)
    if num_processes > 1:
        paths = list(map(resolve_model, folders))
        TrainingRuns(runs)  # which refuses a folder that is none
        configure_process()
        description += f", {num_processes} processes on {format_url(server_socket)}"
        with server_socket, tempfile.TemporaryDirectory(prefix="manyheads-") as document_folder:
            options["document_folder"] = document_folder
            hosts = host, allow_hosts, allow_origins
            settings = FrontEndSettings(paths, limits, hosts, runs, options, decoding or {})
            run_front_ends(models, settings, num_processes, server_socket, description)
        return
    app = create_app(models, limits, allowed_hosts, runs=runs, **options)
    configure_process()
    try:
        create_server(app, description).run(sockets=[server_socket])
    finally:
        gc.unfreeze()


def check_keys(api_key: str | None, user_keys: Mapping[str, str] | None, corrections: bool) -> None:
    if api_key is not None and not api_key.strip():
        raise ConfigError("the API key is empty: set one with --api-key or MANYHEADS_API_KEY, or unset both")
    if corrections and api_key is None and not user_keys:
        raise ConfigError(MISSING_KEY)


def create_server(
    app: ServerApp,
    description: str = "",
    accept_batch: int = ACCEPT_BATCH,
    on_ready: Callable[[], None] | None = None,
) -> "BacklogServer":
    """Create the uvicorn server. It logs the description with its address when it listens.

    With `on_ready` it calls that instead. Processes that share a socket accept few connections at a time, so
    that each gets some.
    """
    limits = app.limits
    config = uvicorn.Config(
        app,
        http=create_protocol(limits, app.queue, app.record_request),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers="FORWARDED_ALLOW_IPS" in os.environ,  # else any client could choose its address
        backlog=accept_batch,
        h11_max_incomplete_event_size=limits.max_header_bytes,
        timeout_graceful_shutdown=int(limits.stop_seconds) + 1,
    )
    return BacklogServer(config, description, on_ready)


class BacklogServer(uvicorn.Server):
    """Accepts few connections at a time, while many can wait. asyncio has one number for both."""

    def __init__(self, config: uvicorn.Config, description: str, on_ready: Callable[[], None] | None) -> None:
        super().__init__(config)
        self.description, self.on_ready = description, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server_socket in sockets or []:
            server_socket.listen(BACKLOG)
            if self.on_ready is None:
                LOG.info("%s on %s", self.description, format_url(server_socket))
            else:
                self.on_ready()


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind an address without listening yet, so that a port in use is an error before models are loaded."""
    server_socket = None
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, socket_type, protocol, _, address = addresses[0]
        server_socket = socket.socket(family, socket_type, protocol)
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server_socket.bind(address)
    except OSError as error:
        if server_socket:
            server_socket.close()
        raise RequestError(
            f"cannot listen on {host}:{port} ({error.strerror or error}): choose another --host or --port"
        ) from None
    return server_socket


def format_url(server_socket: socket.socket) -> str:
    host, port = server_socket.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def configure_logging() -> None:
    """Log to stderr, one line per event."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    LOG.handlers = [handler]
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def configure_process() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn raises the signal again after it has stopped
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.collect()
    gc.freeze()  # a full collection of the loaded modules blocks the event loop for 300 ms
    with suppress(ImportError, ValueError, OSError):  # every connection is an open file
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard > 0 else soft, hard))
