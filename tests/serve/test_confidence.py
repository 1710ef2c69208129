"""The server says how sure a model is, and whether a text looks like its source language."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from manyheads.serve.languages import LanguageDetector
from manyheads.serve.response_parts import join_notes
from manyheads.serve.source_language import SourceLanguage
from manyheads.translation import Translation
from support.scripted_translator import ScriptedTranslator

REQUEST = {"source": "en", "target": "ko"}
TEXTS = ["one two", "unsure two", "  "]
FRENCH = "Bonjour tout le monde, je ne sais pas où je suis."
KOREAN = "나는 오늘 학교에 간다."


@pytest.fixture(scope="module")
def calibrated(create_client: Any) -> Iterator[TestClient]:
    with create_client(ScriptedTranslator(is_calibrated=True)) as client:
        yield client


def translate(client: TestClient, q: str | list[str], **fields: Any) -> dict[str, Any]:
    response = client.post("/translate", json={**REQUEST, "q": q, **fields})
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_a_calibrated_model_answers_its_confidence_and_notes(calibrated: TestClient) -> None:
    assert translate(calibrated, "one two") == {"translatedText": "two one", "confidence": 0.9}
    assert translate(calibrated, "unsure two") == {
        "translatedText": "two unsure",
        "confidence": 0.2,
        "notes": ["loop removed"],
    }
    assert translate(calibrated, TEXTS) == {
        "translatedText": ["two one", "two unsure", "  "],
        "confidence": [0.9, 0.2, None],
        "notes": [[], ["loop removed"], []],
    }


def test_an_uncalibrated_model_answers_none(client: TestClient) -> None:
    assert translate(client, "unsure two") == {"translatedText": "two unsure"}
    assert client.get("/models").json()[0]["calibrated"] is False


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({}, ["two one", "two unsure"]),
        ({"min_confidence": 0.95}, ["two one", "two unsure"]),
        ({"below": "mark"}, ["two one", "[?] two unsure"]),
        ({"below": "source"}, ["two one", "unsure two"]),
        ({"below": "empty"}, ["two one", ""]),
        ({"below": "mark", "min_confidence": 0.1}, ["two one", "two unsure"]),
        ({"below": "empty", "min_confidence": 0.95}, ["", ""]),
        ({"below": "", "min_confidence": None}, ["two one", "two unsure"]),
    ],
)
def test_a_request_says_what_to_do_below_its_threshold(
    calibrated: TestClient, fields: dict[str, Any], texts: list[str]
) -> None:
    response = translate(calibrated, TEXTS[:2], **fields)
    assert response["translatedText"] == texts
    assert response["confidence"] == [0.9, 0.2]
    form = calibrated.post("/translate", data={**REQUEST, "q": TEXTS[1], **fields})
    assert form.json()["translatedText"] == texts[1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min_confidence": 1.5}, "min_confidence: Input should be less than or equal to 1"),
        ({"min_confidence": -1}, "min_confidence: Input should be greater than or equal to 0"),
        ({"min_confidence": "high"}, "min_confidence: Input should be a valid number"),
        ({"min_confidence": "nan"}, "min_confidence: Input should be a finite number"),
        ({"below": "drop"}, "below: Input should be 'keep', 'mark', 'source' or 'empty'"),
    ],
)
def test_a_wrong_value_is_a_clear_error(calibrated: TestClient, fields: dict[str, Any], message: str) -> None:
    response = calibrated.post("/translate", json={**REQUEST, "q": "a", **fields})
    assert response.status_code == 400
    assert response.json()["error"].startswith(message)


def test_a_threshold_needs_a_calibrated_model(client: TestClient) -> None:
    response = client.post("/translate", json={**REQUEST, "q": "a b", "min_confidence": 0.5})
    assert response.status_code == 400
    assert response.json()["error"] == (
        "min_confidence and below need a calibrated model, but en-ko is not: run manyheads calibrate"
    )


@pytest.mark.parametrize(
    ("below", "page"),
    [
        ("keep", "<p>two one</p><p>two unsure</p>"),
        ("mark", "<p>two one</p><p>[?] two unsure</p>"),
        ("source", "<p>two one</p><p>unsure two</p>"),
        ("empty", "<p>two one</p><p></p>"),
    ],
)
def test_html_is_judged_by_its_blocks(calibrated: TestClient, below: str, page: str) -> None:
    source = "<p>one two</p><p>unsure two</p>"
    response = translate(calibrated, source, format="html", below=below)
    assert response == {"translatedText": page, "confidence": 0.2, "notes": ["loop removed"]}


def test_metrics_count_confidences(create_client: Any) -> None:
    with create_client(ScriptedTranslator(is_calibrated=True)) as client:
        translate(client, TEXTS)
        translate(client, FRENCH)
        lines = client.get("/metrics").text.splitlines()
    assert 'manyheads_confidence_bucket{le="0.5",model="en-ko"} 1.0' in lines
    assert 'manyheads_confidence_count{model="en-ko"} 3.0' in lines
    assert "manyheads_foreign_texts_total 1.0" in lines


# ---- the source language


def test_a_text_in_another_language_has_a_note(client: TestClient) -> None:
    response = translate(client, FRENCH)
    assert response["notes"] == ["looks like French, not English"]
    assert response["translatedText"] == " ".join(reversed(FRENCH.split(" "))), "and is translated"
    assert translate(client, KOREAN)["notes"] == ["looks like Korean, not English"]
    assert translate(client, f"<p lang='en'>{KOREAN}</p>", format="html")["notes"] == [
        "looks like Korean, not English"
    ]


@pytest.mark.parametrize(
    "text", ["I love you.", "Hello", "WHERE IS THE LIBRARY?", "Angela Merkel", "123", "Tom met Maria.", ""]
)
def test_short_texts_names_and_capitals_have_no_note(client: TestClient, text: str) -> None:
    assert "notes" not in translate(client, text)


def test_a_detected_language_that_is_not_served_is_named(client: TestClient) -> None:
    response = translate(client, [FRENCH, "Where is the library, please?"], source="auto")
    french, english = response["detectedLanguage"]
    assert french["language"] == "fr"
    assert 90 < french["confidence"] <= 100
    assert english["language"] == "en"
    assert response["notes"] == [["looks like French, which is not served; translated from English"], []]


def test_a_text_in_the_target_language_stays_without_a_note(client: TestClient) -> None:
    assert translate(client, KOREAN, source="ko") == {"translatedText": KOREAN}
    assert "notes" not in translate(client, KOREAN, source="auto")


def test_one_note_about_the_language_is_enough() -> None:
    french = SourceLanguage("en", "fr", 99.0, "looks like French, not English")
    english = SourceLanguage("en", "en", 100.0)
    translation = Translation("", "", notes=["looks like fr, not en", "second try"])
    assert join_notes(translation, french) == ["looks like French, not English", "second try"]
    assert join_notes(translation, english) == ["looks like fr, not en", "second try"]


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [
        ([("fr", 0.95), ("en", 0.01)], ("fr", 95.0)),
        ([("fr", 0.75), ("en", 0.01)], None),
        ([("fr", 0.85), ("en", 0.10)], None),
        ([("pcm", 0.95), ("en", 0.01)], None),
        ([("en", 0.95), ("fr", 0.01)], None),
        ([("fr", 0.95)], None),
        ([], None),
    ],
)
def test_a_text_is_foreign_if_that_is_clear_and_no_related_language_explains_it(
    monkeypatch: pytest.MonkeyPatch, ranking: list[tuple[str, float]], expected: tuple[str, float] | None
) -> None:
    detector = LanguageDetector(["en", "ko"])
    monkeypatch.setattr(detector, "_rank", lambda text: ranking)
    assert detector.find_foreign("text", "en") == expected


def test_the_markup_of_a_page_is_in_no_language(client: TestClient) -> None:
    title = "this is what the title of the paragraph says about the weather of the day"
    page = f"<p title='{title}' class='the quick brown fox and the lazy dog'>{FRENCH}</p>"
    assert "notes" not in translate(client, page), "as text it is mostly English"
    assert translate(client, page, format="html")["notes"] == ["looks like French, not English"]


def test_the_schema_describes_the_fields(calibrated: TestClient) -> None:
    schema = calibrated.get("/openapi.json").json()
    body = schema["paths"]["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"min_confidence", "below"} <= body["properties"].keys()
    response = schema["components"]["schemas"]["TranslateResponse"]
    assert {"confidence", "notes"} <= response["properties"].keys()
