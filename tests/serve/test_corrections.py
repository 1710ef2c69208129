"""Corrections over HTTP: off by default, behind API keys, limited, and never those of another user."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import manyheads as mh
from manyheads import checkpoint
from manyheads.errors import ConfigError
from manyheads.serve.api_keys import read_api_keys
from manyheads.serve.app import create_app
from manyheads.serve.limits import ServerLimits
from manyheads.serve.served_model import name_models
from manyheads.serve.translation_tasks import TranslateTask
from support.random_adapter import save_random_adapter
from support.untrained_model import save_untrained_model

TEXT = {"q": "I go home.", "source": "en", "target": "ko"}
RIGHT = "나는 집에 간다."
KEYS = {"mina": "key-of-mina", "jun": "key-of-jun"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_untrained_model(tmp_path / "model")


@contextmanager
def open_client(folder: Path, **options: Any) -> Iterator[TestClient]:
    options = {"user_keys": KEYS, "corrections": True, "log_requests": False} | options
    app = create_app(name_models([mh.load(folder, device="cpu")]), **options)
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def post(client: TestClient, path: str, user: str = "mina", **fields: Any) -> Any:
    return client.post(path, json={**TEXT, **fields, "api_key": KEYS[user]})


def test_a_suggestion_is_used_at_once_by_its_user_alone_and_can_be_undone(folder: Path) -> None:
    with open_client(folder) as client:
        before = post(client, "/translate").json()
        assert "corrections" not in before
        response = post(client, "/suggest", s=RIGHT)
        assert (response.status_code, response.json()) == (200, {"success": True}), "as LibreTranslate"
        after = post(client, "/translate").json()
        assert (after["translatedText"], after["notes"]) == (RIGHT, ["from a correction"])
        assert [(match["match"], match["who"]) for match in after["corrections"]] == [("exact", "mina")]
        assert post(client, "/translate", "jun").json() == before
        similar = post(client, "/translate", q=["I go home now.", "We read."]).json()["corrections"]
        assert [[match["match"] for match in matches] for matches in similar] == [["similar"], []]
        assert post(client, "/suggest/undo", "jun").json() == {"success": False}
        assert post(client, "/translate").json()["translatedText"] == RIGHT
        assert post(client, "/suggest/undo").json() == {"success": True}
        assert post(client, "/translate").json() == before


def test_two_users_correct_the_same_text_differently_in_one_batch(folder: Path) -> None:
    with open_client(folder) as client:
        for user in KEYS:
            form = {**TEXT, "s": f"of {user}", "api_key": KEYS[user]}
            assert client.post("/suggest", data=form).status_code == 200
        for user in (*KEYS, *KEYS):
            assert post(client, "/translate", user).json()["translatedText"] == f"of {user}"
        assert client.get("/frontend/settings").json()["suggestions"] is True


def test_suggestions_are_off_by_default_and_corrections_are_not_used(folder: Path) -> None:
    with open_client(folder) as client:
        post(client, "/suggest", s=RIGHT)
    with open_client(folder, corrections=False) as client:
        response = post(client, "/suggest", s=RIGHT)
        assert response.status_code == 403
        assert "disabled" in response.json()["error"]
        assert post(client, "/suggest/undo").status_code == 403
        assert post(client, "/translate").json()["translatedText"] != RIGHT
        assert client.get("/frontend/settings").json()["suggestions"] is False


def test_corrections_need_an_api_key(folder: Path) -> None:
    with pytest.raises(ConfigError, match="corrections need an API key"), open_client(folder, user_keys={}):
        pass
    with open_client(folder) as client:
        for path in ("/suggest", "/suggest/undo", "/translate"):
            assert client.post(path, json={**TEXT, "s": RIGHT}).status_code == 403
            assert client.post(path, json={**TEXT, "s": RIGHT, "api_key": "x"}).status_code == 403


def test_a_user_may_add_so_many_corrections_in_a_minute(folder: Path) -> None:
    with open_client(folder, limits=ServerLimits(max_corrections=2)) as client:
        codes = [post(client, "/suggest", s=RIGHT).status_code for _ in range(3)]
        assert codes == [200, 200, 429]
        post(client, "/suggest/undo")
        limited = post(client, "/suggest", s=RIGHT)
        assert limited.status_code == 429, "undoing does not make place"
        assert int(limited.headers["retry-after"]) >= 1
        assert post(client, "/suggest", "jun", s=RIGHT).status_code == 200
    with open_client(folder, limits=ServerLimits(max_corrections=9, max_stored_corrections=2)) as client:
        assert post(client, "/suggest", s=RIGHT).status_code == 403


@pytest.mark.parametrize(
    "fields", [{}, {"s": " "}, {"s": RIGHT, "q": ""}, {"s": RIGHT, "target": "xx"}, {"s": "x" * 10_001}]
)
def test_a_wrong_suggestion_is_refused(folder: Path, fields: dict[str, str]) -> None:
    with open_client(folder) as client:
        assert post(client, "/suggest", **fields).status_code == 400


def test_an_adapter_that_has_learned_from_a_user_exists_for_this_user_only(folder: Path) -> None:
    path = save_random_adapter(folder, "corrections-mina")
    adapter = checkpoint.read_adapter(folder, "corrections-mina")
    adapter.info["space"] = "mina"
    checkpoint.write_adapter(path, adapter)
    save_random_adapter(folder, "captions")
    with open_client(folder) as client:
        listed = {
            user: client.get("/models", headers={"authorization": f"Bearer {key}"}).json()[0]["adapters"]
            for user, key in KEYS.items()
        }
        assert listed == {"mina": ["captions", "corrections-mina"], "jun": ["captions"]}
        assert post(client, "/translate", adapter="corrections-mina").status_code == 200
        refused = post(client, "/translate", "jun", adapter="corrections-mina")
        assert refused.status_code == 400
        assert "it has captions" in refused.json()["error"]


def test_html_is_translated_without_corrections(folder: Path) -> None:
    with open_client(folder) as client:
        post(client, "/suggest", s=RIGHT)
        answer = post(client, "/translate", q="<p>I <b>go</b> home.</p>", format="html").json()
        assert "corrections" not in answer


def test_attention_is_that_of_the_model_and_not_of_a_correction(folder: Path) -> None:
    """The corrections of the user `default` on the machine itself are nobody's on the server."""
    with open_client(folder) as client:
        before = post(client, "/look").json()
        mh.load(folder, device="cpu").memory.add([(TEXT["q"], RIGHT)], "me")
        assert post(client, "/look").json() == before


def test_the_default_user_has_one_key(folder: Path) -> None:
    with (
        pytest.raises(ConfigError, match="the user default has two API keys"),
        open_client(folder, api_key="k", user_keys={"default": "other"}),
    ):
        pass


def test_stages_of_tasks_with_words_of_the_user_are_not_kept(folder: Path) -> None:
    """Kept ones would be as many as there are texts."""
    (model,) = name_models([mh.load(folder, device="cpu")])
    assert TranslateTask(model).stage_key is not None
    assert TranslateTask(model, prefix="a").stage_key is None
    assert TranslateTask(model, forbid=("a",)).stage_key is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mina\n", "line 1 is not the name of a user"),
        ("mina a\nmina b\n", "line 2 is the second key of mina"),
        ("../x key\n", "line 1 is not"),
        ("# nobody\n\n", "holds no API keys"),
    ],
)
def test_a_wrong_file_of_keys_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_api_keys(path)


def test_keys_come_from_a_pipe_but_not_from_an_endless_device(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("mina key-of-mina\n",))
    writer.start()
    assert read_api_keys(pipe) == {"mina": "key-of-mina"}
    writer.join()
    with pytest.raises(ConfigError, match="more than 16,777,216 bytes"):
        read_api_keys(Path("/dev/zero"))


def test_a_file_of_keys_has_a_user_on_each_line(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# users\nmina key-of-mina\njun\tkey-of-jun\n")
    assert read_api_keys(path) == KEYS
    with (
        pytest.raises(ConfigError, match="same API key"),
        open_client(folder, user_keys={"a": "k", "b": "k"}),
    ):
        pass
