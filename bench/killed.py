"""A run killed with SIGKILL at random moments, again and again, against the same run undisturbed.

python bench/killed.py               30 kills, on the built-in corpus

At the end the weights must be the same to the byte, the log the same in all but its times, and at no time a
checkpoint unreadable. Every third kill is aimed at the writing of a checkpoint; the others fall anywhere.
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
from manyheads import checkpoint
from manyheads.data.prepare import prepare
from manyheads.demo import recipe, write_corpus
from manyheads.errors import CheckpointError
from manyheads.text import playground
from manyheads.train.log import read_log

TIMES = ("seconds", "tokens_per_second", "share_of_peak")


def make_data(folder: Path) -> None:
    corpus = playground.corpus("en-ko", train=3000, valid=100, test=50, seed=3)
    write_corpus(folder, "en-ko", corpus)
    prepare(recipe(folder, "en-ko", 900), folder / "data")


def write_config(folder: Path, steps: int) -> None:
    mh.Config(
        model=mh.ModelConfig(layers=1, d_model=64, d_ff=128, heads=4),
        data=mh.DataConfig(folder=str(folder / "data"), batch_tokens=1500),
        train=mh.TrainConfig(
            steps=steps,
            warmup=50,
            learning_rate=2e-3,
            log_every=1,
            validate_every=10,
            checkpoint_every=7,
            bleu_sentences=10,
            average=3,
            keep=3,
        ),
    ).save(folder / "run.toml")


def start(folder: Path, run: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "manyheads", "train", f"{folder}/run.toml", "--out", f"{folder}/{run}"]
    return subprocess.Popen([*command, "--device", "cpu"], stderr=subprocess.DEVNULL)


def is_writing(run: Path, begun: float) -> bool:
    """Whether this process has a checkpoint half written; what an earlier one left does not count."""
    return any(part.stat().st_mtime >= begun for part in (run / "checkpoints").glob(".*-part"))


def moment(run: Path, begun: float) -> str:
    """What the run was doing when it was hit, as far as its files tell."""
    if is_writing(run, begun):
        return "writing a checkpoint"
    lines = read_log(run / "log.jsonl")
    last = lines[-1] if lines else {"step": 0, "kind": "start"}
    return "validating" if last["kind"] == "train" and last["step"] % 10 == 0 else "in a step"


def unreadable(run: Path) -> list[str]:
    found = []
    for folder in checkpoint.checkpoints(run):
        try:
            checkpoint.describe(folder)
        except CheckpointError as fault:
            found.append(str(fault))
    return found


def hit(
    child: "subprocess.Popen[bytes]", run: Path, chance: random.Random, begun: float, aimed: bool
) -> bool:
    """Kills the run at some moment; whether it was still running."""
    wait = chance.uniform(4.0, 9.0)
    while child.poll() is None:
        spent = time.time() - begun
        writing = aimed and spent > wait and is_writing(run, begun)
        if writing or spent > wait + (6.0 if aimed else 0.0):
            child.send_signal(signal.SIGKILL)
            child.wait()
            return True
        time.sleep(0.0005 if aimed else 0.01)
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
            if not hit(child, folder / "killed", chance, begun, aimed=kills % 3 == 0):
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
