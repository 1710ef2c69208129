"""The HTTP API: the endpoints of LibreTranslate, and scores, attention and walks."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

import manyheads as mh
from manyheads import checkpoint
from manyheads.serve.app import create_app
from manyheads.serve.limits import ServerLimits
from manyheads.serve.served_model import name_models
from support.scripted_translator import ScriptedTranslator

REQUEST = {"q": "one two three", "source": "en", "target": "ko"}


@pytest.mark.parametrize("way", ["json", "data", "params", "files"])
def test_texts_can_be_sent_as_json_form_multipart_and_query_string(client: TestClient, way: str) -> None:
    fields = {key: (None, value) for key, value in REQUEST.items()} if way == "files" else REQUEST
    response = client.post("/translate", **{way: fields})
    assert (response.status_code, response.json()) == (200, {"translatedText": "three two one"})


@pytest.mark.parametrize("way", ["json", "data", "params"])
def test_a_list_of_texts_returns_a_list(client: TestClient, way: str) -> None:
    request = {**REQUEST, "q": ["a b", "c d"]}
    response = client.post("/translate", **{way: request})
    assert response.json() == {"translatedText": ["b a", "d c"]}


def test_alternatives_are_returned(client: TestClient) -> None:
    response = client.post("/translate", json={**REQUEST, "alternatives": 2})
    assert response.json()["alternatives"] == ["three two one 1", "three two one 2"]
    response = client.post("/translate", json={**REQUEST, "q": ["a", "b"], "alternatives": 1})
    assert response.json()["alternatives"] == [["a 1"], ["b 1"]]


def test_source_languages_are_detected(create_client: Any) -> None:
    with create_client(ScriptedTranslator(), ScriptedTranslator("de", "ko")) as client:
        texts = ["Where is the library, please?", "Wo ist bitte die Bibliothek?", "도서관은 어디에 있나요?"]
        response = client.post("/translate", json={"q": texts, "source": "auto", "target": "ko"}).json()
        assert [detection["language"] for detection in response["detectedLanguage"]] == ["en", "de", "ko"]
        assert all(50 < detection["confidence"] <= 100 for detection in response["detectedLanguage"])
        assert response["translatedText"][0] == "please? library, the is Where"
        assert response["translatedText"][2] == texts[2], "it is Korean already"
        detections = client.post("/detect", data={"q": texts[1]}).json()
        assert detections[0]["language"] == "de"
        assert {detection["language"] for detection in detections} == {"de", "en", "ko"}, (
            "only what is served"
        )


def test_foreign_languages_are_named_and_missing_models_are_an_error(client: TestClient) -> None:
    korean = {"q": "도서관은 어디에 있나요?", "source": "auto", "target": "en"}
    response = client.post("/translate", json=korean)
    assert (response.status_code, response.json()["error"]) == (
        400,
        "no model translates ko to en; served: en to ko",
    )
    french = client.post("/detect", json={"q": "Bonjour tout le monde, je ne sais pas où je suis."}).json()
    assert french[0]["language"] == "fr", "which is not served"
    assert french[0]["confidence"] > 90
    assert {detection["language"] for detection in french[1:]} == {"en", "ko"}
    assert max(detection["confidence"] for detection in french[1:]) < 20, "it is neither"
    symbols = {"q": "123 + 4 = ?", "source": "auto", "target": "ko"}
    response = client.post("/translate", json=symbols).json()
    assert response["detectedLanguage"] == {"language": "en", "confidence": 0.0}
    assert response["translatedText"] == "? = 4 + 123"


def test_language_codes_are_case_insensitive(create_client: Any) -> None:
    with create_client(ScriptedTranslator("en", "zh-Hans")) as client:
        request = {"q": "Where is the library?", "source": "EN", "target": "ZH-hans"}
        assert client.post("/translate", json=request).json() == {"translatedText": "library? the is Where"}
        response = client.post("/translate", json={**request, "source": "Auto"}).json()
        assert response["detectedLanguage"]["language"] == "en"
        same = client.post("/translate", json={**request, "source": "zh-HANS"}).json()
        assert same == {"translatedText": request["q"]}


@pytest.mark.parametrize("way", ["json", "data"])
@pytest.mark.parametrize("nothing", [None, ""])
def test_null_and_empty_fields_mean_the_default(client: TestClient, way: str, nothing: str | None) -> None:
    request = {**REQUEST, "format": nothing, "alternatives": nothing}
    response = client.post("/translate", **{way: request})
    assert (response.status_code, response.json()) == (200, {"translatedText": "three two one"})


def test_html_has_alternatives(client: TestClient) -> None:
    request = {**REQUEST, "q": "<p>a b</p><p>c d</p>", "format": "html", "alternatives": 2}
    assert client.post("/translate", json=request).json() == {
        "translatedText": "<p>b a</p><p>d c</p>",
        "alternatives": ["<p>b a 1</p><p>d c 1</p>", "<p>b a 2</p><p>d c 2</p>"],
    }


def test_health_answers_head_and_checks_the_worker(create_client: Any) -> None:
    with create_client() as client:
        response = client.head("/health")
        assert (response.status_code, response.content) == (200, b"")
        queue = client.app.queue

        async def stop() -> None:
            queue.executor.shutdown()
            task = next(task for task in asyncio.all_tasks() if "JobQueue.run" in repr(task))
            task.cancel()

        client.portal.call(stop)
        assert client.get("/health").status_code == 503


def test_compressed_bodies_are_rejected_with_their_encoding(client: TestClient) -> None:
    response = client.post("/translate", json=REQUEST, headers={"content-encoding": "gzip"})
    assert (response.status_code, response.json()["error"]) == (
        415,
        "the content encoding is 'gzip', but compressed bodies are not supported",
    )
    assert (
        client.post("/translate", json=REQUEST, headers={"content-encoding": "identity"}).status_code == 200
    )


def test_huge_integers_have_an_error_message_of_their_own(client: TestClient) -> None:
    body = b'{"alternatives": ' + b"9" * 9000 + b"}"
    response = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert response.json() == {"error": "a number has 9000 digits, but the maximum is 100"}


def test_html_keeps_its_tags(client: TestClient) -> None:
    request = {**REQUEST, "q": '<p class="a">one two</p><script>three four</script>', "format": "html"}
    response = client.post("/translate", json=request).json()
    assert response == {"translatedText": '<p class="a">two one</p><script>three four</script>'}


def test_languages_settings_health_and_models(create_client: Any) -> None:
    with create_client(ScriptedTranslator(), ScriptedTranslator("en", "de"), ScriptedTranslator()) as client:
        assert client.get("/languages").json() == [
            {"code": "de", "name": "German", "targets": []},
            {"code": "en", "name": "English", "targets": ["de", "ko"]},
            {"code": "ko", "name": "Korean", "targets": []},
        ]
        settings = client.get("/frontend/settings").json()
        assert settings["language"]["source"] == {"code": "en", "name": "English"}
        assert (settings["charLimit"], settings["keyRequired"]) == (10_000, False)
        assert client.get("/health").json() == {"status": "ok"}
        assert [model["name"] for model in client.get("/models").json()] == ["en-ko", "en-de", "en-ko-2"]


def test_a_model_can_be_selected_by_name(create_client: Any) -> None:
    models = [ScriptedTranslator(), ScriptedTranslator()]
    with create_client(*models) as client:
        client.post("/translate", json=REQUEST)
        client.post("/translate", json={**REQUEST, "model": "en-ko-2"})
        assert [len(model.calls) for model in models] == [1, 1]
        wrong = client.post("/translate", json={**REQUEST, "model": "ko-en"})
        assert wrong.status_code == 400
        assert wrong.json()["error"] == "no model 'ko-en' for en to ko; served: en-ko, en-ko-2"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"q": None}, "q: Input should be a valid string"),
        ({"source": "fr"}, "the language 'fr' is not served; served: en, ko"),
        ({"source": "ko", "target": "en"}, "no model translates ko to en; served: en to ko"),
        ({"format": "markdown"}, "format: Input should be 'text' or 'html'"),
        ({"alternatives": 9}, "alternatives is 9, but the maximum is 8"),
        ({"alternatives": -1}, "alternatives: Input should be greater than or equal to 0"),
        ({"q": "x" * 10_001}, "q has 10001 characters, but the maximum is 10000"),
        ({"q": ["x"] * 101}, "q has 101 texts, but the maximum is 100"),
        ({"q": "impossible"}, "this cannot be translated"),
    ],
)
def test_invalid_requests_are_400_with_a_clear_message(
    client: TestClient, changes: dict[str, Any], error: str
) -> None:
    response = client.post("/translate", json={**REQUEST, **changes})
    assert (response.status_code, response.json()) == (400, {"error": error})


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b'"text"', "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'{"q": NaN, "source": "en", "target": "ko"}', "application/json", 400),
        (b'{"q": {"a": 1}, "source": "en", "target": "ko"}', "application/json", 400),
        (b'{"q": ["a", 1], "source": "en", "target": "ko"}', "application/json", 400),
        (b'{"q": "a", "source": ["en"], "target": {}}', "application/json", 400),
        (b'{"alternatives": ' + b"9" * 9000 + b"}", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"a":' * 100_000, "application/json", 400),
        (b'{"q": "a", "source": "en", "target": "ko", "more": NaN}', "application/json", 400),
        (b"x=&" * 1000 + b"q=a&source=en&target=ko&translation=b", "application/x-www-form-urlencoded", 400),
        (b"--b\r\n\r\nx", "multipart/form-data; boundary=b", 400),
        (b"nothing", "multipart/form-data", 400),
        (
            b'--b\r\nContent-Disposition: form-data; name="q"; filename="f"\r\n\r\nx\r\n--b--\r\n',
            "multipart/form-data; boundary=b",
            400,
        ),
        (b"<q>a</q>", "application/xml", 415),
        (b'{"q": "a"}', "text/plain", 415),
    ],
)
@pytest.mark.parametrize("path", ["/translate", "/detect", "/score", "/attention", "/look", "/walk"])
def test_malformed_bodies_are_rejected_and_never_500(
    client: TestClient, path: str, body: bytes, content_type: str, status: int
) -> None:
    response = client.post(path, content=body, headers={"content-type": content_type})
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}


def test_surrogates_and_nul_are_harmless(client: TestClient) -> None:
    body = json.dumps({**REQUEST, "q": "a \ud83d \x00 \ud83d\ude00 b"})
    response = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert response.json() == {"translatedText": "b \U0001f600 \x00 \ufffd a"}


def test_unknown_paths_and_wrong_methods_have_the_same_error_format(client: TestClient) -> None:
    assert (client.get("/nowhere").status_code, client.get("/nowhere").json()) == (
        404,
        {"error": "Not Found"},
    )
    wrong = client.get("/translate")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


def test_a_bug_is_a_500_without_details_and_a_log_without_texts(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    response = client.post("/translate", json={**REQUEST, "q": "a bug with a secret"})
    assert (response.status_code, response.json()) == (
        500,
        {"error": "internal server error; see the log of the server"},
    )
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text


def test_an_api_key_is_required_if_configured(create_client: Any) -> None:
    with create_client(api_key="schlüssel") as client:
        for path in ("/translate", "/score", "/attention", "/look", "/walk", "/detect"):
            assert client.post(path, json=REQUEST).status_code == 403
        assert client.post("/translate", json={**REQUEST, "api_key": "no"}).status_code == 403
        assert client.post("/translate", json={**REQUEST, "api_key": ["schlüssel"]}).status_code == 403
        assert client.post("/translate", json={**REQUEST, "api_key": "schlüssel"}).status_code == 200
        assert client.post("/translate", data=REQUEST, params={"api_key": "schlüssel"}).status_code == 200
        assert client.get("/metrics").status_code == 403
        bearer = {"authorization": "Bearer schlüssel".encode()}
        assert client.get("/metrics", headers=bearer).status_code == 200
        assert client.get("/health").status_code == client.get("/languages").status_code == 200
        assert client.get("/frontend/settings").json()["keyRequired"] is True


def test_metrics_count_requests_and_hold_no_texts(create_client: Any) -> None:
    with create_client() as client:
        client.post("/translate", json=REQUEST)
        client.get("/some/secret/path")
        metrics = client.get("/metrics").text
    assert 'manyheads_requests_total{path="/translate",status="200"} 1.0' in metrics
    assert 'manyheads_requests_total{path="other",status="404"} 1.0' in metrics
    assert "manyheads_batch_requests_count 1.0" in metrics
    assert "manyheads_characters_total 13.0" in metrics
    assert "secret" not in metrics


def test_logs_hold_no_texts_unless_log_text_is_set(
    create_client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with create_client() as client:
        client.post("/translate", json={**REQUEST, "q": "confidential"})
        client.post("/translate", params={**REQUEST, "q": "confidential"})
    log = "".join(record.getMessage() for record in caplog.records if record.name == "manyheads.serve")
    assert "/translate 200" in log
    assert "confidential" not in log
    with create_client(log_text=True) as client:
        client.post("/translate", json={**REQUEST, "q": "confidential"})
    assert "'confidential' -> 'confidential'" in caplog.text


def test_the_page_has_a_strict_content_security_policy(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "*" not in policy
    assert client.get("/../app.py").status_code == client.get("/%2e%2e/app.py").status_code == 404


# ---- with a model


@pytest.fixture(scope="module")
def model_client(translator: mh.Translator) -> Any:
    limits = ServerLimits(max_numbers=20_000)
    with TestClient(create_app(name_models([translator]), limits), base_url="http://localhost") as client:
        yield client


def test_translations_and_details_equal_those_of_the_model(
    model_client: TestClient, translator: mh.Translator
) -> None:
    request = {"q": "I go home.", "source": "en", "target": "ko", "details": True, "alternatives": 2}
    response = model_client.post("/translate", json=request).json()
    expected = translator.translate("I go home.", nbest=3, alignment=True)
    assert response["translatedText"] == expected.text
    assert response["alternatives"] == [
        other.text for other in expected.alternatives if other.text != expected.text
    ]
    assert response["details"]["tokens"] == expected.tokens
    assert response["details"]["alignment"] == [list(pair) for pair in expected.alignment or []]
    assert response["details"]["tokenScores"] == pytest.approx(expected.token_scores, abs=1e-4)


def test_scores_equal_those_of_the_model(model_client: TestClient, translator: mh.Translator) -> None:
    request = {
        "q": ["I go home.", "We read."],
        "translation": ["집에 간다.", "책"],
        "source": "en",
        "target": "ko",
    }
    response = model_client.post("/score", json=request).json()["scores"]
    expected = translator.score(request["q"], request["translation"])  # type: ignore[arg-type]
    assert [score["logProbability"] for score in response] == pytest.approx(
        [score.log_probability for score in expected], abs=1e-4
    )
    assert [score["tokens"] for score in response] == [score.tokens for score in expected]
    wrong = model_client.post("/score", json={**request, "translation": "one"})
    assert (wrong.status_code, wrong.json()["error"]) == (400, "q has 2 texts, but translation has 1")


def test_attention_maps_equal_those_of_the_model(model_client: TestClient, translator: mh.Translator) -> None:
    request = {"q": "I go home.", "translation": "집에 간다.", "source": "en", "target": "ko"}
    response = model_client.post("/attention", json=request).json()
    expected = translator.attention(request["q"], request["translation"])
    assert (response["sourceTokens"], response["targetTokens"]) == (
        expected.source_tokens,
        expected.target_tokens,
    )
    for attention_type in ("encoder", "decoder", "cross"):
        for layer, maps in enumerate(getattr(expected.trace, attention_type)):
            assert torch.tensor(response[attention_type][layer]) == pytest.approx(maps[0].numpy(), abs=1e-5)
    single = model_client.post("/attention", json={**request, "layer": 1}).json()
    assert all(
        single[attention_type] == response[attention_type][1:]
        for attention_type in ("encoder", "decoder", "cross")
    )
    unknown = model_client.post("/attention", json={**request, "layer": 2})
    assert (unknown.status_code, unknown.json()["error"]) == (
        400,
        "layer is 2, but the model has 2 layers, counted from 0",
    )
    too_long = model_client.post("/attention", json={**request, "q": "I go home. " * 30})
    assert too_long.status_code == 400
    assert "numbers, but the maximum is 20000" in too_long.json()["error"]


def test_requests_are_checked_before_they_enter_the_queue(
    model_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: Any) -> None:
        raise AssertionError("it entered the queue")

    monkeypatch.setattr("manyheads.serve.queue.JobQueue.submit", submit)
    request = {"q": "I go home.", "source": "en", "target": "ko"}
    for path, wrong in (
        ("/attention", {"layer": 2}),
        ("/attention", {"q": "I go home. " * 30}),
        ("/attention", {"translation": "집 " * 90}),
        ("/score", {"q": "I go home. " * 90, "translation": "a"}),
        ("/score", {"translation": "a " * 900}),
    ):
        assert model_client.post(path, json={**request, **wrong}).status_code == 400, (path, wrong)


def test_a_very_long_word_is_translated_without_a_warning(model_client: TestClient) -> None:
    response = model_client.post("/translate", json={"q": "x" * 300, "source": "en", "target": "ko"})
    assert response.status_code == 200


def test_html_translated_by_a_model_keeps_every_tag(model_client: TestClient) -> None:
    page = "<p>I <b>go <i>home</i></b>.</p>"
    request = {"q": page, "source": "en", "target": "ko", "format": "html"}
    translation = model_client.post("/translate", json=request).json()["translatedText"]
    assert translation.startswith("<p>")
    assert [translation.count(tag) for tag in ("<b>", "<i>", "</i>", "</b>")] == [1, 1, 1, 1]
    response = model_client.post("/translate", json={**request, "alternatives": 2}).json()
    assert response["translatedText"] == translation
    assert response["alternatives"]
    for alternative in response["alternatives"]:
        assert [alternative.count(tag) for tag in ("<b>", "<i>", "</i>", "</b>")] == [1, 1, 1, 1]


def test_attention_needs_the_torch_engine(client: TestClient) -> None:
    response = client.post("/attention", json={"q": "a", "source": "en", "target": "ko"})
    assert (response.status_code, response.json()["error"]) == (
        400,
        "the engine scripted does not support attention: use the torch engine",
    )


def test_ctranslate2_serves_html_and_scores(
    translator: mh.Translator, tmp_path: Path, model_client: TestClient
) -> None:
    pytest.importorskip("ctranslate2")
    folder = tmp_path / "model"
    engine: Any = translator.engine
    config = mh.Config(model=engine.model.config, decoding=translator.decoding)
    languages = {"source": "en", "target": "ko"}
    weights = checkpoint.collect_weights(engine.model)
    checkpoint.save(folder, weights, translator.subwords, config, step=1, languages=languages)
    num_threads = torch.get_num_threads()
    other = mh.load(folder, engine="ctranslate2")
    torch.set_num_threads(num_threads)  # CTranslate2 changes it, and sums of other tests would differ
    request = {"q": ["I go home.", "<b>We</b> read."], "source": "en", "target": "ko", "format": "html"}
    with TestClient(create_app(name_models([other])), base_url="http://localhost") as client:
        response = client.post("/translate", json=request).json()["translatedText"]
        assert (response[1].count("<b>"), response[1].count("</b>")) == (1, 1)
        plain = {name: value for name, value in request.items() if name != "format"}
        assert client.post("/score", json={**plain, "translation": ["a", "b"]}).status_code == 200
        assert client.post("/attention", json={**plain, "q": "I go."}).status_code == 400
