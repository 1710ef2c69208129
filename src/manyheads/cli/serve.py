"""The verb `serve`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import app
from manyheads.cli.options import Device, Engine
from manyheads.errors import RequestError
from manyheads.serve.limits import ServerLimits


@app.command()
def serve(
    models: Annotated[
        list[Path], typer.Argument(help="Model folders, such as run/model.", metavar="MODEL...")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 listens on all addresses.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 chooses a free one.", min=0, max=65535)
    ] = 5000,
    engine: Engine = "torch",
    device: Device = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            help="Key that clients must send; preferably set in the environment.", envvar="MANYHEADS_API_KEY"
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Host name of the server; can be repeated.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin whose web pages may send requests, such as https://example.org; can be repeated."
        ),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(help="Training run whose curves the page shows; can be repeated.", metavar="RUN"),
    ] = None,
    max_characters: Annotated[
        int, typer.Option(help="Maximum characters of all texts of a request.")
    ] = ServerLimits.max_characters,
    max_texts: Annotated[int, typer.Option(help="Maximum texts of a request.")] = ServerLimits.max_texts,
    max_alternatives: Annotated[
        int, typer.Option(help="Maximum alternatives of a text.")
    ] = ServerLimits.max_alternatives,
    max_body_bytes: Annotated[
        int, typer.Option(help="Maximum bytes of a request body.")
    ] = ServerLimits.max_body_bytes,
    queue_size: Annotated[int, typer.Option(help="Maximum requests in the queue.")] = ServerLimits.queue_size,
    batch_tokens: Annotated[
        int, typer.Option(help="Source tokens translated together; 1 translates each request alone.")
    ] = ServerLimits.batch_tokens,
    request_timeout: Annotated[
        float, typer.Option(help="Seconds until a request is aborted.")
    ] = ServerLimits.request_timeout,
    client_timeout: Annotated[
        float, typer.Option(help="Seconds for a client to send its request or to read its response.")
    ] = ServerLimits.client_timeout,
    log_text: Annotated[bool, typer.Option("--log-text", help="Log the texts.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log requests.")] = False,
) -> None:
    """Serve models over HTTP: the API of LibreTranslate and more, and a web page to try them.

    \b
    Example:
      manyheads serve run/model --port 5000
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise RequestError("serving needs FastAPI and uvicorn: pip install 'manyheads[serve]'") from None
    limits = ServerLimits(
        max_characters=max_characters,
        max_texts=max_texts,
        max_alternatives=max_alternatives,
        max_body_bytes=max_body_bytes,
        queue_size=queue_size,
        batch_tokens=batch_tokens,
        request_timeout=request_timeout,
        client_timeout=client_timeout,
    )
    from manyheads.serve.server import serve as run_server

    if api_key is None:  # Typer reads an empty variable as none; it is an error here
        api_key = os.environ.get("MANYHEADS_API_KEY")
    run_server(
        models, host, port, engine=engine, device=device, limits=limits, api_key=api_key,
        allow_hosts=allow_host or [], allow_origins=allow_origin or [], log_text=log_text,
        log_requests=not quiet, runs=run or [],
    )  # fmt: skip
