"""Sizes at which the layers of Table 1 are measured: the defaults of a device, and those of --sizes."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from manyheads.errors import RequestError
from manyheads.paper.layer_types import HEAD_DIM, LayerSize

MAX_N, MAX_D = 2**20, 2**15  # of --sizes


@dataclass(frozen=True)
class SizeSweep:
    """Ranges of n, d and k. Each is swept while the others stay at their first value."""

    n: Sequence[int]
    d: Sequence[int]
    k: Sequence[int] = (0,)
    batch: int = 1

    def sizes(self) -> Iterator[tuple[str, LayerSize]]:
        """Yield each size with the name of the variable that is swept."""
        first = LayerSize(self.n[0], self.d[0], self.k[0], self.batch)
        for variable in ("n", "d", "k"):
            for value in getattr(self, variable):
                yield variable, replace(first, **{variable: value})

    def sizes_along(self, variable: str) -> list[LayerSize]:
        return [size for swept, size in self.sizes() if swept == variable]


# Sizes at which the exponents should hold: large enough that computation dominates calls and data movement.
SWEEPS: Mapping[str, Mapping[str, SizeSweep]] = {
    "cpu": {
        "self-attention": SizeSweep((1024, 2048, 4096, 8192), (128, 256, 512, 1024)),
        "recurrent": SizeSweep((16, 32, 64, 128), (512, 768, 1024, 1536, 2048), batch=64),
        "convolution, contiguous": SizeSweep(
            (512, 1024, 2048, 4096), (256, 384, 512, 768, 1024), (3, 5, 9, 17)
        ),
        "convolution, dilated": SizeSweep((512, 1024, 2048, 4096), (256, 384, 512, 768, 1024), (3, 5, 9, 17)),
        "self-attention, restricted": SizeSweep(
            (4096, 8192, 16384), (256, 512, 1024, 2048), (128, 256, 512, 1024)
        ),
    },
    "cuda": {
        "self-attention": SizeSweep((16384, 32768, 65536, 131072), (512, 1024, 2048, 4096)),
        "recurrent": SizeSweep((16, 32, 64, 128), (8192, 12288, 16384, 24576, 32768), batch=1024),
        "convolution, contiguous": SizeSweep((65536, 131072, 262144), (2048, 4096, 8192), (3, 5, 9, 17)),
        "convolution, dilated": SizeSweep((65536, 131072, 262144), (2048, 4096, 8192), (3, 5, 9, 17)),
        "self-attention, restricted": SizeSweep(
            (131072, 262144, 524288), (512, 1024, 2048, 4096), (4096, 8192, 16384, 32768)
        ),
    },
}
REFERENCE_SWEEP = SizeSweep(
    (512, 1024, 2048), (128, 256, 512, 1024)
)  # of equation (1), all weights in memory


def parse_sizes(text: str) -> dict[str, tuple[int, ...]]:
    """Parse ranges such as n=1024-8192,d=128-512 into sizes that double from the first to the last."""
    ranges: dict[str, tuple[int, ...]] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([nd])=(\d+)-(\d+)\s*", part)
        if match is None:
            raise RequestError(f"--sizes has {part!r}, but a range must look like n=1024-8192 or d=128-512")
        variable, low, high = match.group(1), int(match.group(2)), int(match.group(3))
        ranges[variable] = double_range(variable, low, high)
    return ranges


def double_range(variable: str, low: int, high: int) -> tuple[int, ...]:
    maximum = MAX_N if variable == "n" else MAX_D
    if not 1 <= low < high <= maximum or high < 2 * low:
        raise RequestError(
            f"--sizes has {variable}={low}-{high}, but a range must start at 1 or more, end at {maximum} or "
            f"less, and end at twice its start or more"
        )
    if variable == "d" and low % HEAD_DIM:
        raise RequestError(
            f"--sizes has d={low}-{high}, but d must start at a multiple of {HEAD_DIM}, the width of a head"
        )
    return tuple(itertools.takewhile(lambda size: size <= high, (low << step for step in range(64))))
