"""From the disk to the model, without a model: how soon, how fast, and how much would be padding elsewhere.

python bench/pipeline.py DATA          a folder that `manyheads prepare` made
python bench/pipeline.py               the benchmark workload, drawn from a seed
python bench/pipeline.py --plan 36000000      the order of an epoch of so many pairs, without their tokens
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
from workload import LONGEST, MU, SHORTEST, SIGMA, draw_pairs


def workload_split(pairs: int, vocabulary: int) -> Split:
    drawn = draw_pairs(pairs, vocabulary, seed=0)
    sides = []
    for name in ("source", "target"):
        pieces = concat_with_end([getattr(pair, name) for pair in drawn])
        sides.append(Side(pieces.ids.astype(np.uint16), pieces.offsets))
    return Split(sides[0], sides[1], (("workload", 1.0, pairs),))


def first_batch(split: Split, config: DataConfig, epoch: int, index: int) -> tuple[Batches, float]:
    """Seconds from nothing to a batch in hand."""
    start = time.perf_counter()
    batches = Batches(split, config, seed=1)
    with batches.stream(epoch, index) as stream:
        next(stream)
    return batches, time.perf_counter() - start


def throughput(batches: Batches, seconds: float) -> dict[str, float]:
    """Tokens a second, source and target, of the background thread alone, across the end of an epoch too."""
    with batches.stream(0, batches.count_batches(0) // 2) as stream:
        next(stream)
        start, tokens, count = time.perf_counter(), 0, 0
        while (spent := time.perf_counter() - start) < seconds:
            batch = next(stream)
            tokens += len(batch.source.tokens) + len(batch.labels.tokens)
            count += 1
    return {"tokens_per_second": tokens / spent, "batches_per_second": count / spent}


def real_share(batches: Batches) -> dict[str, float]:
    """Real tokens out of those paid for: in our batches, in the same padded, and in random ones padded.

    Of ours the two are one by construction; what is counted is that nothing is added on the way. `filled` is
    how near the fuller side of a batch comes to its budget.
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
        real += sum(int(own.sum()) for own in lengths)
        padded += sum(len(own) * int(own.max()) for own in lengths)
        random += sum(len(shuffled[span]) * int(side.lengths[shuffled[span]].max()) for side in sides)
        fullest += max(int(own.sum()) for own in lengths)
    filled = fullest / (len(plan) * batches.config.batch_tokens)
    return {
        "packed": real / packed,
        "padded_sorted": real / padded,
        "padded_random": real / random,
        "filled": filled,
    }


def measure(split: Split, tokens: int, seconds: float) -> dict[str, Any]:
    config = DataConfig(batch_tokens=tokens)
    batches, begun = first_batch(split, config, 0, 0)
    late = batches.count_batches(0) - 1
    anew = Split(*(Side(side.tokens, side.offsets) for side in (split.source, split.target)), split.parts)
    _, resumed = first_batch(anew, config, 0, late)
    return {
        "pairs": len(split),
        "too_long": len(batches.too_long),
        "batches": batches.count_batches(0),
        "seconds_to_first_batch": begun,
        f"seconds_to_batch_{late}": resumed,
        **throughput(batches, seconds),
        "real_share": real_share(batches),
    }


def measure_plan(pairs: int, tokens: int) -> dict[str, float]:
    """The order of an epoch from lengths alone, which is all that it looks at."""
    chance = np.random.default_rng(0)
    sides = []
    for _ in range(2):
        lengths = np.exp(chance.normal(MU, SIGMA, pairs)).round().clip(SHORTEST, LONGEST).astype(np.int64) + 1
        sides.append(Side(np.zeros(0, np.uint16), np.concatenate([[0], np.cumsum(lengths)])))
    start = time.perf_counter()
    batches = Batches(Split(sides[0], sides[1], (("plan", 1.0, pairs),)), DataConfig(batch_tokens=tokens))
    count = batches.count_batches(0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"pairs": pairs, "batches": count, "seconds": time.perf_counter() - start, "peak_gib": peak}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, help="a data folder; without it the workload")
    parser.add_argument("--pairs", type=int, default=200_000, help="of the workload")
    parser.add_argument("--plan", type=int, metavar="PAIRS", help="the order of an epoch alone")
    parser.add_argument("--batch-tokens", type=int, default=25_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = measure_plan(given.plan, given.batch_tokens) if given.plan else measure_given(given)
    json.dump(found, sys.stdout, indent=1)
    print()
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


def measure_given(given: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    split = Store.open(given.data).load_split("train") if given.data else workload_split(given.pairs, 37_000)
    opened = time.perf_counter() - start
    found = measure(split, given.batch_tokens, given.seconds)
    return {"seconds_to_open": opened, **found} if given.data else found


if __name__ == "__main__":
    main()
