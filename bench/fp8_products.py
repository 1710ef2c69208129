"""Would fp8 matrix products make training faster? Times and errors, by the shapes of a model.

    python bench/fp8_products.py                    base and big on a GPU that has fp8
    python bench/fp8_products.py --preset big --tokens 25600 --json result.json

For each matrix of the model the three products of a training step are measured (output, gradient of the
input, gradient of the weights): in bfloat16, in fp8 alone, and in fp8 with what it needs: the largest value
of each tensor, its conversion, and a transposed copy, since fp8 products read one layout only. Conversions
are compiled into few kernels. The error is that of the output against float32, for random
normal values; fp8 has one scale per tensor (activations and weights e4m3, gradients e5m2).
The sum over all matrices of a step says what fp8 could save.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import manyheads as mh
import report
from manyheads.errors import RequestError

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
WARM_UP, MEASURED = 3, 20


@dataclass(frozen=True)
class MatrixShape:
    """A weight matrix of the model, and how many of it a step multiplies."""

    name: str
    inner: int  # D
    columns: int  # F
    count: int


@dataclass
class Result:
    """Milliseconds of the three products of one matrix."""

    name: str
    inner: int
    columns: int
    count: int
    bfloat16: float
    fp8_alone: float
    fp8: float  # with conversions
    bfloat16_error: float
    fp8_error: float


def list_shapes(config: mh.TransformerConfig) -> list[MatrixShape]:
    """Return the matrices of a Transformer, those that share an input as one."""
    d_model, d_ff = config.d_model, config.d_ff
    width_k, width_v = config.heads * config.head_dim_k, config.heads * config.head_dim_v
    encoder, decoder = config.encoder_layers, config.decoder_layers
    return [
        MatrixShape("queries, keys, values", d_model, 2 * width_k + width_v, encoder + decoder),
        MatrixShape("queries", d_model, width_k, decoder),
        MatrixShape("keys, values of the source", d_model, width_k + width_v, decoder),
        MatrixShape("attention output", width_v, d_model, encoder + 2 * decoder),
        MatrixShape("feed-forward 1", d_model, d_ff, encoder + decoder),
        MatrixShape("feed-forward 2", d_ff, d_model, encoder + decoder),
        MatrixShape("vocabulary", d_model, config.vocab_size // 16 * 16, 1),
    ]


def quantize(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return a tensor in fp8, its transpose, and the scale that both are to be multiplied by."""
    scale = values.abs().amax().float() / torch.finfo(dtype).max
    rounded = (values.float() / scale).to(dtype)
    return rounded, rounded.t().contiguous(), scale


def multiply(left: Tensor, right_columns: Tensor, scales: tuple[Tensor, Tensor]) -> Tensor:
    """Return left times the transpose of `right_columns`, both in fp8."""
    return torch._scaled_mm(left, right_columns.t(), *scales, out_dtype=torch.bfloat16)


class Products:
    """The operands of one matrix, and the ways to multiply them."""

    def __init__(self, shape: MatrixShape, tokens: int, device: str, compiled: bool) -> None:
        def draw(rows: int, columns: int) -> Tensor:
            return torch.randn(rows, columns, device=device, dtype=torch.bfloat16)

        self.x_TD, self.weight_FD = draw(tokens, shape.inner), draw(shape.columns, shape.inner)
        self.gradient_TF = draw(tokens, shape.columns)
        self.quantize: Callable[..., Any] = torch.compile(quantize) if compiled else quantize
        self.rounded = self._quantize_all()

    def _quantize_all(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        pairs = (self.x_TD, E4M3), (self.weight_FD, E4M3), (self.gradient_TF, E5M2)
        return [self.quantize(values, dtype) for values, dtype in pairs]

    def run_bfloat16(self) -> Tensor:
        output_TF = self.x_TD @ self.weight_FD.t()
        self.gradient_TF @ self.weight_FD
        self.gradient_TF.t() @ self.x_TD
        return output_TF

    def run_fp8(self, converts: bool) -> Tensor:
        operands = self._quantize_all() if converts else self.rounded
        (x_TD, x_DT, x_scale), (weight_FD, weight_DF, weight_scale), (gradient_TF, gradient_FT, scale) = (
            operands
        )
        output_TF = multiply(x_TD, weight_FD, (x_scale, weight_scale))
        multiply(gradient_TF, weight_DF, (scale, weight_scale))
        multiply(gradient_FT, x_DT, (scale, x_scale))
        return output_TF

    def measure_error(self, output_TF: Tensor) -> float:
        """Return the error of an output relative to the product in float32."""
        exact = self.x_TD.float() @ self.weight_FD.float().t()
        return float((output_TF.float() - exact).norm() / exact.norm())


def measure(shape: MatrixShape, tokens: int, device: str) -> Result:
    on_gpu = device == "cuda"
    products = Products(shape, tokens, device, compiled=on_gpu)

    def time_milliseconds(call: Callable[[], Any]) -> float:
        repetitions = MEASURED if on_gpu else 1
        report.repeat(call, WARM_UP if on_gpu else 1)()
        return 1000 * report.time_call(report.repeat(call, repetitions), device) / repetitions

    return Result(
        **asdict(shape),
        bfloat16=time_milliseconds(products.run_bfloat16),
        fp8_alone=time_milliseconds(partial(products.run_fp8, False)),
        fp8=time_milliseconds(partial(products.run_fp8, True)),
        bfloat16_error=products.measure_error(products.run_bfloat16()),
        fp8_error=products.measure_error(products.run_fp8(True)),
    )


COLUMNS = (
    "matrix", "shape", "in a step", "bfloat16 ms", "fp8 alone ms", "fp8 ms", "speedup", "bfloat16 error",
    "fp8 error",
)  # fmt: skip


def format_row(row: Result) -> tuple[str, ...]:
    return (
        row.name, f"{row.inner} x {row.columns}", str(row.count), f"{row.bfloat16:.3f}",
        f"{row.fp8_alone:.3f}", f"{row.fp8:.3f}", f"{row.bfloat16 / row.fp8:.2f} x",
        f"{row.bfloat16_error:.2%}", f"{row.fp8_error:.2%}",
    )  # fmt: skip


def format_total(rows: list[Result]) -> tuple[str, ...]:
    """Return the sums over a step."""
    totals = [
        sum(row.count * getattr(row, name) for row in rows) for name in ("bfloat16", "fp8_alone", "fp8")
    ]
    times = (f"{total:.2f}" for total in totals)
    return ("whole step", "", "", *times, f"{totals[0] / totals[2]:.2f} x", "", "")


def parse_arguments() -> argparse.Namespace:
    parser = report.BenchmarkParser(__doc__)
    parser.add_argument("--preset", action="append", choices=report.PRESETS, help="(default: base and big)")
    parser.add_argument(
        "--tokens", type=report.positive_int, default=25_600, help="of each side, a multiple of 16"
    )
    arguments = parser.parse_args()
    if arguments.tokens % 16:
        raise RequestError(f"--tokens {arguments.tokens}: fp8 products need a multiple of 16")
    arguments.presets = arguments.preset or ["base", "big"]
    return arguments


def main() -> None:
    arguments = parse_arguments()
    environment = report.measure_environment(arguments.device)
    results: dict[str, list[Result]] = {}
    for preset in arguments.presets:
        config = mh.presets.get_preset(preset).model
        assert isinstance(config, mh.TransformerConfig)
        rows = [measure(shape, arguments.tokens, arguments.device) for shape in list_shapes(config)]
        results[preset] = rows
        title = f"{preset}, {arguments.tokens:,} tokens; {environment}"
        report.print_table(title, COLUMNS, [*map(format_row, rows), format_total(rows)])
    report.write_json(
        arguments.json,
        f"fp8 products, {arguments.tokens:,} tokens",
        environment,
        rows={preset: [asdict(row) for row in rows] for preset, rows in results.items()},
    )


if __name__ == "__main__":
    report.run_main(main)
