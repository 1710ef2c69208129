"""Which task shows the inside of a model for one sentence. The tasks themselves need torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from manyheads.serve.jobs import JobSize
from manyheads.serve.served_model import ServedModel

SentencePair = tuple[str, str | None]  # a sentence and its translation, by default the model's own


class CheckedTask(Protocol):
    """A task that refuses what cannot be shown before it enters the queue."""

    @property
    def can_join(self) -> bool: ...

    def size(self, items: Sequence[Any]) -> JobSize: ...

    def run(self, items: Sequence[Any], check_canceled: Callable[[], None]) -> list[Any]: ...

    def check(self, source: str, target: str | None) -> None: ...


@dataclass(frozen=True)
class RemoteSentenceTask:
    """A task that the engine process runs; it also checks it."""

    model: ServedModel
    name: str
    parameters: tuple[Any, ...]
    can_join: ClassVar[bool] = False

    def size(self, pairs: Sequence[SentencePair]) -> JobSize:
        return JobSize(sum(self.model.count_tokens(source) for source, _ in pairs))

    def run(self, pairs: Sequence[SentencePair], check_canceled: Callable[[], None]) -> list[str]:
        engine: Any = self.model.translator.engine
        return [engine.run_sentence_task(self.name, self.parameters, *pair) for pair in pairs]

    def check(self, source: str, target: str | None) -> None:
        """Nothing is known here about the model."""


def create_sentence_task(name: str, model: ServedModel, parameters: Sequence[Any]) -> CheckedTask:
    """Return the task of an endpoint: attention, look or walk."""
    if model.is_remote:
        return RemoteSentenceTask(model, name, tuple(parameters))
    from manyheads.serve.attention_tasks import AttentionPageTask, AttentionTask, WalkTask

    tasks: dict[str, Any] = {"attention": AttentionTask, "look": AttentionPageTask, "walk": WalkTask}
    task: CheckedTask = tasks[name](model, *parameters)
    return task
