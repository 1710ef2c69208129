"""Parts shared by the reports of Tables 2 and 3: header, data and scoring, and the table of all runs."""

from collections.abc import Sequence

from manyheads.data.store import Store
from manyheads.paper.report import ReportTable, format_header
from manyheads.paper.trials import TrialResult
from manyheads.plot_style import SERIES_COLORS

OURS_COLOR, PAPER_COLOR = SERIES_COLORS[:2]  # colors of figures


def format_run_header(command: str, results: Sequence[TrialResult]) -> str:
    """Return the command as a code block, and the machines, versions and date."""
    machines = " and ".join(dict.fromkeys(result.machine for result in results))
    jobs = max(result.jobs for result in results)
    parallel = f", {jobs} runs at a time" if jobs > 1 else ""
    return format_header(command, f"{machines}{parallel}")


def describe_data_and_scoring(store: Store, results: Sequence[TrialResult]) -> str:
    """Describe the data, the decoding and the scores."""
    first = results[0]
    return (
        f"Data: {store.source_language} to {store.target_language}, {len(store.load_split('train')):,} "
        f"training pairs, {len(store.load_split(first.split)):,} {first.split} pairs, "
        f"{len(store.subwords.target):,} subwords. Perplexity is per subword, on valid, unsmoothed. BLEU is "
        f"on {first.split}, beam 4, alpha 0.6: sacreBLEU ({format_signature(first.bleu.signature)}), and "
        f"the paper's protocol, tokenized with compounds split "
        f"({format_signature(first.compound_bleu.signature)}). Each model is the last checkpoint; nothing "
        f"is averaged."
    )


def format_signature(text: str) -> str:
    return text.replace("|", ", ")


def make_runs_table(results: Sequence[TrialResult]) -> ReportTable:
    columns = [
        "run",
        "seed",
        "parameters",
        "steps",
        "tokens",
        "seconds",
        "FLOPs (counted)",
        "FLOPs (from time)",
    ]
    columns += ["perplexity", "BLEU", "± 95 %", "compound-split BLEU"]
    rows = [
        [
            *(result.row, result.seed, result.parameters, result.steps, result.tokens, result.seconds),
            *(result.flops, result.flops_from_time, result.perplexity),
            *(result.bleu.value, result.bleu.margin_of_error, result.compound_bleu.value),
        ]
        for result in results
    ]
    return ReportTable("All runs", columns, rows, [f"{FLOPS_NOTE} ±: bootstrap over sentences."])


FLOPS_NOTE = (
    "FLOPs (counted): matrix products over real tokens, forward and twice that for backward, by formulas "
    "that agree with PyTorch's counter. FLOPs (from time): training seconds times the measured rate of a "
    "large matrix product on this device, divided among the runs that share a GPU, as in the paper's "
    "estimate. A run that outlasts the others on its GPU is underestimated."
)
