"""A server in a process of its own, as the command starts it; with a scripted translator, or a model."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CODE = """
import sys
sys.path[:0] = [{tests!r}]
from scripted import Scripted
from manyheads.serve import server
if not {model!r}:
    server.load = lambda *_, **__: Scripted(seconds={seconds})
sys.argv = ["manyheads", "serve", {model!r} or "nowhere", "--port=0", *{arguments!r}]
from manyheads.cli import main
main()
"""


class Process:
    """The server: its port, its memory, what it wrote."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        self.process, self.log = process, process.stderr
        self.first = self.log.readline()
        self.port = int(self.first.rsplit(":", 1)[1])

    @property
    def megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


@contextmanager
def listening_process(*arguments: str, seconds: float = 0.0, model: Path | None = None) -> Iterator[Process]:
    tests = str(Path(__file__).parent)
    named = str(model) if model else ""
    code = CODE.format(tests=tests, seconds=seconds, arguments=list(arguments), model=named)
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Process(process)
        finally:
            process.terminate()
            process.communicate(timeout=60)
