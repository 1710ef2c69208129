"""The peers: torch.nn.Transformer and Hugging Face's Marian, each as fast as we know how to make it.

Both work on padded batches. What pads is an id that the text does not hold; targets are padded on the right,
where a causal mask hides them anyway, so that no mask of theirs is needed and the fastest kernels serve.
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
from manyheads.export.to_huggingface import check_config, convert_config
from manyheads.inference.ctranslate2_engine import BATCH_TOKENS
from manyheads.inference.engine import ScoreDetail
from manyheads.model.positions import sinusoidal_encoding
from manyheads.packed import round_up
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
from workload import LONGEST

ROOM = round_up(LONGEST + 1, 8)  # positions: the longest sentence and its end, rounded up


def padded(sentences: Sequence[Sequence[int]], pad: int, multiple: int = 1) -> Tensor:
    """One row a sentence, as long as the longest, rounded up. [B, L]"""
    longest = round_up(max(map(len, sentences)), multiple)
    return torch.tensor([[*one, *[pad] * (longest - len(one))] for one in sentences])


# ---- torch.nn.Transformer


class TorchTransformer(nn.Module):
    """torch.nn.Transformer as people write it, with dropout only where the paper has it."""

    pad = UNK_ID

    def __init__(self, config: mh.ModelConfig, train: mh.TrainConfig) -> None:
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
        self.register_buffer("positions", sinusoidal_encoding(torch.arange(ROOM), config.d_model).float())
        self.end = projection_and_loss
        self.drop_less()

    def drop_less(self) -> None:
        """Neither attention weights nor the inside of the feed-forward layer (5.4)."""
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Identity()

    def embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * self.scale + self.positions[: tokens.shape[1]])

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
        return self.end(hidden, self.output.weight, None, labels, self.pad, self.smoothing)

    def compile_it(self) -> None:
        compile_layers(self, self.transformer.encoder.layers, self.transformer.decoder.layers)


class TorchTransformerAsItComes(TorchTransformer):
    """With its own dropout, of attention weights and inside the feed-forward layer too."""

    def drop_less(self) -> None:
        pass


def projection_and_loss(
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


def compile_layers(model: Any, *stacks: Any) -> None:
    """One program for all layers of a kind, for every shape, and one for projection and loss.

    Every layer ends with its norm, so that a program of the whole model would have nothing more to fuse; but
    it takes a minute to make, and Marian draws between two layers whether to leave one out, where it stops.
    """
    for layers in stacks:
        compiled = torch.compile(type(layers[0]).forward, dynamic=True)
        for layer in layers:
            layer.forward = compiled.__get__(layer)
    model.end = torch.compile(projection_and_loss, dynamic=True)


def uncompile(model: nn.Module) -> None:
    """The layers' own ways again."""
    for part in model.modules():
        part.__dict__.pop("forward", None)


# ---- Hugging Face's Marian


def make_marian(config: mh.Config, pad: int, words: int) -> Any:
    """MarianMTModel of the same sizes, with weights of its own; what it cannot hold is refused."""
    import transformers

    transformers.logging.set_verbosity_error()
    check_config(config.model)
    told = convert_config(config, pad)
    left_out = {"architectures", "model_type", "dtype"}
    told = {key: value for key, value in told.items() if key not in left_out}
    told |= {"vocab_size": words, "decoder_vocab_size": words, "forced_eos_token_id": None}
    marian = transformers.MarianMTModel(transformers.MarianConfig(**told))
    if marian.config._attn_implementation != "sdpa":
        raise RuntimeError(f"Marian came with {marian.config._attn_implementation} attention, not sdpa")
    return marian


class Marian(nn.Module):
    """A training step's forward pass and loss. `words` are those of the text and what pads."""

    def __init__(
        self,
        config: mh.ModelConfig,
        train: mh.TrainConfig,
        data: mh.DataConfig | None = None,
        pad: int = UNK_ID,
        words: int | None = None,
    ) -> None:
        super().__init__()
        self.pad, self.smoothing = pad, train.label_smoothing
        whole = mh.Config(model=config, train=train, data=data or mh.DataConfig())
        self.marian = make_marian(whole, pad, words or config.vocab_size)
        self.end = projection_and_loss

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        hidden = self.marian.model(
            input_ids=source,
            attention_mask=(source != self.pad).long(),
            decoder_input_ids=target,
            use_cache=False,
        )[0]
        weight, bias = self.marian.lm_head.weight, self.marian.final_logits_bias
        return self.end(hidden, weight, bias, labels, self.pad, self.smoothing)

    def compile_it(self) -> None:
        compile_layers(self, self.marian.model.encoder.layers, self.marian.model.decoder.layers)


class MarianEngine:
    """A Marian that can be asked what our engines can be asked."""

    name = "Hugging Face generate"
    objective = "log p / L^alpha"

    def __init__(self, marian: Any, pad: int, device: str, batch_tokens: int = BATCH_TOKENS) -> None:
        self.marian, self.pad, self.device = marian.to(device).eval(), pad, device
        self.batch_tokens = batch_tokens  # of sources, padding counted

    @torch.inference_mode()
    def decode(
        self,
        requests: Iterable[Request],
        config: DecodingConfig,
        *,
        scores: ScoreDetail = "none",
        window: int | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Decode in batches by source length, each until its last output ends. There are no scores."""
        waiting = list(requests)
        for indices in padded_batches([len(request.source) for request in waiting], self.batch_tokens):
            own = [waiting[index].constraints for index in indices]
            rows = self.generate([waiting[index].source for index in indices], own, config)
            for index, row, constraints in zip(indices, rows, own, strict=True):
                yield index, [Hypothesis(own_tokens(row, constraints), [], 0.0, 0.0)]

    def generate(
        self, sources: list[list[int]], wishes: list[DecodingConstraints], how: DecodingConfig
    ) -> Iterator[list[int]]:
        ids = padded(sources, self.pad).to(self.device)
        longest = max(wish.max_length for wish in wishes)
        forced = all(wish.min_length == wish.max_length for wish in wishes)
        out = self.marian.generate(
            input_ids=ids,
            attention_mask=(ids != self.pad).long(),
            num_beams=how.beam,
            do_sample=False,
            min_new_tokens=longest if forced else None,
            max_new_tokens=longest if forced else longest + 1,  # the end
            length_penalty=how.alpha,
            early_stopping=False,
        )
        return (row[1:] for row in out.tolist())  # without begin

    @torch.inference_mode()
    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """The log-probability of each token of each target, the end token's last."""
        found: list[list[float]] = [[] for _ in targets]
        lengths = [max(len(s), len(t) + 1) for s, t in zip(sources, targets, strict=True)]
        for numbers in padded_batches(lengths, self.batch_tokens):
            source = padded([sources[number] for number in numbers], self.pad).to(self.device)
            target = padded([[BOS_ID, *targets[number]] for number in numbers], self.pad).to(self.device)
            labels = padded([[*targets[number], EOS_ID] for number in numbers], self.pad).to(self.device)
            logits = self.marian(
                input_ids=source, attention_mask=(source != self.pad).long(), decoder_input_ids=target
            ).logits
            log_p = logits.float().log_softmax(-1).gather(2, labels[:, :, None]).squeeze(2)
            for number, row in zip(numbers, log_p.tolist(), strict=True):
                found[number] = row[: len(targets[number]) + 1]
        return found


def own_tokens(row: list[int], wish: DecodingConstraints) -> list[int]:
    """What is the sentence's own of a batch's output: up to its end, or to the length that was forced."""
    if wish.min_length == wish.max_length:
        return row[: wish.max_length]
    return row[: row.index(EOS_ID)] if EOS_ID in row else row[: wish.max_length]


def padded_batches(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """CTranslate2's rule: longest first, so many tokens a batch with padding counted."""
    batches: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > tokens:
            batches.append([])
        batches[-1].append(number)
    return batches
