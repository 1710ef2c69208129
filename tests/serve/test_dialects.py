"""What clients of LibreTranslate and DeepL send, and what they accept."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from manyheads.serve.limits import ServerLimits
from support.scripted_translator import ScriptedTranslator

REQUEST = {"q": "one two three", "source": "en", "target": "ko"}
ANSWER = {"translatedText": "three two one"}


@pytest.mark.parametrize("source", ["en", "EN", "en_US", "en-GB", "EN_us"])
@pytest.mark.parametrize("target", ["ko", "ko-KR", "ko_KR"])
def test_regions_of_a_served_language_are_accepted(client: TestClient, source: str, target: str) -> None:
    assert client.post("/translate", json={**REQUEST, "source": source, "target": target}).json() == ANSWER


def test_a_language_that_is_served_with_a_region_needs_none(create_client: Any) -> None:
    with create_client(ScriptedTranslator("en", "zh-Hans"), ScriptedTranslator("en", "pt-BR")) as client:
        for target, status in (("zh", 200), ("zh_hans", 200), ("zh-Hant", 400), ("pt-PT", 400), ("pt", 200)):
            assert client.post("/translate", json={**REQUEST, "target": target}).status_code == status, target


def test_confidences_of_languages_are_whole_numbers_from_0_to_100(client: TestClient) -> None:
    """An app for phones reads an integer, and fails at 95.0; LibreTranslate's own are integers."""
    response = client.post("/detect", json={"q": "Where is the library, please?"})
    values = [entry["confidence"] for entry in response.json()]
    assert all(isinstance(value, int) and 0 <= value <= 100 for value in values)
    assert "." not in response.text
    detected = client.post("/translate", json={**REQUEST, "source": "auto"}).json()["detectedLanguage"]
    assert isinstance(detected["confidence"], int)


@pytest.mark.parametrize(
    ("path", "fields", "error"),
    [
        ("/translate", {"formatt": "html"}, "unknown field formatt; did you mean format?"),
        ("/detect", {"source": "en"}, "unknown field source; known: q, api_key"),
        ("/score", {"translation": "x", "beam": 3}, "unknown field beam; known: q, "),
        ("/v2/translate", {"text": "x", "target_lang": "KO", "q": "x"}, "unknown field q; known: text, "),
    ],
)
@pytest.mark.parametrize("way", ["json", "data", "params"])
def test_unknown_fields_are_refused_by_name(
    client: TestClient, path: str, fields: dict[str, str], error: str, way: str
) -> None:
    base = {} if path.startswith("/v2") else {"q": "a"} if path == "/detect" else REQUEST
    response = client.post(path, **{way: {**base, **fields}})
    assert response.status_code == 400
    (message,) = response.json().values()
    assert message.startswith(error)


def test_every_request_is_described_as_one_without_other_fields(client: TestClient) -> None:
    operations = [path["post"] for path in client.get("/spec").json()["paths"].values() if "post" in path]
    assert len(operations) > 8
    for operation in operations:
        for content in operation["requestBody"]["content"].values():
            assert content["schema"].get("additionalProperties") is False, operation["operationId"]


def test_deepl_languages_refuse_unknown_fields_by_name(client: TestClient) -> None:
    response = client.get("/v2/languages", params={"typ": "target"})
    assert response.status_code == 400
    assert response.json() == {"message": "unknown field typ; did you mean type?"}


def test_fields_that_known_clients_send_are_accepted(client: TestClient, create_client: Any) -> None:
    assert client.post("/translate", json={**REQUEST, "secret": "x", "apiKey": ""}).json() == ANSWER
    with create_client(api_key="k") as other:
        assert other.post("/translate", json={**REQUEST, "apiKey": "k"}).json() == ANSWER


def test_a_client_with_too_many_requests_gets_429(create_client: Any) -> None:
    with create_client(limits=ServerLimits(max_requests_per_minute=3)) as client:
        responses = [client.post("/translate", json=REQUEST) for _ in range(4)]
        assert [response.status_code for response in responses] == [200, 200, 200, 429]
        assert responses[-1].json() == {"error": "too many requests: at most 3 in 60 seconds"}
        assert 1 <= int(responses[-1].headers["retry-after"]) <= 60
        assert client.post("/v2/translate", json={"text": "a", "target_lang": "KO"}).status_code == 429
        assert client.get("/health").status_code == 200


def test_deepl_languages_take_the_key_in_the_body_and_count_as_requests(create_client: Any) -> None:
    with create_client(api_key="k", limits=ServerLimits(max_requests_per_minute=2)) as client:
        statuses = [
            client.get("/v2/languages", params=fields).status_code
            for fields in ({}, {"auth_key": "k"}, {"auth_key": "k", "type": "target"}, {"auth_key": "k"})
        ]
        assert statuses == [403, 200, 200, 429]


def test_a_document_may_come_with_the_key_as_clients_from_npm_write_it(create_client: Any) -> None:
    with create_client(api_key="k") as client:
        fields, files = {"source": "en", "target": "ko"}, {"file": ("a.txt", b"one two\n")}
        for key, status in ({"apiKey": "k"}, 200), ({"api_key": "k"}, 200), ({"apiKey": "x"}, 403):
            response = client.post("/translate_file", data={**fields, **key}, files=files)
            assert response.status_code == status, key


def test_a_share_of_the_queue_is_429_and_a_full_queue_is_503(
    create_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_client() as client:
        monkeypatch.setattr("manyheads.serve.queue.JobQueue._exceeds_share", lambda *_: True)
        response = client.post("/translate", json=REQUEST)
        assert (response.status_code, response.json()["error"]) == (
            429,
            "too many requests of one client are waiting",
        )
        assert int(response.headers["retry-after"]) >= 1


# ---- DeepL


def test_deepl_translates_lists_forms_and_html(client: TestClient) -> None:
    english = {"detected_source_language": "EN"}
    for way in ("json", "data"):
        request = {"text": ["Where is the library?", "a b"], "target_lang": "KO", "source_lang": "EN"}
        response = client.post("/v2/translate", **{way: request})
        assert response.json() == {
            "translations": [{**english, "text": "library? the is Where"}, {**english, "text": "b a"}]
        }
    html = {"text": "<p>a <b>b</b></p>", "target_lang": "ko-KR", "source_lang": "EN", "tag_handling": "html"}
    assert client.post("/v2/translate", json=html).json()["translations"][0]["text"] == "<p><b>b</b> a</p>"
    detected = {
        "text": ["Where is the library, please?"],
        "target_lang": "KO",
        "show_billed_characters": True,
    }
    (entry,) = client.post("/v2/translate", json=detected).json()["translations"]
    assert (entry["detected_source_language"], entry["billed_characters"]) == ("EN", 29)


def test_deepl_lists_languages_by_side(client: TestClient) -> None:
    assert client.get("/v2/languages").json() == [{"language": "EN", "name": "English"}]
    assert client.get("/v2/languages?type=target").json() == [
        {"language": "KO", "name": "Korean", "supports_formality": False}
    ]
    body = client.request("GET", "/v2/languages", data={"type": "target"})
    assert body.json()[0]["language"] == "KO", "as DeepL's own client sends it"
    wrong = client.get("/v2/languages?type=x")
    assert (wrong.status_code, wrong.json()) == (
        400,
        {"message": "type is 'x', but must be source or target"},
    )


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"formality": "less"}, "formality is not available here: leave it out"),
        ({"glossary_id": "1"}, "glossary_id is not available here: leave it out"),
        ({"ignore_tags": "x,y"}, "ignore_tags is not available here: leave it out"),
        ({"target_lang": "FR"}, "the language 'FR' is not served; served: en, ko"),
        ({"text": "x" * 10_001}, "text has 10001 characters, but the maximum is 10000"),
        ({"text": None}, "text: Input should be a valid string"),
        ({"tag_handling": "tex"}, "tag_handling: Input should be 'html' or 'xml'"),
    ],
)
def test_deepl_errors_are_in_its_format(client: TestClient, fields: dict[str, Any], error: str) -> None:
    request = {"text": "a b", "target_lang": "KO", "source_lang": "EN", "formality": "prefer_more", **fields}
    response = client.post("/v2/translate", json=request)
    assert (response.status_code, response.json()) == (400, {"message": error})


def test_deepl_sends_its_key_in_a_header(create_client: Any) -> None:
    with create_client(api_key="k") as client:
        request = {"text": "a b", "target_lang": "KO", "source_lang": "EN"}
        assert client.post("/v2/translate", json=request).status_code == 403
        headers = {"authorization": "DeepL-Auth-Key k"}
        assert client.post("/v2/translate", json=request, headers=headers).status_code == 200
        assert client.get("/v2/languages").status_code == 403
        assert client.get("/v2/languages", headers=headers).status_code == 200


# ---- search options


def test_search_options_of_the_server_reach_the_models(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from typer.testing import CliRunner

    from manyheads.cli import app
    from manyheads.serve import server

    translator = ScriptedTranslator()
    monkeypatch.setattr(server, "load", lambda *_, **__: translator)
    monkeypatch.setattr(server, "create_app", lambda *_, **__: (_ for _ in ()).throw(SystemExit(7)))
    monkeypatch.setattr(server, "configure_logging", lambda: None)
    monkeypatch.setattr(server, "bind_socket", lambda *_: None)
    options = ["--beam", "2", "--alpha", "0.3", "--max-extra-length", "9", "--min-length", "1"]
    call = ["serve", str(tmp_path), "--port", "0", *options, "--no-repeat-ngram", "3"]
    assert CliRunner().invoke(app, call).exit_code == 7
    own = translator.decoding
    assert (own.beam, own.alpha, own.max_extra_length, own.min_length, own.no_repeat_ngram) == (
        2,
        0.3,
        9,
        1,
        3,
    )
