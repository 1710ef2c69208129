"""A run killed with SIGKILL at random moments, compared with the same run uninterrupted.

python bench/killed.py               50 kills, on the built-in corpus

The final weights must be identical to the byte, the logs identical except for times, and all checkpoints
readable at any time. Validation, averaging and checkpoints that are written in the background are on. Kills
alternate between a step, the writing of a checkpoint, a validation and the end of an epoch; the last one aims
at the writing of the averaged model.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import manyheads as mh
from manyheads import checkpoint, playground
from manyheads.demo import prepare_corpus
from manyheads.errors import CheckpointError
from manyheads.train.log import read_log

MOMENTS = ("in a step", "writing a checkpoint", "validating", "at the end of an epoch")
AVERAGING = "writing the averaged model"
VALIDATE_EVERY = 10
TIME_KEYS = ("tokens_per_second", "mfu")  # and all whose name ends with "seconds"


def make_data(folder: Path) -> None:
    corpus = playground.generate_corpus("en-ko", train=3000, valid=100, test=50, seed=3)
    prepare_corpus(folder, "en-ko", corpus, 900)


def write_config(folder: Path, steps: int) -> None:
    mh.Config(
        model=mh.TransformerConfig(layers=1, d_model=64, d_ff=128, heads=4),
        data=mh.DataConfig(folder=str(folder / "data"), batch_tokens=1500),
        train=mh.TrainConfig(
            steps=steps,
            warmup=50,
            learning_rate=2e-3,
            log_every=1,
            validate_every=VALIDATE_EVERY,
            checkpoint_every=7,
            bleu_sentences=10,
            average_checkpoints=3,
            keep_checkpoints=3,
            card=False,
        ),
    ).save(folder / "run.toml")


def start_run(folder: Path, run: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "manyheads", "train", f"{folder}/run.toml", "--out", f"{folder}/{run}"]
    return subprocess.Popen([*command, "--device", "cpu"], stderr=subprocess.DEVNULL)


def is_writing(parent: Path, started: float) -> bool:
    """Return whether this process is writing a folder; remains of an earlier one do not count."""
    for temporary in parent.glob(".*-part"):
        try:
            if temporary.stat().st_mtime >= started:
                return True
        except FileNotFoundError:  # it was just renamed
            continue
    return False


def describe_moment(run: Path, started: float) -> str:
    """Return what the run is doing, according to its files."""
    if is_writing(run, started):
        return AVERAGING
    if is_writing(run / "checkpoints", started):
        return "writing a checkpoint"
    lines = [line for line in read_log(run / "log.jsonl")[-2:] if line["event"] in ("train", "valid")]
    if len(lines) < 2:
        return "in a step"
    previous, last = lines
    if last["event"] == "train" and last["step"] % VALIDATE_EVERY == 0:
        return "validating"
    if last["event"] == previous["event"] == "train" and last["epoch"] != previous["epoch"]:
        return "at the end of an epoch"
    return "in a step"


def find_unreadable(run: Path) -> list[str]:
    problems = []
    for folder in checkpoint.list_checkpoints(run):
        try:
            checkpoint.read_info(folder)
        except CheckpointError as error:
            problems.append(str(error))
    return problems


def kill_run(
    child: "subprocess.Popen[bytes]", run: Path, generator: random.Random, started: float, target: str
) -> bool:
    """Kill the run some seconds after its first step, at the target moment. False: it had ended."""
    log, wait = run / "log.jsonl", generator.uniform(0.3, 4.0)
    while child.poll() is None and not (log.exists() and log.stat().st_mtime > started):
        time.sleep(0.01)
    first_step = time.time()
    while child.poll() is None:
        elapsed = time.time() - first_step
        is_late = target != AVERAGING and elapsed > wait + 10  # which comes once, at the end
        if elapsed > wait and (is_late or describe_moment(run, started) == target):
            child.send_signal(signal.SIGKILL)
            child.wait()
            return True
        time.sleep(0.0005)
    return False


def read_log_without_times(run: Path) -> list[dict[str, object]]:
    """Return the entries but those about the start of a process: how long it took, and at which step."""
    entries = [entry for entry in read_log(run / "log.jsonl") if entry["event"] != "start"]
    return [
        {key: entry[key] for key in entry if key not in TIME_KEYS and not key.endswith("seconds")}
        for entry in entries
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    generator, moments, problems, kills = random.Random(arguments.seed), Counter[str](), list[str](), 0
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        make_data(folder)
        write_config(folder, arguments.steps)
        assert start_run(folder, "whole").wait() == 0
        while True:
            started = time.time()
            child = start_run(folder, "killed")
            if kills >= arguments.kills:
                assert child.wait() == 0
                break
            target = AVERAGING if kills == arguments.kills - 1 else MOMENTS[kills % len(MOMENTS)]
            if not kill_run(child, folder / "killed", generator, started, target):
                break
            kills += 1
            moments[describe_moment(folder / "killed", started)] += 1
            problems += find_unreadable(folder / "killed")
        files = [folder / run / "model" / "weights.safetensors" for run in ("whole", "killed")]
        whole, log = (read_log_without_times(folder / run) for run in ("whole", "killed"))
        result = {
            "kills": kills,
            "moments": dict(moments),
            "validations": sum(line["event"] == "valid" for line in log),
            "model": next((line["model"] for line in reversed(log) if line["event"] == "end"), None),
            "unreadable checkpoints": problems,
            "weights identical": files[0].read_bytes() == files[1].read_bytes(),
            "log identical except times": whole == log,
            "first difference": next(
                (pair for pair in zip(whole, log, strict=False) if pair[0] != pair[1]), None
            ),
        }
    print(json.dumps(result, indent=1))
    identical = result["weights identical"] and result["log identical except times"]
    sys.exit(0 if identical and not problems and kills == arguments.kills else 1)


if __name__ == "__main__":
    main()
