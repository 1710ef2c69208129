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
def test_an_impossible_model_names_the_key_the_value_and_the_limit(
    wrong: dict[str, Any], message: str
) -> None:
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
def test_a_wrong_file_says_what_is_wrong_and_where(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(mh.ConfigError) as error:
        mh.Config.load(file)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{file}: ")


def test_a_file_that_is_not_text_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"[model]\nkind = '\xff'")
    with pytest.raises(mh.ConfigError, match="not UTF-8 at byte 16"):
        mh.Config.load(tmp_path / "run.toml")
    with pytest.raises(mh.ConfigError, match="directory"):
        mh.Config.load(tmp_path)


@pytest.mark.parametrize("kind", ["recurrent", "convs2s", "bytenet"])
@given(data=st.data())
def test_a_file_holds_the_keys_that_its_kind_uses_and_no_others(kind: str, data: st.DataObject) -> None:
    config = mh.Config(model=data.draw(baseline_configs(kind)))
    written = config.to_toml()
    assert mh.Config.from_toml(written) == config
    assert "\nheads" not in written
    assert ("\nkernel" in written) == (kind != "recurrent")


def test_another_kind_can_be_asked_for_where_keys_are_left_alone() -> None:
    assert mh.Config().override(["model.architecture=bytenet"]).model.architecture == "bytenet"
    with pytest.raises(
        mh.ConfigError, match=r"model\.window is 4, but the architecture 'bytenet' has no such key"
    ):
        mh.Config(model=mh.TransformerConfig(window=4)).override(["model.architecture=bytenet"])


@given(transformer_configs(), st.floats(1e-9, 1), st.integers(1, 10**6))
def test_toml_out_and_in_is_the_same_config(model: mh.ModelConfig, rate: float, steps: int) -> None:
    config = mh.Config(model=model, train=mh.TrainConfig(learning_rate=rate, steps=steps))
    assert mh.Config.from_toml(config.to_toml()) == config


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_goes_through_a_file(name: str, tmp_path: Path) -> None:
    get_preset(name).save(tmp_path / "run.toml")
    assert mh.Config.load(tmp_path / "run.toml") == get_preset(name)
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


def test_configs_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        mh.presets.BASE.heads = 4  # type: ignore[misc]


def test_an_override_changes_one_key_and_reads_values_as_toml_does() -> None:
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


def test_widths_follow_the_model_unless_they_are_set() -> None:
    assert mh.TransformerConfig(heads=4).head_dim_k == mh.TransformerConfig(heads=4).head_dim_v == 128
    narrow = mh.TransformerConfig(heads=7, d_k=16, d_v=5)
    assert (narrow.head_dim_k, narrow.head_dim_v) == (16, 5)


def test_every_key_says_what_it_means() -> None:
    for section in dataclasses.fields(mh.Config):
        for key in dataclasses.fields(getattr(mh.Config(), section.name)):
            assert key.metadata["help"], key.name


def test_replace_checks_as_the_constructor_does() -> None:
    with pytest.raises(mh.ConfigError, match=r"unknown key model\.haeds; did you mean model\.heads"):
        dataclasses.replace(mh.presets.BASE, haeds=4)  # type: ignore[call-arg]
    with pytest.raises(mh.ConfigError, match=r"model\.heads is 0"):
        dataclasses.replace(mh.presets.BASE, heads=0)


def test_a_section_in_the_wrong_place_is_refused() -> None:
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
