"""The table of known corpora (known.toml): rows, language pairs, and the filling of placeholders."""

import importlib.resources
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from manyheads.config import describe_unknown_name
from manyheads.errors import ConfigError, RequestError

LANGUAGE_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MEMBER_PATTERN = re.compile(r"[\w.+-]+(/[\w.+-]+)*")
SOURCE_TYPES = ("address", "opus", "sacrebleu", "playground")


@dataclass(frozen=True)
class LanguagePair:
    """From which language into which."""

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
        """In either direction."""
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
    """One source of a split, of one of the KINDS: it has an address, or its name on another list."""

    address: str | None = None
    member: str | None = None  # of the archive, for each side
    opus: str | None = None  # a corpus of OPUS, NAME or NAME/VERSION
    sacrebleu: str | None = None  # a test set of sacreBLEU's list
    playground: int | None = None  # pairs of the built-in grammar
    pairs: Sequence[str] = ()  # where it serves only some of the corpus's
    sha256: str | dict[str, str] | None = None  # of the file, or of each language's
    md5: str | dict[str, str] | None = None
    size: int | dict[str, int] | None = None

    @property
    def source_type(self) -> str:
        named = [kind for kind in SOURCE_TYPES if getattr(self, kind) is not None]
        if len(named) != 1:
            raise ConfigError(
                f"needs one of {', '.join(SOURCE_TYPES)}, but has {' and '.join(named) or 'none'}"
            )
        return named[0]

    def get_expected_file(self, language: str | None = None) -> dict[str, Any]:
        """The sums and the size of the one file, or of this language's."""
        values = {"sha256": self.sha256, "md5": self.md5, "size": self.size}
        return {
            what: value.get(language or "") if isinstance(value, dict) else value
            for what, value in values.items()
        }


@dataclass(frozen=True)
class CatalogEntry:
    """A row of the table. Without `pairs`, it is for the source to say which it has."""

    name: str
    title: str
    license: str
    license_at: str
    homepage: str
    splits: dict[str, list[CorpusPart]]
    pairs: Sequence[str] = ()

    @property
    def is_family(self) -> bool:
        """Whether a name belongs behind the corpus's own: opus/Tatoeba."""
        return any("{corpus}" in (part.opus or part.sacrebleu or "") for part in self.list_parts())

    @property
    def known_bytes(self) -> int | None:
        """What is downloaded, as far as sizes are published."""
        return sum(part.size for part in self.list_parts() if isinstance(part.size, int)) or None

    def list_parts(self) -> list[CorpusPart]:
        return [part for parts in self.splits.values() for part in parts]

    def select_parts(self, pair: LanguagePair) -> dict[str, list[CorpusPart]]:
        """The splits that this pair has, each with what makes it up."""
        chosen = {
            split: [part for part in parts if not part.pairs or pair.is_among(part.pairs)]
            for split, parts in self.splits.items()
        }
        return {split: parts for split, parts in chosen.items() if parts}

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
    """The addresses that move together, and the corpora."""

    addresses: dict[str, str]
    corpora: dict[str, CatalogEntry]

    def find_entry(self, name: str) -> tuple[CatalogEntry, str]:
        """The row for a name, and what stands behind its first slash."""
        family, slash, member = name.partition("/")
        if family not in self.corpora:
            raise RequestError(describe_unknown_name("corpus", name, sorted(self.corpora)))
        corpus = self.corpora[family]
        if corpus.is_family and not MEMBER_PATTERN.fullmatch(member):
            raise RequestError(f"the corpus is {name!r}, but must be {family}/NAME with one of its names")
        if slash and not corpus.is_family:
            raise RequestError(f"the corpus is {name!r}, but {family} is one corpus: leave out /{member}")
        return corpus, member

    def fill(self, pattern: str, known: Mapping[str, str]) -> str:
        """A pattern with its placeholders filled: addresses first, for they may hold others."""
        return fill_placeholders(
            fill_placeholders(pattern, {**keep_placeholders(pattern), **self.addresses}), known
        )

    def to_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "name": f"{corpus.name}/NAME" if corpus.is_family else corpus.name,
                "title": corpus.title,
                "pairs": list(corpus.pairs),
                "splits": list(corpus.splits),
                "bytes": corpus.known_bytes,
                "license": corpus.license,
                "license_at": corpus.license_at,
                "homepage": corpus.homepage,
            }
            for corpus in self.corpora.values()
        ]

    def to_json(self) -> str:
        return json.dumps(self.to_rows(), ensure_ascii=False, indent=1)

    def to_text(self) -> str:
        """For people: a paragraph a corpus."""
        return "\n".join(
            f"{row['name']}\n  {row['title']}\n  license: {row['license']} ({row['license_at']})\n"
            f"  pairs: {', '.join(row['pairs']) or 'any that its source has'}\n"
            f"  splits: {', '.join(row['splits'])}; "
            f"download: {format_download_size(row)}"
            for row in self.to_rows()
        )


def format_download_size(row: dict[str, Any]) -> str:
    if row["name"] == "playground":
        return "none"
    return f"at least {row['bytes'] / 1e6:,.1f} MB" if row["bytes"] else "size not published"


def fill_placeholders(pattern: str, known: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[1] not in known:
            raise ConfigError(
                f"nothing fills {found[0]} in {pattern!r} of the table; known: {', '.join(known)}"
            )
        return known[found[1]]

    return re.sub(r"\{(\w+)\}", value, pattern)


def keep_placeholders(pattern: str) -> dict[str, str]:
    """Each as itself: filled with these, a pattern stays as it is."""
    return {name: f"{{{name}}}" for name in re.findall(r"\{(\w+)\}", pattern)}


def load_catalog(user_file: str | Path | None = None) -> Catalog:
    """The package's table. A file of one's own replaces single addresses, and corpora by name."""
    packaged = (
        importlib.resources.files("manyheads.text.datasets")
        .joinpath("catalog.toml")
        .read_text(encoding="utf-8")
    )
    table = parse_catalog(tomllib.loads(packaged), "catalog.toml")
    if user_file is None:
        return table
    try:
        written = tomllib.loads(Path(user_file).read_text(encoding="utf-8"))
    except OSError as fault:
        raise ConfigError(f"{user_file} cannot be read: {fault.strerror}") from None
    except (ValueError, RecursionError) as fault:
        raise ConfigError(f"{user_file} is not TOML: {fault}") from None
    mine = parse_catalog(written, str(user_file))
    return Catalog(table.addresses | mine.addresses, table.corpora | mine.corpora)


def parse_catalog(written: Mapping[str, Any], where: str) -> Catalog:
    check_keys(written, ["addresses", "corpora"], where)
    try:
        addresses = {str(name): str(address) for name, address in written.get("addresses", {}).items()}
        rows = dict(written.get("corpora", {}))
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"{where}: addresses and corpora are tables, as in known.toml") from None
    return Catalog(
        addresses, {name: parse_entry(name, row, f"{where}: corpora.{name}") for name, row in rows.items()}
    )


def parse_entry(name: str, row: Mapping[str, Any], where: str) -> CatalogEntry:
    wanted = [key.name for key in fields(CatalogEntry) if key.name != "name"]
    try:
        check_keys(row, wanted, where)
        if missing := [key for key in wanted if key != "pairs" and key not in row]:
            raise ConfigError(f"{where} lacks {', '.join(missing)}")
        splits = {
            split: [parse_part(part, where) for part in parts] for split, parts in row["splits"].items()
        }
    except (TypeError, AttributeError):
        raise ConfigError(f"{where} does not have the shape of the corpora in known.toml") from None
    for split in splits:
        if not re.fullmatch(r"\w+", split):
            raise ConfigError(f"{where}: the split {split!r} names files, so it has letters and digits alone")
    return CatalogEntry(name=name, **{**row, "splits": splits})


def parse_part(row: Mapping[str, Any], where: str) -> CorpusPart:
    check_keys(row, [key.name for key in fields(CorpusPart)], where)
    part = CorpusPart(**row)
    try:
        _ = part.source_type
    except ConfigError as fault:
        raise ConfigError(f"{where}: a part {fault}") from None
    return part


def check_keys(row: Mapping[str, Any], known: list[str], where: str) -> None:
    for key in row:
        if key not in known:
            raise ConfigError(f"{where}: {describe_unknown_name('key', key, known)}")
