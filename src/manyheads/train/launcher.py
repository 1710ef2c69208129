"""`--gpus N`: torchrun with N processes on this machine, and the exit code of ours that they leave."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import FrameType

import torch

from manyheads.errors import EXIT_PREEMPTED, ConfigError

RANK_FOLDER_VARIABLE = (
    "MANYHEADS_RANKS"  # a folder where each rank leaves its number of process, and the first to end its code
)
EXIT_CODE_FILE = "code"


def launch(num_processes: int, arguments: list[str]) -> int:
    """Runs `train` in so many processes. Without GPUs they use the CPU."""
    there = torch.cuda.device_count()
    if 0 < there < num_processes and "cpu" not in arguments:
        raise ConfigError(f"--gpus is {num_processes}, but there are {there} here")
    if not there:
        print(f"no GPU here: {num_processes} processes train on the CPU", file=sys.stderr)
    command = [sys.executable, "-m", "manyheads.train.launcher", "--standalone"]
    command += [f"--nproc-per-node={num_processes}", "-m", "manyheads", "train", *arguments]
    with tempfile.TemporaryDirectory() as place:
        # A session of its own: Ctrl-C in the terminal reaches us alone, and we hand it on.
        quiet = {"LOGLEVEL": "CRITICAL", **os.environ, RANK_FOLDER_VARIABLE: place}
        child = subprocess.Popen(command, env=quiet, start_new_session=True)
        asked = forward_signals(child, Path(place))
        code = child.wait()
        left = Path(place, EXIT_CODE_FILE)
        if code and left.exists():
            return int(left.read_text())
        return EXIT_PREEMPTED if code and asked else code


def forward_signals(child: "subprocess.Popen[bytes]", place: Path) -> list[int]:
    """To the ranks themselves: torchrun would give them half a minute, which a large checkpoint outlasts.

    Returns a list that will hold the signals that came.
    """
    asked: list[int] = []

    def hand_on(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        ranks = [int(path.name) for path in place.iterdir() if path.name.isdecimal()]
        for process in ranks or [child.pid]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, hand_on)
    return asked


def register_rank() -> None:
    """Called by a rank, so that whoever started it by --gpus finds it."""
    if RANK_FOLDER_VARIABLE in os.environ:
        Path(os.environ[RANK_FOLDER_VARIABLE], str(os.getpid())).touch()


def record_exit_code(code: int) -> bool:
    """Called by a rank that ends with a code of its own; whether it is the first, whose word counts."""
    if RANK_FOLDER_VARIABLE not in os.environ:
        return True
    try:
        with Path(os.environ[RANK_FOLDER_VARIABLE], EXIT_CODE_FILE).open("x") as file:
            file.write(str(code))
    except FileExistsError:
        return False
    return True


def run_torchrun() -> None:
    """torchrun itself, without its report on a rank that failed: the rank has said what there is to say."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.main()
    except (ChildFailedError, SignalException):
        sys.exit(1)


if __name__ == "__main__":
    run_torchrun()
