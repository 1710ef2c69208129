"""Bulk jobs on a Ray that is started for the test: the same text, also when a worker is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import manyheads as mh
from manyheads.bulk import ray_workers
from manyheads.bulk.jobs import BulkJob
from manyheads.bulk.model_files import hash_model, read_model_files
from manyheads.bulk.ray_workers import ClusterWatch, can_run_worker, find_model, plan_ray_workers
from manyheads.bulk.resources import WorkerResources
from manyheads.errors import RequestError
from support.untrained_model import save_untrained_model

HAS_RAY = pytest.mark.skipif(
    not ray_workers.is_installed(), reason="Ray is not installed: `make test-all` installs it"
)
LINES = [f"I go home {n}. We read a book." if n % 7 else "" for n in range(6000)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained_model(tmp_path_factory.mktemp("ray") / "model")


def find_actors(ancestor: int) -> set[int]:
    """Return the processes of actors below a process; Ray names them after the class."""
    parents, actors = {}, []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
                stat = (entry / "stat").read_text(encoding="utf-8")
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
            if command.startswith(b"ray::RayWorker"):
                actors.append(int(entry.name))
    return {actor for actor in actors if ancestor in list_ancestors(actor, parents)}


def list_ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    ancestors = []
    while pid := parents.get(pid, 0):
        ancestors.append(pid)
    return ancestors


@HAS_RAY
@pytest.mark.heavy
def test_ray_gives_the_text_of_a_single_process_and_replaces_a_killed_worker(
    model: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.en").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "manyheads", "translate", str(model), str(tmp_path / "a.en")]
    command += ["--beam", "1", "--device", "cpu", "--workers", "2", "--ray"]
    out, errors = (tmp_path / "a.ko").open("wb"), (tmp_path / "errors").open("wb")
    with out, errors, subprocess.Popen(command, stdout=out, stderr=errors) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "a.ko").stat().st_size and time.monotonic() < deadline:
            time.sleep(0.02)
        actors = find_actors(process.pid)
        os.kill(min(actors), signal.SIGKILL)
        assert process.wait(timeout=300) == 0, (tmp_path / "errors").read_text(encoding="utf-8")
    translator = mh.load(model, device="cpu")
    expected = [translation.text for translation in translator.stream(LINES, beam=1)]
    assert (tmp_path / "a.ko").read_text(encoding="utf-8").splitlines() == expected
    assert "a worker was lost by Ray; another one takes its" in (tmp_path / "errors").read_text(
        encoding="utf-8"
    )
    assert not [actor for actor in actors if Path(f"/proc/{actor}").exists()]


@HAS_RAY
@pytest.mark.heavy
def test_an_address_without_a_cluster_is_one_clear_line(model: Path) -> None:
    command = [sys.executable, "-m", "manyheads", "translate", str(model), "--ray", "127.0.0.1:9"]
    done = subprocess.run(command, input=b"a\n", capture_output=True)
    assert done.returncode == 2
    assert b"manyheads: --ray is 127.0.0.1:9, but there is no Ray cluster" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(ray_workers.is_installed(), reason="Ray is installed")
def test_without_ray_the_message_names_the_extra(model: Path) -> None:
    with pytest.raises(RequestError, match=r"pip install '.*\[ray\]'"):
        ray_workers.import_ray()


# ---- what needs no Ray


def make_node(cpus: int, gpus: int = 0, is_alive: bool = True) -> dict:
    return {"Alive": is_alive, "Resources": {"CPU": float(cpus), "GPU": float(gpus)}}


@pytest.mark.parametrize(
    ("nodes", "job", "workers", "expected"),
    [
        ([make_node(32, 8), make_node(32, 8)], {}, None, (16, 16, 4)),
        ([make_node(32, 8), make_node(32, 8)], {}, 3, (3, 3, 4)),
        ([make_node(32, 8)], {"engine": "ctranslate2:int8"}, None, (8, 0, 4)),
        ([make_node(32, 8)], {"device": "cpu"}, 4, (4, 0, 8)),
        ([make_node(6), make_node(6), make_node(6, is_alive=False)], {}, None, (2, 0, 4)),
        ([make_node(6), make_node(6)], {}, 5, (5, 0, 2)),
        ([make_node(2)], {}, None, (1, 0, 2)),
    ],
)
def test_a_cluster_is_divided_among_workers(
    nodes: list, job: dict, workers: int | None, expected: tuple[int, int, int]
) -> None:
    resources = plan_ray_workers(nodes, BulkJob("translate", ["m"], **job), workers)
    assert (resources.num_workers, resources.num_gpus, resources.threads) == expected


@pytest.mark.parametrize(
    ("nodes", "job", "workers", "message"),
    [
        ([make_node(4)], {"device": "cuda"}, None, "--device is cuda, but the cluster has no GPU"),
        ([make_node(4, 2)], {}, 3, "--workers is 3, but the cluster has 2 GPUs"),
        ([make_node(4), make_node(2)], {}, 7, "--workers is 7, but the cluster has 6 CPUs"),
    ],
)
def test_more_workers_than_a_cluster_has_resources_for_are_refused(
    nodes: list, job: dict, workers: int | None, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        plan_ray_workers(nodes, BulkJob("translate", ["m"], **job), workers)


@pytest.mark.parametrize(
    ("nodes", "num_gpus", "expected"),
    [
        ([make_node(4)], 0, True),
        ([make_node(4, is_alive=False), make_node(1)], 0, False),
        ([make_node(4)], 1, False),
        ([make_node(4, 1)], 1, True),
        ([], 0, False),
    ],
)
def test_a_worker_needs_a_node_that_is_alive_and_has_its_resources(
    nodes: list, num_gpus: int, expected: bool
) -> None:
    assert can_run_worker(nodes, WorkerResources(1, num_gpus, 2)) == expected


def test_a_cluster_that_does_not_answer_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "POLL_SECONDS", 0.01)
    answers, blocked = [[make_node(4)]] * 3, threading.Event()

    def list_nodes() -> list:
        return answers.pop() if answers else [blocked.wait(10)][:0]

    watch = ClusterWatch(list_nodes, WorkerResources(1, 0, 2))
    deadline = time.monotonic() + 10
    while watch.find_lost_seconds() < 0.2 and time.monotonic() < deadline:
        time.sleep(0.01)
    blocked.set()
    watch.stop()
    assert not answers
    assert watch.find_lost_seconds() >= 0.2


def test_a_model_is_read_from_its_path_if_it_is_the_same_there(model: Path, tmp_path: Path) -> None:
    assert find_model(str(model), tmp_path / "copy", hash_model(model), []) == str(model)
    assert not (tmp_path / "copy").exists()
    with pytest.raises(RequestError, match="is another model, or none, on a worker's machine"):
        find_model(str(model), tmp_path / "copy", "another hash", [])


@HAS_RAY
@pytest.mark.heavy
def test_a_model_is_sent_where_its_path_does_not_exist(model: Path, tmp_path: Path) -> None:
    import ray

    ray_workers.connect(ray, "local", 1)
    try:
        reference = ray.put(read_model_files(model))
        folder = find_model(str(tmp_path / "gone"), tmp_path / "copy", hash_model(model), [reference])
    finally:
        ray.shutdown()
    assert folder == str(tmp_path / "copy")
    lines = LINES[:20]
    assert mh.load(folder).translate(lines, beam=1) == mh.load(model).translate(lines, beam=1)
