"""The last sums of gradients over tokens, of which each program of a kernel left one, a stripe.

Shapes: M gradients, N stripes, F numbers of each. A program adds ROWS stripes of COLUMNS numbers at a time.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_ROWS, COLUMNS = 512, 16
NUM_WARPS = 8


def sum_stripes(sums_MNF: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Return the sum of the stripes of each gradient, [F]: the last in this dtype, the others in float32."""
    count, stripes, width = sums_MNF.shape
    exact = sums_MNF.new_empty(count - 1, width)
    rounded = sums_MNF.new_empty(width, dtype=dtype)
    rows = min(MAX_ROWS, triton.next_power_of_2(stripes))
    sum_stripes_kernel[(triton.cdiv(width, COLUMNS), count)](
        *(sums_MNF, exact, rounded, stripes), *(width, rows, COLUMNS), num_warps=NUM_WARPS
    )
    return [*exact, rounded]


@triton.jit
def sum_stripes_kernel(
    sums, exact, rounded, stripes, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    columns, gradient = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1)
    in_row = columns < WIDTH
    sums += gradient * stripes * WIDTH
    partial = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, stripes, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < stripes)[:, None] & in_row[None, :]
        partial += tl.load(sums + rows[:, None] * WIDTH + columns[None, :], mask=inside, other=0.0)
    total = tl.sum(partial, 0)
    if gradient < tl.num_programs(1) - 1:
        tl.store(exact + gradient * WIDTH + columns, total, mask=in_row)
    else:
        tl.store(rounded + columns, total.to(rounded.dtype.element_ty), mask=in_row)
