"""The command `manyheads look`."""

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
    """Call the command and return its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["manyheads", "look", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


def read_data(path: Path) -> dict:
    text = path.read_text(encoding="utf-8")
    return json.loads(text.split('id="attention">')[1].split("</script>")[0])


def test_look_writes_a_page_for_the_translation_of_the_model(look: Call, model: Path, tmp_path: Path) -> None:
    code, out, err = look(str(model), "I go home.")
    assert (code, err) == (0, "")
    own = mh.load(model, device="cpu").translate("I go home.", split=False).text
    assert out.splitlines()[0] == own
    assert out.splitlines()[-1] == "attention.html: open it in a browser"
    assert read_data(tmp_path / "attention.html")["text"] == {"source": "I go home.", "target": own}


def test_the_first_of_several_sentences_is_shown_with_a_message(
    look: Call, model: Path, tmp_path: Path
) -> None:
    code, _, err = look(str(model), "I go home. He sleeps.")
    assert code == 0
    assert "2 sentences; only the first is shown" in err
    assert read_data(tmp_path / "attention.html")["text"]["source"] == "I go home."


def test_the_page_holds_no_paths(look: Call, model: Path, tmp_path: Path) -> None:
    assert look(str(model), "I go home.")[0] == 0
    data = read_data(tmp_path / "attention.html")
    assert [snapshot["name"] for snapshot in data["snapshots"]] == ["model"]
    assert str(model.parent) not in (tmp_path / "attention.html").read_text(encoding="utf-8")


def test_the_translation_can_be_empty(look: Call, run: Path, tmp_path: Path) -> None:
    assert look(str(run), "I go home.", "--target", "", "--through-training")[0] == 0
    assert read_data(tmp_path / "attention.html")["tokens"]["target"] == ["</s>"]


def test_write_errors_name_the_option(look: Call, model: Path) -> None:
    page = look(str(model), "I go.", "-o", "/dev/null/x.html")
    assert page[2].endswith("give another path with -o\n")
    figures = look(str(model), "I go.", "--target", "I.", "--figures", "/dev/null/x")
    assert figures[2].endswith("give another path with --figures\n")


def test_look_takes_a_translation_and_reports_json(look: Call, model: Path) -> None:
    target = ["--target", "나는 집에 간다."]
    _, out, err = look(str(model), "I go home.", *target, "-o", "new/page.html", "--json")
    assert err == "manyheads: new: folder created\n"
    report = json.loads(out)
    assert report["files"] == ["new/page.html"]
    assert report["words"]["target"] == ["나는", "집에", "간다", ".", "</s>"]
    (snapshot,) = report["snapshots"]
    assert len(snapshot["measures"]["cross"]["words"][1][3]) == len(report["measure_names"]) == 5
    assert "maps" not in snapshot


def test_look_writes_figures_without_a_page(
    look: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("manyheads.look.plots.FORMATS", ("pdf",))
    code, out, err = look(str(model), "I go home.", "--target", "I go.", "--figures", "out")
    assert (code, err) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert "out/figure-3.pdf" in out


def test_look_prints_the_page_and_the_figures_that_it_writes(
    look: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("manyheads.look.plots.FORMATS", ("pdf",))
    code, out, err = look(
        str(model), "I go home.", "--target", "I go.", "--figures", "out", "-o", "page.html"
    )
    assert (code, err) == (0, "")
    assert "page.html: open it in a browser" in out.splitlines()
    assert {line for line in out.splitlines() if line.startswith("out/")} == {
        str(path.relative_to(tmp_path)) for path in (tmp_path / "out").iterdir()
    }


def test_look_shows_the_checkpoints_of_a_run(look: Call, run: Path, tmp_path: Path) -> None:
    code, _, err = look(str(run), "I go home.", "--through-training")
    assert code == 0, err
    assert [snapshot["step"] for snapshot in read_data(tmp_path / "attention.html")["snapshots"]] == [
        10,
        20,
        30,
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["MODEL"], 2, 'no sentence to look at: manyheads look MODEL "sentence"'),
        (["MODEL", "  "], 2, 'no sentence to look at: manyheads look MODEL "sentence"'),
        (["nowhere", "I go."], 3, "nowhere: not a model folder, nor the name of a model"),
        (
            ["MODEL", "I go.", "--through-training"],
            3,
            "MODEL: has no checkpoints; give the folder of a training run",
        ),
        (["RUN", "I go.", "--through-training", "--figures", "x"], 2, "--figures are of a model"),
        (["RUN", "--through-training"], 2, "RUN: its data are missing ("),
        (["MODEL", "I go.", "-o", "/dev/null/x.html"], 2, "/dev/null/x.html: cannot be written ("),
        (["MODEL", "I go.", "--target", "I.", "--figures", "/dev/null/x"], 2, "/dev/null/x: cannot be wri"),
        (["MODEL", "I \udcff go."], 2, "the sentence is not UTF-8"),
        (["MODEL", "I go.", "--target", "\udcff"], 2, "--target is not UTF-8"),
        (["RUN", "I \udcff go.", "--through-training"], 2, "the sentence is not UTF-8"),
        (["MODEL", "I go.", "-o", "."], 2, ".: is a folder; give a file name, such as page.html"),
    ],
)
def test_errors_of_look_are_one_line(
    arguments: list[str], code: int, message: str, look: Call, model: Path, run: Path
) -> None:
    known = {"MODEL": str(model), "RUN": str(run)}
    exit_code, out, err = look(*(known.get(argument, argument) for argument in arguments))
    for name, path in known.items():
        err = err.replace(path, name)
    assert (exit_code, out) == (code, "")
    assert err.startswith(f"manyheads: {message}")
    assert err.count("\n") == 1


def test_look_writes_a_walk_through_every_layer(look: Call, model: Path, tmp_path: Path) -> None:
    code, out, err = look(str(model), "I go home.", "--walk")
    assert (code, err) == (0, "")
    own = mh.load(model, device="cpu").translate("I go home.", split=False).text
    assert out.splitlines() == [own, "walk.html: open it in a browser"]
    text = (tmp_path / "walk.html").read_text(encoding="utf-8")
    data = json.loads(text.split('id="walk-data">')[1].split("</script>")[0])
    assert [len(data[stack]) for stack in ("encoder", "decoder")] == [2, 2]
    code, _, err = look(str(model), "I go home.", "--walk", "--json")
    assert (code, "leave out --through-training, --figures and --json" in err) == (2, True)
    code, _, err = look(str(model), "--walk")
    assert (code, "no sentence to walk" in err) == (2, True)


# ---- --live


def test_live_writes_a_translator(look: Call, model: Path, tmp_path: Path) -> None:
    code, out, err = look(str(model), "I go home.", "--live", "--json")
    assert (code, err) == (0, "")
    page = tmp_path / "translator.html"
    assert json.loads(out) == {
        "file": "translator.html",
        "bytes": page.stat().st_size,
        "models": [model.name],
    }
    assert str(model.parent) not in page.read_text(encoding="utf-8")
    code, out, _ = look(str(model), "--live", "--compare", str(model), "-o", "two.html")
    assert (code, out) == (0, "two.html: 0.4 MB; open it in a browser, it works offline\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--compare", "other"], "--compare is of a translator in a page: give --live too"),
        (["--live", "--target", "a"], "--live and --target are of different pages: give one of them"),
        (["--live", "--figures", "a"], "--live and --figures are of different pages: give one of them"),
        (["--live", "--through-training"], "--live and --through-training are of different pages"),
        (["--live", "--walk"], "--live and --walk are of different pages"),
    ],
)
def test_options_that_do_not_go_with_live_are_refused(
    look: Call, model: Path, arguments: list[str], message: str
) -> None:
    code, out, err = look(str(model), *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"manyheads: {message}")
