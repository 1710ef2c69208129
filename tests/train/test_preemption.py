"""The watcher of a command's first moments is silent once the run or the launcher has taken over."""

import subprocess
import sys

import pytest

SEND_AND_GO_ON = """
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.3)
print("goes on")
"""


def run_python(code: str) -> "subprocess.CompletedProcess[str]":
    imports = (
        "import os, signal, time",
        "from manyheads.train.launcher import forward_signals",
        "from manyheads.train.preemption import exit_on_early_signals, watch_stop_signals",
        "exit_on_early_signals('stopped early')",
    )
    return subprocess.run(
        [sys.executable, "-c", "\n".join([*imports, code])], capture_output=True, text=True, timeout=60
    )


def test_a_signal_in_the_first_moments_exits_with_75() -> None:
    done = run_python(SEND_AND_GO_ON)
    assert (done.returncode, done.stdout, done.stderr) == (75, "", "manyheads: stopped early\n")


@pytest.mark.parametrize(
    "taken_over",
    ["forward_signals([])", "with watch_stop_signals(): pass"],
)
def test_the_early_watcher_is_silent_later(taken_over: str) -> None:
    done = run_python(f"{taken_over}\n{SEND_AND_GO_ON}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")
