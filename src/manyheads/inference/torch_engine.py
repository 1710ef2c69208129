"""The torch engine: our own models and our own search, on a CPU or a GPU."""

import copy
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from manyheads.config import BOS_ID, EOS_ID, DecodingConfig, ModelConfig
from manyheads.errors import ConfigError, RequestError
from manyheads.inference.cuda_graph_search import CudaGraphSearch, SearchSize, supports
from manyheads.inference.engine import ScoreDetail
from manyheads.model.encoder_decoder import Trace
from manyheads.model.kv_cache import Memory
from manyheads.model.transformer import Transformer
from manyheads.ops import dispatch
from manyheads.packed import Packed
from manyheads.search.beam import DecodingConstraints, Hypothesis, SearchLimits, search

ROWS = 256  # hypotheses under way at once
GPU_ROWS, GPU_SENTENCES = 4096, 2048  # on a GPU in captured graphs
MEMORY_SHARE = 0.25  # of what is free there, for keys and values
SIZES_KEPT = 4  # of captured searches
ROOM = 2**15  # tokens of sources that the rows under way may have, which bounds memory
LOOK_EVERY = 8  # steps on a GPU, which would wait at each look
SHORT = 64  # tokens of a source: so far all may go together
SHORT_IN_SLOTS = 256
SCORED_TOKENS = 4096  # of sources and targets together, scored at once


def resolve_device(device: str | None) -> str:
    """The device asked for; without one a GPU where there is one."""
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"the device is {device!r}, but must be cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("the device is cuda, but there is no GPU here that torch can use: --device cpu")
    return device


Precision = Literal["auto", "float32", "bfloat16"]


def free_memory(device: torch.device) -> int:
    """Bytes of a GPU that nobody holds, or that torch holds for whoever asks next."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def to_bfloat16(model: nn.Module) -> nn.Module:
    """A copy whose products are made in bfloat16; norms stay as they are."""
    copied = copy.deepcopy(model)
    for model in copied.modules():
        if isinstance(model, Transformer):  # other kinds are searched as they are
            for module in model.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    module.to(torch.bfloat16)
    return copied


class TorchEngine:
    """A model that is loaded; several threads may use it at once."""

    name = "torch"
    objective = "log p / ((5 + L) / 6)^alpha"

    def __init__(
        self, model: nn.Module, device: torch.device | str = "cpu", precision: Precision = "auto"
    ) -> None:
        self.device = torch.device(device)
        self.model: Any = model.to(self.device).eval()
        quick = self.device.type == "cuda" and dispatch.has_triton()
        self.uses_bfloat16 = precision == "bfloat16" or (precision == "auto" and quick)
        self.uses_bfloat16 &= any(isinstance(part, Transformer) for part in self.model.modules())
        self.search_model: Any = (
            to_bfloat16(self.model) if self.uses_bfloat16 else self.model
        )  # which looks for words
        self.graph_searches: dict[SearchSize, CudaGraphSearch] = {}  # the latest, each with its graph
        self.graph_lock = threading.Lock()

    def refresh_weights(self) -> None:
        """After the model's weights have changed."""
        self.model.eval()
        if self.uses_bfloat16:
            for kind in ("parameters", "buffers"):
                own, exact = getattr(self.search_model, kind)(), getattr(self.model, kind)()
                for mine, other in zip(own, exact, strict=True):
                    mine.data.copy_(other.data)

    @property
    def max_positions(self) -> int | None:
        """The most tokens of a side that the model can take; None: there is no end."""
        config: ModelConfig = self.model.config
        return config.position_limit

    @torch.inference_mode()
    def search(
        self,
        sources: Sequence[list[int]],
        wishes: Sequence[DecodingConstraints],
        how: DecodingConfig,
        *,
        scores: ScoreDetail = "total",
    ) -> list[list[Hypothesis]]:
        """The best translations of each source, best first, in the order of the sources.

        Scores are free, but on a GPU those of tokens take their time to be read.
        """
        if len(sources) != len(wishes):
            raise RequestError(f"{len(sources)} sources, but {len(wishes)} wishes: there is one for each")
        if (reach := self.max_positions) is not None:
            wishes = [
                limit_to_positions(reach, source, wish) for source, wish in zip(sources, wishes, strict=True)
            ]
        in_slots = self.device.type == "cuda" and supports(self.search_model, wishes, how)
        look = partial(self._search_in_slots, token_scores=scores == "tokens") if in_slots else self._search
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for numbers in group_by_length(
            [len(source) for source in sources], SHORT_IN_SLOTS if in_slots else SHORT
        ):
            own, asked = [sources[number] for number in numbers], [wishes[number] for number in numbers]
            for number, results in zip(numbers, look(own, asked, how), strict=True):
                found[number] = results
        return found

    def _search(
        self, sources: list[list[int]], wishes: list[DecodingConstraints], how: DecodingConfig
    ) -> list[list[Hypothesis]]:
        def open_sentences(numbers: list[int], state: Any) -> Any:
            memory = model.encode(Packed.of([sources[number] for number in numbers]).to(self.device))
            return model.start(memory, how.num_hypotheses) if state is None else state.append(memory)

        model, room = self.search_model, max(1, *map(len, sources))
        looks = LOOK_EVERY if self.device.type == "cuda" else 1
        limits = SearchLimits(max_rows=max(how.num_hypotheses, min(ROWS, ROOM // room)), poll_interval=looks)
        return search(model.step, open_sentences, wishes, how, self.device, limits)

    def _search_in_slots(
        self,
        sources: list[list[int]],
        wishes: list[DecodingConstraints],
        how: DecodingConfig,
        token_scores: bool = True,
    ) -> list[list[Hypothesis]]:
        """The same on a GPU, as captured graphs; by one thread at a time."""
        with self.graph_lock:
            size = SearchSize.for_requests(
                sources, wishes, how, min(GPU_ROWS, GPU_SENTENCES * how.num_hypotheses)
            )
            slots, longest = self.graph_searches.pop(size, None), max(map(len, sources))
            if slots is None or slots.size.source_tokens < longest:  # made smaller, when memory was short
                slots = self._create_graph_search(size, longest)
            self.graph_searches[size] = slots  # under the size that was asked for; the latest stands last
            return slots.run(sources, wishes, token_scores)

    def _create_graph_search(self, size: SearchSize, longest: int) -> CudaGraphSearch:
        """Smaller where memory is short; older ones are forgotten first."""
        for old in list(self.graph_searches)[: max(0, len(self.graph_searches) + 1 - SIZES_KEPT)]:
            del self.graph_searches[old]
        dtype = next(self.search_model.encoder.parameters()).dtype
        most = MEMORY_SHARE * free_memory(self.device)
        fits = size.shrink_to_fit(self.model.config, dtype.itemsize, most, longest)
        return CudaGraphSearch(self.search_model, fits, dtype, self.device)

    @torch.inference_mode()
    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """The log-probability of each token of each target, the end token's last: forced decoding."""
        found: list[list[float]] = [[] for _ in targets]
        for numbers in group_by_tokens([len(s) + len(t) for s, t in zip(sources, targets, strict=True)]):
            chosen = [targets[number] for number in numbers]
            source = Packed.of([sources[number] for number in numbers]).to(self.device)
            inputs = Packed.of([[BOS_ID, *target] for target in chosen]).to(self.device)
            labels = Packed.of([[*target, EOS_ID] for target in chosen]).to(self.device)
            log_p_T = label_log_probs(self.model(source, inputs), labels.tokens)
            for number, scores in zip(numbers, labels.split(log_p_T), strict=True):
                found[number] = scores.tolist()
        return found

    @torch.inference_mode()
    def trace(self, source: list[int], target: list[int]) -> tuple[Trace, Tensor]:
        """Every attention map of one translation, and log p of every word at each of its steps.

        Maps are those of encoder, decoder and cross; the probabilities are [T + 1, vocabulary].
        """
        trace = Trace()
        inputs = Packed.of([[BOS_ID, *target]]).to(self.device)
        logits_TK = self.model(Packed.of([source]).to(self.device), inputs, trace=trace)
        check_has_attention(trace, self.model.config)
        return trace, logits_TK.float().log_softmax(-1)

    @torch.inference_mode()
    def alignments(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[Tensor]:
        """What each target token, and the end, looked at: the last layer's heads, averaged. [T + 1, S]"""
        found: list[Tensor] = [torch.empty(0)] * len(sources)
        for numbers in group_by_tokens([len(s) + len(t) for s, t in zip(sources, targets, strict=True)]):
            trace = Trace()
            source = Packed.of([sources[number] for number in numbers]).to(self.device)
            inputs = Packed.of([[BOS_ID, *targets[number]] for number in numbers]).to(self.device)
            self.model(source, inputs, trace=trace)
            check_has_attention(trace, self.model.config)
            for number, heads_HTS in zip(numbers, trace.cross[-1], strict=True):
                found[number] = heads_HTS.mean(0).float().cpu()
        return found


def limit_to_positions(reach: int, source: list[int], wish: DecodingConstraints) -> DecodingConstraints:
    """The wish for no more than the model's positions reach."""
    if len(source) > reach:
        raise RequestError(
            f"a sentence of {len(source)} tokens, but the model's learned positions reach {reach}: split it"
        )
    return replace(wish, max_length=min(wish.max_length, reach - 1))


def check_has_attention(trace: Trace, config: ModelConfig) -> None:
    """A model without attention is refused by its key."""
    if not trace.cross:
        key = "architecture" if config.architecture == "bytenet" else "attention"
        raise RequestError(
            f"model.{key} is {getattr(config, key)!r}: it looks at nothing, and has no maps or alignments"
        )


def label_log_probs(logits_TK: Tensor, labels_T: Tensor) -> Tensor:
    """log p of each label. [T]"""
    right_T = logits_TK.gather(1, labels_T[:, None]).squeeze(1)
    return right_T.float() - logits_TK.float().logsumexp(-1)


def group_by_tokens(lengths: Sequence[int], most: int = SCORED_TOKENS) -> Iterator[list[int]]:
    """Numbers of sentences of like length, of about so many tokens together."""
    group: list[int] = []
    tokens = 0
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        if group and tokens + lengths[number] > most:
            yield group
            group, tokens = [], 0
        group.append(number)
        tokens += lengths[number]
    if group:
        yield group


def group_by_length(lengths: Sequence[int], short: int = SHORT) -> Iterator[list[int]]:
    """Numbers of sentences by length, the longest first; none is more than twice as long as another with it.

    The first of a group to be admitted is its longest, so that the room for keys never has to grow.
    """
    all_lengths = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-all_lengths, kind="stable")
    sorted_lengths, start = all_lengths[order], 0
    while start < len(order):
        longest, end = sorted_lengths[start], len(order)
        if longest > short:
            end = int(np.searchsorted(-2 * sorted_lengths, -longest, "right"))
        yield order[start:end].tolist()
        start = end


# ---- several models that decide together


@dataclass
class EnsembleState:
    """The states of an ensemble's models."""

    states: list[Any]

    def reorder(self, rows: Tensor) -> "EnsembleState":
        return EnsembleState([state.reorder(rows) for state in self.states])

    def remove(self, sentences: Tensor) -> "EnsembleState":
        return EnsembleState([state.remove(sentences) for state in self.states])

    def append(self, memories: list[Memory]) -> "EnsembleState":
        return EnsembleState([state.append(one) for state, one in zip(self.states, memories, strict=True)])


class Ensemble(nn.Module):
    """Several models with the same subwords: a word has the mean of the probabilities that they give it."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        configs: list[ModelConfig] = [one.config for one in models]  # type: ignore[misc]
        self.config = min(configs, key=lambda config: config.position_limit or math.inf)

    def forward(self, source: Packed, target: Packed, trace: Trace | None = None) -> Tensor:
        """The logarithm of the mean probability; maps are the first model's."""
        traces = [trace, *[None] * (len(self.models) - 1)]
        return mean_log_probs(
            [model(source, target, one) for model, one in zip(self.models, traces, strict=True)]
        )

    def encode(self, source: Packed) -> list[Memory]:
        return [model.encode(source) for model in self._models()]

    def start(self, memories: list[Memory], width: int = 1) -> EnsembleState:
        return EnsembleState([m.start(one, width) for m, one in zip(self._models(), memories, strict=True)])

    def step(self, tokens_R: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        steps = [m.step(tokens_R, one) for m, one in zip(self._models(), state.states, strict=True)]
        return mean_log_probs([logits for logits, _ in steps]), EnsembleState([state for _, state in steps])

    def _models(self) -> list[Any]:
        return list(self.models)


def mean_log_probs(logits: list[Tensor]) -> Tensor:
    """log of the mean of the probabilities."""
    log_p = torch.stack([one.float().log_softmax(-1) for one in logits])
    return log_p.logsumexp(0) - torch.tensor(float(len(logits))).log()
