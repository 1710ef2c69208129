"""Decoding speed in output tokens per second: ours, Hugging Face generate, and on a CPU CTranslate2 too.

    python bench/decode.py                  base size; about three minutes on a GPU, longer on two cores
    python bench/decode.py --json result.json
    python bench/decode.py --profile        where each millisecond of our search goes

The sentences are those of the benchmark workload, the weights are random, and every output has the length of
the workload's translation, since random weights do not predict the end. CTranslate2 and Hugging Face force
one length per call, so they get the sentences in calls of one target length, in which no work is wasted on
finished outputs. Our torch engine gets all sentences at once, since it takes a length per sentence. Hugging
Face is measured a second time in batches by source length, as in common use, where each batch continues until
its longest output ends. Only requested tokens count. On a CPU sentences are batched by CTranslate2's rule; on
a GPU Hugging Face gets the batch size that is fastest for it, chosen before. All systems alternate in one
run, so that a noisy machine affects all. Speeds are medians over repetitions; a row that has used its time is
not repeated. On a GPU Hugging Face is measured with a static cache and a compiled decoder too, and everything
is decoded once before the measurement, so that kernels and graphs exist for every shape. The hypotheses of a
beam are not counted: a sentence of n tokens is n tokens. Our torch engine takes one step more than the
others, for the end token and its score.
"""

import argparse
import math
import statistics
import sys
import tempfile
import traceback
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

import kernels
import report
from decode_systems import (
    DIRECT_FLOAT,
    DIRECT_INT8,
    OURS,
    OURS_FLOAT,
    OURS_HALF,
    OURS_INT8,
    PEER,
    PEER_AT_BEST,
    PEER_STATIC,
    DecodeCall,
    Outputs,
    System,
    list_available,
    make_systems,
)
from manyheads.config import EOS_ID, DecodingConfig
from workload import draw_pairs

BEAMS = (1, 4)
SENTENCES = {"cpu": 256, "cuda": 4096}
MAX_REPETITIONS = 40
MIN_ROW_SECONDS = 5.0  # short rows are repeated until they have taken so long


@dataclass
class Result:
    """A row of the table."""

    system: str
    beam: int
    tokens: int = 0
    seconds: list[float] = field(default_factory=list)  # of each repetition
    note: str = ""
    error: str = ""  # why a peer could not be measured

    @property
    def speed(self) -> float:
        """Output tokens per second."""
        return self.tokens / statistics.median(self.seconds) if self.seconds else math.nan

    @property
    def search(self) -> str:
        return "greedy" if self.beam == 1 else f"beam {self.beam}"


# ---- measuring


def make_calls(sentences: int, lengths: int, vocab_size: int, seed: int) -> list[DecodeCall]:
    """Return calls of `lengths` target lengths, quantiles of the workload's, with equally many sentences."""
    pool = draw_pairs(max(20_000, 50 * sentences), vocab_size, seed)
    pool.sort(key=lambda pair: len(pair.target))
    per_call, calls = -(-sentences // lengths), []
    for part in range(lengths):
        length = len(pool[(2 * part + 1) * len(pool) // (2 * lengths)].target)  # the median of each part
        sources = [[*pair.source, EOS_ID] for pair in pool if len(pair.target) == length]
        calls.append(DecodeCall(sources[:per_call], length))
    return calls


def measure(
    systems: dict[str, System], calls: list[DecodeCall], arguments: argparse.Namespace
) -> list[Result]:
    """Measure all systems alternately, in reverse order every second time."""
    results = [Result(name, beam, sum(call.tokens for call in calls)) for beam in BEAMS for name in systems]
    for row in results:
        warm_up(row, systems[row.system], calls)
        report.log(f"{row.system}, {row.search}: {row.error or f'ready {row.note}'}")
    report.freeze_gc()
    for repetition in range(MAX_REPETITIONS):
        for row in results[:: 1 if repetition % 2 else -1]:
            if not row.error and needs_repetition(row, arguments):
                row.seconds.append(time_decode(systems[row.system], calls, row.beam, arguments.device))
                report.log(f"{row.system}, {row.search}: {row.tokens / row.seconds[-1]:,.0f} tokens/s")
    return results


def warm_up(row: Result, system: System, calls: list[DecodeCall]) -> None:
    """Do the one-time work of a row. An error of the compiled peer is recorded; no other may fail."""
    try:
        row.note = system.warm_up(calls, DecodingConfig(beam=row.beam))
    except Exception as error:
        if row.system != PEER_STATIC:
            raise
        row.error = f"{type(error).__name__}: {str(error)[:200]}"
        report.log(traceback.format_exc())


def needs_repetition(row: Result, arguments: argparse.Namespace) -> bool:
    """Return whether a row is repeated. Short rows are repeated more often, since they are noisier."""
    spent = sum(row.seconds)
    too_few = len(row.seconds) < arguments.repetitions or spent < MIN_ROW_SECONDS
    return too_few and spent < arguments.row_seconds


def time_decode(system: System, calls: list[DecodeCall], beam: int, device: str) -> float:
    """Return the seconds; exit if an output does not have the forced length."""
    outputs: Outputs = []
    config = DecodingConfig(beam=beam)
    seconds = report.time_call(lambda: outputs.extend(system.decode(calls, config)), device)
    for call, sentences in zip(calls, outputs, strict=True):
        lengths = {len(tokens) for tokens in sentences}
        if lengths != {call.length}:
            sys.exit(f"outputs of {sorted(lengths)} tokens, but {call.length} were forced")
    return seconds


# ---- reporting


def find_row(results: list[Result], system: str, beam: int) -> Result | None:
    return next((row for row in results if (row.system, row.beam) == (system, beam)), None)


def format_ratios(results: list[Result], row: Result) -> str:
    """Format the speed of a row relative to the systems that it is compared with."""
    direct = {OURS_INT8: DIRECT_INT8, OURS_FLOAT: DIRECT_FLOAT}.get(row.system)
    ratios = []
    compared = {
        direct: "of direct",
        PEER: "of Hugging Face",
        PEER_AT_BEST: "at its best",
        PEER_STATIC: "compiled",
    }
    for name, words in compared.items():
        other = find_row(results, name, row.beam) if name else None
        if other and other is not row and not row.error and not other.error:
            ratios.append(f"{row.speed / other.speed:.3g} x {words}")
    return ", ".join(ratios)


def compute_speedup(results: list[Result], row: Result) -> float | None:
    """Return the speed of our torch engine, in bfloat16 if measured, relative to the row."""
    ours = find_row(results, OURS_HALF, row.beam) or find_row(results, OURS, row.beam)
    return ours.speed / row.speed if ours and not row.error else None


COLUMNS = ("system", "search", "output tokens/s", "spread", "relative speed", "speedup of ours")


def format_row(row: Result, results: list[Result]) -> tuple[str, ...]:
    if row.error:
        return row.system, row.search, "", "", row.error[:60]
    speedup = compute_speedup(results, row)
    return (
        row.system,
        row.search,
        f"{row.speed:,.0f}",
        report.format_spread(row.seconds),
        format_ratios(results, row),
        "" if speedup is None else f"{speedup:.2f} x",
    )


def to_json(row: Result, results: list[Result]) -> dict[str, Any]:
    if row.error:
        return asdict(row)
    return {
        **asdict(row),
        "tokens_per_second": row.speed,
        "spread": report.compute_spread(row.seconds),
        "relative_speed": format_ratios(results, row),
        "speedup_of_ours": compute_speedup(results, row),
    }


def print_profiles(
    systems: dict[str, System], calls: list[DecodeCall], title: str, arguments: argparse.Namespace
) -> None:
    """Profile the first system, greedy and with a beam, on all sentences."""
    name, system = next(iter(systems.items()))
    environment, profiles = report.measure_environment(arguments.device), {}
    for beam in BEAMS:
        config = DecodingConfig(beam=beam)
        system.warm_up(calls, config)
        profile = kernels.profile_call(partial(system.decode, calls, config), arguments.device)
        kernels.print_profile(profile, f"{name}, beam {beam}: {title}; {environment}")
        profiles[f"beam {beam}"] = profile.to_dict()
    report.write_json(arguments.json, title, environment, system=name, profile=profiles)


def parse_arguments() -> argparse.Namespace:
    parser = report.BenchmarkParser(__doc__)
    report.add_preset_argument(parser, "base")
    report.add_vocab_size_argument(parser)
    parser.add_argument(
        "--sentences",
        type=report.positive_int,
        help="total number (default: 4096; on a CPU 256; for a profile an eighth)",
    )
    parser.add_argument(
        "--lengths", type=report.positive_int, default=4, help="target lengths, one call each (default: 4)"
    )
    parser.add_argument(
        "--repetitions",
        type=report.positive_int,
        default=3,
        help=f"at least, and until a row took {MIN_ROW_SECONDS:.0f} seconds (default: 3)",
    )
    parser.add_argument(
        "--row-seconds", type=float, help="a row that took so long is not repeated (default: 10 on a GPU)"
    )
    parser.add_argument("--threads", type=report.positive_int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=1)
    report.add_only_argument(parser)
    parser.add_argument(
        "--profile", action="store_true", help="instead: profile the first system, kernel by kernel"
    )
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    divisor = 8 if arguments.profile else 1  # a trace holds every kernel of every step
    arguments.sentences = arguments.sentences or SENTENCES[arguments.device] // divisor
    arguments.row_seconds = arguments.row_seconds or (10.0 if on_gpu else float("inf"))
    arguments.systems = report.select_systems(list_available(arguments.device), arguments.only)
    if arguments.profile:
        arguments.systems = arguments.systems[:1]
    return arguments


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    config = report.get_transformer(arguments)
    calls = make_calls(arguments.sentences, arguments.lengths, arguments.vocab_size, arguments.seed)
    outputs = ", ".join(f"{len(call.sources)} of {call.length}" for call in calls)
    title = f"{arguments.preset}, vocabulary {arguments.vocab_size:,}; outputs: {outputs} tokens"
    with tempfile.TemporaryDirectory() as folder:
        max_length = max(call.length for call in calls)
        systems = make_systems(Path(folder) / "model", config, arguments, max_length)
        if arguments.profile:
            print_profiles(systems, calls, title, arguments)
            return
        results = measure(systems, calls, arguments)
    environment = report.measure_environment(arguments.device)
    report.print_table(f"{title}; {environment}", COLUMNS, [format_row(row, results) for row in results])
    report.write_json(
        arguments.json,
        title,
        environment,
        calls=[{"sentences": len(call.sources), "length": call.length} for call in calls],
        repetitions=arguments.repetitions,
        rows=[to_json(row, results) for row in results],
    )


if __name__ == "__main__":
    report.run_main(main)
