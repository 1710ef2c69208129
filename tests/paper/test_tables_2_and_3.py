"""Reports of Tables 2 and 3 from known results, and their commands."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import manyheads as mh
from manyheads import cli
from manyheads.data.store import Store
from manyheads.errors import ConfigError, ManyheadsError
from manyheads.evaluate.bleu import Score
from manyheads.model import count_parameters
from manyheads.paper import systems, table2, table3, variations
from manyheads.paper.budget import Budget
from manyheads.paper.report import write_report
from manyheads.paper.scaled_presets import SCALES
from manyheads.paper.training_cost import compute_flops_per_token
from manyheads.paper.trial_pool import TrialResources, run_trials
from manyheads.paper.trials import Trial, TrialResult
from manyheads.plot_style import import_pyplot
from manyheads.progress import Progress
from support.small_trials import small_store, small_trial

STEPS = Budget(100, "steps")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return small_store(tmp_path_factory.mktemp("little"))


def result(row: str, seed: int, perplexity: float | None, bleu: float, **changes: object) -> TrialResult:
    trial_result = TrialResult(
        row=row, seed=seed, parameters=1000, steps=100, tokens=5000, seconds=2.5, flops=1e9,
        flops_from_time=2e9, perplexity=perplexity, bleu=Score("BLEU", bleu, "tok:13a|v", 1.5), split="valid",
        jobs=2, compound_bleu=Score("BLEU", bleu + 1, "moses|v"), machine="a CPU, 1 threads",
    )  # fmt: skip
    return replace(trial_result, **changes)  # type: ignore[arg-type]


# ---- Table 3


@pytest.fixture
def compared_variations(store: Store) -> variations.Variations:
    rows = variations.select_rows("A-h1,A-h4,C-d1024,E-learned,D-drop0")
    trials = variations.make_trials(rows, SCALES["playground"], STEPS, store, seeds=1)
    measured = {"A-h1": (6.0, 20.0), "A-h4": (5.05, 30.4), "C-d1024": (7.0, 29.8), "E-learned": (5.1, 30.1)}
    base = [result("base", seed, 5 + shift, 30 + shift) for seed, shift in ((1, 0), (2, 0.1), (3, -0.1))]
    others = [result(row, 1, *numbers) for row, numbers in measured.items()]
    return variations.compare_variations(
        [*base, *others, result("D-drop0", 1, None, 0.0)], trials, SCALES["playground"], STEPS
    )


def test_base_is_trained_with_three_seeds_and_each_row_under_the_same_budget(store: Store) -> None:
    rows = variations.select_rows("A-h1,D")
    trials = variations.make_trials(rows, SCALES["playground"], STEPS, store, seeds=1)
    assert [trial.name for trial in trials] == [
        "base-seed1", "base-seed2", "base-seed3", "A-h1-seed1",
        "D-drop0-seed1", "D-drop2-seed1", "D-smooth0-seed1", "D-smooth2-seed1",
    ]  # fmt: skip
    assert {(trial.config.train.steps, trial.config.train.seconds) for trial in trials} == {(100, None)}
    assert {trial.config.train.label_smoothing for trial in trials} == {0.0, 0.1, 0.2}
    more = variations.make_trials(rows[:2], SCALES["playground"], STEPS, store, seeds=5)
    assert len(more) == 10


def test_differences_are_from_the_mean_of_base(compared_variations: variations.Variations) -> None:
    row = {row.name: row for row in compared_variations.rows}
    a = row["A-h1"].differences
    margin = 4.303 * 0.1 * (4 / 3) ** 0.5  # of a deviation of 0.1, with two degrees of freedom
    assert (a["perplexity"].ours, a["perplexity"].paper) == (pytest.approx(1.0), 0.37)
    assert a["perplexity"].margin == pytest.approx(margin)
    assert (a["BLEU"].ours, a["BLEU"].paper, a["BLEU"].verdict) == (pytest.approx(-10), -0.9, "holds")
    assert [difference.verdict for difference in row["A-h4"].differences.values()] == ["cannot tell"] * 2
    assert [difference.verdict for difference in row["C-d1024"].differences.values()] == [
        "reversed",
        "cannot tell",
    ]
    assert [difference.verdict for difference in row["E-learned"].differences.values()] == ["cannot tell"] * 2
    assert [difference.verdict for difference in row["D-drop0"].differences.values()] == ["unknown", "holds"]
    assert row["base"].differences == {}
    assert row["A-h1"].change == "heads 1, d_k 64, d_v 64"


def test_conclusions_are_computed(compared_variations: variations.Variations) -> None:
    conclusions = compared_variations.to_dict()["conclusions"]
    assert conclusions[0] == (
        "Rows that differ from base in perplexity by more than chance: A 1 of 2, C 1 of 1, "
        "D 0 of 1 (this run cannot tell), E 0 of 1 (this run cannot tell)."
    )
    assert conclusions[1].startswith(
        "By perplexity the paper's ordering holds in 1 of 5 rows, is reversed in 1, and 2 are within the "
        "margin of chance, the margin is unknown for 1"
    )
    assert (
        "C-d1024 (d_model 128, d_k 16, d_v 16): perplexity +2.00 here, -0.26 in the paper, margin of chance "
        "±0.50: the paper's ordering does not hold; BLEU -0.20 here, +0.20 in the paper, margin of chance "
        "±0.50: within the margin of chance: this run cannot tell." in conclusions
    )


def test_the_published_results_are_complete() -> None:
    assert list(variations.PUBLISHED_RESULTS) == [row.name for row in mh.presets.TABLE_3]
    assert variations.PUBLISHED_RESULTS["C-n2"] == (6.11, 23.7)
    assert variations.PUBLISHED_RESULTS["base"] == (4.92, 25.8)


def test_the_report_of_table_3(
    compared_variations: variations.Variations, store: Store, tmp_path: Path
) -> None:
    page = table3.render_report(compared_variations, store, "manyheads paper table3")
    table = table3.make_table(compared_variations)
    write_report(tmp_path, "table3", page, {"table3": table})
    assert "    manyheads paper table3\n\na CPU, 1 threads, 2 runs at a time; torch" in page
    assert "`manyheads" not in page  # which the test of the documents would execute
    assert (
        "| A-h1 | heads 1, d_k 64, d_v 64 | 1,000 | - | 6 | 5.29 | 20 | 24.9 "
        "| 1 | 0.37 | holds | -10 | -0.9 | holds |" in page
    )
    assert (
        "from base, which has 3 seeds; other rows have 1. A seed's standard deviation is perplexity 0.1 and "
        "BLEU 0.1" in page
    )
    rows = (tmp_path / "table3.csv").read_text().splitlines()
    assert rows[0].split(",")[:3] == ["row", "change", "parameters"]
    assert len(rows) == 1 + len(compared_variations.rows)


def test_the_figure_of_table_3_has_every_row(compared_variations: variations.Variations) -> None:
    figure = table3.draw_figure(compared_variations)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["A-h1", "A-h4", "C-d1024", "D-drop0", "E-learned"]
    for axis in figure.axes:  # the zeros of both scales coincide
        low, high = axis.get_xlim()
        assert low == -high
    import_pyplot().close(figure)


# ---- Table 2


def statistics(shift: int) -> list[list[int]]:
    """BLEU statistics of 40 sentences, which differ between systems by `shift` in some of them."""
    return [
        [20, 20, *(17 - n - (index * shift) % 3 for n in range(4)), 20, 19, 18, 17] for index in range(40)
    ]


@pytest.fixture
def comparison(store: Store) -> systems.SystemsComparison:
    first = [result("transformer", 1, 4.0, 30.0, split="test", bleu_statistics=statistics(1))]
    others = [
        result("big", 1, 3.5, 33.0, split="test", flops=4e9, bleu_statistics=statistics(2)),
        result("rnn", 1, 6.0, 26.0, split="test", flops=8e8, bleu_statistics=statistics(4)),
        result("window", 1, 4.1, 30.5, split="test", flops=9e8, bleu_statistics=statistics(5)),
    ]
    names = ["transformer", "big", "rnn", "window"]
    trials = [small_trial(store, row=name) for name in names]
    comparisons = [
        systems.compare_systems([*first, *others], trials, budget) for budget in (STEPS, Budget(2.5, "s"))
    ]
    return systems.SystemsComparison(comparisons, SCALES["tiny"])


def test_systems_are_compared_with_the_transformer(comparison: systems.SystemsComparison) -> None:
    row = {row.name: row for row in comparison.comparisons[0].rows}
    assert row["transformer"].difference is None
    big, rnn, window = (row[name].difference for name in ("big", "rnn", "window"))
    assert big is not None
    assert rnn is not None
    assert window is not None
    assert (big.ours, big.paper, big.verdict) == (pytest.approx(3), 1.1, "holds")
    assert big.margin is not None
    assert 0.2 < big.margin < 3  # of the paired bootstrap
    assert (rnn.ours, rnn.paper, rnn.verdict) == (pytest.approx(-4), -2.7, "holds")
    assert (window.ours, window.paper, window.verdict) == (pytest.approx(0.5), None, None)


def test_conclusions_of_table_2_name_what_is_better_and_cheaper(
    comparison: systems.SystemsComparison,
) -> None:
    conclusions = list(comparison.conclusions())
    assert conclusions[0].startswith("After 100 steps: By BLEU the paper's ordering holds in 2 of 2 rows")
    assert " Order: big > window > transformer > rnn." in conclusions[0]
    assert conclusions[0].endswith("Systems with at least the Transformer's BLEU for no more FLOPs: window.")
    assert any(line.startswith("window: BLEU +0.50 here, the paper has no such row") for line in conclusions)


def test_seeds_replace_the_bootstrap(store: Store) -> None:
    runs = [
        result(row, seed, 4.0, bleu + seed)
        for row, bleu in (("transformer", 30), ("rnn", 20))
        for seed in (1, 2)
    ]
    trials = [small_trial(store, row=name) for name in ("transformer", "rnn")]
    comparison = systems.compare_systems(runs, trials, STEPS)
    rnn = comparison.rows[1]
    assert (comparison.seeds, rnn.bleu) == (2, 21.5)
    assert rnn.difference is not None
    assert rnn.difference.margin == pytest.approx(0.0)  # equal differences of both seeds


def test_the_best_of_several_peaks_by_valid_perplexity_counts(store: Store) -> None:
    names = ["transformer", "window"]
    trials = systems.make_trials(names, SCALES["playground"], STEPS, store, [1], systems.SystemSearch([1, 2]))
    assert [trial.row for trial in trials] == ["transformer", "transformer-x2", "window", "window-x2"]
    peak = {trial.row: trial.config.train.learning_rate for trial in trials}
    assert peak["window-x2"] == pytest.approx(2 * peak["window"])
    runs = [
        result(row, 1, *numbers)
        for row, numbers in zip(peak, ((5, 30), (4, 20), (3, 9), (None, 8)), strict=True)
    ]
    comparison = systems.compare_systems(runs, trials, STEPS)
    assert [(row.name, row.bleu) for row in comparison.rows] == [("transformer", 20), ("window", 9)]
    assert comparison.peaks == {"transformer": peak["transformer-x2"], "window": peak["window"]}
    assert (comparison.num_settings, len(comparison.results)) == (2, 4)


def test_invalid_peaks_are_rejected() -> None:
    assert systems.parse_multiples("0.5,1") == [0.5, 1]
    for text in ("", "1,1", "0", "fast", "-1,2", "nan"):
        with pytest.raises(ConfigError, match=r"--rate-multiples is .*such as 0\.5,1,2"):
            systems.parse_multiples(text)


def test_the_report_of_table_2(comparison: systems.SystemsComparison, store: Store) -> None:
    page = table2.render_report(comparison, store, "manyheads paper table2")
    assert "| ByteNet | 23.75 / - | - / - | -3.55 | - | - | - | - | - | - | - |" in page
    assert "| GNMT + RL | 24.6 / 39.92 | 2.300e+19 / 1.400e+20 | -2.7 | rnn | 26 | -4 | holds | 26 |" in page
    assert "| - | - | - | - | window | 30.5 | 0.5 | - |" in page
    assert "transformer 0.001, big 0.001" in page  # the peaks
    assert page.count("### After") == 2
    assert "`manyheads" not in page
    figure = table2.draw_figure(comparison)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == ["paper, English to German", "measured, 100 steps each", "measured, 2.5 seconds each"]
    import_pyplot().close(figure)


def test_systems_have_equal_size_and_the_training_of_their_presets(store: Store) -> None:
    scale = SCALES["playground"]
    names = systems.select_systems(None, scale)
    assert names[0] == "transformer"
    trials = systems.make_trials(names, scale, STEPS, store, [1])
    sizes = {trial.row: count_parameters(trial.config.model)["total"] for trial in trials}
    for name, size in sizes.items():
        assert name in ("big", "experts") or abs(size / sizes["transformer"] - 1) < 0.05, name
    flops = {
        trial.row: compute_flops_per_token(trial.config.model, store)
        for trial in trials
        if trial.row in ("transformer", "experts")
    }
    assert flops["experts"] == pytest.approx(flops["transformer"], rel=0.03)
    assert sizes["experts"] > 1.15 * sizes["transformer"]
    assert sizes["big"] > 2 * sizes["transformer"]
    assert {trial.split for trial in trials} == {"test"}
    assert systems.select_preset_training(mh.TrainConfig(clip_norm=1.0, label_smoothing=0.0)) == {
        "clip_norm": 1.0,
        "label_smoothing": 0.0,
    }


def test_d_ff_is_changed_to_match_a_number_of_parameters() -> None:
    model = replace(mh.presets.TINY, layers=1)
    num_parameters = count_parameters(model)["total"]
    assert systems.match_size(replace(model, d_ff=16), num_parameters) == model
    assert systems.match_size(model, round(1.04 * num_parameters)) == model  # close enough


def test_an_unknown_system_is_rejected_by_name() -> None:
    with pytest.raises(ConfigError, match="unknown system bigg; did you mean big"):
        systems.select_systems("bigg", SCALES["tiny"])
    assert systems.select_systems("big", SCALES["tiny"]) == ["transformer", "big"]


# ---- processes


def test_processes_share_cores_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert TrialResources.detect("cpu", None, None, 3) == TrialResources("cpu", 3, 0, 2)
    resources = TrialResources.detect("cpu", 4, None, 3)
    assert (resources.threads, resources.jobs_per_gpu) == (2, 1)
    assert resources.environment(0)["OMP_NUM_THREADS"] == "2"
    assert "WORLD_SIZE" not in resources.environment(0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    six = TrialResources("cuda", 6, 2, 1)
    assert six.jobs_per_gpu == 3
    assert [six.environment(number)["CUDA_VISIBLE_DEVICES"] for number in range(3)] == ["5", "7", "5"]


def test_more_gpus_than_available_are_rejected() -> None:
    with pytest.raises(ConfigError, match="--gpus is 2, but this machine has 0: give at most that many"):
        TrialResources.detect("cpu", None, 2, 3)


def test_a_worker_that_dies_is_reported_with_its_log(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    trials = [small_trial(store, "1steps"), small_trial(store, "1steps", train_seed=2)]
    with pytest.raises(
        ManyheadsError, match=r"its process died; see .*process-1.log.*repeat the command to run the rest"
    ) as raised:
        run_trials(trials, tmp_path, store, TrialResources("cpu", 1, 0, 1), Progress())
    assert raised.value.exit_code == 1


class RecordedMessages(Progress):
    """Records the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, line: str) -> None:
        self.messages.append(line)


def test_a_failed_trial_does_not_affect_the_others(store: Store, tmp_path: Path) -> None:
    trials = [small_trial(store, "1steps", train_seed=seed) for seed in (1, 2)]
    hopeless = small_trial(store, "1steps", row="short", data_max_length=2)
    resources, progress = TrialResources("cpu", 1, 0, 1), RecordedMessages()
    with pytest.raises(ManyheadsError, match="short-seed1: none of 120 pairs has at most 2 tokens") as raised:
        run_trials([hopeless, *trials], tmp_path, store, resources, progress)
    assert raised.value.exit_code == 3
    results = run_trials(trials, tmp_path, store, resources, progress)
    assert results is not None
    assert [(result.row, result.seed) for result in results] == [("base", 1), ("base", 2)]
    assert progress.messages[-1] == f"{tmp_path}: 2 of 2 runs are already done"


# ---- the commands


def manyheads(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "manyheads", "paper", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table3", "--rows", "F"], "unknown row F; known: A, B, C"),
        (["table3", "--budget", "soon"], "the budget is 'soon', but must be tokens, FLOPs, steps or seconds"),
        (["table2", "--scale", "huge"], "unknown scale huge; known: playground, tiny, base"),
        (["table2", "--systems", "rn"], "unknown system rn"),
        (["table3", "nowhere"], "nowhere: not a data folder"),
    ],
)
def test_a_usage_error_of_a_table_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["manyheads", "paper", *arguments, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    output = capsys.readouterr()
    assert end.value.code == (3 if "nowhere" in message else 2)
    assert output.err.startswith(f"manyheads: {message}")
    assert (output.err.count("\n"), output.out) == (1, "")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("table", ["table2", "table3"])
def test_help_of_a_table_shows_an_example(table: str) -> None:
    assert f"Example: manyheads paper {table} data" in " ".join(manyheads(table, "--help").stdout.split())


@pytest.mark.heavy
def test_table_3_is_reported_and_reuses_finished_runs(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [
        "table3",
        str(store.folder),
        "--rows",
        "E",
        "--budget",
        "2steps",
        "--out",
        str(out),
        "--jobs",
        "2",
    ]
    finished = manyheads(*arguments)
    assert finished.returncode == 0, finished.stderr
    assert "E-learned, seed 1: perplexity" in finished.stderr
    assert "E-learned (positions learned): perplexity" in finished.stdout
    names = {"table3.md", "table3.csv", "table3-runs.csv", "table3.svg", "table3.png"}
    assert {path.name for path in out.iterdir()} == {*names, "table3"}
    start = time.monotonic()
    again = manyheads(*arguments, "--json")
    num_runs = len((out / "table3-runs.csv").read_text(encoding="utf-8").splitlines()) - 1
    assert num_runs > 3
    assert f"{num_runs} of {num_runs} runs are already done" in again.stderr
    report = json.loads(again.stdout)
    assert [row["name"] for row in report["rows"]] == ["base", "E-learned"]
    assert time.monotonic() - start < 60
    changed = manyheads(*arguments, "--budget", "3steps")
    assert changed.returncode == 2
    assert "train.steps was 2, is 3" in changed.stderr.splitlines()[-1]


@pytest.mark.heavy
def test_table_2_stops_on_a_signal_and_can_be_resumed(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["table2", str(store.folder), "--systems", "big", "--budget", "2000steps", "--budget", "1s"]
    arguments += ["--out", str(out), "--jobs", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "manyheads", "paper", *arguments], stderr=subprocess.PIPE, text=True
    )
    log = out / "table2" / "steps" / "big-seed1" / "log.jsonl"
    while not (log.exists() and log.read_text()) and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 75, errors
    assert "stopped; the same command resumes it" in errors
    assert list((out / "table2" / "steps" / "big-seed1" / "checkpoints").iterdir())
    assert not (out / "table2.md").exists()


def test_trials_of_both_tables_survive_json(store: Store) -> None:
    for trials in (
        variations.make_trials(variations.select_rows("big"), SCALES["base"], STEPS, store, 1),
        systems.make_trials(["transformer"], SCALES["playground"], Budget(3, "s"), store, [1]),
    ):
        for trial in trials:
            assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))) == trial
