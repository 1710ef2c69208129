"""The command line itself: how verbs are called, and how they end."""

import os
import sys
from typing import Annotated

import typer

from manyheads import __version__
from manyheads.atomic_io import DISK_FULL_ERRNOS
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
        exit_with_error(str(fault), fault.exit_code)
    except MemoryError:
        exit_with_error("out of memory", 4)
    except BrokenPipeError:  # whoever read our output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except RuntimeError as fault:
        if not any(words in str(fault) for words in ("out of memory", "can't allocate memory")):
            raise
        exit_with_error(
            f"{str(fault).splitlines()[0]} In training lower train.micro_tokens, in translating --beam", 4
        )
    except OSError as fault:
        at = f"{fault.filename}: " if fault.filename else ""
        exit_with_error(f"{at}{fault.strerror or fault}", 4 if fault.errno in DISK_FULL_ERRNOS else 3)


def exit_with_error(message: str, code: int) -> None:
    first = True
    if "MANYHEADS_RANKS" in os.environ:  # one of several ranks: torchrun would hide the code
        from manyheads.train.launcher import record_exit_code

        first = record_exit_code(code)
    if first:
        print(f"manyheads: {message}", file=sys.stderr)
    sys.exit(code)


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"manyheads {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print it and leave.")
    ] = False,
) -> None:
    pass
