"""Corrections in translations, on the command line and in model folders that are rewritten."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import manyheads as mh
from manyheads import checkpoint
from manyheads.bulk.jobs import BulkJob, open_job
from manyheads.bulk.model_files import read_model_files, write_model_files
from manyheads.cli import app
from manyheads.memory.database import CorrectionDatabase
from support.untrained_model import calibrate_untrained_model, save_untrained_model

HOME, RIGHT = "I go home.", "나는 집에 간다."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_untrained_model(tmp_path / "model")


@pytest.fixture
def translator(folder: Path) -> mh.Translator:
    return mh.load(folder, device="cpu")


def correct(folder: Path, *pairs: tuple[str, str], space: str = "default") -> None:
    CorrectionDatabase(folder / "memory" / "corrections.sqlite").add(space, pairs, "mina")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_a_correction_is_used_at_once_and_undo_restores_the_text_exactly(
    folder: Path, translator: mh.Translator
) -> None:
    before = translator.translate([HOME, "We read."])
    correct(folder, (HOME, RIGHT))
    after = translator.translate([HOME, "We read."])
    assert [result.text for result in after] == [RIGHT, before[1].text]
    assert (after[0].notes, after[0].sentences, after[0].confidence) == (["from a correction"], 0, None)
    (match,) = after[0].corrections
    assert (match.match, match.source, match.target, match.who) == ("exact", HOME, RIGHT, "mina")
    assert json.loads(json.dumps(after[0].to_dict()))["corrections"][0]["similarity"] == 1
    assert after[1].corrections == []
    assert [result.text for result in translator.stream([HOME, "We read."])] == [RIGHT, before[1].text]
    assert translator.memory is not None
    translator.memory.undo()
    assert translator.translate([HOME, "We read."]) == before


def test_a_sentence_of_a_text_is_corrected_and_the_rest_is_translated(
    folder: Path, translator: mh.Translator
) -> None:
    (before,) = translator.translate(["We read."])
    correct(folder, (HOME, RIGHT))
    (result,) = translator.translate([f" {HOME}  We read.\n\n{HOME}\n"])
    assert result.text == f" {RIGHT}  {before.text}\n\n{RIGHT}\n"
    assert result.sentences == 1


def test_numbers_are_adapted_and_similar_corrections_are_shown_beside_the_translation(
    folder: Path, translator: mh.Translator
) -> None:
    (before,) = translator.translate(["I go home now."])
    correct(folder, ("Page 12 of 30.", "30쪽 중 12쪽."), (HOME, RIGHT))
    adapted, similar = translator.translate(["Page 13 of 30.", "I go home now."])
    assert (adapted.text, adapted.notes) == ("30쪽 중 13쪽.", ["from a correction, adapted"])
    assert (similar.text, similar.notes[0]) == (before.text, "similar to a correction")
    assert [(match.match, match.target) for match in similar.corrections] == [("similar", RIGHT)]


def test_what_a_call_requests_goes_before_corrections(folder: Path, translator: mh.Translator) -> None:
    correct(folder, (HOME, RIGHT))
    for options in (
        {"prefix": "집"},
        {"forbid": ["집에"]},
        {"glossary": {"home": "집"}},
        {"temperature": 1.0},
        {"corrections": False},
        {"corrections": "another-space"},
    ):
        assert not any(match.is_used for match in translator.translate(HOME, **options).corrections), options
    assert translator.translate(HOME, glossary={"book": "책"}).text == RIGHT
    correct(folder, (HOME, "of mina"), space="mina")
    assert translator.translate(HOME, corrections="mina").text == "of mina"
    assert translator.translate(HOME).text == RIGHT


def test_measurements_and_synthetic_text_are_those_of_the_model(
    folder: Path, translator: mh.Translator
) -> None:
    from manyheads.evaluate.bleu import greedy_bleu

    plain = translator.translate(HOME, beam=1).text
    correct(folder, (HOME, RIGHT))
    assert greedy_bleu(translator, [HOME], [RIGHT])[1] == [plain]
    job = BulkJob("backtranslate", [str(folder)], device="cpu", backtranslation={})
    assert RIGHT not in str(open_job(job)([HOME]).columns)
    assert open_job(BulkJob("translate", [str(folder)], device="cpu"))([HOME]).columns == {
        "translation": [RIGHT]
    }


def test_a_model_folder_that_is_rewritten_or_sent_keeps_its_corrections(folder: Path, tmp_path: Path) -> None:
    correct(folder, (HOME, RIGHT))
    calibrate_untrained_model(folder)
    assert mh.load(folder, device="cpu").translate(HOME).text == RIGHT
    model, subwords, info = checkpoint.load_model(folder)
    weights = checkpoint.collect_weights(model)
    checkpoint.save(folder, weights, subwords, info.config, step=2, languages=info.languages)
    assert mh.load(folder, device="cpu").translate(HOME).text == RIGHT
    write_model_files(tmp_path / "sent", read_model_files(folder))
    assert mh.load(tmp_path / "sent", device="cpu").translate(HOME).text == RIGHT


def test_a_folder_that_a_killed_process_left_half_written_is_replaced(folder: Path) -> None:
    left = folder.with_name(f".{folder.name}.manyheads-part")
    (left / "memory").mkdir(parents=True)
    (left / "memory" / "corrections.sqlite").touch()
    calibrate_untrained_model(folder)
    assert not left.exists()


def test_the_commands_correct_list_undo_and_export(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "corrections.tsv"
    file.write_text(f"{HOME}\t{RIGHT}\nWe read.\t우리는 읽는다.\n", encoding="utf-8")
    assert run("correct", folder, file, "--who", "mina").startswith("2 corrections added as number 1 (")
    run("correct", folder, "--source", HOME, "--target", "집에 가.")
    lines = tmp_path / "lines.en"
    lines.write_text(f"{HOME}\nWe read.\n", encoding="utf-8")
    translate = ("translate", folder, lines, "--device", "cpu", "--no-confidence")
    assert run(*translate) == "집에 가.\n우리는 읽는다.\n"
    listed = [line.split("\t") for line in run("correct", folder, "--list").splitlines()]
    assert [row[0] for row in listed] == ["1", "1", "2"]
    assert listed[1][2:] == ["mina", "We read.", "우리는 읽는다."]
    assert run("correct", folder, "--undo") == "1 corrections of number 2 undone\n"
    assert run(*translate).startswith(RIGHT)
    run("correct", folder, "--export", tmp_path / "out.tsv")
    assert (tmp_path / "out.tsv").read_text(encoding="utf-8") == file.read_text(encoding="utf-8")
    assert json.loads(run("correct", folder, "--undo", "--number", 1, "--json"))["undone"] == 2
    assert RIGHT not in run(*translate)
    assert run("correct", folder, "--list", "--json") == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a FILE, or --source with --target"),
        (["--list", "--undo"], "give a FILE, or --source with --target"),
        (["--source", "x"], "needs both --source and --target"),
        (["--undo"], "nothing to undo: the space default has no corrections in force"),
        (["--list", "--number", "3"], "--number is for --undo"),
        (["--list", "--space", "a b"], "the space is 'a b'"),
    ],
)
def test_a_wrong_call_of_correct_says_what_to_do(folder: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(mh.RequestError, match=message):
        run("correct", folder, *arguments)


def test_a_file_with_a_wrong_line_adds_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(f"{HOME}\t{RIGHT}\nonly a source\n", encoding="utf-8")
    with pytest.raises(mh.DataError, match="line 2 is no correction"):
        run("correct", folder, tmp_path / "a.tsv")
    assert run("correct", folder, "--list") == ""
