"""The framework of the configuration: declared fields, type and limit checks, TOML in and out, overrides.

A ConfigSection is one table of a TOML file, a TomlConfig the whole file. The schema is in the other modules.
"""

import difflib
import functools
import json
import math
import operator
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from manyheads.atomic_io import read_limited, write_text_atomically
from manyheads.errors import ConfigError, DataError

MAX_CONFIG_BYTES = 2**24
MAX_INTEGER = 2**63 - 1  # the largest that TOML guarantees

Value = TypeVar("Value")

cached_type_hints = functools.cache(get_type_hints)  # which evaluates strings each time


def read_type_hints(section: type) -> dict[str, Any]:
    return cached_type_hints(section)


def config_field(
    default: Value,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> Value:
    """Declare a key: its default, its description, and the limits of its value."""
    limits = {"at_least": at_least, "above": above, "below": below, "at_most": at_most}
    declared: Value = field(default=default, metadata={"help": help, **limits})
    return declared


@dataclass(frozen=True, kw_only=True)
class ConfigSection:
    """A table of a TOML file. Every instance is checked, whether it comes from Python or from a file."""

    table: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()  # keys that may be given, but are stored under other names

    def __new__(cls, **values: Any) -> Self:
        """Refuse unknown keys here: `__init__` would raise a TypeError without a hint."""
        known = cls.key_names()
        for key, value in values.items():
            if key not in known:
                raise ConfigError(cls.describe_unknown_key(key, value))
        return super().__new__(cls)

    @classmethod
    def key_names(cls) -> list[str]:
        return [*(key.name for key in fields(cls)), *cls.aliases]

    @classmethod
    def describe_unknown_key(cls, key: str, value: Any) -> str:
        for other in sibling_sections(cls):
            if key in other.key_names():
                return f"unknown key {cls.table}.{key}; did you mean {other.table}.{key}?"
        return describe_unknown_name("key", key, cls.key_names(), prefix=f"{cls.table}.")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        return cls(**values)

    def __post_init__(self) -> None:
        hints = read_type_hints(type(self))
        for key in fields(self):
            value = convert_value(f"{self.table}.{key.name}", getattr(self, key.name), hints[key.name])
            check_limits(f"{self.table}.{key.name}", value, key.metadata)
            object.__setattr__(self, key.name, value)  # an int given for a float becomes a float
        self.check_together()

    def check_together(self) -> None:
        """Check limits that concern several keys."""

    def with_changes(self, values: Mapping[str, Any]) -> Self:
        return replace(self, **values)

    def to_toml(self, heading: str | None = None) -> str:
        """Format every key with its description and choices; a key without a value becomes a comment."""
        lines, hints = [heading or f"[{self.table}]"], read_type_hints(type(self))
        for key in fields(self):
            value, choices = getattr(self, key.name), get_args(hints[key.name])
            assignment = f"# {key.name} =" if value is None else f"{key.name} = {format_toml_value(value)}"
            has_choices = get_origin(hints[key.name]) is Literal and len(choices) > 1
            options = f" ({', '.join(choices)})" if has_choices else ""
            lines.append(f"{assignment}  # {key.metadata['help']}{options}")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class TomlConfig:
    """A TOML file: one table per section."""

    def __post_init__(self) -> None:
        for name, section in self.sections().items():
            if not isinstance(getattr(self, name), section):
                raise ConfigError(f"{name} is {getattr(self, name)!r}, but must be a {section.__name__}")

    @classmethod
    def sections(cls) -> dict[str, type[ConfigSection]]:
        return {name: hint for name, hint in read_type_hints(cls).items() if isinstance(hint, type)}

    @classmethod
    def section(cls, name: str) -> type[ConfigSection]:
        sections = cls.sections()
        if name in sections:
            return sections[name]
        if name in [key.name for key in fields(cls)]:
            raise ConfigError(f"{name} is a list of inputs, [[{name}]] in a file, and has no keys of its own")
        raise ConfigError(describe_unknown_name("table", name, [key.name for key in fields(cls)]))

    @classmethod
    def from_mapping(cls, tables: Mapping[str, Any]) -> Self:
        return cls(
            **{
                name: cls.section(name).from_mapping(require_table(name, keys))
                for name, keys in tables.items()
            }
        )

    @classmethod
    def from_toml(cls, text: str) -> Self:
        try:
            tables = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, a thousand brackets
            raise ConfigError(f"not TOML: {error}") from None
        return cls.from_mapping(tables)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        try:
            return cls.from_toml(read_limited(Path(path), MAX_CONFIG_BYTES).decode("utf-8-sig"))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: not UTF-8 at byte {error.start}; TOML is UTF-8") from None
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def to_toml(self) -> str:
        return "\n".join(getattr(self, name).to_toml() for name in self.sections())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file atomically, so that nobody reads half a file."""
        write_text_atomically(Path(path), self.to_toml())

    def override(self, assignments: Iterable[str]) -> Self:
        """Return a copy with some keys changed, each written as `train.steps=2000`."""
        tables: dict[str, dict[str, Any]] = {}
        for assignment in assignments:
            path, equals, value = assignment.partition("=")
            name, dot, key = path.strip().partition(".")
            if not (equals and dot and key):
                raise ConfigError(f"{assignment!r} is not an assignment: write section.key=value")
            tables.setdefault(name, {})[key] = parse_toml_value(value.strip())
        changed: dict[str, Any] = {}
        for name, values in tables.items():
            self.section(name)  # an unknown table is refused here
            changed[name] = getattr(self, name).with_changes(values)
        return replace(self, **changed)


def sibling_sections(section: type[ConfigSection]) -> list[type[ConfigSection]]:
    """Return the sections of the file that this section belongs to."""
    files = [list(file.sections().values()) for file in TomlConfig.__subclasses__()]
    return next((sections for sections in files if issubclass(section, tuple(sections))), [])


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
    """Return the message for an unknown name, with the nearest known one."""
    nearest = find_nearest_name(name, known)
    hint = f"did you mean {prefix}{nearest}?" if nearest else f"known: {', '.join(known)}"
    return f"unknown {what} {prefix}{name}; {hint}"


def find_nearest_name(name: str, known: list[str]) -> str | None:
    """Return the known name that is most like another one, or None if none is."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return near[0] if near else None


def convert_value(key: str, value: Any, hint: Any) -> Any:
    """Return the value as the declared type of its key, or raise."""
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if NoneType in options and value in (None, "none"):  # TOML has no null
        return None
    declared = options[0]
    if get_origin(declared) is Literal:
        return check_choice(key, value, get_args(declared))
    if get_origin(declared) is tuple:
        if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
            return tuple(value)
        raise ConfigError(f"{key} is {value!r}, but must be a list of strings")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ConfigError(f"{key} is a number of {value.bit_length()} bits, but TOML's have 64")
    if declared is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not declared:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
        raise ConfigError(f"{key} is {value!r}, but must be {names[declared]}")
    return value


def check_choice(key: str, value: Any, choices: Iterable[str]) -> str:
    if isinstance(value, str) and value in choices:
        return value
    raise ConfigError(f"{key} is {value!r}, but must be one of {', '.join(map(repr, choices))}")


def check_limits(key: str, value: Any, limits: Mapping[str, Any]) -> None:
    if not isinstance(value, int | float):
        return
    rules = {"at_least": operator.ge, "above": operator.gt, "below": operator.lt, "at_most": operator.le}
    stated = {name: limits[name] for name in rules if limits[name] is not None}
    if not math.isfinite(value):
        raise ConfigError(f"{key} is {value!r}, but must be finite")
    if not all(rules[name](value, stated[name]) for name in stated):
        allowed = " and ".join(f"{name.replace('_', ' ')} {limit}" for name, limit in stated.items())
        raise ConfigError(f"{key} is {value!r}, but must be {allowed}")


def format_toml_value(value: bool | int | float | str | tuple[str, ...]) -> str:
    """Format a value; JSON writes these types as TOML does."""
    return json.dumps(value, ensure_ascii=False)


def parse_toml_value(text: str) -> Any:
    """Parse a value as TOML; a bare word is a string, so that quotes need no escaping in a shell."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if list(table) == ["value"] else text
