"""A run folder: begun, or gone on with where it was left."""

from dataclasses import asdict
from pathlib import Path

import torch

from manyheads import checkpoint
from manyheads.config import Config
from manyheads.errors import ConfigError
from manyheads.train.distributed import joined
from manyheads.train.log import Screen, screen
from manyheads.train.loop import Trainer, newest_sound

CONFIG = "config.toml"


def train(config: Config, run: Path, *, change_config: bool = False, device: str | None = None) -> str:
    """Trains in a folder, from its newest sound checkpoint if it has one. Returns what ended it."""
    with joined(device or ("cuda" if torch.cuda.is_available() else "cpu")) as world:
        shown = screen(config.train.steps) if world.is_first else Screen(None)
        try:
            trainer = Trainer(config, run, world, shown)
            begin_or_go_on(trainer, change_config)
            return trainer.train()
        finally:
            shown.close()


def begin_or_go_on(trainer: Trainer, change_config: bool) -> None:
    run = trainer.run
    if begun := newest_sound(run, trainer.screen):
        check_unchanged(trainer.config, begun, change_config)
        trainer.resume(begun)
        trainer.screen.say(f"{run}: goes on after step {trainer.place.step:,}")
    trainer.world.wait()
    if trainer.world.is_first:
        run.mkdir(parents=True, exist_ok=True)
        trainer.config.save(run / CONFIG)


def check_unchanged(config: Config, begun: Path, change_config: bool) -> None:
    """A run goes on with the configuration that it began with, unless someone says that it should not."""
    now, then = asdict(config), asdict(checkpoint.describe(begun).config)
    changed = [
        f"{table}.{key} was {then[table][key]!r}, is {value!r}"
        for table, keys in now.items()
        for key, value in keys.items()
        if then[table].get(key) != value
    ]
    if changed and not change_config:
        raise ConfigError(
            f"{begun.parent.parent}: began with another configuration ({'; '.join(changed)}); change it "
            f"back, choose another folder, or go on with the new one by --change-config"
        )
