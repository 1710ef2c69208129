"""A corpus that is bad in every way that we know, line by line, with what must become of each."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from manyheads.text import corpus

SOURCE, TARGET = 0, 1
EXTRA_LINES = 3  # lines that one file has more


@dataclass
class CorruptCorpus:
    """What a fuzzed corpus holds: the reasons of its bad lines, and its good pairs, by line."""

    files: tuple[str, str]
    drop_reasons: dict[int, str] = field(default_factory=dict)
    valid_pairs: dict[int, tuple[str, str]] = field(default_factory=dict)


def insert_bytes(text: bytes, insert: bytes, chance: random.Random) -> bytes:
    """Something put in the middle, at a character's start."""
    place = 1 + int(chance.random() * (len(text) - 1))
    while place < len(text) and 0x80 <= text[place] < 0xC0:
        place -= 1
    return text[:place] + insert + text[place:]


Corruption = Callable[[bytes, random.Random], bytes]


def make_inserter(*inserts: bytes) -> Corruption:
    return lambda text, chance: insert_bytes(text, inserts[int(chance.random() * len(inserts))], chance)


CORRUPTIONS: list[tuple[str, Corruption]] = [
    (
        corpus.INVALID_UTF8,
        make_inserter(b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xe2\x82", b"\xf5\x80\x80\x80"),
    ),
    ("NUL", make_inserter(b"\x00")),
    ("byte order mark inside a line", make_inserter(b"\xef\xbb\xbf")),
    ("carriage return inside a line", make_inserter(b"\r", b"\rx\r")),
    ("line separator inside a line", make_inserter(b"\xe2\x80\xa8", b"\xe2\x80\xa9", b"\xc2\x85")),
    (
        "control character",
        make_inserter(b"\x01", b"\x08", b"\x0b", b"\x0c", b"\x1b[31m", b"\x1e", b"\x7f", b"\xc2\x9f"),
    ),
    ("replacement character", make_inserter(b"\xef\xbf\xbd")),
    ("empty", lambda text, chance: (b"", b"   ", b"\t\xc2\xa0")[int(chance.random() * 3)]),
    (corpus.TOO_LONG, lambda text, chance: text * (1 + 1_100_000 // len(text))),
]


def write_corrupt_text(
    folder: Path, lines: int, corrupt_fraction: float, seed: int, max_long_lines: int = 20
) -> CorruptCorpus:
    """Two files, the second some lines longer; at most `longest` lines are of a megabyte."""
    chance = random.Random(seed)
    made = CorruptCorpus((f"{folder}/fuzzed.en", f"{folder}/fuzzed.ko"))
    with open(made.files[0], "wb") as source, open(made.files[1], "wb") as target:
        for line in range(1, lines + 1):
            pair = [f"This is sentence {line} of {lines}.", f"이것은 문장 {lines} 개 중 {line} 번이다."]
            raw = [text.encode() for text in pair]
            if chance.random() < corrupt_fraction:
                made.drop_reasons[line] = corrupt_pair(raw, chance, max_long_lines > 0)
                max_long_lines -= made.drop_reasons[line] == corpus.TOO_LONG
            else:
                made.valid_pairs[line] = (pair[0], pair[1])
            source.write(raw[SOURCE] + b"\n")
            target.write(raw[TARGET] + b"\n")
        target.write("남은 줄\n".encode() * EXTRA_LINES)
    made.drop_reasons |= dict.fromkeys(range(lines + 1, lines + 1 + EXTRA_LINES), corpus.NO_COUNTERPART)
    return made


def write_corrupt_tmx(folder: Path, units: int, seed: int) -> CorruptCorpus:
    """A translation memory, a unit a line, some of them bad, whose end is torn off in the middle of a tag."""
    chance = random.Random(seed)
    made = CorruptCorpus((f"{folder}/fuzzed.tmx", ""))
    with open(made.files[0], "w", encoding="utf-8") as file:
        file.write("<tmx><body>\n")
        for line in range(2, units + 2):
            texts = {"en": f"Unit {line} of the memory.", "ko": f"기억의 단위 {line} 번."}
            if chance.random() < 0.1:
                made.drop_reasons[line] = corrupt_unit(texts, chance)
            else:
                made.valid_pairs[line] = (texts["en"], texts["ko"])
            sides = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in texts.items())
            file.write(f"<tu>{sides}</tu>\n")
        file.write('<tu><tuv xml:lang="en"><seg>torn')
    made.drop_reasons[units + 2] = corpus.BROKEN_FILE
    return made


def corrupt_unit(texts: dict[str, str], chance: random.Random) -> str:
    way = int(chance.random() * 4)
    if way == 0:
        texts["en"] = ""
        return corpus.EMPTY_SOURCE
    if way == 1:
        texts["fr"] = texts.pop("ko")
        return corpus.NO_LANGUAGE
    if way == 2:
        texts["ko"] += "&#x2028;x"
        return "line separator inside a line"
    texts["ko"] += "\ufeff"
    return "byte order mark inside a line"


def corrupt_pair(raw: list[bytes], chance: random.Random, may_be_long: bool) -> str:
    """Damages a side of a pair; the reason that it must be dropped for."""
    ways = CORRUPTIONS if may_be_long else CORRUPTIONS[:-1]
    reason, spoiler = ways[int(chance.random() * len(ways))]
    side = int(chance.random() * 2)
    raw[side] = spoiler(raw[side], chance)
    return (corpus.EMPTY_SOURCE, corpus.EMPTY_TARGET)[side] if reason == "empty" else reason
