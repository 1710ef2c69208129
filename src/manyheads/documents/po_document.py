"""Messages of gettext (.po, .pot): what is not translated yet is filled in, and nothing else changes.

Messages with a translation, fuzzy and obsolete ones stay as they are, to the byte. Of a plural, the first
form is the translation of the singular and the others are that of the plural, if the language has several.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.errors import DataError, install_command
from manyheads.text.segmentation import has_words
from manyheads.translation import Translation

STRING = r'"(?P<string>(?:[^"\\]|\\.)*+)"\s*'
KEYWORD_LINE = re.compile(rf"\s*(?P<keyword>msg(?:ctxt|id|id_plural|str)(?:\[\d+\])?)\s*{STRING}")
CONTINUED_LINE = re.compile(rf"\s*{STRING}")
PLURAL_FORMS = re.compile(r"nplurals\s*=\s*(?P<number>\d{1,3})")
MAX_PLURAL_FORMS = 6
CHARSET = re.compile(r"charset=([-\w]+)", re.IGNORECASE)


@dataclass
class Message:
    """The texts of a message by their keywords, and where the translations stand."""

    texts: dict[str, str] = field(default_factory=dict)
    lines: dict[str, tuple[int, int]] = field(default_factory=dict)  # first and last, by keyword
    is_fuzzy: bool = False

    @property
    def is_complete(self) -> bool:
        return any(keyword.startswith("msgstr") for keyword in self.texts)

    @property
    def is_untranslated(self) -> bool:
        targets = [text for keyword, text in self.texts.items() if keyword.startswith("msgstr")]
        return has_words(self.texts.get("msgid", "")) and not self.is_fuzzy and not any(targets)


class PoDocument:
    def __init__(self, text: str, name: str = "messages") -> None:
        self.lines = text.splitlines(keepends=True)
        messages = list(read_messages(self.lines, name))
        header = next((own.texts.get("msgstr", "") for own in messages if own.texts.get("msgid") == ""), "")
        check_charset(header, name)
        forms = PLURAL_FORMS.search(header)
        self.num_forms = min(int(forms["number"]), MAX_PLURAL_FORMS) if forms else None
        self.untranslated = [message for message in messages if message.is_untranslated]

    @property
    def texts(self) -> list[str]:
        return [
            message.texts[keyword]
            for message in self.untranslated
            for keyword in ("msgid", "msgid_plural")
            if keyword in message.texts
        ]

    def render(self, translations: Sequence[Translation], policy: ConfidencePolicy | None = None) -> str:
        policy, remaining = policy or ConfidencePolicy(), iter(translations)
        lines = list(self.lines)
        for message in self.untranslated:
            singular = policy.choose_text(next(remaining))
            plural = policy.choose_text(next(remaining)) if "msgid_plural" in message.texts else None
            targets = [keyword for keyword in message.lines if keyword.startswith("msgstr")]
            last = message.lines[targets[-1]][1]
            num_forms = self.num_forms or len(targets)
            written = {"msgstr": singular}
            if plural is not None:
                forms = [singular, *[plural] * (num_forms - 1)] if num_forms > 1 else [plural]
                written = {f"msgstr[{number}]": form for number, form in enumerate(forms)}
            end = "\n" if lines[last].endswith("\n") else ""
            for keyword in targets:
                first, final = message.lines[keyword]
                lines[first : final + 1] = [""] * (final + 1 - first)
            own = [f"{keyword} {quote(text, message.texts['msgid'])}" for keyword, text in written.items()]
            lines[last] = "\n".join(own) + end
        return "".join(lines)


def read_messages(lines: Sequence[str], name: str) -> Iterator[Message]:
    """Yield the messages. Obsolete ones are comments."""
    message, keyword = Message(), ""
    for number, line in enumerate(lines):
        if not line.strip() or line.lstrip().startswith("#"):
            if message.is_complete:
                yield message
                message, keyword = Message(), ""
            if re.match(r"\s*#,.*\bfuzzy\b", line):
                message.is_fuzzy = True
            continue
        match = KEYWORD_LINE.fullmatch(line)
        if match:
            keyword = match["keyword"]
            if message.is_complete and not keyword.startswith("msgstr"):
                yield message
                message = Message()
            message.texts[keyword], message.lines[keyword] = unquote(match["string"]), (number, number)
            continue
        match = CONTINUED_LINE.fullmatch(line)
        if match is None or not keyword:
            raise DataError(f"{name}:{number + 1}: not a line of a PO file: {line.strip()[:100]}")
        message.texts[keyword] += unquote(match["string"])
        message.lines[keyword] = message.lines[keyword][0], number
    if message.is_complete:
        yield message


def check_charset(header: str, name: str) -> None:
    charset = CHARSET.search(header)
    if charset and charset[1].upper() not in ("UTF-8", "UTF8", "ASCII", "US-ASCII", "CHARSET"):
        raise DataError(f"{name}: its charset is {charset[1]}: msgconv -t UTF-8 converts the file")


def unquote(string: str) -> str:
    return str(import_polib().unescape(string))


def quote(text: str, source: str) -> str:
    """Quote a translation. Line feeds at both ends are those of the source, as msgfmt demands."""
    lead, tail = ("\n" if part else "" for part in (source.startswith("\n"), source.endswith("\n")))
    return f'"{import_polib().escape(lead + text.strip(chr(10)) + tail)}"'


def import_polib() -> Any:
    try:
        import polib
    except ImportError:
        raise DataError(f"reading PO files needs the extra `formats`: {install_command('formats')}") from None
    return polib
