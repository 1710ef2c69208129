"""The model, by the paper's names (section 3): one dataclass per architecture. Defaults: the base model."""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, fields
from typing import Any, ClassVar, Literal, Self

from manyheads.config.fields import ConfigSection, check_choice, check_limits, config_field, convert_value
from manyheads.config.tokens import NUM_SPECIAL_TOKENS
from manyheads.errors import ConfigError

MAX_WIDTH, MAX_VOCAB_SIZE = 2**20, 2**31  # beyond any use, and below what torch can count
MAX_LAYERS = 1024
DEFAULT_INIT_GAIN = 0.5  # of the Transformer
ARCHITECTURE_HELP = "transformer, or one of the paper's baselines (6.1): recurrent, convs2s, bytenet"


class Depth(int):
    """A number of layers that a config holds already, by default or from an earlier call.

    `dataclasses.replace(config, layers=2)` passes the old depths along with the new value. This type tells
    them from depths that the caller gives.
    """


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ConfigSection):
    """What every architecture has. `from_mapping` chooses the class by the key `architecture`."""

    table: ClassVar[str] = "model"
    aliases: ClassVar[tuple[str, ...]] = ("layers",)

    architecture: Literal["transformer", "recurrent", "convs2s", "bytenet"] = config_field(
        "transformer", ARCHITECTURE_HELP
    )
    vocab_size: int = config_field(
        37_000, "subwords, shared by both languages (5.1)", at_least=NUM_SPECIAL_TOKENS, below=MAX_VOCAB_SIZE
    )
    source_vocab_size: int | None = config_field(
        None,
        "subwords of the source, if the vocabularies differ",
        at_least=NUM_SPECIAL_TOKENS,
        below=MAX_VOCAB_SIZE,
    )
    target_vocab_size: int | None = config_field(
        None,
        "subwords of the target, if the vocabularies differ",
        at_least=NUM_SPECIAL_TOKENS,
        below=MAX_VOCAB_SIZE,
    )
    encoder_layers: int = config_field(
        Depth(6), "N of the encoder (3.1); `layers` sets both", at_least=1, below=MAX_LAYERS
    )
    decoder_layers: int = config_field(
        Depth(6), "N of the decoder (3.1); `layers` sets both", at_least=1, below=MAX_LAYERS
    )
    d_model: int = config_field(
        512, "width of the embeddings and of each sub-layer's output (3.1)", at_least=1, below=MAX_WIDTH
    )
    d_ff: int = config_field(
        2048,
        "inner width: of the feed-forward layer or of each expert (3.3), of recurrent cells, of convolutions",
        at_least=1,
        below=MAX_WIDTH,
    )
    tie_embeddings: Literal["three-way", "two-way", "none"] = config_field(
        "three-way", "share one matrix between both embeddings and the output (3.4), or target and output"
    )
    output_bias: bool = config_field(False, "add a bias to the output projection, as imported models do")
    dropout: float = config_field(
        0.1, "applied to each sub-layer's output and to the embeddings (5.4)", at_least=0, below=1
    )
    init_gain: float = config_field(
        1.0, "factor on the initial weights of linear maps, cells and convolutions", above=0, at_most=10
    )
    layers: InitVar[int | None] = (
        None  # sets both depths; reads as their common value, or None if they differ
    )

    def __new__(cls, **values: Any) -> Self:
        if cls not in ARCHITECTURES.values():
            names = ", ".join(config.__name__ for config in ARCHITECTURES.values())
            raise ConfigError(f"{cls.__name__} is a base class: use {names}, or ModelConfig.from_mapping")
        return super().__new__(cls, **values)

    @classmethod
    def key_names(cls) -> list[str]:
        if cls is not ModelConfig:
            return super().key_names()
        return list(dict.fromkeys(key for config in ARCHITECTURES.values() for key in config.key_names()))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        architecture = values.get("architecture", cls.architecture)
        chosen: Any = ARCHITECTURES[check_choice("model.architecture", architecture, ARCHITECTURES)]
        config: Self = chosen(**values)
        return config

    @classmethod
    def describe_unknown_key(cls, key: str, value: Any) -> str:
        users = [name for name, config in ARCHITECTURES.items() if key in config.key_names()]
        if users:
            alternatives = " or ".join(f'"{name}"' for name in users)
            return (
                f"model.{key} is {value!r}, but the architecture {cls.architecture!r} has no such key: "
                f"leave it out, or set model.architecture = {alternatives}"
            )
        return super().describe_unknown_key(key, value)

    def __post_init__(self, layers: int | None) -> None:
        depths = [key for key in fields(self) if key.name in ("encoder_layers", "decoder_layers")]
        if type(layers) is Depth:  # passed along by dataclasses.replace
            layers = None
        if layers is not None:
            layers = convert_value("model.layers", layers, int)
            check_limits("model.layers", layers, depths[0].metadata)
        for key in depths:
            depth = getattr(self, key.name)
            if layers is not None and type(depth) is not Depth and depth != layers:
                raise ConfigError(
                    f"model.layers is {layers}, but model.{key.name} is {depth!r}: "
                    f"give layers alone, or encoder_layers and decoder_layers"
                )
            depth = depth if layers is None else layers
            object.__setattr__(self, key.name, int(depth) if type(depth) is Depth else depth)
        super().__post_init__()
        for key in depths:
            object.__setattr__(self, key.name, Depth(getattr(self, key.name)))
        common = self.encoder_layers if self.encoder_layers == self.decoder_layers else None
        object.__setattr__(self, "layers", common)

    def with_changes(self, values: Mapping[str, Any]) -> Self:
        """Change some keys. Another architecture keeps what was changed, and has its own defaults."""
        architecture = values.get("architecture", self.architecture)
        if architecture == self.architecture:
            return super().with_changes(values)
        check_choice("model.architecture", architecture, ARCHITECTURES)
        kept = {
            key.name: getattr(self, key.name)
            for key in fields(self)
            if getattr(self, key.name) != key.default
        }
        return self.from_mapping({**kept, **values})

    def check_together(self) -> None:
        if self.tie_embeddings == "three-way" and self.input_vocab_size != self.output_vocab_size:
            raise ConfigError(
                f'model.tie_embeddings is "three-way", but the vocabularies differ ({self.input_vocab_size} '
                f"and {self.output_vocab_size}): use one vocabulary, or set tie_embeddings to "
                f'"two-way" or "none"'
            )

    @property
    def input_vocab_size(self) -> int:
        """The number of source subwords."""
        return self.vocab_size if self.source_vocab_size is None else self.source_vocab_size

    @property
    def output_vocab_size(self) -> int:
        """The number of target subwords."""
        return self.vocab_size if self.target_vocab_size is None else self.target_vocab_size

    @property
    def position_limit(self) -> int | None:
        """The longest sequence that the model can read; None: any."""
        return None


@dataclass(frozen=True, kw_only=True)
class PositionalConfig(ModelConfig):
    """An architecture that needs position encodings (3.5)."""

    positions: Literal["sinusoid", "learned", "none"] = config_field("sinusoid", "position encoding (3.5)")
    max_positions: int = config_field(
        1024, "longest sequence with learned positions; sinusoids have no limit", at_least=1, below=MAX_WIDTH
    )

    @property
    def position_limit(self) -> int | None:
        return self.max_positions if self.positions == "learned" else None

    def check_together(self) -> None:
        super().check_together()
        if self.positions == "sinusoid" and self.d_model % 2:
            raise ConfigError(
                f"model.d_model is {self.d_model}, but sinusoidal positions need an even width "
                f'(a sine and a cosine for each frequency): make it even, or set positions = "learned"'
            )


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(PositionalConfig):
    """The paper's model (section 3)."""

    architecture: Literal["transformer"] = config_field("transformer", ARCHITECTURE_HELP)
    heads: int = config_field(8, "h, attention heads of each layer (3.2.2)", at_least=1, below=MAX_WIDTH)
    d_k: int | None = config_field(
        None, "width of queries and keys of a head; by default d_model / heads", at_least=1, below=MAX_WIDTH
    )
    d_v: int | None = config_field(
        None, "width of values of a head; by default d_model / heads", at_least=1, below=MAX_WIDTH
    )
    attention: Literal["scaled-dot", "dot", "additive"] = config_field(
        "scaled-dot", "compatibility of a query with a key (3.2.1)"
    )
    attention_dropout: float = config_field(
        0.0, "applied to the attention weights; not in the paper", at_least=0, below=1
    )
    window: int | None = config_field(
        None, "r, the neighborhood that self-attention sees (4); by default everything", at_least=1
    )
    activation: Literal["relu", "gelu", "swish"] = config_field("relu", "of the feed-forward layer (3.3)")
    norm: Literal["post", "pre"] = config_field("post", "normalize after the residual sum, or before")
    normalization: Literal["layer", "batch"] = config_field("layer", "layer normalization, or batch")
    residuals: bool = config_field(True, "add each sub-layer's input to its output (3.1)")
    init: Literal["scaled", "authors"] = config_field(
        "scaled",
        "initial weights: Xavier's times init_gain, or those of the authors' code: "
        "Xavier's, with W_Q, W_K and W_V times 0.71",
    )
    init_gain: float = config_field(
        DEFAULT_INIT_GAIN,
        "factor on Xavier's initial weights; with 1 six layers of post-norm start learning much later",
        above=0,
        at_most=10,
    )
    experts: int | None = config_field(
        None, "feed-forward layers to route tokens between; by default one for all", at_least=2, below=1024
    )
    experts_per_token: int = config_field(2, "experts that process each token", at_least=1)
    experts_balance_weight: float = config_field(
        0.01, "weight of the loss that balances the experts' load", at_least=0
    )

    @property
    def head_dim_k(self) -> int:
        """d_k, by default d_model / h as in the paper."""
        return self.d_model // self.heads if self.d_k is None else self.d_k

    @property
    def head_dim_v(self) -> int:
        """d_v, by default d_model / h as in the paper."""
        return self.d_model // self.heads if self.d_v is None else self.d_v

    def check_together(self) -> None:
        super().check_together()
        if (self.d_k is None or self.d_v is None) and self.d_model % self.heads:
            raise ConfigError(
                f"model.heads is {self.heads}, which does not divide model.d_model = {self.d_model}: "
                f"choose a divisor, or set model.d_k and model.d_v"
            )
        if self.init == "authors" and self.init_gain != DEFAULT_INIT_GAIN:
            raise ConfigError(
                f'model.init_gain is {self.init_gain}, but model.init = "authors" sets the scale: '
                f'leave init_gain out, or set init = "scaled"'
            )
        if self.experts is not None and self.experts_per_token > self.experts:
            raise ConfigError(
                f"model.experts_per_token is {self.experts_per_token}, but there are {self.experts}: "
                f"lower it, or raise model.experts"
            )


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    """A recurrent encoder-decoder with attention. The encoder is bidirectional, each layer d_ff wide."""

    architecture: Literal["recurrent"] = config_field("recurrent", ARCHITECTURE_HELP)
    cell: Literal["rnn", "gru", "lstm"] = config_field("lstm", "f of h_t = f(h_{t-1}, x_t)")
    attention: Literal["scaled-dot", "dot", "additive", "none"] = config_field(
        "scaled-dot", "compatibility of a query with a key (3.2.1)"
    )
    residuals: bool = config_field(True, "add each layer's input to its output, from the second layer on")

    def check_together(self) -> None:
        super().check_together()
        if self.d_ff % 2:
            raise ConfigError(
                f"model.d_ff is {self.d_ff}, but half of it reads forwards and half backwards: make it even"
            )
        if self.encoder_layers != self.decoder_layers:
            raise ConfigError(
                f"model.encoder_layers is {self.encoder_layers} and model.decoder_layers "
                f"{self.decoder_layers}, but each decoder layer of a recurrent model starts from the final "
                f"state of its encoder layer: make them equal"
            )


@dataclass(frozen=True, kw_only=True)
class ConvS2SConfig(PositionalConfig):
    """Convolutional sequence to sequence learning: gated convolutions, attention in every decoder layer."""

    architecture: Literal["convs2s"] = config_field("convs2s", ARCHITECTURE_HELP)
    attention: Literal["scaled-dot", "dot"] = config_field(
        "scaled-dot", "compatibility of a query with a key (3.2.1)"
    )
    kernel_size: int = config_field(3, "k, tokens that a convolution sees", at_least=1, below=64)

    def check_together(self) -> None:
        super().check_together()
        check_odd_kernel(self.kernel_size)


@dataclass(frozen=True, kw_only=True)
class ByteNetConfig(ModelConfig):
    """ByteNet: dilated convolutions, and a decoder on top of the encoder, without attention."""

    architecture: Literal["bytenet"] = config_field("bytenet", ARCHITECTURE_HELP)
    kernel_size: int = config_field(3, "k, tokens that a convolution sees", at_least=1, below=64)
    dilation: int = config_field(
        16,
        "largest dilation: it doubles from block to block up to this, then restarts",
        at_least=1,
        below=4096,
    )

    def check_together(self) -> None:
        super().check_together()
        check_odd_kernel(self.kernel_size)


def check_odd_kernel(kernel_size: int) -> None:
    if kernel_size % 2 == 0:
        raise ConfigError(
            f"model.kernel_size is {kernel_size}, but the encoder sees as many tokens back as ahead: "
            f"make it odd"
        )


ARCHITECTURES: dict[str, type[ModelConfig]] = {
    "transformer": TransformerConfig,
    "recurrent": RecurrentConfig,
    "convs2s": ConvS2SConfig,
    "bytenet": ByteNetConfig,
}
