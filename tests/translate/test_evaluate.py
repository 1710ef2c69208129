"""Scores that carry their signature, against sacreBLEU itself and by hand."""

import json
import math
from pathlib import Path

import pytest
import sacrebleu
from test_translator import folder, lines, manyheads, save_model, translator  # noqa: F401

import manyheads as mh
from manyheads.cli.evaluation import print_evaluation
from manyheads.errors import RequestError
from manyheads.evaluate.bleu import (
    bleu,
    bleu_and_length_ratio,
    bleu_tokenizer,
    chrf,
    paper_bleu,
    split_compounds,
)
from manyheads.evaluate.report import evaluate, find_worst_sentences
from manyheads.evaluate.significance import paired_bootstrap

HYPOTHESES = ["the cat sat on the mat", "a well-known dog runs", "nothing at all here"]
REFERENCES = ["the cat sat on a mat", "a well-known dog ran away", "something else is here"]


def test_bleu_and_chrf_are_sacrebleus() -> None:
    score = bleu(HYPOTHESES, REFERENCES, "en")
    assert score.value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert "tok:13a" in score.signature
    assert chrf(HYPOTHESES, [REFERENCES], 0).value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    many = [text for text in HYPOTHESES for _ in range(20)], [text for text in REFERENCES for _ in range(20)]
    score, _ = bleu_and_length_ratio(many[0], [many[1]], "13a", 100)
    assert score.margin_of_error is not None
    assert 0 < score.margin_of_error < 30
    assert "bs:100" in score.signature
    nothing, _ = bleu_and_length_ratio(["a"] * 3, [["b c d e"] * 3], "13a", 20)
    assert (nothing.margin_of_error is None) == ("bs:20" not in nothing.signature) or nothing.value == 0


@pytest.mark.parametrize(
    ("language", "tokenizer"), [("ko", "char"), ("ko-KR", "char"), ("zh", "zh"), ("de", "13a")]
)
def test_korean_is_scored_by_characters(language: str, tokenizer: str) -> None:
    assert bleu_tokenizer(language) == tokenizer


def test_the_papers_protocol_splits_compounds() -> None:
    assert split_compounds("a well-known - dog") == "a well ##AT##-##AT## known - dog"
    plain = paper_bleu(HYPOTHESES, [REFERENCES], "en")
    by_hand = sacrebleu.corpus_bleu(
        [split_compounds(text) for text in HYPOTHESES],
        [[split_compounds(text) for text in REFERENCES]],
        tokenize="none",
        smooth_method="none",
        force=True,
    )
    assert plain.value == pytest.approx(by_hand.score)
    assert "the paper's protocol" in plain.name
    moses = paper_bleu(["it's (here)."], [["it 's ( here ) ."]], "en")
    assert moses.value > paper_bleu(["it's here"], [["it 's ( here ) ."]], "en").value


def test_worse_sentences_come_first() -> None:
    worst = find_worst_sentences(HYPOTHESES, ["s1", "s2", "s3"], [REFERENCES], 2)
    assert [sentence.line_number for sentence in worst] == [3, 2]


def test_a_difference_is_chance_or_not() -> None:
    good, bad = ["this is a good sentence here"] * 30, ["this was no good thing there"] * 30
    references = [[*["this is a good sentence here"] * 29, "x y z u v"]]
    sure = paired_bootstrap(good, bad, references, "13a", 200)
    assert [comparison.metric for comparison in sure] == ["BLEU", "chrF2"]
    assert all(comparison.p_value < 0.05 and comparison.system > comparison.baseline for comparison in sure)
    assert "is significant" in str(sure[0])
    assert all(
        comparison.p_value > 0.05 for comparison in paired_bootstrap(good, good, references, "13a", 200)
    )


def test_an_evaluation_has_everything(translator: mh.Translator) -> None:  # noqa: F811
    sources = lines(12)
    references = [lines(12, seed=2), lines(12, seed=3)]
    evaluation = evaluate(
        translator, sources, references, baseline=translator, bootstrap_samples=50, num_worst=3, beam=2
    )
    assert [score.name.split()[0] for score in evaluation.scores] == ["BLEU", "chrF", "tokenized"]
    assert "nrefs:2" in evaluation.scores[0].signature
    assert "tok:char" in evaluation.scores[0].signature
    assert "bs:50" in evaluation.scores[0].signature
    scored = translator.score(sources, references[0])
    tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in scored)
    expected = math.exp(-sum(hypothesis.log_probability for hypothesis in scored) / tokens)
    assert evaluation.perplexity == pytest.approx(expected)
    assert len(evaluation.worst_sentences) == 3
    assert all(comparison.p_value > 0.05 for comparison in evaluation.comparisons)
    with pytest.raises(mh.DataError, match="no sentences"):
        evaluate(translator, [], [[]])
    with pytest.raises(mh.RequestError, match="no tokenizer 'nonsense'"):
        evaluate(translator, sources, references, tokenize="nonsense")


def test_the_verb_reports_and_writes(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    for name, seed in (("s", 0), ("r", 1)):
        text = "".join(f"{line}\n" for line in lines(6, seed))
        (tmp_path / name).write_text(text, encoding="utf-8")
    call = [
        "evaluate",
        str(folder),
        f"{tmp_path}/s",
        f"{tmp_path}/r",
        "--bootstrap-samples",
        "20",
        "--device",
        "cpu",
    ]
    done = manyheads(*call, "--out", f"{tmp_path}/out")
    assert done.returncode == 0, done.stderr
    assert "6 sentences, by torch\nBLEU" in done.stdout.decode()
    assert len((tmp_path / "out").read_text(encoding="utf-8").splitlines()) == 6
    report = json.loads(manyheads(*call, "--json", "--baseline", str(folder)).stdout)
    assert report["scores"][0]["signature"].startswith("nrefs:1|bs:20")
    (tmp_path / "r").write_text("one\n", encoding="utf-8")
    wrong = manyheads(*call)
    assert (wrong.returncode, b"has 6 lines, but" in wrong.stderr) == (3, True)


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path, tmp_path / "file" / "out"):
        with pytest.raises(RequestError, match=r"cannot be written.*: give another path with --out"):
            print_evaluation(None, [], [], out, False, {}, None)  # type: ignore[arg-type]
