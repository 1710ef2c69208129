"""The command line: one thin command a verb. What a verb needs is imported when it runs."""

from manyheads.cli import data, look, paper, serve, training, translation  # noqa: F401  each adds its verbs
from manyheads.cli.app import app, main

__all__ = ["app", "main"]
