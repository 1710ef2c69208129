"""A worker process that runs trials, one after the other, from requests on standard input.

Requests and replies are lines of JSON: {"trial", "folder", "environment"} in, {"status", ...} out. The
process runs many trials, since importing torch and warming up a GPU take longer than a short trial.
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
    """Run one trial and return the reply. User errors are reported; other errors end the process."""
    trial, environment = Trial.from_dict(request["trial"]), TrialEnvironment(**request["environment"])
    print(f"---- {trial.name}", file=sys.stderr, flush=True)
    try:
        finished = run_trial(trial, Path(request["folder"]), environment)
    except ManyheadsError as error:
        return {"status": "failed", "message": str(error), "code": error.exit_code}
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        return {"status": "failed", "message": str(error).splitlines()[0], "code": 4}
    return {"status": "done" if finished else "stopped"}


def main() -> None:
    """Read requests until the end of input. Replies go to the original stdout, other prints to the log."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        reply = handle_request(json.loads(line))
        print(json.dumps(reply), file=replies, flush=True)
        if reply["status"] == "stopped":
            sys.exit(EXIT_PREEMPTED)
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # other processes share the GPU


if __name__ == "__main__":
    main()
