"""Adaptation: what each method gains on new text, what it forgets, and how fast an adapter is swapped in.

    python bench/adaptation.py run/model --new captions-data --general data --out captions
    python bench/adaptation.py run/model --new captions-data --general data --only adapter --json result.json

Both data folders are prepared with the subwords of the model (subwords.reuse_from=run/model); scores are of
their test sets. The share of the gain is relative to plain fine-tuning, which is always run. A run that is
complete in --out is not trained again, and one that was stopped goes on. Each run has its curve in
--out/METHOD/adaptation.md; --json has the results of each method as soon as they are known.
"""

import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import manyheads as mh
import report
from manyheads import checkpoint
from manyheads.checkpoint.adapters import parse_adapter
from manyheads.errors import RequestError
from manyheads.evaluate.bleu import Score
from manyheads.train.adapt import AdaptationOptions, choose_rank
from manyheads.train.adaptation_report import AdaptationReport
from manyheads.train.adaptation_run import MAX_SENTENCES, adapt
from manyheads.train.final_model import ADAPTER_FILE

SWAPS = 10
FINE_TUNING = "fine-tuning"
METHODS = (FINE_TUNING, "anchor", "replay", "adapter", "adapter-replay")


@dataclass
class Result:
    """A method and what came of it."""

    method: str
    outcome: AdaptationReport
    swap_ms: list[float] = field(default_factory=list)  # reading and merging the adapter
    size_share: float | None = None  # of the adapter, in bytes of the model's weights

    def to_json(self, fine_tuned: AdaptationReport) -> dict[str, Any]:
        return {
            "method": self.method,
            "gain": self.outcome.new.gain,
            "share_of_gain": self.share_of_gain(fine_tuned),
            "general_change": self.outcome.general.gain if self.outcome.general else None,
            "swap_ms": self.swap_ms,
            "size_share": self.size_share,
            "report": self.outcome.to_dict(),
        }

    def share_of_gain(self, fine_tuned: AdaptationReport) -> float | None:
        return self.outcome.new.gain / fine_tuned.new.gain if fine_tuned.new.gain > 0 else None

    def format_row(self, fine_tuned: AdaptationReport) -> tuple[str, ...]:
        new, general = self.outcome.new, self.outcome.general
        share = self.share_of_gain(fine_tuned)
        assert general is not None
        return (
            self.method,
            format_score(new.before[0]),
            format_score(new.after[0]),
            "" if share is None else f"{share:.0%}",
            *(f"{scores[0].value:.2f}" for scores in (general.before, general.after)),
            f"{general.gain:+.2f}",
            f"{self.outcome.best_step:,}",
            "never" if self.outcome.forgetting_step is None else f"{self.outcome.forgetting_step:,}",
            f"{self.outcome.seconds:.0f}",
            "" if self.size_share is None else f"{self.size_share:.1%}",
            f"{statistics.median(self.swap_ms):.0f}" if self.swap_ms else "",
        )


def format_score(score: Score) -> str:
    return f"{score.value:.2f} ± {score.margin_of_error or 0:.2f}"


COLUMNS = (
    "method", "new before", "new after", "of the gain", "general before", "after", "change", "step",
    "forgets from", "seconds", "size", "swap ms",
)  # fmt: skip


def create_options(method: str, model: Path, general: Path) -> tuple[AdaptationOptions, list[str]]:
    """Return the options of a method, and the keys that differ from the defaults."""
    rank = choose_rank(checkpoint.read_info(model)) if method.startswith("adapter") else None
    replay = None if method.endswith("replay") else 0.0
    changes = ["adaptation.anchor=0"] if method == FINE_TUNING else []
    return AdaptationOptions(general=general, replay=replay, rank=rank), changes


def measure(method: str, arguments: Any) -> Result:
    options, changes = create_options(method, arguments.model, arguments.general)
    run = arguments.out / method
    report.log(f"{method} in {run}")
    outcome = adapt(
        arguments.model,
        arguments.new,
        run,
        options,
        changes=[*changes, *arguments.set],
        device=arguments.device,
        max_sentences=arguments.sentences,
    )
    if outcome is None:
        raise KeyboardInterrupt
    result = Result(method, outcome)
    if options.rank is not None:
        result.swap_ms = measure_swaps(arguments.model, run / ADAPTER_FILE, arguments.device)
        sizes = (path.stat().st_size for path in (run / ADAPTER_FILE, arguments.model / checkpoint.WEIGHTS))
        result.size_share = next(sizes) / next(sizes)
    return result


def measure_swaps(model: Path, adapter: Path, device: str) -> list[float]:
    """Return the milliseconds from the file of an adapter to an engine that runs with it."""
    engine: Any = mh.load(model, device=device).engine
    milliseconds = []
    for _ in range(SWAPS + 1):
        start = time.perf_counter()
        adapted = engine.with_adapter(parse_adapter(adapter, "adapter"))
        report.synchronize(device)
        milliseconds.append(1000 * (time.perf_counter() - start))
        del adapted
    return milliseconds[1:]  # the first loads libraries


def main() -> None:
    parser = report.BenchmarkParser(__doc__)
    parser.add_argument("model", type=Path, help="the model folder to adapt")
    parser.add_argument("--new", type=Path, required=True, help="the data folder to adapt to")
    parser.add_argument(
        "--general", type=Path, required=True, help="the data folder that must not be forgotten"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument(
        "--only", nargs="+", choices=METHODS, default=METHODS, help="methods besides fine-tuning"
    )
    parser.add_argument("--set", nargs="*", default=[], metavar="SECTION.KEY=VALUE", help="keys of all runs")
    parser.add_argument("--sentences", type=int, default=MAX_SENTENCES, help="of each test set")
    arguments = parser.parse_args()
    if arguments.sentences < 1:
        raise RequestError(f"--sentences is {arguments.sentences}, but must be at least 1")
    arguments.out.mkdir(parents=True, exist_ok=True)
    methods = [FINE_TUNING, *(method for method in arguments.only if method != FINE_TUNING)]
    environment = report.measure_environment(arguments.device)
    title = f"adaptation of {arguments.model} to {arguments.new}; BLEU, {environment}"
    results: list[Result] = []
    for method in methods:
        results.append(measure(method, arguments))
        rows = [result.to_json(results[0].outcome) for result in results]
        report.write_json(arguments.json, title, environment, rows=rows)
    fine_tuned = results[0].outcome
    report.print_table(title, COLUMNS, [result.format_row(fine_tuned) for result in results])


if __name__ == "__main__":
    report.run_main(main)
