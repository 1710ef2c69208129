"""Run the stages of a distillation. A stage that is complete is not run again."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from manyheads.atomic_io import open_locked
from manyheads.checkpoint.shortlist import SHORTLIST
from manyheads.data.store import Store
from manyheads.distill.measurement import (
    choose_cpu_engines,
    describe_cpu,
    measure_quality,
    measure_speed,
)
from manyheads.distill.plan import DistillationPlan
from manyheads.distill.report import STAGE_TITLES, has_report, write_report
from manyheads.distill.source_text import read_parts, write_source_text
from manyheads.distill.state import DistillState
from manyheads.distill.student_data import prepare_student_data, read_counts, write_pairs
from manyheads.distill.teacher import translate_sources
from manyheads.named_models.listing import measure_megabytes
from manyheads.progress import Progress, ReportProgress, create_progress
from manyheads.train.distilled_card import INT8_STUDENT, STUDENT, TEACHER
from manyheads.train.model_card import write_model_card
from manyheads.train.preemption import interrupt_on_sigterm
from manyheads.train.shortlist import add_shortlist

Outcome = Literal["done", "stopped", "until"]


class Stopped(Exception):
    """Training was stopped by a signal."""


def distill(plan: DistillationPlan) -> Outcome:
    """Run the stages that are not complete, the last one that of `plan.until`.

    SIGTERM and Ctrl-C stop; the same plan goes on later.
    """
    plan.check()
    plan.run.mkdir(parents=True, exist_ok=True)
    with open_locked(Path(plan.run)):
        state = DistillState.open(plan.run, plan.list_settings(), plan.command, plan.is_fixed)
        if plan.measures_again and "report" in state.done:  # else a stopped call goes on
            state.forget_measurements()
        with interrupt_on_sigterm():  # training watches signals by itself
            try:
                for number, stage in enumerate(STAGES, 1):
                    if stage not in state.done:
                        run_stage(plan, state, number, stage)
                    if stage == plan.until:
                        return "until"
                if not has_report(plan.run):
                    write_report(plan.run, build_report(plan, state))
            except (KeyboardInterrupt, Stopped):
                return "stopped"
    return "done"


def run_stage(plan: DistillationPlan, state: DistillState, number: int, stage: str) -> None:
    """Run a stage with its progress on stderr. Its time is recorded even if it is stopped."""
    start = time.monotonic()
    print(f"stage {number} of {len(STAGES)}: {STAGE_TITLES[stage]}", file=sys.stderr, flush=True)
    try:
        STAGES[stage](plan, state)
    finally:
        state.add_seconds(stage, time.monotonic() - start)
    if stage == "report":  # whose own time is part of it
        write_report(plan.run, build_report(plan, state))
    state.mark_done(stage)


# ---- stages


def with_progress(
    function: Callable[[DistillationPlan, ReportProgress], None],
) -> Callable[[DistillationPlan, DistillState], None]:
    """Return a stage that shows its progress by lines."""

    def run(plan: DistillationPlan, state: DistillState) -> None:
        with create_progress(sys.stderr, "lines") as progress:
            function(plan, progress.update)

    return run


def train_student(plan: DistillationPlan, state: DistillState) -> None:
    from manyheads.train.run import train

    # What must not change is compared by the settings of the distillation.
    if train(plan.student, plan.student_run, change_config=True, device=plan.device) == "stopped":
        raise Stopped


def quantize_student(plan: DistillationPlan, state: DistillState) -> None:
    from manyheads.export.int8 import quantize_model

    if not plan.int8_model.exists():
        quantize_model(plan.student_model, plan.int8_model)
    if not (plan.int8_model / SHORTLIST).exists():
        add_shortlist(plan.int8_model, plan.data_folder)


def measure_and_describe(plan: DistillationPlan, state: DistillState) -> None:
    """Measure, and write the model card, whose stress tests are those of the int8 student on the CPU."""
    with create_progress(sys.stderr) as progress:
        measure_quality(plan, state, progress.update)
        measure_speed(plan, state, progress.update)
        write_model_card(
            plan.int8_model,
            Store.open(plan.data_folder),
            plan.student_run,
            distillation=build_report(plan, state),
            engine=choose_cpu_engines(plan.student.model)[0],
            device="cpu",
            report_progress=progress.update,
        )


STAGES: dict[str, Callable[[DistillationPlan, DistillState], None]] = {
    "text": with_progress(write_source_text),
    "translate": with_progress(translate_sources),
    "pairs": with_progress(write_pairs),
    "data": with_progress(prepare_student_data),
    "train": train_student,
    "quantize": quantize_student,
    "report": measure_and_describe,
}


def name_model(folder: Path) -> str:
    """Return the name of a model for readers: that of its run, if the folder is called model."""
    resolved = folder.resolve()
    return f"{resolved.parent.name}/model" if resolved.name == "model" else resolved.name


def build_report(plan: DistillationPlan, state: DistillState) -> dict[str, Any]:
    """Return everything that was measured. What is not measured yet is measured here."""
    silent = Progress().update
    counts = sum(read_counts(plan), Counter())
    unknown = sum(part.num_unknown for part in read_parts(plan))
    learned = Store.open(plan.data_folder).manifest["splits"]["train"]["pairs"]
    return {
        "command": state.command,
        "teachers": [name_model(teacher) for teacher in plan.teachers],
        "languages": {"source": plan.store.source_language, "target": plan.store.target_language},
        "quality": measure_quality(plan, state, silent),
        "speed": measure_speed(plan, state, silent),
        "cpu": state.measure("cpu", describe_cpu),
        "megabytes": {
            TEACHER: sum(map(measure_megabytes, plan.teachers)),
            STUDENT: measure_megabytes(plan.student_model),
            INT8_STUDENT: measure_megabytes(plan.int8_model),
        },
        "pairs": {**counts, "unknown": unknown, "learned": learned},
        "seconds": state.seconds,
        "settings": state.settings,
    }
