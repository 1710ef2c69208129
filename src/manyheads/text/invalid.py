"""Text that cannot be used: the reasons that reports count, and the checks of a single line."""

import re
import unicodedata
from typing import NamedTuple

NO_COUNTERPART = "line without counterpart"
BROKEN_FILE = "broken file"
STRUCTURAL = {NO_COUNTERPART, BROKEN_FILE}  # after these, the pairs read before may be wrong too
INVALID_UTF8 = "invalid UTF-8"
LINE_TOO_LONG = "line of a megabyte or more"
EMPTY_SOURCE, EMPTY_TARGET, BOTH_EMPTY = "empty source", "empty target", "both sides empty"
WRONG_COLUMNS, WRONG_JSON = "too few columns", "not the expected JSON"
UNFINISHED = "fuzzy or obsolete translation"
NO_LANGUAGE = "unit without the language"

MAX_LINE_BYTES = 1_000_000  # longer than any sentence, and a bound on memory
MAX_COMBINING_MARKS = 500  # in a row: no writing system has them, and normalization takes quadratic time
FORBIDDEN_CHARACTER = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffd\ufffe\uffff]")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
REPLACEMENT_CHARACTER = "\ufffd"  # what bytes that are not UTF-8 become
CHARACTER_NAMES = {
    "\x00": "NUL",
    "\r": "carriage return inside a line",
    "\x85": "line separator inside a line",
    "\u2028": "line separator inside a line",
    "\u2029": "line separator inside a line",
    "\ufeff": "byte order mark inside a line",
    REPLACEMENT_CHARACTER: "replacement character",
}


class InvalidRecord(NamedTuple):
    """A line or unit that gives no sentence pair, and the reason."""

    file: str
    line: int
    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


class InvalidTextError(Exception):
    """A line that cannot be used: a reason that reports count, and a detail."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


class UnreadableFileError(Exception):
    """A file that breaks off. What was read before the break is valid, the rest is lost."""

    def __init__(self, file: str, error: Exception, line: int | None = None) -> None:
        super().__init__(str(error) or type(error).__name__)
        self.file, self.line = file, line


def decode_line(line: bytes | None) -> str:
    """Decode and check a line. None stands for a line that is too long."""
    if line is None:
        raise InvalidTextError(LINE_TOO_LONG)
    try:
        return check_text(line.decode())
    except UnicodeDecodeError as error:
        raise InvalidTextError(INVALID_UTF8, f"byte {error.start + 1} is 0x{line[error.start]:02x}") from None


def check_text(text: str) -> str:
    """Return the text unless it holds characters that no line of text may hold."""
    if len(text) > MAX_COMBINING_MARKS and not text.isascii() and has_combining_mark_run(text):
        raise InvalidTextError("run of combining marks", f"more than {MAX_COMBINING_MARKS} in a row")
    if match := FORBIDDEN_CHARACTER.search(text):
        character = match.group()
        detail = f"U+{ord(character):04X} at character {match.start() + 1}"
        raise InvalidTextError(CHARACTER_NAMES.get(character, "control character"), detail)
    return text


def has_combining_mark_run(text: str) -> bool:
    run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > MAX_COMBINING_MARKS:
            return True
    return False


def join_lines(text: str) -> str:
    """Check the text of a record, with its line ends replaced by spaces: inside a record they are layout."""
    if len(text) >= MAX_LINE_BYTES:
        raise InvalidTextError(LINE_TOO_LONG)
    if LONE_SURROGATE.search(text):  # JSON can spell one
        escaped = re.search("[\udc80-\udcff]", text)  # a byte that could not be decoded
        byte = f"byte 0x{ord(escaped[0]) - 0xDC00:02x}: save it as UTF-8" if escaped else ""
        raise InvalidTextError(INVALID_UTF8, byte or "half of a surrogate pair")
    return check_text(text.replace("\r\n", " ").replace("\n", " ").replace("\r", " "))
