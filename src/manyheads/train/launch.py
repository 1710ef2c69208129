"""`--gpus N`: torchrun with N processes on this machine, and its exit code made ours."""

import signal
import subprocess
import sys
from types import FrameType

PREEMPTED = 75


def launch(processes: int, arguments: list[str], change_config: bool) -> int:
    """Runs `train` in so many processes. A signal to us is handed on; pre-empted, we say so as they do."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "manyheads", "train", *arguments]
    child = subprocess.Popen([*command, "--change-config"] if change_config else command)
    asked = False

    def hand_on(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        child.send_signal(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, hand_on)
    code = child.wait()
    return PREEMPTED if asked and code else code
