"""Stage 2: the teacher translates all shards, by a bulk job whose complete shards are kept."""

from manyheads.bulk.jobs import BulkJob
from manyheads.bulk.run import BulkRun
from manyheads.bulk.shards import Shard
from manyheads.distill.plan import DistillationPlan
from manyheads.distill.source_text import read_parts
from manyheads.progress import ReportProgress


def translate_sources(plan: DistillationPlan, report_progress: ReportProgress) -> None:
    """Write an n-best list for every line of every shard that is not yet complete."""
    language, parts = plan.store.source_language, read_parts(plan)
    names = [f"{name}.{language}" for part in parts for name in part.shards]
    shards = [Shard(name, (plan.text_folder / name,), "text") for name in names]
    total = sum(part.lines for part in parts)
    before = count_translated(plan, names, total)

    def report(stage: str, done: int, _: int | None) -> None:
        report_progress(stage, min(total, before + done), total)

    report("translating", 0, None)
    BulkRun(create_job(plan), shards, [None], plan.workers, report).write_folder(plan.translation_folder)


def create_job(plan: DistillationPlan) -> BulkJob:
    """Return the job of the teacher. A line is one sentence, and one that fails is left to the filters.

    To decode failed sentences once more would hold up the others: a GPU decodes a few as long as thousands.
    """
    options = {
        "beam": plan.config.beam,
        "nbest": plan.config.num_hypotheses,
        "split": False,
        "second_try": False,
    }
    return BulkJob("nbest", [*map(str, plan.teachers)], plan.engine, plan.device, options=options)


def count_translated(plan: DistillationPlan, names: list[str], total: int) -> int:
    """Return about how many lines are translated already, for the progress."""
    num_complete = sum((plan.translation_folder / name).exists() for name in names)
    return total * num_complete // max(1, len(names))
