"""One sentence through a layer: every number that is told is one that the model computes."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import manyheads as mh
from manyheads.errors import RequestError
from manyheads.inference.torch_engine import TorchEngine
from manyheads.look.forward_walk import estimate_numbers, walk_layer
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.strategies import randomize_weights

SOURCE, TARGET = "I go home today.", "나는 오늘 집에 간다."
ALL = 10**6
SHAPES: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "activation": "gelu", "positions": "learned", "max_positions": 60},
    {"attention": "additive", "d_k": 3, "d_v": 5, "positions": "none", "activation": "swish"},
    {"attention": "dot", "normalization": "batch", "window": 3, "residuals": False},
]


def translator_of(subwords: SubwordTokenizer, **changes: Any) -> mh.Translator:
    torch.manual_seed(3)
    config = mh.TransformerConfig(vocab_size=330, layers=2, d_model=16, d_ff=32, heads=4, **changes)
    model = mh.Transformer(config)
    randomize_weights(model)
    engine = TorchEngine(model, torch.device("cpu"), "auto")
    return mh.Translator(engine, SubwordPair(subwords, subwords), {"source": "en", "target": "ko"})


def heard(translator: mh.Translator) -> tuple[dict[str, list[Tensor]], mh.Attention]:
    """What went into every module and came out of it in the model's own forward pass."""
    model: nn.Module = translator.engine.model  # type: ignore[attr-defined]
    found: dict[str, list[Tensor]] = defaultdict(list)

    def listen(name: str) -> Any:
        def hear(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            found[f"{name}<"] += [one for one in inputs if isinstance(one, Tensor)][:1]
            found[f"{name}>"] += [output] if isinstance(output, Tensor) else []

        return hear

    hooks = [part.register_forward_hook(listen(name)) for name, part in model.named_modules()]
    attention = translator.attention(SOURCE, TARGET)
    for hook in hooks:
        hook.remove()
    return found, attention


def expected(
    found: dict[str, list[Tensor]], attention: mh.Attention, walk: dict[str, Any]
) -> dict[str, Tensor]:
    """By step what the hooks heard; `add` is told by what goes into the norm, or by the layer's end."""
    stack, number, heads = walk["stack"], walk["layer"], walk["heads"]
    layer, side = f"{stack}.{number}", "source" if stack == "encoder" else "target"
    pre = walk["norm"] == "pre"
    values = {"embedding.embedding": found[f"{side}_embedding>"][0] * 4}  # sqrt(16)
    if walk["positions"] == "learned":
        values["embedding.position"] = found[f"{side}_positions>"][0]
    if number == 0:
        values["embedding.sum"] = found[f"{layer}<"][0]
    else:
        values["self.input"] = found[f"{layer}<"][0]
    for part in ("self", "cross"):
        name = f"{layer}.{part}_attention"
        if f"{name}.w_o>" not in found:
            continue
        for step, matrix in (("query", "w_q"), ("key", "w_k"), ("value", "w_v")):
            out = found[f"{name}.{matrix}>"][0]
            values[f"{part}.{step}"] = out.view(len(out), heads, -1)
        values[f"{part}.concat"] = found[f"{name}.w_o<"][0]
        values[f"{part}.heads"] = values[f"{part}.concat"].view(len(values[f"{part}.concat"]), heads, -1)
        values[f"{part}.project"] = found[f"{name}.w_o>"][0]
        values[f"{part}.norm"] = found[f"{layer}.{part}_attention_residual.norm>"][0]
        key = f".{part}_attention_residual>" if pre else f".{part}_attention_residual.norm<"
        values[f"{part}.add"] = found[f"{layer}{key}"][0]
    kinds = {"self": stack, "cross": "cross"}
    for part, kind in kinds.items():
        values[f"{part}.weights"] = getattr(attention.trace, kind)[number][0]
    values["feed_forward.norm"] = found[f"{layer}.feed_forward_residual.norm>"][0]
    values["feed_forward.hidden"] = found[f"{layer}.feed_forward.w_2<"][0]
    values["feed_forward.outward"] = found[f"{layer}.feed_forward.w_2>"][0]
    values["feed_forward.add"] = found[f"{layer}.feed_forward_residual{'>' if pre else '.norm<'}"][0]
    values["output.norm"] = found[f"{stack}_norm>"][0]
    values["output.logits"] = found["output>"][0]
    return values


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("changes", SHAPES, ids=["paper", "pre", "additive", "batch"])
def test_every_number_is_what_a_hook_on_the_model_hears(
    subwords: SubwordTokenizer, changes: dict[str, Any], stack: Any, layer: int
) -> None:
    translator = translator_of(subwords, **changes)
    found, attention = heard(translator)
    walk = walk_layer(translator, SOURCE, TARGET, stack=stack, layer=layer, width=ALL)
    values = expected(found, attention, walk)
    told = {f"{one['part']}.{one['name']}": one for one in walk["steps"]}
    assert len(told) == len(walk["steps"]), "each once"
    for name, step in told.items():
        if not name.endswith((".scores", ".position")) and name in values:
            assert step["shape"] == list(values[name].shape), name
            torch.testing.assert_close(
                torch.tensor(step["numbers"]), values[name].float(), atol=2e-5, rtol=1e-5, msg=name
            )
    known = set(values) | {"embedding.position", "embedding.sum", "self.scores", "cross.scores"}
    assert set(told) <= known
    must = {"self.query", "self.weights", "self.concat", "feed_forward.hidden", "feed_forward.outward"}
    assert must | ({"cross.weights"} if stack == "decoder" else set()) <= set(told)


def test_scores_are_products_of_queries_and_keys_and_the_future_is_not_seen(
    subwords: SubwordTokenizer,
) -> None:
    walk = walk_layer(translator_of(subwords), SOURCE, TARGET, stack="decoder", width=ALL)
    told = {f"{one['part']}.{one['name']}": one["numbers"] for one in walk["steps"]}
    q, k = torch.tensor(told["self.query"]), torch.tensor(told["self.key"])
    for head in range(4):
        for i in range(len(q)):
            for j in range(len(k)):
                score = told["self.scores"][head][i][j]
                if j > i:
                    assert score is None
                    assert told["self.weights"][head][i][j] == 0
                else:
                    assert score == pytest.approx(float(q[i, head] @ k[j, head]) / 2, abs=1e-4)  # sqrt(4)
    assert all(abs(sum(row) - 1) < 1e-4 for head in told["cross.weights"] for row in head)


def test_positions_are_the_papers_sines(subwords: SubwordTokenizer) -> None:
    walk = walk_layer(translator_of(subwords), SOURCE, TARGET)
    told = {one["name"]: one for one in walk["steps"] if one["part"] == "embedding"}
    row = told["position"]["numbers"][3]
    assert row[:2] == pytest.approx([0.14112, -0.989992], abs=1e-5)  # sin 3, cos 3
    total = [a + b for a, b in zip(told["embedding"]["numbers"][3], row, strict=True)]
    assert told["sum"]["numbers"][3] == pytest.approx(total, abs=1e-5)


def test_a_width_cuts_what_is_told_and_not_what_is_computed(model: Path) -> None:
    translator = mh.load(model, device="cpu")
    few, all_ = (walk_layer(translator, SOURCE, TARGET, layer=1, width=width) for width in (3, ALL))
    for one, other in zip(few["steps"], all_["steps"], strict=True):
        assert one["shape"] == other["shape"]
        if "columns" in one:
            assert one["numbers"] == other["numbers"]
        else:
            assert torch.equal(torch.tensor(one["numbers"]), torch.tensor(other["numbers"])[..., :3])


def test_the_decoders_end_tells_the_likeliest_pieces(model: Path) -> None:
    translator = mh.load(model, device="cpu")
    walk = walk_layer(translator, SOURCE, TARGET, stack="decoder", layer=1)
    ours = translator.attention(SOURCE, TARGET)
    assert [[piece for piece, _ in step] for step in walk["candidates"]] == [
        [piece for piece, _ in step[:5]] for step in ours.candidates
    ]
    assert walk_layer(translator, SOURCE, TARGET, stack="decoder", layer=0)["candidates"] == []
    with pytest.raises(RequestError, match="layer is 2, but the model has 2"):
        walk_layer(translator, SOURCE, TARGET, layer=2)


@pytest.mark.parametrize("width", [1, 8, ALL])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_no_walk_holds_more_numbers_than_it_was_said_to(model: Path, stack: Any, width: int) -> None:
    translator = mh.load(model, device="cpu")
    walk = walk_layer(translator, SOURCE, TARGET, stack=stack, layer=1, width=width)
    tokens = max(len(walk["tokens"]["source"]), len(walk["tokens"]["read"]))

    def count(numbers: Any) -> int:
        return sum(map(count, numbers)) if isinstance(numbers, list) else 1

    config = translator.engine.model.config  # type: ignore[attr-defined]
    assert count([one["numbers"] for one in walk["steps"]]) <= estimate_numbers(config, tokens, width)
