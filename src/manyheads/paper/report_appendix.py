"""What the reports of Tables 2 and 3 share: how their numbers were made, and the numbers of every run."""

from collections.abc import Sequence

from manyheads.data.store import Store
from manyheads.paper.report import ReportTable, format_header
from manyheads.paper.trials import TrialResult

OURS_COLOR, PAPER_COLOR = "#0b5fa5", "#b5541c"  # in figures: what was measured, and the paper


def format_run_header(command: str, results: Sequence[TrialResult]) -> str:
    """The command as a block, as it takes too long to be tried in passing; where, with what and when."""
    machines = " and ".join(dict.fromkeys(one.machine for one in results))
    jobs = max(one.jobs for one in results)
    beside = f", {jobs} runs at a time" if jobs > 1 else ""
    return format_header(command, f"{machines}{beside}")


def describe_data_and_scoring(store: Store, results: Sequence[TrialResult]) -> str:
    """The data, and how translations were found and scored."""
    one = results[0]
    return (
        f"Data: {store.source_language} to {store.target_language}, {len(store.load_split('train')):,} pairs to "
        f"learn from, {len(store.load_split(one.split)):,} of {one.split}, {len(store.subwords.target):,} "
        f"subwords. Perplexity is a subword's, of valid, unsmoothed. BLEU is of {one.split}, beam 4, alpha "
        f"0.6: by sacreBLEU ({format_signature(one.bleu.signature)}), and by the paper's protocol, tokenized and "
        f"with compounds split ({format_signature(one.compound_bleu.signature)}). The model of a run is its last "
        f"weights; nothing is averaged."
    )


def format_signature(text: str) -> str:
    return text.replace("|", ", ")


def make_runs_table(results: Sequence[TrialResult]) -> ReportTable:
    columns = ["run", "seed", "parameters", "steps", "tokens", "seconds", "FLOPs counted", "FLOPs by time"]
    columns += ["perplexity", "BLEU", "± 95 %", "compound-split BLEU"]
    rows = [
        [
            *(one.row, one.seed, one.parameters, one.steps, one.tokens, one.seconds),
            *(one.flops, one.flops_from_time, one.perplexity),
            *(one.bleu.value, one.bleu.margin_of_error, one.compound_bleu.value),
        ]
        for one in results
    ]
    return ReportTable("Every run", columns, rows, [f"{FLOPS_NOTE} ±: bootstrap over sentences."])


FLOPS_NOTE = (
    "FLOPs counted: products of matrices over real tokens, forward and twice that backward, by formulas that "
    "agree with PyTorch's counter. FLOPs by time: seconds of training times the rate of a large matrix "
    "product on this device, or its share of that where runs share a GPU, as the paper estimates its "
    "own; of a run that outlasts those beside it this is too little."
)
