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

LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MEMBER = re.compile(r"[\w.+-]+(/[\w.+-]+)*")
KINDS = ("address", "opus", "sacrebleu", "playground")


@dataclass(frozen=True)
class Pair:
    """From which language into which."""

    source: str
    target: str

    @classmethod
    def of(cls, text: str) -> "Pair":
        languages = text.split("-")
        if len(languages) != 2 or not all(map(LANGUAGE.fullmatch, languages)) or len(set(languages)) != 2:
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

    def placeholders(self) -> dict[str, str]:
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
class Part:
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
    def kind(self) -> str:
        named = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(named) != 1:
            raise ConfigError(f"needs one of {', '.join(KINDS)}, but has {' and '.join(named) or 'none'}")
        return named[0]

    def published(self, language: str | None = None) -> dict[str, Any]:
        """The sums and the size of the one file, or of this language's."""
        values = {"sha256": self.sha256, "md5": self.md5, "size": self.size}
        return {
            what: value.get(language or "") if isinstance(value, dict) else value
            for what, value in values.items()
        }


@dataclass(frozen=True)
class Corpus:
    """A row of the table. Without `pairs`, it is for the source to say which it has."""

    name: str
    title: str
    license: str
    license_at: str
    homepage: str
    splits: dict[str, list[Part]]
    pairs: Sequence[str] = ()

    @property
    def is_family(self) -> bool:
        """Whether a name belongs behind the corpus's own: opus/Tatoeba."""
        return any("{corpus}" in (part.opus or part.sacrebleu or "") for part in self.parts())

    @property
    def known_bytes(self) -> int | None:
        """What is downloaded, as far as sizes are published."""
        return sum(part.size for part in self.parts() if isinstance(part.size, int)) or None

    def parts(self) -> list[Part]:
        return [part for parts in self.splits.values() for part in parts]

    def parts_for(self, pair: Pair) -> dict[str, list[Part]]:
        """The splits that this pair has, each with what makes it up."""
        chosen = {
            split: [part for part in parts if not part.pairs or pair.is_among(part.pairs)]
            for split, parts in self.splits.items()
        }
        return {split: parts for split, parts in chosen.items() if parts}

    def choose_pair(self, wanted: str | None) -> Pair:
        if wanted is None and len(self.pairs) != 1:
            known = f": {', '.join(self.pairs)}" if self.pairs else ", such as en-de"
            raise RequestError(f"{self.name} needs --pair{known}")
        pair = Pair.of(wanted or self.pairs[0])
        if self.pairs and not pair.is_among(self.pairs):
            has = ", ".join(self.pairs)
            raise RequestError(f"{self.name} has no {pair}; it has {has}, in either direction")
        return pair


@dataclass(frozen=True)
class Table:
    """The addresses that move together, and the corpora."""

    addresses: dict[str, str]
    corpora: dict[str, Corpus]

    def find(self, name: str) -> tuple[Corpus, str]:
        """The row for a name, and what stands behind its first slash."""
        family, slash, member = name.partition("/")
        if family not in self.corpora:
            raise RequestError(describe_unknown_name("corpus", name, sorted(self.corpora)))
        corpus = self.corpora[family]
        if corpus.is_family and not MEMBER.fullmatch(member):
            raise RequestError(f"the corpus is {name!r}, but must be {family}/NAME with one of its names")
        if slash and not corpus.is_family:
            raise RequestError(f"the corpus is {name!r}, but {family} is one corpus: leave out /{member}")
        return corpus, member

    def fill(self, pattern: str, known: Mapping[str, str]) -> str:
        """A pattern with its placeholders filled: addresses first, for they may hold others."""
        return fill(fill(pattern, {**placeholders_in(pattern), **self.addresses}), known)

    def rows(self) -> list[dict[str, Any]]:
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
        return json.dumps(self.rows(), ensure_ascii=False, indent=1)

    def to_text(self) -> str:
        """For people: a paragraph a corpus."""
        return "\n".join(
            f"{row['name']}\n  {row['title']}\n  license: {row['license']} ({row['license_at']})\n"
            f"  pairs: {', '.join(row['pairs']) or 'any that its source has'}\n"
            f"  splits: {', '.join(row['splits'])}; "
            f"download: {least_megabytes(row)}"
            for row in self.rows()
        )


def least_megabytes(row: dict[str, Any]) -> str:
    if row["name"] == "playground":
        return "none"
    return f"at least {row['bytes'] / 1e6:,.1f} MB" if row["bytes"] else "size not published"


def fill(pattern: str, known: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[1] not in known:
            raise ConfigError(
                f"nothing fills {found[0]} in {pattern!r} of the table; known: {', '.join(known)}"
            )
        return known[found[1]]

    return re.sub(r"\{(\w+)\}", value, pattern)


def placeholders_in(pattern: str) -> dict[str, str]:
    """Each as itself: filled with these, a pattern stays as it is."""
    return {name: f"{{{name}}}" for name in re.findall(r"\{(\w+)\}", pattern)}


def load_table(own: str | Path | None = None) -> Table:
    """The package's table. A file of one's own replaces single addresses, and corpora by name."""
    packaged = (
        importlib.resources.files("manyheads.text.datasets")
        .joinpath("catalog.toml")
        .read_text(encoding="utf-8")
    )
    table = read_table(tomllib.loads(packaged), "catalog.toml")
    if own is None:
        return table
    try:
        written = tomllib.loads(Path(own).read_text(encoding="utf-8"))
    except OSError as fault:
        raise ConfigError(f"{own} cannot be read: {fault.strerror}") from None
    except (ValueError, RecursionError) as fault:
        raise ConfigError(f"{own} is not TOML: {fault}") from None
    mine = read_table(written, str(own))
    return Table(table.addresses | mine.addresses, table.corpora | mine.corpora)


def read_table(written: Mapping[str, Any], where: str) -> Table:
    check_keys(written, ["addresses", "corpora"], where)
    try:
        addresses = {str(name): str(address) for name, address in written.get("addresses", {}).items()}
        rows = dict(written.get("corpora", {}))
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"{where}: addresses and corpora are tables, as in known.toml") from None
    return Table(
        addresses, {name: read_corpus(name, row, f"{where}: corpora.{name}") for name, row in rows.items()}
    )


def read_corpus(name: str, row: Mapping[str, Any], where: str) -> Corpus:
    wanted = [key.name for key in fields(Corpus) if key.name != "name"]
    try:
        check_keys(row, wanted, where)
        if missing := [key for key in wanted if key != "pairs" and key not in row]:
            raise ConfigError(f"{where} lacks {', '.join(missing)}")
        splits = {split: [read_part(part, where) for part in parts] for split, parts in row["splits"].items()}
    except (TypeError, AttributeError):
        raise ConfigError(f"{where} does not have the shape of the corpora in known.toml") from None
    for split in splits:
        if not re.fullmatch(r"\w+", split):
            raise ConfigError(f"{where}: the split {split!r} names files, so it has letters and digits alone")
    return Corpus(name=name, **{**row, "splits": splits})


def read_part(row: Mapping[str, Any], where: str) -> Part:
    check_keys(row, [key.name for key in fields(Part)], where)
    part = Part(**row)
    try:
        _ = part.kind
    except ConfigError as fault:
        raise ConfigError(f"{where}: a part {fault}") from None
    return part


def check_keys(row: Mapping[str, Any], known: list[str], where: str) -> None:
    for key in row:
        if key not in known:
            raise ConfigError(f"{where}: {describe_unknown_name('key', key, known)}")
