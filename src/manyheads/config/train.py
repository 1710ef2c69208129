"""How the model is trained (section 5)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from manyheads.config.fields import ConfigSection, config_field


@dataclass(frozen=True, kw_only=True)
class TrainConfig(ConfigSection):
    """Optimizer, schedule, regularization, checkpoints."""

    table: ClassVar[str] = "train"

    steps: int = config_field(100_000, "updates (5.2)", at_least=1)
    seconds: float | None = config_field(
        None, "stop after this time too, counted over all resumed runs", above=0
    )
    seed: int = config_field(1, "of the initial weights, the order of the data and dropout", at_least=0)
    init_from: str | None = config_field(
        None, "a model folder to take the initial weights from: fine-tuning; the subwords must be the same"
    )
    optimizer: Literal["adam", "adamw", "muon"] = config_field(
        "adam", "Adam (5.3); AdamW; Muon for hidden matrices with AdamW for the rest"
    )
    weight_decay: float = config_field(0.0, "of AdamW and Muon; not in the paper", at_least=0)
    clip_norm: float | None = config_field(None, "clip the gradient to this norm; not in the paper", above=0)
    micro_tokens: int | None = config_field(
        None,
        "largest micro-batch in tokens of a side; a batch accumulates gradients over micro-batches",
        at_least=1,
    )
    precision: Literal["auto", "float32", "bfloat16"] = config_field(
        "auto", "precision of matrix products; auto is bfloat16 on a GPU; weights stay float32"
    )
    cuda_graphs: bool = config_field(True, "on a GPU, run steps as captured CUDA graphs")
    compile: bool = config_field(False, "compile the model with torch.compile")
    deterministic: bool = config_field(False, "on a GPU, compute the same bits each time, somewhat slower")
    schedule: Literal["paper", "linear", "cosine", "constant"] = config_field(
        "paper", "of the learning rate after the warm-up (5.3)"
    )
    warmup: int = config_field(
        4000, "steps over which the learning rate rises (5.3); 1: no warm-up", at_least=1
    )
    learning_rate: float | None = config_field(
        None, "peak learning rate; by default the paper's, (d_model * warmup)^-0.5", above=0
    )
    beta1: float = config_field(0.9, "Adam's decay of the gradient's mean (5.3)", at_least=0, below=1)
    beta2: float = config_field(0.98, "Adam's decay of its squared mean (5.3)", at_least=0, below=1)
    epsilon: float = config_field(1e-9, "Adam's term against division by zero (5.3)", above=0)
    label_smoothing: float = config_field(
        0.1, "e, the probability that the target gives to other tokens (5.4)", at_least=0, below=1
    )
    label_smoothing_over: Literal["all", "others"] = config_field(
        "all", "which tokens share that probability: all K tokens (e/K each), or the K - 1 others"
    )
    r_drop: float = config_field(
        0.0,
        "weight of the divergence of two forward passes with own dropout, half R-Drop's alpha; 0 is off",
        at_least=0,
    )
    log_every: int = config_field(50, "steps between log lines", at_least=1)
    validate_every: int = config_field(1000, "steps between validations", at_least=1)
    bleu_sentences: int = config_field(
        200, "validation sentences translated greedily at each validation; 0 is none", at_least=0
    )
    patience: int | None = config_field(
        None, "stop after this many validations without a better loss; by default never", at_least=1
    )
    checkpoint_every: int = config_field(1000, "steps between checkpoints", at_least=1)
    keep_checkpoints: int = config_field(5, "checkpoints to keep, beside the best", at_least=1)
    snapshots: bool = config_field(
        False, "keep small int8 models of steps 0, 25, 50, 100, 200, ... for look --through-training"
    )
    average_checkpoints: int = config_field(
        5, "last checkpoints that are averaged into the final model (6.1)", at_least=1
    )

    card: bool = config_field(True, "write a model card with stress tests into the folder of the final model")
    calibrate: bool = config_field(
        True, "calibrate the confidence of the final model on the validation set (docs/robustness.md)"
    )

    @property
    def forward_passes(self) -> int:
        """The number of times that each batch is processed."""
        return 2 if self.r_drop else 1

    @property
    def micro_batch_tokens(self) -> int | None:
        """Tokens of a side per micro-batch: all forward passes together stay within micro_tokens."""
        return None if self.micro_tokens is None else max(1, self.micro_tokens // self.forward_passes)
