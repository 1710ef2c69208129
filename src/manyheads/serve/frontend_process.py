"""A front-end process: HTTP, language detection, and texts. The engine process decodes for it.

`python -m manyheads.serve.frontend_process` is started by frontends.py, which writes its settings to its
standard input. It shares the listening socket with other front-ends, and ends when the engine process does.
"""

import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from manyheads.errors import ManyheadsError
from manyheads.loading import load_for_engine
from manyheads.serve.allowed_hosts import AllowedHosts
from manyheads.serve.app import create_app
from manyheads.serve.limits import ServerLimits
from manyheads.serve.remote_engine import EngineConnection, RemoteEngine
from manyheads.serve.served_model import ServedModel, set_decoding
from manyheads.serve.server import configure_logging, configure_process, create_server

EXIT_SECONDS = 10.0  # to answer the waiting requests after the engine was lost


def main() -> None:
    """Run until SIGTERM. Errors of ours are one line, as on the command line."""
    try:
        run()
    except ManyheadsError as error:
        print(f"manyheads: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def run() -> None:
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    configure_logging()
    connection = EngineConnection(socket.socket(fileno=settings["engine_fd"]))
    models = []
    for folder, name, description in settings["models"]:
        engine = RemoteEngine(connection, name, description)
        translator = load_for_engine(Path(folder), engine)
        set_decoding(translator, settings["decoding"])
        models.append(ServedModel(name, translator))
    app = create_app(
        models,
        ServerLimits(**settings["limits"]),
        AllowedHosts.for_host(*settings["allowed_hosts"]),
        runs=list(map(Path, settings["runs"])),
        connection=connection,
        **settings["options"],
    )
    configure_process()
    server = create_server(app, accept_batch=1, on_ready=lambda: connection.send({"ready": True}))

    is_lost = threading.Event()

    def stop() -> None:
        is_lost.set()
        server.should_exit = True
        timer = threading.Timer(EXIT_SECONDS, os._exit, (1,))
        timer.daemon = True
        timer.start()

    connection.on_lost.append(stop)
    server.run(sockets=[socket.socket(fileno=settings["listen_fd"])])
    if is_lost.is_set():
        sys.exit(1)


if __name__ == "__main__":
    main()
