"""The batches of a run: those of its data, with general text mixed in where a model is adapted."""

from dataclasses import replace
from pathlib import Path

from manyheads.config import Config
from manyheads.data.batches import Batches
from manyheads.data.replay import ReplayBatches
from manyheads.data.store import Store
from manyheads.errors import ConfigError
from manyheads.train.distributed import DistributedContext


def open_general_data(config: Config, store: Store) -> Store | None:
    """Open the general data of an adaptation, which must have the subwords of the data."""
    folder = config.adaptation.general
    if folder is None:
        return None
    general = Store.open(Path(folder))
    if not general.subwords.is_same_as(store.subwords):
        raise ConfigError(
            f"adaptation.general is {folder}, whose subwords are not those of {config.data.folder}: prepare "
            f"both with subwords.reuse_from, set to the model"
        )
    return general


def create_batches(
    config: Config, store: Store, general: Store | None, dist: DistributedContext
) -> Batches | ReplayBatches:
    """Return the training batches of this rank. General text takes its share of the tokens of each."""

    def create(own: Store, batch_tokens: int) -> Batches:
        return Batches(
            own.load_split("train"),
            replace(config.data, batch_tokens=batch_tokens),
            seed=config.train.seed,
            rank=dist.rank,
            world_size=dist.world_size,
            subwords=own.subwords,
            augmentation=config.augmentation,
        )

    replay_tokens = round(config.data.batch_tokens * config.adaptation.replay)
    if general is None or not replay_tokens:
        return create(store, config.data.batch_tokens)
    own_tokens = max(1, config.data.batch_tokens - replay_tokens)
    return ReplayBatches(create(store, own_tokens), create(general, replay_tokens))
