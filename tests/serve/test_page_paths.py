"""What the page asks for: words, the attention view's data, walks, curves; and its files."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import manyheads as mh
from manyheads.errors import RequestError
from manyheads.look.attention_data import build_attention_data
from manyheads.look.forward_walk import walk_layer
from manyheads.serve.app import create_app
from manyheads.serve.limits import ServerLimits
from manyheads.serve.training import MAX_POINTS, TrainingRuns
from manyheads.serve.word_alignment import WordAlignment
from manyheads.serve.worker import name_models
from manyheads.translator import Translation

ASKED = {"q": "I go home.", "translation": "집에 간다.", "source": "en", "target": "ko"}


@pytest.fixture(scope="module")
def modeled(translator: mh.Translator) -> Any:
    limits = ServerLimits(max_numbers=40_000)
    with TestClient(create_app(name_models([translator]), limits), base_url="http://localhost") as client:
        yield client


def test_words_have_the_chance_of_all_their_tokens_and_the_words_they_came_from() -> None:
    found = Translation(
        "I go home.",
        "집에 간다.",
        source_tokens=["▁I", "▁go", "▁ho", "me", "."],
        tokens=["▁집", "에", "▁간다", "."],
        token_scores=[math.log(0.5), math.log(0.8), math.log(0.9), -0.1],
        alignment=[(2, 0), (3, 1), (0, 2), (4, 3)],
    )
    words = WordAlignment.from_translation(found)
    assert (words.source, words.target) == (["I", "go", "home", "."], ["집에", "간다", "."])
    assert words.probabilities == pytest.approx([0.4, 0.9, math.exp(-0.1)])
    assert words.sources == [[2], [0], [3]]
    assert WordAlignment.from_translation(Translation("a", "b", tokens=["▁b"])).probabilities == [None], (
        "no scores were given"
    )
    assert WordAlignment.from_translation(Translation("", "")).to_json() == {"sourceWords": [], "words": []}


def test_details_tell_the_words(modeled: TestClient, translator: mh.Translator) -> None:
    asked = {"q": "I go home.", "source": "en", "target": "ko", "details": True}
    details = modeled.post("/translate", json=asked).json()["details"]
    ours = translator.translate("I go home.", alignment=True)
    assert details["sourceWords"] == ["I", "go", "home", "."]
    total = sum(math.log(one["chance"]) for one in details["words"])
    assert total == pytest.approx(sum(ours.token_scores), abs=1e-3)
    assert {n for one in details["words"] for n in one["sources"]} <= set(range(4))


def test_look_answers_what_the_attention_page_shows(modeled: TestClient, translator: mh.Translator) -> None:
    answer = modeled.post("/look", json=ASKED)
    ours = build_attention_data(
        translator.attention(ASKED["q"], ASKED["translation"]), source=ASKED["q"], target="집에 간다."
    )
    assert answer.json() == json.loads(json.dumps(ours))


@pytest.mark.parametrize("path", ["/attention", "/look", "/walk"])
def test_letters_stand_as_they_are(modeled: TestClient, path: str) -> None:
    assert "집에 간다." in modeled.post(path, json=ASKED).content.decode()


@pytest.mark.parametrize(("path", "advice"), [("/attention", ", or one layer"), ("/look", ""), ("/walk", "")])
def test_too_long_a_sentence_is_told_by_kind_and_with_advice_that_helps(
    asking: Any, translator: mh.Translator, path: str, advice: str
) -> None:
    sides = (translator.subwords.source, ASKED["q"]), (translator.subwords.target, ASKED["translation"])
    tokens = max(len(subwords.encode(text)) for subwords, text in sides) + 1
    few = 100 if path == "/walk" else 3 * 2 * tokens**2  # one layer of two, with two heads
    with asking(translator, limits=ServerLimits(max_numbers=few)) as client:
        answer = client.post(path, json=ASKED)
    assert answer.status_code == 400
    assert answer.json()["kind"] == "too_long"
    assert answer.json()["error"].endswith(f"take a shorter sentence{advice}")


def test_details_have_the_sentences_that_are_translated_one_by_one(modeled: TestClient) -> None:
    asked = {"q": "I go home.  We read!\n- \nHome.", "source": "en", "target": "ko", "details": True}
    details = modeled.post("/translate", json=asked).json()["details"]
    assert details["sentences"] == ["I go home.", "We read!", "Home."]


def test_walk_answers_the_models_numbers(modeled: TestClient, translator: mh.Translator) -> None:
    answer = modeled.post("/walk", json={**ASKED, "stack": "decoder", "layer": 1, "width": 5})
    ours = walk_layer(translator, ASKED["q"], ASKED["translation"], stack="decoder", layer=1, width=5)
    pieces = [translator.subwords.target.id_to_piece(one) for one in range(5)]
    assert answer.json() == {**json.loads(json.dumps(ours)), "vocabulary": pieces}
    assert modeled.post("/walk", params=ASKED).json()["stack"] == "encoder"


@pytest.mark.parametrize(
    ("path", "changes", "error"),
    [
        ("/look", {"q": "I go home. " * 30}, "numbers, but at most 40000 are given"),
        ("/look", {"translation": "집에 간다. " * 30}, "numbers, but at most 40000 are given"),
        ("/walk", {"q": "I go home. " * 60}, "numbers, but at most 40000 are given"),
        ("/walk", {"translation": "집에 간다. " * 60}, "numbers, but at most 40000 are given"),
        ("/walk", {"q": "I go home. " * 10, "width": 1000}, "numbers, but at most 40000 are given"),
        ("/walk", {"layer": 2}, "layer is 2, but the model has 2, from 0"),
        ("/walk", {"layer": -1}, "layer: Input should be greater than or equal to 0"),
        ("/walk", {"width": 0}, "width: Input should be greater than or equal to 1"),
        ("/walk", {"stack": "both"}, "stack: Input should be 'encoder' or 'decoder'"),
        ("/walk", {"q": ["a", "b"]}, "q: Input should be a valid string"),
        ("/walk", {"q": "x" * 10_001}, "q has 10001 characters"),
        ("/look", {"model": "none"}, "no model 'none'"),
    ],
)
def test_what_is_too_much_is_a_clear_400(
    modeled: TestClient, path: str, changes: dict[str, Any], error: str
) -> None:
    answer = modeled.post(path, json={**ASKED, **changes})
    assert answer.status_code == 400
    assert error in answer.json()["error"]


@pytest.mark.parametrize("path", ["/look", "/walk"])
def test_an_engine_without_maps_says_so(client: TestClient, path: str) -> None:
    answer = client.post(path, json={"q": "a", "source": "en", "target": "ko"})
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        "attention maps are the torch engine's; this one is scripted",
    )


# ---- curves


def write_log(run: Path, lines: list[Any]) -> Path:
    run.mkdir(exist_ok=True)
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return run


def test_curves_are_the_logs_and_grow_with_it(asking: Any, tmp_path: Path) -> None:
    train = [{"event": "train", "step": n, "loss": 9.0 - n, "epoch": 0, "signature": "x"} for n in (1, 2)]
    valid = {"event": "valid", "step": 2, "loss": 3.0, "bleu": 50.5, "perplexity": None}
    run = write_log(tmp_path / "run", [*train, valid, ["no line"]])
    with asking(runs=[run]) as client:
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
        gone = client.get("/training")
        assert (gone.status_code, gone.json()["error"]) == (400, "the log of the run run is gone")


def test_without_a_run_there_are_no_curves_and_a_key_is_asked_for(asking: Any, tmp_path: Path) -> None:
    with asking() as client:
        assert client.get("/training").json() == []
    with asking(api_key="k") as client:
        assert client.get("/training").status_code == 403
    with pytest.raises(RequestError, match=r"is no run, for it has no log\.jsonl"):
        TrainingRuns([tmp_path])


def test_long_logs_are_thinned_and_keep_their_end(asking: Any, tmp_path: Path) -> None:
    lines = [{"event": "train", "step": n, "loss": 1.0} for n in range(1, 2502)]
    with asking(runs=[write_log(tmp_path / "run", lines)]) as client:
        steps = [one["step"] for one in client.get("/training").json()[0]["train"]]
    assert len(steps) <= MAX_POINTS
    assert (steps[-1], steps[-1] - steps[-2]) == (2501, 3)


# ---- the description and the files


def test_the_new_paths_are_described_with_their_faults(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path, method in (("/look", "post"), ("/walk", "post"), ("/training", "get")):
        assert {"200", "400", "403", "413", "503"} <= set(paths[path][method]["responses"])
    schema = paths["/walk"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["q"]["maxLength"] == 10_000


def test_every_module_of_the_page_is_served_and_names_only_what_is_served(client: TestClient) -> None:
    for path, kind in (
        ("/main.js", "text/javascript"),
        ("/page.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
    ):
        assert client.get(path).headers["content-type"].startswith(kind)
    assert client.get("/look/show.js").status_code == client.get("/look/page.css").status_code == 200
    assert client.get("/look/page.html").status_code == 404, "it is a template"
    assert client.get("/look/maps.py").status_code == client.get("/look/../app.py").status_code == 404
