"""How a student is distilled from a teacher: `manyheads distill`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from manyheads.config.fields import ConfigSection, config_field
from manyheads.config.tokens import NUM_SPECIAL_TOKENS
from manyheads.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DistillConfig(ConfigSection):
    """Sequence-level knowledge distillation (Kim and Rush 2016): the student learns the teacher's outputs."""

    table: ClassVar[str] = "distill"

    beam: int = config_field(4, "beam size of the teacher; 1 is greedy", at_least=1)
    nbest: int | None = config_field(
        None,
        "hypotheses to choose from; by default one, or the whole beam if choose is not score",
        at_least=1,
    )
    choose: Literal["score", "chrf", "bleu"] = config_field(
        "score", "the hypothesis of the n-best list that has the best score, or chrF or BLEU to the reference"
    )
    min_confidence: float | None = config_field(
        None, "drop pairs below this confidence of a calibrated teacher", at_least=0, at_most=1
    )
    min_score: float | None = config_field(None, "drop pairs below this log-probability per token", at_most=0)
    original_share: float = config_field(
        0.0,
        "share of the original pairs among those that the student learns from, without monolingual text",
        at_least=0,
        below=1,
    )
    vocab_size: int | None = config_field(
        None,
        "train own subwords of this many pieces; by default those of the data",
        at_least=NUM_SPECIAL_TOKENS,
    )
    subwords: str | None = config_field(
        None, "a data or model folder whose subwords the student has; by default those of the data"
    )

    @property
    def num_hypotheses(self) -> int:
        """The length of the n-best list of a sentence."""
        return self.nbest or (1 if self.choose == "score" else self.beam)

    def check_together(self) -> None:
        if self.subwords is not None and self.vocab_size is not None:
            raise ConfigError(
                f"distill.subwords is {self.subwords!r} and distill.vocab_size is {self.vocab_size}: give "
                f"one of them, subwords that exist or the size of new ones"
            )
        if self.num_hypotheses > self.beam:
            raise ConfigError(
                f"distill.nbest is {self.nbest}, but distill.beam is {self.beam}: raise the beam"
            )
        if self.choose != "score" and self.num_hypotheses == 1:
            raise ConfigError(
                f"distill.choose is {self.choose!r}, but there is one hypothesis to choose from: raise "
                f"distill.beam or distill.nbest"
            )
