"""Equal budgets: so many tokens, steps or seconds for every run that is compared."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, count, islice
from typing import Self

import numpy as np

from manyheads.config import Config
from manyheads.data.batches import Batches
from manyheads.data.store import Store
from manyheads.errors import ConfigError

UNITS = ("tokens", "steps", "s")
BUDGET_PATTERN = re.compile(r"(\d[\d_]*(?:\.\d+)?)(tokens|steps|s)")
UNLIMITED = 10**9  # steps of a run that time ends, and between things that are not done
MAX_CHECKPOINT_INTERVAL = 1000  # steps at most, so that a run that is killed loses little


@dataclass(frozen=True)
class Budget:
    """What a run may use up: an amount of one of the units."""

    amount: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Written as 2000000tokens, 500steps or 60s."""
        found = BUDGET_PATTERN.fullmatch(text.strip())
        amount = float(found[1].replace("_", "")) if found else 0.0
        if not found or not 0 < amount < math.inf or (found[2] != "s" and amount != int(amount)):
            raise ConfigError(
                f"the budget is {text!r}, but must be tokens, steps or seconds, "
                f"such as 2000000tokens, 500steps or 60s"
            )
        return cls(amount, found[2])

    def __str__(self) -> str:
        return f"{self.amount:,.15g} {'seconds' if self.unit == 's' else self.unit}"

    def apply_to(self, config: Config, store: Store) -> Config:
        """The run with this budget. Its last weights are the model: nothing is averaged, as in Table 3."""
        steps = self._count_steps(config, store)
        train = replace(
            config.train,
            steps=steps,
            seconds=self.amount if self.unit == "s" else None,
            log_every=max(1, min(100, steps // 20)),
            checkpoint_every=min(MAX_CHECKPOINT_INTERVAL, max(1, steps // 4)),
            validate_every=UNLIMITED,  # the budget is for training alone
            keep_checkpoints=1,
            average_checkpoints=1,
        )
        return replace(config, train=train)

    def _count_steps(self, config: Config, store: Store) -> int:
        if self.unit == "s":
            return UNLIMITED
        return int(self.amount) if self.unit == "steps" else count_steps(int(self.amount), config, store)


def count_steps(tokens: int, config: Config, store: Store) -> int:
    """The first step by which so many tokens are read."""
    totals = accumulate(iterate_batch_tokens(config, store))
    return next(step for step, total in enumerate(totals, 1) if total >= tokens)


def count_tokens(steps: int, config: Config, store: Store) -> int:
    """What so many steps read, source and target together."""
    return sum(islice(iterate_batch_tokens(config, store), steps))


def iterate_batch_tokens(config: Config, store: Store) -> Iterator[int]:
    """Tokens of one batch after the other, without end: their order is known beforehand."""
    split = store.load_split("train")
    batches = Batches(split, config.data, seed=config.train.seed)
    lengths = split.source.lengths + split.target.lengths
    for epoch in count():
        plan = batches.plan(epoch)
        yield from np.add.reduceat(lengths[plan.order], plan.bounds[:-1]).tolist()


def parse_budgets(texts: list[str], both_units: bool, tokens: int, seconds: float) -> list[Budget]:
    """Budgets as they are asked for, one of a unit; `both` sees to it that tokens and seconds are there."""
    found = [Budget.parse(text) for text in texts]
    units = [one.unit for one in found]
    if len(set(units)) < len(units):
        raise ConfigError(f"budgets are {', '.join(map(str, found))}, but may be one of each unit")
    if both_units or not found:
        found += [] if {"tokens", "steps"} & {*units} else [Budget(tokens, "tokens")]
    if both_units:
        found += [] if "s" in units else [Budget(seconds, "s")]
    return found
