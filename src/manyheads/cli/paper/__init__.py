"""The verb paper: one command a table, one for the figures, one for the notes."""

from manyheads.cli.paper.app import paper
from manyheads.cli.paper.table4 import table4

__all__ = ["paper", "table4"]
