"""What the documents say can be done, can be done."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

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
    for command in re.findall(r"`manyheads ([^`]+)`", document.read_text(encoding="utf-8")):
        done = subprocess.run(
            [sys.executable, "-m", "manyheads", *shlex.split(command)], capture_output=True, text=True
        )
        assert done.returncode == 0 or command == "inspect", f"{command}: {done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_the_make_targets_of_the_documents_exist(document: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    assert set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)?)\b(?= +\S|`)", code_of(document))) <= set(targets)


def code_of(document: Path) -> str:
    """Indented blocks and what stands between back-ticks."""
    text = document.read_text(encoding="utf-8")
    return "\n".join([*re.findall(r"^    .*$", text, flags=re.M), *re.findall(r"`[^`\n]+`", text)])
