"""The catalog of known corpora (catalog.toml): entries, language pairs, and placeholders."""

import importlib.resources
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from manyheads.config import describe_unknown_name
from manyheads.errors import ConfigError, DataError, RequestError

LANGUAGE_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MEMBER_PATTERN = re.compile(r"[\w.+-]+(/[\w.+-]+)*")
SOURCE_TYPES = ("url", "opus", "sacrebleu", "playground")


@dataclass(frozen=True)
class LanguagePair:
    """Source and target language."""

    source: str
    target: str

    @classmethod
    def parse(cls, text: str) -> "LanguagePair":
        languages = text.split("-")
        if (
            len(languages) != 2
            or not all(map(LANGUAGE_PATTERN.fullmatch, languages))
            or len(set(languages)) != 2
        ):
            raise RequestError(f"the pair is {text!r}, but must be two languages, such as en-de")
        return cls(*languages)

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def languages(self) -> tuple[str, str]:
        return self.source, self.target

    def is_among(self, pairs: Sequence[str]) -> bool:
        """Return whether the pair is listed in either direction."""
        return str(self) in pairs or f"{self.target}-{self.source}" in pairs

    def get_placeholder_values(self) -> dict[str, str]:
        first, second = sorted(self.languages)
        other = self.target if self.source == "en" else self.source
        return {
            "source": self.source,
            "target": self.target,
            "first": first,
            "second": second,
            "other": other,
        }


@dataclass(frozen=True)
class CorpusPart:
    """One source of a split. It has one of SOURCE_TYPES: a URL, or its name in another list."""

    url: str | None = None
    member: str | None = None  # of the archive, for each side
    opus: str | None = None  # a corpus of OPUS, NAME or NAME/VERSION
    sacrebleu: str | None = None  # a test set of sacreBLEU's list
    playground: int | None = None  # pairs of the built-in grammar
    pairs: Sequence[str] = ()  # if it has only some pairs of the corpus
    sha256: str | dict[str, str] | None = None  # of the file, or by language
    md5: str | dict[str, str] | None = None
    size: int | dict[str, int] | None = None

    @property
    def source_type(self) -> str:
        types = [name for name in SOURCE_TYPES if getattr(self, name) is not None]
        if len(types) != 1:
            raise ConfigError(
                f"needs one of {', '.join(SOURCE_TYPES)}, but has {' and '.join(types) or 'none'}"
            )
        return types[0]

    def get_expected_file(self, language: str | None = None) -> dict[str, Any]:
        """Return the expected checksums and size of the file, or of the file of a language."""
        values = {"sha256": self.sha256, "md5": self.md5, "size": self.size}
        return {
            key: value.get(language or "") if isinstance(value, dict) else value
            for key, value in values.items()
        }


@dataclass(frozen=True)
class CatalogEntry:
    """A corpus of the catalog. Without `pairs`, its source decides which it has."""

    name: str
    title: str
    license: str
    license_url: str
    homepage: str
    splits: dict[str, list[CorpusPart]]
    pairs: Sequence[str] = ()

    @property
    def is_family(self) -> bool:
        """Whether a name must follow: opus/Tatoeba."""
        return any("{corpus}" in (part.opus or part.sacrebleu or "") for part in self.list_parts())

    @property
    def known_bytes(self) -> int | None:
        """The size of the downloads, as far as it is published."""
        return sum(part.size for part in self.list_parts() if isinstance(part.size, int)) or None

    def list_parts(self) -> list[CorpusPart]:
        return [part for parts in self.splits.values() for part in parts]

    def select_parts(self, pair: LanguagePair) -> dict[str, list[CorpusPart]]:
        """Return the parts of each split that this pair has."""
        selected = {
            split: [part for part in parts if not part.pairs or pair.is_among(part.pairs)]
            for split, parts in self.splits.items()
        }
        return {split: parts for split, parts in selected.items() if parts}

    def choose_pair(self, wanted: str | None) -> LanguagePair:
        if wanted is None and len(self.pairs) != 1:
            known = f": {', '.join(self.pairs)}" if self.pairs else ", such as en-de"
            raise RequestError(f"{self.name} needs --pair{known}")
        pair = LanguagePair.parse(wanted or self.pairs[0])
        if self.pairs and not pair.is_among(self.pairs):
            has = ", ".join(self.pairs)
            raise RequestError(f"{self.name} has no {pair}; it has {has}, in either direction")
        return pair


@dataclass(frozen=True)
class Catalog:
    """URLs that several corpora share, and the corpora."""

    urls: dict[str, str]
    corpora: dict[str, CatalogEntry]

    def find_entry(self, name: str) -> tuple[CatalogEntry, str]:
        """Return the entry of a name, and what follows its first slash."""
        family, slash, member = name.partition("/")
        if family not in self.corpora:
            raise RequestError(describe_unknown_name("corpus", name, sorted(self.corpora)))
        corpus = self.corpora[family]
        if corpus.is_family and not MEMBER_PATTERN.fullmatch(member):
            raise RequestError(f"the corpus is {name!r}, but must be {family}/NAME")
        if slash and not corpus.is_family:
            raise RequestError(
                f"the corpus is {name!r}, but {family} is a single corpus: leave out /{member}"
            )
        return corpus, member

    def fill(self, pattern: str, values: Mapping[str, str]) -> str:
        """Fill the placeholders of a pattern: URLs first, since they may contain others."""
        with_urls = fill_placeholders(pattern, {**keep_placeholders(pattern), **self.urls})
        return fill_placeholders(with_urls, values)

    def to_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "name": f"{corpus.name}/NAME" if corpus.is_family else corpus.name,
                "title": corpus.title,
                "pairs": list(corpus.pairs),
                "splits": list(corpus.splits),
                "bytes": corpus.known_bytes,
                "license": corpus.license,
                "license_url": corpus.license_url,
                "homepage": corpus.homepage,
            }
            for corpus in self.corpora.values()
        ]

    def to_json(self) -> str:
        return json.dumps(self.to_rows(), ensure_ascii=False, indent=1)

    def to_text(self) -> str:
        """Format as text, a paragraph for each corpus."""
        return "\n".join(
            f"{row['name']}\n  {row['title']}\n  license: {row['license']} ({row['license_url']})\n"
            f"  pairs: {', '.join(row['pairs']) or 'any that its source has'}\n"
            f"  splits: {', '.join(row['splits'])}; "
            f"download: {format_download_size(row)}"
            for row in self.to_rows()
        )


def format_download_size(row: dict[str, Any]) -> str:
    if row["name"] == "playground":
        return "none"
    return f"at least {row['bytes'] / 1e6:,.1f} MB" if row["bytes"] else "size not published"


def fill_placeholders(pattern: str, values: Mapping[str, str]) -> str:
    def get_value(placeholder: re.Match[str]) -> str:
        if placeholder[1] not in values:
            raise ConfigError(
                f"unknown placeholder {placeholder[0]} in {pattern!r} of the catalog; "
                f"known: {', '.join(values)}"
            )
        return values[placeholder[1]]

    return re.sub(r"\{(\w+)\}", get_value, pattern)


def keep_placeholders(pattern: str) -> dict[str, str]:
    """Map each placeholder to itself, so that filling leaves it unchanged."""
    return {name: f"{{{name}}}" for name in re.findall(r"\{(\w+)\}", pattern)}


def load_catalog(user_file: str | Path | None = None) -> Catalog:
    """Load the packaged catalog. A user's file replaces single URLs, and corpora by name."""
    packaged = importlib.resources.files("manyheads.text.datasets").joinpath("catalog.toml")
    catalog = parse_catalog(tomllib.loads(packaged.read_text(encoding="utf-8")), "catalog.toml")
    if user_file is None:
        return catalog
    try:
        tables = tomllib.loads(Path(user_file).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{user_file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{user_file} is not TOML: {error}") from None
    own = parse_catalog(tables, str(user_file))
    return Catalog(catalog.urls | own.urls, catalog.corpora | own.corpora)


def parse_catalog(tables: Mapping[str, Any], file: str) -> Catalog:
    check_keys(tables, ["urls", "corpora"], file)
    try:
        urls = {str(name): str(url) for name, url in tables.get("urls", {}).items()}
        rows = dict(tables.get("corpora", {}))
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"{file}: urls and corpora must be tables, as in catalog.toml") from None
    corpora = {name: parse_entry(name, row, f"{file}: corpora.{name}") for name, row in rows.items()}
    return Catalog(urls, corpora)


def parse_entry(name: str, row: Mapping[str, Any], location: str) -> CatalogEntry:
    known = [key.name for key in fields(CatalogEntry) if key.name != "name"]
    try:
        check_keys(row, known, location)
        if missing := [key for key in known if key != "pairs" and key not in row]:
            raise ConfigError(f"{location} lacks {', '.join(missing)}")
        splits = {
            split: [parse_part(part, location) for part in parts] for split, parts in row["splits"].items()
        }
    except (TypeError, AttributeError):
        raise ConfigError(f"{location} is not a corpus as in catalog.toml") from None
    for split in splits:
        if not re.fullmatch(r"\w+", split):
            raise ConfigError(
                f"{location}: the split {split!r} is part of file names: use letters and digits only"
            )
    return CatalogEntry(name=name, **{**row, "splits": splits})


def parse_part(row: Mapping[str, Any], location: str) -> CorpusPart:
    check_keys(row, [key.name for key in fields(CorpusPart)], location)
    part = CorpusPart(**row)
    try:
        _ = part.source_type
    except ConfigError as error:
        raise ConfigError(f"{location}: a part {error}") from None
    return part


def check_keys(row: Mapping[str, Any], known: list[str], location: str) -> None:
    for key in row:
        if key not in known:
            raise ConfigError(f"{location}: {describe_unknown_name('key', key, known)}")
