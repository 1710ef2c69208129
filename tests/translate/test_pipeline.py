"""The pipeline around an engine: order, bounds, errors and its end, with an engine that needs no model."""

import copy
import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads.bulk.interpreter_settings import stream_settings
from manyheads.config import DecodingConfig, SubwordConfig
from manyheads.inference.engine import Capabilities
from manyheads.pipeline import background
from manyheads.pipeline.preparation import derive_seed
from manyheads.search.options import Hypothesis, Request
from manyheads.text.segmentation import split_text
from manyheads.text.subwords import SubwordPair, SubwordTokenizer, normalize
from manyheads.translation import Translation
from manyheads.translator import choose_encoding_threads
from support.untrained_model import TEXTS, save_untrained_model

SUBWORDS = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=320))


class ShufflingEngine:
    """Returns the source as the translation, in random order within a window, or fails."""

    name, objective, read_ahead = "shuffling", "nothing", 64
    capabilities = Capabilities(True, True, True, False, False, True, ("cpu",), None)

    def __init__(self, fails_after: int | None = None) -> None:
        self.chance, self.fails_after = random.Random(5), fails_after
        self.requests: list[Request] = []
        self.max_read = 0

    def require(self, feature: str) -> None: ...

    def decode(
        self,
        requests: Iterable[Request],
        config: DecodingConfig,
        *,
        scores: str = "total",
        window: int | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        stream, first = iter(requests), 0
        while waiting := list(islice(stream, window)):
            self.requests += waiting
            for index in self.chance.sample(range(len(waiting)), len(waiting)):
                if self.fails_after is not None and len(self.requests) > self.fails_after:
                    raise ZeroDivisionError("engine")
                ids = waiting[index].source[:-1]
                yield first + index, [Hypothesis(ids, [-1.0] * (len(ids) + 1), -1.0)]
            first += len(waiting)


def make_translator(engine: Any = None, **options: Any) -> mh.Translator:
    pair = SubwordPair(SUBWORDS, SUBWORDS)
    return mh.Translator(engine or ShufflingEngine(), pair, {"source": "en", "target": "ko"}, **options)


def make_lines(count: int, seed: int = 0) -> list[str]:
    """Return lines of which every tenth has no words, and some have two sentences."""
    chance = random.Random(seed)
    words = ["I", "go", "home", "today", "we", "read", "a", "book", "at", "school"]
    lines = []
    for number in range(count):
        line = " ".join(chance.choice(words) for _ in range(chance.randint(1, 12)))
        lines.append(["", "...", " \t"][number % 3] if number % 10 == 4 else f"{line}. We read {number}.")
    return lines


def count_threads() -> int:
    return sum(thread.name.startswith("manyheads") for thread in threading.enumerate())


def wait_for_threads() -> None:
    deadline = time.monotonic() + 10
    while count_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not count_threads()


@pytest.mark.parametrize("read_ahead", [1, 3, 40, None])
@pytest.mark.parametrize("as_list", [False, True])
def test_results_come_in_the_order_of_the_texts(read_ahead: int | None, as_list: bool) -> None:
    texts = make_lines(1500 if read_ahead is None else 150)
    results = list(make_translator().stream(texts if as_list else iter(texts), read_ahead))
    assert [result.source for result in results] == texts
    assert [normalize(result.text) for result in results] == [normalize(text) for text in texts]
    wait_for_threads()


def test_a_long_list_is_translated_like_a_short_one() -> None:
    texts = make_lines(1200)
    translator = make_translator()
    whole = translator.translate(texts)
    assert whole == [translator.translate(text) for text in texts]


@pytest.mark.parametrize("read_ahead", [1, 7, 50])
def test_no_more_texts_are_read_than_may_be_held(read_ahead: int) -> None:
    num_read = num_returned = 0
    excess: list[int] = []

    def source() -> Iterator[str]:
        nonlocal num_read
        for text in make_lines(400):
            num_read += 1
            excess.append(num_read - num_returned)
            yield text

    for _ in make_translator().stream(source(), read_ahead):
        num_returned += 1
    assert num_returned == 400
    assert max(excess) <= 2 * read_ahead, "a batch is being returned while as many texts are read"


def test_characters_that_are_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MAX_HELD_CHARACTERS", 200)
    num_read = 0

    def source() -> Iterator[str]:
        nonlocal num_read
        for _ in range(50):
            num_read += 1
            yield "we read a book at school today " * 3

    stream = make_translator().stream(source(), 50)
    next(stream)
    time.sleep(0.05)
    assert num_read <= 6
    assert len(list(stream)) == 49


def test_an_error_of_the_reader_comes_after_the_results_before_it() -> None:
    def source() -> Iterator[str]:
        yield from make_lines(100)
        raise LookupError("reader")

    results: list[Translation] = []
    with pytest.raises(LookupError, match="reader"):
        results.extend(make_translator().stream(source()))
    assert [result.source for result in results] == make_lines(100)
    wait_for_threads()


def test_errors_of_the_engine_and_of_the_preparation_reach_the_caller() -> None:
    translator = make_translator(ShufflingEngine(fails_after=70))
    with pytest.raises(ZeroDivisionError, match="engine"):
        list(translator.stream(iter(make_lines(500))))
    wait_for_threads()
    with pytest.raises((AttributeError, TypeError)):
        list(make_translator().stream(iter(["a", 3])))  # type: ignore[list-item]
    wait_for_threads()


def test_closing_a_stream_ends_its_threads() -> None:
    stream = make_translator().stream(iter(make_lines(5000)), 20)
    assert count_threads() == 0, "nothing runs before the first result is wanted"
    next(stream)
    assert count_threads() > 0
    stream.close()  # type: ignore[attr-defined]
    wait_for_threads()


def test_a_stream_whose_reader_is_blocked_can_be_closed() -> None:
    release = threading.Event()

    def source() -> Iterator[str]:
        yield "I go home."
        release.wait(30)

    stream = make_translator().stream(source())
    assert next(stream).source == "I go home."
    start = time.monotonic()
    stream.close()  # type: ignore[attr-defined]
    assert time.monotonic() - start < 10
    release.set()
    wait_for_threads()


@pytest.mark.parametrize("read_ahead", [1, None])
@pytest.mark.parametrize("blank", ["", "I go home."])
def test_a_text_that_arrives_alone_is_returned_before_the_next(read_ahead: int | None, blank: str) -> None:
    """The source waits for each answer, as a program that talks to the command through pipes does."""
    answers: list[str] = []
    answered = threading.Semaphore(0)

    def source() -> Iterator[str]:
        for number in range(5):
            yield blank and f"{blank} {number}"
            assert answered.acquire(timeout=20)

    for result in make_translator().stream(source(), read_ahead):
        answers.append(result.source)
        answered.release()
    assert len(answers) == 5


def test_equal_constraints_are_shared_and_seeds_belong_to_sampling() -> None:
    texts = ["we read a book", "a book we read", "we read a book"]
    plain, sampling = ShufflingEngine(), ShufflingEngine()
    make_translator(plain).translate(texts)
    assert len({id(request.constraints) for request in plain.requests}) == 1
    make_translator(sampling).translate(texts, temperature=1.0, seed=3)
    seeds = [request.constraints.seed for request in sampling.requests]
    assert seeds == [derive_seed(3, request.source) for request in sampling.requests]
    assert len(set(seeds)) == 2
    assert derive_seed(3, [5, 6, 2]) == 57944556177689367, "the samples of a seed stay the same"


def test_every_sentence_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode: Callable[..., list[list[int]]] = SubwordTokenizer.encode_sentences

    def record(self: SubwordTokenizer, texts: list[str], threads: int) -> list[list[int]]:
        encoded.extend(texts)
        return encode(self, texts, threads)

    monkeypatch.setattr(SubwordTokenizer, "encode_sentences", record)
    monkeypatch.delattr(SubwordTokenizer, "encode_as_pieces")
    texts = make_lines(300)
    translator = make_translator()
    monkeypatch.setattr(SubwordTokenizer, "encode", lambda self, text: pytest.fail(text) if text else [])
    assert len(list(translator.stream(iter(texts)))) == 300
    parts = [segment for text in texts for segment in split_text(text, "en") if segment.is_translatable]
    assert encoded == [segment.text for segment in parts]


def test_pieces_are_looked_up_when_they_are_read() -> None:
    translation = make_translator().translate("I go home. We read.")
    assert not isinstance(translation.__dict__["tokens"], list)
    expected = SUBWORDS.encode_as_pieces("I go home.") + SUBWORDS.encode_as_pieces("We read.")
    assert translation.tokens == translation.source_tokens == expected
    assert isinstance(translation.__dict__["tokens"], list)
    assert translation.tokens is translation.tokens


def test_a_translation_is_a_dataclass_like_any_other() -> None:
    translation = make_translator().translate("I go home.")
    assert translation.to_dict() == asdict(translation)
    assert list(translation.to_dict()) == [entry.name for entry in fields(translation)]
    assert copy.deepcopy(make_translator().translate("I go home.")) == translation
    assert Translation("a", "b").tokens == []
    assert Translation("a", "b", tokens=["c"]).to_dict()["tokens"] == ["c"]
    json.dumps(translation.to_dict())


@pytest.mark.parametrize("sentences", [[[]], [[5, 6], [], [1, 7, 2]], []])
def test_many_sentences_are_detokenized_like_single_ones(sentences: list[list[int]]) -> None:
    assert SUBWORDS.decode_sentences(sentences) == [SUBWORDS.decode(ids) for ids in sentences]
    with pytest.raises(mh.DataError, match="the vocabulary has"):
        SUBWORDS.decode_sentences([*sentences, [320]])


def test_many_sentences_are_encoded_like_single_ones() -> None:
    texts = ["", " a  b\u2581c ", "e\u0301te\u0301 \ud800", "I go home.", "\x1f tab\tand\x0bmore"]
    expected = [[*SUBWORDS.encode(text), 2] for text in texts]
    assert SUBWORDS.encode_sentences(texts) == expected
    assert SUBWORDS.encode_sentences(texts * 50, threads=4) == expected * 50


@pytest.mark.parametrize(("runs_on_gpu", "cores", "expected"), [(True, 16, 4), (True, 2, 1), (False, 16, 1)])
def test_subwords_are_encoded_by_several_threads_beside_a_gpu(
    runs_on_gpu: bool, cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyheads.translator.count_cpus", lambda: cores)
    engine = ShufflingEngine()
    engine.runs_on_gpu = runs_on_gpu  # type: ignore[attr-defined]
    assert choose_encoding_threads(engine) == expected
    assert choose_encoding_threads(ShufflingEngine()) == 1


# ---- the command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained_model(tmp_path_factory.mktemp("pipeline") / "model")


def start_command(folder: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "manyheads", "translate", str(folder), "--device", "cpu", "--beam", "1"]
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *arguments], stdin=pipe, stdout=pipe, stderr=pipe)


def test_each_line_of_a_conversation_is_answered_and_an_interrupt_ends_it(folder: Path) -> None:
    with start_command(folder) as process:
        check_conversation(process)


def check_conversation(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin
    assert process.stdout
    assert process.stderr
    for line in (b"I go home.\n", b"\n", b"We read a book.\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert b"Traceback" not in process.stderr.read()


def test_an_interrupt_that_comes_before_the_wait_for_text_is_not_missed() -> None:
    # Python handles a signal when the main thread wakes up: it must never wait for text without a limit.
    is_readable, timeouts = threading.Event(), []

    def block_then_read() -> Iterator[str]:
        is_readable.wait()
        yield "I go home."

    preparation = background.BackgroundPreparation(block_then_read(), lambda texts: [None], 4)  # type: ignore[list-item]
    wait, caller = preparation.changed.wait, threading.current_thread()

    def record_wait(timeout: float | None = None) -> bool:
        if threading.current_thread() is caller:
            timeouts.append(timeout)
            if timeout is None or len(timeouts) == 3:
                is_readable.set()
        return wait(timeout)

    preparation.changed.wait = record_wait  # type: ignore[method-assign]
    preparation.start()
    assert preparation.take(is_urgent=False) == [None]
    preparation.stop()
    assert len(timeouts) >= 3
    assert all(timeout is not None and timeout <= 1 for timeout in timeouts)


def test_a_reader_that_closes_the_pipe_ends_the_command(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n".join(make_lines(20_000)), encoding="utf-8")
    with start_command(folder, os.fspath(tmp_path / "text")) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.close()
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) in (0, 1)
        assert process.stderr.read() == b""


def test_interpreter_settings_end_with_the_stream() -> None:
    before = gc.get_threshold(), sys.getswitchinterval()
    with stream_settings():
        assert sys.getswitchinterval() < before[1]
        assert gc.get_threshold()[0] > before[0][0]
    assert (gc.get_threshold(), sys.getswitchinterval()) == before
