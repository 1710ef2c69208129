"""`translate` and `score` with workers: the same lines as without."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manyheads as mh
from manyheads.bulk import resources
from manyheads.bulk.jobs import format_score
from manyheads.bulk.resources import plan_local_workers
from manyheads.cli.bulk import complete_ray_option, count_gpus_for
from manyheads.errors import RequestError
from support.untrained_model import save_untrained_model

LINES = [f"I go home {n}. We read a book." if n % 7 else "" for n in range(1200)]


def manyheads(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "manyheads", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained_model(tmp_path_factory.mktemp("bulk") / "model")


def test_workers_give_the_text_of_a_single_process(model: Path) -> None:
    text = "\n".join(LINES) + "\n"
    done = manyheads("translate", model, "--beam", 1, "--device", "cpu", "--workers", 2, text=text)
    assert (done.returncode, done.stderr) == (0, "")
    translator = mh.load(model, device="cpu")
    assert done.stdout.splitlines() == [translation.text for translation in translator.stream(LINES, beam=1)]


def test_parquet_is_scored_into_a_folder_and_the_same_command_goes_on(model: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"en": ["I go.", "We read."], "ko": ["간다.", "책"]}), tmp_path / "a.parquet")
    (tmp_path / "a.en").write_text("I go.\nWe read.\n", encoding="utf-8")
    (tmp_path / "a.ko").write_text("간다.\n책\n", encoding="utf-8")
    lines = manyheads("score", model, tmp_path / "a.en", tmp_path / "a.ko", "--workers", 1)
    scores = mh.load(model).score(["I go.", "We read."], ["간다.", "책"])
    assert lines.stdout.splitlines() == [format_score(score) for score in scores]
    job = ("score", model, tmp_path / "a.parquet", "--out", tmp_path / "out")
    done = manyheads(*job)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(tmp_path / "out" / "a.parquet").to_pylist()
    assert [f"{row['log_probability']:.4f}" for row in table] == [
        line.partition("\t")[0] for line in lines.stdout.splitlines()
    ]
    again = manyheads(*job)
    assert again.returncode == 0
    assert f"{tmp_path / 'out'}: 1 of 1 shards were complete before" in again.stderr


def test_sigterm_ends_a_job_that_can_go_on_with_75(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("\n".join(LINES * 80), encoding="utf-8")
    command = [sys.executable, "-m", "manyheads", "translate", str(model), str(tmp_path / "a.en")]
    command += ["--out", str(tmp_path / "out"), "--workers", "2", "--device", "cpu"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("out/.a.en*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 75
        assert process.stderr is not None
        assert process.stderr.read().endswith(
            f"manyheads: {tmp_path / 'out'}: stopped; the same command goes on\n"
        )
    assert not (tmp_path / "out" / "a.en").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["translate", "gone", "--workers", "2"], 3, "gone: not a model folder"),
        (["translate", "{model}", "gone.parquet"], 3, "gone.parquet: No such file or directory"),
        (["translate", "{model}", "--out", "out"], 2, "--out writes a shard for every file"),
        (["translate", "{model}", "--gpus", "x"], 2, "--gpus is 'x', but must be a number from 1"),
        (["translate", "{model}", "--gpus", "2", "--device", "cpu"], 2, "but --device is cpu"),
        (["translate", "{model}", "--ray=h:1", "--gpus", "2"], 2, "--gpus is for this machine"),
        (["score", "{model}", "{model}/manyheads.json"], 2, "needs the translations too: give TARGET"),
        (["translate", "{model}", "--workers", "2", "--beam", "0"], 2, "decoding.beam is 0"),
    ],
)
def test_a_wrong_call_with_workers_is_one_clear_line(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = manyheads(*(argument.format(model=model) for argument in arguments), text="a\n")
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_coordinator_does_not_import_torch() -> None:
    code = (
        "import sys\nimport manyheads.bulk.run, manyheads.bulk.ray_workers, manyheads.cli.translation\n"
        "sys.exit(','.join(name for name in ('torch', 'ray', 'pyarrow') if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("model a.en --ray", "model a.en --ray=local"),
        ("model --ray a.en", "model --ray=local a.en"),
        ("model --ray auto a.en", "model --ray auto a.en"),
        ("model --ray host:6379 a.en", "model --ray host:6379 a.en"),
        ("model --ray ray://host:10001", "model --ray ray://host:10001"),
        ("model --ray=host:6379 -- --ray", "model --ray=host:6379 -- --ray"),
        ("model --ray --beam 1", "model --ray=local --beam 1"),
    ],
)
def test_ray_needs_no_address(arguments: str, expected: str) -> None:
    assert complete_ray_option(arguments.split()) == expected.split()


# ---- what workers get


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("torch", None, None, None), (4, 4, 2)),
        (("torch", None, "2", None), (2, 2, 4)),
        (("torch", None, "all", 8), (8, 4, 1)),
        (("torch", None, None, 3), (3, 3, 2)),
        (("torch", "cpu", None, None), (2, 0, 4)),
        (("ctranslate2:int8", None, None, 4), (4, 0, 2)),
    ],
)
def test_a_machine_is_divided_among_workers(
    monkeypatch: pytest.MonkeyPatch, options: tuple, expected: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(resources, "count_gpus", lambda: 4)
    monkeypatch.setattr(resources, "count_cpus", lambda: 8)
    plan = plan_local_workers(*options)
    assert (plan.num_workers, plan.num_gpus, plan.threads) == expected


@pytest.mark.parametrize(
    ("cores", "num_gpus", "expected"), [(16, 1, 3), (8, 1, 2), (2, 1, 1), (16, 8, 8), (64, 8, 16), (16, 0, 4)]
)
def test_several_workers_share_a_gpu_if_there_are_cores_for_them(
    cores: int, num_gpus: int, expected: int
) -> None:
    assert resources.count_workers(cores, num_gpus) == expected


def test_gpus_count_for_large_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyheads.cuda.driver.count_gpus", lambda: 2)
    small, large = tmp_path / "small.en", tmp_path / "large.en"
    small.write_text("a\n")
    large.write_bytes(b"a" * 4_000_000)
    assert count_gpus_for([small, large], None, None) == 2
    assert count_gpus_for([small], None, None) == 0
    assert count_gpus_for([large], None, "cpu") == 0
    assert count_gpus_for([large], "ctranslate2", None) == 0
    with large.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert count_gpus_for([], "torch", "cuda") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("torch", None, "5", None), "--gpus is 5, but this machine has 4: give at most that many"),
        (("ctranslate2", None, "1", None), "the engine ctranslate2 runs on the CPU"),
        (("torch", None, "0", None), "must be a number from 1"),
    ],
)
def test_more_than_a_machine_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, options: tuple, message: str
) -> None:
    monkeypatch.setattr(resources, "count_gpus", lambda: 4)
    with pytest.raises(RequestError, match=message):
        plan_local_workers(*options)


def test_every_worker_sees_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    plan = resources.WorkerResources(3, 2, 1)
    assert [entry["CUDA_VISIBLE_DEVICES"] for entry in plan.list_environments()] == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-7")
    assert [entry["CUDA_VISIBLE_DEVICES"] for entry in plan.list_environments()] == ["5", "GPU-7", "5"]
    on_cpu = resources.WorkerResources(2, 0, 3)
    assert on_cpu.list_environments() == [{"OMP_NUM_THREADS": "3"}] * 2
    assert json.dumps(on_cpu.device_type) == '"cpu"'
    assert os.environ.get("OMP_NUM_THREADS") is None
