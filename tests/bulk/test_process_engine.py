"""An engine in a process of its own: the same translations, calls within a stream, and its failures."""

import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

import manyheads as mh
from manyheads.bulk import process_engine
from manyheads.bulk.process_engine import ProcessEngine, start_engine_process
from manyheads.cli import app
from manyheads.config import EOS_ID, DecodingConfig
from manyheads.errors import BulkJobError, CheckpointError, ResourceError
from manyheads.inference.engine import Engine
from manyheads.inference.engine_messages import decode_request, encode_request
from manyheads.loading import load_for_engine
from manyheads.named_models.resolution import BOX
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
from support.untrained_model import save_untrained_model

MODEL = BOX / "en-de"
WORDS = ["tea", "water", "bread", "milk", "a book", "some time"]
LINES = [
    f"We want {WORDS[n % len(WORDS)]}. I see {n} {'very ' * (n % 9)}old houses." if n % 7 else ""
    for n in range(400)
] + ["ha " * 40, "blah " * 25, "very " * 50, "XQJ WVZ KPT", "See https://test.example/a?b={name}."]
GREEDY = DecodingConfig(beam=1)


def create_requests(count: int) -> list[Request]:
    sources = [[5 + n % 50, 7, 9 + n % 30, EOS_ID] for n in range(count)]
    return [Request(source, DecodingConstraints(12 + n % 5)) for n, source in enumerate(sources)]


def list_tokens(results: Iterable[tuple[int, list[Hypothesis]]]) -> dict[int, list[list[int]]]:
    return {index: [own.tokens for own in hypotheses] for index, hypotheses in results}


@pytest.fixture(scope="module")
def engine() -> Iterator[ProcessEngine]:
    with start_engine_process(MODEL, "torch", "cpu") as own:
        yield own


@pytest.fixture(scope="module")
def here() -> Engine:
    return mh.load(MODEL, engine="torch", device="cpu").engine


@pytest.mark.parametrize("read_ahead", [None, 40])
def test_translations_are_those_of_one_process(engine: ProcessEngine, read_ahead: int | None) -> None:
    apart = list(load_for_engine(MODEL, engine).stream(LINES, read_ahead, scores="total", beam=1))
    whole = mh.load(MODEL, engine="torch", device="cpu").translate(LINES, scores="total", beam=1)
    assert [own.text for own in apart] == [own.text for own in whole]
    for own, other in zip(apart, whole, strict=True):  # batches of other sizes
        assert own.confidence == (other.confidence and pytest.approx(other.confidence, abs=0.02))
    assert [own.notes for own in apart] == [own.notes for own in whole]
    assert any("second try" in own.notes for own in whole), "no list is decoded beside the stream"


def test_lists_are_decoded_within_a_stream(engine: ProcessEngine, here: Engine) -> None:
    """Second tries are: the stream goes on where it was."""
    stream = engine.decode(iter(create_requests(700)), GREEDY, window=300)
    first = next(stream)
    between = list(engine.decode(create_requests(5), DecodingConfig(beam=3)))
    scores = engine.score([[5, 7, EOS_ID]], [[6, 8]])
    whole = here.decode(create_requests(700), GREEDY)
    assert list_tokens([first, *stream]) == list_tokens(whole)
    assert list_tokens(between) == list_tokens(here.decode(create_requests(5), DecodingConfig(beam=3)))
    assert scores == [pytest.approx(here.score([[5, 7, EOS_ID]], [[6, 8]])[0])]


def test_no_more_requests_are_read_than_the_window_allows(engine: ProcessEngine) -> None:
    num_read = num_returned = most = 0

    def read() -> Iterator[Request]:
        nonlocal num_read, most
        for request in create_requests(2000):
            num_read += 1
            most = max(most, num_read - num_returned)
            yield request

    for _ in engine.decode(read(), GREEDY, window=300):
        num_returned += 1
    assert num_returned == 2000
    assert most <= 300 + process_engine.SENT_REQUESTS


def test_constraints_cross_the_pipe(engine: ProcessEngine, here: Engine) -> None:
    own = DecodingConstraints(20, min_length=3, prefix=(11, 12), forbidden_phrases=((13,),))
    requests = [Request([5, 6, EOS_ID], own)]
    (apart,), (whole,) = engine.decode(requests, GREEDY), here.decode(requests, GREEDY)
    assert list_tokens([apart]) == list_tokens([whole])
    assert apart[1][0].score == pytest.approx(whole[1][0].score)
    assert apart[1][0].tokens[:2] == [11, 12]


def test_every_field_of_a_request_is_sent() -> None:
    own = DecodingConstraints(
        20,
        min_length=3,
        prefix=(11, 12),
        required_phrases=((16, 17),),
        forbidden_phrases=((13,), (14, 15)),
        whole_word_phrases=((16, 17),),
        word_start_ids=frozenset({3, 9}),
        seed=7,
    )
    plain = DecodingConstraints(20)
    same = [field.name for field in fields(own) if getattr(own, field.name) == getattr(plain, field.name)]
    assert same == ["max_length"], "a new field is missing here"
    request = Request([5, EOS_ID], own)
    assert decode_request(*json.loads(json.dumps(encode_request(request)))) == request


def test_samples_and_alignments_are_those_of_one_process(engine: ProcessEngine, here: Engine) -> None:
    sampling = DecodingConfig(temperature=1.0)
    requests = [Request([5, 6 + n, EOS_ID], DecodingConstraints(12, seed=n)) for n in range(5)]
    assert list_tokens(engine.decode(requests, sampling)) == list_tokens(here.decode(requests, sampling))
    sources, targets = [[5, 7, EOS_ID], [6, EOS_ID]], [[6, 8, 9], []]
    for apart, whole in zip(engine.align(sources, targets), here.align(sources, targets), strict=True):
        assert apart == pytest.approx(whole.numpy(), abs=1e-6)


def test_a_missing_model_is_refused_at_once(tmp_path: Path) -> None:
    with (
        pytest.raises(CheckpointError, match="missing"),
        start_engine_process(tmp_path / "missing", "torch", "cpu"),
    ):
        raise AssertionError("started")


def test_what_fails_while_the_model_loads_is_raised_when_it_is_used(tmp_path: Path) -> None:
    model = save_untrained_model(tmp_path / "model")
    (model / "weights.safetensors").write_bytes(b"0" * 100)
    with start_engine_process(model, "torch", "cpu") as engine:
        translator = load_for_engine(model, engine)
        with pytest.raises(BulkJobError, match="weights") as caught:
            list(translator.stream(LINES))
    assert caught.value.exit_code == 3


def test_a_request_that_the_engine_refuses_ends_the_process() -> None:
    bad = Request([5, 10**6, EOS_ID], DecodingConstraints(10))  # no such piece
    with start_engine_process(MODEL, "torch", "cpu") as engine:
        for _ in range(3):  # every later call fails in the same way
            with pytest.raises(BulkJobError, match="the vocabulary has"):
                list(engine.decode([bad], GREEDY))
        assert engine._link.process.wait(30) == 1, "not aborted by the thread that reads"


def test_a_process_that_is_killed_raises_our_error() -> None:
    with start_engine_process(MODEL, "torch", "cpu") as engine:
        stream = engine.decode(iter(create_requests(5000)), GREEDY, window=300)
        next(stream)
        os.kill(engine._link.process.pid, signal.SIGKILL)
        with pytest.raises(ResourceError, match="SIGKILL"):
            list(stream)


def test_the_process_ends_with_the_block(tmp_path: Path) -> None:
    with start_engine_process(MODEL, "torch", "cpu") as engine:
        process = engine._link.process
        assert process.poll() is None
    assert process.poll() is not None


def test_the_process_ends_when_its_input_closes() -> None:
    link = process_engine.EngineProcessLink()
    assert link.process.stdin is not None
    link.process.stdin.close()
    deadline = time.monotonic() + 30
    while link.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert link.process.poll() == 0
    link.close()


@pytest.mark.parametrize(
    ("options", "min_bytes", "is_apart"),
    [
        ([], 100, True),
        ([], 10**6, False),  # a small file
        (["--json"], 100, False),
        (["--glossary", "terms.tsv"], 100, False),
        (["--ensemble", str(MODEL)], 100, False),
    ],
)
def test_the_command_gives_the_engine_a_process_for_large_files(
    options: list[str], min_bytes: int, is_apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.en"
    text.write_text("".join(f"{line}\n" for line in LINES[:60]), encoding="utf-8")
    (tmp_path / "terms.tsv").write_text("house\tHaus\n")
    monkeypatch.chdir(tmp_path)
    arguments = ["translate", str(MODEL), str(text), "--beam", "1", "--engine", "torch", *options]
    here = CliRunner().invoke(app, [*arguments, "--device", "cpu"])
    started = []

    def start(folder: Path, engine: str, device: str | None) -> object:
        started.append((folder, engine, device))
        return start_engine_process(folder, engine, "cpu")

    monkeypatch.setattr(process_engine, "start_engine_process", start)
    monkeypatch.setattr("manyheads.cuda.driver.count_gpus", lambda: 1)
    monkeypatch.setattr("manyheads.cli.bulk.MIN_SHARED_BYTES", min_bytes)
    done = CliRunner().invoke(app, arguments)
    assert (here.exit_code, done.exit_code) == (0, 0), done.output
    assert started == ([(MODEL, "torch", None)] if is_apart else [])
    assert (done.stdout, done.stderr) == (here.stdout, here.stderr)
