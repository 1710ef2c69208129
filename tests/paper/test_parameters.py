import pytest
import torch

import manyheads as mh
from manyheads.model import count_parameters
from manyheads.presets import Table3Row
from support.parameter_counts import count_by_formula


@pytest.mark.parametrize("row", mh.presets.TABLE_3, ids=lambda row: row.name)
def test_parameter_counts_match_the_formulas(row: Table3Row) -> None:
    counted = count_parameters(row.model)
    assert counted["total"] == count_by_formula(row.model)
    assert sum(counted.values()) == 2 * counted["total"]  # the parts, and the whole


def test_base_and_big_have_the_known_counts() -> None:
    assert count_parameters(mh.presets.BASE)["total"] == 63_082_496
    assert count_parameters(mh.presets.BIG)["total"] == 214_245_376


@pytest.mark.parametrize(("config", "count"), [(mh.presets.BASE, 36_864), (mh.presets.BIG, 73_728)])
def test_biases_of_the_attention_projections(config: mh.ModelConfig, count: int) -> None:
    """The figures of docs/deviations.md: the paper does not say whether there are any."""
    with torch.device("meta"):
        named = mh.Transformer(config).named_parameters()
    assert sum(p.numel() for name, p in named if "attention.w_" in name and name.endswith("bias")) == count


@pytest.mark.parametrize(
    "row", [row for row in mh.presets.TABLE_3 if row.paper_millions], ids=lambda row: row.name
)
def test_parameter_counts_are_close_to_the_papers(row: Table3Row) -> None:
    """Within 7 %: the paper's exact vocabulary is not known, and its embedding is up to half of a model."""
    assert count_parameters(row.model)["total"] / 1e6 == pytest.approx(row.paper_millions, rel=0.07)
