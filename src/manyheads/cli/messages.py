"""Messages of the command line in the language of the locale: Korean where it is Korean, otherwise English.

Code raises errors in English. A message that `messages.ko.toml` has is translated where the command line
prints it; all others stay English.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

KOREAN = Path(__file__).with_name("messages.ko.toml")
LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set decides, as in POSIX


def message_language(environment: Mapping[str, str] = os.environ) -> str:
    """Return "ko" if the locale of messages is Korean, otherwise "en"."""
    locale = next((value for name in LOCALE_VARIABLES if (value := environment.get(name))), "")
    return "ko" if re.split(r"[_.@]", locale)[0].lower() == "ko" else "en"


def localize(template: str, *values: object) -> str:
    """Return a message of the demo with its values, in the language of the locale."""
    if message_language() == "ko":
        template = read_catalog()["demo"][template]
    return template.format(*values)


def localize_error(message: str) -> str:
    """Return an error message in the language of the locale; one that has no translation as it is."""
    if message_language() == "ko":
        for pattern, korean in error_patterns():
            if match := pattern.fullmatch(message):
                return korean.format(*match.groups())
    return message


@cache
def read_catalog() -> dict[str, dict[str, str]]:
    """Return the Korean texts by the English ones, of the demo and of errors."""
    return tomllib.loads(KOREAN.read_text(encoding="utf-8"))


@cache
def error_patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return the errors as patterns, those with the most fixed text first: the most specific one applies."""
    errors = read_catalog()["errors"]
    ordered = sorted(errors, key=lambda english: -len(english.replace("{}", "")))
    return [
        (re.compile("(.*?)".join(map(re.escape, english.split("{}"))), re.DOTALL), errors[english])
        for english in ordered
    ]
