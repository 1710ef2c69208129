"""Run a bulk job: from shards to stdout or to a folder of shards."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from manyheads.bulk.chunks import MAX_CHUNK_ROWS, group_into_chunks
from manyheads.bulk.coordinator import Coordinator
from manyheads.bulk.executor import Executor
from manyheads.bulk.jobs import BulkJob
from manyheads.bulk.local_workers import LocalWorkers
from manyheads.bulk.model_files import hash_adapter, hash_model, read_languages
from manyheads.bulk.outputs import OutputFolder, write_lines
from manyheads.bulk.resources import WorkerResources, plan_local_workers
from manyheads.bulk.shards import Shard, read_blocks
from manyheads.confidence_policy import ConfidenceCounts
from manyheads.errors import RequestError
from manyheads.progress import ReportProgress

STAGES = {
    "translate": "translating",
    "nbest": "translating",
    "score": "scoring",
    "backtranslate": "back-translating",
}


@dataclass(frozen=True)
class WorkerOptions:
    """Where the workers of a job run; by default on this machine, one per GPU or per few cores."""

    gpus: str | None = None  # a number or "all"
    workers: int | None = None
    ray: str | None = None  # the address of a Ray cluster, or "local"


@dataclass(frozen=True)
class BulkSummary:
    """What a run has written."""

    num_shards: int
    counts: ConfidenceCounts


@dataclass(frozen=True)
class BulkRun:
    """A job, its input and its workers."""

    job: BulkJob
    shards: Sequence[Shard]
    columns: Sequence[str | None]  # of Parquet: those of the texts; None: as shards.find_column finds it
    workers: WorkerOptions
    report_progress: ReportProgress | None = None

    def write_to(self, stdout: IO[str]) -> BulkSummary:
        """Write all results as lines."""
        coordinator = self._start(self.shards)
        with closing(coordinator.run()) as results:
            self._report(write_lines(results, stdout))
        return BulkSummary(len(self.shards), coordinator.counts)

    def write_folder(self, out: Path) -> BulkSummary:
        """Write a shard for every shard of the input that is not yet complete."""
        folder = OutputFolder(out, self.shards, self._describe())
        with folder.open() as pending:
            if not pending:
                return BulkSummary(0, ConfidenceCounts())
            coordinator = self._start(pending)
            with closing(coordinator.run()) as results:
                self._report(folder.write(pending, results))
            return BulkSummary(len(pending), coordinator.counts)

    def _describe(self) -> dict[str, Any]:
        """Return what decides the results."""
        job = self.job
        return {
            "task": job.task,
            "models": [hash_model(Path(folder)) for folder in job.models],
            "engine": job.engine,
            "options": job.options,
            "output": job.output,
            "columns": list(self.columns),
            "confidence_policy": self._describe_policy(),
            **({"backtranslation": job.backtranslation} if job.backtranslation else {}),
            **({"adapter": hash_adapter(Path(job.models[0]), job.adapter)} if job.adapter else {}),
        }

    def _describe_policy(self) -> dict[str, Any] | None:
        """Return the policy if it decides the results: `keep` only counts."""
        policy = self.job.confidence_policy
        return None if policy is None or policy["below"] == "keep" else policy

    def _start(self, pending: Sequence[Shard]) -> Coordinator:
        if len({shard.format for shard in pending}) > 1:
            raise RequestError("the input has shards of text and of Parquet: run a job for each format")
        languages = [read_languages(Path(folder)) for folder in self.job.models]
        executor, resources = create_executor(self.job, self.workers)
        blocks = read_blocks(pending, self.columns, languages[0][: len(self.columns)])
        max_rows = MAX_CHUNK_ROWS[resources.device_type]
        return Coordinator(executor, group_into_chunks(blocks, max_rows, executor.num_workers))

    def _report(self, rows_of_chunks: Iterator[int]) -> None:
        num_done = 0
        for num_rows in rows_of_chunks:
            num_done += num_rows
            if self.report_progress:
                self.report_progress(STAGES[self.job.task], num_done, None)


def create_executor(job: BulkJob, options: WorkerOptions) -> tuple[Executor, WorkerResources]:
    if options.ray is not None:
        from manyheads.bulk.ray_workers import RayWorkers

        if options.gpus is not None:
            raise RequestError(
                "--gpus is for this machine and --ray for a cluster: give --workers with --ray"
            )
        executor = RayWorkers(job, options.ray, options.workers)
        return executor, executor.resources
    resources = plan_local_workers(job.engine, job.device, options.gpus, options.workers)
    job = replace(job, device=resources.device_type, threads=resources.threads)
    return LocalWorkers(job, resources.list_environments()), resources
