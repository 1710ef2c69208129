"""Training as processes: signals, and several ranks."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.train import launcher
from manyheads.train.machines import Machines
from manyheads.train.run import train
from support.small_run import are_identical, make_config, read_entries, read_losses, read_weights


def make_command(data: Path, folder: Path, **changes: Any) -> list[str]:
    make_config(data, **changes).save(folder / "run.toml")
    return [sys.executable, "-m", "manyheads", "train", f"{folder}/run.toml", "--device", "cpu"]


def make_patched_command(folder: Path, patch: str, call: list[str]) -> list[str]:
    """Return the command as a script that runs some lines first."""
    script = folder / "patched.py"
    imports = (
        "import os",
        "from manyheads import cli, errors",
        "from manyheads.train.step import EagerStep",
        "from manyheads.train.trainer import Trainer",
    )
    script.write_text("\n".join([*imports, 'rank = os.environ.get("RANK")', patch, "cli.main()\n"]))
    return [call[0], str(script), *call[3:]]


def run_ranks(number: int, call: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={number}"]
    return subprocess.run([*launcher, *call[1:]], env=environment, capture_output=True, text=True)


def check_ranks(number: int, call: list[str]) -> None:
    done = run_ranks(number, call)
    assert done.returncode == 0, done.stderr


def test_sigterm_saves_and_exits_with_75_and_the_run_resumes(data: Path, tmp_path: Path) -> None:
    call = make_command(data, tmp_path, steps=400, checkpoint_every=100, validate_every=100)
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        while "step 5 of" not in child.stderr.readline():
            pass
        child.send_signal(signal.SIGTERM)
        output = child.stderr.read()
    assert child.returncode == 75
    assert "stopped; the same command resumes it" in output
    stopped = checkpoint.read_info(checkpoint.list_checkpoints(tmp_path / "run")[-1]).step
    assert 5 <= stopped < 400
    again = subprocess.run(call, stderr=subprocess.PIPE, text=True)
    assert again.returncode == 0, again.stderr
    assert f"resumed after step {stopped}" in again.stderr
    assert [entry["step"] for entry in read_entries(tmp_path / "run")] == list(range(1, 401))


def test_a_second_sigterm_exits_at_once(data: Path, tmp_path: Path) -> None:
    """Even while it saves, which takes a minute here, in one call that Python's handlers do not interrupt."""
    patch = """
import threading
from manyheads import checkpoint
def slow(folder, *rest, **more):
    print("saving", flush=True)
    threading.Event().wait(60)
checkpoint.save = slow"""
    call = make_patched_command(
        tmp_path, patch, make_command(data, tmp_path, steps=10**6, checkpoint_every=10**6)
    )
    call += ["train.validate_every=1000000"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        while "step 5 of" not in child.stderr.readline():
            pass
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "saving\n"
        time.sleep(1)
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 75
    assert checkpoint.list_checkpoints(tmp_path / "run") == []


def test_a_failing_rank_ends_all_ranks_with_its_error(data: Path, tmp_path: Path) -> None:
    patch = """
step = Trainer._step
def failing(self, batch):
    if rank == "1" and self.progress.step == 3:
        raise errors.DataError("rank 1 cannot read its share")
    step(self, batch)
Trainer._step = failing"""
    done = run_ranks(2, make_patched_command(tmp_path, patch, make_command(data, tmp_path, steps=10**6)))
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if line.startswith("manyheads: ")]
    assert ours[0] == "manyheads: rank 1 cannot read its share"
    assert all("lost the connection to another rank" in line for line in ours[1:])


@pytest.mark.heavy
def test_a_nonfinite_loss_on_one_rank_is_skipped_on_all(data: Path, tmp_path: Path) -> None:
    patch = """
run, loss = EagerStep.run, EagerStep._loss
def run_step(self, inputs):
    self.step = inputs.step
    return run(self, inputs)
def spoil_loss(self, batch):
    total, nll = loss(self, batch)
    return (total * float("nan") if rank == "1" and self.step == 5 else total), nll
EagerStep.run, EagerStep._loss = run_step, spoil_loss"""
    check_ranks(2, make_patched_command(tmp_path, patch, make_command(data, tmp_path)))
    skipped = [entry["skipped_steps"] for entry in read_entries(tmp_path / "run")]
    assert skipped == [0] * 4 + [1] * 8
    assert all(torch.isfinite(weight).all() for weight in read_weights(tmp_path / "run").values())


@pytest.mark.heavy
def test_a_rank_may_have_an_empty_batch(data: Path, tmp_path: Path) -> None:
    """Batches of a pair or two, so that the second rank's share is often empty."""
    few = replace(make_config(data, dropout=0.0), data=mh.DataConfig(folder=str(data), batch_tokens=13))
    train(few, tmp_path / "1" / "run", device="cpu")
    (tmp_path / "2").mkdir()
    check_ranks(2, [*make_command(data, tmp_path / "2", dropout=0.0), "data.batch_tokens=13"])
    assert read_losses(tmp_path / "2" / "run") == pytest.approx(read_losses(tmp_path / "1" / "run"), abs=1e-5)


@pytest.mark.heavy
def test_two_ranks_average_more_checkpoints_than_an_int64_has_bits(data: Path, tmp_path: Path) -> None:
    """The main rank tells the others which checkpoints are intact."""
    count = 70
    changes = {"steps": count, "checkpoint_every": 1, "validate_every": 10**6, "log_every": count}
    call = make_command(data, tmp_path, average_checkpoints=count, keep_checkpoints=1, **changes)
    check_ranks(2, call)
    (end,) = read_entries(tmp_path / "run", "end")
    assert end["model"] == f"average of the last {count} checkpoints"
    folders = [checkpoint.checkpoint_path(tmp_path / "run", step) for step in range(1, count + 1)]
    assert are_identical(read_weights(tmp_path / "run"), checkpoint.average_weights(folders))


def test_two_ranks_equal_one_and_their_number_may_change(data: Path, tmp_path: Path) -> None:
    def train_on(number: int, folder: Path, steps: int) -> None:
        changes = {"dropout": 0.0, "steps": steps, "checkpoint_every": 25, "validate_every": 25}
        if number == 1:
            train(make_config(data, **changes), folder / "run", change_config=True, device="cpu")
        else:
            check_ranks(number, [*make_command(data, folder, **changes), "--change-config"])

    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        train_on(number, tmp_path / str(number), 25)
    for first, then in ((1, 1), (2, 2), (2, 1), (1, 2)):
        folder = tmp_path / f"{first}-{then}"
        shutil.copytree(tmp_path / str(first), folder)
        train_on(then, folder, 50)
        for event in ("train", "valid"):
            losses = read_losses(tmp_path / "1-1" / "run", event)
            assert read_losses(folder / "run", event) == pytest.approx(losses, abs=1e-5)
            assert len(losses) == (50 if event == "train" else 2)


def catches_sigterm(process: int) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_sigterm_in_the_first_seconds_exits_with_75(data: Path, tmp_path: Path, seconds: float) -> None:
    make_config(data, steps=100_000, validate_every=100_000).save(tmp_path / "run.toml")
    call = [sys.executable, "-m", "manyheads", "train", f"{tmp_path}/run.toml", "--device", "cpu"]
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as child:
        while not catches_sigterm(child.pid):
            time.sleep(0.002)
        assert "libtorch" not in Path(f"/proc/{child.pid}/maps").read_text(), "before torch is imported"
        time.sleep(seconds)
        child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=60)
    assert child.returncode == 75, errors
    assert "Traceback" not in errors
    assert "stopped" in errors


@pytest.mark.parametrize(
    "address",
    [
        *(
            "256.1.1.1:1",
            "127.1:1",
            "[::1]:1",
            "a b:1",
            "\x1b[31m:1",
            "http://x:1",
            "a..b:1",
            ".:1",
            "-:1",
            "%:1",
        ),
        *(f"{'x' * 64}:1", f"{'a.' * 150}b:1", "ü:1", "127.0.0.1:\u0663", "127.0.0.1:0", "127.0.0.1:65536"),
    ],
)
def test_an_address_that_no_machine_can_have_is_refused_at_once(address: str) -> None:
    with pytest.raises(mh.ConfigError, match="--address is"):
        Machines.parse(2, 0, address)


@pytest.mark.parametrize("address", ["10.0.0.1:29500", "node-1.cluster.local:1", "gpu_2:65535", "a.b.:80"])
def test_an_address_that_a_machine_can_have_is_accepted(address: str) -> None:
    machines = Machines.parse(2, 0, address)
    assert machines is not None
    assert machines.address == address


def test_more_processes_than_a_machine_can_run_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "start_ranks", lambda *_: pytest.fail("started"))
    for number in (10_000, 10**19):
        with pytest.raises(mh.ConfigError, match=r"--gpus is 10,000.*at most"):
            launcher.launch(number, ["run.toml", "--device", "cpu"])
