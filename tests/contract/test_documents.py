"""What the documents say can be done, can be done."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from manyheads.cli import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
READMES = [ROOT / "README.md", ROOT / "README.ko.md"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_link_to_a_file_leads_to_one(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        assert target.startswith("http") or (document.parent / target).exists(), target


@pytest.mark.parametrize("readme", READMES, ids=name)
def test_the_python_of_the_readme_runs(readme: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), flags=re.S)
    known: dict[str, object] = {}
    exec(compile(code, name(readme), "exec"), known)
    assert known["logits"].shape == (8, 1000)
    assert known["trace"].cross[1][0].shape == (4, 3, 4)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_the_commands_of_the_documents_run(document: Path) -> None:
    verbs = [command.callback.__name__ for command in app.registered_commands]
    for group in app.registered_groups:
        own = [command.callback.__name__ for command in group.typer_instance.registered_commands]
        verbs += [group.name or group.typer_instance.info.name, *(f"paper {name}" for name in own)]
    for command in re.findall(r"`manyheads ([^`]+)`", document.read_text(encoding="utf-8")):
        if command in verbs:  # the verb is only named
            continue
        done = subprocess.run(
            [sys.executable, "-m", "manyheads", *shlex.split(command)], capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.mark.parametrize("readme", READMES, ids=name)
def test_what_the_readme_does_with_text_runs_and_so_does_the_python_about_it(
    readme: Path, tmp_path: Path
) -> None:
    commands = re.findall(
        r"^    (manyheads (?:get|prepare|inspect data) .*)$", readme.read_text(encoding="utf-8"), flags=re.M
    )
    assert [command.split()[1] for command in commands] == ["get", "prepare", "inspect"]
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env={**os.environ, "PATH": places},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
    (code,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/data.md").read_text(encoding="utf-8"), flags=re.S
    )
    known: dict[str, Any] = {}
    exec(compile(code.replace('"data"', f'"{tmp_path}/data"'), "data.md", "exec"), known)
    assert 3000 < len(known["batch"].source.tokens) <= 4096


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_the_make_targets_of_the_documents_exist(document: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    assert set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)?)\b(?= +\S|`)", code_of(document))) <= set(targets)


def code_of(document: Path) -> str:
    """Indented blocks and what stands between back-ticks."""
    text = document.read_text(encoding="utf-8")
    return "\n".join([*re.findall(r"^    .*$", text, flags=re.M), *re.findall(r"`[^`\n]+`", text)])
