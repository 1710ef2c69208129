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


# The same n and d for all layers of a device, so that their costs can be compared. A recurrence runs a batch,
# since one sentence at a time would measure calls.
CPU_N, CPU_D = (512, 1024, 2048, 4096), (128, 256, 512, 1024)
GPU_N, GPU_D = (2048, 4096, 8192, 16384), (512, 1024, 2048, 4096)
KERNELS = (3, 5, 9, 17)
SWEEPS: Mapping[str, Mapping[str, SizeSweep]] = {
    "cpu": {
        "self-attention": SizeSweep(CPU_N, CPU_D),
        "recurrent": SizeSweep(CPU_N, CPU_D, batch=32),
        "convolution, contiguous": SizeSweep(CPU_N, CPU_D, KERNELS),
        "convolution, dilated": SizeSweep(CPU_N, CPU_D, KERNELS),
        "self-attention, restricted": SizeSweep(CPU_N, CPU_D, (64, 128, 256)),
    },
    "cuda": {
        "self-attention": SizeSweep(GPU_N, GPU_D, batch=8),
        "recurrent": SizeSweep(GPU_N, GPU_D, batch=256),
        "convolution, contiguous": SizeSweep(GPU_N, GPU_D, KERNELS, batch=8),
        "convolution, dilated": SizeSweep(GPU_N, GPU_D, KERNELS, batch=8),
        "self-attention, restricted": SizeSweep(GPU_N, GPU_D, (256, 512, 1024), batch=8),
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
