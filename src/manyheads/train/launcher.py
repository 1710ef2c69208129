"""`--gpus N`: run N ranks on this machine, and return the exit code that they record.

The ranks find each other through a file in a folder of this user, and talk over the loopback interface.
Those of several machines find each other through a store on the address given (machines.py). torchrun would
open a port on all interfaces and unpickle what it receives there.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from manyheads.errors import EXIT_PREEMPTED, ConfigError
from manyheads.train.machines import INTERFACE_VARIABLES, LOOPBACK, Machines
from manyheads.train.timing import START_VARIABLE, command_start

# Names a folder in which the ranks meet, and the first rank to end writes its exit code.
RANK_FOLDER_VARIABLE = "MANYHEADS_RANKS"
# Holds the number of an open pipe, which is closed when the launcher ends.
LAUNCHER_PIPE_VARIABLE = "MANYHEADS_LAUNCHER_PIPE"
# Hold the address of the store of several machines and, in rank 0, the number of its open socket.
STORE_ADDRESS_VARIABLE, STORE_SOCKET_VARIABLE = "MANYHEADS_STORE_ADDRESS", "MANYHEADS_STORE_SOCKET"
EXIT_CODE_FILE, STORE_FILE = "code", "store"
POLL_SECONDS = 0.1
MIN_CPU_RANKS = 16  # which a machine with fewer cores may start too, for a trial
FAILURE_GRACE_SECONDS = 30.0  # for the other ranks to end after one has failed

RankProcess = subprocess.Popen[bytes]


def launch(num_processes: int, arguments: list[str], machines: Machines | None = None) -> int:
    """Run `manyheads train` in several processes, on the CPU where there is no GPU; return the exit code.

    With `machines`, this one runs its part of the ranks.
    """
    import torch  # only here: a rank watches the launcher before it imports torch

    from manyheads.text.subwords import count_cpus

    num_gpus = torch.cuda.device_count()
    if 0 < num_gpus < num_processes and "cpu" not in arguments:
        raise ConfigError(f"--gpus is {num_processes}, but this machine has {num_gpus}: lower --gpus")
    most = max(MIN_CPU_RANKS, count_cpus())
    if num_processes > most and (not num_gpus or "cpu" in arguments):
        raise ConfigError(f"--gpus is {num_processes:,}, but on the CPU of this machine it is at most {most}")
    if not num_gpus:
        print(f"no GPU on this machine: {num_processes} processes train on the CPU", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:  # which no other user can open
        ranks = start_ranks(num_processes, Path(folder), arguments, machines)
        signals = forward_signals(ranks)
        wait_for_ranks(ranks)
        codes = [rank.returncode for rank in ranks]
        if not any(codes):
            return 0
        if signals and -signal.SIGTERM in codes:  # a rank that could not handle the signal yet
            return EXIT_PREEMPTED
        recorded = Path(folder, EXIT_CODE_FILE)
        return int(recorded.read_text()) if recorded.exists() else 1


def start_ranks(
    num_processes: int, folder: Path, arguments: list[str], machines: Machines | None
) -> list[RankProcess]:
    listener = machines.listen() if machines else None
    read_end, _ = os.pipe()  # the write end stays open until this process ends, even by SIGKILL
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    if machines:
        environment |= {STORE_ADDRESS_VARIABLE: machines.address, **machines.choose_interfaces()}
    elif LOOPBACK in [name for _, name in socket.if_nameindex()]:
        environment |= dict.fromkeys(INTERFACE_VARIABLES, LOOPBACK)
    environment |= {
        RANK_FOLDER_VARIABLE: str(folder),
        LAUNCHER_PIPE_VARIABLE: str(read_end),
        START_VARIABLE: str(command_start()),
        "WORLD_SIZE": str(num_processes * (machines.number if machines else 1)),
    }
    if listener is not None:
        environment[STORE_SOCKET_VARIABLE] = str(listener.fileno())
    first_rank = num_processes * (machines.index if machines else 0)
    command = [sys.executable, "-m", "manyheads", "train", *arguments]
    # In sessions of their own, so that Ctrl-C reaches this process only, which forwards it.
    ranks = [
        subprocess.Popen(
            command,
            env={**environment, "RANK": str(first_rank + number), "LOCAL_RANK": str(number)},
            pass_fds=[read_end, *([listener.fileno()] if listener and not number else [])],
            start_new_session=True,
        )
        for number in range(num_processes)
    ]
    os.close(read_end)
    if listener is not None:
        listener.close()
    return ranks


def forward_signals(ranks: Sequence[RankProcess]) -> list[int]:
    """Forward signals to the ranks; return a list to which received signals are appended."""
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        terminate_ranks(ranks)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    signal.set_wakeup_fd(-1)  # else the watcher of early signals would end this process before the ranks
    return received


def wait_for_ranks(ranks: Sequence[RankProcess]) -> None:
    """Wait until all ranks have ended. If one fails, end the others, which would wait for it.

    A rank that stops on a signal has not failed: the others write the checkpoint as well.
    """
    deadline: float | None = None
    while any(rank.poll() is None for rank in ranks):
        if deadline is None and any(rank.poll() not in (None, 0, EXIT_PREEMPTED) for rank in ranks):
            deadline = time.monotonic() + FAILURE_GRACE_SECONDS
            terminate_ranks(ranks)
        if deadline is not None and time.monotonic() > deadline:
            for rank in ranks:
                rank.kill()
        time.sleep(POLL_SECONDS)


def terminate_ranks(ranks: Sequence[RankProcess]) -> None:
    for rank in ranks:
        rank.terminate()


# ---- in a rank


def store_address() -> tuple[str, int] | None:
    """Return where the ranks of several machines meet, if they do."""
    host, _, port = os.environ.get(STORE_ADDRESS_VARIABLE, "").rpartition(":")
    return (host, int(port)) if host else None


def store_url() -> str | None:
    """Return where the ranks of one machine meet; None: where torchrun says."""
    folder = os.environ.get(RANK_FOLDER_VARIABLE)
    return None if folder is None else Path(folder, STORE_FILE).absolute().as_uri()


def stop_with_launcher() -> None:
    """Stop this rank as by SIGTERM when the launcher has ended, if there is one."""
    if LAUNCHER_PIPE_VARIABLE not in os.environ:
        return

    def watch() -> None:
        with suppress(OSError):
            os.read(int(os.environ[LAUNCHER_PIPE_VARIABLE]), 1)  # returns when the other end is closed
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


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
