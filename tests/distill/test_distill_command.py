"""The whole command on a CPU, with the built-in corpus; killed and stopped at every stage."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from manyheads import playground
from manyheads.demo import prepare_corpus
from manyheads.train.run import train
from support.small_run import are_identical, make_config, prepare_data, read_weights

# Runs the command, and ends it in a function: at its first call, or at a later one.
INTERRUPTED = """
import importlib, os, signal, sys
from manyheads.cli import main
from manyheads.distill import source_text

source_text.SHARD_LINES = 40
place, skipped, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.argv = ["manyheads", *sys.argv[4:]]
if place:
    owner, name = place.rsplit(".", 1)
    module, _, class_name = owner.partition(":")
    target = importlib.import_module(module)
    target = getattr(target, class_name) if class_name else target
    original, calls = getattr(target, name), []

    def interrupt(*arguments, **options):
        calls.append(name)
        if len(calls) > skipped:
            os.kill(os.getpid(), number)
        return original(*arguments, **options)

    setattr(target, name, interrupt)
main()
"""
STUDENT = [
    "model.layers=1", "model.d_model=16", "model.d_ff=32", "model.heads=2", "data.batch_tokens=300",
    "train.steps=12", "train.warmup=4", "train.checkpoint_every=3", "train.validate_every=6",
    "train.bleu_sentences=3",
]  # fmt: skip
# A function of each stage, and how many calls of it pass before the command is killed.
STAGES = {
    "text": ("manyheads.distill.source_text.write_lines", 2),
    "translate": ("manyheads.bulk.outputs:OutputFolder._write_block", 2),
    "pairs": ("manyheads.distill.student_data.append_file", 3),
    "data": ("manyheads.data.prepare.write_manifest", 0),
    "train": ("manyheads.train.trainer:Trainer._save", 2),
    "quantize": ("manyheads.checkpoint.manifest.write_manifest", 0),
    "report": ("manyheads.distill.measurement.count_words_per_second", 3),
}


def run(folder: Path, out: str, place: str = "", skipped: int = 0, number: int = signal.SIGKILL) -> int:
    command = [
        sys.executable, "-c", INTERRUPTED, place, str(skipped), str(int(number)), "distill",
        f"{folder}/teacher/model", "--data", f"{folder}/data", "--out", f"{folder}/{out}", "--preset", "tiny",
        "--choose", "chrf", "--beam", "3", "--device", "cpu", "--speed-seconds", "0.02", *STUDENT,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    if number == signal.SIGTERM and place:
        assert done.stderr.endswith(f"manyheads: {folder}/{out}: stopped; the same command goes on\n")
    elif not place:
        assert done.returncode == 0, done.stderr
    return done.returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("distill")
    config = make_config(prepare_data(here), steps=60, checkpoint_every=20, validate_every=20)
    train(config, here / "teacher", device="cpu")
    run(here, "reference")
    return here


def read_results(run_folder: Path) -> dict[str, str]:
    """Return the translations and pairs of a run, and the scores of its report."""
    files = [*(run_folder / "translations").glob("*.en"), *(run_folder / "pairs").iterdir()]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    report = json.loads((run_folder / "report.json").read_text(encoding="utf-8"))
    return texts | {"quality": json.dumps(report["quality"])}


@pytest.mark.heavy
def test_a_run_killed_at_every_stage_goes_on_to_the_same_result(folder: Path) -> None:
    for number, (stage, (place, skipped)) in enumerate(STAGES.items()):
        assert run(folder, "killed", place, skipped) == -signal.SIGKILL, stage
        state = json.loads((folder / "killed" / "distill.json").read_text(encoding="utf-8"))
        assert state["done"] == list(STAGES)[:number]
    run(folder, "killed")
    assert read_results(folder / "killed") == read_results(folder / "reference")
    assert are_identical(read_weights(folder / "killed"), read_weights(folder / "reference"))
    assert not [path.name for path in (folder / "killed").iterdir() if path.name.startswith(".")]
    report = (folder / "killed" / "report.json").read_text(encoding="utf-8")
    (folder / "killed" / "report.json").unlink()
    run(folder, "killed")  # complete: nothing is measured again
    assert (folder / "killed" / "report.json").read_text(encoding="utf-8") == report


@pytest.mark.heavy
@pytest.mark.parametrize("stage", ["translate", "train", "report"])
def test_sigterm_exits_with_75_and_the_same_command_goes_on(folder: Path, stage: str) -> None:
    assert run(folder, f"stopped-{stage}", *STAGES[stage], number=signal.SIGTERM) == 75
    run(folder, f"stopped-{stage}")
    stopped, reference = folder / f"stopped-{stage}", folder / "reference"
    assert read_results(stopped) == read_results(reference)
    assert are_identical(read_weights(stopped), read_weights(reference))


@pytest.mark.heavy
def test_a_student_of_the_built_in_corpus_comes_close_to_its_teacher(tmp_path: Path) -> None:
    corpus = playground.generate_corpus("en-de", train=4000, valid=100, test=200, seed=1, words=3)
    store = prepare_corpus(tmp_path, "en-de", corpus, 700)
    size = {"layers": 1, "d_model": 64, "d_ff": 128, "heads": 4, "dropout": 0.0}
    schedule = {"steps": 320, "warmup": 40, "schedule": "linear", "checkpoint_every": 160, "log_every": 50}
    config = make_config(store.folder, **size, **schedule, validate_every=160)
    config = replace(config, data=replace(config.data, batch_tokens=2000))
    train(config, tmp_path / "teacher", device="cpu")
    command = [
        sys.executable, "-m", "manyheads", "distill", f"{tmp_path}/teacher/model",
        "--data", str(store.folder), "--out", f"{tmp_path}/run", "--preset", "student-tiny",
        "--device", "cpu", "--speed-seconds", "0.1", "--vocab-size", "600", "--json",
        "--min-confidence", "0.05",
        "model.d_model=64", "model.d_ff=128", "model.encoder_layers=1", "data.batch_tokens=2000",
        "train.steps=350", "train.warmup=40", "train.learning_rate=5e-3", "train.schedule=linear",
        "train.checkpoint_every=175", "train.validate_every=175",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    bleu = {(row["system"], row["beam"]): row["bleu"]["value"] for row in report["quality"]}
    assert bleu["teacher", 4] > 60
    assert bleu["student, int8", 1] > bleu["teacher", 4] - 15
    assert report["megabytes"]["student, int8"] < report["megabytes"]["teacher"]
    assert {row["engine"] for row in report["speed"]} == {"ctranslate2:int8", "torch"}
    card = (tmp_path / "run" / "model" / "model_card.md").read_text(encoding="utf-8")
    assert "- teacher: teacher/model" in card
    assert "| capitals" in card
