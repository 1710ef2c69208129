"""A process that carries out trials, one after the other, as they are told on its standard input.

A line of JSON each: {"trial", "folder", "place"} comes in, {"outcome", ...} goes out. It lives as long as
there is work, for importing torch and warming up a GPU take longer than many a trial.
"""

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from manyheads.errors import EXIT_PREEMPTED, ManyheadsError
from manyheads.paper.trials import Trial, TrialEnvironment, run_trial


def handle_request(request: dict[str, Any]) -> dict[str, Any]:
    """What is answered. A fault that a user can mend is told; another one ends the process."""
    trial, place = Trial.from_dict(request["trial"]), TrialEnvironment(**request["place"])
    print(f"---- {trial.name}", file=sys.stderr, flush=True)
    try:
        done = run_trial(trial, Path(request["folder"]), place)
    except ManyheadsError as fault:
        return {"outcome": "failed", "message": str(fault), "code": fault.exit_code}
    except RuntimeError as fault:
        if "out of memory" not in str(fault):
            raise
        return {"outcome": "failed", "message": str(fault).splitlines()[0], "code": 4}
    return {"outcome": "done" if done else "stopped"}


def main() -> None:
    """Answers go where standard output went; whatever else is printed goes to the log."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        answer = handle_request(json.loads(line))
        print(json.dumps(answer), file=answers, flush=True)
        if answer["outcome"] == "stopped":
            sys.exit(EXIT_PREEMPTED)
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # others share the GPU


if __name__ == "__main__":
    main()
