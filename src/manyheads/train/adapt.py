"""Adaptation of a trained model to other text: fine-tuning that does not forget, with a report.

Training itself is that of every run (trainer.py). This module chooses its settings: those of the parent's
data and model, but not its steps, time limit and schedule. The run ends when the loss on the validation set
of the new text stops improving.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from manyheads import checkpoint
from manyheads.checkpoint import CheckpointInfo
from manyheads.config import AdaptationConfig, Config, TrainConfig
from manyheads.data.store import Store
from manyheads.errors import ConfigError, DataError
from manyheads.model import build_model, count_parameters
from manyheads.text.languages import UNDETERMINED
from manyheads.train.final_model import ADAPTER_FILE
from manyheads.train.trained_weights import count_adapter_parameters, find_linear

DEFAULT_REPLAY = 0.5  # share of general text in each batch, where general data is given
DEFAULT_ANCHOR = 0.01  # weight of the distance to the old weights, where there is no general data
RATE_FRACTION = 0.15  # of the parent's peak learning rate
ADAPTER_RATE_FRACTION = 1.0  # the same for adapters, whose B starts at zero
MAX_ADAPTER_SHARE = 0.05  # of the bytes of the model's weights; an adapter has two bytes per number
MAX_RANK = 32
EPOCH_BATCHES = 40  # at least about so many in an epoch, by smaller batches than the parent's
MIN_BATCH_TOKENS = 500
MIN_VALIDATE_EVERY, MAX_VALIDATE_EVERY = 10, 500  # steps
MAX_EPOCHS, MIN_STEPS, MAX_STEPS = 40, 200, 20_000
PATIENCE = 4  # validations
WARMUP = 100  # steps
BLEU_SENTENCES = 100  # of each validation set, translated greedily for the curves


@dataclass(frozen=True)
class AdaptationOptions:
    """What is requested. None: by default."""

    general: Path | None = None  # a data folder
    replay: float | None = None
    adapter: str | None = None  # its name: train an adapter, and not the weights
    rank: int | None = None
    freeze: tuple[str, ...] = ()


def create_config(
    info: CheckpointInfo, data: Store, options: AdaptationOptions, changes: list[str] | None = None
) -> Config:
    """Return the configuration of the run that adapts a model to the text of a data folder."""
    check_data(info, data)
    parent, adaptation = info.config, create_adaptation(info, data, options)
    num_tokens = max(data.manifest["splits"]["train"][side]["tokens"] for side in ("source", "target"))
    batch_tokens = min(parent.data.batch_tokens, max(MIN_BATCH_TOKENS, num_tokens // EPOCH_BATCHES))
    epoch = max(1, round(num_tokens / (batch_tokens * (1 - adaptation.replay))))
    validate_every = min(MAX_VALIDATE_EVERY, max(MIN_VALIDATE_EVERY, epoch // 2))
    steps = min(MAX_STEPS, max(MIN_STEPS, MAX_EPOCHS * epoch))
    paper_peak = (parent.model.d_model * parent.train.warmup) ** -0.5
    peak = parent.train.learning_rate or paper_peak
    fraction = RATE_FRACTION if adaptation.rank is None else ADAPTER_RATE_FRACTION
    train = TrainConfig(
        steps=steps,
        init_from=str(info.folder),
        schedule="constant",
        warmup=min(WARMUP, validate_every),
        learning_rate=peak * fraction,
        validate_every=validate_every,
        checkpoint_every=steps,  # the best one is saved as soon as it is found
        keep_checkpoints=1,
        average_checkpoints=1,
        patience=PATIENCE,
        bleu_sentences=BLEU_SENTENCES,
        log_every=min(50, validate_every),
        card=False,
        **{key: getattr(parent.train, key) for key in INHERITED_KEYS},
    )
    data_config = replace(parent.data, folder=str(data.folder), batch_tokens=batch_tokens)
    config = replace(parent, data=data_config, train=train, adaptation=adaptation)
    return config.override(changes or [])


INHERITED_KEYS = (  # of the parent's training
    "seed", "beta1", "beta2", "epsilon", "label_smoothing", "label_smoothing_over", "precision",
    "clip_norm", "micro_tokens", "cuda_graphs", "deterministic",
)  # fmt: skip


def check_data(info: CheckpointInfo, data: Store) -> None:
    languages = data.manifest["languages"]
    # An imported model may not know its languages: then the data says them.
    if any(info.languages[side] not in (UNDETERMINED, languages[side]) for side in languages):
        ours, theirs = ("-".join(pair.values()) for pair in (info.languages, languages))
        raise DataError(f"{data.folder}: is {theirs}, but {info.folder} translates {ours}")
    if "valid" not in data.splits:
        raise DataError(
            f"{data.folder}: has no validation set, which says when to stop: prepare it with --valid, or "
            f"with corpus.hold_out above 0"
        )


def create_adaptation(info: CheckpointInfo, data: Store, options: AdaptationOptions) -> AdaptationConfig:
    """Return what is trained, and what keeps the model from forgetting."""
    general = options.general or find_parent_data(info, data)
    has_replay = options.general is not None or options.replay is not None
    replay = (DEFAULT_REPLAY if options.replay is None else options.replay) if has_replay else 0.0
    if replay and general is None:
        raise ConfigError(f"--replay is {replay:g}, but there is no general data: give --general DATA")
    is_adapter = options.adapter is not None or options.rank is not None
    rank = options.rank
    if is_adapter and rank is None:
        rank = choose_rank(info)
    return AdaptationConfig(
        rank=rank,
        freeze=options.freeze,
        anchor=0.0 if replay or is_adapter else DEFAULT_ANCHOR,
        general=None if general is None else str(general),
        replay=replay,
    )


def find_parent_data(info: CheckpointInfo, data: Store) -> Path | None:
    """Return the data folder of the parent, if it is still there, to measure what is forgotten."""
    folder = Path(info.config.data.folder)
    try:
        parent = Store.open(folder)
    except DataError:
        return None
    is_other = parent.sha256 != data.sha256
    return folder if is_other and parent.subwords.is_same_as(data.subwords) else None


def choose_rank(info: CheckpointInfo) -> int:
    """Return the largest rank up to MAX_RANK whose adapter takes at most a twentieth of the model's bytes."""
    import torch

    with torch.device("meta"):
        weights = dict(find_linear(build_model(info.config.model)))
    per_rank = 2 * count_adapter_parameters(weights, 1)
    if not per_rank:
        raise ConfigError("the model has no linear layers that an adapter could change: adapt its weights")
    weight_bytes = 1 if info.quantization else 4
    model_bytes = weight_bytes * count_parameters(info.config.model)["total"]
    return max(1, min(MAX_RANK, int(MAX_ADAPTER_SHARE * model_bytes / per_rank)))


def install_adapter(run: Path, model: Path, name: str) -> Path:
    """Copy the adapter that a run has trained into the folder of its model; return the file."""
    from manyheads.checkpoint.adapters import parse_adapter

    path = checkpoint.adapter_path(model, name)
    checkpoint.write_adapter(path, replace(parse_adapter(run / ADAPTER_FILE, name), name=name))
    checkpoint.read_adapter(model, name)  # which checks that it belongs to this model
    return path
