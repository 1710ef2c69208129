import pytest
import torch

import manyheads as mh
from manyheads.presets import PRESETS
from manyheads.train.loss import chunked_loss

MODELS = {config.model: name for name, config in reversed(PRESETS.items())}


@pytest.mark.parametrize("config", list(MODELS), ids=MODELS.get)
def test_every_preset_takes_a_step_forward_and_back(config: mh.ModelConfig) -> None:
    """At full size. Rows that differ in their training alone share their model."""
    model = mh.Transformer(config)
    source, target = mh.Packed.of([[5, 6, 7, 2], [8, 2]]), mh.Packed.of([[1, 9, 10], [1, 11]])
    loss = chunked_loss(
        model.hidden(source, target), model.output, torch.tensor([9, 10, 2, 11, 2]), mh.TrainConfig()
    )
    loss.total.backward()
    assert loss.total.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


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
