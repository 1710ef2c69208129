"""A plan of a distillation over a small corpus, and a report."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import manyheads as mh
from manyheads.config import DistillConfig
from manyheads.distill.plan import DistillationPlan
from support.small_run import make_config


def make_plan(data: Path, run: Path, teacher: Path, student: mh.Config | None = None, **options: Any) -> Any:
    """Return a plan; options are those of DistillConfig, and `monolingual` files."""
    config = student or make_config(run / "data")
    monolingual = tuple(options.pop("monolingual", ()))
    return DistillationPlan(
        (teacher,),
        data,
        run,
        DistillConfig(**options),
        replace(config, data=replace(config.data, folder=str(run / "data"))),
        monolingual,
        device="cpu",
        speed_seconds=0.02,
    )


SCORE = {"name": "BLEU", "value": 30.0, "signature": "nrefs:1|tok:13a", "margin_of_error": 0.5}


def make_row(system: str, beam: int, value: float) -> dict[str, Any]:
    return {
        "system": system, "test_set": "newstest2014", "beam": beam, "engine": "torch", "length_ratio": 0.99,
        "bleu": {**SCORE, "value": value}, "chrf": {**SCORE, "name": "chrF", "value": 50.0},
    }  # fmt: skip


def make_speed(system: str, words: float | None) -> dict[str, Any]:
    return {
        "system": system, "engine": "ctranslate2:int8", "beam": 1, "batch_size": 16,
        "words_per_second": words,
    }  # fmt: skip


REPORT: dict[str, Any] = {
    "command": "manyheads distill big/model --data data --out run",
    "teachers": ["big/model"],
    "languages": {"source": "en", "target": "de"},
    "quality": [
        make_row("teacher", 4, 30.0), make_row("teacher", 1, 29.5), make_row("student", 4, 29.8),
        make_row("student, int8", 4, 29.6), make_row("student, int8", 1, 29.1),
    ],
    "speed": [make_speed("teacher", 100.0), make_speed("student, int8", 1250.0)],
    "cpu": "a processor, 2 threads",
    "megabytes": {"teacher": 250.0, "student": 68.0, "student, int8": 17.9},
    "pairs": {"kept": 900, "empty": 60, "low score": 40, "unknown": 7, "learned": 880},
    "seconds": {"text": 1.0, "translate": 20.0, "report": 3.5},
    "settings": {
        "distill.choose": "chrf", "distill.beam": 4, "distill.min_confidence": 0.5, "distill.min_score": None,
        "distill.original_share": 0.25, "--mono": [["news.en", 10]],
    },
}  # fmt: skip
