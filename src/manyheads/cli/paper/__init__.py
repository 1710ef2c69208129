"""The command `paper`: a subcommand for each table, one for the figures, one for the notes."""

from manyheads.cli.paper import figures, notes, table1, table2, table3, table4  # noqa: F401  each adds its command
from manyheads.cli.paper.app import paper

__all__ = ["paper"]
