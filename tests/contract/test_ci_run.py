"""`.ci/run` lets browser tests be skipped only where it may not install a browser."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.source_tree import ROOT

BASH = shutil.which("bash")


def run_with_commands(folder: Path, **scripts: str) -> str:
    """Run .ci/run where these commands, and few others, are installed; return the output of `make test`."""
    for name, script in {"make": 'echo "skips: ${MANYHEADS_NO_BROWSER:-no}"', **scripts}.items():
        (folder / name).write_text(f"#!{BASH}\n{script}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    for name in ("dirname", "grep"):
        (folder / name).symlink_to(str(shutil.which(name)))
    environment = {"PATH": str(folder), "CI": "true", "HOME": os.environ.get("HOME", "/")}
    command = [str(BASH), str(ROOT / ".ci/run")]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("scripts", "skips"),
    [
        ({"id": "echo 0", "apt-get": "exit 1"}, "no"),
        ({"id": "echo 0"}, "no"),
        ({"id": "echo 1000", "apt-get": "exit 1"}, "1"),
        ({"id": "echo 1000", "chromium": "", "node": ""}, "1"),
        ({"id": "echo 1000", "chromium": "", "node": "", "fc-list": "echo font"}, "no"),
    ],
    ids=["failed install", "root without apt", "no root", "no root, no font", "all there"],
)
def test_browser_tests_may_be_skipped_only_without_root(
    tmp_path: Path, scripts: dict[str, str], skips: str
) -> None:
    assert run_with_commands(tmp_path, **scripts) == f"skips: {skips}\n"
