"""The shortlist of a model: which target pieces a source piece may become. NumPy only.

On a CPU a small model spends most of its time on the output matrix. With a shortlist it multiplies only the
rows of the target pieces that the sources of a batch call for, and of the most frequent ones. A source with a
piece that was too rare to learn from is translated with the whole vocabulary. Scores of given translations
never use it. train/shortlist.py learns it from the training data.

In a model folder: `shortlist.safetensors`.

    frequent [F]       target pieces that are always candidates
    offsets [S + 1]    where the candidates of each source piece begin; a piece without any was too rare
    pieces [C]         the candidates of all source pieces
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from manyheads.checkpoint.arrays import read_arrays
from manyheads.checkpoint.manifest import read_info, rewrite_folder
from manyheads.config import NUM_SPECIAL_TOKENS
from manyheads.errors import CheckpointError

SHORTLIST = "shortlist.safetensors"

Ids = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Candidates of every source piece, as ids of target pieces."""

    frequent: Ids  # [F] always candidates
    offsets: Ids  # [source vocabulary + 1]
    pieces: Ids  # [offsets[-1]]

    @property
    def source_vocab_size(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, piece: int) -> Ids:
        """Return the candidates of a source piece."""
        return self.pieces[self.offsets[piece] : self.offsets[piece + 1]]

    def covers(self, source: Sequence[int]) -> bool:
        """Return whether candidates are known of every piece of a source."""
        ids = np.asarray(source, np.int64)
        return bool(
            (ids < self.source_vocab_size).all() and (self.offsets[ids + 1] > self.offsets[ids]).all()
        )

    def select(self, sources: Iterable[Sequence[int]], others: Iterable[int] = ()) -> NDArray[np.int64]:
        """Return the target pieces that sources call for, and others that must be among them; sorted."""
        pieces = sorted({piece for source in sources for piece in source})
        parts = [self[piece] for piece in pieces]
        special = np.arange(NUM_SPECIAL_TOKENS)
        return np.unique(
            np.concatenate([special, self.frequent, np.fromiter(others, np.int64), *parts])
        ).astype(np.int64)

    def to_bytes(self) -> bytes:
        from safetensors.numpy import save

        largest = max(int(self.pieces.max(initial=0)), int(self.frequent.max(initial=0)))
        dtype = np.uint16 if largest < 1 << 16 else np.uint32
        arrays = {
            "frequent": self.frequent.astype(dtype),
            "offsets": self.offsets.astype(np.uint32),
            "pieces": self.pieces.astype(dtype),
        }
        return bytes(save(arrays))

    @classmethod
    def read(cls, path: Path, source_vocab_size: int, target_vocab_size: int) -> Self:
        """Read a shortlist for a model with these vocabularies."""
        arrays = read_arrays(path)
        names = ("frequent", "offsets", "pieces")
        is_shape_known = set(arrays) == set(names) and all(arrays[name].ndim == 1 for name in names)
        if not is_shape_known or any(arrays[name].dtype.kind != "u" for name in names):
            raise CheckpointError(f"{path}: not a shortlist: learn it again (manyheads shortlist)")
        own = cls(*(arrays[name].astype(np.int64) for name in names))
        largest = max(own.pieces.max(initial=0), own.frequent.max(initial=0))
        is_sorted = len(own.offsets) > 0 and own.offsets[0] == 0 and (np.diff(own.offsets) >= 0).all()
        if not is_sorted or own.offsets[-1] != len(own.pieces) or largest >= target_vocab_size:
            raise CheckpointError(f"{path}: not a shortlist: learn it again (manyheads shortlist)")
        if own.source_vocab_size != source_vocab_size:
            raise CheckpointError(
                f"{path}: is for {own.source_vocab_size:,} source pieces, but the model has "
                f"{source_vocab_size:,}: learn it again (manyheads shortlist)"
            )
        return own


def read_shortlist(folder: Path, source_vocab_size: int, target_vocab_size: int) -> Shortlist | None:
    """Read the shortlist of a model folder or of a conversion, if it has one."""
    path = folder / SHORTLIST
    return Shortlist.read(path, source_vocab_size, target_vocab_size) if path.exists() else None


def write_shortlist(folder: Path, shortlist: Shortlist) -> None:
    """Add a shortlist to a model folder, or replace it. The other files stay as they are."""
    path = Path(read_info(folder).folder).resolve()
    rewrite_folder(path, path, {SHORTLIST: shortlist.to_bytes()})
