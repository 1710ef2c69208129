"""Opening the models, listening, and stopping when everything that was accepted is done."""

import gc
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn

from manyheads.errors import ConfigError, RequestError
from manyheads.serve.app import create_app
from manyheads.serve.http_protocol import create_protocol
from manyheads.serve.limits import ServerLimits
from manyheads.serve.middleware import AllowedHosts, RequestMiddleware
from manyheads.serve.worker import name_models
from manyheads.translator import load

LOG = logging.getLogger("manyheads.serve")
ACCEPT_BATCH = 16  # connections that are taken before anything else is done
BACKLOG = 2048  # connections that wait to be taken
SWITCH_INTERVAL = 0.0005  # seconds after which the working thread lets the one that answers have a turn


def serve(
    folders: Sequence[Path],
    host: str = "127.0.0.1",
    port: int = 5000,
    *,
    engine: str = "torch",
    device: str | None = None,
    limits: ServerLimits | None = None,
    api_key: str | None = None,
    allow_hosts: Sequence[str] = (),
    allow_origins: Sequence[str] = (),
    log_text: bool = False,
    log_requests: bool = True,
    runs: Sequence[Path] = (),
) -> None:
    """Serves until SIGTERM or Ctrl-C; what was accepted by then is finished."""
    limits = limits or ServerLimits()
    doors = AllowedHosts.for_host(host, allow_hosts, allow_origins)
    if api_key is not None and not api_key.strip():
        raise ConfigError("the API key is empty: give one (--api-key or MANYHEADS_API_KEY), or none at all")
    listening = bind_socket(host, port)
    models = name_models([load(folder, engine=engine, device=device) for folder in folders])
    for one in models:
        one.translator.translate("A first sentence is slow.")  # and shows that the model works
    app = create_app(
        models,
        limits,
        doors,
        api_key=api_key,
        log_text=log_text,
        log_requests=log_requests,
        runs=runs,
    )
    configure_logging()
    configure_process()
    pairs = ", ".join(f"{one.name} ({one.translator.engine.name})" for one in models)
    try:
        create_server(app, pairs).run(sockets=[listening])
    finally:
        gc.unfreeze()


def create_server(app: RequestMiddleware, what: str = "") -> "BacklogServer":
    """uvicorn, with our limits; and what it tells when it is there."""
    limits = app.limits
    config = uvicorn.Config(
        app, http=create_protocol(limits, app.queue, app.record_request), ws="none", lifespan="on", log_config=None,
        access_log=False, server_header=False, backlog=ACCEPT_BATCH, h11_max_incomplete_event_size=limits.max_header_bytes,
        timeout_graceful_shutdown=int(limits.request_timeout + 2 * limits.client_timeout) + 1,
    )  # fmt: skip
    return BacklogServer(config, what)


class BacklogServer(uvicorn.Server):
    """Takes a few connections at a time, while a thousand may knock."""

    def __init__(self, config: uvicorn.Config, what: str) -> None:
        super().__init__(config)
        self.description = what

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(BACKLOG)
            LOG.info("%s on %s", self.description, format_url(one))


def bind_socket(host: str, port: int) -> socket.socket:
    """An address of our own, on which nobody is heard yet."""
    found = None
    try:
        passive = socket.AI_PASSIVE
        places = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=passive)
        family, kind, proto, _, address = places[0]
        found = socket.socket(family, kind, proto)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as fault:
        if found:
            found.close()
        raise RequestError(
            f"cannot listen on {host}:{port} ({fault.strerror or fault}): choose another --host or --port"
        ) from None
    return found


def format_url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def configure_logging() -> None:
    """On stderr, a line each."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    LOG.handlers = [lines]
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def configure_process() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn stops, raises it again, and all is well
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.collect()
    gc.freeze()  # what is here now stays: looking through it took 300 ms, in which nobody was answered
    with suppress(ImportError, ValueError, OSError):  # a thousand clients are a thousand files
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard > 0 else soft, hard))
