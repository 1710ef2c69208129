"""The verbs of training, as people call them."""

import json
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import Recipe
from manyheads.data.prepare import prepare
from manyheads.train.run import train
from manyheads.train.run_summary import CURVES, plot_curves, sparkline

PAIRS = [(f"I have {n} books.", f"나는 책이 {n}권 있다.") for n in range(120)]


def manyheads(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "manyheads", *arguments], capture_output=True, text=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a configuration, and a finished run."""
    folder = tmp_path_factory.mktemp("place")
    for side, code in enumerate(("en", "ko")):
        text = "".join(f"{pair[side]}\n" for pair in PAIRS)
        (folder / f"a.{code}").write_text(text, encoding="utf-8")
    tables: dict[str, Any] = {"train": [{"files": [f"{folder}/a.en", f"{folder}/a.ko"]}]}
    prepare(Recipe.from_mapping({**tables, "subwords": {"vocab_size": 320}}), folder / "data")
    config = mh.Config(
        model=mh.TransformerConfig(layers=1, d_model=16, d_ff=16, heads=2),
        data=mh.DataConfig(folder=str(folder / "data"), batch_tokens=300),
        train=mh.TrainConfig(
            steps=9,
            log_every=1,
            validate_every=3,
            checkpoint_every=3,
            bleu_sentences=2,
            warmup=3,
            average_checkpoints=2,
        ),
    )
    config.save(folder / "run.toml")
    train(config, folder / "run", device="cpu")
    return folder


def test_inspect_tells_where_a_run_stands(place: Path) -> None:
    done = manyheads("inspect", f"{place}/run")
    assert done.returncode == 0, done.stderr
    assert "model: sound, step 9" in done.stdout
    assert "step-00000009: sound, step 9" in done.stdout
    assert "validation, step 9: loss" in done.stdout
    told = json.loads(manyheads("inspect", f"{place}/run", "--json").stdout)
    assert told["latest"]["train"]["step"] == 9
    assert told["latest"]["end"]["model"]


def test_curves_are_drawn(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for kind, beginning in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        done = manyheads("inspect", f"{place}/run", "--curves", f"{tmp_path}/run.{kind}")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"run.{kind}").read_bytes().startswith(beginning)
    wrong = manyheads("inspect", f"{place}/run", "--curves", f"{tmp_path}/run.foo")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_there_is_no_panel_without_a_curve(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = [
        {"kind": kind, "step": step, "loss": 2.0, "perplexity": 9.0}
        for kind in ("train", "valid")
        for step in (1, 2)
    ]
    lines.append({"event": "end", "step": 2, "model": "mean of 1", "bleu": 3.0})
    for more, titles in (
        ([], ["loss", "perplexity"]),
        ([{"event": "valid", "step": 3, "bleu": 9.0}], CURVES),
    ):
        (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines + more))
        plot_curves(tmp_path, tmp_path / "run.svg")
        found = re.findall(r">(loss|perplexity|bleu)</text>", (tmp_path / "run.svg").read_text())
        assert found == [*titles]


def test_a_curve_of_one_line_falls_from_left_to_right() -> None:
    assert sparkline([4.0, 3.0, 2.0, 1.0]) == "█▆▃▁  4.000 to 1.000"
    assert sparkline([]) == sparkline([float("nan"), None]) == ""
    assert len(sparkline([float(n) for n in range(1000)]).split()[0]) <= 60


def test_average_makes_a_model_of_the_last_checkpoints(place: Path, tmp_path: Path) -> None:
    done = manyheads("average", f"{place}/run", "--last", "2", "--out", f"{tmp_path}/mean")
    assert done.stdout == f"{tmp_path}/mean: the mean of step-00000006, step-00000009\n", done.stderr
    assert checkpoint.read_info(tmp_path / "mean").step == 9
    told = json.loads(
        manyheads("average", f"{place}/run", "--last", "1", "--out", f"{tmp_path}/1", "--json").stdout
    )
    assert told == {"model": f"{tmp_path}/1", "checkpoints": ["step-00000009"]}
    wrong = manyheads("average", f"{place}/run", "--last", "50")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (3, 1)
    nothing = manyheads("average", f"{place}/data")
    assert (nothing.returncode, "no run with checkpoints" in nothing.stderr) == (3, True)


def test_doctor_tells_what_is_here() -> None:
    told = json.loads(manyheads("doctor", "--json").stdout)
    assert told["torch"].startswith("2.")
    assert told["attention"].split()[0] in ("padded", "fused")
    assert "free disk" in told
    assert "torch: 2." in manyheads("doctor").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gone.toml"], 2, "gone.toml: No such file or directory"),
        (["{place}/run.toml", "train.stpes=3"], 2, "unknown key train.stpes; did you mean train.steps?"),
        (["{place}/run.toml", "data.folder=gone", "--out", "{place}/x"], 3, "gone: no data folder"),
        (
            ["{place}/run.toml", "train.steps=10"],
            2,
            "{place}/run: began with another configuration (train.steps was 9",
        ),
        (["{place}/run.toml", "train.init_from=gone", "--out", "{place}/y"], 3, "gone: no model folder"),
    ],
)
def test_a_wrong_call_is_one_clear_line(place: Path, arguments: list[str], code: int, message: str) -> None:
    done = manyheads("train", *(one.format(place=place) for one in arguments))
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"manyheads: {message.format(place=place)}")
    assert "Traceback" not in done.stderr


def test_gpus_calls_torchrun_and_answers_with_our_codes(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU the ranks compute on the CPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    call = [sys.executable, "-m", "manyheads", "train", f"{place}/run.toml", "--gpus", "2"]
    done = subprocess.run([*call, "--out", f"{tmp_path}/run"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert checkpoint.read_info(tmp_path / "run" / "model").step == 9
    long = [*call, "train.steps=100000", "train.validate_every=100000", "--out", f"{tmp_path}/long"]
    with subprocess.Popen(long, stderr=subprocess.DEVNULL) as child:
        while not checkpoint.list_checkpoints(tmp_path / "long"):
            time.sleep(0.2)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 75
    stopped = checkpoint.list_checkpoints(tmp_path / "long")[-1]
    assert checkpoint.read_info(stopped).step > 0


@pytest.mark.parametrize("gpus", [[], ["--gpus", "2"]])
def test_a_full_disk_ends_with_4_and_the_bytes_needed(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: list[str]
) -> None:
    """No file may grow beyond some kilobytes, which is less than the weights take."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    call = [
        sys.executable,
        "-m",
        "manyheads",
        "train",
        f"{place}/run.toml",
        "--out",
        f"{tmp_path}/run",
        *gpus,
    ]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, 15_000))  # noqa: E731
    done = subprocess.run(call, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 4, done.stderr
    assert "no room; about" in done.stderr
    assert "bytes are needed" in done.stderr
    assert checkpoint.list_checkpoints(tmp_path / "run") == []
    assert subprocess.run(call, capture_output=True).returncode == 0  # with room again, it begins


def test_asked_twice_the_ranks_leave_at_once(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    call = [sys.executable, "-m", "manyheads", "train", f"{place}/run.toml", "train.steps=100000"]
    call += ["train.validate_every=100000", "--gpus", "2", "--out", f"{tmp_path}/run"]
    with subprocess.Popen(call, stderr=subprocess.DEVNULL) as child:
        while not checkpoint.list_checkpoints(tmp_path / "run"):
            time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        time.sleep(1)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 75
