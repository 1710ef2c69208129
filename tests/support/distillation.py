"""A plan of a distillation over a small corpus."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import manyheads as mh
from manyheads.config import DistillConfig
from manyheads.distill.plan import DistillationPlan
from support.small_run import make_config


def make_plan(data: Path, run: Path, teacher: Path, student: mh.Config | None = None, **options: Any) -> Any:
    """Return a plan; options are those of DistillConfig, and `monolingual` files."""
    config = student or make_config(run / "data")
    monolingual = tuple(options.pop("monolingual", ()))
    return DistillationPlan(
        (teacher,),
        data,
        run,
        DistillConfig(**options),
        replace(config, data=replace(config.data, folder=str(run / "data"))),
        monolingual,
        device="cpu",
        speed_seconds=0.02,
    )
