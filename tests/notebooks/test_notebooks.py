"""The notebooks run from top to bottom, have the same code in both languages, and small outputs."""

import ast
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from support.source_tree import ROOT

FOLDER = ROOT / "notebooks"
ENGLISH = sorted(path for path in FOLDER.glob("*.ipynb") if not path.name.endswith(".ko.ipynb"))
MAX_OUTPUT_CHARACTERS = 2000  # of a cell
MAX_FILE_BYTES = 30_000


def read_cells(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text(encoding="utf-8"))["cells"])


def korean(path: Path) -> Path:
    return path.with_name(f"{path.stem}.ko.ipynb")


def code_cells(path: Path) -> list[tuple[str, str]]:
    """Return the source and the stored output of each code cell."""
    return [
        ("".join(cell["source"]), "".join(text for output in cell["outputs"] for text in output["text"]))
        for cell in read_cells(path)
        if cell["cell_type"] == "code"
    ]


def run(path: Path) -> list[str]:
    """Execute the code cells in their order, and return what each prints."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for number, (source, _) in enumerate(code_cells(path), 1):
        with redirect_stdout(io.StringIO()) as output:
            exec(compile(source, f"{path.name}, code cell {number}", "exec"), namespace)
        printed.append(output.getvalue())
    return printed


def structure(source: str) -> str:
    """Return code without its texts and comments, which are translated."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            node.values = [part for part in node.values if isinstance(part, ast.FormattedValue)]
            node.values.sort(key=ast.dump)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


def test_there_are_three_notebooks_in_both_languages() -> None:
    assert len(ENGLISH) == 3
    assert [path.name for path in ENGLISH if not korean(path).exists()] == []


@pytest.mark.parametrize("path", ENGLISH, ids=lambda path: path.stem)
def test_both_languages_have_the_same_cells(path: Path) -> None:
    english, translated = read_cells(path), read_cells(korean(path))
    assert [cell["cell_type"] for cell in english] == [cell["cell_type"] for cell in translated]
    for (source, _), (translated_source, _) in zip(code_cells(path), code_cells(korean(path)), strict=True):
        assert structure(source) == structure(translated_source)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_outputs_are_small_and_name_no_folder_of_a_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < MAX_FILE_BYTES
    for machine_path in ("/home/", "/root", "/tmp", "/Users/", "/work", "C:\\\\"):
        assert machine_path not in text
    assert max(len(output) for _, output in code_cells(path)) < MAX_OUTPUT_CHARACTERS


def check_run(path: Path) -> list[str]:
    """Run a notebook. The cells that have an output print one, with as many lines."""
    printed = run(path)
    stored = [output for _, output in code_cells(path)]
    assert [len(text.splitlines()) for text in printed] == [len(text.splitlines()) for text in stored]
    return printed


@pytest.mark.parametrize("language", ["", ".ko"])
def test_the_notebook_about_the_model_runs(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = "".join(check_run(FOLDER / f"1-the-model{language}.ipynb"))
    assert "63,082,496" in printed
    assert "(5, 20) [False, False, True, False, False]" in printed
    assert int(printed.rstrip().rsplit(" ", 1)[-1].rstrip("%")) >= 90  # rows that are written backwards


@pytest.mark.heavy
@pytest.mark.parametrize("language", ["", ".ko"])
def test_the_notebooks_about_a_translator_and_its_heads_run(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = check_run(FOLDER / f"2-your-translator{language}.ipynb")
    assert "BLEU 9" in printed[-1] or "BLEU 100" in printed[-1]
    assert float(printed[-2].splitlines()[-1].split()[0]) < 0.5  # the confidence outside of the grammar
    check_run(FOLDER / f"3-inside-the-heads{language}.ipynb")
    assert (tmp_path / "page.html").stat().st_size > 50_000
