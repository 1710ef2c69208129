"""The command line: thin commands. What a command needs is imported when it runs."""

# isort: off
from manyheads.train import early_exit  # noqa: F401  before anything that takes time
# isort: on

from manyheads.cli import (  # noqa: F401  each module adds its commands
    adaptation,
    backtranslation,
    corrections,
    data,
    demo,
    distill,
    evaluation,
    export,
    hub,
    inspection,
    judge,
    look,
    models,
    paper,
    serve,
    training,
    translation,
)
from manyheads.cli.app import app, main

__all__ = ["app", "main"]
