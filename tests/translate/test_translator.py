"""Text in, text out, for any text and in any batch."""

import json
import os
import pty
import random
import re
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import SubwordConfig
from manyheads.glossary import TermConstraints
from manyheads.inference.engine import decode_all
from manyheads.inference.ensemble import Ensemble
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model import build_model
from manyheads.search.options import DecodingConstraints
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.strategies import randomize_weights

TEXTS = [
    "나는 오늘 집에 간다.",
    "우리는 학교에서 책을 읽는다.",
    "I go home today.",
    "We read a book at school.",
] * 20
SUBWORDS = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=330))
PAIR = SubwordPair(SUBWORDS, SUBWORDS)
CONFIG = mh.Config(
    model=mh.TransformerConfig(vocab_size=330, layers=2, d_model=16, d_ff=32, heads=2),
    data=mh.DataConfig(max_length=40),
    decoding=mh.DecodingConfig(max_extra_length=6),
)
LANGUAGES = {"source": "en", "target": "ko"}


def save_model(folder: Path, seed: int = 0, config: mh.Config = CONFIG) -> Path:
    torch.manual_seed(seed)
    model = mh.Transformer(config.model)
    randomize_weights(model)
    with torch.no_grad():
        model.output.weight[2] += 0.4  # the end comes within reason
    checkpoint.save(folder, checkpoint.collect_weights(model), PAIR, config, step=1, languages=LANGUAGES)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("translator") / "model")


@pytest.fixture(scope="module")
def translator(folder: Path) -> mh.Translator:
    return mh.load(folder, device="cpu")


WORDS = ["I", "go", "home", "today", "we", "read", "a", "book", "at", "school", "나는", "집에", "간다"]


def lines(count: int, seed: int = 0, max_words: int = 12) -> list[str]:
    generator = random.Random(seed)
    return [
        " ".join(generator.choice(WORDS) for _ in range(generator.randint(1, max_words)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 4, "nbest": 2}, {"temperature": 0.9, "nbest": 2}])
def test_a_translation_does_not_depend_on_the_other_texts(
    folder: Path, search: dict[str, Any], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = mh.load(folder, device="cpu")
    assert isinstance(translator.engine, TorchEngine)
    translator.engine.model.to(dtype)
    monkeypatch.setattr(
        "manyheads.inference.torch_engine.MAX_ROWS", 24
    )  # so that sentences wait for each other
    texts = [*lines(60), *lines(4, seed=9, max_words=30)]
    shuffled = random.Random(1).sample(range(64), 64)
    whole = translator.translate(texts, **search)
    alone = [translator.translate(text, **search) for text in texts]
    sevens = [result for n in range(0, 64, 7) for result in translator.translate(texts[n : n + 7], **search)]
    mixed = dict(zip(shuffled, translator.translate([texts[n] for n in shuffled], **search), strict=True))
    num_different = 0
    for number, result in enumerate(whole):
        for other in (alone[number], sevens[number], mixed[number]):
            same = other.text == result.text and [a.text for a in other.alternatives] == [
                a.text for a in result.alternatives
            ]
            num_different += not same
            assert not same or other.score == pytest.approx(result.score, abs=1e-4)
            if not same and search.get("temperature") is None:
                assert other.score == pytest.approx(result.score, rel=0.05), (
                    "the other result is about as good"
                )
    # A random model has candidates that lie closer than rounding, and only then may a beam go another way.
    assert num_different == 0 if dtype == torch.float64 else num_different <= 4


def test_every_score_is_that_of_forced_decoding(folder: Path) -> None:
    model, subwords, _ = checkpoint.load_model(folder)
    engine = TorchEngine(model)
    config = mh.DecodingConfig(beam=4, nbest=4, alpha=0.6)
    sources = [[*subwords.source.encode(text), 2] for text in lines(20)]
    constraints = [DecodingConstraints(len(source) + 5) for source in sources]
    results = decode_all(engine, sources, constraints, config)
    for source, hypotheses in zip(sources, results, strict=True):
        assert len(hypotheses) == 4
        for hypothesis in hypotheses:
            forced = engine.score([source], [hypothesis.tokens])[0]
            assert hypothesis.token_scores == pytest.approx(forced, abs=1e-4)
            assert hypothesis.score == pytest.approx(sum(forced) / ((5 + len(forced)) / 6) ** 0.6, abs=1e-4)


def test_white_space_and_line_breaks_are_kept(translator: mh.Translator) -> None:
    text = "  I go home.   We read!\n\n\t🙂 \r\nA book \u2028 \n"
    results = translator.translate(text)
    shape = lambda text: re.sub(r"[^\s🙂]+( [^\s🙂]+)*", "x", text)  # noqa: E731
    bare = [translator.translate(part).text for part in ("I go home.", "We read!", "A book")]
    assert results.text == f"  {bare[0]}   {bare[1]}\n\n\t🙂 \r\n{bare[2]} \u2028 \n"
    assert shape(text).count("\n") == results.text.count("\n")
    assert results.sentences == 3


@pytest.mark.parametrize("text", ["", "  ", "\t", "🙂🎉", "...", "—!?", "\n\n"])
def test_texts_without_words_are_copied(translator: mh.Translator, text: str) -> None:
    results = translator.translate([text, "I go home."])[0]
    assert (results.text, results.sentences, results.score, results.tokens) == (text, 0, 0.0, [])


def test_a_long_text_is_split_and_never_cut(translator: mh.Translator) -> None:
    text = ", ".join(["we read a book at school today"] * 30)
    results = translator.translate(text)
    assert results.sentences > 3
    assert len(results.source_tokens) >= len(SUBWORDS.encode(text))


def test_a_long_word_that_is_no_language_is_copied(translator: mh.Translator) -> None:
    word = "".join("abcdefghij"[n * n % 7] for n in range(60))
    with pytest.warns(UserWarning, match=r"a sentence of \d+ tokens cannot be split.*is copied"):
        results = translator.translate(f"I go home {word} today.", beam=1)
    assert word in results.text
    assert "long word copied" in results.notes
    assert results.sentences == 2
    with pytest.warns(UserWarning, match="is copied"):
        results = translator.translate("나는집에간다" * 40, beam=1)  # not the script of the source
    assert (results.text, results.sentences, results.confidence) == ("나는집에간다" * 40, 0, None)
    assert results.notes == ["looks like Hangul, not en", "long word copied", "nothing to translate"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # text that is copied in any sentence is no long word
        results = translator.translate("สวัสดีชาวโลก" * 9, beam=1)
    assert "long word copied" not in results.notes


def test_long_words_that_may_be_language_are_translated_with_a_warning(translator: mh.Translator) -> None:
    korean = mh.Translator(
        translator.engine, translator.subwords, {"source": "ko", "target": "en"}, max_length=40
    )
    unspaced = "나는오늘집에간다"
    with pytest.warns(UserWarning, match=r"a sentence of \d+ tokens cannot be split.*as it is"):
        results = korean.translate(unspaced * 6, beam=1)
    assert (results.sentences, results.notes) == (1, [])
    with pytest.warns(UserWarning, match="in parts of words"):
        results = korean.translate(unspaced * 200, beam=1)
    assert results.sentences > 1
    assert "".join(results.source_tokens).count("집에") == 200
    with pytest.warns(UserWarning, match="as it is"):
        tagged = translator.translate("<b>" + "home" * 12 + "</b>" + "read" * 12, beam=1)
    assert tagged.sentences > 0
    assert "long word copied" not in tagged.notes


def test_learned_positions_are_never_exceeded(tmp_path: Path) -> None:
    short = CONFIG.override(["model.positions=learned", "model.max_positions=20"])
    translator = mh.load(save_model(tmp_path / "short", config=short), device="cpu")
    assert translator.max_length == 20
    for result in translator.translate([", ".join(lines(9)), "I go home."]):
        assert result.text
    korean = mh.Translator(
        translator.engine, translator.subwords, {"source": "ko", "target": "en"}, max_length=20
    )
    with pytest.warns(UserWarning, match="in parts of words"):
        whole = korean.translate("집에" * 45, beam=1)
    assert "".join(whole.source_tokens).replace("\u2581", "") == "집에" * 45


def test_several_threads_may_translate_at_once(translator: mh.Translator) -> None:
    texts = lines(24)
    expected = [result.text for result in translator.translate(texts)]
    results: dict[int, list[str]] = {}

    def work(number: int) -> None:
        results[number] = [result.text for result in translator.translate(texts)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[number] for number in range(4)] == [expected] * 4


def test_a_stream_is_read_as_needed(translator: mh.Translator) -> None:
    read: list[str] = []

    def source() -> Any:
        for text in lines(100):
            read.append(text)
            yield text

    stream = translator.stream(source(), read_ahead=10, beam=1)
    first = [next(stream) for _ in range(3)]
    assert len(read) <= 20, "those that were returned, and ten more"
    assert [result.source for result in first] == read[:3]
    assert len(list(stream)) == 97


def test_a_stream_is_read_outside_inference_mode(translator: mh.Translator) -> None:
    modes: list[bool] = []

    def source() -> Any:
        for line in lines(30):
            modes.append(torch.is_inference_mode_enabled())
            yield line

    assert len(list(translator.stream(source(), read_ahead=4, beam=1))) == 30
    assert modes == [False] * 30


def test_a_stream_keeps_its_order_with_blank_lines_and_texts_of_several_sentences(
    translator: mh.Translator,
) -> None:
    blank = ["", " ", "\U0001f642"]
    texts = [*blank, *lines(7), *blank * 4, "I go home. We read a book.", *lines(9, seed=2), *blank]
    expected = translator.translate(texts, beam=1, alignment=True)
    for read_ahead in (1, 2, 5, None):
        results = list(translator.stream(texts, read_ahead, beam=1, alignment=True))
        assert [result.source for result in results] == texts
        assert [(result.text, result.alignment) for result in results] == [
            (result.text, result.alignment) for result in expected
        ]


def test_a_blank_line_is_returned_before_the_next_line_is_read(translator: mh.Translator) -> None:
    read: list[str] = []

    def source() -> Any:
        for text in ("", "I go home.", "", "We read."):
            read.append(text)
            yield text

    for number, _ in enumerate(translator.stream(source(), read_ahead=1, beam=1), 1):
        assert len(read) == number


def test_progress_counts_texts(translator: mh.Translator) -> None:
    calls: list[tuple[str, int, int | None]] = []
    texts = ["I go. We read.", "", "A book."]
    translator.translate(texts, beam=1, report_progress=lambda *call: calls.append(call))
    assert calls == [("translating", number, 3) for number in (2, 3)]
    calls.clear()
    batches = translator.stream_batches(
        iter(texts * 400), beam=1, report_progress=lambda *call: calls.append(call)
    )
    assert sum(map(len, batches)) == 1200
    assert calls[-1] == ("translating", 1200, None)


def test_the_alignment_is_the_highest_attention(translator: mh.Translator) -> None:
    results = translator.translate("I go home. We read a book.", alignment=True)
    assert results.alignment is not None
    assert [target for _, target in results.alignment] == list(range(len(results.tokens)))
    assert all(0 <= source < len(results.source_tokens) for source, _ in results.alignment)
    result = translator.translate(
        "I go home.", prefix="나는 집에 간다.", max_extra_length=0, alignment=True, beam=1
    )
    result = replace(result, text="나는 집에 간다.", tokens=SUBWORDS.encode_as_pieces("나는 집에 간다."))
    assert result.alignment is not None
    result = replace(result, alignment=result.alignment[: len(result.tokens)])
    maps = translator.attention("I go home.", result.text)
    heads = maps.trace.cross[-1][0].mean(0)
    assert maps.target_tokens[:-1] == result.tokens
    assert result.alignment == [(int(row[:-1].argmax()), n) for n, row in enumerate(heads[:-1])]


def test_attention_has_the_weights_of_every_head(translator: mh.Translator) -> None:
    results = translator.attention("I go home.", "나는 간다.")
    source, target = len(results.source_tokens), len(results.target_tokens)
    assert results.trace.cross[1][0].shape == (2, target, source)
    assert results.trace.encoder[0][0].shape == (2, source, source)
    assert results.target_tokens[-1] == "</s>"


def test_glossary_terms_are_translated_as_given(translator: mh.Translator) -> None:
    terms = {"book": "책을 읽는다", "school": "학교에서"}
    results = translator.translate(["We read a Book at school.", "We read books."], glossary=terms)
    assert "책을 읽는다" in results[0].text
    assert "학교에서" in results[0].text
    assert results[1].text == translator.translate("We read books.").text, "books is another word"
    korean = translator.translate("학교에서 간다", glossary={"학교": "home"})
    assert "home" in korean.text, "a particle may follow"


def test_a_longer_term_replaces_a_shorter_one_inside_it(translator: mh.Translator) -> None:
    terms = TermConstraints(PAIR, "", {"book": "책", "school book": "학교", "Book": "책"}, [])
    assert terms.require(terms.find("a school book"))[0] == (tuple(SUBWORDS.encode("학교")),)
    assert len(terms.require(terms.find("a school book and a book"))[0]) == 2
    assert terms.require(terms.find("the BOOK")) == ((tuple(SUBWORDS.encode("책")),), ())


def test_a_glossary_term_ends_its_word(translator: mh.Translator) -> None:
    for result in translator.translate(
        [f"{text} book" for text in lines(40)], glossary={"book": "home"}, beam=1
    ):
        assert re.search(r"(?<!\w)home(?!\w)", result.text), result.text


def test_contradictory_constraints_are_refused(translator: mh.Translator) -> None:
    with pytest.raises(
        mh.RequestError,
        match=r"no translation of 'A book\.': the required and forbidden words exclude each other",
    ):
        translator.translate("A book.", glossary={"book": "책을"}, forbid=["책을"])
    with pytest.raises(mh.RequestError, match="need a search and cannot be sampled"):
        translator.translate("A book.", glossary={"book": "책을"}, temperature=1.0)


def test_every_sentence_has_the_language_tag_of_its_text(translator: mh.Translator) -> None:
    results = translator.translate(">>kor<< I go home. We read.")
    apart = [translator.translate(f">>kor<< {text}").text for text in ("I go home.", "We read.")]
    assert results.text == " ".join(apart)
    assert "".join(results.source_tokens).count("kor") == 2


def test_a_lone_surrogate_is_translated(translator: mh.Translator) -> None:
    assert translator.translate("a \ud800 b").sentences == 1


def test_without_splitting_each_line_is_a_sentence(translator: mh.Translator) -> None:
    assert translator.translate("I go. We read.\nA book.", split=False).sentences == 2


def test_forbidden_words_and_prefixes_are_respected(translator: mh.Translator) -> None:
    likely = translator.translate("We read a book.", beam=1, prefix="우리는 책을 읽는다.", max_extra_length=0)
    assert SUBWORDS.encode_as_pieces("우리는")[0] in likely.tokens
    for result in translator.translate(lines(30), beam=1, forbid=["나", "학교에서"], temperature=1.5):
        ids = [next(n for n in range(330) if SUBWORDS.id_to_piece(n) == piece) for piece in result.tokens]
        for word in ("나", "학교에서"):
            phrase = SUBWORDS.encode(word)
            assert all(ids[n : n + len(phrase)] != phrase for n in range(len(ids)))
    begun = translator.translate("We read a book.", prefix="우리는 책을")
    assert begun.text.startswith("우리는 책을")


def test_minimum_lengths_are_respected(translator: mh.Translator) -> None:
    results = translator.translate(lines(10), min_length=9, max_extra_length=0)
    assert all(len(result.tokens) >= 9 for result in results)


def test_given_translations_are_scored_by_forced_decoding(translator: mh.Translator) -> None:
    text = "나는 집에 간다."
    forced = {"prefix": text, "min_length": 0, "max_extra_length": -0, "beam": 1, "split": False}
    results = translator.translate("I go home.", **forced)
    again = translator.score(["I go home."], [text])[0]
    count = len(SUBWORDS.encode(text))
    assert again.tokens == results.tokens[:count]
    assert again.token_scores == pytest.approx(results.token_scores[:count], abs=1e-4)
    assert again.log_probability < sum(again.token_scores), "the end counts"
    with pytest.raises(mh.RequestError, match="2 sources, but 1 targets"):
        translator.score(["a", "b"], ["c"])


def test_an_ensemble_is_the_mean_of_its_models(tmp_path: Path, folder: Path) -> None:
    other = save_model(tmp_path / "other", seed=5)
    texts = lines(12)
    single = mh.load(folder, device="cpu").translate(texts)
    twins = mh.load(folder, folder, device="cpu").translate(texts)
    assert [result.text for result in twins] == [result.text for result in single]
    models = [checkpoint.load_model(path)[0] for path in (folder, other)]
    source, target = mh.Packed.of([[5, 6, 2]]), mh.Packed.of([[1, 7]])
    with torch.no_grad():
        mean = torch.stack([model(source, target).softmax(-1) for model in models]).mean(0)
        torch.testing.assert_close(Ensemble(models)(source, target), mean.log())
    mixed = mh.load(folder, other, device="cpu")
    results = mixed.translate(texts, beam=3, nbest=3)
    alone = [mixed.translate(text, beam=3, nbest=3).text for text in texts]
    assert [result.text for result in results] == alone


@pytest.mark.parametrize("first", ["transformer", "bytenet"])
def test_an_ensemble_has_the_attention_of_its_first_model(first: str) -> None:
    learned = mh.TransformerConfig(
        vocab_size=330, layers=2, d_model=16, d_ff=32, heads=2, positions="learned", max_positions=20
    )
    transformer = mh.Transformer(learned)
    bytenet = build_model(mh.ByteNetConfig(vocab_size=330, layers=1, d_model=16, d_ff=8))
    models = [transformer, bytenet] if first == "transformer" else [bytenet, transformer]
    engine = TorchEngine(Ensemble(models))
    assert engine.capabilities.max_positions == 20
    assert engine.capabilities.alignment == (first == "transformer")
    if first == "transformer":
        assert engine.align([[5, 6, 2]], [[7]])[0].shape == (2, 3)
    else:
        with pytest.raises(mh.RequestError, match="has no attention over the source"):
            engine.align([[5, 6, 2]], [[7]])


def test_the_engine_name_selects_the_precision(folder: Path) -> None:
    """On a CPU float32 by default; rounded, the search is another, and scores by forced decoding are not."""
    texts = lines(6)
    exact, plain, rounded = (
        mh.load(folder, device="cpu", engine=name) for name in ("torch:float32", "torch", "torch:bfloat16")
    )
    assert [result.text for result in exact.translate(texts)] == [
        result.text for result in plain.translate(texts)
    ]
    assert isinstance(rounded.engine, TorchEngine)
    assert rounded.engine.search_model.output.weight.dtype == torch.bfloat16
    assert rounded.engine.model.output.weight.dtype == torch.float32
    assert rounded.score(texts, texts) == exact.score(texts, texts)
    results, expected = rounded.translate(texts), exact.translate(texts)
    scores = [(result.score, other.score) for result, other in zip(results, expected, strict=True)]
    assert any(score != other for score, other in scores)
    assert all(score == pytest.approx(other, abs=0.5) for score, other in scores)
    with torch.no_grad():
        rounded.engine.model.output.weight.mul_(1.5)
    rounded.engine.refresh_weights()
    changed = rounded.engine.search_model.output.weight.float()
    torch.testing.assert_close(changed, rounded.engine.model.output.weight, rtol=1e-2, atol=1e-2)


def test_wrong_arguments_are_refused(folder: Path, tmp_path: Path, translator: mh.Translator) -> None:
    for wrong in ("onnx", "torch:int4"):
        with pytest.raises(mh.ConfigError, match=f"the engine is '{wrong}'"):
            mh.load(folder, engine=wrong)
    with pytest.raises(mh.CheckpointError, match="not a model folder"):
        mh.load(tmp_path / "gone")
    with pytest.raises(mh.ConfigError, match=r"unknown key decoding\.baem; did you mean decoding\.beam"):
        translator.translate("a", baem=3)
    with pytest.raises(mh.RequestError, match="empty entries"):
        translator.translate("a", glossary={"a": " "})
    pair = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=320))
    config = replace(CONFIG, model=replace(CONFIG.model, vocab_size=320))
    model = mh.Transformer(config.model)
    checkpoint.save(
        tmp_path / "x",
        checkpoint.collect_weights(model),
        SubwordPair(pair, pair),
        config,
        step=1,
        languages=LANGUAGES,
    )
    with pytest.raises(mh.RequestError, match="has other subwords than"):
        mh.load(folder, tmp_path / "x")


# ---- the verbs


def manyheads(*arguments: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "manyheads", *arguments]
    return subprocess.run(command, input=text, capture_output=True)


def test_there_are_as_many_output_lines_as_input_lines(folder: Path, tmp_path: Path) -> None:
    text = b"I go home.\r\n\n\xff\xfe bad\n  \n\xf0\x9f\x99\x82\nWe read\x0ba book\x1c now"
    done = manyheads("translate", str(folder), "--device", "cpu", text=text)
    assert done.returncode == 0, done.stderr
    results = done.stdout.split(b"\n")
    assert len(results) == 7
    assert results[0].endswith(b"\r")
    assert [results[n] for n in (1, 3, 4, 6)] == [b"", b"  ", b"\xf0\x9f\x99\x82", b""]
    (tmp_path / "a").write_bytes(b"I go.\nWe read.\n")
    (tmp_path / "b").write_bytes(b"I read.\n")
    files = manyheads("translate", str(folder), str(tmp_path / "a"), str(tmp_path / "b"))
    assert files.stdout.count(b"\n") == 3
    other = subprocess.run(
        [sys.executable, "-m", "manyheads", "translate", str(folder)],
        input="🙂 I\n".encode(),
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
    )
    assert other.stdout.startswith("🙂".encode()) or other.stdout.count(b"\n") == 1, other.stderr
    assert manyheads("translate", str(folder)).stdout == b""
    marked = manyheads("translate", str(folder), "-", text=b"\xef\xbb\xbfI go home.")
    assert marked.stdout == manyheads("translate", str(folder), text=b"I go home.").stdout
    assert b"-: line 3 is not UTF-8" in done.stderr


def test_results_stay_in_a_file_beside_a_progress_bar_on_the_terminal(folder: Path, tmp_path: Path) -> None:
    text, out = tmp_path / "a.en", tmp_path / "a.ko"
    text.write_text("\n".join(lines(20)) + "\n", encoding="utf-8")
    main, terminal = pty.openpty()
    with out.open("wb") as stdout:
        command = [sys.executable, "-m", "manyheads", "translate", str(folder), str(text), "--device", "cpu"]
        process = subprocess.Popen(command, stdout=stdout, stderr=terminal, stdin=subprocess.DEVNULL)
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += (block := os.read(main, 1 << 16))
        except OSError:  # the terminal is closed
            break
        if not block:
            break
    os.close(main)
    assert process.wait() == 0
    assert b"translating" in shown.lower()
    assert len(out.read_text(encoding="utf-8").splitlines()) == 20


def test_json_holds_scores_tokens_and_alternatives(folder: Path) -> None:
    text = b"I go home.\n\nWe read.\n"
    done = manyheads("translate", str(folder), "--json", "--nbest", "3", text=text)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["source"] for row in rows] == ["I go home.", "", "We read."]
    assert len(rows[0]["alternatives"]) == 2
    assert len(rows[0]["tokens"]) == len(rows[0]["token_scores"]) == len(rows[0]["alignment"])


@pytest.mark.parametrize("engine", ["torch", "torch:float32", "torch:bfloat16"])
def test_json_holds_alignments_whatever_the_precision(folder: Path, engine: str) -> None:
    done = manyheads(
        "translate", str(folder), "--json", "--engine", engine, "--device", "cpu", text=b"I go.\n"
    )
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(row["alignment"]) == len(row["tokens"]) > 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gone"], 3, "gone: not a model folder"),
        (["{folder}", "--nbest", "2"], 2, "add --json"),
        (["{folder}", "--beam", "0"], 2, "decoding.beam is 0"),
        (["{folder}", "--engine", "x"], 2, "the engine is 'x'"),
        (["{folder}", "gone.txt"], 3, "gone.txt: No such file"),
        (["{folder}", "text.gz"], 3, "text.gz: No such file"),
        (["{folder}", "--beam", "100000"], 2, "decoding.beam is 100000"),
        (["{folder}", "--glossary", "{bad}"], 3, "line 1 is not a term, a tab and its translation"),
    ],
)
def test_an_error_is_one_line(
    folder: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "bad").write_text("book 책\n", encoding="utf-8")
    done = manyheads(
        "translate",
        *(argument.format(folder=folder, bad=tmp_path / "bad") for argument in arguments),
        text=b"a\n",
    )
    assert done.returncode == code, done.stderr
    assert message.encode() in done.stderr.splitlines()[-1]
    assert b"Traceback" not in done.stderr


def test_score_prints_a_line_for_each_pair(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("I go.\nWe read.\n", encoding="utf-8")
    (tmp_path / "t").write_text("간다.\n읽는다.\n", encoding="utf-8")
    done = manyheads("score", str(folder), f"{tmp_path}/s", f"{tmp_path}/t")
    rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
    assert [row[2] for row in rows] == ["간다.", "읽는다."]
    assert all(float(row[0]) < float(row[1]) < 0 for row in rows)
    (tmp_path / "t").write_text("간다.\n", encoding="utf-8")
    assert manyheads("score", str(folder), f"{tmp_path}/s", f"{tmp_path}/t").returncode == 3


FUZZ = """
import random, resource, sys
def memory():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) / 1024
import manyheads as mh
import warnings
warnings.simplefilter("ignore")
chance = random.Random(3)
def character():
    draw = chance.random()
    if draw < 0.5: return chance.choice("abc가나 .,!?")
    if draw < 0.6: return chr(chance.randrange(0x0590, 0x0700))
    if draw < 0.65: return chr(chance.randrange(0, 32)).replace(chr(10), "x")
    return chr(chance.randrange(0x110000)).encode("utf-8", "replace").decode().replace(chr(10), "x")
def lines():
    for number in range(int(sys.argv[2])):
        long = number % (int(sys.argv[2]) // int(sys.argv[3])) == 7
        yield "".join(character() for _ in range(10_000 if long else chance.randint(0, 24)))
translator = mh.load(sys.argv[1], device="cpu")
translator.source_language = sys.argv[4]
out, rows = 0, []
for result in translator.stream(lines(), beam=int(sys.argv[5]), max_extra_length=0):
    assert chr(10) not in result.text, repr(result.source)
    out += 1
    if out % (int(sys.argv[2]) // 10) == 0: rows.append(round(memory()))
print(out, *rows)
"""


def run_fuzz(tmp_path: Path, count: int, long: int, language: str = "en", beam: int = 1) -> list[int]:
    tiny = replace(CONFIG, model=replace(CONFIG.model, layers=1, d_model=8, d_ff=8))
    folder = save_model(tmp_path / f"tiny-{language}", config=tiny)
    command = [sys.executable, "-c", FUZZ, str(folder), str(count), str(long), language, str(beam)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return [int(number) for number in done.stdout.split()]


def test_any_line_gives_one_line(tmp_path: Path) -> None:
    assert run_fuzz(tmp_path, 1000, 1)[0] == 1000
    assert run_fuzz(tmp_path, 500, 1, "ko", 3)[0] == 500


@pytest.mark.heavy
def test_memory_stays_flat_over_a_hundred_thousand_lines(tmp_path: Path) -> None:
    out, *memory = run_fuzz(tmp_path, 100_000, 100)
    assert out == 100_000
    print(f"MiB after each tenth: {memory}")
    assert memory[-1] < memory[1] + 100
