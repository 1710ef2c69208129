"""The command `serve`."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import app
from manyheads.cli.options import (
    Alpha,
    Beam,
    Device,
    MaxExtraLength,
    MinLength,
    NoRepeatNgram,
    drop_unset,
)
from manyheads.errors import RequestError, install_command
from manyheads.named_models.resolution import require_models, resolve_model
from manyheads.serve.limits import ServerLimits

Models = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Model folders, such as run/model, or names of models; by default all that `manyheads models` "
        "lists.",
        metavar="[MODEL...]",
        parser=resolve_model,
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 listens on all addresses.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.", min=0, max=65535)]
ApiKey = Annotated[
    str | None,
    typer.Option(
        help="Key that clients must send; preferably set in the environment.", envvar="MANYHEADS_API_KEY"
    ),
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        help="File of users: a name and an API key on each line. Each user has corrections of its own.",
        metavar="FILE",
    ),
]
Corrections = Annotated[
    bool,
    typer.Option(
        "--corrections", help="Let users correct translations and use their corrections; needs an API key."
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(help="Host name that requests may use, such as translate.example.org; can be repeated."),
]
AllowedOrigins = Annotated[
    list[str] | None,
    typer.Option(
        help="Origin whose web pages may send requests, such as https://example.org; can be repeated."
    ),
]
Runs = Annotated[
    list[Path] | None,
    typer.Option("--run", help="Training run whose curves the page shows; can be repeated.", metavar="RUN"),
]
Glossaries = Annotated[
    Path | None,
    typer.Option(
        help="Folder of glossaries that requests may name: NAME.tsv, NAME.csv or NAME.tbx.", metavar="FOLDER"
    ),
]
MaxCharacters = Annotated[int, typer.Option(help="Maximum characters of all texts of a request.")]
MaxTexts = Annotated[int, typer.Option(help="Maximum texts per request.")]
MaxAlternatives = Annotated[int, typer.Option(help="Maximum alternatives of a text.")]
MaxSentences = Annotated[int, typer.Option(help="Maximum sentences of all texts of a request.")]
MaxBeamTokens = Annotated[
    int,
    typer.Option(
        help="Maximum tokens of a request, with prefix and terms, times the hypotheses of the search."
    ),
]
MaxGlossaryTerms = Annotated[int, typer.Option(help="Maximum terms of a glossary in a request.")]
MaxBodyBytes = Annotated[int, typer.Option(help="Maximum bytes of a request body.")]
QueueSize = Annotated[int, typer.Option(help="Maximum requests in the queue.")]
BatchTokens = Annotated[
    int, typer.Option(help="Source tokens translated together; 1 translates each sentence alone.")
]
RequestTimeout = Annotated[float, typer.Option(help="Seconds until a request is aborted.")]
ClientTimeout = Annotated[
    float, typer.Option(help="Seconds for a client to send its request or to read its response.")
]
MaxRequests = Annotated[
    int, typer.Option(help="Maximum requests per minute of one address; 0: any number.", min=0)
]
MaxFileBytes = Annotated[int, typer.Option(help="Maximum bytes of a request with a document.")]
MaxFileCharacters = Annotated[int, typer.Option(help="Maximum characters of the texts of a document.")]
Processes = Annotated[
    int | None,
    typer.Option(
        help="Processes that handle HTTP and texts, beside one for the engine; by default 1, which does all, "
        "on a CPU or if a model has adapters, else one for every two cores, at most 8.",
        min=1,
        max=256,
    ),
]
LogText = Annotated[bool, typer.Option("--log-text", help="Log the texts.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not log requests.")]


ServerEngine = Annotated[
    str, typer.Option("--engine", help="As of `translate`; torch shows attention too.", metavar="ENGINE")
]


@app.command()
def serve(
    models: Models = None,
    host: Host = "127.0.0.1",
    port: Port = 5000,
    engine: ServerEngine = "torch",
    device: Device = None,
    api_key: ApiKey = None,
    api_keys: ApiKeyFile = None,
    corrections: Corrections = False,
    allow_host: AllowedHosts = None,
    allow_origin: AllowedOrigins = None,
    run: Runs = None,
    glossaries: Glossaries = None,
    max_characters: MaxCharacters = ServerLimits.max_characters,
    max_texts: MaxTexts = ServerLimits.max_texts,
    max_alternatives: MaxAlternatives = ServerLimits.max_alternatives,
    max_sentences: MaxSentences = ServerLimits.max_sentences,
    max_beam_tokens: MaxBeamTokens = ServerLimits.max_beam_tokens,
    max_glossary_terms: MaxGlossaryTerms = ServerLimits.max_glossary_terms,
    max_body_bytes: MaxBodyBytes = ServerLimits.max_body_bytes,
    queue_size: QueueSize = ServerLimits.queue_size,
    batch_tokens: BatchTokens = ServerLimits.batch_tokens,
    request_timeout: RequestTimeout = ServerLimits.request_timeout,
    client_timeout: ClientTimeout = ServerLimits.client_timeout,
    max_requests_per_minute: MaxRequests = ServerLimits.max_requests_per_minute,
    max_file_bytes: MaxFileBytes = ServerLimits.max_file_bytes,
    max_file_characters: MaxFileCharacters = ServerLimits.max_file_characters,
    beam: Beam = None,
    alpha: Alpha = None,
    max_extra_length: MaxExtraLength = None,
    min_length: MinLength = None,
    no_repeat_ngram: NoRepeatNgram = None,
    processes: Processes = None,
    log_text: LogText = False,
    quiet: Quiet = False,
) -> None:
    """Serve models over HTTP: the API of LibreTranslate and more, and a web page to try them.

    \b
    Example:
      manyheads serve run/model --port 5000
      manyheads serve run/model --device cuda --processes 8 --beam 1
    """
    options = dict(locals())
    check_server_packages()
    limits = ServerLimits(**{name: options[name] for name in list_limits() if name in options})
    from manyheads.serve.api_keys import read_api_keys
    from manyheads.serve.server import serve as run_server

    run_server(
        models or [model.folder for model in require_models()], host, port, engine=engine, device=device,
        limits=limits, api_key=read_api_key(api_key),
        user_keys=read_api_keys(api_keys) if api_keys else None, corrections=corrections,
        allow_hosts=allow_host or [], allow_origins=allow_origin or [], log_text=log_text,
        log_requests=not quiet, runs=run or [], glossaries=glossaries, processes=processes,
        decoding=drop_unset(
            beam=beam, alpha=alpha, max_extra_length=max_extra_length, min_length=min_length,
            no_repeat_ngram=no_repeat_ngram,
        ),
    )  # fmt: skip


def read_api_key(option: str | None) -> str | None:
    """Typer reads an empty variable as none; it is an error here."""
    return os.environ.get("MANYHEADS_API_KEY") if option is None else option


def list_limits() -> list[str]:
    return [field.name for field in fields(ServerLimits)]


def check_server_packages() -> None:
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise RequestError(f"serving needs FastAPI and uvicorn: {install_command('serve')}") from None
