"""What a translation must contain exactly as its source does: URLs, numbers, placeholders, emoji, ...

Models that are trained for it read and write copy symbols in place of such text:

    "Open https://a.org/x (12 MB)."  ->  "Open ⟦0⟧ (⟦1⟧ MB)."

Every pattern consumes what it looks at, so that hostile text takes linear time.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from manyheads.text.clean import PLACEHOLDER

COPY_SYMBOLS = tuple(f"\u27e6{index}\u27e7" for index in range(8))  # ⟦0⟧ to ⟦7⟧

Category = Literal["symbol", "address", "placeholder", "code", "unknown", "number", "emoji"]
IMPORTANCE: tuple[Category, ...] = ("symbol", "address", "placeholder", "code", "unknown", "number", "emoji")


class Span(NamedTuple):
    """Characters of a text that are copied."""

    start: int
    end: int
    category: Category


EMOJI = r"\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001fbff"
EMOJI_MODIFIER = r"\u200d\u2640\u2642\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
# A text without any of these, and without a dot inside, has only unknown characters to copy.
TRIGGERS = rf"0-9$€£¥₩@/\\{{%<#_\u27e6\u20e3{EMOJI}"

SCHEME = r"(?:https?|ftps?|file|ssh|git)://|mailto:|www\.(?=\w)"
URL_BODY = r"(?:[!#-;=?-\[\]_a-z~]++|(?<=[/=_?&#-])[^\x00-\x7f\s\u3000-\u303f\uff00-\uffef]++)++"
CURRENCY, SPACE = "[$€£¥₩]", r"[ \u00a0\u202f]"
PERCENT = rf"{SPACE}?[%‰](?![A-Za-z0-9(])"
PATTERN = re.compile(
    r"(?P<symbol>\u27e6[0-7t=/]\u27e7)"
    rf"|(?P<url>(?<![A-Za-z0-9])(?:{SCHEME}){URL_BODY})"
    r"|(?P<email>(?<![A-Za-z0-9_.+%-])[A-Za-z0-9_.+%-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++)"
    rf"|(?P<placeholder>{PLACEHOLDER.pattern})"
    r"|(?P<tag>(?<![\w&])[@#]\w++(?:[.-]\w++)*+)"
    r"|(?P<keycap>[0-9#*]\ufe0f?\u20e3)"
    rf"|(?P<grouped>(?<![\w.,])\d{{1,3}}(?:{SPACE}\d{{3}}){{1,5}}(?!\w)(?:[.,]\d++)?(?:{PERCENT})?)"
    # A run of letters, digits and marks, which `classify_run` judges.
    rf"|(?P<run>(?<![A-Za-z])(?:[A-Z]{{0,3}}{CURRENCY}{SPACE}?(?=\d)|[A-Za-z]*+(?=[0-9_/\\:.~+-]))"
    rf"(?:[A-Za-z0-9_/\\:.~+-]|[,'’](?=\d)|[?&=#](?=\w)|(?<=\d){PERCENT}|(?<=\d){SPACE}?{CURRENCY})++)"
    rf"|(?P<emoji>[{EMOJI}][{EMOJI}{EMOJI_MODIFIER}]*+)"
)
TRIGGER = re.compile(rf"[{TRIGGERS}]|\.[A-Za-z]")
CATEGORIES: dict[str, Category] = {
    "symbol": "symbol", "url": "address", "email": "address", "placeholder": "placeholder", "tag": "code",
    "keycap": "emoji", "grouped": "number", "emoji": "emoji",
}  # fmt: skip
TRAILING_MARKS = ".,;:!?'\"’”»)]}…*_-"
BRACKETS = {")": "(", "]": "[", "}": "{"}

# By these endings a name with dots is that of a host or a file.
ENDINGS = """
    com org net edu gov mil info biz io ai app dev co tv eu uk de fr es nl ch pl ru ua jp cn kr ca au br
    pdf txt doc docx odt xls xlsx csv tsv ppt pptx rtf md rst tex json jsonl xml html htm css js ts py java
    cpp hpp rs rb php sh bat sql ini cfg conf toml yaml yml log jpg jpeg png gif svg webp bmp ico mp3 mp4 wav
    ogg avi mkv mov zip tar gz xz bz2 zst 7z rar exe dll deb rpm iso jar dat db
"""
DOTTED_NAME = re.compile(
    rf"(?:[A-Za-z0-9_-]++\.)++(?:{'|'.join(ENDINGS.split())})(?:[:/?#][!-~]*)?", re.IGNORECASE
)
PATH = re.compile(r"(?:~|\.{1,2})?[/\\]+[\w.~+-]+.*|[A-Za-z]:[\\/].*", re.ASCII)
NUMBER = re.compile(
    rf"(?:[A-Z]{{0,3}}{CURRENCY}{SPACE}?)?(?<![\w.])[-+]?\d++(?:[.,:/'’+-]\d++)*+"
    rf"(?:{SPACE}?[%‰]|{SPACE}?{CURRENCY})?"
)
# 21st, 1990s, 5pm: words with digits, which are translated.
NUMBER_WORD = re.compile(r"\d+(?:st|nd|rd|th|s|am|pm|er|ers|e|ème|te|ten|ter)", re.IGNORECASE)
DIGIT, LETTER = re.compile(r"\d"), re.compile(r"[A-Za-z]")


def find_verbatim(text: str, known: frozenset[str] | None = None) -> list[Span]:
    """Return what must survive, in order. Spans that touch each other are one.

    known  the characters that the subwords have; runs of others are spans too
    """
    spans = [span for match in find_matches(text) for span in classify(match)]
    if known is not None and not known.issuperset(text):
        spans = sorted([*spans, *find_unknown(text, known)])
    return merge_touching(spans)


def find_matches(text: str) -> "Iterator[re.Match[str]]":
    """Yield the matches of the pattern, from the words on that hold a trigger."""
    position = 0
    while trigger := TRIGGER.search(text, position):
        match = PATTERN.search(text, max(position, text.rfind(" ", position, trigger.start()) + 1))
        if match is None:
            return
        yield match
        position = match.end()  # perhaps before the trigger, which the next match may begin with


def classify(match: "re.Match[str]") -> Iterator[Span]:
    """Yield the spans of a match."""
    text, start, group = match.group(), match.start(), match.lastgroup
    if group == "run":
        yield from classify_run(text, start)
    elif group:
        end = start + len(strip_marks(text)) if group == "url" else match.end()
        yield Span(start, end, CATEGORIES[group])


def classify_run(text: str, start: int) -> Iterator[Span]:
    """Yield the path, host, file name, code or numbers of a run of letters, digits and marks."""
    run = strip_marks(text)
    if NUMBER.fullmatch(run):
        yield from find_numbers(run, start)
    elif PATH.fullmatch(run) or is_relative_path(run) or DOTTED_NAME.fullmatch(run):
        yield Span(start, start + len(run), "address")
    elif is_code(run):
        yield Span(start, start + len(run), "code")
    else:
        yield from find_numbers(run, start)


def strip_marks(text: str) -> str:
    """Return the text without marks of the sentence at its end. A bracket belongs to it if it was opened."""
    end = len(text)
    unopened = {mark: text.count(mark) - text.count(opening) for mark, opening in BRACKETS.items()}
    while end and (mark := text[end - 1]) in TRAILING_MARKS:
        if mark in BRACKETS:
            if unopened[mark] <= 0:
                break
            unopened[mark] -= 1
        end -= 1
    return text[:end]


def is_relative_path(run: str) -> bool:
    """Return whether there is a slash, and the last name has an ending, a digit or an underscore."""
    if "/" not in run and "\\" not in run:
        return False
    name = re.split(r"[/\\]", run)[-1]
    return bool(LETTER.search(run)) and ("_" in run or bool(re.fullmatch(r"[\w-]+\.\w{1,5}", name, re.ASCII)))


def is_code(run: str) -> bool:
    """Return whether digits are mixed with letters that are no words, or names joined by underscores."""
    parts = re.split(r"[-_./:\\+~,'’?&=#]", run)
    if "_" in run.strip("_") and all(parts):
        return True
    if not DIGIT.search(run) or not LETTER.search(run):
        return False
    return not any(is_word(part) for part in parts)


def is_word(part: str) -> bool:
    """Return whether a part of a run is a word, not letters of a code: year in 14-year-old."""
    if part.isalpha():
        return len(part) > 2 and not part.isupper()
    return bool(NUMBER_WORD.fullmatch(part))


def find_numbers(run: str, start: int) -> Iterator[Span]:
    """Yield the numbers of more than one digit or sign that no letter follows."""
    for match in NUMBER.finditer(run):
        text = match.group()
        if len(text) > 1 + text.startswith(("-", "+")) and not run[match.end() : match.end() + 1].isalpha():
            yield Span(start + match.start(), start + match.end(), "number")


def find_unknown(text: str, known: frozenset[str]) -> list[Span]:
    """Return the words that hold unknown characters, and runs of them where words have no spaces.

    Runs with nothing but marks and spaces between them are one.
    """
    spans: list[Span] = []
    position, length = 0, len(text)
    while position < length:
        if text[position] in known or is_invisible(text[position]) or is_mark(text[position]):
            position += 1
            continue
        start = end = position
        while end < length and (is_part_of_word(text[end]) or not (text[end] in known or is_mark(text[end]))):
            end += 1
        last_end = spans[-1].end if spans else 0
        while start > last_end and is_part_of_word(text[start - 1]):
            start -= 1
        position = end
        if set(unicodedata.normalize("NFC", text[start:end])).issubset(known):
            continue
        if spans and not any(map(str.isalnum, text[last_end:start])):
            start = spans.pop().start
        spans.append(Span(start, end, "unknown"))
    return spans


def is_mark(character: str) -> bool:
    """Return whether it is a space or punctuation, which is translated rather than copied."""
    return unicodedata.category(character)[0] in "PZ"


def is_invisible(character: str) -> bool:
    """Return whether it is a control character, or one of direction, joining or breaking."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs")


def is_part_of_word(character: str) -> bool:
    """Return whether words of the character's script have spaces between them, but no particles attached."""
    return character.isupper() or character.islower() or unicodedata.combining(character) != 0


def merge_touching(spans: Sequence[Span]) -> list[Span]:
    """Return the spans with those that touch or overlap made one, of the most important category."""
    merged: list[Span] = []
    for span in spans:
        if merged and span.start <= merged[-1].end:
            last = merged[-1]
            category = min(last.category, span.category, key=IMPORTANCE.index)
            merged[-1] = Span(last.start, max(last.end, span.end), category)
        else:
            merged.append(span)
    return merged
