"""Start `manyheads serve` in a process of its own, with a scripted translator or a model folder."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

CODE = """
import sys
sys.path[:0] = [{tests!r}]
from support.scripted_translator import ScriptedTranslator
from manyheads.serve import server
if not {model!r}:
    server.load = lambda *_, **__: ScriptedTranslator(seconds={seconds})
sys.argv = ["manyheads", "serve", {model!r} or ".", "--port=0", *{arguments!r}]
from manyheads.cli import main
main()
"""


class ServerProcess:
    """A running server: its port, its memory and its log."""

    def __init__(self, process: "subprocess.Popen[str]", log: IO[str]) -> None:
        self.process, self.log = process, log
        self.loading_line, self.address_line = self._read_line(), self._read_line()
        self.port = int(self.address_line.rsplit(":", 1)[1])

    def _read_line(self) -> str:
        line = ""
        while not line.endswith("\n"):
            ended = self.process.poll() is not None
            line += self.log.readline()
            assert line.endswith("\n") or not ended, f"the server ended: {line}"
            time.sleep(0.02)
        return line

    def read_log(self) -> str:
        """Return the log after the first two lines; the server must have been asked to stop."""
        self.process.wait(60)
        return self.log.read()

    @property
    def megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


@contextmanager
def start_server(*arguments: str, seconds: float = 0.0, model: Path | None = None) -> Iterator[ServerProcess]:
    tests = str(Path(__file__).parents[1])
    folder = str(model) if model else ""
    code = CODE.format(tests=tests, seconds=seconds, arguments=list(arguments), model=folder)
    # A file, not a pipe: an unread pipe fills up after a thousand requests and blocks the server.
    with (
        tempfile.NamedTemporaryFile("w") as stderr,
        open(stderr.name, encoding="utf-8") as log,
        subprocess.Popen([sys.executable, "-c", code], stderr=stderr, text=True) as process,
    ):
        try:
            yield ServerProcess(process, log)
        finally:
            process.terminate()
            process.wait(timeout=60)
