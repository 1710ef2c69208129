"""The training commands: train, inspect, average, doctor."""

import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads import checkpoint
from manyheads.cli.inspection import format_doctor_report
from manyheads.config import Recipe
from manyheads.data.prepare import prepare
from manyheads.train.run import train
from manyheads.train.run_summary import CURVES, plot_curves, sparkline

PAIRS = [(f"I have {n} books.", f"나는 책이 {n}권 있다.") for n in range(120)]


def manyheads(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "manyheads", *arguments], capture_output=True, text=True)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a configuration, and a finished run."""
    folder = tmp_path_factory.mktemp("workspace")
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
            card=False,
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


def test_inspect_summarizes_a_run(workspace: Path) -> None:
    done = manyheads("inspect", f"{workspace}/run")
    assert done.returncode == 0, done.stderr
    assert "model: intact, step 9" in done.stdout
    assert "step-00000009: intact, step 9" in done.stdout
    assert "validation, step 9: loss" in done.stdout
    summary = json.loads(manyheads("inspect", f"{workspace}/run", "--json").stdout)
    assert summary["latest"]["train"]["step"] == 9
    assert summary["latest"]["end"]["model"]


@pytest.mark.parametrize(
    ("folder", "option", "message"),
    [
        ("run", "--sentence=I go.", "--sentence and --verify need a data folder, but {folder} is a run"),
        (
            "run/model",
            "--sentence=I go.",
            "--sentence and --verify need a data folder, but {folder} is a model",
        ),
        ("run/model", "--verify", "--sentence and --verify need a data folder, but {folder} is a model"),
        ("run/model", "--curves=a.svg", "--curves needs a run folder, but {folder} is not one"),
        ("data", "--curves=a.svg", "--curves needs a run folder, but {folder} is not one"),
    ],
)
def test_inspect_refuses_options_of_other_folders(
    workspace: Path, folder: str, option: str, message: str
) -> None:
    done = manyheads("inspect", f"{workspace}/{folder}", option)
    assert done.stderr == f"manyheads: {message.format(folder=f'{workspace}/{folder}')}\n"
    assert (done.returncode, done.stdout) == (2, "")


def test_inspect_plots_curves(workspace: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for extension, start in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        done = manyheads("inspect", f"{workspace}/run", "--curves", f"{tmp_path}/run.{extension}")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"run.{extension}").read_bytes().startswith(start)
    wrong = manyheads("inspect", f"{workspace}/run", "--curves", f"{tmp_path}/run.foo")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_curves_without_data_have_no_panel(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    entries = [
        {"event": event, "step": step, "loss": 2.0, "perplexity": 9.0}
        for event in ("train", "valid")
        for step in (1, 2)
    ]
    entries.append({"event": "end", "step": 2, "model": "average of 1", "bleu": 3.0})
    for more, titles in (
        ([], ["loss", "perplexity"]),
        ([{"event": "valid", "step": 3, "bleu": 9.0}], CURVES),
    ):
        (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in entries + more))
        plot_curves(tmp_path, tmp_path / "run.svg")
        shown = re.findall(r">(loss|perplexity|bleu)</text>", (tmp_path / "run.svg").read_text())
        assert shown == [*titles]


def test_a_sparkline_falls_from_left_to_right() -> None:
    assert sparkline([4.0, 3.0, 2.0, 1.0]) == "█▆▃▁  4.000 to 1.000"
    assert sparkline([]) == sparkline([float("nan"), None]) == ""
    assert len(sparkline([float(n) for n in range(1000)]).split()[0]) <= 60


def test_average_writes_a_model_of_the_last_checkpoints(workspace: Path, tmp_path: Path) -> None:
    done = manyheads("average", f"{workspace}/run", "--last", "2", "--out", f"{tmp_path}/mean")
    assert done.stdout == f"{tmp_path}/mean: the average of step-00000006, step-00000009\n", done.stderr
    assert checkpoint.read_info(tmp_path / "mean").step == 9
    report = json.loads(
        manyheads("average", f"{workspace}/run", "--last", "1", "--out", f"{tmp_path}/1", "--json").stdout
    )
    assert report == {"model": f"{tmp_path}/1", "checkpoints": ["step-00000009"]}
    wrong = manyheads("average", f"{workspace}/run", "--last", "50")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (3, 1)
    nothing = manyheads("average", f"{workspace}/data")
    assert (nothing.returncode, "no run with checkpoints" in nothing.stderr) == (3, True)


def test_doctor_reports_versions_attention_and_disk() -> None:
    report = json.loads(manyheads("doctor", "--json").stdout)
    assert report["torch"].startswith("2.")
    assert report["attention"].split()[0] in ("padded", "fused")
    assert "free disk" in report
    assert report["threads"].endswith("which wait asleep (OMP_WAIT_POLICY=passive)")
    assert "torch: 2." in manyheads("doctor").stdout


def test_the_waiting_policy_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert "by spinning (OMP_WAIT_POLICY=active)" in manyheads("doctor").stdout


def test_doctor_prints_a_line_for_each_warning() -> None:
    text = format_doctor_report({"cores": 2, "warnings": ["no GPU: it's slow", "little disk"]})
    assert text == "cores: 2\nwarnings:\n  no GPU: it's slow\n  little disk"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gone.toml"], 3, "gone.toml: No such file or directory"),
        (["{workspace}/run.toml", "train.stpes=3"], 2, "unknown key train.stpes; did you mean train.steps?"),
        (
            ["{workspace}/run.toml", "data.folder=gone", "--out", "{workspace}/x"],
            3,
            "gone: not a data folder",
        ),
        (
            ["{workspace}/run.toml", "train.steps=10"],
            2,
            "{workspace}/run: started with another configuration (train.steps was 9",
        ),
        (
            ["{workspace}/run.toml", "train.init_from=gone", "--out", "{workspace}/y"],
            3,
            "gone: not a model folder",
        ),
    ],
)
def test_a_wrong_call_prints_one_line(workspace: Path, arguments: list[str], code: int, message: str) -> None:
    done = manyheads("train", *(argument.format(workspace=workspace) for argument in arguments))
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"manyheads: {message.format(workspace=workspace)}")
    assert "Traceback" not in done.stderr


@pytest.mark.heavy
def test_gpus_runs_ranks_and_returns_our_exit_codes(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU the ranks train on the CPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    call = [sys.executable, "-m", "manyheads", "train", f"{workspace}/run.toml", "--gpus", "2"]
    done = subprocess.run([*call, "--out", f"{tmp_path}/run"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert checkpoint.read_info(tmp_path / "run" / "model").step == 9
    long = [*call, "train.steps=100000", "train.validate_every=100000", "--out", f"{tmp_path}/long"]
    with subprocess.Popen(long, stderr=subprocess.DEVNULL) as child:
        while not checkpoint.list_checkpoints(tmp_path / "long"):
            time.sleep(0.2)
        ranks = list_children(child.pid)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 75
        assert len(ranks) == 2
        assert not any(is_running(rank) for rank in ranks)
    stopped = checkpoint.list_checkpoints(tmp_path / "long")[-1]
    assert checkpoint.read_info(stopped).step > 0


@pytest.fixture
def two_ranks(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator["subprocess.Popen[bytes]"]:
    """A long run of two ranks, which has written its first checkpoint."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    call = [sys.executable, "-m", "manyheads", "train", f"{workspace}/run.toml", "train.steps=100000"]
    call += ["train.validate_every=100000", "--gpus", "2", "--out", f"{tmp_path}/run"]
    with subprocess.Popen(call, stderr=subprocess.DEVNULL) as child:
        while not checkpoint.list_checkpoints(tmp_path / "run"):
            assert child.poll() is None
            time.sleep(0.2)
        yield child
        child.kill()


def list_children(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in children]


def read_listening_addresses(process: int) -> set[str]:
    """Return the local addresses, in hexadecimal, on which a process listens."""
    links = Path(f"/proc/{process}/fd").iterdir()
    sockets = {link.readlink().name.removeprefix("socket:[").removesuffix("]") for link in links}
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and columns[9] in sockets:
                addresses.add(columns[1].partition(":")[0])
    return addresses


def is_running(process: int) -> bool:
    path = Path(f"/proc/{process}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


def test_ranks_of_gpus_listen_on_the_loopback_interface_only(two_ranks: "subprocess.Popen[bytes]") -> None:
    """And none of these ports belongs to a store, whose contents torchrun would unpickle."""
    ranks = list_children(two_ranks.pid)
    assert len(ranks) == 2
    addresses = [read_listening_addresses(process) for process in (two_ranks.pid, *ranks)]
    assert set().union(*addresses) <= {"0100007F"}
    assert addresses[0] == set()
    for rank in ranks:  # where the name of the machine leads to another interface, these decide
        environment = Path(f"/proc/{rank}/environ").read_bytes().split(b"\0")
        assert {b"GLOO_SOCKET_IFNAME=lo", b"NCCL_SOCKET_IFNAME=lo"} <= set(environment)


def test_several_machines_meet_on_the_address_given_and_on_no_other(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two launchers stand for two machines. Gradients go over the interface of the address."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        port = probe.getsockname()[1]
    call = [sys.executable, "-m", "manyheads", "train", f"{workspace}/run.toml", "train.steps=100000"]
    call += ["train.validate_every=100000", "--gpus", "1", "--machines", "2", "--out", f"{tmp_path}/run"]
    call += ["--address", f"127.0.0.2:{port}", "--machine"]
    second, first = (subprocess.Popen([*call, index], stderr=subprocess.DEVNULL) for index in "10")
    try:
        while not checkpoint.list_checkpoints(tmp_path / "run"):
            assert (first.poll(), second.poll()) == (None, None)
            time.sleep(0.2)
        addresses = []
        for child in (first, second):
            processes = (child.pid, *list_children(child.pid))
            addresses.append(set().union(*map(read_listening_addresses, processes)))
            child.send_signal(signal.SIGTERM)
        assert addresses == [{"0100007F", "0200007F"}, {"0100007F"}]
        assert (first.wait(60), second.wait(60)) == (75, 75)
    finally:
        for child in (first, second):
            child.kill()
            child.wait()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--machines", "2"], "--machines, --machine and --address belong together"),
        (["--machines", "2", "--machine", "2", "--address", "h:1"], "must be less than --machines"),
        (["--machines", "2", "--machine", "0", "--address", "host"], "must be HOST:PORT"),
        (["--machines", "2", "--machine", "0", "--address", "h:99999"], "must be HOST:PORT"),
        (
            ["--machines", "2", "--machine", "0", "--address", "192.0.2.1:29500"],
            "give an address of machine 0",
        ),
    ],
)
def test_wrong_options_of_several_machines_are_one_line(
    workspace: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    call = [sys.executable, "-m", "manyheads", "train", f"{workspace}/run.toml", "--out", f"{tmp_path}/run"]
    done = subprocess.run([*call, "--gpus", "1", *options], capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_ranks_stop_with_a_checkpoint_when_their_launcher_is_killed(
    two_ranks: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    ranks = list_children(two_ranks.pid)
    before = checkpoint.list_checkpoints(tmp_path / "run")[-1]
    two_ranks.kill()
    deadline = time.monotonic() + 60
    while any(map(is_running, ranks)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    after = checkpoint.list_checkpoints(tmp_path / "run")[-1]
    assert checkpoint.read_info(after).step >= checkpoint.read_info(before).step


def test_gpus_exits_with_75_if_it_is_stopped_before_training(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    call = [sys.executable, "-m", "manyheads", "train", f"{workspace}/run.toml", "--gpus", "2"]
    with subprocess.Popen([*call, "--out", f"{tmp_path}/run"], stderr=subprocess.DEVNULL) as child:
        while not list_children(child.pid):
            time.sleep(0.05)
        time.sleep(0.3)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 75


@pytest.mark.parametrize("gpus", [[], ["--gpus", "2"]])
def test_a_full_disk_exits_with_4_and_reports_the_bytes_needed(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: list[str]
) -> None:
    """No file may exceed some kilobytes, which is less than the weights need."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    call = [
        sys.executable,
        "-m",
        "manyheads",
        "train",
        f"{workspace}/run.toml",
        "--out",
        f"{tmp_path}/run",
        *gpus,
    ]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, 15_000))  # noqa: E731
    done = subprocess.run(call, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 4, done.stderr
    assert "the disk is full; about" in done.stderr
    assert "bytes are needed" in done.stderr
    assert checkpoint.list_checkpoints(tmp_path / "run") == []
    assert subprocess.run(call, capture_output=True).returncode == 0  # with enough space it starts


def test_a_second_ctrl_c_ends_all_ranks_at_once(two_ranks: "subprocess.Popen[bytes]") -> None:
    two_ranks.send_signal(signal.SIGINT)
    time.sleep(1)
    two_ranks.send_signal(signal.SIGINT)
    assert two_ranks.wait(60) == 75
