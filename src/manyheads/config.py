"""Every setting, its default, its limits and what it means, in one place; TOML in and out.

The defaults are the paper's base model and its training. A preset is a difference from them (presets.py).
"""

import difflib
import json
import math
import operator
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from manyheads.errors import ConfigError

# The ids that every vocabulary begins with. There is no padding token.
UNK_ID, BOS_ID, EOS_ID = 0, 1, 2
NUM_SPECIAL_TOKENS = 3

MAX_INTEGER = 2**63 - 1  # that TOML promises to carry
MAX_WIDTH, MAX_VOCAB_SIZE = 2**20, 2**31  # beyond reason, and below what torch can count

SPLITS = ("train", "valid", "test")
SENTENCEPIECE_RESERVED = re.compile(r"</?s>|<unk>|<pad>|<0x[0-9A-F]{2}>")  # its ends, the unknown, and bytes
LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}([_-][A-Za-z0-9]{1,8})*")

Value = TypeVar("Value")


def config_field(
    default: Value,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    kinds: tuple[str, ...] = (),
) -> Value:
    """One key: its default, what it means, the limits that its value must keep.

    `kinds` are the kinds of model that use it; without them all do.
    """
    limits = {"at_least": at_least, "above": above, "below": below, "at_most": at_most}
    made: Value = field(default=default, metadata={"help": help, **limits, "kinds": kinds})
    return made


@dataclass(frozen=True, kw_only=True)
class ConfigSection:
    """A table of the TOML file. Whoever makes one, from Python or from a file, gets it checked."""

    table: ClassVar[str]

    def __new__(cls, **values: Any) -> Self:
        """Before __init__, which would answer an unknown key with a TypeError and no hint."""
        known = [key.name for key in fields(cls)]
        for key in values:
            if key not in known:
                raise ConfigError(cls._unknown_key(key, known))
        return super().__new__(cls)

    @classmethod
    def _unknown_key(cls, key: str, known: list[str]) -> str:
        for other in sibling_sections(cls):
            if key in [field.name for field in fields(other)]:
                return f"unknown key {cls.table}.{key}; did you mean {other.table}.{key}?"
        return describe_unknown_name("key", key, known, prefix=f"{cls.table}.")

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for key in fields(self):
            value = convert_value(f"{self.table}.{key.name}", getattr(self, key.name), hints[key.name])
            check_limits(f"{self.table}.{key.name}", value, key.metadata)
            object.__setattr__(self, key.name, value)  # an int given for a float becomes one
        self.check_together()

    def check_together(self) -> None:
        """Limits that concern several keys at once."""

    def uses(self, key: Field[Any]) -> bool:
        """Whether a key means anything beside the others; one that does not keeps its default."""
        return True

    def to_toml(self, heading: str | None = None) -> str:
        """Every key with its meaning and choices beside it; a key without a value is a comment."""
        lines, hints = [heading or f"[{self.table}]"], get_type_hints(type(self))
        for key in fields(self):
            if not self.uses(key):
                continue
            value, choices = getattr(self, key.name), get_args(hints[key.name])
            written = f"# {key.name} =" if value is None else f"{key.name} = {format_toml_value(value)}"
            options = f" ({', '.join(choices)})" if get_origin(hints[key.name]) is Literal else ""
            lines.append(f"{written}  # {key.metadata['help']}{options}")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ConfigSection):
    """The model, by the paper's names (section 3). The defaults are the base model."""

    table: ClassVar[str] = "model"

    architecture: Literal["transformer", "recurrent", "convs2s", "bytenet"] = config_field(
        "transformer", "which architecture: the paper's, or one that it is compared with (6.1)"
    )
    vocab_size: int = config_field(
        37_000, "subwords, shared by both languages (5.1)", at_least=NUM_SPECIAL_TOKENS, below=MAX_VOCAB_SIZE
    )
    source_vocab_size: int | None = config_field(
        None,
        "subwords of the source, where the two languages differ",
        at_least=NUM_SPECIAL_TOKENS,
        below=MAX_VOCAB_SIZE,
    )
    target_vocab_size: int | None = config_field(
        None,
        "subwords of the target, where the two languages differ",
        at_least=NUM_SPECIAL_TOKENS,
        below=MAX_VOCAB_SIZE,
    )
    layers: int = config_field(6, "N, of the encoder and of the decoder alike (3.1)", at_least=1, below=1024)
    d_model: int = config_field(512, "width of every sub-layer's output (3.1)", at_least=1, below=MAX_WIDTH)
    d_ff: int = config_field(
        2048,
        "inner width of the feed-forward layer or of each expert (3.3); of recurrent cells; of convolutions",
        at_least=1,
        below=MAX_WIDTH,
    )
    heads: int = config_field(
        8, "h, attention layers side by side (3.2.2)", at_least=1, below=MAX_WIDTH, kinds=("transformer",)
    )
    d_k: int | None = config_field(
        None,
        "width of a query and of a key; without it d_model / heads",
        at_least=1,
        below=MAX_WIDTH,
        kinds=("transformer",),
    )
    d_v: int | None = config_field(
        None,
        "width of a value; without it d_model / heads",
        at_least=1,
        below=MAX_WIDTH,
        kinds=("transformer",),
    )
    attention: Literal["scaled-dot", "dot", "additive", "none"] = config_field(
        "scaled-dot",
        "how a query meets a key (3.2.1); only a recurrent model can be without",
        kinds=("transformer", "recurrent", "convs2s"),
    )
    window: int | None = config_field(
        None,
        "r, the neighborhood that self-attention sees; without it all (4)",
        at_least=1,
        kinds=("transformer",),
    )
    positions: Literal["sinusoid", "learned", "none"] = config_field(
        "sinusoid", "how order is told (3.5)", kinds=("transformer", "convs2s")
    )
    max_positions: int = config_field(
        1024,
        "tokens that learned positions reach; sinusoids have no end",
        at_least=1,
        below=MAX_WIDTH,
        kinds=("transformer", "convs2s"),
    )
    activation: Literal["relu", "gelu", "swish"] = config_field(
        "relu", "inside the feed-forward layer (3.3)", kinds=("transformer",)
    )
    norm: Literal["post", "pre"] = config_field(
        "post", "normalize after the residual sum, or before", kinds=("transformer",)
    )
    normalization: Literal["layer", "batch"] = config_field(
        "layer", "over a vector, or over the batch", kinds=("transformer",)
    )
    init_gain: float = config_field(
        0.5,
        "times Xavier's initial weights; with 1 six layers of post-norm hardly learn",
        above=0,
        at_most=10,
        kinds=("transformer",),
    )
    residuals: bool = config_field(
        True, "add each sub-layer's input to its output (3.1)", kinds=("transformer", "recurrent")
    )
    experts: int | None = config_field(
        None,
        "feed-forward layers of which each token takes a few; without it one, for all",
        at_least=2,
        below=1024,
        kinds=("transformer",),
    )
    experts_per_token: int = config_field(2, "experts that a token takes", at_least=1, kinds=("transformer",))
    experts_balance_weight: float = config_field(
        0.01, "weight of the loss that keeps experts equally busy", at_least=0, kinds=("transformer",)
    )
    cell: Literal["rnn", "gru", "lstm"] = config_field(
        "lstm", "h_t = f(h_{t-1}, x_t): which f", kinds=("recurrent",)
    )
    kernel_size: int = config_field(
        3, "k, the tokens that a convolution sees", at_least=1, below=64, kinds=("convs2s", "bytenet")
    )
    dilation: int = config_field(
        16,
        "the widest step between them: it doubles from block to block up to this, and begins anew",
        at_least=1,
        below=4096,
        kinds=("bytenet",),
    )
    tie_embeddings: Literal["three-way", "two-way", "none"] = config_field(
        "three-way", "who share one matrix: both embeddings and the output (3.4); target and output; nobody"
    )
    output_bias: bool = config_field(False, "a bias beside the output projection, as imported models have")
    dropout: float = config_field(
        0.1, "of each sub-layer's output and of the embeddings (5.4)", at_least=0, below=1
    )
    attention_dropout: float = config_field(
        0.0, "of the attention weights; not in the paper", at_least=0, below=1, kinds=("transformer",)
    )

    @property
    def head_dim_k(self) -> int:
        """d_k, or what the paper takes for it: d_model / h."""
        return self.d_model // self.heads if self.d_k is None else self.d_k

    @property
    def head_dim_v(self) -> int:
        """d_v, or what the paper takes for it: d_model / h."""
        return self.d_model // self.heads if self.d_v is None else self.d_v

    @property
    def input_vocab_size(self) -> int:
        return self.vocab_size if self.source_vocab_size is None else self.source_vocab_size

    @property
    def output_vocab_size(self) -> int:
        return self.vocab_size if self.target_vocab_size is None else self.target_vocab_size

    def uses(self, key: Field[Any]) -> bool:
        return not key.metadata["kinds"] or self.architecture in key.metadata["kinds"]

    def check_together(self) -> None:
        self._check_kind()
        if self.uses_positions and self.positions == "sinusoid" and self.d_model % 2:
            raise ConfigError(
                f"model.d_model is {self.d_model}, but sinusoidal positions need an even width "
                f'(a sine and a cosine for each frequency): make it even, or set positions = "learned"'
            )
        if self.tie_embeddings == "three-way" and self.input_vocab_size != self.output_vocab_size:
            raise ConfigError(
                f'model.tie_embeddings is "three-way", but the vocabularies differ ({self.input_vocab_size} and '
                f'{self.output_vocab_size}): use one vocabulary, or set ties = "two-way" or "none"'
            )
        if self.architecture == "transformer":
            self._check_transformer()
        else:
            self._check_compared()

    @property
    def uses_positions(self) -> bool:
        return self.architecture in ("transformer", "convs2s")

    def _check_kind(self) -> None:
        """A key that means nothing to this kind of model is refused, lest somebody believe that it does."""
        for key in fields(self):
            value = getattr(self, key.name)
            if not self.uses(key) and value != key.default:
                users = " or ".join(f'"{kind}"' for kind in key.metadata["kinds"])
                raise ConfigError(
                    f"model.{key.name} is {value!r}, but means nothing to a model of kind {self.architecture!r}: "
                    f"leave it out, or set model.architecture = {users}"
                )

    def _check_transformer(self) -> None:
        if (self.d_k is None or self.d_v is None) and self.d_model % self.heads:
            raise ConfigError(
                f"model.heads is {self.heads}, which does not divide model.d_model = {self.d_model}: "
                f"choose a divisor, or set model.d_k and model.d_v"
            )
        if self.attention == "none":
            raise ConfigError(
                'model.attention is "none", but a transformer is made of it: '
                'set another, or model.architecture = "recurrent"'
            )
        if self.experts is not None and self.experts_per_token > self.experts:
            raise ConfigError(
                f"model.experts_per_token is {self.experts_per_token}, but there are {self.experts}: "
                f"lower it, or raise model.experts"
            )

    def _check_compared(self) -> None:
        if self.architecture == "recurrent" and self.d_ff % 2:
            raise ConfigError(
                f"model.d_ff is {self.d_ff}, but half of it reads forwards and half backwards: make it even"
            )
        if self.architecture == "convs2s" and self.attention not in ("dot", "scaled-dot"):
            raise ConfigError(
                f'model.attention is {self.attention!r}, but a ConvS2S model has "dot" or "scaled-dot"'
            )
        if self.architecture in ("convs2s", "bytenet") and self.kernel_size % 2 == 0:
            raise ConfigError(
                f"model.kernel_size is {self.kernel_size}, but the encoder sees as far back as ahead: make it odd"
            )


@dataclass(frozen=True, kw_only=True)
class DataConfig(ConfigSection):
    """How prepared text becomes batches (5.1)."""

    table: ClassVar[str] = "data"

    folder: str = config_field("data", "the folder that `manyheads prepare` wrote")
    batch_tokens: int = config_field(
        25_000, "about so many source and so many target tokens a batch, over all ranks (5.1)", at_least=1
    )
    max_length: int = config_field(
        256, "tokens of a side, end included; a longer pair is left out", at_least=1
    )
    subword_regularization: float = config_field(
        0.0,
        "split words anew each epoch: BPE-dropout's p, or unigram's smoothing; 0 is off",
        at_least=0,
        below=1,
    )


@dataclass(frozen=True, kw_only=True)
class TrainConfig(ConfigSection):
    """How the model learns (section 5)."""

    table: ClassVar[str] = "train"

    steps: int = config_field(100_000, "updates (5.2)", at_least=1)
    seconds: float | None = config_field(None, "stop after so long too, earlier runs of it included", above=0)
    seed: int = config_field(1, "of weights, order and dropout", at_least=0)
    init_from: str | None = config_field(None, "a model folder whose weights and subwords it begins with")
    optimizer: Literal["adam", "adamw", "muon"] = config_field(
        "adam", "Adam (5.3); AdamW; Muon for matrices inside, AdamW for the rest"
    )
    weight_decay: float = config_field(0.0, "of AdamW and Muon; the paper has none", at_least=0)
    clip_norm: float | None = config_field(
        None, "largest norm of the gradient; the paper has no limit", above=0
    )
    micro_tokens: int | None = config_field(
        None, "tokens of a side that are computed at once; a batch is summed up out of such parts", at_least=1
    )
    precision: Literal["auto", "float32", "bfloat16"] = config_field(
        "auto", "of products; bfloat16 on a GPU by default, weights stay float32"
    )
    cuda_graphs: bool = config_field(True, "on a GPU, run steps as captured graphs, free of Python's pace")
    compile: bool = config_field(False, "let torch.compile make one program of the model")
    deterministic: bool = config_field(False, "on a GPU, the same bits each time, at some cost in speed")
    schedule: Literal["paper", "linear", "cosine", "constant"] = config_field(
        "paper", "how the learning rate runs after the warm-up (5.3)"
    )
    warmup: int = config_field(
        4000, "steps over which the learning rate rises (5.3); 1: no warm-up", at_least=1
    )
    learning_rate: float | None = config_field(
        None, "its peak; without it the paper's, (d_model * warmup)^-0.5", above=0
    )
    beta1: float = config_field(0.9, "Adam's memory of the gradient (5.3)", at_least=0, below=1)
    beta2: float = config_field(0.98, "Adam's memory of its square (5.3)", at_least=0, below=1)
    epsilon: float = config_field(1e-9, "Adam's guard against a division by zero (5.3)", above=0)
    label_smoothing: float = config_field(
        0.1, "e, the share of the target that other words get (5.4)", at_least=0, below=1
    )
    smoothing: Literal["all", "others"] = config_field(
        "all", "who gets that share: all K words (e/K), or the K - 1 others"
    )
    r_drop: float = config_field(
        0.0,
        "weight of how far two readings with their own dropout disagree, half R-Drop's alpha; 0: read once",
        at_least=0,
    )
    log_every: int = config_field(50, "steps between lines of the log", at_least=1)
    validate_every: int = config_field(1000, "steps between validations", at_least=1)
    bleu_sentences: int = config_field(
        200, "of valid, translated greedily at each validation; 0 is none", at_least=0
    )
    patience: int | None = config_field(
        None, "stop after so many validations without a better loss; without it never", at_least=1
    )
    checkpoint_every: int = config_field(1000, "steps between checkpoints", at_least=1)
    keep_checkpoints: int = config_field(5, "checkpoints kept, beside the best", at_least=1)
    average_checkpoints: int = config_field(
        5, "last checkpoints that the final model is the mean of (6.1)", at_least=1
    )

    @property
    def forward_passes(self) -> int:
        """How many times a batch is read."""
        return 2 if self.r_drop else 1

    @property
    def micro_batch_tokens(self) -> int | None:
        """Tokens of a side, of a part of a batch: no more than micro_tokens are computed at once."""
        return None if self.micro_tokens is None else max(1, self.micro_tokens // self.forward_passes)


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(ConfigSection):
    """How a translation is looked for (6.1)."""

    table: ClassVar[str] = "decoding"

    beam: int = config_field(4, "hypotheses kept at each step (6.1)", at_least=1, at_most=1024)
    alpha: float = config_field(0.6, "length penalty ((5 + L)/6)^alpha (6.1)", at_least=0)
    max_extra_length: int = config_field(
        50, "tokens that the output may be longer than the input (6.1)", at_least=0
    )
    min_length: int = config_field(0, "tokens that the output has at least", at_least=0)
    nbest: int = config_field(1, "results of a sentence; not more than the beam", at_least=1, at_most=10_000)
    temperature: float | None = config_field(
        None,
        "draw words at random, below 1 the likely ones more often; without it the best are looked for",
        above=0,
    )
    top_k: int | None = config_field(
        None, "drawn out of so many likeliest words; without it of all", at_least=1
    )
    top_p: float | None = config_field(
        None, "drawn out of the likeliest words that together have this probability", above=0, at_most=1
    )
    seed: int = config_field(0, "of what is drawn", at_least=0)
    no_repeat_ngram: int | None = config_field(
        None, "no run of so many tokens twice in one output; without it anything may repeat", at_least=1
    )

    @property
    def num_hypotheses(self) -> int:
        """Hypotheses of a sentence that are under way."""
        return self.nbest if self.temperature is not None else self.beam

    def check_together(self) -> None:
        if self.temperature is None and self.nbest > self.beam:
            raise ConfigError(
                f"decoding.nbest is {self.nbest}, but a beam of {self.beam} has no more results: "
                f"raise decoding.beam, or draw at random with decoding.temperature"
            )
        if self.temperature is None and (self.top_k is not None or self.top_p is not None):
            raise ConfigError(
                "decoding.top_k and decoding.top_p are of drawing at random: set decoding.temperature (1.0) too"
            )


@dataclass(frozen=True, kw_only=True)
class CorpusConfig(ConfigSection):
    """What a corpus is, and what is done where it cannot be read."""

    table: ClassVar[str] = "corpus"

    source: str = config_field("", "language translated from, such as en")
    target: str = config_field("", "language translated into, such as ko")
    on_invalid: Literal["default", "stop", "skip"] = config_field(
        "default",
        "bad text: stop at the first, or skip and list it; by default lines are skipped, broken files stop",
    )
    hold_out: int = config_field(
        2000,
        "pairs set apart for valid and for test where none is given, at most 5 %",
        at_least=0,
    )
    seed: int = config_field(0, "of every random choice", at_least=0)

    def check_together(self) -> None:
        for side in ("source", "target"):
            code = getattr(self, side)
            if code and not LANGUAGE_CODE.fullmatch(code):
                raise ConfigError(
                    f"corpus.{side} is {code!r}, but must be a language code such as en, ko or pt-BR"
                )
        if self.source and self.source == self.target:
            raise ConfigError(f"corpus.source and corpus.target are both {self.source!r}: they must differ")


@dataclass(frozen=True, kw_only=True)
class CleanConfig(ConfigSection):
    """What is mended in a pair, and why one is dropped. Each can be switched off."""

    table: ClassVar[str] = "clean"

    nfc: bool = config_field(
        True, "compose characters (Unicode NFC) before anything is compared; subwords do it in any case"
    )
    whitespace: bool = config_field(
        True, "one space for each run of white space, none at the ends; subwords do it in any case"
    )
    markup: Literal["keep", "drop", "ignore"] = config_field(
        "keep",
        "%s, {name}, <b>: whole pieces, the same on both sides; drop pairs that have any; do not look",
    )
    script: bool = config_field(True, "drop a side that has letters, but none of its language's script")
    max_length: int | None = config_field(2000, "drop sides of more bytes of UTF-8", at_least=1)
    max_length_ratio: float | None = config_field(
        4.0, "drop pairs one side of which is so many times the other, in bytes, 20 added to each", above=1
    )
    identical: bool = config_field(True, "drop pairs whose sides are the same")
    duplicates: bool = config_field(True, "drop all but the first of equal pairs")
    leakage: bool = config_field(True, "drop training pairs whose source or target stands in valid or test")


@dataclass(frozen=True, kw_only=True)
class SubwordConfig(ConfigSection):
    """How words are cut into pieces (5.1)."""

    table: ClassVar[str] = "subwords"

    algorithm: Literal["bpe", "unigram"] = config_field(
        "bpe", "byte-pair encoding (the paper's), or a unigram model"
    )
    vocab_size: int = config_field(
        37_000, "pieces, of both languages together or of each", at_least=NUM_SPECIAL_TOKENS, below=2**24
    )
    joint: bool = config_field(True, "one vocabulary for both languages (5.1)")
    byte_fallback: bool = config_field(
        True, "text that no piece covers is spelled in bytes: nothing is unknown"
    )
    character_coverage: float = config_field(
        0.9995, "share of the characters that get a piece of their own", above=0, at_most=1
    )
    sample_pairs: int = config_field(
        1_000_000, "sentences, of both languages together, that the pieces learn from", at_least=1
    )
    user_symbols: tuple[str, ...] = config_field((), "symbols that are one piece always, such as tags")
    detect_placeholders: int = config_field(
        100, "the most frequent placeholders and tags of the text are reserved too, so many", at_least=0
    )
    reuse_from: str | None = config_field(None, "a data or model folder whose pieces are used instead")

    def check_together(self) -> None:
        for symbol in self.user_symbols:
            own = SENTENCEPIECE_RESERVED.fullmatch(symbol)
            if not symbol or symbol != "".join(symbol.split()) or "\u2581" in symbol or own:
                raise ConfigError(
                    f"subwords.user_symbols holds {symbol!r}, but a symbol is not empty, has no white space and "
                    f"no U+2581, and is none of SentencePiece's own (<s>, </s>, <unk>, <0x41>)"
                )


@dataclass(frozen=True, kw_only=True)
class InputConfig(ConfigSection):
    """A place that pairs come from: two aligned plain files, or one file that holds both sides."""

    table: ClassVar[str] = "input"

    files: tuple[str, ...] = config_field((), "two plain files, or one TSV, JSONL, TMX, PO or XLIFF")
    name: str = config_field("", "what reports call it; without it the first file's name")
    weight: float = config_field(1.0, "how often an epoch reads it, on average", above=0, below=1000)
    format: Literal["auto", "plain", "tsv", "jsonl", "tmx", "po", "xliff"] = config_field(
        "auto", "what the file is; by default its name says it"
    )
    fields: tuple[str, ...] = config_field(
        (), "source and target: a TSV's column numbers or names, a JSONL's keys (a.b goes inside)"
    )

    def check_together(self) -> None:
        if not 1 <= len(self.files) <= 2:
            raise ConfigError(
                f"an input has {len(self.files)} files ({', '.join(self.files)}), but must have "
                f"two plain ones, source and target, or one that holds both"
            )
        if self.name != " ".join(self.name.split()):
            raise ConfigError(f"an input's name is {self.name!r}, but must be one line, without tabs")
        if self.fields and (len(self.fields) != 2 or "" in self.fields):
            raise ConfigError(
                f"fields are {', '.join(self.fields)!r}, but must be two: the source's and the target's"
            )


@dataclass(frozen=True)
class TomlConfig:
    """A TOML file: one table for each section."""

    def __post_init__(self) -> None:
        for name, section in self._sections().items():
            if not isinstance(getattr(self, name), section):
                raise ConfigError(f"{name} is {getattr(self, name)!r}, but must be a {section.__name__}")

    @classmethod
    def _sections(cls) -> dict[str, type[ConfigSection]]:
        return {name: kind for name, kind in get_type_hints(cls).items() if isinstance(kind, type)}

    @classmethod
    def from_mapping(cls, tables: Mapping[str, Any]) -> Self:
        return cls(**{name: cls._section(name)(**require_table(name, keys)) for name, keys in tables.items()})

    @classmethod
    def _section(cls, name: str) -> type[ConfigSection]:
        sections = cls._sections()
        if name in sections:
            return sections[name]
        if name in [key.name for key in fields(cls)]:
            raise ConfigError(f"{name} is a list of inputs, [[{name}]] in a file, and has no keys of its own")
        raise ConfigError(describe_unknown_name("table", name, [key.name for key in fields(cls)]))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        try:
            tables = tomllib.loads(text)
        except (ValueError, RecursionError) as fault:  # a number of thousands of digits, a thousand brackets
            raise ConfigError(f"not TOML: {fault}") from None
        return cls.from_mapping(tables)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8-sig"))
        except OSError as fault:
            raise ConfigError(f"{path}: {fault.strerror}") from None
        except UnicodeDecodeError as fault:
            raise ConfigError(f"{path}: not UTF-8 at byte {fault.start}; TOML is UTF-8") from None
        except ConfigError as fault:
            raise ConfigError(f"{path}: {fault}") from None

    def to_toml(self) -> str:
        return "\n".join(getattr(self, name).to_toml() for name in self._sections())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Written aside and renamed, so that nobody reads half a file."""
        aside = Path(f"{os.fspath(path)}.part")
        aside.write_text(self.to_toml(), encoding="utf-8")
        aside.replace(path)

    def override(self, assignments: Iterable[str]) -> Self:
        """The same with some keys changed, each written as `train.steps=2000`."""
        tables: dict[str, dict[str, Any]] = {}
        for assignment in assignments:
            path, equals, value = assignment.partition("=")
            section, dot, key = path.strip().partition(".")
            if not (equals and dot and key):
                raise ConfigError(f"{assignment!r} is not an assignment: write section.key=value")
            tables.setdefault(section, {})[key] = parse_toml_value(value.strip())
        changed: dict[str, Any] = {
            self._section(name).table: replace(getattr(self, name), **keys) for name, keys in tables.items()
        }
        return replace(self, **changed)


@dataclass(frozen=True)
class Config(TomlConfig):
    """The whole of a run's TOML file."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)


@dataclass(frozen=True)
class Recipe(TomlConfig):
    """What `manyheads prepare` makes of which files: a TOML file with [[train]], [[valid]] and [[test]]."""

    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    clean: CleanConfig = field(default_factory=CleanConfig)
    subwords: SubwordConfig = field(default_factory=SubwordConfig)
    train: tuple[InputConfig, ...] = ()
    valid: tuple[InputConfig, ...] = ()
    test: tuple[InputConfig, ...] = ()

    @classmethod
    def from_mapping(cls, tables: Mapping[str, Any]) -> Self:
        inputs: dict[str, Any] = {
            split: tuple(
                InputConfig(**require_table(split, one)) for one in require_list(split, tables[split])
            )
            for split in SPLITS
            if split in tables
        }
        sections = super().from_mapping({name: keys for name, keys in tables.items() if name not in SPLITS})
        return replace(sections, **inputs)

    def to_toml(self) -> str:
        inputs = [one.to_toml(f"[[{split}]]") for split in SPLITS for one in getattr(self, split)]
        if not inputs:
            example = InputConfig(files=("train.en", "train.ko")).to_toml("[[train]]")
            inputs = ["".join(f"# {line}\n" for line in example.splitlines())]
        return "\n".join([super().to_toml(), *inputs])


def sibling_sections(section: type[ConfigSection]) -> list[type[ConfigSection]]:
    """The sections of the file that this one stands in."""
    files = [list(kind._sections().values()) for kind in TomlConfig.__subclasses__()]
    return next((sections for sections in files if section in sections), [])


def require_table(name: str, table: Any) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{name} is {table!r}, but must be a table: [{name}] and its keys")
    return table


def require_list(name: str, tables: Any) -> list[Any]:
    if not isinstance(tables, list):
        raise ConfigError(
            f"{name} is {tables!r}, but must be a list of tables: [[{name}]] and the keys of each"
        )
    return tables


def describe_unknown_name(what: str, name: str, known: list[str], prefix: str = "") -> str:
    """The message for a name that is not known, with the nearest one that is."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {prefix}{near[0]}?" if near else f"known: {', '.join(known)}"
    return f"unknown {what} {prefix}{name}; {hint}"


def convert_value(key: str, value: Any, hint: Any) -> Any:
    """The value, as the type that the key is declared with."""
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if NoneType in options and value in (None, "none"):  # TOML has no word for nothing
        return None
    wanted = options[0]
    if get_origin(wanted) is Literal:
        choices = get_args(wanted)
        if value in choices and isinstance(value, str):
            return value
        raise ConfigError(f"{key} is {value!r}, but must be one of {', '.join(map(repr, choices))}")
    if get_origin(wanted) is tuple:
        if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
            return tuple(value)
        raise ConfigError(f"{key} is {value!r}, but must be a list of texts")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ConfigError(f"{key} is a number of {value.bit_length()} bits, but TOML's have 64")
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not wanted:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise ConfigError(f"{key} is {value!r}, but must be {names[wanted]}")
    return value


def check_limits(key: str, value: Any, limits: Mapping[str, Any]) -> None:
    if not isinstance(value, int | float):
        return
    rules = {"at_least": operator.ge, "above": operator.gt, "below": operator.lt, "at_most": operator.le}
    stated = {name: limits[name] for name in rules if limits[name] is not None}
    if not math.isfinite(value):
        raise ConfigError(f"{key} is {value!r}, but must be finite")
    if not all(rules[name](value, stated[name]) for name in stated):
        wanted = " and ".join(f"{name.replace('_', ' ')} {limit}" for name, limit in stated.items())
        raise ConfigError(f"{key} is {value!r}, but must be {wanted}")


def format_toml_value(value: bool | int | float | str | tuple[str, ...]) -> str:
    """JSON writes our kinds of value as TOML does."""
    return json.dumps(value, ensure_ascii=False)


def parse_toml_value(text: str) -> Any:
    """A value as TOML reads it; a bare word is a text, so that quotes need no escaping in a shell."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return read["value"] if list(read) == ["value"] else text
