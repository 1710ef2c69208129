"""Stress tests: how a model's quality holds up when its input is not clean, and whether it knows."""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from manyheads.confidence.calibration import CHRF_THRESHOLD
from manyheads.confidence.detectors import find_loop
from manyheads.confidence.metrics import compute_auroc, compute_ece, compute_risk_coverage
from manyheads.evaluate.bleu import (
    Score,
    bleu_and_length_ratio,
    bleu_metric,
    bleu_tokenizer,
    chrf,
    sentence_chrf,
)
from manyheads.evaluate.report import DEFAULT_BOOTSTRAP_SAMPLES
from manyheads.evaluate.stress_inputs import (
    NEIGHBORS,
    NOISE_CASES,
    TOKEN_MAKERS,
    CopyInput,
    TestSet,
    change_sources,
    find_shortest,
    is_intact,
    join_neighbors,
    make_copy_inputs,
    sample_test_set,
    sample_words,
)
from manyheads.evaluate.stress_results import Calibration, CopyRow, Failures, StressReport, StressRow, WordRow
from manyheads.progress import ReportProgress
from manyheads.text import noise
from manyheads.text.casing import to_capitals
from manyheads.text.invalid import REPLACEMENT_CHARACTER
from manyheads.translation import Translation
from manyheads.translator import Translator

DEFAULT_SEED = 1
MAX_WORDS = 200  # single words
MAX_SOUND_WORDS = 4  # of the output of a single word: an article, a compound in two words
MAX_EXAMPLES = 3  # of failures
PILOT_LINES = 16  # from which the time of a test is estimated
OUTPUTS_PER_LINE = 11  # clean, six changes, long lines, copies, words, shuffled words
MIN_SAMPLE, MAX_SAMPLE = 12, 300  # lines
CURVE_POINTS = 50  # of the risk-coverage curve


class StressTests:
    """Translates the cases of a test set, each text once, and scores them."""

    def __init__(
        self,
        translator: Translator,
        test: TestSet,
        *,
        tokenizer: str,
        bootstrap_samples: int,
        seed: int,
        report_progress: ReportProgress,
        decoding: dict[str, Any],
    ) -> None:
        self.translator, self.test, self.seed = translator, test, seed
        self.tokenizer, self.bootstrap_samples = tokenizer, bootstrap_samples
        self.report_progress, self.decoding = report_progress, decoding
        self.max_extra_length = replace(translator.decoding, **decoding).max_extra_length
        self.known: dict[str, Translation] = {}  # by source
        self.failures = Failures()
        self.clean = self.translate("clean", test.sources)

    def translate(self, stage: str, texts: Sequence[str]) -> list[Translation]:
        """Translate texts, each as one sentence, those that are not known yet; count failures."""
        new = list(dict.fromkeys(text for text in texts if text not in self.known))

        def report(_: str, done: int, total: int | None) -> None:
            self.report_progress(stage, done, total)

        if new:
            with warnings.catch_warnings():  # about long words, which some cases have on purpose
                warnings.simplefilter("ignore")
                results = self.translator.translate(
                    new,
                    split=False,
                    scores="total",
                    corrections=False,
                    report_progress=report,
                    **self.decoding,
                )
            self.known.update(zip(new, results, strict=True))
            self.failures += self.count_failures([self.known[text] for text in new])
        return [self.known[text] for text in texts]

    def count_failures(self, translations: Sequence[Translation]) -> Failures:
        return Failures(
            len(translations),
            sum(has_loop(result) for result in translations),
            sum(is_empty(result) for result in translations),
            sum(self._is_too_long(result) for result in translations),
            sum(REPLACEMENT_CHARACTER in result.text for result in translations),
        )

    def _is_too_long(self, result: Translation) -> bool:
        limit = len(result.source_tokens) + max(1, result.sentences) * self.max_extra_length
        return len(result.tokens) > limit

    # ---- cases

    def score(
        self, results: Sequence[Translation], references: list[list[str]], ignore_case: bool
    ) -> tuple[Score, Score]:
        """Return BLEU and chrF."""
        texts = [result.text for result in results]
        bleu, _ = bleu_and_length_ratio(
            texts, references, self.tokenizer, self.bootstrap_samples, ignore_case
        )
        return bleu, chrf(texts, references, self.bootstrap_samples, ignore_case)

    def make_row(
        self,
        name: str,
        description: str,
        test: TestSet,
        clean_chrf: float,
        ignore_case: bool = False,
    ) -> StressRow:
        """Translate and score a case. What it is compared with is scored in the same way."""
        results = self.translate(name, test.sources)
        bleu, chrf_score = self.score(results, test.references, ignore_case)
        return StressRow(
            name,
            description,
            len(test.sources),
            ignore_case,
            bleu,
            chrf_score,
            clean_chrf,
            self.count_failures(results),
            share_of_capitals(results) if name == "capitals" else None,
        )

    def measure_noise(self) -> tuple[list[StressRow], list[str]]:
        """Return the rows of the clean and the changed sources, and the cases that change nothing."""
        references, skipped = self.test.references, []
        clean_chrf = {False: self.score_clean(False), True: self.score_clean(True)}  # by ignore_case
        rows = [self.make_row("clean", "as it is", self.test, clean_chrf[False])]
        for case in NOISE_CASES:
            changed = change_sources(self.test.sources, case.name, case.change, self.seed)
            if changed == self.test.sources:
                skipped.append(case.name)
                continue
            test, clean = TestSet(changed, references), clean_chrf[case.ignores_case]
            rows.append(self.make_row(case.name, case.description, test, clean, case.ignores_case))
        return rows, skipped

    def score_clean(self, ignore_case: bool) -> float:
        """Return the chrF of the clean lines."""
        return chrf([result.text for result in self.clean], self.test.references, 0, ignore_case).value

    def measure_lengths(self, clean_chrf: float) -> tuple[list[StressRow], list[str]]:
        """Return the rows of short lines, compared with all lines, and of long ones, with those joined."""
        rows, skipped = [], []
        if shortest := find_shortest(self.test.sources):
            description, test = f"the {len(shortest):,} with the fewest words", self.test.select(shortest)
            rows.append(self.make_row("shortest lines", description, test, clean_chrf))
        else:
            skipped.append("shortest lines")
        joined = join_neighbors(self.test)
        if joined.sources:
            outputs = join_neighbors(TestSet([result.text for result in self.clean], [])).sources
            joined_chrf = chrf(outputs, joined.references, 0).value
            description = f"{NEIGHBORS} neighboring lines in one"
            rows.append(self.make_row("long lines", description, joined, joined_chrf))
        else:
            skipped.append("long lines")
        return rows, skipped

    # ---- what has no reference

    def measure_words(self, count: int) -> WordRow:
        """Translate single words."""
        words = sample_words(self.test.sources, self.translator.source_language, count, self.seed)
        results = self.translate("single words", words)
        unsound = [result for result in results if not is_sound_word(result)]
        examples = [(result.source, result.text) for result in unsound[:MAX_EXAMPLES]]
        return WordRow(len(results), len(results) - len(unsound), examples)

    def measure_copies(self, count: int) -> list[CopyRow]:
        """Translate sentences with tokens to copy; count those that come out intact, by category."""
        inputs = make_copy_inputs(self.test.sources, count, self.seed)
        results = self.translate("copied tokens", [entry.text for entry in inputs])
        pairs = list(zip(inputs, results, strict=True))
        return [
            make_copy_row(category, [pair for pair in pairs if pair[0].category == category])
            for category in TOKEN_MAKERS
        ]

    def measure_calibration(self) -> Calibration | None:
        """Compare confidences with chrF, and those of clean sources with those of shuffled ones.

        Lines with nothing to translate have none, and do not count.
        """
        confidences = [result.confidence for result in self.clean]
        known = [value for value in confidences if value is not None]
        if not known:
            return None
        outputs = [result.text for result in self.clean]
        scores = [
            sentence_chrf(*(text.lower() for text in texts))
            for confidence, *texts in zip(confidences, outputs, *self.test.references, strict=True)
            if confidence is not None
        ]
        shuffled = self.translate(
            "shuffled words",
            change_sources(self.test.sources, "shuffled words", noise.shuffle_words, self.seed),
        )
        others = [result.confidence for result in shuffled if result.confidence is not None]
        labels = [score >= CHRF_THRESHOLD for score in scores]
        coverage, risk = compute_risk_coverage(known, [1 - score / 100 for score in scores])
        points = np.unique(np.linspace(0, len(coverage) - 1, CURVE_POINTS).astype(int))
        return Calibration(
            len(known),
            CHRF_THRESHOLD,
            sum(labels) / len(labels),
            sum(known) / len(known),
            none_if_nan(compute_ece(known, labels)),
            none_if_nan(compute_auroc(known, labels)),
            none_if_nan(compute_auroc([*known, *others], [1] * len(known) + [0] * len(others))),
            coverage[points].tolist(),
            risk[points].tolist(),
        )


def run_stress_tests(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    sentences: int | None = None,
    copies: int | None = None,
    seed: int = DEFAULT_SEED,
    tokenize: str | None = None,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    report_progress: ReportProgress = lambda stage, done, total: None,
    **decoding: Any,
) -> StressReport:
    """Translate a test set clean and changed, each line as one sentence, and score the translations.

    sentences  lines of the test set to use, sampled with the seed; by default all
    copies     sentences with a token to copy; by default as many as lines
    """
    tokenizer = tokenize or bleu_tokenizer(translator.target_language)
    bleu_metric(tokenizer)  # raises before any work is done
    tests = StressTests(
        translator,
        sample_test_set(sources, references, sentences, seed),
        tokenizer=tokenizer,
        bootstrap_samples=bootstrap_samples,
        seed=seed,
        report_progress=report_progress,
        decoding=decoding,
    )
    count = len(tests.test.sources)
    rows, skipped = tests.measure_noise()
    more_rows, more_skipped = tests.measure_lengths(rows[0].clean_chrf)
    copied = tests.measure_copies(count if copies is None else copies)
    words = tests.measure_words(min(MAX_WORDS, count))
    calibration = tests.measure_calibration()
    return StressReport(
        (translator.source_language, translator.target_language),
        translator.engine.name,
        count,
        seed,
        rows + more_rows,
        skipped + more_skipped,
        copied,
        words,
        tests.failures,
        calibration,
    )


def choose_sample_size(translator: Translator, sources: Sequence[str], seconds: float) -> int:
    """Return how many lines can be tested in about this time, from the time that a few take."""
    pilot = list(sources[:PILOT_LINES])
    translator.translate(pilot[:2], split=False)  # what is allocated or compiled at first use
    start = time.monotonic()
    translator.translate(pilot, split=False)
    per_line = OUTPUTS_PER_LINE * (time.monotonic() - start) / max(1, len(pilot))
    return min(MAX_SAMPLE, max(MIN_SAMPLE, int(seconds / max(per_line, 1e-9))))


# ---- what an output looks like


def has_loop(result: Translation) -> bool:
    """Return whether the output has a loop that its source does not explain."""
    return find_loop(result.tokens, result.source_tokens) is not None


def is_empty(result: Translation) -> bool:
    """Return whether nothing came out although there are letters or digits to translate."""
    return not result.text.strip() and any(character.isalnum() for character in result.source)


def is_sound_word(result: Translation) -> bool:
    """Return whether the output of a single word is neither empty nor a loop nor a sentence."""
    return 1 <= len(result.text.split()) <= MAX_SOUND_WORDS and not has_loop(result)


def share_of_capitals(results: Sequence[Translation]) -> float | None:
    """Return the share of outputs in capitals, of those with letters that have a case; None without any."""
    texts = [result.text for result in results if result.text.lower() != to_capitals(result.text)]
    return sum(text == to_capitals(text) for text in texts) / len(texts) if texts else None


def make_copy_row(category: str, pairs: Sequence[tuple[CopyInput, Translation]]) -> CopyRow:
    lost = [(entry.token, result.text) for entry, result in pairs if not is_intact(entry.token, result.text)]
    return CopyRow(category, len(pairs), len(pairs) - len(lost), lost[:MAX_EXAMPLES])


def none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value
