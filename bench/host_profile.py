"""Where the host's time goes in a command: wall and CPU seconds of its threads by stage.

    python bench/host_profile.py OUT.json translate run/model test.en --beam 4

Runs a command of manyheads in this process. A thread looks at the stacks of all others every few
milliseconds, and gives the time since the last look, and the CPU time that each thread has used since, to the
stage that the thread is in. The stage is that of the innermost function of manyheads; a line that reads a
result from the GPU, or waits for it, is a stage of its own.
"""

import json
import linecache
import re
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

INTERVAL = 0.004
WAITING, IDLE, STARTUP = "waiting for the device", "idle", "start-up and imports"
READS_DEVICE = re.compile(
    r"\.(tolist|item|cpu|numpy|synchronize|wait_event|result|nonzero)\(|\bsynchronize\("
)
STAGES = {  # the first match of the innermost frames of manyheads: file, function, stage
    ("cli/text_io", "read_lines"): "reading",
    ("cli/", "print_translations"): "writing",
    ("text/segmentation", ""): "segmentation",
    ("", "split_sentences"): "segmentation",
    ("text/subwords", "encode"): "encoding",
    ("text/subwords", "normalize"): "encoding",
    ("text/subwords", "decode"): "decoding",
    ("text/subwords", ""): "encoding",
    ("loading", ""): STARTUP,
    ("checkpoint/", ""): STARTUP,
    ("config/", ""): STARTUP,
    ("inference/", ""): "engine, host",
    ("search/", ""): "engine, host",
    ("model/", ""): "engine, host",
    ("ops/", ""): "engine, host",
    ("cuda/", ""): "engine, host",
    ("export/", ""): STARTUP,
    ("translator", ""): "translator",
    ("translation", ""): "translator",
    ("glossary", ""): "translator",
    ("progress", ""): "progress",
    ("cli/", ""): "command",
}


def classify(frame: FrameType | None) -> str:
    """Return the stage of a stack."""
    innermost = frame
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib"):
            return STARTUP
        _, _, name = code.co_filename.rpartition("/manyheads/")
        if name != code.co_filename and name.endswith(".py"):
            return classify_frame(name, code.co_name, frame, innermost)
        frame = frame.f_back
    return IDLE if innermost is not None and is_waiting(innermost) else "other"


def classify_frame(name: str, function: str, frame: FrameType, innermost: FrameType | None) -> str:
    """Return the stage of the innermost frame of manyheads; `innermost` may be of another package."""
    if innermost is not None and innermost is not frame and is_waiting(innermost):
        return IDLE
    stage = next(
        (stage for (file, part), stage in STAGES.items() if name.startswith(file) and part in function),
        "other",
    )
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return WAITING if stage == "engine, host" and READS_DEVICE.search(line) else stage


def is_waiting(frame: FrameType) -> bool:
    file, function = frame.f_code.co_filename, frame.f_code.co_name
    waits = ("wait", "acquire", "get", "put", "result", "_wait_for_tstate_lock", "join", "select", "_worker")
    return file.endswith(("/threading.py", "/queue.py", "/_base.py", "/thread.py", "/selectors.py")) and (
        function in waits
    )


class Sampler(threading.Thread):
    """Samples the other threads until it is stopped."""

    def __init__(self) -> None:
        super().__init__(name="sampler", daemon=True)
        self.ended = threading.Event()
        self.wall: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))  # thread, stage
        self.cpu: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.last_cpu: dict[int, float] = {}
        self.lines: dict[str, float] = defaultdict(float)  # CPU seconds of the main thread by line
        self.samples = 0

    def run(self) -> None:
        last = time.perf_counter()
        while not self.ended.wait(INTERVAL):
            now = time.perf_counter()
            self.sample(now - last)
            last = now

    def sample(self, seconds: float) -> None:
        self.samples += 1
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if thread is self or thread.ident is None:
                continue
            frame, name = frames.get(thread.ident), re.sub(r"[-_ ]?\d+( \(.*\))?$", "", thread.name)
            stage = classify(frame)
            used = self.read_cpu(thread.native_id)
            self.wall[name][stage] += seconds
            self.cpu[name][stage] += used
            if thread is threading.main_thread() and frame is not None:
                self.lines[locate(frame)] += used

    def read_cpu(self, native_id: int | None) -> float:
        """Return the CPU seconds of a thread since the last look, 0 where the system does not say."""
        try:
            nanoseconds = int(Path(f"/proc/self/task/{native_id}/schedstat").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return 0.0
        used = nanoseconds / 1e9
        before, self.last_cpu[native_id or 0] = self.last_cpu.get(native_id or 0, 0.0), used
        return max(0.0, used - before)

    def report(self) -> dict[str, object]:
        threads = {
            name: {"wall": dict(stages), "cpu": dict(self.cpu[name])} for name, stages in self.wall.items()
        }
        top = sorted(self.lines.items(), key=lambda item: -item[1])[:15]
        return {"samples": self.samples, "threads": threads, "main_thread_lines": dict(top)}


def locate(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.rpartition('/manyheads/')[2]}:{frame.f_lineno} {frame.f_code.co_name}"


def main() -> None:
    out, sys.argv = Path(sys.argv[1]), ["manyheads", *sys.argv[2:]]
    sampler = Sampler()
    sampler.start()
    start = time.perf_counter()
    try:
        from manyheads.cli import main as run_command

        run_command()
    finally:
        sampler.ended.set()
        sampler.join()
        times = {"seconds": time.perf_counter() - start, "process_cpu": time.process_time()}
        out.write_text(json.dumps({**times, **sampler.report()}, indent=1))


if __name__ == "__main__":
    main()
