"""Where each millisecond goes: what the device ran, summed into named groups."""

import json
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, schedule

import report

# The first group whose pattern a name holds. Fused kernels of torch.compile name all that they do, and go to
# the most telling part of it.
GROUPS = (
    ("attention", r"attend|flash|fmha|sdpa|attention"),
    ("loss", r"cross_entropy|nll_?loss|softmax|logsumexp"),
    ("optimizer", r"adam|multi_tensor|foreach|lpnorm"),
    (
        "embedding",
        r"embed|index_?select|indexselect|index_put|indexing_backward|radix|sort|segment|krn_partial",
    ),
    ("norm, dropout, residual", r"residual_|layer_?norm|gammabeta|dropout|masked_scale|bernoulli"),
    (
        "matrix products",
        r"nvjet|gemm|gemv|cutlass|xmma|splitk|cublas|triton_tem|aten::(addmm|mm|bmm|baddbmm|linear|matmul)",
    ),
    ("activation", r"relu|threshold|gelu|silu"),
    ("search", r"topk|gathertopk|beam_|argmax|arg_?max|scatter|gather"),
    ("copies", r"memcpy|memset|copy|cat_?array|aten::(cat|fill_|zero_|clone)|fillfunctor"),
    ("elementwise and sums", r"elementwise|reduce|triton_(poi|red|per)_|aten::(add|mul|sum|div)_?$"),
)
OTHER = "other"
LONGEST = 15  # kernels that the screen names; the JSON has all
NAME_WIDTH = 90


@dataclass
class Part:
    """Kernels of a name, or of a group."""

    name: str
    milliseconds: float = 0.0
    calls: int = 0
    share: float = 0.0  # of the device's work


@dataclass(frozen=True)
class Profile:
    """One run of something. Idle is what lies between its kernels; on a CPU nothing is known of that."""

    wall_ms: float  # without the profiler
    busy_ms: float
    idle_ms: float | None
    groups: list[Part]
    kernels: list[Part]  # the longest first

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Event:
    """Something that the device did; milliseconds."""

    name: str
    start: float
    duration: float
    calls: int = 1


def group_of(name: str) -> str:
    return next((group for group, pattern in GROUPS if re.search(pattern, name, re.IGNORECASE)), OTHER)


def profiled(work: Callable[[], Any], device: str) -> Profile:
    """Of work that has been done before, so that nothing is made or compiled now."""
    wall = 1000 * report.seconds_of(work, device)
    if device == "cuda":
        events = gpu_events(work)
        return summed(events, wall, idle_between(events))
    return summed(cpu_events(work), wall, None)


def gpu_events(work: Callable[[], Any]) -> list[Event]:
    """Kernels, copies and fills, by the trace: ranges that someone named are no work of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        once_before = schedule(wait=0, warmup=1, active=1, repeat=1)
        with profile(
            activities=[ProfilerActivity.CUDA],
            schedule=once_before,
            on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
        ) as watch:
            for _ in range(2):
                report.seconds_of(work, "cuda")
                watch.step()
        return events_of(json.loads(path.read_text())["traceEvents"])


def events_of(trace: Iterable[dict[str, Any]]) -> list[Event]:
    """Of a trace in Chrome's format, whose times are microseconds."""
    return [
        Event(one["name"], one["ts"] / 1000, one["dur"] / 1000)
        for one in trace
        if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and "dur" in one
    ]


def cpu_events(work: Callable[[], Any]) -> list[Event]:
    """torch's operations, each without those that it called."""
    with profile(activities=[ProfilerActivity.CPU]) as watch:
        work()
    return [Event(one.key, 0.0, one.self_cpu_time_total / 1000, one.count) for one in watch.key_averages()]


def idle_between(events: list[Event]) -> float:
    """Milliseconds between the first start and the last end in which nothing ran, on any stream."""
    idle, busy_until = 0.0, None
    for event in sorted(events, key=lambda one: one.start):
        if busy_until is not None:
            idle += max(0.0, event.start - busy_until)
        busy_until = max(busy_until or 0.0, event.start + event.duration)
    return idle


def summed(events: list[Event], wall: float, idle: float | None) -> Profile:
    groups = parts_by(events, lambda event: group_of(event.name))
    names = parts_by(events, lambda event: event.name)
    return Profile(wall, sum(one.milliseconds for one in groups), idle, groups, names)


def parts_by(events: list[Event], key: Callable[[Event], str]) -> list[Part]:
    """The largest first."""
    parts: dict[str, Part] = {}
    for event in events:
        part = parts.setdefault(key(event), Part(key(event)))
        part.milliseconds += event.duration
        part.calls += event.calls
    whole = sum(one.milliseconds for one in parts.values()) or 1.0
    for part in parts.values():
        part.share = part.milliseconds / whole
    return sorted(parts.values(), key=lambda one: -one.milliseconds)


def print_profile(found: Profile, title: str) -> None:
    idle = "" if found.idle_ms is None else f", {found.idle_ms:.2f} idle between kernels"
    told = f"{title}\n{found.wall_ms:.2f} ms without the profiler; under it {found.busy_ms:.2f} of work{idle}"
    report.print_table(told, ("group", "ms", "share", "kernels"), map(row_of, found.groups))
    report.print_table(
        "the longest", ("kernel", "ms", "share", "calls"), map(row_of, found.kernels[:LONGEST])
    )


def row_of(part: Part) -> tuple[str, ...]:
    return part.name[:NAME_WIDTH], f"{part.milliseconds:.3f}", f"{part.share:.1%}", f"{part.calls:,}"
