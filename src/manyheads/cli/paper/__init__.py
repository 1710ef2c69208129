"""The verb paper: one command a table, one for the figures, one for the notes."""

from manyheads.cli.paper import notes
from manyheads.cli.paper.app import paper

__all__ = ["notes", "paper"]
