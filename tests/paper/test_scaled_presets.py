"""The paper's rows made smaller, each in the same proportion."""

from dataclasses import asdict

import pytest

import manyheads as mh
from manyheads.errors import ConfigError
from manyheads.model import count_parameters
from manyheads.paper.scaled_presets import SCALES, ModelScale, get_scale
from manyheads.paper.variations import select_rows

PLAYGROUND = {  # what parts a row from base: the paper's numbers, widths by 8, layers by 2
    "base": {},
    "A-h1": {"heads": 1, "d_k": 64, "d_v": 64},
    "A-h4": {"heads": 4, "d_k": 16, "d_v": 16},
    "A-h16": {"heads": 16, "d_k": 4, "d_v": 4},
    "A-h32": {"heads": 32, "d_k": 2, "d_v": 2},
    "B-dk16": {"d_k": 2},
    "B-dk32": {"d_k": 4},
    "C-n2": {"encoder_layers": 1, "decoder_layers": 1},
    "C-n4": {"encoder_layers": 2, "decoder_layers": 2},
    "C-n8": {"encoder_layers": 4, "decoder_layers": 4},
    "C-d256": {"d_model": 32, "d_k": 4, "d_v": 4},
    "C-d1024": {"d_model": 128, "d_k": 16, "d_v": 16},
    "C-ff1024": {"d_ff": 128},
    "C-ff4096": {"d_ff": 512},
    "D-drop0": {"dropout": 0.0},
    "D-drop2": {"dropout": 0.2},
    "D-smooth0": {},
    "D-smooth2": {},
    "E-learned": {"positions": "learned"},
    "big": {"d_model": 128, "d_ff": 512, "heads": 16, "dropout": 0.3},
}


def test_every_row_is_scaled_in_proportion() -> None:
    scale = SCALES["playground"]
    base = asdict(scale.scale_model(mh.presets.BASE))
    assert (base["encoder_layers"], base["decoder_layers"], base["d_model"], base["d_ff"], base["heads"]) == (
        3,
        3,
        64,
        256,
        8,
    )
    scaled = {row.name: asdict(scale.scale_model(row.model)) for row in mh.presets.TABLE_3}
    differing = {
        name: {key: value for key, value in keys.items() if value != base[key]}
        for name, keys in scaled.items()
    }
    assert differing == PLAYGROUND


def test_the_training_of_a_row_is_the_papers_except_rate_and_warm_up() -> None:
    scale = SCALES["playground"]
    for row in mh.presets.TABLE_3:
        train = scale.scale_training(row.train, scale.scale_model(row.model).d_model)
        assert train.label_smoothing == row.train.label_smoothing
        assert (train.schedule, train.warmup) == ("paper", scale.warmup)


def test_the_peak_is_inverse_to_the_square_root_of_the_width() -> None:
    """As the paper's does (5.3): twice the width, 0.71 of the peak."""
    scale = SCALES["tiny"]
    peaks = [scale.scale_training(mh.TrainConfig(), width).learning_rate for width in (64, 128, 256)]
    assert peaks == pytest.approx([2e-3 * 2**0.5, 2e-3, 2e-3 / 2**0.5])
    assert SCALES["base"].scale_training(mh.TrainConfig(), 512).learning_rate is None  # the paper's own


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_rows_are_ordered_by_size_as_in_the_paper(scale: ModelScale) -> None:
    rows = [row for row in mh.presets.TABLE_3 if row.name[:2] in ("ba", "bi", "C-")]
    rows += [row for row in mh.presets.TABLE_3 if row.name in ("A-h1", "A-h32")]
    sizes = {row.name: count_parameters(scale.scale_model(row.model))["total"] for row in rows}
    assert sizes["C-n2"] < sizes["C-n4"] < sizes["base"] < sizes["C-n8"]
    assert sizes["C-d256"] < sizes["base"] < sizes["C-d1024"] < sizes["big"]
    assert sizes["A-h1"] == sizes["A-h32"] == sizes["base"]


def test_the_scale_of_the_paper_changes_only_max_positions() -> None:
    for row in mh.presets.TABLE_3:
        changed = asdict(SCALES["base"].scale_model(row.model))
        assert changed.pop("max_positions") == 256
        assert changed == {key: value for key, value in asdict(row.model).items() if key != "max_positions"}


def test_rows_are_selected_by_letter_and_by_name_and_base_is_always_included() -> None:
    assert [row.name for row in select_rows("B,big")] == ["base", "B-dk16", "B-dk32", "big"]
    assert [row.name for row in select_rows(" E-learned ,C-n2")] == ["base", "C-n2", "E-learned"]
    assert [row.name for row in select_rows(None)] == [row.name for row in mh.presets.TABLE_3]


def test_an_unknown_row_or_scale_is_rejected_by_name() -> None:
    with pytest.raises(ConfigError, match="unknown row A-h64; did you mean A-h4"):
        select_rows("A-h64,B")
    with pytest.raises(ConfigError, match="unknown scale teeny; did you mean tiny"):
        get_scale("teeny")
