"""The commands `push` and `pull`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import app
from manyheads.cli.options import AsJson, Model

RepositoryName = Annotated[
    str, typer.Argument(help="OWNER/NAME, or OWNER/NAME@REVISION: a branch, tag or commit.")
]
Endpoint = Annotated[
    str | None,
    typer.Option(help="Another server with the API of the Hub; by default HF_ENDPOINT.", metavar="URL"),
]


@app.command()
def push(
    model: Model,
    repository: RepositoryName,
    public: Annotated[bool, typer.Option(help="Let everybody see a repository that is created.")] = False,
    license: Annotated[
        str | None, typer.Option(help="License of the weights, as the Hub names it: apache-2.0.")
    ] = None,
    message: Annotated[str | None, typer.Option(help="Message of the commit.")] = None,
    endpoint: Endpoint = None,
    as_json: AsJson = False,
) -> None:
    """Upload a model folder to the Hugging Face Hub: weights, subwords, adapters and its card.

    A repository that does not exist is created, private unless --public is given. The token is that of
    `hf auth login` or HF_TOKEN. Needs the extra `hub`.

    \b
    Example:
      manyheads push run/model my-name/en-ko --license apache-2.0
    """
    from manyheads.hub.push import push_model
    from manyheads.hub.repository import parse_repository

    pushed = push_model(
        model,
        parse_repository(repository),
        endpoint=endpoint,
        is_public=public,
        license=license,
        message=message,
    )
    if as_json:
        print(json.dumps(vars(pushed), ensure_ascii=False))
    else:
        size = f"{pushed.num_files} files, {pushed.num_bytes / 1e6:.1f} MB"
        print(f"{pushed.url}: {size}, commit {pushed.commit[:12]}")


@app.command()
def pull(
    repository: RepositoryName,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder to write; by default NAME in your folder of models.", metavar="FOLDER"
        ),
    ] = None,
    force: Annotated[bool, typer.Option(help="Replace a model folder that exists.")] = False,
    endpoint: Endpoint = None,
    as_json: AsJson = False,
) -> None:
    """Download a model folder from the Hugging Face Hub, verify it, and give it a name.

    Only the files that its manifest lists are fetched, its adapters and its card. The model is loaded once
    before the folder appears. Needs the extra `hub`.

    \b
    Example:
      manyheads pull my-name/en-ko    then: manyheads translate en-ko
    """
    from manyheads.hub.pull import pull_model
    from manyheads.hub.repository import parse_repository
    from manyheads.named_models.resolution import find_own_folder
    from manyheads.progress import create_progress

    parsed = parse_repository(repository)
    folder = out or find_own_folder() / parsed.name
    with create_progress(sys.stderr) as progress:
        pulled = pull_model(parsed, folder, endpoint=endpoint, replace=force, progress=progress)
    if as_json:
        print(json.dumps(vars(pulled), ensure_ascii=False))
    else:
        call = folder if out else parsed.name
        size = f"{pulled.num_bytes / 1e6:.1f} MB"
        print(f"{folder}: {size}, commit {pulled.commit[:12]}; manyheads translate {call}")
