"""Glossaries of requests: in the request, or stored by name, within limits."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import manyheads as mh
from manyheads.errors import ConfigError
from manyheads.serve.app import create_app
from manyheads.serve.limits import ServerLimits
from manyheads.serve.served_model import name_models
from support.untrained_model import save_untrained_model

TEXT = {"q": "I go home today.", "source": "en", "target": "ko"}


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> mh.Translator:
    return mh.load(save_untrained_model(tmp_path_factory.mktemp("glossaries") / "model"), device="cpu")


@pytest.fixture
def glossaries(tmp_path: Path) -> Path:
    (tmp_path / "office.tsv").write_text("home\t집에\n", encoding="utf-8")
    (tmp_path / "broken.csv").write_text("only a term\n", encoding="utf-8")
    (tmp_path / "notes.md").write_text("no glossary\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def client(translator: mh.Translator, glossaries: Path) -> Iterator[TestClient]:
    limits = ServerLimits(max_glossary_terms=2)
    app = create_app(name_models([translator]), limits, glossaries=str(glossaries), api_key="key")
    with TestClient(app, base_url="http://localhost", headers={"Authorization": "Bearer key"}) as client:
        yield client


def translate(client: TestClient, glossary: object, **fields: object) -> str:
    response = client.post("/translate", json={**TEXT, "glossary": glossary, **fields})
    assert response.status_code == 200, response.text
    return str(response.json()["translatedText"])


def test_a_request_has_terms_of_its_own(client: TestClient, translator: mh.Translator) -> None:
    plain = translate(client, None)
    assert (
        translate(client, {"home": "간다."})
        == translator.translate(TEXT["q"], glossary={"home": "간다."}).text
    )
    assert "간다." in translate(client, {"home": "간다."}, format="html")
    assert translate(client, "") == translate(client, {}) == plain


def test_stored_glossaries_are_named_and_read_again_when_they_change(
    client: TestClient, glossaries: Path
) -> None:
    assert client.get("/glossaries").json() == [{"name": "broken"}, {"name": "office"}]
    assert "집에" in translate(client, "office")
    (glossaries / "office.tsv").write_text("home\t오늘 간다\n", encoding="utf-8")
    os.utime(glossaries / "office.tsv", (1, 1))
    assert "오늘 간다" in translate(client, "office")


@pytest.mark.parametrize(
    ("glossary", "message"),
    [
        ("gone", "no glossary 'gone' is stored; stored: broken, office"),
        ("../office", "no glossary '../office' is stored"),
        ("broken", "the glossary 'broken' cannot be used: broken: line 1 is not a term, a separator"),
        ({"a": "b", "c": "d", "e": "f"}, "the glossary has 3 terms, but the maximum is 2"),
        ({"a": "b" * 501}, "a term of 501 characters, but the maximum is 500"),
        ({"a": " "}, "must not hold empty entries"),
        ({"a": 1}, "glossary: "),
        (["a"], "glossary: "),
    ],
)
def test_what_is_no_glossary_is_refused(client: TestClient, glossary: object, message: str) -> None:
    response = client.post("/translate", json={**TEXT, "glossary": glossary})
    assert response.status_code == 400
    assert message in response.json()["error"]


def test_the_list_of_glossaries_needs_the_key(client: TestClient) -> None:
    assert client.get("/glossaries", headers={"Authorization": ""}).status_code == 403


def test_a_folder_that_is_none_is_refused(translator: mh.Translator, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a folder of glossaries"):
        create_app(name_models([translator]), glossaries=str(tmp_path / "gone"))


def test_a_folder_of_glossaries_that_is_gone_holds_none(client: TestClient, glossaries: Path) -> None:
    shutil.rmtree(glossaries)
    assert client.get("/glossaries").json() == []
    response = client.post("/translate", json={**TEXT, "glossary": "office"})
    assert (response.status_code, response.json()["error"]) == (
        400,
        "no glossary 'office' is stored; stored: none",
    )
