"""The text that a teacher translates, and the data folder that a student learns from."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import manyheads as mh
from manyheads.atomic_io import compute_checksum
from manyheads.cli.distill import describe_command, split_arguments
from manyheads.config import AugmentationConfig, DistillConfig, Recipe
from manyheads.data.prepare import prepare
from manyheads.data.store import Store
from manyheads.distill import source_text
from manyheads.distill.plan import build_student_config
from manyheads.distill.source_text import read_parts, write_source_text
from manyheads.distill.student_data import build_recipe, prepare_student_data, read_counts, write_pairs
from manyheads.presets import get_preset
from manyheads.progress import Progress
from manyheads.train.model_card import format_license
from support.distillation import make_plan
from support.small_run import PAIRS, make_config
from support.untrained_model import save_untrained_model

SILENT = Progress().update


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of two inputs, the second with a weight and a license, and an untrained teacher."""
    here = tmp_path_factory.mktemp("distill")
    for name, pairs in (("a", PAIRS[:100]), ("b", PAIRS[100:])):
        for side, code in enumerate(("en", "ko")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (here / f"{name}.{code}").write_text(text, encoding="utf-8")
    inputs = [
        {"files": [f"{here}/a.en", f"{here}/a.ko"]},
        {
            "files": [f"{here}/b.en", f"{here}/b.ko"], "name": "b", "weight": 4.0,
            "license": "CC BY 2.0 FR", "attribution": "the Tatoeba project",
        },
    ]  # fmt: skip
    recipe = {"train": inputs, "subwords": {"vocab_size": 330}, "corpus": {"hold_out": 7}}
    prepare(Recipe.from_mapping(recipe), here / "data")
    plain = {**recipe, "subwords": {"vocab_size": 100, "copy_symbols": False, "byte_fallback": False}}
    prepare(Recipe.from_mapping(plain), here / "plain")
    save_untrained_model(here / "teacher")
    return here


@pytest.fixture
def make_small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_text, "SHARD_LINES", 40)
    monkeypatch.setattr(source_text, "CHUNK_LINES", 7)


def translate_badly(plan: object, *dropped: str) -> None:
    """Write an n-best list for each line: the source in capitals, or nothing for sources to drop."""
    plan.translation_folder.mkdir()  # type: ignore[attr-defined]
    for path in plan.text_folder.glob("*.en"):  # type: ignore[attr-defined]
        rows = [
            [[-0.5, None, "" if text in dropped else f"가 {text.upper()}"]]
            for text in path.read_text(encoding="utf-8").splitlines()
        ]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (plan.translation_folder / path.name).write_text(lines, encoding="utf-8")  # type: ignore[attr-defined]


@pytest.mark.usefixtures("make_small_shards")
def test_sources_and_references_are_the_text_of_the_training_pairs(folder: Path, tmp_path: Path) -> None:
    plan = make_plan(folder / "data", tmp_path / "run", folder / "teacher", choose="chrf")
    write_source_text(plan, SILENT)
    texts = {
        code: [
            line
            for path in sorted(plan.text_folder.glob(f"*.{code}"))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        for code in ("en", "ko")
    }
    held_out = {
        line for split in ("valid", "test") for line in Store.open(folder / "data").read_text(split)[0]
    }
    assert list(zip(texts["en"], texts["ko"], strict=True)) == [p for p in PAIRS if p[0] not in held_out]
    parts = read_parts(plan)
    assert [(part.name, part.weight) for part in parts] == [("a", 1.0), ("b", 4.0)]
    assert [len(part.shards) for part in parts] == [3, 1]
    assert (parts[1].license, parts[1].attribution) == ("CC BY 2.0 FR", "the Tatoeba project")
    before = (plan.text_folder / "parts.json").stat().st_mtime_ns
    write_source_text(plan, SILENT)  # complete
    assert (plan.text_folder / "parts.json").stat().st_mtime_ns == before


@pytest.mark.usefixtures("make_small_shards")
@pytest.mark.parametrize(("choose", "num_skipped"), [("score", 2), ("chrf", 3)])
def test_pairs_with_unknown_characters_are_skipped(
    folder: Path, tmp_path: Path, choose: str, num_skipped: int
) -> None:
    """Without byte fallback, rare characters are unknown: their text is lost, and would read as " ⁇ "."""
    for side, code in enumerate(("en", "ko")):
        texts = [pair[side] for pair in PAIRS[:100]]
        texts[3] += "Ж" if side == 0 else ""
        texts[50] += "Ж"
        texts[60] += "Ж" if side == 1 else ""
        (tmp_path / f"c.{code}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    inputs = [{"files": [f"{tmp_path}/c.en", f"{tmp_path}/c.ko"]}]
    recipe = {"train": inputs, "subwords": {"reuse_from": f"{folder}/plain"}, "corpus": {"hold_out": 0}}
    prepare(Recipe.from_mapping(recipe), tmp_path / "data")
    plan = make_plan(tmp_path / "data", tmp_path / "run", folder / "teacher", choose=choose)
    write_source_text(plan, SILENT)
    (part,) = read_parts(plan)
    assert (part.num_unknown, part.lines) == (num_skipped, len(plan.store.load_split("train")) - num_skipped)
    files = sorted(plan.text_folder.glob("*.en"))
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == part.lines
    assert all(line.isascii() for line in lines)


@pytest.mark.usefixtures("make_small_shards")
def test_the_student_learns_the_translations_with_the_subwords_of_the_data(
    folder: Path, tmp_path: Path
) -> None:
    mono = tmp_path / "mono.en"
    mono.write_text("She  sees 99 books.\n\n" + "x" * 3000 + "\nHe buys 98 apples.\n", encoding="utf-8")
    plan = make_plan(folder / "data", tmp_path / "run", folder / "teacher", monolingual=[mono])
    write_source_text(plan, SILENT)
    assert not list(plan.text_folder.glob("*.ko"))
    dropped = (plan.text_folder / "00-00000.en").read_text(encoding="utf-8").splitlines()[3]
    translate_badly(plan, dropped)
    write_pairs(plan, SILENT)
    assert sum(read_counts(plan), Counter()) == {"kept": 131, "empty": 1}
    prepare_student_data(plan, SILENT)
    original, store = plan.store, Store.open(plan.data_folder)
    assert store.subwords.is_same_as(original.subwords)
    assert store.read_text("test") == original.read_text("test")
    assert store.read_text("valid") == original.read_text("valid")
    split = store.load_split("train")
    assert [part[:2] for part in split.parts] == [
        ("a, distilled", 1.0), ("b, distilled", 4.0), ("mono.en, distilled", 1.0),
    ]  # fmt: skip
    assert store.subwords.target.decode(split.target[len(split) - 1].tolist()) == "가 HE BUYS 98 APPLES."
    licenses = format_license(store, None)
    assert "- a, distilled: not stated" in licenses
    assert "- b, distilled: CC BY 2.0 FR. Attribution: the Tatoeba project\n" in licenses


@pytest.mark.usefixtures("make_small_shards")
def test_original_pairs_are_mixed_in_by_weights(folder: Path, tmp_path: Path) -> None:
    mono = tmp_path / "mono.en"
    mono.write_text("She sees 99 books.\n", encoding="utf-8")
    plan = make_plan(
        folder / "data",
        tmp_path / "run",
        folder / "teacher",
        original_share=0.25,
        vocab_size=340,
        monolingual=[mono],
    )
    write_source_text(plan, SILENT)
    texts = (plan.text_folder / "00-00000.en").read_text(encoding="utf-8").splitlines()
    translate_badly(plan, *texts[:30])
    write_pairs(plan, SILENT)
    weights = {entry.name: entry.weight for entry in build_recipe(plan).train}
    for part in read_parts(plan)[:2]:
        num_kept = part.lines - 30 if part.name == "a" else part.lines
        original = weights[part.name] * part.lines
        assert original / (original + weights[f"{part.name}, distilled"] * num_kept) == pytest.approx(0.25)
        assert weights[f"{part.name}, distilled"] == part.weight
    assert weights["mono.en, distilled"] == 1.0
    prepare_student_data(plan, SILENT)
    store = Store.open(plan.data_folder)
    assert len(store.subwords.source) == 340
    assert len(store.load_split("train")) == 2 * len(plan.store.load_split("train")) - 30 + 1


def test_a_student_may_have_the_subwords_of_another_folder(folder: Path, tmp_path: Path) -> None:
    plan = make_plan(folder / "data", tmp_path / "run", folder / "teacher", subwords=str(folder / "plain"))
    plan.check()
    write_source_text(plan, SILENT)
    translate_badly(plan)
    write_pairs(plan, SILENT)
    prepare_student_data(plan, SILENT)
    other = Store.open(folder / "plain").subwords
    assert Store.open(plan.data_folder).subwords.is_same_as(other)
    assert not plan.store.subwords.is_same_as(other)
    moved = tmp_path / "moved"
    shutil.copytree(folder / "plain", moved)
    again = make_plan(folder / "data", tmp_path / "run", folder / "teacher", subwords=str(moved))
    assert again.list_settings() == plan.list_settings(), "what counts is which subwords they are"


def test_subwords_that_exist_have_no_size_to_choose() -> None:
    with pytest.raises(mh.ConfigError, match=r"distill.subwords is 'data' and distill.vocab_size is 340"):
        DistillConfig(subwords="data", vocab_size=340)


def test_scores_of_judged_files_do_not_apply_to_the_pairs_of_the_student(
    folder: Path, tmp_path: Path
) -> None:
    """What was judged bad is not in the data, so that the teacher never saw it."""
    plan = make_plan(folder / "data", tmp_path / "run", folder / "teacher")
    plan.store.manifest["recipe"]["clean"].update(judged="gone", keep=0.9)
    write_source_text(plan, SILENT)
    translate_badly(plan)
    write_pairs(plan, SILENT)
    prepare_student_data(plan, SILENT)
    assert len(Store.open(plan.data_folder).load_split("train")) == len(plan.store.load_split("train"))


def test_filters_that_leave_nothing_are_an_error(folder: Path, tmp_path: Path) -> None:
    plan = make_plan(folder / "data", tmp_path / "run", folder / "teacher", min_score=-0.1)
    write_source_text(plan, SILENT)
    translate_badly(plan)
    with pytest.raises(mh.DataError, match="no pair is left: low score 130"):
        write_pairs(plan, SILENT)
    assert not plan.pair_folder.exists()


def test_plans_that_cannot_work_are_refused_at_once(folder: Path, tmp_path: Path) -> None:
    data, teacher = folder / "data", folder / "teacher"
    with pytest.raises(mh.RequestError, match=r"--min-confidence is 0\.5, but needs one calibrated teacher"):
        make_plan(data, tmp_path, teacher, min_confidence=0.5).check()
    with pytest.raises(mh.CheckpointError, match="not a model folder"):
        make_plan(data, tmp_path, tmp_path).check()
    with pytest.raises(mh.DataError, match="gone: not a file, but --mono is"):
        make_plan(data, tmp_path, teacher, monolingual=[tmp_path / "gone"]).check()
    other = tmp_path / "de"
    shutil.copytree(teacher, other)
    manifest = json.loads((other / "manyheads.json").read_text(encoding="utf-8"))
    manifest["languages"]["target"] = "de"
    manifest["sha256"] = compute_checksum(manifest)
    (other / "manyheads.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(mh.RequestError, match="translates en to de, but the data is en to ko"):
        make_plan(data, tmp_path, other).check()


def test_a_student_that_copies_needs_subwords_with_copy_symbols(folder: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path / "data")
    student = replace(config, augmentation=AugmentationConfig(copied=0.1))
    plan = make_plan(folder / "plain", tmp_path, folder / "teacher", student)
    with pytest.raises(mh.DataError, match=r"augmentation\.copied needs the copy symbols"):
        plan.check()
    make_plan(folder / "plain", tmp_path, folder / "teacher", student, vocab_size=340).check()
    make_plan(folder / "data", tmp_path, folder / "teacher", student).check()


def test_a_setting_is_fixed_when_its_stage_has_written_something(folder: Path, tmp_path: Path) -> None:
    plan = make_plan(folder / "data", tmp_path, folder / "teacher", choose="chrf")
    folders = {
        "pairs": {"distill.choose", "distill.min_confidence", "distill.min_score", "distill.original_share"},
        "data": {"distill.vocab_size", "distill.subwords"},
        "student/checkpoints/step-00000007": {"train.steps", "augmentation.copied", "model.layers"},
        "model": {"train.micro_tokens"},
    }
    free = set.union(*folders.values())
    for name, fixed in folders.items():
        assert not any(map(plan.is_fixed, free))
        (tmp_path / name).mkdir(parents=True)
        free -= fixed
        assert all(map(plan.is_fixed, fixed))
    settings = plan.list_settings()
    assert "data.folder" not in settings
    always = ("teachers", "--data", "--mono", "--engine", "distill.beam", "distill.nbest")
    assert all(map(plan.is_fixed, always))
    assert (settings["references needed"], settings["hypotheses per sentence"]) == (True, 4)


def test_a_run_may_be_moved(folder: Path, tmp_path: Path) -> None:
    settings = [
        make_plan(folder / "data", tmp_path / name, folder / "teacher").list_settings() for name in "ab"
    ]
    assert settings[0] == settings[1]


def test_a_student_without_augmentation_gets_the_teachers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = build_student_config("student", folder / "teacher", tmp_path / "data", ["train.steps=7"])
    assert student.model == get_preset("student").model
    assert (student.train.steps, student.train.card) == (7, False)
    assert student.data.folder == str(tmp_path / "data")
    assert not student.augmentation.rates
    manifest = {"config": {"augmentation": {"typos": 0.1}}}
    monkeypatch.setattr("manyheads.checkpoint.read_model_manifest", lambda folder: manifest)
    for changes, expected in (([], {"typos": 0.1}), (["augmentation.typos=0"], {})):
        config = build_student_config("student", folder / "teacher", tmp_path, changes)
        assert config.augmentation == AugmentationConfig(**expected)
    own = tmp_path / "own.toml"
    own.write_text("[augmentation]\nlower = 0.2\n", encoding="utf-8")
    config = build_student_config(str(own), folder / "teacher", tmp_path)
    assert config.augmentation == AugmentationConfig(lower=0.2)


def test_arguments_are_teachers_or_assignments(folder: Path) -> None:
    teacher = str(folder / "teacher")
    assert split_arguments([teacher, "train.steps=2"]) == ((folder / "teacher",), ["train.steps=2"])
    with pytest.raises(mh.RequestError, match="no teacher is given"):
        split_arguments(["train.steps=2"])
    config = DistillConfig(choose="chrf")
    command = describe_command([teacher], Path("data"), "student", Path("out"), config, [])
    shown = "/".join(folder.parts[-1:])
    assert command == (
        f"manyheads distill {shown}/teacher --data data --preset student --out out --choose chrf"
    )
