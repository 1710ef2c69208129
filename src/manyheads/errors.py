"""What can go wrong by a user's hand. Each message gives the value, the limit and the remedy."""


class ManyheadsError(Exception):
    """The root of the tree: catch this to catch them all. `exit_code` is the command line's."""

    exit_code = 1


class ConfigError(ManyheadsError):
    """A setting is unknown, of the wrong type, or impossible."""

    exit_code = 2


class DataError(ManyheadsError):
    """Text or tokens cannot be used as they are."""

    exit_code = 3


class CheckpointError(ManyheadsError):
    """A model or training folder is damaged, foreign, or does not fit."""

    exit_code = 3


class TrainingError(ManyheadsError):
    """A run cannot go on: its gradients are not finite."""


class ResourceError(ManyheadsError):
    """The disk is full. Nothing that was there is lost."""

    exit_code = 4


class RequestError(ManyheadsError):
    """A call asks for what the model or the engine cannot do."""

    exit_code = 2


EXIT_INTERRUPTED = 130  # the exit code of what was stopped by hand
EXIT_PREEMPTED = 75  # of what was asked to stop and can go on
