"""To CTranslate2: the conversion that the engine runs, in a place of its own, verified."""

from pathlib import Path

from manyheads.atomic_io import atomic_directory, report_disk_full
from manyheads.config import EOS_ID
from manyheads.export.verify import ScoreComparison, compare_scores, sample_pairs, score_pairs
from manyheads.inference.ctranslate2_engine import (
    CONVERSION_MANIFEST,
    CTranslate2Engine,
    count_parameter_bytes,
    load_convertible_model,
    write_conversion,
)
from manyheads.inference.torch_engine import TorchEngine


def to_ctranslate2(folder: Path, out: Path, replace: bool = False) -> list[ScoreComparison]:
    """A model folder as a CTranslate2 folder; it gets its name when it scores samples as our model does."""
    model, subwords, told = load_convertible_model(folder)
    with (
        report_disk_full(out, count_parameter_bytes(model)),
        atomic_directory(out, CONVERSION_MANIFEST, replace) as aside,
    ):
        write_conversion(model, subwords, told, aside)
        engine = CTranslate2Engine(aside)
        pairs = [pair for pair in sample_pairs(subwords) if max(map(len, pair)) < engine.max_positions]
        sources = [[*source, EOS_ID] for source, _ in pairs]
        theirs = [sum(scores) for scores in engine.score(sources, [target for _, target in pairs])]
        return compare_scores(str(out), subwords, pairs, score_pairs(TorchEngine(model), pairs), theirs)
