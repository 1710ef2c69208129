"""What `manyheads prepare` reads and does: a recipe."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from manyheads.config.fields import ConfigSection, TomlConfig, config_field, require_list, require_table
from manyheads.config.tokens import NUM_SPECIAL_TOKENS
from manyheads.errors import ConfigError

SPLITS = ("train", "valid", "test")
SENTENCEPIECE_RESERVED = re.compile(r"</?s>|<unk>|<pad>|<0x[0-9A-F]{2}>")  # special tokens and bytes
LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}([_-][A-Za-z0-9]{1,8})*")


@dataclass(frozen=True, kw_only=True)
class CorpusConfig(ConfigSection):
    """The languages, invalid input, and held-out pairs."""

    table: ClassVar[str] = "corpus"

    source: str = config_field("", "source language, such as en")
    target: str = config_field("", "target language, such as ko")
    on_invalid: Literal["default", "stop", "skip"] = config_field(
        "default",
        "invalid text: stop, or skip and list it; by default lines are skipped, and broken files stop",
    )
    hold_out: int = config_field(
        2000, "pairs held out for valid and for test where none is given, at most 5 %", at_least=0
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
    """How pairs are normalized and filtered. Each rule can be switched off."""

    table: ClassVar[str] = "clean"

    nfc: bool = config_field(
        True, "compose characters (Unicode NFC) before anything is compared; subwords do it in any case"
    )
    whitespace: bool = config_field(
        True, "collapse runs of white space, strip the ends; subwords do it in any case"
    )
    markup: Literal["keep", "drop", "ignore"] = config_field(
        "keep",
        "%s, {name}, <b>: keep pairs whose sides have the same; drop pairs that have any; do not look",
    )
    script: bool = config_field(True, "drop a side that has letters, but none of its language's script")
    max_length: int | None = config_field(2000, "drop sides of more bytes of UTF-8", at_least=1)
    max_length_ratio: float | None = config_field(
        4.0, "drop pairs whose lengths in bytes, 20 added to each, differ by more than this factor", above=1
    )
    identical: bool = config_field(True, "drop pairs whose sides are the same")
    duplicates: bool = config_field(True, "drop all but the first of equal pairs")
    leakage: bool = config_field(True, "drop training pairs whose source or target is in valid or test")
    judged: str | None = config_field(None, "what `manyheads judge` wrote: bad pairs are dropped")
    keep: float | None = config_field(
        None,
        "share of the judged pairs to keep, the best ones; by default those with a score of 0.5 or more",
        above=0,
        at_most=1,
    )

    def check_together(self) -> None:
        if self.keep is not None and self.judged is None:
            raise ConfigError(
                f"clean.keep is {self.keep:g}, but nothing is judged: give --judged, the folder that "
                f"`manyheads judge` wrote"
            )


@dataclass(frozen=True, kw_only=True)
class SubwordConfig(ConfigSection):
    """How words are segmented (5.1)."""

    table: ClassVar[str] = "subwords"

    algorithm: Literal["bpe", "unigram"] = config_field(
        "bpe", "byte-pair encoding (the paper's), or a unigram model"
    )
    vocab_size: int = config_field(
        37_000, "subwords, of both languages together or of each", at_least=NUM_SPECIAL_TOKENS, below=2**24
    )
    joint: bool = config_field(True, "one vocabulary for both languages (5.1)")
    byte_fallback: bool = config_field(
        True, "spell in bytes what no subword covers, so that nothing is unknown"
    )
    character_coverage: float = config_field(
        0.9995, "share of the characters that become subwords", above=0, at_most=1
    )
    sample_sentences: int = config_field(
        1_000_000, "sentences, of both languages together, to train the subwords on", at_least=1
    )
    user_symbols: tuple[str, ...] = config_field((), "symbols that are never split, such as tags")
    detect_placeholders: int = config_field(
        100, "never split this many of the most frequent placeholders and tags of the text", at_least=0
    )
    copy_symbols: bool = config_field(
        True, "have symbols that stand for text to copy, such as URLs; see augmentation.copied"
    )
    term_symbols: bool = config_field(
        True, "have symbols that annotate terms with their translations; see augmentation.terms"
    )
    case_lexicon: bool = config_field(
        True, "learn how words are usually written, for sources in capitals, lower case or Title Case"
    )
    reuse_from: str | None = config_field(
        None, "a data or model folder whose subwords and case lexicon are used instead"
    )

    def check_together(self) -> None:
        for symbol in self.user_symbols:
            check_symbol("subwords.user_symbols", symbol)


def check_symbol(key: str, symbol: str) -> None:
    """Refuse what cannot be a piece of its own."""
    is_reserved = SENTENCEPIECE_RESERVED.fullmatch(symbol)
    if not symbol or symbol != "".join(symbol.split()) or "\u2581" in symbol or is_reserved:
        raise ConfigError(
            f"{key} holds {symbol!r}, but a symbol is not empty, has no white space "
            f"and no U+2581, and is none of SentencePiece's own (<s>, </s>, <unk>, <0x41>)"
        )


@dataclass(frozen=True, kw_only=True)
class InputConfig(ConfigSection):
    """A source of pairs: two aligned plain files, or one file that holds both sides."""

    table: ClassVar[str] = "input"

    files: tuple[str, ...] = config_field(
        (), "two plain files, or one TSV, CSV, XLSX, JSONL, TMX, PO or XLIFF"
    )
    name: str = config_field("", "its name in reports; by default the first file's name")
    weight: float = config_field(1.0, "how often an epoch reads it, on average", above=0, below=1000)
    tag: str = config_field(
        "",
        "a symbol before each source, never split, such as <bt>: for synthetic text; never held out",
    )
    format: Literal["auto", "plain", "tsv", "csv", "xlsx", "jsonl", "tmx", "po", "xliff"] = config_field(
        "auto", "format of the file; by default from its name"
    )
    fields: tuple[str, ...] = config_field(
        (), "source and target: a table's column numbers or names, a JSONL's keys (a.b for nested ones)"
    )
    license: str = config_field("", "license of the text, for the model card")
    attribution: str = config_field("", "whom its license asks to name, for the model card")

    def check_together(self) -> None:
        if not 1 <= len(self.files) <= 2:
            raise ConfigError(
                f"an input has {len(self.files)} files ({', '.join(self.files)}), but must have "
                f"two plain ones, source and target, or one that holds both"
            )
        for key in ("name", "license", "attribution"):
            value = getattr(self, key)
            if value != " ".join(value.split()):
                raise ConfigError(f"an input's {key} is {value!r}, but must be one line, without tabs")
        if self.tag:
            check_symbol("tag", self.tag)
        if self.fields and (len(self.fields) != 2 or "" in self.fields):
            raise ConfigError(
                f"fields are {', '.join(self.fields)!r}, but must be two: the source's and the target's"
            )


@dataclass(frozen=True)
class Recipe(TomlConfig):
    """A recipe file: its sections, and the inputs as [[train]], [[valid]] and [[test]]."""

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
                InputConfig(**require_table(split, table)) for table in require_list(split, tables[split])
            )
            for split in SPLITS
            if split in tables
        }
        sections = super().from_mapping({name: keys for name, keys in tables.items() if name not in SPLITS})
        return replace(sections, **inputs)

    def to_toml(self) -> str:
        inputs = [item.to_toml(f"[[{split}]]") for split in SPLITS for item in getattr(self, split)]
        if not inputs:
            example = InputConfig(files=("train.en", "train.ko")).to_toml("[[train]]")
            inputs = ["".join(f"# {line}\n" for line in example.splitlines())]
        return "\n".join([super().to_toml(), *inputs])
