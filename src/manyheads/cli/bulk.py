"""Options of `translate` and `score` for input by shards and for several workers."""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NoReturn

import typer
import typer.core

from manyheads.cli.app import exit_with_error
from manyheads.cli.confidence import print_confidence_summary
from manyheads.cli.text_io import LineCounter, configure_output
from manyheads.errors import EXIT_PREEMPTED, NoWorkersError

if TYPE_CHECKING:
    from manyheads.bulk.jobs import BulkJob
    from manyheads.bulk.shards import Shard
    from manyheads.progress import Progress, ReportProgress

LOCAL_RAY = "local"
MIN_SHARED_BYTES = 4_000_000  # of input, some 30,000 lines: more than a GPU translates in a second

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Run workers on Ray: on a cluster (host:port of its head, or auto), or without an address on "
        "a Ray that is started here.",
        metavar="[ADDRESS]",
    ),
]
Gpus = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        help="Run worker processes on this many GPUs of this machine, or on all.",
        metavar="N|all",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Number of workers; by default one per four cores, and at most three on each GPU.",
        min=1,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Write a shard to this folder for every input shard, or documents. The same command goes on "
        "with a job that was stopped, and skips complete shards.",
        metavar="FOLDER",
    ),
]


class RayCommand(typer.core.TyperCommand):
    """A command whose option --ray may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, complete_ray_option(args))


def complete_ray_option(arguments: Sequence[str]) -> list[str]:
    """Give --ray a value, unless an address follows: auto, local, host:port or ray://host:port."""
    completed = list(arguments)
    end = completed.index("--") if "--" in completed else len(completed)
    for index in (index for index in range(end) if completed[index] == "--ray"):
        following = completed[index + 1] if index + 1 < end else ""
        host, colon, port = following.rpartition(":")
        if not (following in ("auto", LOCAL_RAY) or (host and colon and port.isdecimal())):
            completed[index] = f"--ray={LOCAL_RAY}"
    return completed


def needs_workers(files: Sequence[Path], *options: object) -> bool:
    """Return whether an option or an input is for workers, and not for a translator in this process."""
    from manyheads.bulk.shards import PARQUET_SUFFIXES

    return any(option is not None for option in options) or any(
        path.is_dir() or path.suffix in PARQUET_SUFFIXES for path in files
    )


def count_gpus_for(files: Sequence[Path], engine: str | None, device: str | None) -> int:
    """Return how many GPUs there are, if the files are so large that another process pays; otherwise 0."""
    from manyheads.bulk.resources import can_use_gpu
    from manyheads.cuda.driver import count_gpus

    size = sum(path.stat().st_size for path in files if path.is_file()) if files else measure_stdin()
    return count_gpus() if size >= MIN_SHARED_BYTES and can_use_gpu(engine or "torch", device) else 0


def measure_stdin() -> int:
    """Return the size of a file that is redirected to stdin; 0 if it is something else."""
    try:
        status = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):  # closed, or replaced
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def run_bulk_job(
    job: "BulkJob",
    shards: "Sequence[Shard]",
    columns: Sequence[str | None],
    out: Path | None,
    *,
    gpus: str | None,
    workers: int | None,
    ray: str | None,
) -> None:
    """Run a job with progress on stderr. Ctrl-C and SIGTERM end all workers at once."""
    from manyheads.bulk.run import BulkRun, WorkerOptions
    from manyheads.confidence_policy import ConfidencePolicy
    from manyheads.progress import create_progress
    from manyheads.train.preemption import interrupt_on_sigterm

    configure_output()
    try:
        with (
            interrupt_on_sigterm(),
            divert_stdout() as stdout,
            create_progress(sys.stderr, "lines") as progress,
        ):
            is_shown = out is not None or sys.stderr.isatty()
            report_progress = add_total(progress, shards if out is None else []) if is_shown else None
            run = BulkRun(job, shards, columns, WorkerOptions(gpus, workers, ray), report_progress)
            summary = run.write_to(stdout) if out is None else run.write_folder(out)
            if num_skipped := len(shards) - summary.num_shards:
                progress.message(f"{out}: {num_skipped} of {len(shards)} shards were complete before")
    except KeyboardInterrupt:
        if out is None:
            raise
        exit_with_error(f"{out}: stopped; the same command goes on", EXIT_PREEMPTED)
        return
    except NoWorkersError as error:
        exit_without_cluster(error, out)
    if job.task == "backtranslate":
        counts = summary.counts
        kept = f"{counts.num_lines - counts.num_below:,} of {counts.num_lines:,} lines became pairs"
        print(f"{out}: {kept}", file=sys.stderr)
    if job.task == "translate":
        policy = None if job.confidence_policy is None else ConfidencePolicy(**job.confidence_policy)
        print_confidence_summary(summary.counts, policy, as_json=job.output == "json")


def exit_without_cluster(error: NoWorkersError, out: Path | None) -> NoReturn:
    """Exit at once: threads of Ray that wait for the cluster would crash an orderly exit."""
    hint = "" if out is None else "; complete shards are kept, and the same command goes on"
    print(f"manyheads: {error}{hint}", file=sys.stderr, flush=True)
    os._exit(error.exit_code if out is None else EXIT_PREEMPTED)


def add_total(progress: "Progress", shards: "Sequence[Shard]") -> "ReportProgress":
    """Return what reports the lines that are done, and of how many in text shards, once that is known."""
    counter = LineCounter([shard.files[0] for shard in shards if shard.format == "text"])
    return lambda stage, done, _: progress.update(stage, done, counter.total)


@contextmanager
def divert_stdout() -> Iterator[IO[str]]:
    """Return a stream for results only: what Ray prints to stdout goes to stderr."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n") as results:
        os.dup2(2, 1)
        yield results
