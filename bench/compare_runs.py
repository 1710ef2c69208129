"""Compare run folders that differ in one setting: mean training loss by step, perplexity and BLEU.

python bench/compare_runs.py FOLDER              FOLDER/NAME/log.jsonl, FOLDER/NAME.json by `evaluate --json`
"""

import argparse
import json
from pathlib import Path
from statistics import fmean

STEPS = (500, 2000, 5000, 10_000, 20_000)
WINDOW = 250  # steps whose mean loss is reported


def read_losses(run: Path) -> dict[int, float]:
    """Return the training loss of each logged step."""
    losses = {}
    with (run / "log.jsonl").open(encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if "loss" in record and "step" in record:
                losses[int(record["step"])] = float(record["loss"])
    return losses


def format_row(run: Path) -> str:
    losses = read_losses(run)
    cells = []
    for step in STEPS:
        window = [loss for number, loss in losses.items() if step - WINDOW < number <= step]
        cells.append(f"{fmean(window):.3f}" if window else "-")
    result = run.parent / f"{run.name}.json"
    if result.exists():
        data = json.loads(result.read_text(encoding="utf-8"))
        cells += [f"{data['perplexity']:.3f}", f"{data['scores'][0]['value']:.2f}"]
    return f"| {run.name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    runs = sorted(path.parent for path in folder.glob("*/log.jsonl"))
    columns = [f"loss to step {step:,}" for step in STEPS]
    print(f"| run | {' | '.join(columns)} | perplexity | BLEU |")
    print(f"|{'---|' * (len(columns) + 3)}")
    for run in runs:
        print(format_row(run))


if __name__ == "__main__":
    main()
