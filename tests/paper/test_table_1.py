"""Table 1: the measurements against known values, and the layers against the paper's formulas."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from manyheads.cli import main
from manyheads.errors import RequestError
from manyheads.ops.attention import attend
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.packed import Packed
from manyheads.paper import crossover, layer_costs, table1
from manyheads.paper.layer_costs import hops_are_exact, measure_layers
from manyheads.paper.layer_measurements import (
    count_flops,
    count_flops_at,
    count_hops,
    find_reached_pairs,
    fit_exponent,
    measure_depth,
    measure_peak_bytes,
    measure_seconds,
    measurement_context,
)
from manyheads.paper.layer_types import (
    LAYERS,
    LayerCall,
    LayerSize,
    LayerType,
    make_attention,
    run_recurrence,
)
from manyheads.paper.size_sweeps import SWEEPS, SizeSweep, parse_sizes

ATTENTION, RECURRENT, CONTIGUOUS, DILATED, RESTRICTED = LAYERS


# ---- the measurements


def test_an_exponent_is_the_slope_of_logarithms() -> None:
    assert fit_exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
    assert fit_exponent([10, 100], [7, 7]) == pytest.approx(0)


def test_depth_is_the_longest_chain_and_views_do_not_count() -> None:
    x = torch.randn(4, 4)

    def call() -> torch.Tensor:
        branch = (x @ x).T.reshape(2, 8).view(4, 4)[:2]  # one product; the transpose is copied: two
        return torch.cat((branch, (x + 1)[:2])).exp()  # of the deeper branch, then two more

    assert measure_depth(LayerCall((x,), call)) == 4
    constant = torch.ones(4).exp().exp().exp()
    assert measure_depth(LayerCall((x,), lambda: x + constant.exp())) == 1, (
        "operations that do not depend on the input do not count"
    )


def test_depth_counts_in_place_operations() -> None:
    x = torch.zeros(3)
    assert measure_depth(LayerCall((x,), lambda: (x + 1).add_(1).mul_(2))) == 3


def test_peak_bytes_are_the_most_memory_held_at_once() -> None:
    x = torch.zeros(1000)
    with measurement_context("cpu"):
        sequential = measure_peak_bytes(LayerCall((x,), lambda: x.add(1).add(1).add(1)), "cpu")
        kept = measure_peak_bytes(LayerCall((x,), lambda: torch.stack([x + 1, x + 2, x + 3])), "cpu")
    assert sequential == pytest.approx(2 * 4000, rel=0.05)
    assert kept == pytest.approx(6 * 4000, rel=0.05)


def test_seconds_grow_with_the_amount_of_computation() -> None:
    x, y = torch.randn(64, 64), torch.randn(512, 512)
    works = {"small": LayerCall((x,), lambda: x @ x), "large": LayerCall((y,), lambda: y @ y)}
    with measurement_context("cpu"):
        seconds = measure_seconds(works, "cpu", rounds=1)
    assert 0 < 10 * seconds["small"] < seconds["large"]


def test_measurement_restores_torch_settings() -> None:
    before = torch.get_num_threads(), torch.get_default_dtype()
    with measurement_context("cpu"):
        assert torch.get_num_threads() == 1
        assert not torch.is_grad_enabled()
    assert (torch.get_num_threads(), torch.get_default_dtype()) == before
    assert torch.is_grad_enabled()


# ---- the layers

FORMULAS: dict[str, Callable[[LayerSize], int]] = {
    ATTENTION.name: lambda size: 4 * size.n**2 * size.d,
    RECURRENT.name: lambda size: 2 * size.n * size.d**2,
    CONTIGUOUS.name: lambda size: 2 * size.k * size.n * size.d**2,
    DILATED.name: lambda size: 2 * size.k * size.n * size.d**2,
    RESTRICTED.name: lambda size: 6 * size.k * size.n * size.d,  # a block of r / 2 and as much on both sides
}


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_counted_flops_match_the_formula(layer: LayerType) -> None:
    for size in (
        LayerSize(256, 64, 64),
        LayerSize(512, 64, 64),
        LayerSize(256, 128, 64),
        LayerSize(256, 64, 128),
    ):
        assert count_flops_at(layer.make_mixing, size) == FORMULAS[layer.name](size)
    with measurement_context("cpu"):
        assert count_flops(layer.make_mixing(size)) == FORMULAS[layer.name](size), (
            "as it is when it is computed"
        )


def test_restricted_attention_matches_the_reference() -> None:
    torch.manual_seed(0)
    work = make_attention(LayerSize(300, 128, 64), window=64)
    q, k, v = work.inputs
    text = Packed.of([[0] * 300])
    plain = attend(q, k, v, text, text, AttentionSpec(window=64), implementation="reference")
    torch.testing.assert_close(work.run(), plain, atol=1e-5, rtol=1e-5)


def test_the_recurrence_matches_torch() -> None:
    x_NBD, u_DD, bias_D = torch.randn(5, 2, 3), torch.randn(3, 3), torch.randn(3)
    theirs = torch.nn.RNN(3, 3)
    with torch.no_grad():
        for weight, value in zip(theirs.parameters(), (torch.eye(3), u_DD, 0, bias_D), strict=True):
            weight.copy_(torch.as_tensor(value))
    torch.testing.assert_close(run_recurrence(x_NBD, u_DD, bias_D), theirs(x_NBD)[0], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_sequential_operations_grow_with_n_only_in_a_recurrence(layer: LayerType) -> None:
    short, long = (measure_depth(layer.make_mixing(LayerSize(n, 64, 16))) for n in (96, 192))
    if layer is RECURRENT:
        assert (short, long) == (3 * 96, 3 * 192)
    else:
        assert short == long <= 4


def ceiling(top: int, bottom: int) -> int:
    return -(-top // bottom)


HOPS: dict[str, Callable[[int, int], int]] = {
    ATTENTION.name: lambda n, k: 1,
    RECURRENT.name: lambda n, k: n,
    CONTIGUOUS.name: lambda n, k: ceiling(n - 1, k - 1),
    DILATED.name: lambda n, k: next(hops for hops in range(1, 99) if k**hops >= n),
    RESTRICTED.name: lambda n, k: ceiling(n - 1, k // 2),
}


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_path_lengths_match_the_formula(layer: LayerType) -> None:
    for n, k in ((9, 3), (30, 3), (30, 5)):
        hops = count_hops(layer, n, k)
        assert hops == HOPS[layer.name](n, k)
        assert hops_are_exact(layer, n, k, hops)
        assert hops == 1 or not hops_are_exact(layer, n, k, hops - 1)
        assert not hops_are_exact(layer, n, k, hops + 1) or hops == 1


def test_reached_pairs_are_those_within_the_kernel() -> None:
    seen = find_reached_pairs(CONTIGUOUS, 5, 2, 1).int().tolist()
    assert seen == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]


# ---- the sizes


def test_size_ranges_are_doubled() -> None:
    assert parse_sizes("n=100-450, d=64-128") == {"n": (100, 200, 400), "d": (64, 128)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n=12", "--sizes has 'n=12', but a range must look like n=1024-8192 or d=128-512"),
        ("k=3-9", "--sizes has 'k=3-9', but a range must look like"),
        ("n=0-9", "--sizes has n=0-9, but a range must start at 1 or more, end at 1048576 or less"),
        ("n=9-17", "and end at twice its start or more"),
        ("n=1-9999999", "end at 1048576 or less"),
        ("d=100-200", "--sizes has d=100-200, but d must start at a multiple of 64"),
    ],
)
def test_invalid_sizes_are_rejected(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message.replace("(", r"\(")):
        parse_sizes(text)


# ---- the report


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes so small that times mean nothing; counts are unaffected."""
    sweeps = {
        name: replace(sweep, n=(64, 128), d=(64, 128), k=tuple(sweep.k[:2]), batch=2)
        for name, sweep in SWEEPS["cpu"].items()
    }
    for name, value in {
        "SWEEPS": {"cpu": sweeps},
        "REFERENCE_SWEEP": SizeSweep((64, 128), (64, 128)),
        "FULL_LAYER_SIZES": ((32, 64),),
        "DEPTH_SIZES": (32, 64),
        "PATH_SIZES": (9, 27),
    }.items():
        monkeypatch.setattr(layer_costs, name, value)
    monkeypatch.setattr(table1, "TIMING_ROUNDS", 1)
    monkeypatch.setattr(crossover, "WIDTHS", {"cpu": (64,)})
    monkeypatch.setattr(crossover, "ROUNDS", 1)


def test_the_command_writes_a_report_a_figure_and_all_numbers(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["paper", "table1", "--device", "cpu", "-o", str(tmp_path / "out"), "--json"]
    monkeypatch.setattr(sys, "argv", ["manyheads", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    report = json.loads(capsys.readouterr().out)
    flops = {(fit["layer"], fit["variable"]): fit for fit in report["exponents"] if fit["measure"] == "FLOPs"}
    for layer in LAYERS:
        for variable, exponent in layer.exponents.items():
            fit = flops[layer.name, layer.kernel_symbol if variable == "k" else variable]
            assert fit["fitted"] == pytest.approx(exponent, abs=1e-6), f"{layer.name} in {variable}"
    assert [layer["path_length"] for layer in report["layers"]] == [
        {"9": 1, "27": 1}, {"9": 9, "27": 27}, {"9": 4, "27": 13}, {"9": 2, "27": 3}, {"9": 2, "27": 7},
    ]  # fmt: skip
    assert all(layer["all_pairs_reached"] for layer in report["layers"])
    names = {Path(file).name for file in report["files"]}
    assert names >= {"table1.md", "table1.csv", "table1.svg", "table1.png", "table1-measurements.csv"}
    assert names >= {"table1-crossover.csv", "table1-crossover.svg"}
    assert [(item["part"], item["d"]) for item in report["equal_time"]] == [
        ("mixing", 64),
        ("full layer", 64),
    ]
    page = (tmp_path / "out" / "table1.md").read_text(encoding="utf-8")
    assert "O(k n d²)" in page
    assert "manyheads paper table1 --device cpu" in page


def test_the_crossover_is_interpolated_between_sizes() -> None:
    """Ratios 1/4 and 4 on a logarithmic scale: equal in the middle, at 20."""
    points = [
        crossover.CrossoverPoint(
            "mixing",
            20,
            n,
            {"self-attention": time, "recurrent": 1.0},
            {"self-attention": 1.0, "recurrent": 2.0},
        )
        for n, time in ((10, 0.25), (40, 4.0))
    ]
    (crossing,) = crossover.find_crossovers(points)
    assert crossing.seconds == pytest.approx(20)
    assert crossing.bytes is None
    text = crossover.describe_crossovers(points)
    assert "mixing, d = 20: n = 20, 1.00 d" in text


def test_all_layers_are_fitted_over_the_same_sizes() -> None:
    for sweeps in SWEEPS.values():
        assert len({(tuple(sweep.n), tuple(sweep.d)) for sweep in sweeps.values()}) == 1


@pytest.mark.heavy
def test_exponents_are_near_the_theory_over_ranges_that_all_layers_share() -> None:
    measured = measure_layers(
        "cpu", rounds=table1.TIMING_ROUNDS, report_progress=lambda stage, done, total: None
    )
    far = [fit for fit in measured.fits if abs(fit.fitted - fit.theory) > 0.5]  # calls count at small sizes
    assert len(measured.fits) == 38
    assert not far


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "n=9"], "--sizes has 'n=9', but a range must look like n=1024-8192 or d=128-512"),
        (["--device", "tpu"], "the device is 'tpu', but must be cpu or cuda"),
    ],
)
def test_a_usage_error_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["manyheads", "paper", "table1", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err == f"manyheads: {message}\n"
    assert list(tmp_path.iterdir()) == []


def test_without_a_crossover_the_closest_size_is_stated() -> None:
    costs = {"self-attention": 1.0, "recurrent": 1.0}
    points = [
        crossover.CrossoverPoint("mixing", 20, n, {"self-attention": time, "recurrent": 1.0}, costs)
        for n, time in ((10, 1.5), (20, 1.02), (40, 4.0))
    ]
    text = crossover.describe_crossovers(points)
    assert "d = 20: nowhere in this range (closest at n = 20: 1.02 times the recurrence's)" in text
