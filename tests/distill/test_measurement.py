"""Quality and speed are measured in the same way, and on the same sentences for teacher and student."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from manyheads.distill import measurement
from manyheads.distill.measurement import create_batches, describe_cpu, measure_quality, measure_speed
from manyheads.distill.state import DistillState
from manyheads.progress import Progress

SILENT = Progress().update
SOURCES = [f"sentence number {number}" for number in range(100)]


class TimedTranslator:
    """Translates by copying, and takes a stated time for each sentence."""

    target_language = "de"
    engine = SimpleNamespace(name="scripted")

    def __init__(self, clock: list[float], seconds: float) -> None:
        self.clock, self.seconds = clock, seconds
        self.calls: list[tuple[list[str], dict[str, Any]]] = []

    def translate(self, texts: Sequence[str], **options: Any) -> list[Any]:
        self.clock[0] += self.seconds * len(texts)
        self.calls.append((list(texts), options))
        return [SimpleNamespace(text=text) for text in texts]


@pytest.fixture
def systems(monkeypatch: pytest.MonkeyPatch) -> dict[str, TimedTranslator]:
    """A slow teacher and a fast student, which are measured by a clock of their own."""
    clock = [0.0]
    made = {"teacher": TimedTranslator(clock, 0.1), "student": TimedTranslator(clock, 0.001)}
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(measurement, "load", lambda folder, **_: made[Path(folder).name])
    monkeypatch.setattr(measurement, "choose_cpu_engines", lambda model: ["torch"])
    monkeypatch.setattr(measurement, "list_test_sets", lambda store: {"test": (SOURCES, SOURCES)})
    return made


def make_plan() -> Any:
    return SimpleNamespace(
        teachers=(Path("teacher"),), student_model=Path("student"), int8_model=Path("student"),
        student=SimpleNamespace(model=None), store=None, device="cpu", engine="torch", speed_seconds=1.0,
    )  # fmt: skip


def test_student_and_teacher_translate_the_same_sentences(
    systems: dict[str, TimedTranslator], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "BEAMS", (1,))
    for size in (1, 16, 256):
        monkeypatch.setattr(measurement, "BATCH_SIZES", (size,))
        state = DistillState(tmp_path / f"{size}.json", {})
        rows = measure_speed(make_plan(), state, SILENT)
        assert [row["words_per_second"] for row in rows] == [pytest.approx(30), pytest.approx(3000)]
        teacher, student = ([texts for texts, _ in system.calls[1:]] for system in systems.values())
        assert teacher == student[: len(teacher)]
        assert {*map(tuple, teacher)} == {*map(tuple, student)}
        assert measure_speed(make_plan(), state, SILENT) == rows  # without another call
        for system in systems.values():
            system.calls.clear()


def test_quality_and_speed_are_measured_with_the_same_options(
    systems: dict[str, TimedTranslator], tmp_path: Path
) -> None:
    state = DistillState(tmp_path / "distill.json", {})
    options = []
    for measure in (measure_quality, measure_speed):
        measure(make_plan(), state, SILENT)
        calls = [call[1] for system in systems.values() for call in system.calls]
        options.append({(each["beam"], each["nbest"], each["split"], each["scores"]) for each in calls})
        for system in systems.values():
            system.calls.clear()
    assert options[0] == options[1] == {(4, 1, False, "none"), (1, 1, False, "none")}


@pytest.mark.parametrize("size", [1, 7, 16, 256])
def test_batches_have_every_sentence_once_and_begin_evenly_spread(size: int) -> None:
    batches = create_batches(SOURCES, size)
    assert sorted(text for batch in batches for text in batch) == sorted(SOURCES)
    assert max(map(len, batches)) <= size
    first = [SOURCES.index(text) for batch in batches for text in batch][:10]
    assert sum(number < 50 for number in first) in (4, 5, 6)
    assert create_batches(SOURCES[:1], size) == [SOURCES[:1]]


def test_the_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 777)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert describe_cpu().endswith(", 3 cores")
