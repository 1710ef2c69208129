"""The application: groups of commands, exit codes, error messages."""

import gc
import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import typer
import typer.core

from manyheads import __version__
from manyheads.atomic_io import DISK_FULL_ERRNOS
from manyheads.cli.messages import localize_error
from manyheads.errors import ManyheadsError, is_out_of_memory
from manyheads.train.early_exit import restore_interrupts

WAIT_POLICY = "passive"  # of OpenMP's threads, unless the environment sets one
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # not to be printed
GC_THRESHOLD = 50_000  # new objects between collections; 700, the default, costs a tenth of importing torch

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # of click, or of the copy that typer has
REQUIREMENTS = {  # what a value must be, by what the parser of arguments says
    r"valid integer": "an integer",
    r"valid number|valid float": "a number",
    r"greater than or equal to (\S+)": r"at least \1",
    r"less than or equal to (\S+)": r"at most \1",
}

# The commands in the order of a workflow, as --help lists them.
GROUPS = {
    "Start here": ("demo", "doctor"),
    "Data": ("get", "judge", "prepare"),
    "Training": ("inspect", "train", "distill", "average", "calibrate", "shortlist", "card"),
    "Your own data": ("backtranslate", "adapt", "correct", "learn"),
    "Translation": ("models", "translate", "score", "evaluate", "export", "push", "pull"),
    "Serving and looking inside": ("serve", "look"),
    "The paper": ("paper",),
}


class CommandGroup(typer.core.TyperGroup):
    """Lists its commands with whole descriptions."""

    def grouped_commands(self) -> Mapping[str, Sequence[str]]:
        return {"Commands": list(self.commands)}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, names in self.grouped_commands().items():
            with formatter.section(heading):
                formatter.write_dl([(name, describe_command(self.commands[name].help)) for name in names])


class WorkflowGroup(CommandGroup):
    def grouped_commands(self) -> Mapping[str, Sequence[str]]:
        return GROUPS

    def invoke(self, ctx: Any) -> Any:
        """Run a command. If the reader of its output is gone (`| head`), end with 0, where typer has 1."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        return result


def describe_command(help_text: str | None) -> str:
    """Return the first paragraph of a command's help as one line."""
    return " ".join((help_text or "").strip().split("\n\n")[0].split())


app = typer.Typer(
    name="manyheads",
    cls=WorkflowGroup,
    help="Train, run and inspect translation models: the Transformer of Attention Is All You Need.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line. Our errors become one line and an exit code; others show a traceback."""
    configure_process()
    try:
        restore_interrupts()
        sys.exit(app(prog_name="manyheads", standalone_mode=False))
    except UsageError as error:
        exit_with_usage_error(error)
    except ManyheadsError as error:
        exit_with_error(str(error), error.exit_code)
    except MemoryError:
        exit_with_error("out of memory", 4)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        first_line = str(error).splitlines()[0]
        exit_with_error(f"{first_line} Lower train.micro_tokens in training, --beam in translation", 4)
    except UnicodeEncodeError as error:
        if error.reason != "surrogates not allowed":
            raise
        # Arguments are bytes for the system; Python reads what is not UTF-8 as surrogates.
        exit_with_error("an argument is not UTF-8, but stands for a text or a name that must be", 2)
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        exit_with_error(f"{path}{error.strerror or error}", 4 if error.errno in DISK_FULL_ERRNOS else 3)


def exit_with_usage_error(error: Any) -> None:
    """Exit with a call that the parser of arguments refuses. A group without a command shows its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(error.exit_code)
    exit_with_error(describe_usage_error(error), error.exit_code)


def describe_usage_error(error: Any) -> str:
    """Return one line that names the option. What versions of typer and click do not say is left out."""
    command = error.ctx.command_path if error.ctx else "manyheads"
    parameter = getattr(error, "param", None)
    name = name_parameter(parameter) if parameter else ""
    message = " ".join(error.format_message().split()).removesuffix(".")
    if type(error).__name__ == "MissingParameter" and name:
        return f"{command} needs {name}; {command} --help shows how to call it"
    if type(error).__name__ == "NoSuchOption":
        for similar in get_close_matches(error.option_name, error.possibilities or [], n=1, cutoff=0):
            return f"{command} has no option {error.option_name}; did you mean {similar}?"
        return f"{command} has no option {error.option_name}"
    if parameter:
        for pattern, requirement in REQUIREMENTS.items():
            if match := re.search(pattern, message):
                given = find_wrong_value(error)
                required = match.expand(requirement)
                return (
                    f"{name} must be {required}"
                    if given is None
                    else f"{name} is {given}, but must be {required}"
                )
        return f"{name}: {message.partition(': ')[2] or message}"
    return message[:1].lower() + message[1:]


def name_parameter(parameter: Any) -> str:
    """Return an option as --out / -o, an argument as MODEL."""
    if parameter.param_type_name == "option":
        return " / ".join(parameter.opts)
    return str(parameter.metavar or parameter.name.upper())


def find_wrong_value(error: Any) -> str | None:
    """Return the value that was refused, if the error of pydantic below says it."""
    below = error.__cause__ or error.__context__
    values = [detail.get("input") for detail in below.errors()] if hasattr(below, "errors") else []
    return repr(values[0]) if values else None


def configure_process() -> None:
    """Set what a command wants and a library must not: how threads wait, and how often garbage is collected.

    Threads of OpenMP that wait by spinning take the cores from those that work as soon as another process
    runs. Torch and CTranslate2 read the policy when they are imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", WAIT_POLICY)
    gc.set_threshold(GC_THRESHOLD)
    open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files are bytes


def open_closed_streams() -> None:
    """Replace closed standard streams by the null device, so that no other file gets their numbers."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def exit_with_error(message: str, code: int) -> None:
    is_reporting_rank = True
    if "MANYHEADS_RANKS" in os.environ:  # a rank of several
        from manyheads.train.launcher import record_exit_code

        is_reporting_rank = record_exit_code(code)
    if is_reporting_rank:
        print(f"manyheads: {escape_control_characters(localize_error(message))}", file=sys.stderr)
    sys.exit(code)


def escape_control_characters(message: str) -> str:
    """Return a message as one line that a terminal only prints: names in it may come from elsewhere."""
    line = " ".join(part for part in message.splitlines() if part)
    return CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), line)


def print_version(requested: bool) -> None:
    if requested:
        print(f"manyheads {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass
