"""Text in, text out: whatever the text, whatever the company."""

import json
import os
import random
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import SubwordConfig
from manyheads.inference.torch_engine import Ensemble, TorchEngine
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


def made(folder: Path, seed: int = 0, config: mh.Config = CONFIG) -> Path:
    torch.manual_seed(seed)
    model = mh.Transformer(config.model)
    randomize_weights(model)
    with torch.no_grad():
        model.output.weight[2] += 0.4  # the end comes within reason
    checkpoint.save(folder, checkpoint.collect_weights(model), PAIR, config, step=1, languages=LANGUAGES)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("translator") / "model")


@pytest.fixture(scope="module")
def translator(folder: Path) -> mh.Translator:
    return mh.load(folder, device="cpu")


WORDS = ["I", "go", "home", "today", "we", "read", "a", "book", "at", "school", "나는", "집에", "간다"]


def lines(count: int, seed: int = 0, most: int = 12) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choice(WORDS) for _ in range(chance.randint(1, most))) for _ in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 4, "nbest": 2}, {"temperature": 0.9, "nbest": 2}])
def test_a_text_gets_the_same_in_any_company(
    folder: Path, search: dict[str, Any], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = mh.load(folder, device="cpu")
    assert isinstance(translator.engine, TorchEngine)
    translator.engine.model.to(dtype)
    monkeypatch.setattr("manyheads.inference.torch_engine.ROWS", 24)  # so that sentences wait for each other
    texts = [*lines(60), *lines(4, seed=9, most=30)]
    shuffled = random.Random(1).sample(range(64), 64)
    whole = translator.translate(texts, **search)
    alone = [translator.translate(text, **search) for text in texts]
    sevens = [one for n in range(0, 64, 7) for one in translator.translate(texts[n : n + 7], **search)]
    mixed = dict(zip(shuffled, translator.translate([texts[n] for n in shuffled], **search), strict=True))
    other_ways = 0
    for number, one in enumerate(whole):
        for other in (alone[number], sevens[number], mixed[number]):
            same = other.text == one.text and [a.text for a in other.alternatives] == [
                a.text for a in one.alternatives
            ]
            other_ways += not same
            assert not same or other.score == pytest.approx(one.score, abs=1e-4)
            if not same and search.get("temperature") is None:
                assert other.score == pytest.approx(one.score, rel=0.05), "no other result, but a near one"
    # A random model has candidates that lie closer than rounding, and only then may a beam go another way.
    assert other_ways == 0 if dtype == torch.float64 else other_ways <= 4


def test_every_score_is_that_of_forced_decoding(folder: Path) -> None:
    model, subwords, _ = checkpoint.load_model(folder)
    engine = TorchEngine(model)
    how = mh.DecodingConfig(beam=4, nbest=4, alpha=0.6)
    sources = [[*subwords.source.encode(text), 2] for text in lines(20)]
    from manyheads.search.beam import DecodingConstraints

    found = engine.search(sources, [DecodingConstraints(len(source) + 5) for source in sources], how)
    for source, results in zip(sources, found, strict=True):
        assert len(results) == 4
        for one in results:
            forced = engine.score([source], [one.tokens])[0]
            assert one.token_scores == pytest.approx(forced, abs=1e-4)
            assert one.score == pytest.approx(sum(forced) / ((5 + len(forced)) / 6) ** 0.6, abs=1e-4)


def test_white_space_and_line_breaks_are_kept(translator: mh.Translator) -> None:
    text = "  I go home.   We read!\n\n\t🙂 \r\nA book \u2028 \n"
    found = translator.translate(text)
    shape = lambda one: re.sub(r"[^\s🙂]+( [^\s🙂]+)*", "x", one)  # noqa: E731
    bare = [translator.translate(part).text for part in ("I go home.", "We read!", "A book")]
    assert found.text == f"  {bare[0]}   {bare[1]}\n\n\t🙂 \r\n{bare[2]} \u2028 \n"
    assert shape(text).count("\n") == found.text.count("\n")
    assert found.sentences == 3


@pytest.mark.parametrize("text", ["", "  ", "\t", "🙂🎉", "...", "—!?", "\n\n"])
def test_what_has_no_words_passes_through(translator: mh.Translator, text: str) -> None:
    found = translator.translate([text, "I go home."])[0]
    assert (found.text, found.sentences, found.score, found.tokens) == (text, 0, 0.0, [])


def test_a_long_text_is_parted_and_never_cut(translator: mh.Translator) -> None:
    text = ", ".join(["we read a book at school today"] * 30)
    found = translator.translate(text)
    assert found.sentences > 3
    assert len(found.source_tokens) >= len(SUBWORDS.encode(text))


def test_a_word_that_is_too_long_is_translated_with_a_warning(translator: mh.Translator) -> None:
    with pytest.warns(UserWarning, match=r"a sentence of \d+ tokens cannot be parted.*all the same"):
        found = translator.translate("x" * 45, beam=1)
    assert found.sentences == 1
    with pytest.warns(UserWarning, match="in parts of words"):
        found = translator.translate("x" * 2000, beam=1)
    assert "".join(found.source_tokens).count("x") == 2000


def test_learned_positions_are_never_passed(tmp_path: Path) -> None:
    short = replace(CONFIG.model, positions="learned", max_positions=20)
    translator = mh.load(made(tmp_path / "short", config=replace(CONFIG, model=short)), device="cpu")
    assert translator.max_length == 20
    for one in translator.translate([", ".join(lines(9)), "I go home."]):
        assert one.text
    with pytest.warns(UserWarning, match="in parts of words"):
        whole = translator.translate("x" * 45, beam=1)
    assert "".join(whole.source_tokens).count("x") == 45


def test_several_threads_get_what_one_gets(translator: mh.Translator) -> None:
    texts = lines(24)
    expected = [one.text for one in translator.translate(texts)]
    found: dict[int, list[str]] = {}

    def work(number: int) -> None:
        found[number] = [one.text for one in translator.translate(texts)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(4)] == [expected] * 4


def test_a_stream_is_read_as_it_is_needed(translator: mh.Translator) -> None:
    read: list[str] = []

    def source() -> Any:
        for text in lines(100):
            read.append(text)
            yield text

    stream = translator.stream(source(), read_ahead=10, beam=1)
    first = [next(stream) for _ in range(3)]
    assert len(read) == 10
    assert [one.source for one in first] == read[:3]
    assert len(list(stream)) == 97


def test_the_alignment_is_where_the_attention_is_highest(translator: mh.Translator) -> None:
    found = translator.translate("I go home. We read a book.", alignment=True)
    assert found.alignment is not None
    assert [target for _, target in found.alignment] == list(range(len(found.tokens)))
    assert all(0 <= source < len(found.source_tokens) for source, _ in found.alignment)
    one = translator.translate(
        "I go home.", prefix="나는 집에 간다.", max_extra_length=0, alignment=True, beam=1
    )
    one = replace(one, text="나는 집에 간다.", tokens=SUBWORDS.encode_as_pieces("나는 집에 간다."))
    assert one.alignment is not None
    one = replace(one, alignment=one.alignment[: len(one.tokens)])
    maps = translator.attention("I go home.", one.text)
    heads = maps.trace.cross[-1][0].mean(0)
    assert maps.target_tokens[:-1] == one.tokens
    assert one.alignment == [(int(row[:-1].argmax()), n) for n, row in enumerate(heads[:-1])]


def test_attention_has_a_map_of_every_head(translator: mh.Translator) -> None:
    found = translator.attention("I go home.", "나는 간다.")
    source, target = len(found.source_tokens), len(found.target_tokens)
    assert found.trace.cross[1][0].shape == (2, target, source)
    assert found.trace.encoder[0][0].shape == (2, source, source)
    assert found.target_tokens[-1] == "</s>"


def test_a_glossary_is_kept_to(translator: mh.Translator) -> None:
    terms = {"book": "책을 읽는다", "school": "학교에서"}
    found = translator.translate(["We read a Book at school.", "We read books."], glossary=terms)
    assert "책을 읽는다" in found[0].text
    assert "학교에서" in found[0].text
    assert found[1].text == translator.translate("We read books.").text, "books is another word"
    korean = translator.translate("학교에서 간다", glossary={"학교": "home"})
    assert "home" in korean.text, "a particle may follow"


def test_a_longer_term_stands_for_the_shorter_in_it(translator: mh.Translator) -> None:
    from manyheads.translator import TermConstraints

    terms = TermConstraints(PAIR, "", {"book": "책", "school book": "학교", "Book": "책"}, [])
    assert terms.find_required("a school book")[0] == (tuple(SUBWORDS.encode("학교")),)
    assert len(terms.find_required("a school book and a book")[0]) == 2
    assert terms.find_required("the BOOK") == ((tuple(SUBWORDS.encode("책")),), ())


def test_no_word_goes_on_from_a_term(translator: mh.Translator) -> None:
    for one in translator.translate(
        [f"{text} book" for text in lines(40)], glossary={"book": "home"}, beam=1
    ):
        assert re.search(r"(?<!\w)home(?!\w)", one.text), one.text


def test_what_cannot_be_kept_is_said(translator: mh.Translator) -> None:
    with pytest.raises(mh.RequestError, match=r"no translation of 'A book\.': what must"):
        translator.translate("A book.", glossary={"book": "책을"}, forbid=["책을"])
    with pytest.raises(mh.RequestError, match="looked for, not drawn"):
        translator.translate("A book.", glossary={"book": "책을"}, temperature=1.0)


def test_every_sentence_has_its_texts_language_tag(translator: mh.Translator) -> None:
    found = translator.translate(">>kor<< I go home. We read.")
    apart = [translator.translate(f">>kor<< {text}").text for text in ("I go home.", "We read.")]
    assert found.text == " ".join(apart)
    assert "".join(found.source_tokens).count("kor") == 2


def test_half_a_character_is_no_obstacle(translator: mh.Translator) -> None:
    assert translator.translate("a \ud800 b").sentences == 1


def test_without_splitting_each_line_is_a_sentence(translator: mh.Translator) -> None:
    assert translator.translate("I go. We read.\nA book.", split=False).sentences == 2


def test_forbidden_words_and_prefixes(translator: mh.Translator) -> None:
    likely = translator.translate("We read a book.", beam=1, prefix="우리는 책을 읽는다.", max_extra_length=0)
    assert SUBWORDS.encode_as_pieces("우리는")[0] in likely.tokens
    for one in translator.translate(lines(30), beam=1, forbid=["나", "학교에서"], temperature=1.5):
        ids = [next(n for n in range(330) if SUBWORDS.id_to_piece(n) == piece) for piece in one.tokens]
        for word in ("나", "학교에서"):
            phrase = SUBWORDS.encode(word)
            assert all(ids[n : n + len(phrase)] != phrase for n in range(len(ids)))
    begun = translator.translate("We read a book.", prefix="우리는 책을")
    assert begun.text.startswith("우리는 책을")


def test_lengths_are_kept_to(translator: mh.Translator) -> None:
    found = translator.translate(lines(10), min_length=9, max_extra_length=0)
    assert all(len(one.tokens) >= 9 for one in found)


def test_scores_of_given_translations(translator: mh.Translator) -> None:
    text = "나는 집에 간다."
    forced = {"prefix": text, "min_length": 0, "max_extra_length": -0, "beam": 1, "split": False}
    found = translator.translate("I go home.", **forced)
    again = translator.score(["I go home."], [text])[0]
    count = len(SUBWORDS.encode(text))
    assert again.tokens == found.tokens[:count]
    assert again.token_scores == pytest.approx(found.token_scores[:count], abs=1e-4)
    assert again.log_probability < sum(again.token_scores), "the end counts"
    with pytest.raises(mh.RequestError, match="2 sources, but 1 targets"):
        translator.score(["a", "b"], ["c"])


def test_an_ensemble_is_the_mean_of_its_models(tmp_path: Path, folder: Path) -> None:
    other = made(tmp_path / "other", seed=5)
    texts = lines(12)
    single = mh.load(folder, device="cpu").translate(texts)
    twins = mh.load(folder, folder, device="cpu").translate(texts)
    assert [one.text for one in twins] == [one.text for one in single]
    models = [checkpoint.load_model(one)[0] for one in (folder, other)]
    source, target = mh.Packed.of([[5, 6, 2]]), mh.Packed.of([[1, 7]])
    with torch.no_grad():
        mean = torch.stack([one(source, target).softmax(-1) for one in models]).mean(0)
        torch.testing.assert_close(Ensemble(models)(source, target), mean.log())
    mixed = mh.load(folder, other, device="cpu")
    found = mixed.translate(texts, beam=3, nbest=3)
    alone = [mixed.translate(text, beam=3, nbest=3).text for text in texts]
    assert [one.text for one in found] == alone


def test_the_engine_says_how_its_search_is_made(folder: Path) -> None:
    """On a CPU float32 by default; rounded, the search is another, and scores by forced decoding are not."""
    texts = lines(6)
    exact, plain, rounded = (
        mh.load(folder, device="cpu", engine=name) for name in ("torch:float32", "torch", "torch:bfloat16")
    )
    assert [one.text for one in exact.translate(texts)] == [one.text for one in plain.translate(texts)]
    assert isinstance(rounded.engine, TorchEngine)
    assert rounded.engine.search_model.output.weight.dtype == torch.bfloat16
    assert rounded.engine.model.output.weight.dtype == torch.float32
    assert rounded.score(texts, texts) == exact.score(texts, texts)
    found, expected = rounded.translate(texts), exact.translate(texts)
    scores = [(one.score, other.score) for one, other in zip(found, expected, strict=True)]
    assert any(one != other for one, other in scores)
    assert all(one == pytest.approx(other, abs=0.5) for one, other in scores)
    with torch.no_grad():
        rounded.engine.model.output.weight.mul_(1.5)
    rounded.engine.refresh_weights()
    changed = rounded.engine.search_model.output.weight.float()
    torch.testing.assert_close(changed, rounded.engine.model.output.weight, rtol=1e-2, atol=1e-2)


def test_wrong_calls_are_refused(folder: Path, tmp_path: Path, translator: mh.Translator) -> None:
    for wrong in ("onnx", "torch:int8"):
        with pytest.raises(mh.ConfigError, match=f"the engine is '{wrong}'"):
            mh.load(folder, engine=wrong)
    with pytest.raises(mh.CheckpointError, match="not a model folder"):
        mh.load(tmp_path / "gone")
    with pytest.raises(mh.ConfigError, match=r"unknown key search\.baem; did you mean decoding\.beam"):
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


def test_as_many_lines_come_out_as_go_in(folder: Path, tmp_path: Path) -> None:
    text = b"I go home.\r\n\n\xff\xfe bad\n  \n\xf0\x9f\x99\x82\nWe read\x0ba book\x1c now"
    done = manyheads("translate", str(folder), "--device", "cpu", text=text)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split(b"\n")
    assert len(found) == 7
    assert found[0].endswith(b"\r")
    assert [found[n] for n in (1, 3, 4, 6)] == [b"", b"  ", b"\xf0\x9f\x99\x82", b""]
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


def test_json_tells_scores_tokens_and_alternatives(folder: Path) -> None:
    text = b"I go home.\n\nWe read.\n"
    done = manyheads("translate", str(folder), "--json", "--nbest", "3", text=text)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["source"] for row in rows] == ["I go home.", "", "We read."]
    assert len(rows[0]["alternatives"]) == 2
    assert len(rows[0]["tokens"]) == len(rows[0]["token_scores"]) == len(rows[0]["alignment"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gone"], 3, "gone: not a model folder"),
        (["{folder}", "--nbest", "2"], 2, "add --json"),
        (["{folder}", "--beam", "0"], 2, "decoding.beam is 0"),
        (["{folder}", "--engine", "x"], 2, "the engine is 'x'"),
        (["{folder}", "gone.txt"], 3, "gone.txt: No such file"),
        (["{folder}", "text.gz"], 3, "text.gz: is compressed"),
        (["{folder}", "--beam", "100000"], 2, "decoding.beam is 100000"),
        (["{folder}", "--glossary", "{bad}"], 3, "line 1 is not a term, a tab and its translation"),
    ],
)
def test_a_wrong_call_is_one_line(
    folder: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "bad").write_text("book 책\n", encoding="utf-8")
    done = manyheads(
        "translate", *(one.format(folder=folder, bad=tmp_path / "bad") for one in arguments), text=b"a\n"
    )
    assert done.returncode == code, done.stderr
    assert message.encode() in done.stderr.splitlines()[-1]
    assert b"Traceback" not in done.stderr


def test_score_gives_a_line_for_each(folder: Path, tmp_path: Path) -> None:
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
    kind = chance.random()
    if kind < 0.5: return chance.choice("abc가나 .,!?")
    if kind < 0.6: return chr(chance.randrange(0x0590, 0x0700))
    if kind < 0.65: return chr(chance.randrange(0, 32)).replace(chr(10), "x")
    return chr(chance.randrange(0x110000)).encode("utf-8", "replace").decode().replace(chr(10), "x")
def lines():
    for number in range(int(sys.argv[2])):
        long = number % (int(sys.argv[2]) // int(sys.argv[3])) == 7
        yield "".join(character() for _ in range(10_000 if long else chance.randint(0, 24)))
translator = mh.load(sys.argv[1], device="cpu")
translator.source_language = sys.argv[4]
out, rows = 0, []
for one in translator.stream(lines(), beam=int(sys.argv[5]), max_extra_length=0):
    assert chr(10) not in one.text, repr(one.source)
    out += 1
    if out % (int(sys.argv[2]) // 10) == 0: rows.append(round(memory()))
print(out, *rows)
"""


def fuzzed(tmp_path: Path, count: int, long: int, language: str = "en", beam: int = 1) -> list[int]:
    tiny = replace(CONFIG, model=replace(CONFIG.model, layers=1, d_model=8, d_ff=8))
    folder = made(tmp_path / f"tiny-{language}", config=tiny)
    command = [sys.executable, "-c", FUZZ, str(folder), str(count), str(long), language, str(beam)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return [int(number) for number in done.stdout.split()]


def test_any_line_gives_a_line(tmp_path: Path) -> None:
    assert fuzzed(tmp_path, 1000, 1)[0] == 1000
    assert fuzzed(tmp_path, 500, 1, "ko", 3)[0] == 500


@pytest.mark.heavy
def test_a_hundred_thousand_lines_of_anything_and_memory_stays_flat(tmp_path: Path) -> None:
    out, *memory = fuzzed(tmp_path, 100_000, 100)
    assert out == 100_000
    print(f"MiB after each tenth: {memory}")
    assert memory[-1] < memory[1] + 100
