"""Translations below a confidence: one rule for all commands, and a summary on stderr."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads import cli
from manyheads.bulk.jobs import BulkJob, open_translate
from manyheads.bulk.worker import answer_chunk
from manyheads.confidence_policy import BELOW_CHOICES, ConfidenceCounts, ConfidencePolicy, describe_foreign
from manyheads.errors import RequestError
from manyheads.evaluate.report import evaluate
from support.scripted_translator import ScriptedTranslator
from support.untrained_model import calibrate_untrained_model, save_untrained_model

SURE = mh.Translation("나는 집에 간다.", "I go home.", confidence=0.9)
UNSURE = mh.Translation("나는 학교에 간다.", "I home home.", confidence=0.2, notes=["loop removed"])
UNRATED = mh.Translation("나는 잔다.", "I sleep.")
LINES = ["나는 집에 간다.", "나는 unsure 간다.", "", "I sleep."]


@pytest.mark.parametrize(
    ("below", "text"),
    [
        ("keep", "I home home."),
        ("mark", "[?] I home home."),
        ("source", "나는 학교에 간다."),
        ("empty", ""),
    ],
)
def test_only_a_translation_below_the_threshold_changes(below: str, text: str) -> None:
    policy = ConfidencePolicy(0.5, below)
    assert policy.apply(UNSURE).text == text
    assert policy.apply(UNSURE).notes == ["loop removed"]
    assert policy.apply(SURE) is SURE
    assert policy.apply(UNRATED) is UNRATED
    assert ConfidencePolicy(0.2, below).apply(UNSURE) is UNSURE, "at the threshold is not below it"


@pytest.mark.parametrize("value", [-0.1, 1.01, float("nan"), float("inf")])
def test_a_threshold_is_a_probability(value: float) -> None:
    with pytest.raises(RequestError, match=r"the minimum confidence is .*, but must be from 0 to 1"):
        ConfidencePolicy(value)


def test_an_unknown_action_names_the_known_ones() -> None:
    with pytest.raises(RequestError, match="is 'drop', but must be keep, mark, source or empty"):
        ConfidencePolicy(0.5, "drop")


def test_counts_leave_out_what_has_no_confidence() -> None:
    counts = ConfidenceCounts()
    counts.add([SURE, UNSURE, UNRATED], ConfidencePolicy())
    counts.merge(ConfidenceCounts(num_lines=2, num_below=1))
    assert asdict(counts) == {"num_lines": 5, "num_below": 2, "num_foreign": 0}
    assert ConfidencePolicy().describe(12, 3000) == "12 of 3,000 lines below confidence 0.5"


def test_counts_hold_what_was_copied_because_it_looks_like_another_language() -> None:
    copied = mh.Translation("Привет", "Привет", notes=["looks like Cyrillic, not en"])
    translated = mh.Translation("Hallo", "x", sentences=1, confidence=0.1, notes=["looks like de, not en"])
    counts = ConfidenceCounts()
    counts.add(
        [copied, translated, mh.Translation("12", "12", notes=["nothing to translate"])], ConfidencePolicy()
    )
    assert (counts.num_foreign, counts.num_below) == (1, 1)
    assert describe_foreign(1, 3) == "1 of 3 lines look like another language and are copied"
    assert describe_foreign(1, 1) == "1 of 1 line looks like another language and is copied"


# ---- the command


@pytest.fixture
def run_translate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[list[str], str]]:
    """Run `manyheads translate` on LINES from stdin, with a scripted translator."""

    def run(*options: str, is_calibrated: bool = True) -> tuple[list[str], str]:
        translator = ScriptedTranslator("ko", "en", is_calibrated=is_calibrated)
        monkeypatch.setattr("manyheads.loading.load", lambda *models, **_: translator)
        text = "".join(f"{line}\n" for line in LINES)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode("utf-8"))))
        cli.app(["translate", ".", *options], standalone_mode=False)
        out, err = capsys.readouterr()
        return out.split("\n"), err

    return run


@pytest.mark.parametrize(
    ("options", "line", "summary"),
    [
        ([], "간다. unsure 나는", " below confidence 0.5; --flag marks them"),
        (["--min-confidence", "0.3"], "간다. unsure 나는", " below confidence 0.3; --flag marks them"),
        (["--flag"], "[?] 간다. unsure 나는", " below confidence 0.5 begin with [?]"),
        (["--below", "mark"], "[?] 간다. unsure 나는", " below confidence 0.5 begin with [?]"),
        (["--below", "source"], "나는 unsure 간다.", " below confidence 0.5 are left in the source language"),
        (["--below", "empty", "--min-confidence", "0.3"], "", " below confidence 0.3 are left empty"),
    ],
)
def test_n_lines_in_are_n_lines_out(run_translate: Any, options: list[str], line: str, summary: str) -> None:
    out, err = run_translate(*options)
    assert out == ["간다. 집에 나는", line, "", "sleep. I", ""]
    assert err == f"manyheads: 1 of 4 lines{summary}\n"


def test_a_threshold_of_1_takes_all_that_have_a_confidence(run_translate: Any) -> None:
    out, err = run_translate("--min-confidence", "1", "--below", "empty")
    assert (out, err) == (
        ["", "", "", "", ""],
        "manyheads: 3 of 4 lines below confidence 1 are left empty\n",
    )


@pytest.mark.parametrize("options", [["--min-confidence", "0.1"], ["--min-confidence", "0", "--flag"]])
def test_nothing_is_said_when_nothing_is_below(run_translate: Any, options: list[str]) -> None:
    out, err = run_translate(*options)
    assert out[1] == "간다. unsure 나는"
    assert err == ""


def test_an_uncalibrated_model_says_nothing_unless_it_is_asked(run_translate: Any) -> None:
    out, err = run_translate(is_calibrated=False)
    assert (out[1], err) == ("간다. unsure 나는", "")
    for options in (["--flag"], ["--min-confidence", "0.3"], ["--below", "keep"]):
        with pytest.raises(RequestError, match=r"need a calibrated model.*run manyheads calibrate"):
            run_translate(*options, is_calibrated=False)


def test_json_has_confidence_and_notes(run_translate: Any) -> None:
    out, err = run_translate("--json", "--below", "source")
    rows = [json.loads(line) for line in out[:-1]]
    assert [row["confidence"] for row in rows] == [0.9, 0.2, None, 0.9]
    assert [row["notes"] for row in rows] == [[], ["loop removed"], [], []]
    assert rows[1]["text"] == rows[1]["source"] == LINES[1]
    assert rows[1]["tokens"] == ["간다.", "unsure", "나는"], "of the translation that was left out"
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min-confidence", "1.5"], "the minimum confidence is 1.5, but must be from 0 to 1"),
        (["--min-confidence", "nan"], "the minimum confidence is nan, but must be from 0 to 1"),
        (["--below", "drop"], "is 'drop', but must be keep, mark, source or empty"),
        (["--flag", "--below", "empty"], "--flag is short for --below mark, but --below is empty"),
    ],
)
@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_a_wrong_value_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    options: list[str],
    message: str,
    workers: list[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["manyheads", "translate", str(tmp_path), *options, *workers])
    with pytest.raises(SystemExit) as exit_info:
        cli.main()
    out, err = capsys.readouterr()
    assert (exit_info.value.code, out, err.count("\n")) == (2, "", 1)
    assert message in err


# ---- workers


@pytest.mark.parametrize("below", BELOW_CHOICES)
def test_workers_apply_the_same_rule_and_count(below: str) -> None:
    policy = ConfidencePolicy(0.5, below)
    job = BulkJob("translate", [], output="columns", confidence_policy=asdict(policy))
    translator = ScriptedTranslator("ko", "en", is_calibrated=True)
    reply = answer_chunk(open_translate(translator, job), LINES)
    expected = translator.translate(LINES)
    assert reply["columns"] == {
        "translation": [policy.choose_text(translation) for translation in expected],
        "confidence": [0.9, 0.2, None, 0.9],
    }
    assert reply["counts"] == {"num_lines": 4, "num_below": 1, "num_foreign": 0}


def test_workers_refuse_a_threshold_for_an_uncalibrated_model() -> None:
    job = BulkJob("translate", [], confidence_policy=asdict(ConfidencePolicy()))
    with pytest.raises(RequestError, match="need a calibrated model"):
        open_translate(ScriptedTranslator(), job)


def test_json_of_workers_has_confidence_and_notes() -> None:
    translator = ScriptedTranslator("ko", "en", is_calibrated=True)
    reply = answer_chunk(open_translate(translator, BulkJob("translate", [], output="json")), LINES)
    rows = [json.loads(line) for line in reply["columns"]["json"]]
    assert (rows[1]["confidence"], rows[1]["notes"]) == (0.2, ["loop removed"])
    assert reply["counts"]["num_below"] == 1


# ---- a calibrated model, from command to output


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_untrained_model(tmp_path_factory.mktemp("calibrated") / "model")
    return calibrate_untrained_model(folder)


def manyheads(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "manyheads", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8")


def test_a_pipe_workers_and_the_library_agree(calibrated: Path, tmp_path: Path) -> None:
    lines = [f"I go home {n}. 나는 책을 {n}번 읽는다." for n in range(60)] + [""]
    expected = mh.load(calibrated, device="cpu").translate(lines, scores="total")
    confidences = [translation.confidence for translation in expected]
    assert confidences.pop() is None, "of an empty line"
    threshold = round(sorted(confidences)[20], 3)
    policy = ConfidencePolicy(threshold, "mark")
    num_below = sum(confidence < threshold for confidence in confidences)
    options = ["--min-confidence", threshold, "--flag", "--device", "cpu"]
    text = "".join(f"{line}\n" for line in lines)
    for more in ([], ["--workers", 2]):
        done = manyheads("translate", calibrated, *options, *more, text=text)
        assert done.stdout.split("\n")[:-1] == [policy.choose_text(translation) for translation in expected]
        assert done.stderr == (
            f"manyheads: {num_below} of 61 lines below confidence {threshold:g} begin with [?]\n"
        )


def test_parquet_gets_a_column_of_confidences_and_a_job_of_another_rule_is_refused(
    calibrated: Path, tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"en": ["I go.", "", "We read."]}), tmp_path / "a.parquet")
    job = ["translate", calibrated, tmp_path / "a.parquet", "--out", tmp_path / "out", "--device", "cpu"]
    done = manyheads(*job, "--min-confidence", "1", "--below", "empty")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("manyheads: 2 of 3 lines below confidence 1 are left empty\n")
    table = pq.read_table(tmp_path / "out" / "a.parquet")
    assert table.column_names == ["en", "translation", "confidence"]
    assert table["translation"].to_pylist() == ["", "", ""]
    assert [value is None for value in table["confidence"].to_pylist()] == [False, True, False]
    other = manyheads(*job)
    assert other.returncode == 3
    assert "holds the shards of another job (confidence_policy was" in other.stderr


def test_an_uncalibrated_model_refuses_a_threshold_in_one_line(tmp_path: Path) -> None:
    model = save_untrained_model(tmp_path / "model")
    for more in ([], ["--workers", 1]):
        done = manyheads("translate", model, "--flag", "--device", "cpu", *more, text="I go.\n")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert "need a calibrated model" in done.stderr


def test_inspect_says_whether_a_model_is_calibrated(calibrated: Path, tmp_path: Path) -> None:
    assert "\n# calibrated, ECE 0.010; AUROC of held-out text against shuffled 0.980\n" in (
        manyheads("inspect", calibrated).stdout
    )
    measures = json.loads(manyheads("inspect", calibrated, "--json").stdout)["calibration"]
    assert measures == {"ece": 0.01, "auroc.shuffled": 0.98}
    plain = save_untrained_model(tmp_path / "model")
    assert "\n# not calibrated: its translations have no confidence" in manyheads("inspect", plain).stdout
    assert json.loads(manyheads("inspect", plain, "--json").stdout)["calibration"] is None


def test_evaluate_reports_confidences(calibrated: Path, tmp_path: Path) -> None:
    sources, references = ["I go home.", "We read a book."], ["나는 집에 간다.", "우리는 책을 읽는다."]
    translator = mh.load(calibrated, device="cpu")
    result = evaluate(translator, sources, [references], bootstrap_samples=0)
    expected = translator.translate(sources, split=False, scores="total")
    assert result.confidences == [translation.confidence for translation in expected]
    assert "\nmean confidence " in result.to_text()
    plain = mh.load(save_untrained_model(tmp_path / "model"), device="cpu")
    uncalibrated = evaluate(plain, sources, [references], bootstrap_samples=0)
    assert uncalibrated.confidences == [None, None]
    assert "confidence" not in uncalibrated.to_text()


def test_every_sentence_has_its_own_confidence_if_details_are_read(calibrated: Path) -> None:
    translator = mh.load(calibrated, device="cpu")
    whole = translator.translate("I go home. We read a book.\n나는 간다.")
    alone = [translator.translate(text) for text in ("I go home.", "We read a book.", "나는 간다.")]
    assert [text for text, _ in whole.sentence_confidences] == [translation.text for translation in alone]
    assert [value for _, value in whole.sentence_confidences] == pytest.approx(
        [translation.confidence for translation in alone]
    )
    assert translator.translate("I go home.", scores="total").sentence_confidences == []
