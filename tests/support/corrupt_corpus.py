"""Write corpora that are invalid in every known way, with the reason for which each line must be dropped."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from manyheads.text import invalid

SOURCE, TARGET = 0, 1
EXTRA_LINES = 3  # of the second file, without a counterpart


@dataclass
class CorruptCorpus:
    """A corrupt corpus: why lines must be dropped, and the valid pairs, by line number."""

    files: tuple[str, str]
    drop_reasons: dict[int, str] = field(default_factory=dict)
    valid_pairs: dict[int, tuple[str, str]] = field(default_factory=dict)


def insert_bytes(text: bytes, insert: bytes, rng: random.Random) -> bytes:
    """Insert bytes in the middle of a text, at the start of a character."""
    position = 1 + int(rng.random() * (len(text) - 1))
    while position < len(text) and 0x80 <= text[position] < 0xC0:
        position -= 1
    return text[:position] + insert + text[position:]


Corruption = Callable[[bytes, random.Random], bytes]


def make_inserter(*inserts: bytes) -> Corruption:
    return lambda text, rng: insert_bytes(text, inserts[int(rng.random() * len(inserts))], rng)


CORRUPTIONS: list[tuple[str, Corruption]] = [
    (
        invalid.INVALID_UTF8,
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
    ("empty", lambda text, rng: (b"", b"   ", b"\t\xc2\xa0")[int(rng.random() * 3)]),
    (invalid.LINE_TOO_LONG, lambda text, rng: text * (1 + 1_100_000 // len(text))),
]


def write_corrupt_text(
    folder: Path, lines: int, corrupt_fraction: float, seed: int, max_long_lines: int = 20
) -> CorruptCorpus:
    """Write two files, the second a few lines longer; at most `max_long_lines` lines exceed a megabyte."""
    rng = random.Random(seed)
    corrupt = CorruptCorpus((f"{folder}/fuzzed.en", f"{folder}/fuzzed.ko"))
    with open(corrupt.files[0], "wb") as source, open(corrupt.files[1], "wb") as target:
        for line in range(1, lines + 1):
            pair = [f"This is sentence {line} of {lines}.", f"이것은 문장 {lines} 개 중 {line} 번이다."]
            raw = [text.encode() for text in pair]
            if rng.random() < corrupt_fraction:
                corrupt.drop_reasons[line] = corrupt_pair(raw, rng, max_long_lines > 0)
                max_long_lines -= corrupt.drop_reasons[line] == invalid.LINE_TOO_LONG
            else:
                corrupt.valid_pairs[line] = (pair[0], pair[1])
            source.write(raw[SOURCE] + b"\n")
            target.write(raw[TARGET] + b"\n")
        target.write("남은 줄\n".encode() * EXTRA_LINES)
    corrupt.drop_reasons |= dict.fromkeys(range(lines + 1, lines + 1 + EXTRA_LINES), invalid.NO_COUNTERPART)
    return corrupt


def write_corrupt_tmx(folder: Path, units: int, seed: int) -> CorruptCorpus:
    """Write a translation memory, a unit per line, a tenth of them invalid, that ends inside a tag."""
    rng = random.Random(seed)
    corrupt = CorruptCorpus((f"{folder}/fuzzed.tmx", ""))
    with open(corrupt.files[0], "w", encoding="utf-8") as file:
        file.write("<tmx><body>\n")
        for line in range(2, units + 2):
            texts = {"en": f"Unit {line} of the memory.", "ko": f"기억의 단위 {line} 번."}
            if rng.random() < 0.1:
                corrupt.drop_reasons[line] = corrupt_unit(texts, rng)
            else:
                corrupt.valid_pairs[line] = (texts["en"], texts["ko"])
            sides = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in texts.items())
            file.write(f"<tu>{sides}</tu>\n")
        file.write('<tu><tuv xml:lang="en"><seg>trunc')
    corrupt.drop_reasons[units + 2] = invalid.BROKEN_FILE
    return corrupt


def corrupt_unit(texts: dict[str, str], rng: random.Random) -> str:
    choice = int(rng.random() * 4)
    if choice == 0:
        texts["en"] = ""
        return invalid.EMPTY_SOURCE
    if choice == 1:
        texts["fr"] = texts.pop("ko")
        return invalid.NO_LANGUAGE
    if choice == 2:
        texts["ko"] += "&#x2028;x"
        return "line separator inside a line"
    texts["ko"] += "\ufeff"
    return "byte order mark inside a line"


def corrupt_pair(raw: list[bytes], rng: random.Random, may_be_long: bool) -> str:
    """Corrupt one side of a pair and return the reason for which it must be dropped."""
    corruptions = CORRUPTIONS if may_be_long else CORRUPTIONS[:-1]
    reason, corruption = corruptions[int(rng.random() * len(corruptions))]
    side = int(rng.random() * 2)
    raw[side] = corruption(raw[side], rng)
    return (invalid.EMPTY_SOURCE, invalid.EMPTY_TARGET)[side] if reason == "empty" else reason
