"""The paper's models, every row of its Table 3, and the baselines, each as a difference from another."""

from dataclasses import dataclass, replace
from typing import Any

from manyheads.config import (
    Config,
    DecodingConfig,
    ModelConfig,
    TrainConfig,
    TransformerConfig,
    describe_unknown_name,
)
from manyheads.errors import ConfigError

BASE = TransformerConfig()
BIG = replace(BASE, d_model=1024, d_ff=4096, heads=16, dropout=0.3)
# Section 6.3 gives the parser's depth and d_model only; the other widths are those of the big model.
PARSING = replace(BIG, layers=4, vocab_size=16_000)
# Not in the paper: for small corpora and small machines.
TINY = replace(BASE, vocab_size=8_000, layers=4, d_model=128, d_ff=256, heads=4, dropout=0.3)
SMALL = replace(BASE, vocab_size=16_000, layers=4, d_model=256, d_ff=1024, heads=4)
# Students of a larger model: every output token passes through the decoder alone, so it is shallow. They are
# limited by their size rather than by overfitting: less dropout. As int8, 17.5 MB and 2.2 MB of weights.
STUDENT = replace(
    BASE, vocab_size=32_000, encoder_layers=6, decoder_layers=2, d_model=256, d_ff=1536, dropout=0.05
)
STUDENT_TINY = replace(
    STUDENT, vocab_size=8_000, encoder_layers=4, decoder_layers=1, d_model=128, d_ff=512, heads=4
)


PAPER_TRAINING = TrainConfig()
GREEDY = DecodingConfig(beam=1)


@dataclass(frozen=True)
class Table3Row:
    """A row of Table 3. `paper_millions` is its parameter count as printed in the paper."""

    name: str
    model: TransformerConfig
    train: TrainConfig = PAPER_TRAINING
    paper_millions: int | None = None


TABLE_3 = (
    Table3Row("base", BASE, paper_millions=65),
    Table3Row("A-h1", replace(BASE, heads=1, d_k=512, d_v=512)),
    Table3Row("A-h4", replace(BASE, heads=4, d_k=128, d_v=128)),
    Table3Row("A-h16", replace(BASE, heads=16, d_k=32, d_v=32)),
    Table3Row("A-h32", replace(BASE, heads=32, d_k=16, d_v=16)),
    Table3Row("B-dk16", replace(BASE, d_k=16), paper_millions=58),
    Table3Row("B-dk32", replace(BASE, d_k=32), paper_millions=60),
    Table3Row("C-n2", replace(BASE, layers=2), paper_millions=36),
    Table3Row("C-n4", replace(BASE, layers=4), paper_millions=50),
    Table3Row("C-n8", replace(BASE, layers=8), paper_millions=80),
    Table3Row("C-d256", replace(BASE, d_model=256, d_k=32, d_v=32), paper_millions=28),
    Table3Row("C-d1024", replace(BASE, d_model=1024, d_k=128, d_v=128), paper_millions=168),
    Table3Row("C-ff1024", replace(BASE, d_ff=1024), paper_millions=53),
    Table3Row("C-ff4096", replace(BASE, d_ff=4096), paper_millions=90),
    Table3Row("D-drop0", replace(BASE, dropout=0.0)),
    Table3Row("D-drop2", replace(BASE, dropout=0.2)),
    Table3Row("D-smooth0", BASE, TrainConfig(label_smoothing=0.0)),
    Table3Row("D-smooth2", BASE, TrainConfig(label_smoothing=0.2)),
    Table3Row("E-learned", replace(BASE, positions="learned")),
    Table3Row("big", BIG, TrainConfig(steps=300_000), paper_millions=213),
)

# The systems that the paper compares with, and two variants of the Transformer. Each has as many parameters
# as the Transformer of the same scale to 2 %, for any vocabulary. They share d_model; d_ff is fitted. The
# mixture of experts has as many FLOPs per token instead, and more parameters, which is what it is for.

# On Multi30k, after 300 to 400 steps, 3e-3 was better than 1e-3 for the LSTM, and 4e-3 better than 1e-3 for
# both convolutional models. The rate at base was not tuned: lower, as usual for wider models.
TINY_TRAINING = TrainConfig(learning_rate=3e-3, warmup=1000, clip_norm=1.0)
BASE_TRAINING = TrainConfig(learning_rate=1e-3, warmup=1000, clip_norm=1.0)


def make_baseline(model: ModelConfig, architecture: str, **keys: Any) -> ModelConfig:
    """Return a config of another architecture with the embeddings and the dropout of a model."""
    shared = {"vocab_size": model.vocab_size, "d_model": model.d_model, "dropout": model.dropout}
    return ModelConfig.from_mapping({"architecture": architecture, **shared, **keys})


def make_baselines(
    model: TransformerConfig,
    train: TrainConfig,
    *,
    lstm: tuple[int, int],
    plain: tuple[int, int],
    gru: tuple[int, int],
    seq2seq: tuple[int, int],
    convs2s: tuple[int, int],
    bytenet: tuple[int, int],
    experts: int,
    window: int,
    max_positions: int,
) -> dict[str, Config]:
    """Return the baselines of a Transformer by name. Each pair is (layers, d_ff)."""

    def make(architecture: str, size: tuple[int, int], **keys: Any) -> ModelConfig:
        return make_baseline(model, architecture, layers=size[0], d_ff=size[1], **keys)

    learned: dict[str, Any] = {"positions": "learned", "max_positions": max_positions}
    return {
        "rnn": Config(make("recurrent", lstm, attention="additive"), train=train),
        "plain-rnn": Config(make("recurrent", plain, cell="rnn", attention="additive"), train=train),
        "gru": Config(make("recurrent", gru, cell="gru", attention="additive"), train=train),
        "seq2seq": Config(make("recurrent", seq2seq, attention="none"), train=train),
        "convs2s": Config(make("convs2s", convs2s, attention="dot", **learned), train=train),
        "bytenet": Config(make("bytenet", bytenet), train=train),
        "experts": Config(replace(model, experts=experts, d_ff=model.d_ff // model.experts_per_token)),
        "window": Config(replace(model, window=window)),
    }


BASELINES = {
    "tiny": make_baselines(
        TINY,
        TINY_TRAINING,
        lstm=(2, 204),
        plain=(2, 410),
        gru=(2, 236),
        seq2seq=(2, 230),
        convs2s=(4, 146),
        bytenet=(10, 109),
        experts=4,
        window=8,
        max_positions=256,
    ),
    "base": make_baselines(
        BASE,
        BASE_TRAINING,
        lstm=(4, 808),
        plain=(4, 1616),
        gru=(4, 936),
        seq2seq=(4, 912),
        convs2s=(8, 616),
        bytenet=(15, 544),
        experts=8,
        window=32,
        max_positions=1024,
    ),
}

PRESETS = {
    **{row.name: Config(model=row.model, train=row.train) for row in TABLE_3},
    "tiny": Config(model=TINY),
    "small": Config(model=SMALL),
    "student": Config(model=STUDENT, decoding=GREEDY),
    "student-tiny": Config(model=STUDENT_TINY, decoding=GREEDY),
    **{
        f"{scale}-{name}": config
        for scale, baselines in BASELINES.items()
        for name, config in baselines.items()
    },
    "parsing": Config(model=PARSING, decoding=DecodingConfig(beam=21, alpha=0.3, max_extra_length=300)),
}


def get_preset(name: str) -> Config:
    """Return a preset: `base`, `big`, `tiny`, `student`, `parsing`, a row of Table 3, `tiny-rnn`, ..."""
    if name not in PRESETS:
        raise ConfigError(
            f"{name}: no file or folder, and {describe_unknown_name('preset', name, list(PRESETS))}"
        )
    return PRESETS[name]
