import json
import subprocess
import sys
from pathlib import Path

import pytest

import manyheads as mh
from manyheads.cli import app

HEAVY = ("torch", "numpy", "transformers", "matplotlib")


def manyheads(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "manyheads", *arguments], capture_output=True, text=True, encoding="utf-8"
    )


def test_help_answers_without_importing_torch() -> None:
    code = (
        "import sys\nfrom manyheads.cli import main\nsys.argv = ['manyheads', '--help']\n"
        "try: main()\nexcept SystemExit as end: assert end.code in (0, None)\n"
        f"sys.exit(','.join(name for name in {HEAVY} if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "inspect" in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], ["inspect", "--help"]])
def test_help_and_version_exit_with_0(arguments: list[str]) -> None:
    done = manyheads(*arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_verb_shows_an_example() -> None:
    for command in app.registered_commands:
        verb = command.callback.__name__
        assert f"Example: manyheads {verb} " in " ".join(manyheads(verb, "--help").stdout.split())


def test_inspect_prints_a_file_to_start_from(tmp_path: Path) -> None:
    done = manyheads("inspect", "base", "model.layers=12", "model.norm=pre")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# 107,223,040 parameters")
    file = tmp_path / "run.toml"
    file.write_text(done.stdout, encoding="utf-8")
    assert mh.Config.load(file).model == mh.ModelConfig(layers=12, norm="pre")
    again = json.loads(manyheads("inspect", str(file), "--json").stdout)
    assert again["model"]["layers"] == 12
    assert again["parameters"]["total"] == 107_223_040


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "bse"], "unknown preset bse; did you mean base?"),
        (["inspect", "base", "model.haeds=4"], "unknown key model.haeds; did you mean model.heads?"),
        (["inspect", "base", "model.heads=0"], "model.heads is 0, but must be at least 1 and below 1048576"),
        (["inspect", "base", "heads"], "'heads' is not an assignment: write section.key=value"),
        (["inspect", "nowhere.toml"], "nowhere.toml: No such file or directory"),
    ],
)
def test_a_wrong_call_is_one_clear_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    done = manyheads(*arguments)
    assert done.returncode == 2
    assert done.stderr == f"manyheads: {message}\n"
    assert done.stdout == ""


def test_an_unknown_verb_exits_with_2() -> None:
    done = manyheads("trian")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
