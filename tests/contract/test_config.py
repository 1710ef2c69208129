import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyheads as mh
from manyheads.presets import PRESETS, get_preset
from support.strategies import baseline_configs, transformer_configs


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heads": 0}, "model.heads is 0, but must be at least 1"),
        ({"d_model": 511, "heads": 1}, "model.d_model is 511, but sinusoidal positions need an even width"),
        ({"dropout": 1.5}, "model.dropout is 1.5, but must be at least 0 and below 1"),
        ({"dropout": -0.1}, "model.dropout is -0.1, but must be at least 0"),
        ({"dropout": float("nan")}, "model.dropout is nan, but must be finite"),
        ({"vocab_size": 2}, "model.vocab_size is 2, but must be at least 3"),
        ({"source_vocab_size": 1}, "model.source_vocab_size is 1, but must be at least 3"),
        ({"heads": 7}, "model.heads is 7, which does not divide model.d_model = 512"),
        ({"layers": 0}, "model.layers is 0, but must be at least 1"),
        ({"layers": 2.0}, "model.layers is 2.0, but must be a whole number"),
        ({"layers": True}, "model.layers is True, but must be a whole number"),
        ({"layers": "6"}, "model.layers is '6', but must be a whole number"),
        ({"residuals": 1}, "model.residuals is 1, but must be true or false"),
        ({"dropout": "0.1"}, "model.dropout is '0.1', but must be a number"),
        ({"norm": "both"}, "model.norm is 'both', but must be one of 'post', 'pre'"),
        ({"norm": None}, "model.norm is None, but must be one of 'post', 'pre'"),
        ({"haeds": 4}, "unknown key model.haeds; did you mean model.heads?"),
        ({"layers": 2**70}, "model.layers is a number of 71 bits, but TOML's have 64"),
        ({"dropout": 10**400}, "model.dropout is a number of 1329 bits"),
        ({"steps": 3}, "unknown key model.steps; did you mean train.steps?"),
        ({"d_k": 2**62}, "model.d_k is 4611686018427387904, but must be at least 1 and below 1048576"),
        ({"d_ff": 2**62}, "model.d_ff is 4611686018427387904, but must be at least 1 and below 1048576"),
        ({"window": 0}, "model.window is 0, but must be at least 1"),
        (
            {"source_vocab_size": 9, "target_vocab_size": 8},
            'model.tie_embeddings is "three-way", but the vocab',
        ),
        (
            {"architecture": "recurrent", "heads": 4},
            "model.heads is 4, but the architecture 'recurrent' has no such key: "
            'leave it out, or set model.architecture = "transformer"',
        ),
        ({"cell": "gru"}, "model.cell is 'gru', but the architecture 'transformer' has no such key: leave"),
        (
            {"architecture": "bytenet", "attention": "dot"},
            'or set model.architecture = "transformer" or "recurrent" or "convs2s"',
        ),
        (
            {"architecture": "convs2s", "experts": 4},
            "model.experts is 4, but the architecture 'convs2s' has no such key",
        ),
        (
            {"architecture": "recurrent", "positions": "none"},
            "model.positions is 'none', but the architecture 'recurrent' has no such key",
        ),
        (
            {"architecture": "recurrent", "d_ff": 7},
            "model.d_ff is 7, but half of it reads forwards and half backwards",
        ),
        (
            {"architecture": "convs2s", "kernel_size": 4},
            "model.kernel_size is 4, but the encoder sees as many tokens back as ahead: make it odd",
        ),
        (
            {"architecture": "convs2s", "attention": "additive"},
            "model.attention is 'additive', but must be one of 'scaled-dot', 'dot'",
        ),
        (
            {"attention": "none"},
            "model.attention is 'none', but must be one of 'scaled-dot', 'dot', 'additive'",
        ),
        ({"experts": 2, "experts_per_token": 3}, "model.experts_per_token is 3, but there are 2: lower it"),
        ({"experts": 1}, "model.experts is 1, but must be at least 2"),
        (
            {"architecture": "rnn"},
            "model.architecture is 'rnn', but must be one of 'transformer', 'recurrent'",
        ),
    ],
)
def test_an_impossible_model_is_refused_with_key_value_and_limit(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(mh.ConfigError) as error:
        mh.ModelConfig.from_mapping(wrong)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\nhaeds = 8", "unknown key model.haeds; did you mean model.heads?"),
        ("[modle]\nheads = 8", "unknown table modle; did you mean model?"),
        ("[model]\nzzz = 8", "unknown key model.zzz; known: architecture, vocab_size, "),
        ("model = 3", "model is 3, but must be a table"),
        ("[model]\nheads = ", "not TOML: "),
        ("[train]\nwarmup = 0", "train.warmup is 0, but must be at least 1"),
        ("[train]\nlearning_rate = 0.0", "train.learning_rate is 0.0, but must be above 0"),
        ("[train]\nlearning_rate = inf", "train.learning_rate is inf, but must be finite"),
        ("[decoding]\nalpha = -1", "decoding.alpha is -1.0, but must be at least 0"),
        ("[data]\nbatch_tokens = '25k'", "data.batch_tokens is '25k', but must be a whole number"),
        ("[model]\nheads = 2024-01-01", "but must be a whole number"),
        ("[model]\nheads = " + "9" * 5000, "not TOML: "),
        ("[model]\nheads = 0x" + "f" * 5000, "model.heads is a number of 20000 bits"),
        ("[model]\nheads = " + "[" * 5000, "not TOML: "),
        ("[model]\nheads = [8]", "model.heads is [8], but must be a whole number"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(mh.ConfigError) as error:
        mh.Config.load(file)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{file}: ")


def test_an_endless_device_is_no_configuration() -> None:
    with pytest.raises(mh.DataError, match="/dev/zero: has more than 16,777,216 bytes"):
        mh.Config.load("/dev/zero")


def test_a_file_that_is_not_text_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"[model]\nkind = '\xff'")
    with pytest.raises(mh.ConfigError, match="not UTF-8 at byte 16"):
        mh.Config.load(tmp_path / "run.toml")
    with pytest.raises(mh.DataError, match="directory"):  # as for every input file that cannot be read
        mh.Config.load(tmp_path)


@pytest.mark.parametrize("architecture", ["recurrent", "convs2s", "bytenet"])
@given(data=st.data())
def test_a_file_holds_only_the_keys_of_its_architecture(architecture: str, data: st.DataObject) -> None:
    config = mh.Config(model=data.draw(baseline_configs(architecture)))
    written = config.to_toml()
    assert mh.Config.from_toml(written) == config
    assert "\nheads" not in written
    assert ("\nkernel" in written) == (architecture != "recurrent")


def test_an_override_can_change_the_architecture() -> None:
    assert mh.Config().override(["model.architecture=bytenet"]).model.architecture == "bytenet"
    with pytest.raises(
        mh.ConfigError, match=r"model\.window is 4, but the architecture 'bytenet' has no such key"
    ):
        mh.Config(model=mh.TransformerConfig(window=4)).override(["model.architecture=bytenet"])


@given(transformer_configs(), st.floats(1e-9, 1), st.integers(1, 10**6))
def test_a_config_survives_toml(model: mh.ModelConfig, rate: float, steps: int) -> None:
    config = mh.Config(model=model, train=mh.TrainConfig(learning_rate=rate, steps=steps))
    assert mh.Config.from_toml(config.to_toml()) == config


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_a_file(name: str, tmp_path: Path) -> None:
    get_preset(name).save(tmp_path / "run.toml")
    assert mh.Config.load(tmp_path / "run.toml") == get_preset(name)
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


def test_configs_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        mh.presets.BASE.heads = 4  # type: ignore[misc]


def test_an_override_changes_single_keys_and_parses_values_as_toml() -> None:
    config = mh.Config().override(
        ["train.steps=2000", "model.norm=pre", "model.dropout = 0", "train.epsilon=1e-8"]
    )
    assert config.train == mh.TrainConfig(steps=2000, epsilon=1e-8)
    assert config.model == mh.TransformerConfig(norm="pre", dropout=0.0)
    assert type(config.model.dropout) is float


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("steps=2000", "'steps=2000' is not an assignment: write section.key=value"),
        ("train.steps", "'train.steps' is not an assignment"),
        ("trian.steps=1", "unknown table trian; did you mean train?"),
        ("train.step=1", "unknown key train.step; did you mean train.steps?"),
        ("train.steps=3\nx=4", "train.steps is '3\\nx=4', but must be a whole number"),
        ("train.steps=" + "9" * 5000, "but must be a whole number"),
        ("train.steps=many", "train.steps is 'many', but must be a whole number"),
    ],
)
def test_a_wrong_override_is_refused(assignment: str, message: str) -> None:
    with pytest.raises(mh.ConfigError) as error:
        mh.Config().override([assignment])
    assert message in str(error.value)


def test_head_dimensions_default_to_d_model_over_heads() -> None:
    assert mh.TransformerConfig(heads=4).head_dim_k == mh.TransformerConfig(heads=4).head_dim_v == 128
    narrow = mh.TransformerConfig(heads=7, d_k=16, d_v=5)
    assert (narrow.head_dim_k, narrow.head_dim_v) == (16, 5)


def test_every_key_has_a_description() -> None:
    for section in dataclasses.fields(mh.Config):
        for key in dataclasses.fields(getattr(mh.Config(), section.name)):
            assert key.metadata["help"], key.name


def test_replace_checks_as_the_constructor_does() -> None:
    with pytest.raises(mh.ConfigError, match=r"unknown key model\.haeds; did you mean model\.heads"):
        dataclasses.replace(mh.presets.BASE, haeds=4)  # type: ignore[call-arg]
    with pytest.raises(mh.ConfigError, match=r"model\.heads is 0"):
        dataclasses.replace(mh.presets.BASE, heads=0)


def test_a_section_of_another_type_is_refused() -> None:
    with pytest.raises(mh.ConfigError, match=r"model is TrainConfig.*but must be a ModelConfig"):
        mh.Config(model=mh.TrainConfig())


def test_an_optional_key_can_be_unset() -> None:
    one_head = get_preset("A-h1").override(["model.d_k=none", "model.d_v=none", "model.heads=8"])
    assert one_head.model == mh.presets.BASE
    model = mh.Config().override(["model.positions=none"]).model
    assert isinstance(model, mh.TransformerConfig)
    assert model.positions == "none"


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("\ufeff[model]\nheads = 4\n", encoding="utf-8")
    model = mh.Config.load(tmp_path / "run.toml").model
    assert isinstance(model, mh.TransformerConfig)
    assert model.heads == 4


def test_layers_sets_the_depth_of_encoder_and_decoder() -> None:
    assert mh.TransformerConfig(layers=2) == mh.TransformerConfig(encoder_layers=2, decoder_layers=2)
    assert mh.TransformerConfig() == mh.TransformerConfig(layers=6)
    deep = dataclasses.replace(mh.TransformerConfig(encoder_layers=12, decoder_layers=3), d_ff=64)
    assert (deep.encoder_layers, deep.decoder_layers) == (12, 3)
    assert dataclasses.replace(deep, layers=4) == mh.TransformerConfig(layers=4, d_ff=64)
    assert mh.Config.from_toml("[model]\nlayers = 2").model == mh.TransformerConfig(layers=2)
    config = mh.Config(model=deep).override(["model.layers=5"])
    assert (config.model.encoder_layers, config.model.decoder_layers) == (5, 5)
    config = config.override(["model.decoder_layers=2"])
    assert (config.model.encoder_layers, config.model.decoder_layers) == (5, 2)
    assert mh.Config.from_toml(config.to_toml()) == config
    assert "\nencoder_layers = 5" in config.to_toml()
    assert "\ndecoder_layers = 2" in config.to_toml()


def test_layers_reads_as_the_common_depth() -> None:
    default: Any = mh.TransformerConfig()  # for mypy, an InitVar is no attribute
    assert default.layers == 6
    three: Any = dataclasses.replace(mh.TransformerConfig(layers=3), d_ff=64)
    assert three.layers == 3
    deep: Any = dataclasses.replace(three, encoder_layers=12)
    assert (deep.encoder_layers, deep.decoder_layers, deep.layers) == (12, 3, None)


@pytest.mark.parametrize("depth", ["encoder_layers", "decoder_layers"])
def test_layers_and_another_depth_are_refused(depth: str) -> None:
    message = (
        rf"model\.layers is 2, but model\.{depth} is 6: give layers alone, or encoder_layers and decoder_l"
    )
    with pytest.raises(mh.ConfigError, match=message):
        mh.TransformerConfig(layers=2, **{depth: 6})
    with pytest.raises(mh.ConfigError, match=message):
        dataclasses.replace(mh.presets.BASE, layers=2, **{depth: 6})
    with pytest.raises(mh.ConfigError, match=message):
        mh.Config.from_toml(f"[model]\nlayers = 2\n{depth} = 6")
    with pytest.raises(mh.ConfigError, match=message):
        mh.Config().override(["model.layers=2", f"model.{depth}=6"])
    same = mh.TransformerConfig(layers=2, **{depth: 2})
    assert same == mh.TransformerConfig(layers=2)


def test_a_recurrent_model_has_as_many_encoder_as_decoder_layers() -> None:
    with pytest.raises(mh.ConfigError, match=r"model\.encoder_layers is 2 and model\.decoder_layers 3, but"):
        mh.RecurrentConfig(encoder_layers=2, decoder_layers=3)


def test_another_architecture_keeps_the_keys_that_both_have() -> None:
    config = mh.Config(model=mh.TransformerConfig(vocab_size=50, d_model=8, heads=2, encoder_layers=3))
    with pytest.raises(
        mh.ConfigError, match=r"model\.heads is 2, but the architecture 'convs2s' has no such key"
    ):
        config.override(["model.architecture=convs2s"])
    changed = mh.Config(model=mh.TransformerConfig(vocab_size=50, encoder_layers=3)).override(
        ["model.architecture=convs2s", "model.kernel_size=5"]
    )
    assert changed.model == mh.ConvS2SConfig(vocab_size=50, encoder_layers=3, decoder_layers=6, kernel_size=5)
    with pytest.raises(
        mh.ConfigError, match=r"model\.architecture is 'rnn', but must be one of 'transformer'"
    ):
        mh.Config().override(["model.architecture=rnn"])


def test_the_base_class_of_models_is_not_a_model() -> None:
    with pytest.raises(mh.ConfigError, match="ModelConfig is a base class: use TransformerConfig, Recurrent"):
        mh.ModelConfig()


def test_a_key_of_another_section_is_suggested() -> None:
    with pytest.raises(mh.ConfigError, match=r"unknown key train\.heads; did you mean model\.heads\?"):
        mh.TrainConfig(heads=4)  # type: ignore[call-arg]
    with pytest.raises(
        mh.ConfigError, match=r"unknown key data\.kernel_size; did you mean model\.kernel_size\?"
    ):
        mh.DataConfig(kernel_size=4)  # type: ignore[call-arg]
