import pytest
import torch

import manyheads as mh
from manyheads.presets import PRESETS
from manyheads.train.loss import chunked_loss


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_takes_a_step_forward_and_back(name: str) -> None:
    """At full size, with the loss of its own training."""
    config = PRESETS[name]
    model = mh.Transformer(config.model)
    source, target = mh.Packed.of([[5, 6, 7, 2], [8, 2]]), mh.Packed.of([[1, 9, 10], [1, 11]])
    labels = torch.tensor([9, 10, 2, 11, 2])
    loss = chunked_loss(model.hidden(source, target), model.output, labels, config.train)
    loss.total.backward()
    assert loss.total.isfinite()
    for where, parameter in model.named_parameters():
        assert parameter.grad is not None, where
        assert parameter.grad.isfinite().all(), where
        if not where.endswith("w_k.bias"):  # which moves all scores of a query alike: the softmax cancels it
            assert parameter.grad.abs().max() > 1e-6, where


def test_the_rows_are_those_of_the_table() -> None:
    assert [row.name[0] for row in mh.presets.TABLE_3] == list("bAAAABBCCCCCCCDDDDEb")
    rows = {row.name: row for row in mh.presets.TABLE_3}
    for name, heads, width in (("A-h1", 1, 512), ("A-h4", 4, 128), ("A-h16", 16, 32), ("A-h32", 32, 16)):
        model = rows[name].model
        assert (model.heads, model.key_width, model.value_width) == (heads, width, width)
    assert (rows["B-dk16"].model.key_width, rows["B-dk16"].model.value_width) == (16, 64)
    assert rows["D-smooth2"].train.label_smoothing == 0.2
    assert rows["E-learned"].model.positions == "learned"
    assert rows["big"].train.steps == 300_000
