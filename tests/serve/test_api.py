"""What is asked and answered: LibreTranslate's API, and ours."""

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
from manyheads.serve.middleware import AllowedHosts
from manyheads.serve.worker import name_models
from support.scripted_translator import ScriptedTranslator

ASKED = {"q": "one two three", "source": "en", "target": "ko"}


@pytest.mark.parametrize("way", ["json", "data", "params", "files"])
def test_a_text_may_come_as_json_as_a_form_and_in_the_query_string(client: TestClient, way: str) -> None:
    sent = {key: (None, value) for key, value in ASKED.items()} if way == "files" else ASKED
    answer = client.post("/translate", **{way: sent})
    assert (answer.status_code, answer.json()) == (200, {"translatedText": "three two one"})


@pytest.mark.parametrize("way", ["json", "data", "params"])
def test_several_texts_come_back_as_a_list(client: TestClient, way: str) -> None:
    asked = {**ASKED, "q": ["a b", "c d"]}
    answer = client.post("/translate", **{way: asked})
    assert answer.json() == {"translatedText": ["b a", "d c"]}


def test_alternatives_come_beside_the_translation(client: TestClient) -> None:
    answer = client.post("/translate", json={**ASKED, "alternatives": 2})
    assert answer.json()["alternatives"] == ["three two one 1", "three two one 2"]
    answer = client.post("/translate", json={**ASKED, "q": ["a", "b"], "alternatives": 1})
    assert answer.json()["alternatives"] == [["a 1"], ["b 1"]]


def test_the_language_is_told_where_it_is_asked_for(asking: Any) -> None:
    with asking(ScriptedTranslator(), ScriptedTranslator("de", "ko")) as client:
        texts = ["Where is the library, please?", "Wo ist bitte die Bibliothek?", "도서관은 어디에 있나요?"]
        answer = client.post("/translate", json={"q": texts, "source": "auto", "target": "ko"}).json()
        assert [one["language"] for one in answer["detectedLanguage"]] == ["en", "de", "ko"]
        assert all(50 < one["confidence"] <= 100 for one in answer["detectedLanguage"])
        assert answer["translatedText"][0] == "please? library, the is Where"
        assert answer["translatedText"][2] == texts[2], "it is Korean already"
        found = client.post("/detect", data={"q": texts[1]}).json()
        assert found[0]["language"] == "de"
        assert {one["language"] for one in found} == {"de", "en", "ko"}, "only what is served"


def test_confidence_is_honest_and_what_cannot_be_translated_is_told(client: TestClient) -> None:
    korean = {"q": "도서관은 어디에 있나요?", "source": "auto", "target": "en"}
    answer = client.post("/translate", json=korean)
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        "no model translates ko to en; served: en to ko",
    )
    french = client.post("/detect", json={"q": "Bonjour tout le monde, je ne sais pas où je suis."}).json()
    assert max(one["confidence"] for one in french) < 20, "it is neither"
    signs = {"q": "123 + 4 = ?", "source": "auto", "target": "ko"}
    answer = client.post("/translate", json=signs).json()
    assert answer["detectedLanguage"] == {"language": "en", "confidence": 0.0}
    assert answer["translatedText"] == "? = 4 + 123"


def test_codes_of_languages_may_be_written_in_any_letters(asking: Any) -> None:
    with asking(ScriptedTranslator("en", "zh-Hans")) as client:
        asked = {"q": "Where is the library?", "source": "EN", "target": "ZH-hans"}
        assert client.post("/translate", json=asked).json() == {"translatedText": "library? the is Where"}
        answer = client.post("/translate", json={**asked, "source": "Auto"}).json()
        assert answer["detectedLanguage"]["language"] == "en"
        same = client.post("/translate", json={**asked, "source": "zh-HANS"}).json()
        assert same == {"translatedText": asked["q"]}


@pytest.mark.parametrize("way", ["json", "data"])
@pytest.mark.parametrize("nothing", [None, ""])
def test_fields_that_hold_nothing_are_as_if_they_were_not_there(
    client: TestClient, way: str, nothing: str | None
) -> None:
    asked = {**ASKED, "format": nothing, "alternatives": nothing}
    answer = client.post("/translate", **{way: asked})
    assert (answer.status_code, answer.json()) == (200, {"translatedText": "three two one"})


def test_a_page_has_alternatives_too(client: TestClient) -> None:
    asked = {**ASKED, "q": "<p>a b</p><p>c d</p>", "format": "html", "alternatives": 2}
    assert client.post("/translate", json=asked).json() == {
        "translatedText": "<p>b a</p><p>d c</p>",
        "alternatives": ["<p>b a 1</p><p>d c 1</p>", "<p>b a 2</p><p>d c 2</p>"],
    }


def test_health_answers_to_head_and_looks_whether_anyone_works(asking: Any) -> None:
    with asking() as client:
        answer = client.head("/health")
        assert (answer.status_code, answer.content) == (200, b"")
        queue = client.app.queue

        async def stop() -> None:
            queue.thread.shutdown()
            task = next(one for one in asyncio.all_tasks() if "Queue.run" in repr(one))
            task.cancel()

        client.portal.call(stop)
        assert client.get("/health").status_code == 503


def test_a_compressed_body_is_refused_by_the_name_of_its_compression(client: TestClient) -> None:
    answer = client.post("/translate", json=ASKED, headers={"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["error"]) == (
        415,
        "the content encoding is 'gzip', but bodies are read as they are",
    )
    assert client.post("/translate", json=ASKED, headers={"content-encoding": "identity"}).status_code == 200


def test_a_huge_integer_is_told_in_our_words(client: TestClient) -> None:
    body = b'{"alternatives": ' + b"9" * 9000 + b"}"
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.json() == {"error": "a number of 9000 digits, but at most 100 are read"}


def test_html_keeps_its_tags(client: TestClient) -> None:
    asked = {**ASKED, "q": '<p class="a">one two</p><script>three four</script>', "format": "html"}
    answer = client.post("/translate", json=asked).json()
    assert answer == {"translatedText": '<p class="a">two one</p><script>three four</script>'}


def test_languages_settings_health_and_models(asking: Any) -> None:
    with asking(ScriptedTranslator(), ScriptedTranslator("en", "de"), ScriptedTranslator()) as client:
        assert client.get("/languages").json() == [
            {"code": "de", "name": "German", "targets": []},
            {"code": "en", "name": "English", "targets": ["de", "ko"]},
            {"code": "ko", "name": "Korean", "targets": []},
        ]
        settings = client.get("/frontend/settings").json()
        assert settings["language"]["source"] == {"code": "en", "name": "English"}
        assert (settings["charLimit"], settings["keyRequired"]) == (10_000, False)
        assert client.get("/health").json() == {"status": "ok"}
        assert [one["name"] for one in client.get("/models").json()] == ["en-ko", "en-de", "en-ko-2"]


def test_of_several_models_of_a_pair_the_named_one_answers(asking: Any) -> None:
    models = [ScriptedTranslator(), ScriptedTranslator()]
    with asking(*models) as client:
        client.post("/translate", json=ASKED)
        client.post("/translate", json={**ASKED, "model": "en-ko-2"})
        assert [len(one.calls) for one in models] == [1, 1]
        wrong = client.post("/translate", json={**ASKED, "model": "ko-en"})
        assert wrong.status_code == 400
        assert wrong.json()["error"] == "no model 'ko-en' for en to ko; served: en-ko, en-ko-2"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"q": None}, "q: Input should be a valid string"),
        ({"source": "fr"}, "the language 'fr' is not served; served: en, ko"),
        ({"source": "ko", "target": "en"}, "no model translates ko to en; served: en to ko"),
        ({"format": "markdown"}, "format: Input should be 'text' or 'html'"),
        ({"alternatives": 9}, "alternatives is 9, but at most 8 are given"),
        ({"alternatives": -1}, "alternatives: Input should be greater than or equal to 0"),
        ({"q": "x" * 10_001}, "q has 10001 characters, but at most 10000 go in one request"),
        ({"q": ["x"] * 101}, "q has 101 texts, but at most 100 go in one request"),
        ({"q": "impossible"}, "this cannot be translated"),
    ],
)
def test_what_cannot_be_done_is_a_clear_400(client: TestClient, changes: dict[str, Any], error: str) -> None:
    answer = client.post("/translate", json={**ASKED, **changes})
    assert (answer.status_code, answer.json()) == (400, {"error": error})


@pytest.mark.parametrize(
    ("body", "kind", "status"),
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
def test_what_is_malformed_is_refused_and_never_a_500(
    client: TestClient, path: str, body: bytes, kind: str, status: int
) -> None:
    answer = client.post(path, content=body, headers={"content-type": kind})
    if path == "/detect" and b'"q": "a", "source": ["en"]' in body:
        status = 200  # it asks for nothing but q
    assert answer.status_code == status, answer.text
    if status != 200:
        assert set(answer.json()) == {"error"}


def test_halves_of_characters_and_nul_do_no_harm(client: TestClient) -> None:
    body = json.dumps({**ASKED, "q": "a \ud83d \x00 \ud83d\ude00 b"})
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.json() == {"translatedText": "b \U0001f600 \x00 \ufffd a"}


def test_an_unknown_path_and_a_wrong_method_are_told_in_the_same_form(client: TestClient) -> None:
    assert (client.get("/nowhere").status_code, client.get("/nowhere").json()) == (
        404,
        {"error": "Not Found"},
    )
    wrong = client.get("/translate")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


def test_a_bug_is_a_500_that_tells_nothing_and_a_log_that_quotes_nothing(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.post("/translate", json={**ASKED, "q": "a bug with a secret"})
    assert (answer.status_code, answer.json()) == (
        500,
        {"error": "a fault of the server; its log says where"},
    )
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text


def test_a_key_is_asked_for_where_there_is_one(asking: Any) -> None:
    with asking(api_key="schlüssel") as client:
        for path in ("/translate", "/score", "/attention", "/look", "/walk", "/detect"):
            assert client.post(path, json=ASKED).status_code == 403
        assert client.post("/translate", json={**ASKED, "api_key": "no"}).status_code == 403
        assert client.post("/translate", json={**ASKED, "api_key": ["schlüssel"]}).status_code == 403
        assert client.post("/translate", json={**ASKED, "api_key": "schlüssel"}).status_code == 200
        assert client.post("/translate", data=ASKED, params={"api_key": "schlüssel"}).status_code == 200
        assert client.get("/metrics").status_code == 403
        bearer = {"authorization": "Bearer schlüssel".encode()}
        assert client.get("/metrics", headers=bearer).status_code == 200
        assert client.get("/health").status_code == client.get("/languages").status_code == 200
        assert client.get("/frontend/settings").json()["keyRequired"] is True


def test_metrics_count_and_quote_nothing(asking: Any) -> None:
    with asking() as client:
        client.post("/translate", json=ASKED)
        client.get("/some/secret/path")
        told = client.get("/metrics").text
    assert 'manyheads_requests_total{path="/translate",status="200"} 1.0' in told
    assert 'manyheads_requests_total{path="other",status="404"} 1.0' in told
    assert "manyheads_batch_requests_count 1.0" in told
    assert "manyheads_characters_total 13.0" in told
    assert "secret" not in told


def test_logs_hold_no_text_unless_they_are_asked_to(asking: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with asking() as client:
        client.post("/translate", json={**ASKED, "q": "confidential"})
        client.post("/translate", params={**ASKED, "q": "confidential"})
    ours = "".join(one.getMessage() for one in caplog.records if one.name == "manyheads.serve")
    assert "/translate 200" in ours
    assert "confidential" not in ours
    with asking(log_text=True) as client:
        client.post("/translate", json={**ASKED, "q": "confidential"})
    assert "'confidential' -> 'confidential'" in caplog.text


# ---- who may ask


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "127.0.0.1:5000"}, 200),
        ({"host": "[::1]:5000"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"host": "example.org"}, 200),
        ({"host": "evil.org"}, 403),
        ({"host": "localhost.evil.org"}, 403),
        ({"host": "[::"}, 403),
        ({"host": ""}, 403),
        ({"host": "10.0.0.1"}, 403),
        ({"host": "user@localhost"}, 403),
        ({"host": "localhost:x"}, 403),
        ({"host": "localhost/"}, 403),
        ({"host": "localhost?evil.org"}, 403),
        ({"host": "[::1"}, 403),
        ({"host": "localhost:5000", "origin": "http://localhost:5000"}, 200),
        ({"host": "localhost:5000", "origin": "http://localhost:3000"}, 403),
        ({"origin": "http://evil.org"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://friend.org"}, 200),
        ({"origin": "http://friend.org"}, 403),
    ],
)
def test_only_who_may_ask_is_answered(asking: Any, headers: dict[str, str], status: int) -> None:
    with asking(doors=AllowedHosts.for_host("127.0.0.1", ["example.org"], ["https://friend.org"])) as client:
        answer = client.get("/health", headers=headers)
        assert answer.status_code == status
        assert answer.headers.get("access-control-allow-origin") in (
            None if headers.get("origin") != "https://friend.org" else "https://friend.org",
        )
        preflight = client.options("/translate", headers=headers)
        assert ("access-control-allow-methods" in preflight.headers) == (
            headers.get("origin") == "https://friend.org"
        )


@pytest.mark.parametrize(
    ("said", "origin"),
    [
        ("https://Friend.org/", "https://friend.org"),
        ("https://friend.org:443", "https://friend.org"),
        ("http://friend.org:80/", "http://friend.org"),
        ("http://friend.org:8080", "http://friend.org:8080"),
        ("moz-extension://0a-b", "moz-extension://0a-b"),
    ],
)
def test_an_allowed_origin_is_as_browsers_write_it(said: str, origin: str) -> None:
    assert AllowedHosts.for_host("127.0.0.1", [], [said]).origins == {origin}


@pytest.mark.parametrize("origin", ["*", "null", "friend.org", "https://a/b", "https://a@b", "https://", ""])
def test_an_origin_that_is_none_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(mh.ConfigError, match=r"--allow-origin is .* such as https://example\.org"):
        AllowedHosts.for_host("127.0.0.1", [], [origin])


def test_bound_to_everything_it_is_called_by_address_but_not_by_any_name(asking: Any) -> None:
    with asking(doors=AllowedHosts.for_host("0.0.0.0")) as client:
        assert client.get("/health", headers={"host": "10.0.0.1:5000"}).status_code == 200
        assert client.get("/health", headers={"host": "evil.org"}).status_code == 403


def test_the_page_is_served_under_a_strict_policy(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "*" not in policy
    assert client.get("/../app.py").status_code == client.get("/%2e%2e/app.py").status_code == 404


# ---- our own paths, with a model


@pytest.fixture(scope="module")
def modeled(translator: mh.Translator) -> Any:
    limits = ServerLimits(max_numbers=20_000)
    with TestClient(create_app(name_models([translator]), limits), base_url="http://localhost") as client:
        yield client


def test_translations_and_their_details_are_the_model_s(
    modeled: TestClient, translator: mh.Translator
) -> None:
    asked = {"q": "I go home.", "source": "en", "target": "ko", "details": True, "alternatives": 2}
    answer = modeled.post("/translate", json=asked).json()
    ours = translator.translate("I go home.", nbest=3, alignment=True)
    assert answer["translatedText"] == ours.text
    assert answer["alternatives"] == [one.text for one in ours.alternatives if one.text != ours.text]
    assert answer["details"]["tokens"] == ours.tokens
    assert answer["details"]["alignment"] == [list(pair) for pair in ours.alignment or []]
    assert answer["details"]["tokenScores"] == pytest.approx(ours.token_scores, abs=1e-4)


def test_scores_are_the_model_s(modeled: TestClient, translator: mh.Translator) -> None:
    asked = {
        "q": ["I go home.", "We read."],
        "translation": ["집에 간다.", "책"],
        "source": "en",
        "target": "ko",
    }
    answer = modeled.post("/score", json=asked).json()["scores"]
    ours = translator.score(asked["q"], asked["translation"])  # type: ignore[arg-type]
    assert [one["logProbability"] for one in answer] == pytest.approx(
        [one.log_probability for one in ours], abs=1e-4
    )
    assert [one["tokens"] for one in answer] == [one.tokens for one in ours]
    wrong = modeled.post("/score", json={**asked, "translation": "one"})
    assert (wrong.status_code, wrong.json()["error"]) == (400, "q has 2 texts, but translation has 1")


def test_attention_maps_are_the_model_s(modeled: TestClient, translator: mh.Translator) -> None:
    asked = {"q": "I go home.", "translation": "집에 간다.", "source": "en", "target": "ko"}
    answer = modeled.post("/attention", json=asked).json()
    ours = translator.attention(asked["q"], asked["translation"])
    assert (answer["sourceTokens"], answer["targetTokens"]) == (ours.source_tokens, ours.target_tokens)
    for kind in ("encoder", "decoder", "cross"):
        for layer, maps in enumerate(getattr(ours.trace, kind)):
            assert torch.tensor(answer[kind][layer]) == pytest.approx(maps[0].numpy(), abs=1e-5)
    one = modeled.post("/attention", json={**asked, "layer": 1}).json()
    assert all(one[kind] == answer[kind][1:] for kind in ("encoder", "decoder", "cross"))
    none = modeled.post("/attention", json={**asked, "layer": 2})
    assert (none.status_code, none.json()["error"]) == (400, "layer is 2, but the model has 2, from 0")
    too_long = modeled.post("/attention", json={**asked, "q": "I go home. " * 30})
    assert too_long.status_code == 400
    assert "numbers, but at most 20000 are given" in too_long.json()["error"]


def test_what_a_request_alone_tells_is_checked_before_it_waits(
    modeled: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: Any) -> None:
        raise AssertionError("it has a place in the queue")

    monkeypatch.setattr("manyheads.serve.queue.Queue.submit", submit)
    asked = {"q": "I go home.", "source": "en", "target": "ko"}
    for path, wrong in (
        ("/attention", {"layer": 2}),
        ("/attention", {"q": "I go home. " * 30}),
        ("/attention", {"translation": "집 " * 90}),
        ("/score", {"q": "I go home. " * 90, "translation": "a"}),
        ("/score", {"translation": "a " * 900}),
    ):
        assert modeled.post(path, json={**asked, **wrong}).status_code == 400, (path, wrong)


def test_a_word_without_end_is_translated_without_a_warning_in_the_log(modeled: TestClient) -> None:
    answer = modeled.post("/translate", json={"q": "x" * 300, "source": "en", "target": "ko"})
    assert answer.status_code == 200


def test_html_goes_through_the_model_with_every_tag(modeled: TestClient) -> None:
    page = "<p>I <b>go <i>home</i></b>.</p>"
    asked = {"q": page, "source": "en", "target": "ko", "format": "html"}
    found = modeled.post("/translate", json=asked).json()["translatedText"]
    assert found.startswith("<p>")
    assert [found.count(tag) for tag in ("<b>", "<i>", "</i>", "</b>")] == [1, 1, 1, 1]
    answer = modeled.post("/translate", json={**asked, "alternatives": 2}).json()
    assert answer["translatedText"] == found
    assert answer["alternatives"]
    for one in answer["alternatives"]:
        assert [one.count(tag) for tag in ("<b>", "<i>", "</i>", "</b>")] == [1, 1, 1, 1]


def test_maps_are_the_torch_engine_s(client: TestClient) -> None:
    answer = client.post("/attention", json={"q": "a", "source": "en", "target": "ko"})
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        "attention maps are the torch engine's; this one is scripted",
    )


def test_ctranslate2_serves_the_same(translator: mh.Translator, tmp_path: Path, modeled: TestClient) -> None:
    pytest.importorskip("ctranslate2")
    folder = tmp_path / "model"
    engine: Any = translator.engine
    config = mh.Config(model=engine.model.config, decoding=translator.decoding)
    languages = {"source": "en", "target": "ko"}
    weights = checkpoint.collect_weights(engine.model)
    checkpoint.save(folder, weights, translator.subwords, config, step=1, languages=languages)
    other = mh.load(folder, engine="ctranslate2")
    asked = {"q": ["I go home.", "<b>We</b> read."], "source": "en", "target": "ko", "format": "html"}
    with TestClient(create_app(name_models([other])), base_url="http://localhost") as client:
        answer = client.post("/translate", json=asked).json()["translatedText"]
        assert answer[1].startswith("<b>")
        assert client.post("/score", json={**asked, "translation": ["a", "b"]}).status_code == 200
        assert client.post("/attention", json={**asked, "q": "I go."}).status_code == 400
