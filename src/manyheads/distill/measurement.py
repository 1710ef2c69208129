"""How good teacher and student are, and how fast on the CPU of this machine."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import cycle, product
from typing import Any

from manyheads.config import ModelConfig
from manyheads.data.store import Store
from manyheads.distill.plan import DistillationPlan
from manyheads.distill.state import DistillState
from manyheads.errors import RequestError
from manyheads.evaluate.bleu import bleu_and_length_ratio, bleu_tokenizer, chrf
from manyheads.evaluate.report import DEFAULT_BOOTSTRAP_SAMPLES, translate_texts
from manyheads.export.ctranslate2 import check_convertible
from manyheads.loading import load
from manyheads.progress import ReportProgress
from manyheads.text.subwords import count_cpus
from manyheads.train.distilled_card import INT8_STUDENT, STUDENT, TEACHER
from manyheads.translator import Translator

BEAMS = (4, 1)
BATCH_SIZES = (1, 16, 256)  # sentences that are translated together
SPEED_SENTENCES = 2048  # at most, of all test sets
GOLDEN_RATIO = 0.618  # the conjugate: multiples of it, modulo 1, are spread evenly
# Of quality and of speed: with scores, a shortlist would not be used in all cases.
OPTIONS: dict[str, Any] = {"nbest": 1, "split": False, "scores": "none"}

TestSets = dict[str, tuple[list[str], list[str]]]  # sources and references by name


class LazyTranslator:
    """Loads a model when it is first used: what was measured before needs none."""

    def __init__(self, loader: Callable[[], Translator]) -> None:
        self.loader = loader

    @cached_property
    def translator(self) -> Translator:
        return self.loader()


def list_test_sets(store: Store) -> TestSets:
    """Return the inputs of the test set, or of the validation set if there is none."""
    split = next((name for name in ("test", "valid") if name in store.splits), None)
    if split is None:
        return {}
    sources, references = store.read_text(split)
    sets: TestSets = {}
    start = 0
    for entry in store.manifest["splits"][split]["inputs"]:
        end = start + entry["kept"]
        name = entry["name"] if split == "test" else f"{entry['name']} (valid)"
        sets[name] = sources[start:end], references[start:end]
        start = end
    return {name: lines for name, lines in sets.items() if lines[0]}


def choose_cpu_engines(model: ModelConfig) -> list[str]:
    """Return the engines that run a model on a CPU, the faster first."""
    try:
        check_convertible(model)
    except RequestError:  # an architecture that only torch runs
        return ["torch"]
    return ["ctranslate2:int8", "torch"] if find_spec("ctranslate2") else ["torch"]


# ---- quality


def measure_quality(
    plan: DistillationPlan, state: DistillState, report_progress: ReportProgress
) -> list[dict[str, Any]]:
    """Return the scores of teacher and student on each test set, by beam search and greedy."""
    int8_engine = choose_cpu_engines(plan.student.model)[0]
    systems = {
        TEACHER: LazyTranslator(partial(load, *plan.teachers, device=plan.device, engine=plan.engine)),
        STUDENT: LazyTranslator(partial(load, plan.student_model, device=plan.device, engine="torch")),
        INT8_STUDENT: LazyTranslator(partial(load, plan.int8_model, device="cpu", engine=int8_engine)),
    }
    rows = []
    for system, lazy in systems.items():
        for test_set, lines in list_test_sets(plan.store).items():
            for beam in BEAMS:
                name = f"{system}: {test_set}, beam {beam}"
                score = partial(score_system, lazy, *lines, beam, name, report_progress)
                rows.append(
                    {"system": system, "test_set": test_set, "beam": beam, **state.measure(name, score)}
                )
    return rows


def score_system(
    lazy: LazyTranslator,
    sources: Sequence[str],
    references: Sequence[str],
    beam: int,
    stage: str,
    report_progress: ReportProgress,
) -> dict[str, Any]:
    """Translate a test set and return BLEU and chrF with their signatures and margins of error."""
    translator = lazy.translator
    results = translate_texts(translator, sources, report_progress, stage, {"beam": beam, **OPTIONS})
    texts = [result.text for result in results]
    tokenizer = bleu_tokenizer(translator.target_language)
    bleu, length_ratio = bleu_and_length_ratio(texts, [references], tokenizer, DEFAULT_BOOTSTRAP_SAMPLES)
    scores = {"bleu": asdict(bleu), "chrf": asdict(chrf(texts, [references], DEFAULT_BOOTSTRAP_SAMPLES))}
    return {"engine": translator.engine.name, "length_ratio": length_ratio, **scores}


# ---- speed


def measure_speed(
    plan: DistillationPlan, state: DistillState, report_progress: ReportProgress
) -> list[dict[str, Any]]:
    """Return source words per second of teacher and student on this CPU, by engine, beam and batch size.

    Of an ensemble the first teacher is measured. The student translates the same sentences as the teacher,
    which decides how many there are within the time.
    """
    sources = [line for lines, _ in list_test_sets(plan.store).values() for line in lines]
    engines = choose_cpu_engines(plan.student.model)
    folders = {TEACHER: plan.teachers[0], INT8_STUDENT: plan.int8_model}
    cases = list(product(folders, engines, BEAMS, BATCH_SIZES))  # the teacher's first
    lazy = {
        (system, engine): LazyTranslator(partial(load, folder, device="cpu", engine=engine))
        for system, folder in folders.items()
        for engine in engines
    }
    rows = []
    num_batches: dict[tuple[str, int, int], int] = {}
    for number, (system, engine, beam, size) in enumerate(cases if sources else []):
        report_progress("measuring speed", number, len(cases))
        batches = create_batches(sources, size)[: num_batches.get((engine, beam, size))]
        measure = partial(
            count_words_per_second, lazy[system, engine], batches, beam, plan.speed_seconds, system == TEACHER
        )
        row = {"system": system, "engine": engine, "beam": beam, "batch_size": size}
        name = f"words per second of {system}: {engine}, beam {beam}, {size} sentences"
        rows.append(row | state.measure(name, measure))
        num_batches.setdefault((engine, beam, size), rows[-1]["num_batches"])
    return rows


def create_batches(sources: Sequence[str], size: int) -> list[list[str]]:
    """Divide sentences into batches; each, and the first few, are spread evenly over all of them."""
    spread = [sources[index] for index in order_evenly(len(sources))[:SPEED_SENTENCES]]
    return [spread[start : start + size] for start in range(0, len(spread), size)]


def order_evenly(count: int) -> list[int]:
    """Return the numbers below `count` in an order whose beginnings are spread evenly over all of them."""
    first = max(1, round(GOLDEN_RATIO * count))
    step = next(step for step in range(first, first + count + 1) if math.gcd(step, count) == 1)
    return [number * step % count for number in range(count)]


def count_words_per_second(
    lazy: LazyTranslator, batches: Sequence[list[str]], beam: int, seconds: float, may_stop: bool
) -> dict[str, Any]:
    """Translate all batches for some seconds, once at least, after some sentences to warm up.

    If it `may_stop`, fewer batches are enough when the time is over; their number is returned too. Words are
    None if the engine cannot run the model, or cannot write its conversion.
    """
    try:
        translator = lazy.translator
    except RequestError:
        return {"words_per_second": None, "num_batches": len(batches)}
    options = {"beam": beam, **OPTIONS}
    translator.translate(batches[0][:16], **options)
    num_words, start = 0, time.monotonic()
    for number, batch in enumerate(cycle(batches), 1):
        translator.translate(batch, **options)
        num_words += sum(len(text.split()) for text in batch)
        elapsed = time.monotonic() - start
        is_complete = number % len(batches) == 0 or (may_stop and number < len(batches))
        if elapsed >= seconds and is_complete:
            return {"words_per_second": num_words / elapsed, "num_batches": min(number, len(batches))}
    raise AssertionError("there is always a batch")


def describe_cpu() -> str:
    from manyheads.cuda.device import describe_machine

    return f"{describe_machine('cpu')}, {count_cpus()} cores"
