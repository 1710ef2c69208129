"""Profiles: the kernels that the device ran, summed into named groups."""

import json
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, schedule

import report

# A kernel belongs to the first group whose pattern matches its name. Names of fused kernels of torch.compile
# list all their operations, so the most specific groups come first.
GROUPS = (
    ("attention", r"attend|flash|fmha|sdpa|attention"),
    ("loss", r"cross_entropy|nll_?loss|softmax|logsumexp"),
    ("optimizer", r"adam|multi_tensor|foreach|lpnorm"),
    (
        "embedding",
        r"embed|index_?select|indexselect|index_put|indexing_backward|radix|sort|segment|krn_partial",
    ),
    ("norm, dropout, residual", r"add_norm|layer_?norm|gammabeta|dropout|masked_scale|bernoulli"),
    (
        "matrix products",
        r"nvjet|gemm|gemv|matmul_relu|cutlass|xmma|splitk|cublas|triton_tem"
        r"|aten::(addmm|mm|bmm|baddbmm|linear|matmul)",
    ),
    ("bias gradients", r"linear_backward|sum_stripes"),
    ("activation", r"relu|threshold|gelu|silu"),
    ("search", r"topk|gathertopk|beam_|argmax|arg_?max|scatter|gather"),
    ("copies", r"memcpy|memset|copy|cat_?array|aten::(cat|fill_|zero_|clone)|fillfunctor"),
    ("elementwise and sums", r"elementwise|reduce|triton_(poi|red|per)_|aten::(add|mul|sum|div)_?$"),
)
OTHER = "other"
MAX_KERNELS_SHOWN = 15  # the JSON has all
NAME_WIDTH = 90


@dataclass
class KernelTime:
    """The time of the kernels of one name or group."""

    name: str
    milliseconds: float = 0.0
    calls: int = 0
    share: float = 0.0  # of all kernels


@dataclass(frozen=True)
class Profile:
    """The profile of a call. Idle time is that between kernels; it is unknown on a CPU."""

    wall_ms: float  # without the profiler
    busy_ms: float
    idle_ms: float | None
    groups: list[KernelTime]
    kernels: list[KernelTime]  # the longest first

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Event:
    """A kernel or copy on the device, in milliseconds."""

    name: str
    start: float
    duration: float
    calls: int = 1


def classify_kernel(name: str) -> str:
    return next((group for group, pattern in GROUPS if re.search(pattern, name, re.IGNORECASE)), OTHER)


def profile_call(call: Callable[[], Any], device: str) -> Profile:
    """Profile a call that has run before, so that nothing is compiled now."""
    wall_ms = 1000 * report.time_call(call, device)
    if device == "cuda":
        events = trace_gpu(call)
        return summarize(events, wall_ms, measure_idle(events))
    return summarize(trace_cpu(call), wall_ms, None)


def trace_gpu(call: Callable[[], Any]) -> list[Event]:
    """Return the kernels, copies and fills of a trace; named ranges are not included."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler_schedule = schedule(wait=0, warmup=1, active=1, repeat=1)
        with profile(
            activities=[ProfilerActivity.CUDA],
            schedule=profiler_schedule,
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        ) as profiler:
            for _ in range(2):
                report.time_call(call, "cuda")
                profiler.step()
        return parse_trace(json.loads(path.read_text())["traceEvents"])


def parse_trace(trace: Iterable[dict[str, Any]]) -> list[Event]:
    """Parse a trace in Chrome's format, in microseconds."""
    return [
        Event(event["name"], event["ts"] / 1000, event["dur"] / 1000)
        for event in trace
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and "dur" in event
    ]


def trace_cpu(call: Callable[[], Any]) -> list[Event]:
    """Return the self time of torch operations."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    return [
        Event(entry.key, 0.0, entry.self_cpu_time_total / 1000, entry.count)
        for entry in profiler.key_averages()
    ]


def measure_idle(events: list[Event]) -> float:
    """Return the milliseconds between the first start and the last end in which no stream was busy."""
    idle, busy_until = 0.0, None
    for event in sorted(events, key=lambda event: event.start):
        if busy_until is not None:
            idle += max(0.0, event.start - busy_until)
        busy_until = max(busy_until or 0.0, event.start + event.duration)
    return idle


def summarize(events: list[Event], wall: float, idle: float | None) -> Profile:
    groups = group_events(events, lambda event: classify_kernel(event.name))
    names = group_events(events, lambda event: event.name)
    return Profile(wall, sum(group.milliseconds for group in groups), idle, groups, names)


def group_events(events: list[Event], key: Callable[[Event], str]) -> list[KernelTime]:
    """Sum events by key, the largest first."""
    parts: dict[str, KernelTime] = {}
    for event in events:
        part = parts.setdefault(key(event), KernelTime(key(event)))
        part.milliseconds += event.duration
        part.calls += event.calls
    total = sum(part.milliseconds for part in parts.values()) or 1.0
    for part in parts.values():
        part.share = part.milliseconds / total
    return sorted(parts.values(), key=lambda part: -part.milliseconds)


def print_profile(profile: Profile, title: str) -> None:
    idle = "" if profile.idle_ms is None else f", {profile.idle_ms:.2f} idle between kernels"
    times = f"{profile.wall_ms:.2f} ms without the profiler; with it {profile.busy_ms:.2f} busy{idle}"
    report.print_table(
        f"{title}\n{times}", ("group", "ms", "share", "kernels"), map(format_row, profile.groups)
    )
    report.print_table(
        "longest kernels",
        ("kernel", "ms", "share", "calls"),
        map(format_row, profile.kernels[:MAX_KERNELS_SHOWN]),
    )


def format_row(part: KernelTime) -> tuple[str, ...]:
    return part.name[:NAME_WIDTH], f"{part.milliseconds:.3f}", f"{part.share:.1%}", f"{part.calls:,}"
