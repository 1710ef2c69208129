"""Noise as people type it: wrong case, typos, missing marks, spacing, other forms of characters, no accents.

Each function takes a text and a generator, and returns the changed text, or the text itself if there is
nothing to change. Training (data/augmentation.py) and the stress tests use the same functions. Words that
must survive verbatim (numbers, URLs, placeholders, codes) are never changed.
"""

import random
import re
import unicodedata
from collections.abc import Callable
from itertools import pairwise

TYPO_RATE = 0.1  # share of the words that get a typo
MAX_CAPITALS = 3  # words in capitals within a sentence

# A character that makes the word around it a number, URL, e-mail address, placeholder, tag, code or symbol.
VERBATIM = re.compile(r"[\d@{}<>%_\\/=#$&|~^*+\[\]⟦⟧]|www\.")
FIRST_LETTER = re.compile(r"(?<![\w'’])[^\W\d_]")
MARK = re.compile(
    r"(?<=[^\s.…])[.,;:!?…。、！？，：；]+(?=[\"'”’»)]*(?:\s|$))"
)  # not within a word or a number
FINAL_MARK = re.compile(r"(?<=\S)[.!?…。！？]+(?=[\"'”’»)]*$)")
INNER_SPACE = re.compile(r"(?<=\S) (?=\S)")
HANGUL = re.compile(r"[가-힣]")
COMBINING_MARKS = re.compile(r"[\u0300-\u036f]+")  # of Latin, Greek and Cyrillic

LATIN_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
HANGUL_ROWS = ("ㅂㅈㄷㄱㅅ", "ㅁㄴㅇㄹㅎ", "ㅋㅌㅊㅍ", "ㅛㅕㅑㅐㅔ", "ㅗㅓㅏㅣ", "ㅠㅜㅡ")
INITIALS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
FINALS = 28  # possible finals of a syllable, none included
FIRST_SYLLABLE, LAST_SYLLABLE = ord("가"), ord("힣")


def find_neighbor_keys(rows: tuple[str, ...]) -> dict[str, str]:
    """Return the keys left and right of each key."""
    neighbors: dict[str, str] = {}
    for row in rows:
        for left, right in pairwise(row):
            neighbors[left] = neighbors.get(left, "") + right
            neighbors[right] = neighbors.get(right, "") + left
    return neighbors


NEIGHBOR_KEYS = find_neighbor_keys(LATIN_ROWS + tuple(row.upper() for row in LATIN_ROWS) + HANGUL_ROWS)


def is_verbatim(word: str) -> bool:
    """Return whether a word must survive as it is."""
    return VERBATIM.search(word) is not None


def change_words(text: str, change: Callable[[str], str]) -> str:
    """Apply a change that treats words independently, except to those that must survive."""
    if not is_verbatim(text):
        return change(text)
    return " ".join(word if is_verbatim(word) else change(word) for word in text.split(" "))


# ---- case


def lower(text: str, rng: random.Random) -> str:
    """Write everything in lower case."""
    return change_words(text, str.lower)


def title(text: str, rng: random.Random) -> str:
    """Write Every Word With A Capital."""
    return change_words(text, lambda words: FIRST_LETTER.sub(lambda letter: letter[0].upper(), words))


def capitals(text: str, rng: random.Random) -> str:
    """Write a span of one to three words in CAPITALS, never the whole text."""
    words = text.split(" ")
    size = min(rng.randint(1, MAX_CAPITALS), len(words) - 1)
    start = rng.randint(0, len(words) - size)
    for index in range(start, start + size):
        if not is_verbatim(words[index]):
            words[index] = words[index].upper()
    return " ".join(words)


# ---- typos


def typos(text: str, rng: random.Random) -> str:
    """Mistype about a tenth of the words, and at least one: letters swapped, dropped, doubled, neighbors."""
    words = text.split(" ")
    remaining = max(1, round(TYPO_RATE * len(words)))
    mistyped: set[int] = set()
    for _ in range(4 * len(words)):  # attempts, as some words cannot be changed
        index = rng.randrange(len(words))
        changed = words[index] if index in mistyped else mistype(words[index], rng)
        if changed != words[index]:
            words[index] = changed
            mistyped.add(index)
            if len(mistyped) == remaining:
                break
    return " ".join(words)


def mistype(word: str, rng: random.Random) -> str:
    """Change a letter of a word, or two; words of one letter and those that must survive stay."""
    letters = [index for index, character in enumerate(word) if character.isalpha()]
    if len(letters) < 2 or is_verbatim(word):
        return word
    index = rng.choice(letters)
    before, letter, after = word[:index], word[index], word[index + 1 :]
    action = rng.randrange(4)
    if action == 0 and after[:1].isalpha() and after[0] != letter:
        return before + after[0] + letter + after[1:]
    if action == 1 and len(letters) > 2:
        return before + after
    if action == 2:
        return before + letter + letter + after
    return before + press_neighbor_key(letter, rng) + after


def press_neighbor_key(letter: str, rng: random.Random) -> str:
    """Replace a letter by one beside it on the keyboard: QWERTY, or the Korean layout of two sets."""
    if FIRST_SYLLABLE <= ord(letter) <= LAST_SYLLABLE:
        return press_neighbor_jamo(letter, rng)
    if letter not in NEIGHBOR_KEYS:
        return letter + letter
    return rng.choice(NEIGHBOR_KEYS[letter])


def press_neighbor_jamo(syllable: str, rng: random.Random) -> str:
    """Replace the initial or the vowel of a syllable by one beside it on the keyboard."""
    number, final = divmod(ord(syllable) - FIRST_SYLLABLE, FINALS)
    initial, vowel = divmod(number, len(VOWELS))
    if rng.random() < 0.5 and INITIALS[initial] in NEIGHBOR_KEYS:
        initial = INITIALS.index(rng.choice(NEIGHBOR_KEYS[INITIALS[initial]]))
    elif VOWELS[vowel] in NEIGHBOR_KEYS:
        vowel = VOWELS.index(rng.choice(NEIGHBOR_KEYS[VOWELS[vowel]]))
    return chr(FIRST_SYLLABLE + (initial * len(VOWELS) + vowel) * FINALS + final)


# ---- marks and spaces


def punctuation(text: str, rng: random.Random) -> str:
    """Drop the final mark, a mark or all marks, or double one."""
    action = rng.random()
    if action < 0.4:
        return FINAL_MARK.sub("", text)
    if action < 0.6:
        return MARK.sub("", text)
    marks = list(MARK.finditer(text))
    if not marks:
        return text
    mark = rng.choice(marks)
    replacement = "" if action < 0.8 else mark[0] + mark[0][-1]
    return text[: mark.start()] + replacement + text[mark.end() :]


def spacing(text: str, rng: random.Random) -> str:
    """Drop, double or insert spaces. Korean text loses half of its spaces, or all, or gets new ones."""
    is_korean = HANGUL.search(text) is not None
    action = rng.random()
    if action < 0.6:
        rate = rng.choice((0.5, 1.0)) if is_korean else 0.0
        return drop_spaces(text, rate, rng)
    if action < 0.8:
        return INNER_SPACE.sub("  ", text)
    return insert_space(text, rng)


def drop_spaces(text: str, rate: float, rng: random.Random) -> str:
    """Drop each space with this probability, and at least one; words that must survive keep theirs."""
    words = text.split(" ")
    droppable = [
        index
        for index, (left, right) in enumerate(pairwise(words))
        if not (is_verbatim(left) or is_verbatim(right))
    ]
    if not droppable:
        return text
    dropped = {index for index in droppable if rng.random() < rate} if rate else set()
    dropped.add(rng.choice(droppable))
    return "".join(
        word + ("" if index in dropped or index == len(words) - 1 else " ")
        for index, word in enumerate(words)
    )


def insert_space(text: str, rng: random.Random) -> str:
    """Insert a space into a word, or before a mark."""
    words = text.split(" ")
    divisible = [index for index, word in enumerate(words) if len(word) > 1 and not is_verbatim(word)]
    if not divisible:
        return text
    index = rng.choice(divisible)
    position = rng.randint(1, len(words[index]) - 1)
    words[index] = words[index][:position] + " " + words[index][position:]
    return " ".join(words)


# ---- other forms of characters

QUOTE_STYLES = ("“”", "„“", "«»", '""', "''", "‘’")
QUOTED = re.compile(r"(?<!\w)([\"“„«]|'')(\S(?:[^\"“”„«»]*\S)?)([\"”“»]|'')(?!\w)")
APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
DASH = re.compile(r"(?<= )(?:--?|[–—])(?= )")  # between spaces
ELLIPSIS = re.compile(r"\.\.\.|…")
FULL_WIDTH = {code: code + 0xFEE0 for code in range(ord("!"), ord("~") + 1)}
HALF_WIDTH = {wide: code for code, wide in FULL_WIDTH.items()}


def variants(text: str, rng: random.Random) -> str:
    """Change the form of quotes, apostrophes, dashes or ellipses, of a word or its marks (full width)."""
    changes = [change_quotes, change_apostrophes, change_dashes, change_ellipses, change_width, change_spaces]
    rng.shuffle(changes)
    return next((changed for change in changes if (changed := change(text, rng)) != text), text)


def change_quotes(text: str, rng: random.Random) -> str:
    style = rng.choice(QUOTE_STYLES)
    return QUOTED.sub(lambda quoted: style[0] + quoted[2] + style[1], text)


def change_apostrophes(text: str, rng: random.Random) -> str:
    return APOSTROPHE.sub(lambda mark: "’" if mark[0] == "'" else "'", text)


def change_dashes(text: str, rng: random.Random) -> str:
    return DASH.sub(rng.choice(("-", "–", "—", "--")), text)


def change_ellipses(text: str, rng: random.Random) -> str:
    return ELLIPSIS.sub(lambda dots: "..." if dots[0] == "…" else "…", text)


def change_width(text: str, rng: random.Random) -> str:
    """Write the marks, or a word, in full width; text in full width becomes half width."""
    narrow = text.translate(HALF_WIDTH)
    if narrow != text:
        return narrow
    if rng.random() < 0.5:
        return MARK.sub(lambda marks: marks[0].translate(FULL_WIDTH), text)
    words = text.split(" ")
    index = rng.randrange(len(words))
    if not is_verbatim(words[index]):
        words[index] = words[index].translate(FULL_WIDTH)
    return " ".join(words)


def change_spaces(text: str, rng: random.Random) -> str:
    """Replace a space by one that does not break, or by an ideographic one."""
    spaces = [match.start() for match in INNER_SPACE.finditer(text)]
    if not spaces:
        return text
    position = rng.choice(spaces)
    return text[:position] + rng.choice("\u00a0\u202f\u3000") + text[position + 1 :]


def accents(text: str, rng: random.Random) -> str:
    """Remove accents: letters without their combining marks. Hangul and kana stay composed."""
    return text if text.isascii() else change_words(text, remove_accents)


def remove_accents(text: str) -> str:
    return unicodedata.normalize("NFC", COMBINING_MARKS.sub("", unicodedata.normalize("NFD", text)))


# ---- for tests of a model only


def shuffle_words(text: str, rng: random.Random) -> str:
    """Put the words into a random order."""
    words = text.split(" ")
    rng.shuffle(words)
    return " ".join(words)


def swap_letters(text: str, rng: random.Random) -> str:
    """Swap two adjacent letters in about a tenth of the words: each has a typo with this probability."""
    return " ".join(swap_in_word(word, rng) if rng.random() < TYPO_RATE else word for word in text.split(" "))


def swap_in_word(word: str, rng: random.Random) -> str:
    """Swap two adjacent letters that differ; words without such letters and verbatim ones stay."""
    positions = [
        index
        for index, (left, right) in enumerate(pairwise(word))
        if left.isalpha() and right.isalpha() and left != right
    ]
    if not positions or is_verbatim(word):
        return word
    index = rng.choice(positions)
    return word[:index] + word[index + 1] + word[index] + word[index + 2 :]


def drop_punctuation(text: str, rng: random.Random) -> str:
    """Remove the marks around words, and words of marks only; those within words stay."""
    stripped = (word if is_verbatim(word) else strip_marks(word) for word in text.split(" "))
    return " ".join(word for word in stripped if word)


def strip_marks(word: str) -> str:
    """Remove punctuation from both ends of a word."""
    start, end = 0, len(word)
    while start < end and unicodedata.category(word[start])[0] == "P":
        start += 1
    while start < end and unicodedata.category(word[end - 1])[0] == "P":
        end -= 1
    return word[start:end]


Noise = Callable[[str, random.Random], str]
NOISES: dict[str, Noise] = {
    "lower": lower,
    "title": title,
    "capitals": capitals,
    "typos": typos,
    "punctuation": punctuation,
    "spacing": spacing,
    "variants": variants,
    "accents": accents,
    "shuffle_words": shuffle_words,
}
