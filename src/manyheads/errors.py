"""Errors that a user can cause or mend. Each message gives the value, the limit and the remedy."""

from pathlib import Path


class ManyheadsError(Exception):
    """The base of all our errors. `exit_code` is that of the command line."""

    exit_code = 1


class ConfigError(ManyheadsError):
    """A setting is unknown, of the wrong type, or impossible."""

    exit_code = 2


class DataError(ManyheadsError):
    """Text or tokens cannot be used."""

    exit_code = 3


class CheckpointError(ManyheadsError):
    """A model or run folder is damaged, of an unknown format, or does not fit."""

    exit_code = 3


class TrainingError(ManyheadsError):
    """Training cannot continue: its gradients are not finite."""


class ResourceError(ManyheadsError):
    """The disk is full, or memory does not suffice. Existing files are kept."""

    exit_code = 4


class BulkJobError(ManyheadsError):
    """Workers fail at a part of a bulk job. The exit code is that of the failure."""


class NoWorkersError(BulkJobError):
    """No worker of a bulk job is left, and none can start. What is written stays."""

    exit_code = 4


class RequestError(ManyheadsError):
    """A call requests what the model or the engine cannot do, or an output folder that exists already."""

    exit_code = 2


def install_command(extra: str) -> str:
    """Return the command that installs an extra: from the checkout that this code is in, if there is one."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return f"pip install '{checkout}[{extra}]'"
    return f"pip install 'manyheads[{extra}]'"


EXIT_INTERRUPTED = 130  # by Ctrl-C
EXIT_PREEMPTED = 75  # by a signal; the command can be resumed


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory does not suffice, as torch's own errors do."""
    words = ("out of memory", "can't allocate memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in words)
    )
