"""The scores of runs/convergence.sh as a table: one line for each row and number of steps.

python bench/convergence_table.py FOLDER      FOLDER/NAME-valid.json, NAME-test.json by `evaluate --json`
"""

import argparse
import json
from pathlib import Path
from typing import Any


def read_scores(path: Path) -> list[str]:
    """Return BLEU with its margin and BLEU by the paper's protocol."""
    if not path.exists():
        return ["-", "-"]
    scores: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["scores"]
    margin = scores[0].get("margin_of_error")
    return [
        f"{scores[0]['value']:.2f}" + (f" ± {margin:.2f}" if margin else ""),
        f"{scores[2]['value']:.2f}",
    ]


def sort_key(name: str) -> tuple[str, int]:
    row, _, step = name.rpartition("-")
    return (row, int(step)) if step.isdigit() else (name, 0)


def make_table(folder: Path) -> str:
    names = {path.name.rsplit("-", 1)[0] for path in folder.glob("*-*.json")}
    lines = [
        "| row and step | newstest2013: BLEU | paper's protocol | newstest2014: BLEU | paper's protocol |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(names, key=sort_key):
        cells = [cell for split in ("valid", "test") for cell in read_scores(folder / f"{name}-{split}.json")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "| the paper, base, 100,000 steps | - | 25.8 | - | 27.3 |"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    print(make_table(parser.parse_args().folder))


if __name__ == "__main__":
    main()
