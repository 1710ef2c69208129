"""Write the reference pages from the code: docs/configuration.md, docs/configuration.ko.md and docs/api.md.

    make reference

With --check nothing is written, and the exit code is 1 if a page is not current.
"""

import argparse
import dataclasses
import inspect
import re
import sys
import textwrap
import tomllib
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import manyheads as mh
from manyheads.config import Config, ConfigSection, DistillConfig, InputConfig, Recipe, TransformerConfig
from manyheads.config.fields import format_toml_value
from manyheads.config.model import ByteNetConfig, ConvS2SConfig, RecurrentConfig

ROOT = Path(__file__).parents[1]
KOREAN_HELP = ROOT / "release" / "configuration.ko.toml"
MODELS = (TransformerConfig, RecurrentConfig, ConvS2SConfig, ByteNetConfig)
TYPE_NAMES = {
    "en": {int: "integer", float: "number", bool: "true, false", str: "text", "list": "list of texts"},
    "ko": {int: "정수", float: "수", bool: "true, false", str: "글", "list": "글의 목록"},
}
LIMITS = {"at_least": "≥", "above": ">", "below": "<", "at_most": "≤"}
INTRODUCTION = {
    "en": """# Configuration reference

[한국어](configuration.ko.md)

Every key, generated from the configuration classes by `make reference`. Keys are written in a TOML file
under their table, or after a command as `section.key=value`; `none` is no value. Numbers in parentheses are
sections of the paper.

    manyheads inspect base                      every key of a run, with its value in a preset or file
    manyheads prepare data --show-recipe        every key of a recipe
""",
    "ko": """# 설정 레퍼런스

[English](configuration.md)

설정 클래스에서 `make reference`로 만든, 모든 키의 목록입니다. 키는 TOML 파일에서 그 표 아래에
쓰거나, 명령 뒤에 `section.key=value`로 씁니다. `none`은 값이 없다는 뜻입니다. 괄호 안의 숫자는 논문의
절입니다.

    manyheads inspect base                      실행의 모든 키와, 프리셋이나 파일에서의 값
    manyheads prepare data --show-recipe        레시피의 모든 키
""",
}
HEADINGS = {
    "en": {
        "run": "Runs: `manyheads train`",
        "recipe": "Recipes: `manyheads prepare`",
        "distill": "Distillation: `manyheads distill`",
        "columns": ("key", "default", "values", "meaning"),
        "input": "`[[train]]`, `[[valid]]`, `[[test]]`",
        "only": "only {}",
    },
    "ko": {
        "run": "실행: `manyheads train`",
        "recipe": "레시피: `manyheads prepare`",
        "distill": "증류: `manyheads distill`",
        "columns": ("키", "기본값", "값", "뜻"),
        "input": "`[[train]]`, `[[valid]]`, `[[test]]`",
        "only": "{}만",
    },
}


def describe_values(hints: list[Any], limits: dict[str, Any], language: str) -> str:
    """Return the type of a key, or its choices in all sections that have it, with its limits."""
    if get_origin(hints[0]) is Literal:
        choices = dict.fromkeys(choice for hint in hints for choice in get_args(hint))
        return ", ".join(f"`{choice}`" for choice in choices)
    hint, names = hints[0], TYPE_NAMES[language]
    if isinstance(hint, UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    name = names["list"] if get_origin(hint) is tuple else names[hint]
    bounds = [
        f"{sign} {format_number(limits[limit])}"
        for limit, sign in LIMITS.items()
        if limits.get(limit) is not None
    ]
    return f"{name}, {', '.join(bounds)}" if bounds else name


def format_number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def format_keys(sections: list[type[ConfigSection]], language: str) -> list[str]:
    """Return the table of the keys of a section; of several, each key once, with those that have it."""
    korean = tomllib.loads(KOREAN_HELP.read_text(encoding="utf-8"))[sections[0].table]
    lines = [f"| {' | '.join(HEADINGS[language]['columns'])} |", "|---|---|---|---|"]
    owners: dict[str, list[type[ConfigSection]]] = {}
    for section in sections:
        for key in dataclasses.fields(section):
            owners.setdefault(key.name, []).append(section)
    for name, having in owners.items():
        key = having[0].__dataclass_fields__[name]
        value: Any = key.default
        default = "none" if value is None else format_toml_value(value)
        hints = [get_type_hints(section)[name] for section in having]
        values = describe_values(hints, dict(key.metadata), language)
        meaning = korean[name] if language == "ko" else key.metadata["help"]
        if len(having) < len(sections):
            kinds = ", ".join(
                f"`{section.__dataclass_fields__['architecture'].default}`" for section in having
            )
            meaning += f" ({str(HEADINGS[language]['only']).format(kinds)})"
        lines.append(f"| `{name}` | `{default}` | {values} | {meaning.replace('|', chr(92) + '|')} |")
    return lines


def format_configuration(language: str) -> str:
    headings = HEADINGS[language]
    lines = [INTRODUCTION[language], f"## {headings['run']}\n"]
    for name, section in Config.sections().items():
        sections = list(MODELS) if name == "model" else [section]
        lines += [f"### `[{name}]`\n", *format_keys(sections, language), ""]
    lines += [f"## {headings['recipe']}\n"]
    for name, section in Recipe.sections().items():
        lines += [f"### `[{name}]`\n", *format_keys([section], language), ""]
    lines += [f"### {headings['input']}\n", *format_keys([InputConfig], language), ""]
    lines += [f"## {headings['distill']}\n", *format_keys([DistillConfig], language), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def format_api() -> str:
    """Return the public names of the package with their signatures and docstrings."""
    lines = [
        "# API reference",
        "",
        "Generated from the docstrings by `make reference`, in English only. These are the names of",
        "`manyheads.__all__`, after `import manyheads as mh`. How to use them:",
        "[translation](translation.md), [the model code](model.md), [attention pages](look.md),",
        "[configuration](configuration.md).",
        "",
    ]
    for name in sorted(mh.__all__):
        lines += format_object(name, getattr(mh, name))
    return "\n".join(lines).rstrip("\n") + "\n"


def format_object(name: str, target: Any) -> list[str]:
    lines = [f"## `{name}`", ""]
    if isinstance(target, ModuleType):
        values = sorted(key for key in vars(target) if key.isupper())
        return [*lines, *format_docstring(target), *textwrap.wrap(f"Values: {format_names(values)}."), ""]
    if inspect.isclass(target) and issubclass(target, Exception | ConfigSection):
        lines += code_block(f"class {name}({target.__bases__[0].__name__})")
    else:
        lines += code_block(f"{'class ' * inspect.isclass(target)}{name}{format_signature(target)}")
    lines += format_docstring(target)
    if inspect.isclass(target) and not issubclass(target, Exception | ConfigSection):
        for member, value in find_members(target).items():
            lines += format_member(name, member, value)
    return lines


def find_members(target: type) -> dict[str, Any]:
    """Return the public methods and properties of a class, with those of its bases in the package."""
    members: dict[str, Any] = {}
    for owner in target.__mro__:
        for name, value in vars(owner).items() if owner.__module__.startswith("manyheads") else ():
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if not name.startswith("_") and (inspect.isfunction(function) or isinstance(value, property)):
                members.setdefault(name, function)
    return members


def format_member(owner: str, name: str, member: Any) -> list[str]:
    signature = "" if isinstance(member, property) else format_signature(member)
    return [f"### `{owner}.{name}`", "", *code_block(f"{name}{signature}"), *format_docstring(member)]


def format_signature(target: Any) -> str:
    """Return parameters and defaults, one to a line if they are many."""
    signature = inspect.signature(target)
    parameters = [
        str(parameter.replace(annotation=parameter.empty))
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    parameters = [re.sub(r"<factory>|<function .*?>( at \w+>)?", "...", text) for text in parameters]
    line = f"({', '.join(parameters)})"
    return line if len(line) <= 80 else "(\n    " + ",\n    ".join(parameters) + ",\n)"


def format_docstring(target: Any) -> list[str]:
    """Return a docstring: paragraphs as they are, and lists in columns as blocks."""
    paragraphs = (inspect.getdoc(target) or "").split("\n\n")
    parts = [code_block(text) if re.search(r"\S {2,}\S", text) else [text, ""] for text in paragraphs if text]
    return [line for part in parts for line in part]


def code_block(text: str) -> list[str]:
    """Return text as a fenced block, which shows it as it is written."""
    return ["```text", *text.splitlines(), "```", ""] if text else []


def format_names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    pages = {
        "configuration.md": format_configuration("en"),
        "configuration.ko.md": format_configuration("ko"),
        "api.md": format_api(),
    }
    stale = [name for name, text in pages.items() if read_page(name) != text]
    for name in stale:
        if not check:
            (ROOT / "docs" / name).write_text(pages[name], encoding="utf-8")
        print(f"docs/{name}: {'not current: run make reference' if check else 'written'}")
    return int(check and bool(stale))


def read_page(name: str) -> str:
    path = ROOT / "docs" / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
