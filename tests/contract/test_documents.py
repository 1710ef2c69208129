"""The documents agree with the code: links, files, commands, options, configuration keys and examples."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import manyheads as mh
from manyheads.cli import app
from support.source_tree import ROOT, SOURCE
from support.untrained_model import save_untrained_model

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
READMES = [ROOT / "README.md", ROOT / "README.ko.md"]
ARCHITECTURE = [ROOT / "docs" / "architecture.md", ROOT / "docs" / "architecture.ko.md"]
# What was true when it was written: dated measurements, renamed keys, reports that a command printed.
HISTORY = {ROOT / "docs" / "log.md", ROOT / "CHANGELOG.md"}
CURRENT = [path for path in DOCUMENTS if path not in HISTORY and path.parent.parent.name != "results"]
MAX_READING_LIST_LINES = 2000


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def code_of(document: Path) -> str:
    """Return indented blocks, with continued lines joined, and what is between back-ticks."""
    text = re.sub(r"^```.*?^```$", "", read(document), flags=re.M | re.S)
    blocks = "\n".join(re.findall(r"^    .*$", text, flags=re.M))
    return "\n".join([re.sub(r" *\\\n *", " ", blocks), *re.findall(r"`[^`\n]+`", text)])


def python_of(document: Path) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", read(document), flags=re.S)
    return str(code)


@cache
def commands() -> dict[str, Any]:
    """Return every command by its name: `train`, `paper table1`."""
    by_name: dict[str, Any] = {}

    def collect(command: Any, prefix: str) -> None:
        for verb, child in getattr(command, "commands", {}).items():
            by_name[f"{prefix}{verb}"] = child
            collect(child, f"{prefix}{verb} ")

    collect(typer.main.get_command(app), "")
    return by_name


def calls_in(document: Path) -> Iterator[tuple[str, Any, list[str]]]:
    """Yield every call of a command in the code of a document: its text, the command and its options."""
    for line in re.findall(r"(?:^|[|>`] ?|    )manyheads ([^`|>#\n]+)", code_of(document), flags=re.M):
        words = line.split()
        verb = " ".join(words[:2]) if " ".join(words[:2]) in commands() else words[0]
        if verb in commands():
            options = re.findall(r"(?<=\s)--?[a-z][a-z-]*", f" {line.split('   ')[0]}")
            yield line, commands()[verb], options


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_to_files_lead_to_files(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", read(document))
    assert not [t for t in targets if not t.startswith("http") and not (document.parent / t).exists()]


@pytest.mark.parametrize("document", CURRENT, ids=name)
def test_files_named_in_documents_exist(document: Path) -> None:
    named = re.findall(r"`((?:[a-z0-9_]+/)+[A-Za-z0-9_-]+\.(?:py|toml|js|sh))`", read(document))
    named += re.findall(r"`(src/[a-z0-9_/]+)`", read(document))
    roots = [ROOT, SOURCE, SOURCE / "model", document.parent]
    assert not [file for file in named if not any((root / file).exists() for root in roots)]


@pytest.mark.parametrize("readme", READMES, ids=name)
def test_the_python_of_the_readme_runs(readme: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(python_of(readme), name(readme), "exec"), namespace)
    assert namespace["logits"].shape == (8, 1000)
    assert namespace["trace"].cross[1][0].shape == (4, 3, 4)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_python_in_documents_is_python(document: Path) -> None:
    for code in re.findall(r"^```python\n(.*?)^```", read(document), flags=re.M | re.S):
        compile(code, name(document), "exec")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_commands_between_back_ticks_run(document: Path) -> None:
    for command in re.findall(r"`manyheads ([^`]+)`", read(document)):
        if command in commands():  # the command is only mentioned
            continue
        assert not error_of(command), command


@cache  # several documents have the same commands
def error_of(command: str) -> str:
    """Run a command and return what it printed to stderr if it failed."""
    call = [sys.executable, "-m", "manyheads", *shlex.split(command)]
    process = subprocess.run(call, capture_output=True, text=True)
    return (process.stderr or "failed") if process.returncode else ""


@pytest.mark.parametrize("document", CURRENT, ids=name)
def test_options_in_documents_exist(document: Path) -> None:
    offenders = []
    for line, command, options in calls_in(document):
        known = {opt for parameter in command.params for opt in [*parameter.opts, *parameter.secondary_opts]}
        offenders += [
            f"{option} in: manyheads {line}" for option in options if option not in known | {"--help"}
        ]
    assert not offenders


@pytest.mark.parametrize("document", CURRENT, ids=name)
def test_configuration_keys_in_documents_exist(document: Path) -> None:
    sections = "|".join({key.partition(".")[0] for key in known_keys()})
    key = rf"(?:{sections})\.[a-z_]+[a-z0-9_]*"
    keys = re.findall(rf"(?<= )({key})=", code_of(document))  # an override in a command
    keys += re.findall(rf"`({key})(?: ?= ?[^`]*)?`", code_of(document))
    files = {
        "corpus.json",
        *(f"{split}.{end}" for split in ("train", "valid", "test") for end in ("en", "de", "ko")),
    }
    modules = {".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in SOURCE.rglob("*.py")}
    assert not set(keys) - known_keys() - files - modules


@cache
def known_keys() -> frozenset[str]:
    """Return every configuration key that the commands print, as `section.key`."""
    presets = ["base", "tiny-rnn", "tiny-convs2s", "tiny-bytenet", "tiny-experts"]
    calls = [*(["inspect", preset] for preset in presets), ["prepare", "data", "--show-recipe"]]
    keys = {"model.layers"}  # sets encoder_layers and decoder_layers
    for call in calls:
        text = subprocess.run(
            [sys.executable, "-m", "manyheads", *call], capture_output=True, text=True, check=True
        ).stdout
        section = ""
        for line in text.splitlines():
            if header := re.match(r"(?:# )?\[+([a-z]+)\]+$", line):
                section = header[1]
            elif key := re.match(r"(?:# )?([a-z0-9_]+) = ", line):
                keys.add(f"{section}.{key[1]}")
    return frozenset(keys)


@pytest.mark.parametrize("readme", READMES, ids=name)
def test_the_readme_prepares_data_and_the_python_about_it_runs(readme: Path, tmp_path: Path) -> None:
    lines = re.findall(r"^    (manyheads (?:get|prepare|inspect data) .*)$", code_of(readme), flags=re.M)
    assert [line.split()[1] for line in lines] == ["get", "prepare", "inspect"]
    search_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in lines:
        process = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env={**os.environ, "PATH": search_path},
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0, f"{line}: {process.stderr}"
    code = python_of(ROOT / "docs" / "data.md").replace('"data"', f'"{tmp_path}/data"')
    namespace: dict[str, Any] = {}
    exec(compile(code, "data.md", "exec"), namespace)
    assert 3000 < len(namespace["batch"].source.tokens) <= 4096


@pytest.mark.parametrize("language", ["", ".ko"])
def test_the_python_about_translation_and_attention_runs(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_untrained_model(tmp_path / "run" / "model")
    (tmp_path / "text.en").write_text("I go home.\n\nWe read.\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"layer": 1, "step": 0}
    exec(compile(python_of(ROOT / "docs" / f"translation{language}.md"), "translation", "exec"), namespace)
    assert isinstance(namespace["translation"], mh.Translation)
    shown = re.sub(r"^show\(attention\).*$", "", python_of(ROOT / "docs" / f"look{language}.md"), flags=re.M)
    exec(compile(shown, "look", "exec"), namespace)  # show() needs a notebook
    assert namespace["attention"].trace.cross[1][0].ndim == 3


@pytest.mark.parametrize("language", ["", ".ko"])
def test_the_python_of_the_first_translation_runs(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_untrained_model(tmp_path / "manyheads-demo" / "run" / "model")
    monkeypatch.chdir(tmp_path)
    code = python_of(ROOT / "docs" / f"first-translation{language}.md")
    exec(compile(code, "first-translation", "exec"), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("document", CURRENT, ids=name)
def test_imports_in_documents_work(document: Path) -> None:
    for line in re.findall(
        r"^ *((?:from manyheads|import manyheads).*?)(?: *#.*)?$", read(document), flags=re.M
    ):
        exec(compile(line, name(document), "exec"), {})


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_the_make_targets_of_the_documents_exist(document: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    assert set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)?)\b(?= +\S|`)", code_of(document))) <= set(targets)


@pytest.mark.parametrize("document", ARCHITECTURE, ids=name)
def test_the_reading_list_is_an_evening_long(document: Path) -> None:
    rows = re.findall(r"^\| \[`[^`]+`\]\(([^)]+)\) \| ([\d,]+) \|", read(document), flags=re.M)
    counts = {target: int(lines.replace(",", "")) for target, lines in rows}
    actual = {target: len(read(document.parent / target).splitlines()) for target in counts}
    assert counts == pytest.approx(actual, rel=0.1)  # so that a small change of the code needs no change here
    assert len(counts) >= 10
    assert sum(actual.values()) <= MAX_READING_LIST_LINES


def test_every_document_is_linked_from_the_readme_or_its_neighbors() -> None:
    linked = {
        (document.parent / target).resolve()
        for document in DOCUMENTS
        for target in re.findall(r"\]\(([^)#]+\.md)(?:#[^)]*)?\)", read(document))
    }
    assert not [name(path) for path in DOCUMENTS if path not in linked and path.name != "README.md"]
