"""A run killed with SIGKILL at random moments, again and again, against the same run undisturbed.

python bench/killed.py               30 kills, on the built-in corpus

At the end the weights must be the same to the byte, the log the same in all but its times, and at no time a
checkpoint unreadable. Kills are aimed by turns at a step, the writing of a checkpoint, a validation and the
end of an epoch.
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
from manyheads.data.prepare import prepare
from manyheads.demo import make_recipe, write_corpus
from manyheads.errors import CheckpointError
from manyheads.train.log import read_log

AIMS = ("in a step", "writing a checkpoint", "validating", "at the end of an epoch")
VALIDATE_EVERY = 10
TIMES = ("seconds", "tokens_per_second", "mfu")


def make_data(folder: Path) -> None:
    corpus = playground.generate_corpus("en-ko", train=3000, valid=100, test=50, seed=3)
    write_corpus(folder, "en-ko", corpus)
    prepare(make_recipe(folder, "en-ko", 900), folder / "data")


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
        ),
    ).save(folder / "run.toml")


def start(folder: Path, run: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "manyheads", "train", f"{folder}/run.toml", "--out", f"{folder}/{run}"]
    return subprocess.Popen([*command, "--device", "cpu"], stderr=subprocess.DEVNULL)


def is_writing(run: Path, begun: float) -> bool:
    """Whether this process has a checkpoint half written; what an earlier one left does not count."""
    for part in (run / "checkpoints").glob(".*-part"):
        try:
            if part.stat().st_mtime >= begun:
                return True
        except FileNotFoundError:  # it has just been given its name
            continue
    return False


def moment(run: Path, begun: float) -> str:
    """What the run is doing, as far as its files tell."""
    if is_writing(run, begun):
        return "writing a checkpoint"
    lines = [line for line in read_log(run / "log.jsonl")[-2:] if line["event"] in ("train", "valid")]
    if len(lines) < 2:
        return "in a step"
    before, last = lines
    if last["event"] == "train" and last["step"] % VALIDATE_EVERY == 0:
        return "validating"
    if last["event"] == before["event"] == "train" and last["epoch"] != before["epoch"]:
        return "at the end of an epoch"
    return "in a step"


def unreadable(run: Path) -> list[str]:
    found = []
    for folder in checkpoint.list_checkpoints(run):
        try:
            checkpoint.read_info(folder)
        except CheckpointError as fault:
            found.append(str(fault))
    return found


def hit(child: "subprocess.Popen[bytes]", run: Path, chance: random.Random, begun: float, aim: str) -> bool:
    """Kills the run some seconds after its first step, as it does what is aimed at; whether it still ran."""
    log, wait = run / "log.jsonl", chance.uniform(0.3, 4.0)
    while child.poll() is None and not (log.exists() and log.stat().st_mtime > begun):
        time.sleep(0.01)
    stepping = time.time()
    while child.poll() is None:
        spent = time.time() - stepping
        if spent > wait and (moment(run, begun) == aim or spent > wait + 10):
            child.send_signal(signal.SIGKILL)
            child.wait()
            return True
        time.sleep(0.0005)
    return False


def log_without_times(run: Path) -> list[dict[str, object]]:
    return [{key: line[key] for key in line if key not in TIMES} for line in read_log(run / "log.jsonl")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance, moments, problems, kills = random.Random(given.seed), Counter[str](), list[str](), 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_data(folder)
        write_config(folder, given.steps)
        assert start(folder, "whole").wait() == 0
        while True:
            begun = time.time()
            child = start(folder, "killed")
            if kills >= given.kills:
                assert child.wait() == 0
                break
            if not hit(child, folder / "killed", chance, begun, AIMS[kills % len(AIMS)]):
                break
            kills += 1
            moments[moment(folder / "killed", begun)] += 1
            problems += unreadable(folder / "killed")
        files = [folder / run / "model" / "weights.safetensors" for run in ("whole", "killed")]
        result = {
            "kills": kills,
            "moments": dict(moments),
            "unreadable checkpoints": problems,
            "weights identical": files[0].read_bytes() == files[1].read_bytes(),
            "log identical but for times": log_without_times(folder / "whole")
            == log_without_times(folder / "killed"),
        }
    print(json.dumps(result, indent=1))
    same = result["weights identical"] and result["log identical but for times"]
    sys.exit(0 if same and not problems and kills == given.kills else 1)


if __name__ == "__main__":
    main()
