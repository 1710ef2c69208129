"""Equal training budgets in tokens, FLOPs, steps or seconds for the runs that are compared."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, count, islice
from typing import Self

import numpy as np

from manyheads import checkpoint
from manyheads.config import Config
from manyheads.data.batches import Batches
from manyheads.data.store import Store
from manyheads.errors import ConfigError
from manyheads.paper.training_cost import compute_flops_per_token

UNITS = ("tokens", "FLOPs", "steps", "s")
BUDGET_PATTERN = re.compile(r"(\d[\d_]*(?:\.\d+)?(?:e\d+)?)(tokens|FLOPs|steps|s)")
UNLIMITED = 10**9  # steps, where time ends the run; also the interval of validations that are not wanted
MAX_CHECKPOINT_INTERVAL = 1000  # steps: what a killed run can lose


@dataclass(frozen=True)
class Budget:
    """An amount of tokens, FLOPs, steps or seconds."""

    amount: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse text such as 2000000tokens, 5e15FLOPs, 500steps or 60s."""
        match = BUDGET_PATTERN.fullmatch(text.strip())
        amount = float(match[1].replace("_", "")) if match else 0.0
        if not match or not 0 < amount < math.inf or (match[2] != "s" and amount != int(amount)):
            raise ConfigError(
                f"the budget is {text!r}, but must be tokens, FLOPs, steps or seconds, "
                f"such as 2000000tokens, 5e15FLOPs, 500steps or 60s"
            )
        return cls(amount, match[2])

    def __str__(self) -> str:
        return f"{self.amount:,.15g} {'seconds' if self.unit == 's' else self.unit}"

    def apply_to(self, config: Config, store: Store, *, validations: int = 0) -> Config:
        """Return the run with this budget. Nothing is averaged, as in Table 3.

        Its model is the last checkpoint, or with `validations` the best on valid of that many.
        """
        steps = self._count_steps(config, store)
        interval = max(1, steps // validations) if validations and self.unit != "s" else UNLIMITED
        train = replace(
            config.train,
            steps=steps,
            seconds=self.amount if self.unit == "s" else None,
            log_every=max(1, min(100, steps // 20)),
            checkpoint_every=min(MAX_CHECKPOINT_INTERVAL, max(1, steps // 4)),
            validate_every=interval,  # by default the budget covers training alone
            bleu_sentences=0,
            keep_checkpoints=1,
            average_checkpoints=1,
            card=False,
        )
        return replace(config, train=train)

    def _count_steps(self, config: Config, store: Store) -> int:
        if self.unit == "s":
            return UNLIMITED
        if self.unit == "steps":
            return int(self.amount)
        if self.unit == "tokens":
            return count_steps(int(self.amount), config, store)
        model = checkpoint.fit_to_vocabulary(config.model, store.subwords)
        return count_steps(round(self.amount / compute_flops_per_token(model, store)), config, store)


def count_steps(tokens: int, config: Config, store: Store) -> int:
    """Return the first step by which `tokens` have been read."""
    totals = accumulate(iterate_batch_tokens(config, store))
    return next(step for step, total in enumerate(totals, 1) if total >= tokens)


def count_tokens(steps: int, config: Config, store: Store) -> int:
    """Return the source and target tokens that `steps` read."""
    return sum(islice(iterate_batch_tokens(config, store), steps))


def iterate_batch_tokens(config: Config, store: Store) -> Iterator[int]:
    """Yield the tokens of each batch in training order, without end."""
    split = store.load_split("train")
    batches = Batches(split, config.data, seed=config.train.seed)
    lengths = split.source.lengths + split.target.lengths
    for epoch in count():
        plan = batches.plan(epoch)
        yield from np.add.reduceat(lengths[plan.order], plan.bounds[:-1]).tolist()


def parse_budgets(texts: list[str], both_units: bool, tokens: int, seconds: float) -> list[Budget]:
    """Parse budgets, at most one per unit. `both_units` adds the default tokens and seconds where missing."""
    budgets = [Budget.parse(text) for text in texts]
    units = [budget.unit for budget in budgets]
    if len(set(units)) < len(units):
        raise ConfigError(f"budgets are {', '.join(map(str, budgets))}, but only one of each unit is allowed")
    if both_units or not budgets:
        budgets += [] if {"tokens", "steps", "FLOPs"} & {*units} else [Budget(tokens, "tokens")]
    if both_units:
        budgets += [] if "s" in units else [Budget(seconds, "s")]
    return budgets
