"""`--gpus N`: torchrun with N processes on this machine, and the exit code of ours that they leave."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

import torch

from manyheads.errors import ConfigError

EXIT_FILE = "MANYHEADS_EXIT_FILE"  # where a rank leaves its code, for torchrun has only its own


def launch(processes: int, arguments: list[str], change_config: bool) -> int:
    """Runs `train` in so many processes. A signal to us is handed on once. Without GPUs they use the CPU."""
    there = torch.cuda.device_count()
    if 0 < there < processes:
        raise ConfigError(f"--gpus is {processes}, but there are {there} here")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "manyheads", "train", *arguments, *(["--change-config"] if change_config else [])]
    with tempfile.TemporaryDirectory() as place:
        left = Path(place, "code")
        # A session of its own: Ctrl-C in the terminal reaches us alone, and we hand it on.
        child = subprocess.Popen(command, env={**os.environ, EXIT_FILE: str(left)}, start_new_session=True)

        def hand_on(number: int, frame: FrameType | None) -> None:
            child.send_signal(signal.SIGTERM)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, hand_on)
        code = child.wait()
        return int(left.read_text()) if code and left.exists() else code


def leave_code(code: int) -> None:
    """Called by a rank that ends with a code of its own."""
    if EXIT_FILE in os.environ:
        Path(os.environ[EXIT_FILE]).write_text(str(code))
