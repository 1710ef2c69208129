"""The JavaScript engine of the live page in Node, for tests that compare its numbers with Python's.

Tests are skipped where Node is not installed; with CI=true as in browser.py.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import skip_without_browser

NODE = shutil.which("node")
DRIVER = Path(__file__).parent / "live_engine.mjs"


class NodeEngine:
    """A Node process that answers one request after the other."""

    def __init__(self, executable: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [executable, str(DRIVER)], stdin=pipe, stdout=pipe, text=True, encoding="utf-8"
        )

    def call(self, method: str, **request: Any) -> Any:
        """Call a method of the driver. An exception in JavaScript fails the test."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"method": method, **request}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=10)
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture(scope="module")
def node() -> Iterator[NodeEngine]:
    if NODE is None:
        skip_without_browser("Node is not installed")
    engine = NodeEngine(NODE)
    yield engine
    engine.close()
