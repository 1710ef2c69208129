"""Robustness of a model: its confidence on its own and on other text, and its output for hostile input.

    python bench/robustness.py run/model test.en test.de --other captions.en --other manual.en
    python bench/robustness.py run/model test.en test.de --hostile 20000 --json result.json
    python bench/robustness.py run/model test.en test.de --short short.en short.de --baseline old/model

The confidences of the test set are compared with whether each translation is adequate (ECE, AUROC), with
those of the same sources with their words in random order, and with those of other files, which are not in
the model's domain (AUROC: how well a threshold tells the two apart). "Flagged" is a confidence below 0.5.
Hostile lines are those of bench/hostile_text.py, and the lines of --other files are added to them. For
--short, the 200 lines with the fewest words are scored, beside a second model if there is one.
`manyheads evaluate --stress` tests capitals, typos, copied tokens and the like.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import report
from hostile_text import make_hostile_lines
from manyheads.confidence.calibration import CHRF_THRESHOLD
from manyheads.confidence.metrics import compute_auroc, compute_ece
from manyheads.errors import DataError, RequestError
from manyheads.evaluate.bleu import chrf, sentence_chrf
from manyheads.evaluate.stress import has_loop
from manyheads.evaluate.stress_inputs import change_sources, find_shortest
from manyheads.loading import load
from manyheads.text import noise
from manyheads.text.invalid import REPLACEMENT_CHARACTER
from manyheads.translation import Translation
from manyheads.translator import Translator

FLAG_THRESHOLD = 0.5
SEED = 1


@dataclass(frozen=True)
class OwnText:
    """Confidences of the model's own domain."""

    lines: int
    adequate: float  # share of translations with a chrF of at least CHRF_THRESHOLD
    mean_confidence: float
    ece: float
    auroc: float  # of adequate against other translations
    flagged: float


@dataclass(frozen=True)
class OtherText:
    """Confidences of other text, beside those of the model's own domain."""

    name: str
    lines: int
    auroc: float  # of the model's own text against this
    flagged: float


@dataclass(frozen=True)
class HostileText:
    """What came out of hostile and off-domain lines."""

    lines: int
    seconds: float
    invalid: int  # outputs with lone surrogates or U+FFFD that their source does not have
    too_long: int
    line_breaks: int
    loops: int
    second_tries: int
    repaired: int
    flagged: int


@dataclass(frozen=True)
class ShortText:
    """chrF of the shortest lines, by model."""

    model: str
    lines: int
    chrf: float
    margin: float | None
    signature: str


def read_lines(path: Path, limit: int | None = None) -> list[str]:
    """Read lines that end at a line feed alone."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            return [line.removesuffix("\n") for line in islice(file, limit)]
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error})") from None


def translate(translator: Translator, lines: Sequence[str], **options: bool) -> list[Translation]:
    with warnings.catch_warnings():  # about long words
        warnings.simplefilter("ignore")
        return list(translator.stream(lines, scores="total", **options))


def get_confidences(results: Sequence[Translation]) -> list[float]:
    """Return the confidences, without those of lines that have nothing to translate."""
    return [result.confidence for result in results if result.confidence is not None]


def share_flagged(confidences: Sequence[float]) -> float:
    return statistics.mean(value < FLAG_THRESHOLD for value in confidences)


def measure_own(results: Sequence[Translation], references: Sequence[str]) -> OwnText:
    """Compare confidences with chrF."""
    labels = [
        sentence_chrf(result.text.lower(), reference.lower()) >= CHRF_THRESHOLD
        for result, reference in zip(results, references, strict=True)
    ]
    confidences = get_confidences(results)
    if len(confidences) < len(labels):
        raise DataError("the test set has lines with nothing to translate: remove them")
    return OwnText(
        len(labels),
        statistics.mean(labels),
        statistics.mean(confidences),
        compute_ece(confidences, labels),
        compute_auroc(confidences, labels),
        share_flagged(confidences),
    )


def measure_other(name: str, own: Sequence[float], results: Sequence[Translation]) -> OtherText:
    other = get_confidences(results)
    auroc = compute_auroc([*own, *other], [1] * len(own) + [0] * len(other))
    return OtherText(name, len(other), auroc, share_flagged(other))


def measure_hostile(translator: Translator, lines: Sequence[str]) -> HostileText:
    start = time.perf_counter()
    results = translate(translator, lines)
    seconds = time.perf_counter() - start
    if [result.source for result in results] != list(lines):
        raise DataError("the translations are not those of the lines, in their order")
    return HostileText(
        len(results),
        seconds,
        sum(is_invalid(result) for result in results),
        sum(is_too_long(result, translator.decoding.max_extra_length) for result in results),
        sum("\n" in result.text for result in results),
        sum(has_loop(result) for result in results),
        sum("second try" in result.notes for result in results),
        sum("copied text repaired" in result.notes for result in results),
        sum(value < FLAG_THRESHOLD for value in get_confidences(results)),
    )


def is_invalid(result: Translation) -> bool:
    """Return whether the text is no UTF-8, or has U+FFFD where the source has no reason for it."""
    try:
        result.text.encode()
    except UnicodeEncodeError:
        return True
    reason = REPLACEMENT_CHARACTER in result.source or any(
        "\ud800" <= character < "\ue000" for character in result.source
    )
    return REPLACEMENT_CHARACTER in result.text and not reason


def is_too_long(result: Translation, max_extra_length: int) -> bool:
    limit = len(result.source_tokens) + max(1, result.sentences) * max_extra_length
    return len(result.tokens) > limit


def measure_short(name: str, translator: Translator, files: Sequence[Path]) -> ShortText:
    sources, references = map(read_lines, files)
    if len(sources) != len(references):
        raise DataError(f"{files[0]} has {len(sources):,} lines, but {files[1]} has {len(references):,}")
    chosen = find_shortest(sources)
    results = translate(translator, [sources[number] for number in chosen], split=False)
    score = chrf([result.text for result in results], [[references[number] for number in chosen]], 1000)
    return ShortText(name, len(chosen), score.value, score.margin_of_error, score.signature)


# ---- the command line


def parse_arguments() -> argparse.Namespace:
    parser = report.BenchmarkParser(__doc__)
    parser.add_argument("model", type=Path, help="calibrated model folder")
    parser.add_argument("source", type=Path, help="test set in the model's domain")
    parser.add_argument("reference", type=Path, help="its translations")
    parser.add_argument("--engine", default="torch", help="torch, ctranslate2, ... (default: torch)")
    parser.add_argument("--lines", type=report.positive_int, help="of each file (default: all)")
    parser.add_argument("--other", type=Path, action="append", default=[], help="text of another domain")
    parser.add_argument("--hostile", type=int, default=0, metavar="COUNT", help="hostile lines to translate")
    parser.add_argument(
        "--short", type=Path, nargs=2, metavar=("SOURCE", "REFERENCE"), help="short sentences"
    )
    parser.add_argument("--baseline", type=Path, metavar="MODEL", help="second model for --short")
    return parser.parse_args()


def open_model(folder: Path, arguments: argparse.Namespace) -> Translator:
    device = arguments.device if arguments.engine.startswith("torch") else None
    return load(folder, engine=arguments.engine, device=device)


def measure_confidence(
    translator: Translator, arguments: argparse.Namespace
) -> tuple[OwnText, list[OtherText]]:
    sources = read_lines(arguments.source, arguments.lines)
    references = read_lines(arguments.reference, arguments.lines)
    results = translate(translator, sources, split=False)
    own, confidences = measure_own(results, references), get_confidences(results)
    shuffled = change_sources(sources, "shuffled words", noise.shuffle_words, SEED)
    others = {"words in random order": shuffled}
    others |= {path.name: read_lines(path, arguments.lines) for path in arguments.other}
    rows = []
    for name, lines in others.items():
        rows.append(measure_other(name, confidences, translate(translator, lines, split=False)))
        report.log(f"{name}: {len(lines):,} lines")
    return own, rows


def print_results(
    own: OwnText, others: list[OtherText], hostile: HostileText | None, short: list[ShortText]
) -> None:
    report.print_table(
        "own text", ["lines", "adequate", "mean confidence", "ECE", "AUROC of adequate", "flagged"],
        [[f"{own.lines:,}", f"{own.adequate:.1%}", f"{own.mean_confidence:.3f}", f"{own.ece:.3f}",
          f"{own.auroc:.3f}", f"{own.flagged:.1%}"]],
    )  # fmt: skip
    report.print_table(
        "told from other text", ["text", "lines", "AUROC", "flagged"],
        [[row.name, f"{row.lines:,}", f"{row.auroc:.4f}", f"{row.flagged:.1%}"] for row in others],
    )  # fmt: skip
    if hostile:
        values = asdict(hostile)
        report.print_table(
            "hostile and off-domain lines", list(values), [[f"{v:,.6g}" for v in values.values()]]
        )
    if short:
        report.print_table(
            "shortest lines", ["model", "lines", "chrF", "+-", "signature"],
            [[r.model, str(r.lines), f"{r.chrf:.2f}", f"{r.margin or 0:.2f}", r.signature] for r in short],
        )  # fmt: skip


def main() -> None:
    arguments = parse_arguments()
    environment = report.measure_environment(arguments.device)
    translator = open_model(arguments.model, arguments)
    if not translator.is_calibrated:
        raise RequestError(f"{arguments.model}: has no calibration: run manyheads calibrate first")
    own, others = measure_confidence(translator, arguments)
    hostile = None
    if arguments.hostile:
        lines = make_hostile_lines(arguments.hostile)
        lines += [line for path in arguments.other for line in read_lines(path)]
        hostile = measure_hostile(translator, lines)
    short = []
    if arguments.short:
        short.append(measure_short(arguments.model.parent.name, translator, arguments.short))
        if arguments.baseline:
            baseline = open_model(arguments.baseline, arguments)
            short.append(measure_short(arguments.baseline.parent.name, baseline, arguments.short))
    print_results(own, others, hostile, short)
    report.write_json(
        arguments.json, f"robustness of {arguments.model}", environment, own=asdict(own),
        others=list(map(asdict, others)), hostile=hostile and asdict(hostile), short=list(map(asdict, short)),
    )  # fmt: skip


if __name__ == "__main__":
    report.run_main(main)
