"""The endpoints of the page: word alignments, attention data, walks, curves, and assets."""

import json
import math
import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from starlette.testclient import TestClient

import manyheads as mh
from manyheads.errors import RequestError
from manyheads.look.attention_data import build_attention_data
from manyheads.look.forward_walk import walk_layer
from manyheads.serve.app import create_app
from manyheads.serve.limits import ServerLimits
from manyheads.serve.served_model import name_models
from manyheads.serve.training import MAX_POINTS, TrainingRuns
from manyheads.serve.word_alignment import WordAlignment
from manyheads.translation import Translation
from support.run_logs import write_log

REQUEST = {"q": "I go home.", "translation": "집에 간다.", "source": "en", "target": "ko"}


@pytest.fixture(scope="module")
def model_client(translator: mh.Translator) -> Any:
    limits = ServerLimits(max_numbers=40_000)
    with TestClient(create_app(name_models([translator]), limits), base_url="http://localhost") as client:
        yield client


def test_words_have_probabilities_and_aligned_source_words() -> None:
    translation = Translation(
        "I go home.",
        "집에 간다.",
        source_tokens=["▁I", "▁go", "▁ho", "me", "."],
        tokens=["▁집", "에", "▁간다", "."],
        token_scores=[math.log(0.5), math.log(0.8), math.log(0.9), -0.1],
        alignment=[(2, 0), (3, 1), (0, 2), (4, 3)],
    )
    words = WordAlignment.from_translation(translation)
    assert (words.source, words.target) == (["I", "go", "home", "."], ["집에", "간다", "."])
    assert words.probabilities == pytest.approx([0.4, 0.9, math.exp(-0.1)])
    assert words.sources == [[2], [0], [3]]
    assert WordAlignment.from_translation(Translation("a", "b", tokens=["▁b"])).probabilities == [None], (
        "there are no scores"
    )
    assert WordAlignment.from_translation(Translation("", "")).to_json() == {"sourceWords": [], "words": []}


def test_details_hold_the_words(model_client: TestClient, translator: mh.Translator) -> None:
    request = {"q": "I go home.", "source": "en", "target": "ko", "details": True}
    details = model_client.post("/translate", json=request).json()["details"]
    expected = translator.translate("I go home.", alignment=True)
    assert details["sourceWords"] == ["I", "go", "home", "."]
    total = sum(math.log(word["probability"]) for word in details["words"])
    assert total == pytest.approx(sum(expected.token_scores), abs=1e-3)
    assert {n for word in details["words"] for n in word["sources"]} <= set(range(4))


def test_look_returns_the_data_of_the_attention_page(
    model_client: TestClient, translator: mh.Translator
) -> None:
    response = model_client.post("/look", json=REQUEST)
    expected = build_attention_data(
        translator.attention(REQUEST["q"], REQUEST["translation"]), source=REQUEST["q"], target="집에 간다."
    )
    assert response.json() == json.loads(json.dumps(expected))


@pytest.mark.parametrize("path", ["/attention", "/look", "/walk"])
def test_json_is_not_escaped_to_ascii(model_client: TestClient, path: str) -> None:
    assert "집에 간다." in model_client.post(path, json=REQUEST).content.decode()


@pytest.mark.parametrize(("path", "remedy"), [("/attention", " or one layer"), ("/look", ""), ("/walk", "")])
def test_too_many_numbers_have_an_error_code_and_a_useful_remedy(
    create_client: Any, translator: mh.Translator, path: str, remedy: str
) -> None:
    sides = (translator.subwords.source, REQUEST["q"]), (translator.subwords.target, REQUEST["translation"])
    tokens = max(len(subwords.encode(text)) for subwords, text in sides) + 1
    max_numbers = 100 if path == "/walk" else 3 * 2 * tokens**2  # one layer of two, with two heads
    with create_client(translator, limits=ServerLimits(max_numbers=max_numbers)) as client:
        response = client.post(path, json=REQUEST)
    assert response.status_code == 400
    assert response.json()["code"] == "too_many_numbers"
    assert response.json()["error"].endswith(f"use a shorter sentence{remedy}")


def test_details_hold_the_sentences(model_client: TestClient) -> None:
    request = {"q": "I go home.  We read!\n- \nHome.", "source": "en", "target": "ko", "details": True}
    details = model_client.post("/translate", json=request).json()["details"]
    assert details["sentences"] == ["I go home.", "We read!", "Home."]


def test_walk_returns_the_numbers_of_the_model(model_client: TestClient, translator: mh.Translator) -> None:
    response = model_client.post("/walk", json={**REQUEST, "stack": "decoder", "layer": 1, "width": 5})
    expected = walk_layer(translator, REQUEST["q"], REQUEST["translation"], stack="decoder", layer=1, width=5)
    pieces = [translator.subwords.target.id_to_piece(piece) for piece in range(5)]
    assert response.json() == {**json.loads(json.dumps(expected)), "vocabulary": pieces}
    assert model_client.post("/walk", params=REQUEST).json()["stack"] == "encoder"


@pytest.mark.parametrize(
    ("path", "changes", "error"),
    [
        ("/look", {"q": "I go home. " * 30}, "numbers, but the maximum is 40000"),
        ("/look", {"translation": "집에 간다. " * 30}, "numbers, but the maximum is 40000"),
        ("/walk", {"q": "I go home. " * 60}, "numbers, but the maximum is 40000"),
        ("/walk", {"translation": "집에 간다. " * 60}, "numbers, but the maximum is 40000"),
        ("/walk", {"q": "I go home. " * 10, "width": 1000}, "numbers, but the maximum is 40000"),
        ("/walk", {"layer": 2}, "layer is 2, but the encoder has 2 layers, counted from 0"),
        ("/walk", {"layer": -1}, "layer: Input should be greater than or equal to 0"),
        ("/walk", {"width": 0}, "width: Input should be greater than or equal to 1"),
        ("/walk", {"stack": "both"}, "stack: Input should be 'encoder' or 'decoder'"),
        ("/walk", {"q": ["a", "b"]}, "q: Input should be a valid string"),
        ("/walk", {"q": "x" * 10_001}, "q has 10001 characters"),
        ("/look", {"model": "none"}, "no model 'none'"),
    ],
)
def test_exceeded_limits_are_400_with_a_clear_message(
    model_client: TestClient, path: str, changes: dict[str, Any], error: str
) -> None:
    response = model_client.post(path, json={**REQUEST, **changes})
    assert response.status_code == 400
    assert error in response.json()["error"]


@pytest.mark.parametrize("path", ["/look", "/walk"])
def test_look_and_walk_need_the_torch_engine(client: TestClient, path: str) -> None:
    response = client.post(path, json={"q": "a", "source": "en", "target": "ko"})
    assert (response.status_code, response.json()["error"]) == (
        400,
        "the engine scripted does not support attention: use the torch engine",
    )


# ---- curves


def test_curves_follow_the_log(create_client: Any, tmp_path: Path) -> None:
    train = [{"event": "train", "step": n, "loss": 9.0 - n, "epoch": 0, "signature": "x"} for n in (1, 2)]
    valid = {"event": "valid", "step": 2, "loss": 3.0, "bleu": 50.5, "perplexity": None}
    run = write_log(tmp_path / "run", [*train, valid])
    with create_client(runs=[run]) as client:
        points = {
            "train": [{"step": 1, "loss": 8.0}, {"step": 2, "loss": 7.0}],
            "valid": [{"step": 2, "loss": 3.0, "bleu": 50.5}],
        }
        assert client.get("/training").json() == [{"name": "run", "ended": False, **points}]
        write_log(run, [*train, valid, {"event": "end", "step": 3, "loss": 1.0}])
        assert client.get("/training").json()[0]["ended"] is True
        (run / "log.jsonl").write_text("{\n\n", encoding="utf-8")
        broken = client.get("/training")
        assert (broken.status_code, broken.json()["error"]) == (400, "the log of the run run cannot be read")
        (run / "log.jsonl").unlink()
        missing = client.get("/training")
        assert (missing.status_code, missing.json()["error"]) == (400, "the log of the run run is missing")


def test_without_runs_there_are_no_curves_and_an_api_key_is_required(
    create_client: Any, tmp_path: Path
) -> None:
    with create_client() as client:
        assert client.get("/training").json() == []
    with create_client(api_key="k") as client:
        assert client.get("/training").status_code == 403
    with pytest.raises(RequestError, match=r"not a training run: it has no log\.jsonl"):
        TrainingRuns([tmp_path])


def test_long_logs_are_downsampled_and_keep_their_last_point(create_client: Any, tmp_path: Path) -> None:
    lines = [{"event": "train", "step": n, "loss": 1.0} for n in range(1, 2502)]
    with create_client(runs=[write_log(tmp_path / "run", lines)]) as client:
        steps = [point["step"] for point in client.get("/training").json()[0]["train"]]
    assert len(steps) <= MAX_POINTS
    assert (steps[-1], steps[-1] - steps[-2]) == (2501, 3)


# ---- OpenAPI and assets


def test_the_paths_of_the_page_are_documented_with_their_errors(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path, method in (("/look", "post"), ("/walk", "post"), ("/training", "get")):
        assert {"200", "400", "403", "413", "503"} <= set(paths[path][method]["responses"])
    schema = paths["/walk"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["q"]["maxLength"] == 10_000


def test_every_asset_of_the_page_is_served(client: TestClient) -> None:
    for path, media_type in (
        ("/main.js", "text/javascript"),
        ("/server.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
    ):
        assert client.get(path).headers["content-type"].startswith(media_type)
    assert client.get("/look/attention_explorer.js").status_code == 200
    assert client.get("/look/attention.css").status_code == 200
    assert client.get("/look/template.html").status_code == 404, "it is a template"
    assert (
        client.get("/look/attention_data.py").status_code == client.get("/look/../app.py").status_code == 404
    )


def test_modules_and_styles_of_the_page_refer_to_served_files_only(client: TestClient) -> None:
    pending, seen = ["/"], set()
    while pending:
        url = pending.pop()
        if url in seen:
            continue
        seen.add(url)
        response = client.get(url)
        assert response.status_code == 200, url
        for reference in re.findall(r'(?:from|href=|src=) ?"([^"]+\.(?:js|css|svg))"', response.text):
            pending.append(urljoin(url, reference))
    assert {"/main.js", "/server.css", "/look/attention_explorer.js", "/look/attention.css"} <= seen
