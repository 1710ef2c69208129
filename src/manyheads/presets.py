"""The paper's models and every row of its Table 3, each written as a difference from base."""

from dataclasses import dataclass, replace

from manyheads.config import Config, ModelConfig, SearchConfig, TrainConfig, unknown
from manyheads.errors import ConfigError

BASE = ModelConfig()
BIG = replace(BASE, d_model=1024, d_ff=4096, heads=16, dropout=0.3)
# Section 6.3 gives the parser's depth and d_model only; the other widths are those of the big model.
PARSING = replace(BIG, layers=4, vocabulary=16_000)
# Not the paper's: for small corpora and small machines.
TINY = replace(BASE, vocabulary=8_000, layers=4, d_model=128, d_ff=256, heads=4, dropout=0.3)
SMALL = replace(BASE, vocabulary=16_000, layers=4, d_model=256, d_ff=1024, heads=4)


PAPER_TRAINING = TrainConfig()


@dataclass(frozen=True)
class Row:
    """A line of Table 3. `paper_millions` is its parameter count as the paper prints it."""

    name: str
    model: ModelConfig
    train: TrainConfig = PAPER_TRAINING
    paper_millions: int | None = None


TABLE_3 = (
    Row("base", BASE, paper_millions=65),
    Row("A-h1", replace(BASE, heads=1, d_k=512, d_v=512)),
    Row("A-h4", replace(BASE, heads=4, d_k=128, d_v=128)),
    Row("A-h16", replace(BASE, heads=16, d_k=32, d_v=32)),
    Row("A-h32", replace(BASE, heads=32, d_k=16, d_v=16)),
    Row("B-dk16", replace(BASE, d_k=16), paper_millions=58),
    Row("B-dk32", replace(BASE, d_k=32), paper_millions=60),
    Row("C-n2", replace(BASE, layers=2), paper_millions=36),
    Row("C-n4", replace(BASE, layers=4), paper_millions=50),
    Row("C-n8", replace(BASE, layers=8), paper_millions=80),
    Row("C-d256", replace(BASE, d_model=256, d_k=32, d_v=32), paper_millions=28),
    Row("C-d1024", replace(BASE, d_model=1024, d_k=128, d_v=128), paper_millions=168),
    Row("C-ff1024", replace(BASE, d_ff=1024), paper_millions=53),
    Row("C-ff4096", replace(BASE, d_ff=4096), paper_millions=90),
    Row("D-drop0", replace(BASE, dropout=0.0)),
    Row("D-drop2", replace(BASE, dropout=0.2)),
    Row("D-smooth0", BASE, TrainConfig(label_smoothing=0.0)),
    Row("D-smooth2", BASE, TrainConfig(label_smoothing=0.2)),
    Row("E-learned", replace(BASE, positions="learned")),
    Row("big", BIG, TrainConfig(steps=300_000), paper_millions=213),
)

PRESETS = {
    **{row.name: Config(model=row.model, train=row.train) for row in TABLE_3},
    "tiny": Config(model=TINY),
    "small": Config(model=SMALL),
    "parsing": Config(model=PARSING, search=SearchConfig(beam=21, alpha=0.3, extra_length=300)),
}


def preset(name: str) -> Config:
    """The preset of that name: `base`, `big`, `tiny`, `small`, `parsing`, or a row of Table 3."""
    if name not in PRESETS:
        raise ConfigError(f"{name}: no file or folder, and {unknown('preset', name, list(PRESETS))}")
    return PRESETS[name]
