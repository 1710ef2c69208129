"""The peers: torch.nn.Transformer and Hugging Face Marian, each as fast as we can make it.

Both work on padded batches. The padding id does not occur in the text. Targets are padded on the right, where
the causal mask hides the padding, so that no padding mask is needed and the fastest kernels can be used.
"""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import manyheads as mh
from manyheads.config import BOS_ID, EOS_ID, UNK_ID, DecodingConfig
from manyheads.errors import RequestError
from manyheads.export.to_huggingface import check_config, convert_config
from manyheads.inference.engine import Capabilities, Feature, ScoreDetail
from manyheads.model.positions import sinusoidal_encoding
from manyheads.packed import round_up
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
from manyheads.search.request_source import RequestSource
from workload import MAX_LENGTH

MAX_POSITIONS = round_up(MAX_LENGTH + 1, 8)  # a sentence of maximum length and its end, rounded up
MARIAN_BATCH_TOKENS = 2048  # source tokens that it translates at once, unless a size is searched


def pad_sentences(sentences: Sequence[Sequence[int]], pad: int, multiple: int = 1) -> Tensor:
    """Return one row per sentence, padded to the longest, rounded up to a multiple. [B, L]"""
    length = round_up(max(map(len, sentences)), multiple)
    return torch.tensor([[*sentence, *[pad] * (length - len(sentence))] for sentence in sentences])


# ---- torch.nn.Transformer


class TorchTransformer(nn.Module):
    """torch.nn.Transformer in common use, with dropout only where the paper has it."""

    pad = UNK_ID
    positions: Tensor

    def __init__(self, config: mh.TransformerConfig, train: mh.TrainConfig) -> None:
        super().__init__()
        self.smoothing, self.scale = train.label_smoothing, math.sqrt(config.d_model)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, padding_idx=self.pad)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        sizes = (
            config.d_model,
            config.heads,
            config.encoder_layers,
            config.decoder_layers,
            config.d_ff,
            config.dropout,
        )
        self.transformer = nn.Transformer(*sizes, batch_first=True)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.output.weight = self.embedding.weight
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer(
            "positions", sinusoidal_encoding(torch.arange(MAX_POSITIONS), config.d_model).float()
        )
        self.compute_loss = compute_projected_loss
        self.disable_extra_dropout()

    def disable_extra_dropout(self) -> None:
        """Disable dropout of attention weights and inside the feed-forward layer (5.4)."""
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Identity()  # type: ignore[assignment]

    def embed(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(
            self.embedding(tokens) * self.scale + self.positions[: tokens.shape[1]]
        )
        return embedded

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=source.device)
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=mask.isinf(),
            tgt_is_causal=True,
            src_key_padding_mask=source == self.pad,
            memory_key_padding_mask=source == self.pad,
        )
        return self.compute_loss(hidden, self.output.weight, None, labels, self.pad, self.smoothing)

    def compile_layers(self) -> None:
        compile_stacks(self, self.transformer.encoder.layers, self.transformer.decoder.layers)


class TorchTransformerOwnDropout(TorchTransformer):
    """With its own dropout, which includes attention weights and the inside of the feed-forward layer."""

    def disable_extra_dropout(self) -> None:
        pass


def compute_projected_loss(
    hidden_BLD: Tensor,
    weight_KD: Tensor,
    bias_K: Tensor | None,
    labels_BL: Tensor,
    pad: int,
    smoothing: float,
) -> Tensor:
    logits = F.linear(hidden_BLD, weight_KD)
    logits = logits if bias_K is None else logits + bias_K
    return F.cross_entropy(
        logits.flatten(0, 1), labels_BL.flatten(), ignore_index=pad, label_smoothing=smoothing
    )


def compile_stacks(model: Any, *stacks: Any) -> None:
    """Compile one program per kind of layer, for all shapes, and one for projection and loss.

    Every layer ends with its norm, so a program of the whole model would have nothing more to fuse. It would
    also take a minute to compile, and the layer dropout of Marian would break its graph between layers.
    """
    for layers in stacks:
        compiled = torch.compile(type(layers[0]).forward, dynamic=True)
        for layer in layers:
            layer.forward = compiled.__get__(layer)
    model.compute_loss = torch.compile(compute_projected_loss, dynamic=True)


def remove_compiled_forward(model: nn.Module) -> None:
    """Restore the uncompiled forward methods of the layers."""
    for part in model.modules():
        part.__dict__.pop("forward", None)


# ---- Hugging Face Marian


def make_marian(config: mh.Config, pad: int, vocab_size: int) -> Any:
    """Make a MarianMTModel of the same sizes with random weights. Unsupported configs raise."""
    import transformers

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    check_config(config.model)
    settings = convert_config(config, pad)
    left_out = {"architectures", "model_type", "dtype"}
    settings = {key: value for key, value in settings.items() if key not in left_out}
    settings |= {"vocab_size": vocab_size, "decoder_vocab_size": vocab_size, "forced_eos_token_id": None}
    marian = transformers.MarianMTModel(transformers.MarianConfig(**settings))
    if marian.config._attn_implementation != "sdpa":
        raise RuntimeError(f"Marian uses {marian.config._attn_implementation} attention, but must use sdpa")
    return marian


class Marian(nn.Module):
    """The forward pass and loss of a training step. `vocab_size` includes the padding id."""

    def __init__(
        self,
        config: mh.TransformerConfig,
        train: mh.TrainConfig,
        data: mh.DataConfig | None = None,
        pad: int = UNK_ID,
        vocab_size: int | None = None,
    ) -> None:
        super().__init__()
        self.pad, self.smoothing = pad, train.label_smoothing
        run_config = mh.Config(model=config, train=train, data=data or mh.DataConfig())
        self.marian = make_marian(run_config, pad, vocab_size or config.vocab_size)
        self.compute_loss = compute_projected_loss

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        hidden = self.marian.model(
            input_ids=source,
            attention_mask=(source != self.pad).long(),
            decoder_input_ids=target,
            use_cache=False,
        )[0]
        weight, bias = self.marian.lm_head.weight, self.marian.final_logits_bias
        return self.compute_loss(hidden, weight, bias, labels, self.pad, self.smoothing)

    def compile_layers(self) -> None:
        compile_stacks(self, self.marian.model.encoder.layers, self.marian.model.decoder.layers)


class MarianEngine:
    """Marian as an engine."""

    name = "Hugging Face generate"
    objective = "log p / L^alpha"
    read_ahead = 1000
    source_multiple = 1  # of the padded length
    warm_up_runs = 1  # after which nothing is compiled or captured any more

    def __init__(self, marian: Any, pad: int, device: str, batch_tokens: int = MARIAN_BATCH_TOKENS) -> None:
        self.marian, self.pad, self.device = marian.to(device).eval(), pad, device
        self.batch_tokens = batch_tokens  # of sources, including padding

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            sampling=False,
            forbidden_phrases=False,
            required_phrases=False,
            alignment=False,
            attention=False,
            token_scores=False,
            devices=("cpu", "cuda"),
            max_positions=None,
        )

    def require(self, feature: Feature) -> None:
        raise RequestError(f"{self.name} is only measured, and does not support {feature}")

    def align(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[Tensor]:
        raise NotImplementedError

    def trace(self, source: list[int], target: list[int]) -> tuple[mh.Trace, Tensor]:
        raise NotImplementedError

    @torch.inference_mode()
    def decode(
        self,
        requests: Iterable[Request] | RequestSource,
        config: DecodingConfig,
        *,
        scores: ScoreDetail = "none",
        window: int | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Decode in batches by source length, each until its longest output ends. There are no scores."""
        if isinstance(requests, RequestSource):
            raise NotImplementedError
        waiting = list(requests)
        for indices in self.make_batches([len(request.source) for request in waiting]):
            constraints = [waiting[index].constraints for index in indices]
            rows = self.generate([waiting[index].source for index in indices], constraints, config)
            for index, row, own in zip(indices, rows, constraints, strict=True):
                yield index, [Hypothesis(trim_output(row, own), [], 0.0, 0.0)]

    def make_batches(self, lengths: list[int]) -> list[list[int]]:
        """Return the sentences of each call of `generate`."""
        return make_padded_batches(lengths, self.batch_tokens)

    def count_sentences(self, length: int) -> int:
        """Return how many sources of this length a batch holds."""
        return max(1, self.batch_tokens // length)

    def describe_batch(self) -> str:
        return f"{self.batch_tokens:,} source tokens"

    def make_options(self, source: Tensor, config: DecodingConfig) -> dict[str, Any]:
        """Return further arguments of `generate`."""
        return {}

    def generate(
        self, sources: list[list[int]], constraints: list[DecodingConstraints], config: DecodingConfig
    ) -> Iterator[list[int]]:
        ids = pad_sentences(sources, self.pad, self.source_multiple).to(self.device)
        max_length = max(constraint.max_length for constraint in constraints)
        forced = all(constraint.min_length == constraint.max_length for constraint in constraints)
        out = self.marian.generate(
            input_ids=ids,
            attention_mask=(ids != self.pad).long(),
            num_beams=config.beam,
            do_sample=False,
            min_new_tokens=max_length if forced else None,
            max_new_tokens=max_length if forced else max_length + 1,  # and the end token
            length_penalty=config.alpha,
            early_stopping=False,
            **self.make_options(ids, config),
        )
        return (row[1:] for row in out.tolist())  # without the begin token

    @torch.inference_mode()
    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """Return the log-probability of each target token, including the end token."""
        scores: list[list[float]] = [[] for _ in targets]
        lengths = [max(len(s), len(t) + 1) for s, t in zip(sources, targets, strict=True)]
        for indices in make_padded_batches(lengths, self.batch_tokens):
            source = pad_sentences([sources[index] for index in indices], self.pad).to(self.device)
            target = pad_sentences([[BOS_ID, *targets[index]] for index in indices], self.pad).to(self.device)
            labels = pad_sentences([[*targets[index], EOS_ID] for index in indices], self.pad).to(self.device)
            logits = self.marian(
                input_ids=source, attention_mask=(source != self.pad).long(), decoder_input_ids=target
            ).logits
            log_p = logits.float().log_softmax(-1).gather(2, labels[:, :, None]).squeeze(2)
            for index, row in zip(indices, log_p.tolist(), strict=True):
                scores[index] = row[: len(targets[index]) + 1]
        return scores


def trim_output(row: list[int], constraints: DecodingConstraints) -> list[int]:
    """Return the tokens of a sentence up to its end token, or up to the forced length."""
    if constraints.min_length == constraints.max_length:
        return row[: constraints.max_length]
    return row[: row.index(EOS_ID)] if EOS_ID in row else row[: constraints.max_length]


def make_padded_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Batch by CTranslate2's rule: longest first, `batch_tokens` per batch including padding."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches
