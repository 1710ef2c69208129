"""Write the log of a training run."""

import json
from pathlib import Path
from typing import Any


def write_log(run: Path, lines: list[Any]) -> Path:
    run.mkdir(exist_ok=True)
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return run
