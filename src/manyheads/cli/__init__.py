"""The command line: thin commands. What a command needs is imported when it runs."""

from manyheads.cli import (  # noqa: F401  each module adds its commands
    adaptation,
    backtranslation,
    data,
    demo,
    evaluation,
    export,
    inspection,
    look,
    paper,
    serve,
    training,
    translation,
)
from manyheads.cli.app import app, main

__all__ = ["app", "main"]
