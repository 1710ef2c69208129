"""The state of a distillation, its report, and the card of the student."""

import json
from pathlib import Path

import pytest

import manyheads as mh
from manyheads.distill.report import format_report, write_report
from manyheads.distill.state import DistillState
from manyheads.train.distilled_card import find_run, format_distillation, format_student_scores
from support.distillation import REPORT, make_speed


def test_the_report_compares_student_and_teacher_in_the_same_setting(tmp_path: Path) -> None:
    text = format_report(REPORT)
    assert "# A student of big/model, en to de\n\n`manyheads distill big/model --data data --out run`" in text
    assert (
        "| newstest2014 | student, int8 | beam 4 | 29.60 ± 0.50 | -0.40 | 50.00 ± 0.50 | 0.990 | torch |"
        in text
    )
    assert "| newstest2014 | student, int8 | greedy | 29.10 ± 0.50 | -0.40 |" in text
    assert "| ctranslate2:int8 | greedy | 16 | 100 | 1,250 | 12.5 |" in text
    assert "- BLEU: `nrefs:1|tok:13a`" in text
    assert "| student, int8 | 17.9 |" in text
    assert "- 7 pairs skipped: characters that the subwords" in text
    assert "- 1,000 sources translated by the teacher\n- 60 dropped: empty\n- 40 dropped: low score" in text
    assert "| translate them | 20.0 |" in text
    assert "| all | 24.5 |" in text
    write_report(tmp_path, REPORT)
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == REPORT


def test_what_could_not_be_measured_is_a_dash() -> None:
    speed = [make_speed("teacher", None), make_speed("student, int8", 1250.0)]
    text = format_report({**REPORT, "speed": speed, "quality": []})
    assert "| ctranslate2:int8 | greedy | 16 | - | 1,250 | - |" in text
    assert "Not measured: the data has no held-out pairs." in text


def test_the_card_names_the_teacher_and_the_scores_by_the_own_beam_first() -> None:
    lines = list(format_distillation(REPORT))
    assert lines[:6] == [
        "- teacher: big/model, 250.0 MB",
        "- its translations by beam 4, the one closest to the reference by chrf",
        "- pairs below confidence 0.5 left out",
        "- 25% of what it read of parallel text were original pairs",
        "- monolingual text: news.en",
        "- 880 pairs after cleaning; weights rounded to int8 after training",
    ]
    assert "| newstest2014 | student, int8 | greedy | 29.10 ± 0.50 | 50.00 ± 0.50 |" in lines[-1]
    scores = list(format_student_scores(REPORT, beam=1))
    assert scores[0] == "- newstest2014, all lines, by torch, greedy:"
    assert scores[1] == "  - BLEU 29.10 ± 0.50 (`nrefs:1|tok:13a`)"
    assert len(scores) == 6


def test_the_run_of_a_model_is_found_beside_it(tmp_path: Path) -> None:
    assert find_run(tmp_path / "model") == (None, None)
    (tmp_path / "student" / "checkpoints").mkdir(parents=True)
    assert find_run(tmp_path / "model") == (None, None)
    write_report(tmp_path, REPORT)
    assert find_run(tmp_path / "model") == (tmp_path / "student", REPORT)
    (tmp_path / "report.json").write_text("[", encoding="utf-8")
    with pytest.raises(mh.DataError, match="not a report: delete it"):
        find_run(tmp_path / "model")
    assert find_run(tmp_path / "student" / "model") == (tmp_path / "student", None)


def test_a_changed_configuration_is_refused_by_name(tmp_path: Path) -> None:
    settings = {"teachers": ["a"], "--data": "1", "distill.beam": 4, "train.steps": 10}
    state = DistillState.open(tmp_path, settings, "the command")
    state.add_seconds("text", 1.5)
    state.mark_done("text")
    state.add_seconds("translate", 1.0)
    again = DistillState.open(tmp_path, settings)
    again.add_seconds("translate", 2.0)
    again.mark_done("translate")
    assert (again.command, again.done) == ("the command", ["text", "translate"])
    assert again.seconds == {"text": 1.5, "translate": 3.0}
    with pytest.raises(mh.ConfigError, match=r"\(distill\.beam was 4, is 5; train\.steps was 10, is 20\)"):
        DistillState.open(tmp_path, {**settings, "distill.beam": 5, "train.steps": 20})
    with pytest.raises(mh.ConfigError, match=r"\(the teachers are others; the data is another one"):
        DistillState.open(tmp_path, {**settings, "teachers": ["b"], "--data": "2"})
    many = {f"train.{n}": n for n in range(9)}
    (tmp_path / "many").mkdir()
    DistillState.open(tmp_path / "many", many)
    with pytest.raises(mh.ConfigError, match="4 more"):
        DistillState.open(tmp_path / "many", dict.fromkeys(many, -1))


def test_a_setting_may_change_until_it_decided_something(tmp_path: Path) -> None:
    settings = {"distill.beam": 4, "train.steps": 10, "data.folder": "of an older version"}
    DistillState.open(tmp_path, settings, "the command")
    changed = {"distill.beam": 4, "train.steps": 20, "new": 1}
    state = DistillState.open(tmp_path, changed, "another command", lambda key: key == "distill.beam")
    assert state == DistillState.read(tmp_path)
    assert (state.settings, state.command) == (changed, "another command")
    with pytest.raises(mh.ConfigError, match=r"\(train\.steps was 20, is 30\)"):
        DistillState.open(tmp_path, {**changed, "train.steps": 30})


def test_a_measurement_is_made_once(tmp_path: Path) -> None:
    state = DistillState.open(tmp_path, {})
    assert state.measure("speed", lambda: 3.5) == 3.5
    again = DistillState.open(tmp_path, {})
    assert again.measure("speed", lambda: 4.0) == 3.5
    for stage in ("quantize", "report"):
        again.add_seconds(stage, 1.0)
        again.mark_done(stage)
    again.forget_measurements()
    assert (again.done, again.seconds) == (["quantize"], {"quantize": 1.0})
    assert DistillState.open(tmp_path, {}).measure("speed", lambda: 4.0) == 4.0


def test_folders_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(mh.DataError, match=r"holds letter\.txt and no distill\.json"):
        DistillState.open(tmp_path, {})
    for damage in ("{", '{"format": 1, "colour": 2}', '{"format": 7}'):
        (tmp_path / "distill.json").write_text(damage, encoding="utf-8")
        with pytest.raises(mh.DataError, match="choose another folder with --out"):
            DistillState.open(tmp_path, {})
