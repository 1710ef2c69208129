"""The log of a run, TensorBoard, and what a terminal shows."""

import errno
import io
import sys
from pathlib import Path

import pytest

import manyheads as mh
from manyheads.progress import ProgressBars, create_progress
from manyheads.train.log import RunLog, read_log
from manyheads.train.metrics import format_metrics
from manyheads.train.run import train
from manyheads.train.run_summary import format_summary
from support.small_run import make_config, read_losses

NOT_INSTALLED = "TensorBoard is not installed"
EVENT_MODULE = "tensorboard.compat.proto.event_pb2"


def test_tensorboard_has_the_numbers_of_the_log(finished_run: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(finished_run / "tensorboard"))
    events.Reload()
    drawn = [event.value for event in events.Scalars("train/loss")]
    assert drawn == pytest.approx(read_losses(finished_run), rel=1e-6)
    assert [event.step for event in events.Scalars("valid/bleu")] == [4, 8, 12]


def test_tensorboard_is_silent_where_it_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    messages: list[str] = []
    log = RunLog(tmp_path, 0, messages.append)
    log.write("train", 1, {"loss": 1.0})
    log.close()
    assert messages == []
    assert list((tmp_path / "tensorboard").iterdir())


def test_a_run_without_tensorboard_says_so_once_and_keeps_its_log(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        sys.modules, "tensorboard.compat.proto.event_pb2", None
    )  # importing it is an ImportError
    assert train(make_config(data, steps=3), tmp_path / "run", device="cpu") == "steps"
    assert capsys.readouterr().err.count(NOT_INSTALLED) == 1
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert len(read_losses(tmp_path / "run")) == 3


def test_a_rewound_log_does_not_repeat_that_tensorboard_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, EVENT_MODULE, None)
    messages: list[str] = []
    log = RunLog(tmp_path, 0, messages.append)
    for step in (1, 2):
        log.write("train", step, {"loss": 1.0})
    log.rewind(1)
    log.write("train", 2, {"loss": float("inf")})
    log.close()
    assert len(messages) == 1
    assert messages[0].startswith(NOT_INSTALLED)
    assert "[tensorboard]" in messages[0]
    assert [entry["loss"] for entry in read_log(tmp_path / "log.jsonl")] == [1.0, None]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_of_eighty_columns_shows_every_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    metrics = {"loss": 3.2, "perplexity": 9.9, "learning_rate": 7e-4, "tokens_per_second": 6e5}
    metrics |= {"mfu": 0.15, "bleu": 26.4, "seconds_left": 75}
    with create_progress(terminal, "steps") as console:
        assert isinstance(console, ProgressBars)
        console.update("step", 120, 200)
        console.status("step", 120, 200, format_metrics(metrics))
        console.message("valid at step 100")
    text = " ".join(terminal.getvalue().split())
    expected = "120/200", "loss 3.200", "perplexity 9.90", "lr 7.00e-04", "600,000 tokens/s"
    for part in (*expected, "MFU 15%", "BLEU 26.40", "0:01:15 left", "valid at step 100"):
        assert part in text


def test_lines_show_the_metrics_of_a_step_and_no_progress() -> None:
    stream = io.StringIO()
    with create_progress(stream, "steps") as console:
        console.update("step", 1_000, 2_000)
        console.status("step", 1_000, 2_000, format_metrics({"loss": 3.2}))
        console.message("valid at step 1,000")
    assert stream.getvalue() == "step 1,000 of 2,000  loss 3.200\nvalid at step 1,000\n"


def test_a_full_disk_under_the_log_is_reported_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullFile(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    log = RunLog(tmp_path, 0, lambda message: None)
    log.close()
    monkeypatch.setattr(log, "file", FullFile())
    with pytest.raises(mh.ResourceError, match=r"log\.jsonl: the disk is full; about \d+ bytes"):
        log.write("train", 1, {"loss": 1.0})


@pytest.mark.parametrize(
    "line",
    [
        "5",
        "[]",
        "null",
        "{}",
        '{"event": "train"}',
        '{"event": 5, "step": 1}',
        '{"event": "train", "step": "1"}',
        '{"event": "train", "step": -1}',
        '{"event": "train", "step": true}',
        '{"event": "train", "step": 1, "loss": "low"}',
        '{"event": "valid", "step": 1, "seconds": []}',
        "[" * 100_000,
    ],
)
def test_a_wrong_line_of_the_log_is_an_error_with_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.jsonl").write_text(f'{{"event": "train", "step": 1, "loss": 2}}\n{line}\n')
    for read in (format_summary, lambda run: RunLog(run, 1, print)):
        with pytest.raises(mh.DataError, match=r"log\.jsonl: line 2 is not"):
            read(tmp_path)


def test_entries_without_metrics_are_summarized(tmp_path: Path) -> None:
    lines = [f'{{"event": "{event}", "step": 1}}\n' for event in ("start", "train", "valid", "end")]
    (tmp_path / "log.jsonl").write_text("".join(lines))
    assert "4 log entries" in format_summary(tmp_path)
