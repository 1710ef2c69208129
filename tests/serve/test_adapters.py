"""Adapters chosen by each request."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

import manyheads as mh
from manyheads.serve import served_model
from manyheads.serve.adapted_models import AdaptedModels
from manyheads.serve.app import create_app
from manyheads.serve.continuous import ContinuousBatcher
from manyheads.serve.decoding_scheduler import DecodingScheduler
from manyheads.serve.jobs import Job
from manyheads.serve.limits import ServerLimits
from manyheads.serve.served_model import name_models
from manyheads.serve.translation_tasks import TranslateTask
from support.random_adapter import save_random_adapter
from support.untrained_model import save_untrained_model

TEXT = {"q": "I go home today.", "source": "en", "target": "ko"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_untrained_model(tmp_path_factory.mktemp("adapters") / "model")
    for seed, name in ((3, "captions"), (5, "talks")):  # whose translations differ
        save_random_adapter(folder, name, seed=seed)
    return folder


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    app = create_app(name_models([mh.load(folder, device="cpu")]))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def translate(client: TestClient, **fields: object) -> str:
    response = client.post("/translate", json={**TEXT, **fields})
    assert response.status_code == 200, response.text
    return str(response.json()["translatedText"])


def test_each_request_chooses_its_adapter(client: TestClient, folder: Path) -> None:
    expected = {
        name: mh.load(folder, device="cpu", adapter=name).translate(TEXT["q"]).text
        for name in (None, "captions", "talks")
    }
    assert len(set(expected.values())) == 3
    for name in (None, "captions", "talks", None, "captions"):
        assert translate(client, adapter=name) == expected[name]
    html = translate(client, adapter="talks", format="html")
    assert html == translate(client, adapter="talks", q=TEXT["q"])
    assert translate(client, adapter="") == expected[None]


def test_requests_with_different_adapters_at_once_share_no_weights(client: TestClient) -> None:
    names = ["", "captions", "talks"]
    expected = [translate(client, adapter=name) for name in names]
    with ThreadPoolExecutor(9) as threads:
        results = list(threads.map(lambda name: translate(client, adapter=name), names * 6))
    assert len(set(expected)) == 3
    assert results == expected * 6


def test_scores_and_attention_are_those_of_the_adapter(client: TestClient) -> None:
    answers = {
        client.post("/score", json={**TEXT, "translation": "나는 집에 간다.", "adapter": name}).text
        for name in (None, "captions", "talks")
    }
    assert len(answers) == 3
    attention = {client.post("/attention", json={**TEXT, "adapter": name}).text for name in (None, "talks")}
    assert len(attention) == 2


def test_models_list_their_adapters_and_an_unknown_one_is_refused(client: TestClient) -> None:
    (model,) = client.get("/models").json()
    assert model["adapters"] == ["captions", "talks"]
    response = client.post("/translate", json={**TEXT, "adapter": "../weights"})
    assert response.status_code == 400
    assert response.json()["error"] == ("the model en-ko has no adapter '../weights'; it has captions, talks")


def test_an_adapter_of_another_model_is_refused_without_its_path(
    client: TestClient, folder: Path, tmp_path: Path
) -> None:
    other = save_untrained_model(tmp_path / "other", supported_length=30)
    path = save_random_adapter(other, "foreign")
    content = path.read_bytes()
    base = mh.load(folder, device="cpu")
    assert base.folder == folder
    target = folder / "adapters" / "foreign.safetensors"
    target.write_bytes(content.replace(content[content.index(b"base") :][:60], b"x" * 60))
    try:
        response = client.post("/translate", json={**TEXT, "adapter": "foreign"})
    finally:
        target.unlink()
    assert response.status_code == 400
    assert str(folder) not in response.text


def test_a_changed_adapter_is_merged_again_and_old_ones_are_dropped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model,) = name_models([mh.load(folder, device="cpu")])
    adapted = AdaptedModels(max_models=1)
    first = adapted.get(model, "captions")
    assert adapted.get(model, "captions") is first
    path = folder / "adapters" / "captions.safetensors"
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    second = adapted.get(model, "captions")
    assert second is not first
    assert first.retired_at is not None
    adapted.get(model, "talks")
    assert second.retired_at is not None
    assert model.retired_at is None
    batcher = ContinuousBatcher(ServerLimits(), print, print, print)
    for age, kept in ((600.0, [first, second]), (-1.0, [second])):
        monkeypatch.setattr(served_model, "RETIRED_SECONDS", age)
        for other in (first, second)[-len(kept) :]:
            join_stream(batcher, TranslateTask(other, nbest=len(kept)))
        assert [key.model for key in scheduler_of(batcher).streams] == kept
    assert first not in [key[0] for key in batcher.stages]
    batcher.shutdown()


def join_stream(batcher: ContinuousBatcher, task: TranslateTask) -> None:
    job = Job(task, ["I go home."], cast("asyncio.Future[list[Any]]", Future()))
    joining = batcher._prepare(job)
    assert joining.start_next_step() is not None
    scheduler_of(batcher)._find_stream(joining)


def scheduler_of(batcher: ContinuousBatcher) -> DecodingScheduler:
    assert isinstance(batcher.scheduler, DecodingScheduler)
    return batcher.scheduler
