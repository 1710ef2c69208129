import subprocess
import sys

import pytest

import manyheads as mh

NAMES = {
    "AttentionMaps",
    "CheckpointError",
    "Config",
    "ConfigError",
    "DataConfig",
    "DataError",
    "ManyheadsError",
    "ByteNetConfig",
    "ConvS2SConfig",
    "RecurrentConfig",
    "TransformerConfig",
    "ModelConfig",
    "ResourceError",
    "Packed",
    "RequestError",
    "DecodingConfig",
    "Trace",
    "TrainConfig",
    "TrainingError",
    "Transformer",
    "Translation",
    "Translator",
    "load",
    "presets",
}


def test_the_public_surface_is_this() -> None:
    assert set(mh.__all__) == NAMES
    assert set(dir(mh)) == NAMES | {"__version__"}
    for name in NAMES:
        assert getattr(mh, name) is not None


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Tranformer'"):
        mh.Tranformer  # noqa: B018


def test_errors_form_one_tree() -> None:
    for error in (mh.ConfigError, mh.DataError, mh.CheckpointError, mh.RequestError):
        assert issubclass(error, mh.ManyheadsError)


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, manyheads; manyheads.presets.BASE; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_calls_of_the_design_work_as_written() -> None:
    packed = mh.Packed.of([[5, 6, 7], [8, 9]])
    assert packed.tokens.tolist() == [5, 6, 7, 8, 9]
    assert packed.offsets.tolist() == [0, 3, 5]
    assert (packed.max_length, packed.lengths.tolist()) == (3, [3, 2])
    assert packed.positions.tolist() == [0, 1, 2, 0, 1]
    model = mh.Transformer(mh.TransformerConfig(vocab_size=12, layers=2, d_model=8, d_ff=8, heads=2)).eval()
    source, target = packed, mh.Packed.of([[1, 3], [1]])
    logits = model(source, target)
    assert logits.shape == (3, 12)
    assert model.hidden(source, target).shape == (3, 8)
    logits = model(source, target, trace=(trace := mh.Trace()))
    assert [tuple(weights.shape) for weights in trace.cross[1]] == [(2, 2, 3), (2, 1, 2)]
    memory = model.encode(source)
    state = model.start(memory, beam=4)
    logits, state = model.step(packed.tokens.new_ones(8), state)
    assert logits.shape == (8, 12)
    state = state.reorder(packed.tokens.new_tensor([3, 2, 1, 0, 4, 4, 4, 4]))
    state = state.remove(packed.tokens.new_tensor([0])).append(memory)
    assert len(state) == 3
