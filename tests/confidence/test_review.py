"""The second try, with an engine that answers by a script."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import manyheads as mh
from manyheads import checkpoint, load
from manyheads.confidence.calibration import Examples, fit_calibration
from manyheads.confidence.detectors import find_loop
from manyheads.confidence.features import FEATURES
from manyheads.confidence.source_model import SourceModel
from manyheads.config import EOS_ID, DecodingConfig
from manyheads.inference.engine import Engine
from manyheads.pipeline import review
from manyheads.search.options import Hypothesis, Request
from manyheads.translator import Translator
from support.untrained_model import save_untrained_model

GOOD, OTHER = "나는 오늘 집에 간다.", "오늘 집에 간다."
LOOP = "집에 " * 12
WORDS = ["we", "go", "to", "my", "old", "red", "car", "now"]

Results = Iterator[tuple[int, list[Hypothesis]]]


def make_calibration(vocab_size: int) -> Any:
    """Confidence that rises with log p alone."""
    random = np.random.default_rng(0)
    features = np.zeros((400, len(FEATURES)))
    features[:, 0] = random.normal(size=400) - 1
    labels = (features[:, 0] > -1).astype(np.float64)
    groups = np.where(np.arange(400) % 4 == 0, "shuffled", "held-out")
    return fit_calibration(
        Examples(features, labels, groups), SourceModel.train(np.array([3, 2]), vocab_size), 0.0
    )


class ScriptedEngine:
    """Answers the n-th call with the n-th script: texts with their log p per token, the same for all."""

    name = objective = "scripted"
    read_ahead = 100

    def __init__(self, real: Any, *scripts: list[tuple[str, float]]) -> None:
        self.real, self.scripts = real, list(scripts)
        self.configs: list[DecodingConfig] = []
        self.capabilities = replace(real.engine.capabilities, sampling=True)

    def decode(
        self, requests: Sequence[Request], config: DecodingConfig, **options: Any
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        requests = list(requests)
        script = self.scripts[len(self.configs)]
        self.configs.append(config)
        for index in range(len(requests)):
            yield index, [self.make_hypothesis(text, log_p) for text, log_p in script]

    def make_hypothesis(self, text: str, log_p: float) -> Hypothesis:
        tokens = self.real.subwords.target.encode(text)
        return Hypothesis(tokens, [log_p] * (len(tokens) + 1), log_p)

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        return [[-0.5] * (len(target) + 1) for target in targets]

    def require(self, feature: str) -> None:
        pass


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return load(save_untrained_model(tmp_path_factory.mktemp("review") / "model"), device="cpu")


def make_translator(real: Translator, *scripts: list[tuple[str, float]]) -> tuple[Translator, ScriptedEngine]:
    engine = ScriptedEngine(real, *scripts)
    calibration = make_calibration(len(real.subwords.source))
    languages = {"source": "en", "target": "ko"}
    decoding = DecodingConfig(max_extra_length=60)
    translator = Translator(
        cast(Engine, engine), real.subwords, languages, decoding=decoding, calibration=calibration
    )
    return translator, engine


def test_a_good_translation_is_not_decoded_again(real: Translator) -> None:
    translator, engine = make_translator(real, [(GOOD, -0.1)])
    result = translator.translate("I go home today.")
    assert (result.text, result.notes, len(engine.configs)) == (GOOD, [], 1)
    assert result.confidence is not None
    assert result.confidence > 0.5


def test_a_loop_is_replaced_by_the_second_try(real: Translator) -> None:
    translator, engine = make_translator(real, [(LOOP, -0.1)], [(GOOD, -0.8)])
    result = translator.translate("I go home today.")
    assert result.text == GOOD
    assert result.notes == ["second try"]
    assert engine.configs[1].beam == 8
    assert engine.configs[1].no_repeat_ngram == 3


@pytest.mark.parametrize("count", [5, 1500])  # at once, and as a stream
def test_only_what_failed_is_decoded_again(real: Translator, count: int) -> None:
    translator, engine = make_translator(real)
    bad, good = "We read a book at school.", "I go home today."
    bad_ids = [*real.subwords.source.encode(bad), EOS_ID]
    again, retries = [], []
    engine.read_ahead = 4000

    def decode(requests: Any, config: DecodingConfig, **options: Any) -> Results:
        is_retry = config.no_repeat_ngram is not None
        retries.extend([config] if is_retry else [])
        for index, request in enumerate(requests):
            again.extend([request.source] if is_retry else [])
            text = GOOD if is_retry else LOOP if request.source == bad_ids else OTHER
            yield index, [engine.make_hypothesis(text, -0.5)]

    engine.decode = decode  # type: ignore[method-assign]
    results = translator.translate([good if n % 5 else bad for n in range(count)])
    assert [result.text for result in results] == [OTHER if n % 5 else GOOD for n in range(count)]
    assert [result.notes for result in results] == [[] if n % 5 else ["second try"] for n in range(count)]
    assert again == [bad_ids] * (count // 5)
    assert len(retries) == 1  # together: a GPU decodes few sentences as slowly as many


def test_a_long_stream_decodes_what_failed_in_few_calls(real: Translator) -> None:
    """The engine holds as many sentences as it reads ahead, and the first failed one waits for others."""
    translator, engine = make_translator(real)
    bad, good = "We read a book at school.", "I go home today."
    bad_ids = [*real.subwords.source.encode(bad), EOS_ID]
    retries: list[int] = []

    def decode(requests: Any, config: DecodingConfig, window: int | None = None, **options: Any) -> Results:
        if config.no_repeat_ngram is not None:
            retries.append(len(requests))
            yield from ((index, [engine.make_hypothesis(GOOD, -0.5)]) for index in range(len(requests)))
            return
        stream = enumerate(requests)
        held = deque(islice(stream, window))
        while held:
            index, request = held.popleft()
            yield index, [engine.make_hypothesis(LOOP if request.source == bad_ids else OTHER, -0.5)]
            held.extend(islice(stream, 1))

    engine.read_ahead = 256
    engine.decode = decode  # type: ignore[method-assign]
    results = list(translator.stream(bad if n % 50 == 0 else good for n in range(3000)))
    assert [result.text for result in results] == [OTHER if n % 50 else GOOD for n in range(3000)]
    assert sum(retries) == 60
    assert len(retries) <= 8  # 25 if each waits for no other; on a busy machine sometimes 6


def test_of_the_candidates_the_most_confident_without_fault_is_kept(real: Translator) -> None:
    translator, engine = make_translator(
        real, [(LOOP, -0.1)], [(LOOP, -0.2)], [(OTHER, -2.5), (GOOD, -0.6), (LOOP, -0.05)]
    )
    result = translator.translate("I go home today.")
    assert result.text == GOOD
    assert engine.configs[2].temperature is not None
    assert result.notes == ["second try"]


def test_a_loop_that_no_try_avoids_is_cut(real: Translator) -> None:
    loops = [(LOOP, -0.1)]
    translator, _ = make_translator(real, loops, loops, loops)
    result = translator.translate("I go home today.")
    assert result.text == "집에"
    assert "loop" in result.notes
    assert find_loop(result.tokens, result.source_tokens) is None
    assert len(result.token_scores) == len(result.tokens)


def test_loops_that_are_cut_are_scored_together(real: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    loops = [(LOOP, -0.1)]
    translator, engine = make_translator(real, loops, loops, loops)
    calls, score = [], engine.score

    def count_and_score(*pairs: Any) -> list[list[float]]:
        calls.append(pairs)
        return score(*pairs)

    monkeypatch.setattr(engine, "score", count_and_score)
    results = translator.translate(["I go home today.", "We read a book.", "I go home."])
    assert [result.text for result in results] == ["집에"] * 3
    assert len(calls) == 1


def test_second_tries_can_be_turned_off(real: Translator) -> None:
    translator, engine = make_translator(real, [(LOOP, -0.1)])
    result = translator.translate("I go home today.", second_try=False)
    assert (result.notes, len(engine.configs)) == (["loop"], 1)


def test_without_scores_there_is_no_confidence_but_a_second_try(real: Translator) -> None:
    translator, _ = make_translator(real, [(LOOP, -0.1)], [(GOOD, -0.8)])
    result = translator.translate("I go home today.", scores="none")
    assert (result.text, result.confidence) == (GOOD, None)


def test_the_confidence_of_a_text_is_the_mean_over_its_tokens(real: Translator) -> None:
    translator, engine = make_translator(real, [(GOOD, -0.1)])
    high, low = engine.make_hypothesis(GOOD, -0.1), engine.make_hypothesis(OTHER, -3.0)

    def decode(requests: Any, config: DecodingConfig, **options: Any) -> Results:
        yield from ((n, [high if n == 0 else low]) for n, _ in enumerate(requests))

    engine.decode = decode  # type: ignore[method-assign]
    both = translator.translate("I go home today. We read a book at school.")
    first = translator.translate("I go home today.")
    lengths = len(high.tokens) + 1, len(low.tokens) + 1
    assert both.sentences == 2
    assert first.confidence is not None
    assert both.confidence is not None
    rest = (both.confidence * sum(lengths) - first.confidence * lengths[0]) / lengths[1]
    assert 0 <= rest < 0.1
    assert translator.translate("").confidence is None


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_calibrated_folder_gives_confidence_with_every_engine(tmp_path: Path, engine: str) -> None:
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    folder = save_untrained_model(tmp_path / "model")
    size = mh.load(folder, device="cpu").subwords.source
    checkpoint.write_confidence(folder, make_calibration(len(size)).to_bytes())
    translator = load(folder, device="cpu", engine=engine)
    results = translator.translate(["I go home today.", "나는 오늘 집에 간다."], scores="total")
    assert all(result.confidence is not None and 0 <= result.confidence <= 1 for result in results)
    streamed = list(translator.stream(["I go home today.", "나는 오늘 집에 간다."], scores="total"))
    assert [result.confidence for result in streamed] == pytest.approx([r.confidence for r in results])


def make_echo(real: Translator, source_language: str, find_text: Callable[[str], str]) -> Translator:
    """Return a calibrated translator with short sentences whose engine maps the text of each source."""
    translator, engine = make_translator(real)
    translator.max_length, translator.source_language = 12, source_language

    def decode(requests: Any, config: DecodingConfig, **options: Any) -> Results:
        for index, request in enumerate(requests):
            source = real.subwords.source.decode(request.source)
            yield index, [engine.make_hypothesis(find_text(source), -0.5)]

    engine.decode = decode  # type: ignore[method-assign]
    return translator


@pytest.mark.parametrize("is_stream", [False, True])
def test_parts_of_a_sentence_that_repeat_each_other_are_copied(real: Translator, is_stream: bool) -> None:
    """No part has a loop of its own."""
    source = (
        "We go home, I read a book, you see my school, they buy two cars, he eats nine apples, it is cold"
    )
    translator = make_echo(real, "en", lambda text: GOOD if "book" not in text else "책을 읽는다.")
    result = next(translator.stream([source])) if is_stream else translator.translate(source)
    assert result.sentences > 6
    assert find_loop(result.tokens, result.source_tokens) is None
    assert "책을 읽는다." in result.text
    assert GOOD not in result.text
    assert "they buy two cars" in result.text
    assert "repeating parts copied" in result.notes
    assert result.confidence is not None
    assert result.confidence < 0.5
    assert len(result.token_scores) == len(result.tokens)


def test_parts_between_copied_text_that_repeat_each_other_are_copied(real: Translator) -> None:
    source = " ".join(f"{word} {number}00" for number, word in enumerate(WORDS, 1))
    result = make_echo(real, "en", lambda text: GOOD).translate(source)
    assert result.text == source
    assert {"copied text repaired", "repeating parts copied"} <= set(result.notes)
    assert (result.tokens, result.confidence) == ([], 0.0)


def test_sentences_that_happen_to_be_equal_are_no_loop(real: Translator) -> None:
    source = "I go. We read. You see. They buy. He eats. She runs. It rains. We go."
    result = make_echo(real, "en", lambda text: GOOD).translate(source)
    assert result.text == " ".join([GOOD] * 8)
    assert result.notes == []


def test_repeating_parts_stay_where_second_tries_are_off(real: Translator) -> None:
    source = " ".join(f"{word} {number}00" for number, word in enumerate(WORDS, 1))
    result = make_echo(real, "en", lambda text: GOOD).translate(source, second_try=False)
    assert result.text.count(GOOD) == 8


def test_many_different_loops_end_soon(real: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "MAX_LOOPS", 1)
    words = [*WORDS, "I", "see", "one", "day", "in", "the", "sun", "at", "two"]
    source = " ".join(f"{word} {number}00" for number, word in enumerate(words, 1))
    texts = iter([GOOD, "I read a book.", "We see you today."] * 100)
    result = make_echo(real, "en", lambda text: next(texts)).translate(source)
    assert result.text == source
