"""What the host spends on a line of text, beside the engine: microseconds of CPU time, by stage.

The engine is a fake that returns the source at once, so no model is needed, only its subwords. "python" is
the time of the thread that runs a stage: it holds the interpreter, so nothing else of Python runs meanwhile.
"all" adds the threads of libraries, which do not hold it.

python bench/host_cost.py MODEL_OR_DATA_FOLDER test.en
python bench/host_cost.py FOLDER test.en --json cost.json --lines 50000
"""

import argparse
import gc
import io
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from manyheads.bulk.interpreter_settings import stream_settings
from manyheads.bulk.jobs import format_json
from manyheads.cli.text_io import read_lines
from manyheads.cli.translation import print_translations
from manyheads.confidence_policy import ConfidencePolicy
from manyheads.config import DecodingConfig
from manyheads.inference.engine import Capabilities, Feature, ScoreDetail
from manyheads.loading import read_calibration
from manyheads.pipeline.assembly import Assembler
from manyheads.pipeline.jobs import SentenceJob, TextJob
from manyheads.search.options import Hypothesis, Request
from manyheads.text import segmentation
from manyheads.text.subwords import SubwordPair
from manyheads.translator import Translator

CHUNK = 256  # texts, as in the pipeline
T = TypeVar("T")


class EchoEngine:
    """Returns the source as the result, as soon as a window is full, the longest first."""

    name, objective, read_ahead = "echo", "nothing", 8192
    capabilities = Capabilities(
        sampling=False,
        forbidden_phrases=False,
        required_phrases=False,
        alignment=False,
        attention=False,
        token_scores=True,
        devices=("cpu",),
        max_positions=None,
    )

    def require(self, feature: Feature) -> None:
        raise NotImplementedError(feature)

    def decode(
        self,
        requests: Iterable[Request],
        config: DecodingConfig,
        *,
        scores: ScoreDetail = "total",
        window: int | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        stream, first = iter(requests), 0
        while waiting := list(islice(stream, window)):
            for index in sorted(range(len(waiting)), key=lambda index: -len(waiting[index].source)):
                yield first + index, [make_hypothesis(waiting[index].source[:-1], scores)]
            first += len(waiting)


def make_hypothesis(ids: list[int], scores: ScoreDetail) -> Hypothesis:
    if scores == "tokens":
        return Hypothesis(ids, [-0.25] * (len(ids) + 1), -1.0)
    return Hypothesis(ids, [], -1.0, -2.0)


class StageTimes:
    """CPU microseconds per line, by stage."""

    def __init__(self, num_lines: int) -> None:
        self.num_lines = num_lines
        self.stages: dict[str, dict[str, float]] = {}

    def measure(self, stage: str, function: Callable[[], T]) -> T:
        start = time.thread_time(), time.process_time(), time.perf_counter()
        result = function()
        end = time.thread_time(), time.process_time(), time.perf_counter()
        own, total, wall = (
            round(1e6 * (after - before) / self.num_lines, 2)
            for before, after in zip(start, end, strict=True)
        )
        self.stages[stage] = {"python": own, "all": total, "wall": wall}
        return result


def split_chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))


def measure_without_collection(
    translator: Translator, path: Path, lines: list[str]
) -> dict[str, dict[str, float]]:
    """Measure stages without garbage collection, which here would look at the results of all lines."""
    gc.disable()
    try:
        return measure_stages(translator, path, lines)
    finally:
        gc.enable()


def measure_stages(translator: Translator, path: Path, lines: list[str]) -> dict[str, dict[str, float]]:
    """Run one stage after the other, each in this thread."""
    times = StageTimes(len(lines))
    options = translator._read_options(scores="none")
    preparer, assembler = translator._create_stages(options)
    subwords, language = translator.subwords, translator.source_language
    times.measure("read", lambda: list(islice(read_lines([path]), len(lines))))
    times.measure("  split", lambda: [segmentation.split_text(line, language) for line in lines])
    times.measure(
        "  encode", lambda: [subwords.source.encode_sentences(part) for part in split_chunks(lines)]
    )
    jobs: list[TextJob] = times.measure(
        "prepare", lambda: [job for part in split_chunks(lines) for job in preparer.prepare(part)]
    )
    sentences = [sentence for job in jobs for sentence in job.sentences]
    give_hypotheses(sentences)
    if translator.is_calibrated:
        times.measure("review", lambda: list(map(assembler.reviewer.review, split_chunks(sentences))))
    times.measure("detokenize", lambda: detokenize_all(assembler, sentences))
    translations = times.measure("assemble", lambda: [assembler.assemble(job) for job in jobs])
    times.measure("write", lambda: write_lines([translation.text for translation in translations]))
    times.measure("write JSON", lambda: write_lines([format_json(item) for item in translations]))
    return times.stages


def give_hypotheses(sentences: Sequence[SentenceJob]) -> None:
    for sentence in sentences:
        sentence.hypotheses = [make_hypothesis(sentence.request.source[:-1], "tokens")]


def detokenize_all(assembler: Assembler, sentences: Sequence[SentenceJob]) -> None:
    """Detokenize sentences, and the parts of those that are repaired."""
    while sentences:
        parts = [part for chunk in split_chunks(sentences) for part in assembler.detokenize(chunk)]
        give_hypotheses(parts)
        sentences = parts


def write_lines(lines: list[str]) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    for part in split_chunks(lines):
        stream.write("\n".join([*part, ""]))


def measure_command(translator: Translator, path: Path, num_lines: int) -> dict[str, dict[str, float]]:
    """Run everything at the same time, as the command does."""
    times = StageTimes(num_lines)

    def decode_alone() -> None:
        ids = list(range(3, 33))
        for _ in translator.engine.decode(
            (Request(ids, None) for _ in range(num_lines)),  # type: ignore[arg-type]
            DecodingConfig(),
            scores="none",
            window=translator.engine.read_ahead,
        ):
            pass

    def translate(as_json: bool) -> None:
        lines = islice(read_lines([path]), num_lines)
        batches = translator.stream_batches(lines, scores="tokens" if as_json else "none")
        stdout, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        try:
            with stream_settings():
                print_translations(batches, as_json, ConfidencePolicy())
        finally:
            sys.stdout = stdout

    times.measure("fake engine alone", decode_alone)
    times.measure("command", lambda: translate(False))
    times.measure("command --json", lambda: translate(True))
    return times.stages


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a folder with subwords: of a model or of data")
    parser.add_argument("file", type=Path, help="text, one line each")
    parser.add_argument("--language", default="en", help="of the text")
    parser.add_argument("--lines", type=int, default=20_000, help="lines to read at most")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    arguments = parser.parse_args()
    languages = {"source": arguments.language, "target": arguments.language}
    engine: Any = EchoEngine()
    translator = Translator(
        engine, SubwordPair.load(arguments.folder), languages, calibration=read_calibration(arguments.folder)
    )
    lines = list(islice(read_lines([arguments.file]), arguments.lines))
    translator.translate(lines[:CHUNK])  # loads what is loaded at first use
    results: dict[str, Any] = {
        "lines": len(lines),
        "stages": measure_without_collection(translator, arguments.file, lines),
        "together": measure_command(translator, arguments.file, len(lines)),
    }
    print(f"microseconds per line, {len(lines):,} lines of {arguments.file.name}")
    print(f"{'':20}{'python':>10}{'all':>10}{'wall':>10}")
    for stage, numbers in {**results["stages"], **results["together"]}.items():
        print(f"{stage:20}" + "".join(f"{numbers[key]:10.2f}" for key in ("python", "all", "wall")))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
