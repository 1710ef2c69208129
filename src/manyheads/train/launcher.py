"""`--gpus N`: run torchrun with N processes on this machine, and return the exit code that they record."""

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
from manyheads.train.timing import START_VARIABLE, command_start

# Names a folder in which each rank writes its process id, and the first rank to end its exit code.
RANK_FOLDER_VARIABLE = "MANYHEADS_RANKS"
EXIT_CODE_FILE = "code"


def launch(num_processes: int, arguments: list[str]) -> int:
    """Run `manyheads train` in several processes, on the CPU where there is no GPU; return the exit code."""
    num_gpus = torch.cuda.device_count()
    if 0 < num_gpus < num_processes and "cpu" not in arguments:
        raise ConfigError(f"--gpus is {num_processes}, but this machine has {num_gpus}: lower --gpus")
    if not num_gpus:
        print(f"no GPU on this machine: {num_processes} processes train on the CPU", file=sys.stderr)
    command = [sys.executable, "-m", "manyheads.train.launcher", "--standalone"]
    command += [f"--nproc-per-node={num_processes}", "-m", "manyheads", "train", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        environment = {"LOGLEVEL": "CRITICAL", **os.environ, RANK_FOLDER_VARIABLE: folder}
        environment[START_VARIABLE] = str(command_start())
        # In a session of its own, so that Ctrl-C reaches this process only, which forwards it.
        child = subprocess.Popen(command, env=environment, start_new_session=True)
        signals = forward_signals(child, Path(folder))
        code = child.wait()
        recorded = Path(folder, EXIT_CODE_FILE)
        if code and recorded.exists():
            return int(recorded.read_text())
        return EXIT_PREEMPTED if code and signals else code


def forward_signals(child: "subprocess.Popen[bytes]", folder: Path) -> list[int]:
    """Forward signals to the ranks; return a list to which received signals are appended.

    torchrun would kill the ranks after half a minute, and a large checkpoint takes longer to write.
    """
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        ranks = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
        for process in ranks or [child.pid]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    return received


def register_rank() -> None:
    """Record this rank's process id for the launcher, if there is one."""
    if RANK_FOLDER_VARIABLE in os.environ:
        Path(os.environ[RANK_FOLDER_VARIABLE], str(os.getpid())).touch()


def record_exit_code(code: int) -> bool:
    """Record this rank's exit code for the launcher; return whether it is the first to do so."""
    if RANK_FOLDER_VARIABLE not in os.environ:
        return True
    try:
        with Path(os.environ[RANK_FOLDER_VARIABLE], EXIT_CODE_FILE).open("x") as file:
            file.write(str(code))
    except FileExistsError:
        return False
    return True


def run_torchrun() -> None:
    """Run torchrun without its traceback for a failed rank, which has printed its own error."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.main()
    except (ChildFailedError, SignalException):
        sys.exit(1)


if __name__ == "__main__":
    run_torchrun()
