"""The data pipeline without a model: latency, throughput, and the padding that other batching would need.

python bench/pipeline.py DATA          a folder made by `manyheads prepare`
python bench/pipeline.py               the benchmark workload
python bench/pipeline.py --plan 36000000      the order of an epoch of so many pairs, without tokens
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.config import DataConfig
from manyheads.data.batches import Batches
from manyheads.data.store import Side, Split, Store
from manyheads.text.subwords import concat_with_end
from workload import MAX_LENGTH, MIN_LENGTH, MU, SIGMA, draw_pairs


def make_workload_split(pairs: int, vocab_size: int) -> Split:
    sampled = draw_pairs(pairs, vocab_size, seed=0)
    sides = []
    for name in ("source", "target"):
        pieces = concat_with_end([getattr(pair, name) for pair in sampled])
        sides.append(Side(pieces.ids.astype(np.uint16), pieces.offsets))
    return Split(sides[0], sides[1], (("workload", 1.0, pairs),))


def time_first_batch(split: Split, config: DataConfig, epoch: int, index: int) -> tuple[Batches, float]:
    """Return the batches and the seconds until the first one is available."""
    start = time.perf_counter()
    batches = Batches(split, config, seed=1)
    with batches.stream(epoch, index) as stream:
        next(stream)
    return batches, time.perf_counter() - start


def measure_throughput(batches: Batches, seconds: float) -> dict[str, float]:
    """Return source and target tokens per second of the background thread, across the end of an epoch."""
    with batches.stream(0, batches.count_batches(0) // 2) as stream:
        next(stream)
        start, tokens, count = time.perf_counter(), 0, 0
        while (spent := time.perf_counter() - start) < seconds:
            batch = next(stream)
            tokens += len(batch.source.tokens) + len(batch.labels.tokens)
            count += 1
    return {"tokens_per_second": tokens / spent, "batches_per_second": count / spent}


def compute_real_share(batches: Batches) -> dict[str, float]:
    """Return the share of real tokens in our batches, in the same padded, and in random ones padded.

    For ours it is 1 by construction, which this verifies. `filled` is the mean share of the token budget that
    the fuller side of a batch uses.
    """
    plan = batches.plan(0)
    shuffled = np.random.default_rng(0).permutation(plan.order)
    sides = (batches.split.source, batches.split.target)
    real = packed = padded = random = fullest = 0
    for index in range(len(plan)):
        span = slice(plan.bounds[index], plan.bounds[index + 1])
        lengths = [side.lengths[plan.order[span]] for side in sides]
        batch = batches.get_batch(0, index)
        packed += len(batch.source.tokens) + len(batch.labels.tokens)
        real += sum(int(side_lengths.sum()) for side_lengths in lengths)
        padded += sum(len(side_lengths) * int(side_lengths.max()) for side_lengths in lengths)
        random += sum(len(shuffled[span]) * int(side.lengths[shuffled[span]].max()) for side in sides)
        fullest += max(int(side_lengths.sum()) for side_lengths in lengths)
    filled = fullest / (len(plan) * batches.config.batch_tokens)
    return {
        "packed": real / packed,
        "padded_sorted": real / padded,
        "padded_random": real / random,
        "filled": filled,
    }


def measure(split: Split, batch_tokens: int, seconds: float) -> dict[str, Any]:
    config = DataConfig(batch_tokens=batch_tokens)
    batches, first_seconds = time_first_batch(split, config, 0, 0)
    last = batches.count_batches(0) - 1
    source, target = (Side(side.tokens, side.offsets) for side in (split.source, split.target))
    fresh = Split(source, target, split.parts)  # without cached lengths
    _, resume_seconds = time_first_batch(fresh, config, 0, last)
    return {
        "pairs": len(split),
        "too_long": len(batches.too_long),
        "batches": batches.count_batches(0),
        "seconds_to_first_batch": first_seconds,
        f"seconds_to_batch_{last}": resume_seconds,
        **measure_throughput(batches, seconds),
        "real_share": compute_real_share(batches),
    }


def measure_plan(pairs: int, batch_tokens: int) -> dict[str, float]:
    """Time the order of an epoch, which depends on lengths alone."""
    generator = np.random.default_rng(0)
    sides = []
    for _ in range(2):
        lengths = (
            np.exp(generator.normal(MU, SIGMA, pairs)).round().clip(MIN_LENGTH, MAX_LENGTH).astype(np.int64)
            + 1
        )
        sides.append(Side(np.zeros(0, np.uint16), np.concatenate([[0], np.cumsum(lengths)])))
    start = time.perf_counter()
    batches = Batches(
        Split(sides[0], sides[1], (("plan", 1.0, pairs),)), DataConfig(batch_tokens=batch_tokens)
    )
    count = batches.count_batches(0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"pairs": pairs, "batches": count, "seconds": time.perf_counter() - start, "peak_gib": peak}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, help="a data folder (default: the workload)")
    parser.add_argument("--pairs", type=int, default=200_000, help="pairs of the workload")
    parser.add_argument("--plan", type=int, metavar="PAIRS", help="time only the order of an epoch")
    parser.add_argument("--batch-tokens", type=int, default=25_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    measurements = (
        measure_plan(arguments.plan, arguments.batch_tokens) if arguments.plan else measure_batches(arguments)
    )
    json.dump(measurements, sys.stdout, indent=1)
    print()
    if arguments.json:
        arguments.json.write_text(json.dumps(measurements, indent=1))


def measure_batches(arguments: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    split = (
        Store.open(arguments.data).load_split("train")
        if arguments.data
        else make_workload_split(arguments.pairs, 37_000)
    )
    seconds = time.perf_counter() - start
    measurements = measure(split, arguments.batch_tokens, arguments.seconds)
    return {"seconds_to_open": seconds, **measurements} if arguments.data else measurements


if __name__ == "__main__":
    main()
