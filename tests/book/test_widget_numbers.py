"""The arithmetic of the widgets equals Python's."""

import json
import math
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads.look.measures import previous_share
from manyheads.model.positions import sinusoidal_encoding
from manyheads.ops.attention import attention_scores
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.train.loss import reference_loss, smoothed_targets
from manyheads.train.schedule import learning_rate
from support.browser import skip_without_browser
from support.source_tree import ROOT

WIDGETS = ROOT / "website" / "widgets"
Evaluate = Callable[[str], Any]


@pytest.fixture(scope="module")
def evaluate() -> Evaluate:
    """Evaluate an expression over the functions of the widgets."""
    node = shutil.which("node")
    if node is None:
        skip_without_browser("Node is not installed")

    def call(expression: str) -> Any:
        modules = [(WIDGETS / name).as_uri() for name in ("book_numbers.js", "toy_language.js")]
        script = (
            f"const [numbers, toy] = await Promise.all({json.dumps(modules)}.map((url) => import(url)));"
            f"console.log(JSON.stringify({expression}));"
        )
        output = subprocess.run(
            [node, "--input-type=module", "-e", script], capture_output=True, text=True, check=True
        ).stdout
        return json.loads(output)

    return call


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("dot", AttentionSpec("dot")),
        ("scaled", AttentionSpec("scaled-dot")),
        ("additive", AttentionSpec("additive", energy_HK=torch.ones(1, 3))),
    ],
)
def test_attention(name: str, spec: AttentionSpec, evaluate: Evaluate) -> None:
    q, k, v = [1.0, -0.5, 2.0], [[0.3, 0.1, 0.9], [-1.0, 0.4, 0.2]], [[1.0, 2.0], [3.0, -1.0]]
    result = evaluate(f"numbers.attendOnce({q}, {k}, {v}, '{name}')")
    scores = attention_scores(torch.tensor([[q]]), torch.tensor([k]), spec)[0]
    assert result["scores"] == pytest.approx(scores[0].tolist(), abs=1e-6)
    assert result["output"] == pytest.approx((scores.softmax(-1) @ torch.tensor(v))[0].tolist(), abs=1e-6)


def test_masks_before_and_after_the_softmax(evaluate: Evaluate) -> None:
    before, after, hidden = evaluate(
        "[numbers.maskBefore([1, 1, 121], [true, true, false]),"
        " numbers.maskAfter([1, 1, 121], [true, true, false]), numbers.maskBefore([1, 2], [false, false])]"
    )
    assert before == [0.5, 0.5, 0]
    assert after == [None, None, None]  # JSON has no NaN
    assert hidden == [0, 0]


@pytest.mark.parametrize("position", [0, 7, 49])
def test_positions(position: int, evaluate: Evaluate) -> None:
    expected = sinusoidal_encoding(torch.tensor([position]), 16)[0].tolist()
    assert evaluate(f"numbers.positionalEncoding({position}, 16)") == pytest.approx(expected, abs=1e-12)


def test_wavelengths(evaluate: Evaluate) -> None:
    assert evaluate("[0, 511].map((i) => numbers.wavelength(i, 512))") == pytest.approx(
        [2 * math.pi, 60611.475], rel=1e-6
    )


def test_norms(evaluate: Evaluate) -> None:
    vector = torch.tensor([[3.0, 5.0, -2.0, 6.0]])
    layer, group = evaluate("[1, 2].map((n) => numbers.normalizeGroups([3, 5, -2, 6], n))")
    assert layer == pytest.approx(torch.nn.functional.layer_norm(vector, (4,))[0].tolist(), abs=1e-5)
    assert group == pytest.approx(torch.nn.functional.group_norm(vector, 2)[0].tolist(), abs=1e-5)


def test_the_learning_rate(evaluate: Evaluate) -> None:
    steps, train = [1, 4000, 100_000], mh.TrainConfig(warmup=4000)
    rates = evaluate(f"{steps}.map((step) => numbers.learningRate(step, 512, 4000))")
    assert rates == pytest.approx([learning_rate(step, train, 512) for step in steps])


@pytest.mark.parametrize("over", ["all", "others"])
def test_label_smoothing(over: str, evaluate: Evaluate) -> None:
    train = mh.TrainConfig(label_smoothing=0.1, label_smoothing_over=over)
    targets, loss = evaluate(
        f"[numbers.smoothTargets(5, 0.1, '{over}'), numbers.smoothedLoss(0.6, 5, 0.1, '{over}')]"
    )
    expected = smoothed_targets(torch.tensor([0]), 5, train)[0].tolist()
    assert [targets["right"], targets["other"]] == pytest.approx(expected[:2])
    logits = torch.tensor([[0.6, 0.1, 0.1, 0.1, 0.1]], dtype=torch.float64).log()
    assert loss == pytest.approx(float(reference_loss(logits, torch.tensor([0]), train).total))


@pytest.mark.parametrize(
    ("layers", "width", "hidden", "heads", "head_width"),
    [(6, 512, 2048, 8, 64), (2, 256, 1024, 4, 16), (1, 128, 512, 16, 32)],
)
def test_parameters(
    layers: int, width: int, hidden: int, heads: int, head_width: int, evaluate: Evaluate
) -> None:
    config = mh.TransformerConfig(
        vocab_size=1000,
        layers=layers,
        d_model=width,
        d_ff=hidden,
        heads=heads,
        d_k=head_width,
        d_v=head_width,
    )
    with torch.device("meta"):
        expected = sum(parameter.numel() for parameter in mh.Transformer(config).parameters())
    request = f"{{layers: {layers}, width: {width}, hidden: {hidden}, heads: {heads}, headWidth: {head_width}"
    assert evaluate(f"numbers.countParameters({request}, vocabulary: 1000}})")["total"] == expected


@pytest.mark.parametrize(
    ("beam", "alpha", "expected"), [(1, 0, "A x"), (2, 0, "B z"), (4, 0, "B z"), (2, 0.6, "B z x")]
)
def test_the_toy_search(beam: int, alpha: float, expected: str, evaluate: Evaluate) -> None:
    assert evaluate(f"toy.searchToy({beam}, {alpha})") == expected
    total = evaluate("toy.listSentences().reduce((sum, own) => sum + Math.exp(own.logP), 0)")
    assert total == pytest.approx(1)


def test_the_share_on_the_previous_word(evaluate: Evaluate) -> None:
    maps = torch.rand(5, 5, generator=torch.Generator().manual_seed(0)).softmax(-1).double()
    share = float(previous_share(maps.numpy(), "encoder"))
    assert evaluate(f"numbers.previousShare({maps.tolist()})") == pytest.approx(share)


def test_paths_and_costs(evaluate: Evaluate) -> None:
    assert evaluate("[9, 81, 243].map((n) => numbers.pathLengths(n, 3))") == [
        {"recurrent": n, "contiguous": layers, "dilated": dilated, "attention": 1}
        for n, layers, dilated in ((9, 4, 2), (81, 40, 4), (243, 121, 5))  # as manyheads paper table1
    ]
    costs = evaluate("numbers.layerCosts(70, 512, 3, 32)")
    assert costs["attention"] / costs["recurrent"] == pytest.approx(70 / 512)
