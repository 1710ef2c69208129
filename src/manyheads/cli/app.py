"""The command line itself: how verbs are called, and how they end."""

import os
import sys
from typing import Annotated

import typer

from manyheads import __version__
from manyheads.atomic_io import NO_ROOM
from manyheads.errors import ManyheadsError

app = typer.Typer(
    name="manyheads",
    help="Attention Is All You Need, as software: exact, readable, every head open to the eye.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Our own errors are one line and an exit code; anything else is a bug and shows where."""
    try:
        app()
    except ManyheadsError as fault:
        leave(str(fault), fault.exit_code)
    except MemoryError:
        leave("out of memory", 4)
    except BrokenPipeError:  # whoever read our output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except RuntimeError as fault:
        if not any(words in str(fault) for words in ("out of memory", "can't allocate memory")):
            raise
        leave(f"{str(fault).splitlines()[0]} In training lower train.micro_tokens, in translating --beam", 4)
    except OSError as fault:
        at = f"{fault.filename}: " if fault.filename else ""
        leave(f"{at}{fault.strerror or fault}", 4 if fault.errno in NO_ROOM else 3)


def leave(message: str, code: int) -> None:
    first = True
    if "MANYHEADS_RANKS" in os.environ:  # one of several ranks: torchrun would hide the code
        from manyheads.train.launcher import leave_code

        first = leave_code(code)
    if first:
        print(f"manyheads: {message}", file=sys.stderr)
    sys.exit(code)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"manyheads {__version__}")
        raise typer.Exit


@app.callback()
def every_verb(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print it and leave.")
    ] = False,
) -> None:
    pass
