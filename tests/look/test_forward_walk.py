"""Every number of a walk through a layer is one that the model computes."""

import base64
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import manyheads as mh
from manyheads.errors import RequestError
from manyheads.look import forward_walk
from manyheads.look.forward_walk import estimate_numbers, walk_layer, walk_model
from manyheads.text.subwords import SubwordTokenizer
from support.walk_models import CONFIGS, SOURCE, TARGET, make_translator

ALL = 10**6


def run_with_hooks(translator: mh.Translator) -> tuple[dict[str, list[Tensor]], mh.AttentionMaps]:
    """Return the inputs and outputs of every module in a forward pass of the model."""
    model: nn.Module = translator.engine.model  # type: ignore[attr-defined]
    recorded: dict[str, list[Tensor]] = defaultdict(list)

    def make_hook(name: str) -> Any:
        def record(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            recorded[f"{name}<"] += [value for value in inputs if isinstance(value, Tensor)][:1]
            recorded[f"{name}>"] += [output] if isinstance(output, Tensor) else []

        return record

    hooks = [part.register_forward_hook(make_hook(name)) for name, part in model.named_modules()]
    attention = translator.attention(SOURCE, TARGET)
    for hook in hooks:
        hook.remove()
    return recorded, attention


def expected(
    recorded: dict[str, list[Tensor]], attention: mh.AttentionMaps, walk: dict[str, Any]
) -> dict[str, Tensor]:
    """Return the recorded value of each step; `add` is the input of the norm, or the output of the layer."""
    stack, index, heads = walk["stack"], walk["layer"], walk["heads"]
    layer, side = f"{stack}.{index}", "source" if stack == "encoder" else "target"
    pre = walk["norm"] == "pre"
    values = {"embedding.embedding": recorded[f"{side}_embedding>"][0] * 4}  # sqrt(16)
    if walk["positions"] == "learned":
        values["embedding.position"] = recorded[f"{side}_positions>"][0]
    if index == 0:
        values["embedding.sum"] = recorded[f"{layer}<"][0]
    else:
        values["self.input"] = recorded[f"{layer}<"][0]
    for part in ("self", "cross"):
        name = f"{layer}.{part}_attention"
        if f"{name}.w_o>" not in recorded:
            continue
        for step, matrix in (("query", "w_q"), ("key", "w_k"), ("value", "w_v")):
            out = recorded[f"{name}.{matrix}>"][0]
            values[f"{part}.{step}"] = out.view(len(out), heads, -1)
        values[f"{part}.concat"] = recorded[f"{name}.w_o<"][0]
        values[f"{part}.heads"] = values[f"{part}.concat"].view(len(values[f"{part}.concat"]), heads, -1)
        values[f"{part}.project"] = recorded[f"{name}.w_o>"][0]
        values[f"{part}.norm"] = recorded[f"{layer}.{part}_attention_residual.norm>"][0]
        key = f".{part}_attention_residual>" if pre else f".{part}_attention_residual.norm<"
        values[f"{part}.add"] = recorded[f"{layer}{key}"][0]
    types = {"self": stack, "cross": "cross"}
    for part, attention_type in types.items():
        values[f"{part}.weights"] = getattr(attention.trace, attention_type)[index][0]
    values["cross.memory"] = recorded["encoder_norm>"][0]
    values["feed_forward.norm"] = recorded[f"{layer}.feed_forward_residual.norm>"][0]
    values["feed_forward.hidden"] = recorded[f"{layer}.feed_forward.w_2<"][0]
    values["feed_forward.output"] = recorded[f"{layer}.feed_forward.w_2>"][0]
    values["feed_forward.add"] = recorded[f"{layer}.feed_forward_residual{'>' if pre else '.norm<'}"][0]
    values["output.norm"] = recorded[f"{stack}_norm>"][0]
    values["output.logits"] = recorded["output>"][0]
    return values


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("changes", CONFIGS, ids=["paper", "pre", "additive", "batch"])
def test_every_number_equals_that_of_a_forward_hook(
    subwords: SubwordTokenizer, changes: dict[str, Any], stack: Any, layer: int
) -> None:
    translator = make_translator(subwords, **changes)
    recorded, attention = run_with_hooks(translator)
    walk = walk_layer(translator, SOURCE, TARGET, stack=stack, layer=layer, width=ALL)
    values = expected(recorded, attention, walk)
    steps = {f"{step['part']}.{step['name']}": step for step in walk["steps"]}
    assert len(steps) == len(walk["steps"]), "each once"
    for name, step in steps.items():
        if not name.endswith((".scores", ".position")) and name in values:
            assert step["shape"] == list(values[name].shape), name
            torch.testing.assert_close(
                torch.tensor(step["values"]), values[name].float(), atol=5e-5, rtol=1e-5, msg=name
            )
    known = set(values) | {"embedding.position", "embedding.sum", "self.scores", "cross.scores"}
    assert set(steps) <= known
    required = {"self.query", "self.weights", "self.concat", "feed_forward.hidden", "feed_forward.output"}
    assert required | ({"cross.weights"} if stack == "decoder" else set()) <= set(steps)


def test_scores_are_products_of_queries_and_keys_and_the_future_is_masked(
    subwords: SubwordTokenizer,
) -> None:
    walk = walk_layer(make_translator(subwords), SOURCE, TARGET, stack="decoder", width=ALL)
    steps = {f"{step['part']}.{step['name']}": step["values"] for step in walk["steps"]}
    q, k = torch.tensor(steps["self.query"]), torch.tensor(steps["self.key"])
    for head in range(4):
        for i in range(len(q)):
            for j in range(len(k)):
                score = steps["self.scores"][head][i][j]
                if j > i:
                    assert score is None
                    assert steps["self.weights"][head][i][j] == 0
                else:
                    assert score == pytest.approx(float(q[i, head] @ k[j, head]) / 2, abs=1e-4)  # sqrt(4)
    assert all(abs(sum(row) - 1) < 1e-4 for head in steps["cross.weights"] for row in head)


def test_positional_encodings_are_those_of_the_paper(subwords: SubwordTokenizer) -> None:
    walk = walk_layer(make_translator(subwords), SOURCE, TARGET)
    steps = {step["name"]: step for step in walk["steps"] if step["part"] == "embedding"}
    row = steps["position"]["values"][3]
    assert row[:2] == pytest.approx([0.14112, -0.989992], abs=1e-5)  # sin 3, cos 3
    total = [a + b for a, b in zip(steps["embedding"]["values"][3], row, strict=True)]
    assert steps["sum"]["values"][3] == pytest.approx(total, abs=1e-5)


def test_the_width_limits_what_is_recorded_and_not_what_is_computed(model: Path) -> None:
    translator = mh.load(model, device="cpu")
    narrow_walk, full_walk = (
        walk_layer(translator, SOURCE, TARGET, layer=1, width=width) for width in (3, ALL)
    )
    for narrow, full in zip(narrow_walk["steps"], full_walk["steps"], strict=True):
        assert narrow["shape"] == full["shape"]
        if "columns" in narrow:
            assert narrow["values"] == full["values"]
        else:
            assert torch.equal(torch.tensor(narrow["values"]), torch.tensor(full["values"])[..., :3])


def test_the_last_decoder_layer_has_candidates(model: Path) -> None:
    translator = mh.load(model, device="cpu")
    walk = walk_layer(translator, SOURCE, TARGET, stack="decoder", layer=1)
    expected = translator.attention(SOURCE, TARGET)
    assert [[piece for piece, _ in step] for step in walk["candidates"]] == [
        [piece for piece, _ in step[:5]] for step in expected.candidates
    ]
    assert walk_layer(translator, SOURCE, TARGET, stack="decoder", layer=0)["candidates"] == []
    with pytest.raises(RequestError, match="layer is 2, but the encoder has 2 layers, counted from 0"):
        walk_layer(translator, SOURCE, TARGET, layer=2)


@pytest.mark.parametrize("width", [1, 8, ALL])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_no_walk_has_more_numbers_than_estimated(model: Path, stack: Any, width: int) -> None:
    translator = mh.load(model, device="cpu")
    walk = walk_layer(translator, SOURCE, TARGET, stack=stack, layer=1, width=width, with_parameters=True)
    tokens = max(len(walk["tokens"]["source"]), len(walk["tokens"]["decoder_input"]))

    def count(numbers: Any) -> int:
        return sum(map(count, numbers)) if isinstance(numbers, list) else 1

    config = translator.engine.model.config  # type: ignore[attr-defined]
    assert count([step["values"] for step in walk["steps"]]) <= estimate_numbers(config, tokens, width)
    encoded = [
        entry[name] for entry in walk["parameters"].values() for name in ("weight", "bias") if entry[name]
    ]
    parameters = sum(len(base64.b64decode(text)) // 4 for text in encoded)
    estimate = estimate_numbers(config, tokens, width, True) - estimate_numbers(config, tokens, width)
    assert parameters <= estimate <= 3 * parameters


# ---- what a cell is computed from


def decode_numbers(parameters: dict[str, Any], name: str = "weight") -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(parameters[name])), dtype=torch.float32)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("changes", CONFIGS, ids=["paper", "pre", "additive", "batch"])
def test_the_parameters_of_a_walk_are_those_of_its_steps(
    subwords: SubwordTokenizer, changes: dict[str, Any], stack: Any
) -> None:
    translator = make_translator(subwords, **changes)
    walk = walk_layer(translator, SOURCE, TARGET, stack=stack, layer=1, width=ALL, with_parameters=True)
    steps = {
        f"{step['part']}.{step['name']}": torch.tensor(step["values"])
        for step in walk["steps"]
        if step["name"] != "scores"  # where masked numbers are null
    }
    parameters = walk["parameters"]
    maps = {
        "self.project": "self.concat",
        "feed_forward.output": "feed_forward.hidden",
        **({"cross.key": "cross.memory", "cross.value": "cross.memory"} if stack == "decoder" else {}),
    }
    for output, source in maps.items():
        weight = decode_numbers(parameters[output]).view(parameters[output]["shape"])
        computed = steps[source] @ weight.T + decode_numbers(parameters[output], "bias")
        torch.testing.assert_close(computed, steps[output].flatten(1), atol=1e-4, rtol=1e-4)
    if walk["normalization"] == "layer" and walk["norm"] == "post":
        norm = parameters["self.norm"]
        scale, shift = decode_numbers(norm), decode_numbers(norm, "bias")
        computed = nn.functional.layer_norm(steps["self.add"], (16,), scale, shift, norm["epsilon"])
        torch.testing.assert_close(computed, steps["self.norm"], atol=1e-4, rtol=1e-4)
    assert (walk["output"] is None) == (stack == "encoder")


def test_logits_of_candidates_give_their_probabilities(model: Path) -> None:
    translator = mh.load(model, device="cpu")
    walk = walk_layer(translator, SOURCE, TARGET, stack="decoder", layer=1, width=ALL, with_parameters=True)
    output, attention = walk["output"], translator.attention(SOURCE, TARGET)
    for n, ids in enumerate(output["ids"]):
        probabilities = [math.exp(logit - output["log_sum_exp"][n]) for logit in output["logits"][n]]
        assert [(piece, pytest.approx(p, abs=1e-5)) for piece, p in walk["candidates"][n]] == list(
            zip(output["pieces"][n], probabilities, strict=True)
        )[:5]
        assert ids[-1] == walk["ids"]["target"][n]
        assert math.log(probabilities[-1]) == pytest.approx(attention.token_scores[n], abs=1e-4)
    rows = walk["parameters"]["output.logits"]
    last = torch.tensor(next(s["values"] for s in walk["steps"][::-1] if s["name"] == "norm"))
    logits = last @ decode_numbers(rows).view(rows["shape"]).T
    position = rows["ids"].index(output["ids"][0][0])
    assert float(logits[0, position]) == pytest.approx(output["logits"][0][0], abs=1e-4)


def test_a_walk_of_the_whole_model_has_every_layer_and_a_limit(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = mh.load(model, device="cpu")
    walks = walk_model(translator, SOURCE)
    assert {stack: [walk["layer"] for walk in layers] for stack, layers in walks.items()} == {
        "encoder": [0, 1],
        "decoder": [0, 1],
    }
    assert len({walk["target"] for layers in walks.values() for walk in layers}) == 1
    assert walks["decoder"][1]["parameters"]
    monkeypatch.setattr(forward_walk, "MAX_PAGE_NUMBERS", 100)
    with pytest.raises(RequestError, match="numbers, but the maximum is 100: use a shorter sentence"):
        walk_model(translator, SOURCE)
