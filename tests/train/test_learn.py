"""Learning from corrections: what general text is left out, the adapter, and when it is refused."""

import shutil
from pathlib import Path

import pytest

import manyheads as mh
from manyheads import checkpoint
from manyheads.errors import RequestError
from manyheads.evaluate.bleu import Score
from manyheads.train import learn as learning
from manyheads.train.contradictions import find_wrong_words
from manyheads.train.learn import AdapterRefused, LearningOptions, learn

GENERAL = [
    *(("the teacher sleeps", "der Maler schläft") for _ in range(9)),
    ("my teacher sleeps", "mein Lehrer schläft"),
    *(("the painter sleeps", "der Maler schläft") for _ in range(9)),
    *(("the cook eats", "der Koch isst") for _ in range(20)),
]
CORRECTIONS = [(f"the teacher eats {n}", f"der Lehrer isst {n}") for n in range(3)]
OUTPUTS = [f"der Maler isst {n}" for n in range(3)]


def test_a_wrong_word_is_one_that_goes_with_a_corrected_source_word_in_general_text() -> None:
    (word,) = find_wrong_words(CORRECTIONS, OUTPUTS, GENERAL)
    assert (word.source, word.wrong, word.right, word.is_certain) == ("teacher", "maler", "Lehrer", True)
    assert sum(map(word.is_in, GENERAL)) == 9, "painters stay"
    assert word.repair(GENERAL[0]) == ("the teacher sleeps", "der Lehrer schläft")
    assert word.repair(("the teacher and the painter", "der Maler und der Maler")) is None


def test_one_correction_is_not_enough_to_repair_other_text() -> None:
    (word,) = find_wrong_words(CORRECTIONS[:1], OUTPUTS[:1], GENERAL)
    assert not word.is_certain
    assert word.repair(GENERAL[0]) is None


def test_a_word_that_a_correction_keeps_is_not_wrong() -> None:
    kept = ("the teacher paints", "der Maler malt")
    assert find_wrong_words([*CORRECTIONS, kept], [*OUTPUTS, "der Maler malt"], GENERAL) == []


def test_a_word_that_general_text_has_right_is_not_left_out() -> None:
    right = [("the teacher sleeps", "der Lehrer schläft")] * 9
    assert find_wrong_words(CORRECTIONS, OUTPUTS, right) == []


# ---- the adapter


@pytest.fixture(scope="module")
def model(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learned") / "model"
    shutil.copytree(finished_run / "model", folder)
    translator = mh.load(folder, device="cpu")
    assert translator.memory is not None
    translator.memory.add([("Mina sees 40 rivers.", "미나는 강 40 본다.")], "me")
    translator.memory.add([("He buys songs.", "그는 노래를 산다.")], "jun", "jun")
    return folder


def make_options(**changes: object) -> LearningOptions:
    return LearningOptions(sentences=5, changes=["train.steps=3"], **changes)  # type: ignore[arg-type]


def test_corrections_of_a_space_become_an_adapter_of_that_space(model: Path) -> None:
    report = learn(model, make_options(max_loss=100.0), device="cpu")
    assert (report.num_corrections, report.strength, report.num_held_out) == (1, 1.0, 5)
    assert checkpoint.list_adapters(model) == ["corrections"]
    assert checkpoint.read_adapter(model, "corrections").info["space"] == "default"
    assert "BLEU" in report.format()
    of_jun = learn(model, make_options(max_loss=100.0, space="jun"), device="cpu")
    assert Path(of_jun.adapter).name == "corrections-jun.safetensors"
    assert checkpoint.read_adapter(model, "corrections-jun").info["space"] == "jun"


def test_an_adapter_that_costs_too_much_is_weakened_and_then_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter([50.0, 49.7, 49.9, 50.0, 49.7, 49.7, 49.7])
    monkeypatch.setattr(learning, "bleu", lambda *_: Score("BLEU", next(values), ""))
    shutil.rmtree(model / "adapters", ignore_errors=True)
    assert learn(model, make_options(), device="cpu").strength == 0.5
    content = checkpoint.adapter_path(model, "corrections").read_bytes()
    with pytest.raises(AdapterRefused, match=r"falls from 50.00 to 49.70, but at most 0.2 may be lost"):
        learn(model, make_options(), device="cpu")
    assert checkpoint.adapter_path(model, "corrections").read_bytes() == content, "the old one stays"


def test_learning_without_corrections_or_general_text_says_what_to_do(model: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no corrections in the space mina"):
        learn(model, make_options(space="mina"), device="cpu")
    config = checkpoint.read_info(model).config
    data = Path(config.data.folder)
    hidden = data.rename(data.with_name("hidden"))
    try:
        with pytest.raises(RequestError, match="give --general"):
            learn(model, make_options(), device="cpu")
        for side, code in enumerate(("en", "ko")):
            lines = [("She sees 3 books.", "그녀는 책 3 본다."), ("He buys 4 books.", "그는 책 4 산다.")] * 9
            text = "".join(f"{pair[side]}\n" for pair in lines)
            (tmp_path / f"g.{code}").write_text(text, encoding="utf-8")
        files = [tmp_path / "g.en", tmp_path / "g.ko"]
        assert learn(model, make_options(general=files, max_loss=100.0), device="cpu").num_held_out == 5
    finally:
        hidden.rename(data)
