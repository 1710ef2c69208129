"""Judging a corpus: wrong pairs score low and have a reason, and `prepare` uses the scores."""

import html
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from judge import DAMAGES, damage_pairs, evaluate_scores, make_recipe, run_judge, write_pairs
from manyheads import playground
from manyheads.confidence.corruption import OFF_DOMAIN
from manyheads.config import Recipe
from manyheads.data.filtering import DropLog, InputReport, drop_judged_bad, read_normalized_pairs
from manyheads.data.judged import JudgedScores, read_rows, write_rows
from manyheads.data.prepare import prepare
from manyheads.data.recipe import complete_recipe
from manyheads.errors import ConfigError, DataError, ResourceError
from manyheads.judge import run
from manyheads.judge.corpus_reader import CorpusReader, Position
from manyheads.judge.report import JudgeReport, ListedPair, format_pairs
from manyheads.judge.run import JudgeOptions, judge_corpus, load_part, save_part
from manyheads.judge.training import PairJudge
from manyheads.text.clean import Cleaner

NUM_PAIRS = 1200
OPTIONS = JudgeOptions(workers=1)


def silent(stage: str, done: int, total: int | None) -> None:
    pass


def make_pairs(count: int) -> list[tuple[str, str]]:
    corpus = playground.generate_corpus("en-de", train=count, valid=0, test=0, seed=3)
    return [(source, target) for source, target in corpus["train"]]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, str]], np.ndarray]:
    folder = tmp_path_factory.mktemp("judged")
    pairs, labels = damage_pairs(make_pairs(NUM_PAIRS), OFF_DOMAIN["fr"], 0.2, seed=1)
    pairs[50] = pairs[40]
    files = [folder / "train.en", folder / "train.de"]
    write_pairs(pairs, files)
    judge_corpus(make_recipe(files, ("en", "de")), folder / "judged", OPTIONS, report_progress=silent)
    return folder, pairs, labels


def get_scores(folder: Path) -> np.ndarray:
    return np.array([score for _, _, score, _ in read_rows(folder)])


def test_damaged_pairs_score_low(judged: Any) -> None:
    folder, pairs, labels = judged
    result = evaluate_scores(get_scores(folder / "judged"), labels, pairs, 0.2)
    assert result["auroc"] > 0.95
    assert result["auroc shuffled"] > 0.95
    assert result["auroc untranslated"] > 0.98
    assert 0 < get_scores(folder / "judged").min() < 1e-6


def test_low_scores_have_reasons(judged: Any) -> None:
    folder, _, labels = judged
    rows = list(read_rows(folder / "judged"))
    reasons = {name: Counter[str]() for name in DAMAGES}
    for label, (_, _, score, reason) in zip(labels, rows, strict=True):
        assert bool(reason) == (score < 0.5 or reason.startswith("near-duplicate"))
        if label in reasons:
            reasons[label][reason] += 1
    assert reasons["untranslated"].most_common(1)[0][0] == "untranslated copy"
    assert reasons["shuffled"].most_common(1)[0][0] == "misaligned"
    assert reasons["foreign"].most_common(1)[0][0].startswith("wrong language")
    assert rows[50][3] in ("near-duplicate of line 41", rows[40][3])


def test_the_report_lists_the_worst_pairs_and_the_inputs(judged: Any) -> None:
    folder, _, _ = judged
    report = json.loads((folder / "judged" / "report.json").read_text(encoding="utf-8"))
    assert report["pairs"] == sum(report["histogram"]) == NUM_PAIRS
    assert len(report["worst"]) == 100
    assert [pair["score"] for pair in report["worst"]] == sorted(pair["score"] for pair in report["worst"])
    assert [len(sample) for sample in report["samples"]] == [5] * 10
    assert report["inputs"][0]["bad"] == report["bad"]
    text = (folder / "judged" / "report.md").read_text(encoding="utf-8")
    assert "## The worst 100" in text


def test_prepare_keeps_the_best_pairs_and_holds_out_good_ones(judged: Any, tmp_path: Path) -> None:
    folder, pairs, labels = judged
    files = [str(folder / "train.en"), str(folder / "train.de")]
    tables = {"train": [{"files": files}], "subwords": {"vocab_size": 500}}
    clean = {"judged": str(folder / "judged"), "keep": 0.8}
    store = prepare(Recipe.from_mapping({**tables, "clean": clean}), tmp_path / "data")
    dropped = store.manifest["splits"]["train"]["inputs"][0]["dropped"]
    assert dropped["judged bad"] == pytest.approx(0.2 * NUM_PAIRS, abs=2)
    sources, targets = store.read_text("valid")
    damaged = {pair for pair, label in zip(pairs, labels, strict=True) if label != "good"}
    bad = sum(pair in damaged for pair in zip(sources, targets, strict=True))
    assert len(sources) > 40
    assert bad <= 0.05 * len(sources)


def test_a_judged_file_of_other_text_is_refused(judged: Any, tmp_path: Path) -> None:
    folder, _, _ = judged
    shutil.copy(folder / "train.en", tmp_path / "b.en")
    shutil.copy(folder / "train.de", tmp_path / "b.de")
    tables = {"train": [{"files": [str(tmp_path / "b.en"), str(tmp_path / "b.de")]}]}
    with pytest.raises(DataError, match=r"b\.en:1: has no score in .*: judge the same files"):
        prepare(Recipe.from_mapping({**tables, "clean": {"judged": str(folder / "judged")}}), tmp_path / "d")
    with pytest.raises(ConfigError, match=r"clean.keep is 0.9, but nothing is judged"):
        Recipe.from_mapping({**tables, "clean": {"keep": 0.9}})


def list_kept_lines(judged: JudgedScores) -> list[int]:
    scores = judged.start_pass()
    return [line for line in range(1, 11) if scores.get_next("a.en", line) >= scores.min_score]


def write_tmx(path: Path, pairs: list[tuple[str, str]]) -> Path:
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="de"><seg>{target}</seg></tuv></tu>'
        for source, target in pairs
    )
    path.write_text(f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>')
    return path


def write_po(path: Path, pairs: list[tuple[str, str]]) -> Path:
    (singular, first), (plural, second) = pairs
    path.write_text(
        'msgid ""\nmsgstr ""\n"Language: de\\n"\n\n'
        f'msgid "{singular}"\nmsgid_plural "{plural}"\nmsgstr[0] "{first}"\nmsgstr[1] "{second}"\n'
    )
    return path


def list_kept_pairs(recipe: Recipe, judged: JudgedScores) -> list[tuple[str, str]]:
    scores, log, kept = judged.start_pass(), DropLog("stop", None), []
    cleaner = Cleaner(recipe.clean, recipe.corpus)
    for item in recipe.train:
        report = InputReport(item.name, item.files, item.weight)
        pairs = list(read_normalized_pairs(item, "train", cleaner, log, report, lambda _: None))
        kept += [(pair.source, pair.target) for pair in drop_judged_bad(pairs, scores, log, report)]
    return kept


def test_pairs_that_share_a_line_have_their_own_scores(tmp_path: Path) -> None:
    """A TMX on one line, the plural of a PO file, and two inputs with one source file."""
    units = [("a file", "eine Datei"), ("a page", "eine Seite"), ("a word", "ein Wort")]
    forms = [("one line", "eine Zeile"), ("many lines", "viele Zeilen")]
    write_pairs([("a house", "ein Haus")], [tmp_path / "c.en", tmp_path / "c.de"])
    write_pairs([("a house", "ein Heim")], [tmp_path / "c.en", tmp_path / "d.de"])
    inputs = [[write_tmx(tmp_path / "a.tmx", units)], [write_po(tmp_path / "b.po", forms)]]
    inputs += [[tmp_path / "c.en", tmp_path / name] for name in ("c.de", "d.de")]
    tables = [{"files": [str(file) for file in files]} for files in inputs]
    recipe = complete_recipe(Recipe.from_mapping({"train": tables}).override(["corpus.source=en"]))
    recipe = recipe.override(["corpus.target=de"])
    read = list(CorpusReader(recipe, silent).read("reading"))
    pairs = [(pair.source, pair.target) for _, pair in read]
    assert pairs == [*units, *forms, ("a house", "ein Haus"), ("a house", "ein Heim")]
    values = [0.9, 0.1, 0.8, 0.2, 0.7, 0.6, 0.3]
    rows = [
        (recipe.train[position.input].files[0], position.line, value, "")
        for (position, _), value in zip(read, values, strict=True)
    ]
    write_rows(tmp_path / "pairs.tsv", rows)
    kept = list_kept_pairs(recipe, JudgedScores.load(tmp_path, None))
    assert kept == [pair for pair, value in zip(pairs, values, strict=True) if value >= 0.5]


def test_a_pair_at_another_line_than_the_judged_one_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "pairs.tsv", [("a.en", 1, 0.9, ""), ("a.en", 3, 0.9, "")])
    scores = JudgedScores.load(tmp_path, None).start_pass()
    assert scores.get_next("a.en", 1) == pytest.approx(0.9)
    with pytest.raises(DataError, match=r"a\.en:2: has no score"):
        scores.get_next("a.en", 2)


def test_keep_is_a_share_of_the_pairs(tmp_path: Path) -> None:
    rows = "".join(f"a.en\t{n}\t{n / 10:.4f}\t\n" for n in range(1, 11))
    (tmp_path / "pairs.tsv").write_text(f"file\tline\tscore\treason\n{rows}")
    scores = JudgedScores.load(tmp_path, 0.3)
    assert list_kept_lines(scores) == [8, 9, 10]
    assert JudgedScores.load(tmp_path, None).min_score == 0.5
    assert JudgedScores.load(tmp_path, 1.0).min_score == pytest.approx(0.1)
    scores = JudgedScores.load(tmp_path, None)
    assert scores.start_pass().is_next_good("a.en", 1) is False


def test_very_low_scores_differ_so_that_keep_can_choose_among_them(tmp_path: Path) -> None:
    write_rows(tmp_path / "pairs.tsv", [("a.en", n, 10.0**-n, "garbled") for n in range(1, 11)])
    scores = JudgedScores.load(tmp_path, 0.3)
    assert list_kept_lines(scores) == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("line\tscore\n", "the columns are not file, line, score, reason"),
        ("file\tline\tscore\treason\na\tx\t0.5\t\n", "pairs.tsv:2: not file, line, score and reason"),
        ("file\tline\tscore\treason\na\t1\tnan\t\n", "pairs.tsv:2: not file, line, score and reason"),
        (f"file\tline\tscore\treason\na\t{2**63}\t0.5\t\n", "pairs.tsv:2: not file, line"),
        ("file\tline\tscore\treason\n", "no pair is judged"),
    ],
)
def test_a_wrong_judged_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(text)
    with pytest.raises(DataError, match=message):
        JudgedScores.load(tmp_path / "pairs.tsv", 0.9)


def test_a_corpus_that_is_too_small_is_refused(tmp_path: Path) -> None:
    files = [tmp_path / "a.en", tmp_path / "a.de"]
    write_pairs(make_pairs(50), files)
    with pytest.raises(
        DataError, match="50 pairs, but judging learns from the corpus and needs at least 200"
    ):
        judge_corpus(make_recipe(files, ("en", "de")), tmp_path / "j", OPTIONS, report_progress=silent)
    assert not (tmp_path / "j").exists()


def test_a_stopped_run_goes_on_with_the_next_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "a.en", tmp_path / "a.de"]
    write_pairs([(f"source {n}", f"target {n}") for n in range(300)], files)
    calls: list[int] = []

    def judge_chunk(sides: Any) -> Any:
        calls.append(len(sides[0]))
        if calls == [50, 50, 50]:
            raise KeyboardInterrupt
        keys = np.zeros((len(sides[0]), 4), np.uint64)
        return np.full(len(sides[0]), 0.75, np.float32), [""] * len(sides[0]), keys

    monkeypatch.setattr(run, "judge_chunk", judge_chunk)
    monkeypatch.setattr(run, "train_judge", lambda *_: None)
    monkeypatch.setattr(run, "CHUNK_PAIRS", 50)
    monkeypatch.setattr(run, "PART_CHUNKS", 2)
    recipe = make_recipe(files, ("en", "de"))
    with pytest.raises(KeyboardInterrupt):
        judge_corpus(recipe, tmp_path / "j", OPTIONS, report_progress=silent)
    assert not (tmp_path / "j").exists()
    report: JudgeReport = judge_corpus(recipe, tmp_path / "j", OPTIONS, report_progress=silent)
    assert calls == [50] * 3 + [50] * 4  # the first part was complete
    assert (report.pairs, report.bad) == (300, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.de", "a.en", "j"]


def test_a_process_that_is_killed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool does not wait for it forever, and leaves no process."""
    monkeypatch.setattr(run, "judge_chunk", end_this_process)
    chunks = [(["a"], ["b"])] * 3
    message = "one of 2 processes was killed: if memory is short, lower --workers"
    with pytest.raises(ResourceError, match=message), run.create_pool(2, cast(PairJudge, None)) as judge:
        judge(chunks)
    assert not multiprocessing.active_children()


def end_this_process(sides: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def test_sigterm_stops_the_command_with_75(tmp_path: Path) -> None:
    files = [tmp_path / "a.en", tmp_path / "a.de"]
    write_pairs(make_pairs(300), files)
    code = (
        "import os, signal\n"
        "from manyheads.cli import main\n"
        "from manyheads.judge import run\n"
        "run.train_judge = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "judge", *map(str, files), "--pair", "en-de"]
    done = subprocess.run([*command, "--out", f"{tmp_path}/j"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 75, done.stderr
    assert done.stderr.endswith(f"manyheads: {tmp_path}/j: stopped; the same command goes on\n")


@pytest.mark.heavy
@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_the_built_in_corpus_with_known_damage(rate: float, tmp_path: Path) -> None:
    clean = make_pairs(10_000)
    pairs, labels = damage_pairs(clean, OFF_DOMAIN["fr"], rate, seed=2)
    files = [tmp_path / "train.en", tmp_path / "train.de"]
    write_pairs(pairs, files)
    scores = run_judge(files, ("en", "de"), tmp_path / "judged", len(pairs))
    result = evaluate_scores(scores, labels, clean, rate)
    assert result["auroc"] > 0.97
    assert min(result[f"auroc {name}"] for name in DAMAGES) > 0.9
    assert result["kept short good, best"] > 0.98
    assert result["kept damaged, best"] < 0.1


def test_synthetic_text_that_was_made_after_judging_needs_no_score(judged: Any, tmp_path: Path) -> None:
    folder, pairs, _ = judged
    synthetic = tmp_path / "bt.tsv"
    lines = [f"{source} again\t{target} wieder\n" for source, target in pairs[:100]]
    synthetic.write_text("".join(lines), encoding="utf-8")
    files = [str(folder / "train.en"), str(folder / "train.de")]
    tables = {
        "corpus": {"source": "en", "target": "de"},
        "train": [{"files": files}, {"files": [str(synthetic)], "tag": "<bt>"}],
        "subwords": {"vocab_size": 500},
        "clean": {"judged": str(folder / "judged")},
    }
    inputs = prepare(Recipe.from_mapping(tables), tmp_path / "data").manifest["splits"]["train"]["inputs"]
    assert inputs[0]["dropped"]["judged bad"] > 0
    assert "judged bad" not in inputs[1]["dropped"]
    assert inputs[1]["kept"] > 50


@pytest.mark.parametrize("damage", ["empty", "cut", "text"])
def test_a_damaged_part_is_named_with_the_remedy(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "000000.npz"
    save_part(path, [Position(0, 1)], [(np.ones(1, np.float32), [""], np.ones(1, np.uint64))])
    assert load_part(path).scores == [1]
    content = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": content[:-30], "text": b"text"}[damage])
    with pytest.raises(DataError, match="damaged: remove the folder"):
        load_part(path)


def test_markup_in_a_corpus_is_shown_as_text_in_the_report() -> None:
    hostile = "a|b <script>x()</script> ![i](//t.example/1.png) [l](javascript:x) `c` &lt; \\\u2028# b\r- c"
    (line,) = format_pairs([ListedPair("a.en", 1, 0.5, "length", hostile, hostile)]).splitlines()[2:]
    assert line.count("|") == 6
    assert not re.search(r"[<>`\[\]\\\r\u2028]|&(?!#[0-9]+;)", line)
    assert html.unescape(line).count(hostile.replace("\u2028", " ").replace("\r", " ")) == 2
