import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "i_go_home.py"


def test_the_example_learns_and_draws_its_heads(tmp_path: Path) -> None:
    picture = tmp_path / "heads.svg"
    command = [sys.executable, str(EXAMPLE), "--picture", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr  # nine in ten held-out sentences are exact
    assert re.search(r"^ *I go home \. +나는 집에 간다 \.$", done.stdout, flags=re.M)
    assert picture.read_text(encoding="utf-8").count("head ") == 4
