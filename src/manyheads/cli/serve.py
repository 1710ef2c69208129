"""The verb for serving."""

import os
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import app
from manyheads.cli.translation import Device, Engine, drop_unset
from manyheads.errors import RequestError


@app.command()
def serve(
    models: Annotated[
        list[Path], typer.Argument(help="Model folders, such as run/model.", metavar="MODEL...")
    ],
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes one that is free.", min=0, max=65535)] = 5000,
    engine: Engine = "torch",
    device: Device = None,
    api_key: Annotated[
        str | None,
        typer.Option(help="Asked of every client; better given as a variable.", envvar="MANYHEADS_API_KEY"),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name that the server is called by; may repeat.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Whose pages may ask, such as https://example.org; may repeat."),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(help="A run whose training curves the page shows; may repeat.", metavar="RUN"),
    ] = None,
    characters: Annotated[
        int | None, typer.Option(help="Of a request's texts, at most.", show_default="10000")
    ] = None,
    texts: Annotated[int | None, typer.Option(help="Of a request, at most.", show_default="100")] = None,
    alternatives: Annotated[int | None, typer.Option(help="Of a text, at most.", show_default="8")] = None,
    body: Annotated[
        int | None, typer.Option(help="Bytes of a request, at most.", show_default="1048576")
    ] = None,
    queue: Annotated[int | None, typer.Option(help="Requests that may wait.", show_default="256")] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(help="Source tokens translated together; 1: each request alone.", show_default="1024"),
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds until a request is given up.", show_default="30")
    ] = None,
    patience: Annotated[
        float | None, typer.Option(help="Seconds for a client to send or take.", show_default="10")
    ] = None,
    log_text: Annotated[bool, typer.Option("--log-text", help="Write texts into the log.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No line for each request.")] = False,
) -> None:
    """Serve models over HTTP: LibreTranslate's API and ours, and a page to try them.

    Example: manyheads serve run/model --port 5000
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise RequestError("serving needs FastAPI and uvicorn: pip install 'manyheads[serve]'") from None
    from manyheads.serve.limits import ServerLimits

    limits = ServerLimits(
        **drop_unset(
            characters=characters, texts=texts, alternatives=alternatives, body=body, queue=queue,
            batch_tokens=batch_tokens, deadline=deadline, patience=patience,
        )
    )  # fmt: skip
    from manyheads.serve.server import serve as begin

    if api_key is None:  # a variable that is empty is not taken for one that is not there
        api_key = os.environ.get("MANYHEADS_API_KEY")

    begin(
        models, host, port, engine=engine, device=device, limits=limits, api_key=api_key,
        allow_hosts=allow_host or [], allow_origins=allow_origin or [], log_text=log_text,
        log_requests=not quiet, runs=run or [],
    )  # fmt: skip
