"""To CTranslate2: the conversion that the engine runs, in a place of its own, verified."""

from pathlib import Path

from manyheads.atomic_io import room_for, written_aside
from manyheads.config import END
from manyheads.export.verify import Check, compared, our_scores, sample_pairs
from manyheads.inference.ctranslate2_engine import (
    MARKER,
    CTranslate2Engine,
    load_representable,
    size_of,
    write_conversion,
)
from manyheads.inference.torch_engine import TorchEngine


def to_ctranslate2(folder: Path, out: Path, replace: bool = False) -> list[Check]:
    """A model folder as a CTranslate2 folder; it gets its name when it scores samples as our model does."""
    model, subwords, told = load_representable(folder)
    with room_for(out, size_of(model)), written_aside(out, MARKER, replace) as aside:
        write_conversion(model, subwords, told, aside)
        engine = CTranslate2Engine(aside)
        pairs = [pair for pair in sample_pairs(subwords) if max(map(len, pair)) < engine.reach]
        sources = [[*source, END] for source, _ in pairs]
        theirs = [sum(scores) for scores in engine.score(sources, [target for _, target in pairs])]
        return compared(str(out), subwords, pairs, our_scores(TorchEngine(model), pairs), theirs)
