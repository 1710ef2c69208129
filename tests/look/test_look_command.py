import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import manyheads as mh
from manyheads.cli import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The verb, called as the command line calls it: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["manyheads", "look", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


def data_of(path: Path) -> dict:
    text = path.read_text(encoding="utf-8")
    return json.loads(text.split('id="attention">')[1].split("</script>")[0])


def test_look_writes_a_page_of_the_models_own_translation(look: Call, model: Path, tmp_path: Path) -> None:
    code, out, err = look(str(model), "I go home.")
    assert (code, err) == (0, "")
    own = mh.load(model, device="cpu").translate("I go home.", split=False).text
    assert out.splitlines()[0] == own
    assert out.splitlines()[-1] == "attention.html: open it in a browser"
    assert data_of(tmp_path / "attention.html")["text"] == {"source": "I go home.", "target": own}


def test_of_several_sentences_the_first_is_shown_and_that_is_said(
    look: Call, model: Path, tmp_path: Path
) -> None:
    code, _, err = look(str(model), "I go home. He sleeps.")
    assert code == 0
    assert "2 sentences, of which the first is shown" in err
    assert data_of(tmp_path / "attention.html")["text"]["source"] == "I go home."


def test_the_page_tells_nothing_of_the_machine(look: Call, model: Path, tmp_path: Path) -> None:
    assert look(str(model), "I go home.")[0] == 0
    data = data_of(tmp_path / "attention.html")
    assert [moment["name"] for moment in data["moments"]] == ["model"]
    assert str(model.parent) not in (tmp_path / "attention.html").read_text(encoding="utf-8")


def test_an_empty_translation_is_one_too(look: Call, run: Path, tmp_path: Path) -> None:
    assert look(str(run), "I go home.", "--target", "", "--through-training")[0] == 0
    assert data_of(tmp_path / "attention.html")["tokens"]["written"] == ["</s>"]


def test_an_option_is_named_by_which_another_place_is_given(look: Call, model: Path) -> None:
    page = look(str(model), "I go.", "-o", "/dev/null/x.html")
    assert page[2].endswith("give another place with -o\n")
    figures = look(str(model), "I go.", "--target", "I.", "--figures", "/dev/null/x")
    assert figures[2].endswith("give another place with --figures\n")


def test_look_takes_a_given_translation_and_reports_as_json(look: Call, model: Path) -> None:
    _, out, _ = look(str(model), "I go home.", "--target", "나는 집에 간다.", "-o", "new/page.html", "--json")
    told = json.loads(out)
    assert told["files"] == ["new/page.html"]
    assert told["words"]["written"] == ["나는", "집에", "간다", ".", "</s>"]
    (moment,) = told["moments"]
    assert len(moment["measures"]["cross"]["words"][1][3]) == len(told["measure_names"]) == 5
    assert "maps" not in moment


def test_look_makes_figures_alone(
    look: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("manyheads.look.figures.FORMATS", ("pdf",))
    code, out, err = look(str(model), "I go home.", "--target", "I go.", "--figures", "out")
    assert (code, err) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert "out/figure-3.pdf" in out


def test_look_goes_through_training(look: Call, run: Path, tmp_path: Path) -> None:
    code, _, err = look(str(run), "I go home.", "--through-training")
    assert code == 0, err
    assert [moment["step"] for moment in data_of(tmp_path / "attention.html")["moments"]] == [10, 20, 30]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["MODEL"], 2, 'no sentence to look at: manyheads look MODEL "sentence"'),
        (["MODEL", "  "], 2, 'no sentence to look at: manyheads look MODEL "sentence"'),
        (["nowhere", "I go."], 3, "nowhere: no model folder (manyheads.json: No such file or directory)"),
        (["MODEL", "I go.", "--through-training"], 3, "MODEL: no run with checkpoints"),
        (["RUN", "I go.", "--through-training", "--figures", "x"], 2, "--figures are of a model"),
        (["RUN", "--through-training"], 2, "RUN: give a sentence, for its data are gone"),
        (["MODEL", "I go.", "-o", "/dev/null/x.html"], 2, "/dev/null/x.html: cannot be written ("),
        (["MODEL", "I go.", "--target", "I.", "--figures", "/dev/null/x"], 2, "/dev/null/x: cannot be wri"),
        (["MODEL", "I \udcff go."], 2, "the sentence is not UTF-8"),
        (["MODEL", "I go.", "--target", "\udcff"], 2, "--target is not UTF-8"),
        (["RUN", "I \udcff go.", "--through-training"], 2, "the sentence is not UTF-8"),
        (["MODEL", "I go.", "-o", "."], 2, ".: is a folder; give the page a name, such as page.html"),
    ],
)
def test_a_wrong_look_is_one_clear_line(
    arguments: list[str], code: int, message: str, look: Call, model: Path, run: Path
) -> None:
    known = {"MODEL": str(model), "RUN": str(run)}
    found, out, err = look(*(known.get(one, one) for one in arguments))
    for name, path in known.items():
        err = err.replace(path, name)
    assert (found, out) == (code, "")
    assert err.startswith(f"manyheads: {message}")
    assert err.count("\n") == 1
