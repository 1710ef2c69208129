"""Tasks of the worker thread that show the inside of the model for one sentence, as JSON."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from manyheads.errors import RequestError
from manyheads.look.attention_data import build_attention_data
from manyheads.look.forward_walk import DEFAULT_WIDTH, Stack, estimate_numbers, walk_layer
from manyheads.serve.jobs import JobSize
from manyheads.serve.responses import TooManyNumbersError, replace_nan
from manyheads.serve.served_model import ServedModel, suppress_warnings
from manyheads.translation import AttentionMaps


@dataclass(frozen=True)
class SentenceTask:
    """Base of the tasks: a sentence and its translation, by default the model's own, to JSON."""

    model: ServedModel
    can_join: ClassVar[bool] = False

    def size(self, pairs: Sequence[tuple[str, str | None]]) -> JobSize:
        return JobSize(sum(self.model.count_tokens(source) for source, _ in pairs))

    def run(self, pairs: Sequence[tuple[str, str | None]], check_canceled: Callable[[], None]) -> list[str]:
        with suppress_warnings():
            return [self._run_pair(source, target) for source, target in pairs]

    def check(self, source: str, target: str | None) -> None:
        """Raise RequestError for what cannot be shown, before the task enters the queue."""
        target_length = 0 if target is None else self.model.count_target_tokens(target)
        self._check_size(max(self.model.count_tokens(source), target_length) + 1)

    def _run_pair(self, source: str, target: str | None) -> str:
        if target is None:
            target = self.model.translator.translate([source], split=False, corrections=False)[0].text
            self.check(source, target)
        return self._render(source, target)

    @property
    def _config(self) -> Any:
        return self.model.translator.engine.model.config  # type: ignore[attr-defined]

    def _render(self, source: str, target: str) -> str:
        raise NotImplementedError

    def _check_size(self, num_tokens: int) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class AttentionTask(SentenceTask):
    """All attention maps, or those of one layer."""

    layer: int | None
    max_numbers: int  # in all maps
    can_select_layer = True

    def _render(self, source: str, target: str) -> str:
        return attention_to_json(self.model.translator.attention(source, target), target, self.layer)

    def _check_size(self, num_tokens: int) -> None:
        num_layers = max(self._config.encoder_layers, self._config.decoder_layers)
        if self.layer is not None and self.layer >= num_layers:
            raise RequestError(
                f"layer is {self.layer}, but the model has {num_layers} layers, counted from 0"
            )
        per_layer = 3 * getattr(self._config, "heads", 1) * num_tokens**2  # a baseline has one head
        total = per_layer * (num_layers if self.layer is None else 1)
        if total > self.max_numbers:
            suggest_layer = self.can_select_layer and self.layer is None and per_layer <= self.max_numbers
            raise TooManyNumbersError(
                f"the maps of {num_tokens} tokens have {total} numbers, but the maximum is "
                f"{self.max_numbers}: use a shorter sentence{' or one layer' if suggest_layer else ''}"
            )


@dataclass(frozen=True)
class AttentionPageTask(AttentionTask):
    """The data of the attention page."""

    can_select_layer = False

    def _render(self, source: str, target: str) -> str:
        attention = self.model.translator.attention(source, target)
        return json.dumps(build_attention_data(attention, source=source, target=target), ensure_ascii=False)


@dataclass(frozen=True)
class WalkTask(SentenceTask):
    """The computation of one layer, step by step."""

    stack: Stack
    layer: int
    width: int
    max_numbers: int
    with_parameters: bool = False

    def _render(self, source: str, target: str) -> str:
        walk = walk_layer(
            self.model.translator,
            source,
            target,
            stack=self.stack,
            layer=self.layer,
            width=self.width,
            with_parameters=self.with_parameters,
        )
        if any(step["name"] == "logits" for step in walk["steps"]):
            walk["vocabulary"] = self._list_pieces()
        return json.dumps(replace_nan(walk), allow_nan=False, ensure_ascii=False)

    def _list_pieces(self) -> list[str]:
        """The pieces of the shown logits, by id."""
        subwords = self.model.translator.subwords.target
        return [subwords.id_to_piece(piece) for piece in range(min(self.width, len(subwords)))]

    def _check_size(self, num_tokens: int) -> None:
        config = self._config
        num_layers = config.encoder_layers if self.stack == "encoder" else config.decoder_layers
        if self.layer >= num_layers:
            raise RequestError(
                f"layer is {self.layer}, but the {self.stack} has {num_layers} layers, counted from 0"
            )
        total = estimate_numbers(config, num_tokens, self.width, self.with_parameters)
        if total > self.max_numbers:
            narrow = estimate_numbers(config, num_tokens, DEFAULT_WIDTH)
            suggest_width = self.width > DEFAULT_WIDTH and narrow <= self.max_numbers
            raise TooManyNumbersError(
                f"the walk of {num_tokens} tokens has {total} numbers, but the maximum is "
                f"{self.max_numbers}: use a shorter sentence{' or a smaller width' if suggest_width else ''}"
            )


def attention_to_json(attention: AttentionMaps, translation: str, layer: int | None) -> str:
    """Write attention maps as [layer][head][query][key], to five digits.

    Each head is encoded separately: encoding a long list blocks all other threads.
    """
    layers = slice(None) if layer is None else slice(layer, layer + 1)
    trace = attention.trace
    parts = {
        "translatedText": json.dumps(translation, ensure_ascii=False),
        "sourceTokens": json.dumps(attention.source_tokens, ensure_ascii=False),
        "targetTokens": json.dumps(attention.target_tokens, ensure_ascii=False),
        "encoder": join_nested(map(encode_head, maps[0]) for maps in trace.encoder[layers]),
        "decoder": join_nested(map(encode_head, maps[0]) for maps in trace.decoder[layers]),
        "cross": join_nested(map(encode_head, maps[0]) for maps in trace.cross[layers]),
    }
    return "{" + ",".join(f'"{name}":{part}' for name, part in parts.items()) + "}"


def join_nested(layers: Iterable[Iterable[str]]) -> str:
    return "[" + ",".join("[" + ",".join(heads) + "]" for heads in layers) + "]"


def encode_head(head: Tensor) -> str:
    return json.dumps(head.double().cpu().numpy().round(5).tolist(), separators=(",", ":"))
