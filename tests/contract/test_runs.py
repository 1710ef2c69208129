"""Every recipe under runs/ loads, and says what it means to say."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import convergence_table
import manyheads as mh
from manyheads.config import Recipe
from manyheads.data.prepare import prepare
from manyheads.presets import BASE, BIG, STUDENT

RUNS = Path(__file__).parents[2] / "runs"


@pytest.mark.parametrize("path", sorted(RUNS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_loads(path: Path) -> None:
    assert mh.Config.load(path).data.folder != "data"


def test_base_and_big_are_the_papers() -> None:
    base, big = (mh.Config.load(RUNS / f"{name}.toml") for name in ("base", "big"))
    assert (base.model, big.model) == (BASE, BIG)
    for config, steps, averaged in ((base, 100_000, 5), (big, 300_000, 20)):
        assert (config.train.steps, config.train.average_checkpoints) == (steps, averaged)
        assert (config.train.warmup, config.train.schedule, config.train.learning_rate) == (
            4000,
            "paper",
            None,
        )
        assert (config.train.beta1, config.train.beta2, config.train.epsilon) == (0.9, 0.98, 1e-9)
        assert (config.train.label_smoothing, config.data.batch_tokens) == (0.1, 25_000)


def test_the_student_is_the_preset_and_hears_the_noise_of_its_teacher() -> None:
    student, teacher = (mh.Config.load(RUNS / f"{name}.toml") for name in ("student", "europarl"))
    assert replace(student.model, vocab_size=STUDENT.vocab_size) == STUDENT
    assert student.augmentation == teacher.augmentation
    assert student.decoding.beam == 1
    assert student.train.seconds + teacher.train.seconds < 2000


@pytest.mark.parametrize("path", sorted((RUNS / "data").glob("*.toml")), ids=lambda path: path.stem)
def test_every_corpus_states_its_license(path: Path) -> None:
    recipe = Recipe.load(path)
    assert not [entry.name for entry in recipe.train if not (entry.license and entry.attribution)]


@pytest.mark.parametrize("name", ["europarl", "koen", "base", "big", "student"])
def test_recipes_augment_a_small_share_of_the_pairs(name: str) -> None:
    config = mh.Config.load(RUNS / f"{name}.toml").augmentation
    assert 0.1 < sum(config.noise_rates.values()) < 0.55
    assert 0 < config.copied < 0.1


def test_measured_results_without_augmentation_stay_reproducible() -> None:
    assert not mh.Config.load(RUNS / "multi30k.toml").augmentation.rates


# ---- scripts


def run_shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'. "{RUNS}/limits.sh"\n{script}']
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("path", sorted(RUNS.glob("*.sh")), ids=lambda path: path.stem)
def test_every_script_is_valid(path: Path) -> None:
    assert subprocess.run(["sh", "-n", str(path)], capture_output=True, text=True).stderr == ""


def test_a_command_over_its_limit_ends_with_the_code_of_what_can_be_resumed(tmp_path: Path) -> None:
    assert run_shell("limited 1 sleep 5", tmp_path).returncode == 75
    assert run_shell("limited 5 sh -c 'exit 3'", tmp_path).returncode == 3
    assert run_shell("LIMIT=0; limited 5 touch began", tmp_path).returncode == 75
    assert not (tmp_path / "began").exists()


def test_a_result_is_written_whole_or_not_at_all_and_only_once(tmp_path: Path) -> None:
    run_shell("measure new/half.txt 5 sh -c 'echo half; exit 1'", tmp_path)
    assert not (tmp_path / "new" / "half.txt").exists()
    run_shell("measure new/whole.txt 5 echo first; measure new/whole.txt 5 echo second", tmp_path)
    assert (tmp_path / "new" / "whole.txt").read_text() == "first\n"


def test_convergence_is_tabulated_by_row_and_step(tmp_path: Path) -> None:
    scores = [{"value": 20.5, "margin_of_error": 0.6}, {"value": 50.0}, {"value": 21.25}]
    for name in ("base-10000", "base-5000", "ensemble"):
        (tmp_path / f"{name}-test.json").write_text(json.dumps({"scores": scores}))
    lines = convergence_table.make_table(tmp_path).splitlines()[2:]
    assert lines[0] == "| base-5000 | - | - | 20.50 ± 0.60 | 21.25 |"
    assert [line.split()[1] for line in lines[:3]] == ["base-5000", "base-10000", "ensemble"]


@pytest.mark.heavy
def test_the_steps_of_a_gpu_lease_are_rehearsed_and_resumed(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "REHEARSE": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = ["sh", "runs/science-gpu.sh", str(tmp_path / "out"), "data", "table3", "pack", "unpack"]
    for _ in range(2):
        finished = subprocess.run(
            command, cwd=RUNS.parent, env=environment, capture_output=True, text=True, timeout=900
        )
        assert finished.returncode == 0, finished.stderr
    rows = [json.loads(line) for line in (tmp_path / "out" / "steps.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == 2 * command[3:]
    assert {row["code"] for row in rows} == {0}
    assert (tmp_path / "out" / "table3" / "table3" / "A-h1-seed1.json").exists()


def test_a_packed_data_folder_is_restored_to_the_byte(tmp_path: Path) -> None:
    for language in ("en", "de"):
        lines = [f"The {language} line {number} of {number % 7} lines.\n" for number in range(300)]
        (tmp_path / f"text.{language}").write_text("".join(lines))
    files = [f"{tmp_path}/text.{language}" for language in ("en", "de")]
    recipe = {"train": [{"files": files}], "subwords": {"vocab_size": 340}, "clean": {"duplicates": False}}
    data = prepare(Recipe.from_mapping(recipe), tmp_path / "data")
    for arguments in ("pack data packed", "restore packed again --lines 20 lines.en"):
        subprocess.run([sys.executable, RUNS / "pack_data.py", *arguments.split()], cwd=tmp_path, check=True)
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {path.name for path in (tmp_path / "again").iterdir()}
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "data" / name).read_bytes()
    assert not [*(tmp_path / "packed").glob("train.*offsets*")]
    lines = (tmp_path / "lines.en").read_text().splitlines()
    assert len(lines) == 20
    assert set(lines) <= set((tmp_path / "text.en").read_text().splitlines())
    assert len(data.load_split("train")) > 250
