"""Every command with wrong input: one of our exit codes, and a message instead of a traceback.

Calls run in forked processes, so that the modules are imported once.
"""

import importlib
import os
import pkgutil
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import typer

import manyheads
from manyheads import cli
from support.untrained_model import save_untrained_model

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings(
        "ignore:This process:DeprecationWarning"
    ),  # it has threads; the child has none
]
EXIT_CODES = (0, 2, 3, 4, 75)
SECONDS = 20  # a call that takes longer has accepted its input
LONG_RUNNING = ("demo", "doctor", "paper", "serve")  # they start without arguments, and with any folder
FILES = [
    "missing", "folder", "empty", "bytes", "text", "loop", "model", "other.toml", "broken.docx", "broken.srt",
    "broken.po", "broken.csv", "broken.xlsx", "broken.tbx", "text/below", "x" * 300, "", ".", "/dev/null",
]  # fmt: skip
VALUES = ["x", "-1", "nan", "", "9" * 30]


def list_commands(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, own in getattr(command, "commands", {}).items():
        yield from list_commands(own, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


COMMANDS = dict(list_commands(typer.main.get_command(cli.app)))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in pkgutil.walk_packages(manyheads.__path__, "manyheads."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):
                importlib.import_module(module.name)
    folder = tmp_path_factory.mktemp("work")
    save_untrained_model(folder / "model")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    files = {
        "empty": b"", "bytes": bytes(range(256)) * 9, "text": b"I go home.\nWe read.\n",
        "other.toml": b"[train]\nsteps = 'x'\n[other]\n", "broken.docx": b"PK\x03\x04", "broken.srt": b"a\n",
        "broken.po": b"msgid a\n", "broken.csv": b'"a\n' * 3, "broken.xlsx": b"PK", "broken.tbx": b"<martif>",
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def call(work: Path, arguments: list[str]) -> tuple[int, str]:
    """Return the exit code and stderr; the code of a call that takes too long is that of its signal."""
    stderr = work.parent / "stderr"
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.chdir(work)
            os.environ["HOME"] = str(work.parent)
            descriptor = os.open(stderr, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            for number, own in ((0, os.open("text", os.O_RDONLY)), (1, os.open(os.devnull, os.O_WRONLY))):
                os.dup2(own, number)
            os.dup2(descriptor, 2)
            sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
            sys.argv = ["manyheads", *arguments]
            warnings.simplefilter("default")  # a command prints them
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            cli.main()
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException as error:
            print(f"Traceback: {error!r}", file=sys.stderr)
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), stderr.read_text(errors="replace")


def list_wrong_calls(path: tuple[str, ...]) -> Iterator[list[str]]:
    parameters = COMMANDS[path].params  # type: ignore[attr-defined]
    num_arguments = sum(own.param_type_name == "argument" for own in parameters)
    options = [own for own in parameters if own.param_type_name == "option" and "--help" not in own.opts]
    required = [part for own in options if own.required for part in (own.opts[0], "out")]
    yield [*path, "--no-such-option"]
    yield [*path, *["missing"] * 9]
    if path[0] in LONG_RUNNING:
        options = [own for own in options if own.type_descriptor.annotation in (int, float)]
    else:
        yield list(path)
    for file in FILES if num_arguments else []:
        yield [*path, *required, *[file] * num_arguments]
        if num_arguments > 1:
            yield [*path, *required, "model", *[file] * (num_arguments - 1)]
    for option in options:
        for value in [] if option.is_flag else VALUES:
            yield [*path, *["missing"] * bool(num_arguments), *required, option.opts[0], value]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_wrong_calls_end_with_a_message_and_one_of_our_exit_codes(path: tuple[str, ...], work: Path) -> None:
    problems = []
    for arguments in list_wrong_calls(path):
        code, message = call(work, arguments)
        is_known = code in EXIT_CODES or code == -signal.SIGALRM
        if not is_known or "Traceback" in message or (code > 0 and not message.strip()):
            problems.append((code, arguments, message[-300:]))
    assert not problems
