"""Inputs of the stress tests: changed sources, joined lines, single words, and sentences with tokens to copy.

Everything random is a function of (seed, name of the case, text), so that a sample of a test set gets the
same changes as the whole.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from manyheads.errors import DataError
from manyheads.text import noise
from manyheads.text.casing import to_capitals

NEIGHBORS = 3  # lines that are joined
MAX_SHORTEST = 200  # lines of the case "shortest lines"
SHORTEST_SHARE = 0.2  # of a test set, at most
LETTERS = re.compile(r"[^\W\d_]+")
MIN_WORD_LETTERS = {"ko": 2, "ja": 2, "zh": 2}  # of a single word; 3 in other languages

Change = Callable[[str, random.Random], str]


@dataclass(frozen=True)
class TestSet:
    """Sources, and one or more lists of references."""

    __test__ = False  # pytest, this is no test

    sources: list[str]
    references: list[list[str]]

    def select(self, indices: Sequence[int]) -> "TestSet":
        return TestSet(
            [self.sources[index] for index in indices],
            [[texts[index] for index in indices] for texts in self.references],
        )


@dataclass(frozen=True)
class NoiseCase:
    """A change of the sources. `ignores_case`: translations are scored without case."""

    name: str
    description: str
    change: Change
    ignores_case: bool = False


NOISE_CASES = (
    NoiseCase("capitals", "everything in capitals", lambda text, rng: to_capitals(text), ignores_case=True),
    NoiseCase("lower case", "everything in lower case", lambda text, rng: text.lower()),
    NoiseCase("title case", "every word with a capital", noise.title, ignores_case=True),
    NoiseCase("typos", "two adjacent letters swapped in 10 % of the words", noise.swap_letters),
    NoiseCase("no punctuation", "without marks around words", noise.drop_punctuation),
    NoiseCase("spacing", "spaces dropped, doubled or inserted", noise.spacing),
)


def make_random(seed: int, name: str, text: str) -> random.Random:
    return random.Random(f"{seed}\0{name}\0{text}")


def change_sources(sources: Sequence[str], name: str, change: Change, seed: int) -> list[str]:
    return [change(text, make_random(seed, name, text)) for text in sources]


def sample_test_set(
    sources: Sequence[str], references: Sequence[Sequence[str]], count: int | None, seed: int
) -> TestSet:
    """Return `count` lines, in blocks of neighbors that can be joined, in their order; by default all."""
    if not sources:
        raise DataError("no sentences to evaluate")
    whole = TestSet(list(sources), [list(texts) for texts in references])
    if count is None or count >= len(sources):
        return whole
    num_blocks = -(-count // NEIGHBORS)
    starts = range(0, len(sources) - NEIGHBORS + 1, NEIGHBORS)
    if num_blocks > len(starts):
        return whole.select(range(count))
    chosen = sorted(random.Random(seed).sample(starts, num_blocks))
    indices = [index for start in chosen for index in range(start, start + NEIGHBORS)]
    return whole.select(indices[:count])


def join_neighbors(test: TestSet) -> TestSet:
    """Join every few neighboring lines to one, and their references."""

    def join(lines: list[str]) -> list[str]:
        groups = (lines[start : start + NEIGHBORS] for start in range(0, len(lines), NEIGHBORS))
        return [" ".join(group) for group in groups if len(group) > 1]

    return TestSet(join(test.sources), [join(texts) for texts in test.references])


def find_shortest(sources: Sequence[str]) -> list[int]:
    """Return the indices of the shortest sources in words, then in characters, in their order."""
    count = min(MAX_SHORTEST, int(SHORTEST_SHARE * len(sources)))
    order = sorted(
        range(len(sources)), key=lambda index: (len(sources[index].split()), len(sources[index]), index)
    )
    return sorted(order[:count])


def sample_words(sources: Sequence[str], language: str, count: int, seed: int) -> list[str]:
    """Return distinct words of the sources, without marks and digits."""
    min_letters = MIN_WORD_LETTERS.get(language.partition("-")[0], 3)
    words = {
        word
        for text in sources
        for token in text.split()
        if (word := noise.drop_punctuation(token, random.Random(0))) and LETTERS.fullmatch(word)
        if len(word) >= min_letters
    }
    return random.Random(seed).sample(sorted(words), min(count, len(words)))


# ---- tokens to copy

EMOJI = ("😀", "😂", "🎉", "🚀", "👍🏽", "❤️", "👩‍💻", "🇰🇷", "🔥", "🙏", "☕", "🐧", "🍎", "✅", "🎵", "🏆")
PLACEHOLDERS = (
    "{name}", "{0}", "{user.id}", "{{title}}", "${path}", "%s", "%d", "%(count)d", "%1$s", "<x/>", "<br/>",
)  # fmt: skip
NAMES = ("alpha", "shop", "news", "docs", "mail", "list", "report", "index", "photo", "music", "data", "home")
DOMAINS = ("example.com", "example.org", "test.example", "www.example.net", "seoul.example.kr")


def make_url(rng: random.Random) -> str:
    path = "/".join(rng.choice(NAMES) for _ in range(rng.randint(1, 3)))
    query = f"?id={rng.randint(1, 9999)}" if rng.random() < 0.5 else ""
    return f"{rng.choice(('https://', 'http://'))}{rng.choice(DOMAINS)}/{path}{query}"


def make_email(rng: random.Random) -> str:
    return f"{rng.choice(NAMES)}.{rng.choice(NAMES)}{rng.randint(1, 99)}@{rng.choice(DOMAINS)}"


def make_number(rng: random.Random) -> str:
    category = rng.randrange(4)
    if category == 0:
        return str(rng.randint(10, 99_999))
    if category == 1:
        return f"{rng.randint(1000, 9_999_999):,}"
    if category == 2:
        return f"{rng.randint(0, 999)}.{rng.randint(1, 99):02}"
    return f"${rng.randint(1000, 99_999):,}.{rng.randint(0, 99):02}"


def make_code(rng: random.Random) -> str:
    letters = "".join(rng.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(rng.randint(2, 3)))
    return f"{letters}-{rng.randint(100, 99_999)}"


TOKEN_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "URL": make_url,
    "number": make_number,
    "placeholder": lambda rng: rng.choice(PLACEHOLDERS),
    "emoji": lambda rng: rng.choice(EMOJI),
    "e-mail address": make_email,
    "code": make_code,
}


@dataclass(frozen=True)
class CopyInput:
    """A sentence with a token that its translation must contain as it is."""

    category: str
    token: str
    text: str


def make_copy_inputs(sources: Sequence[str], count: int, seed: int) -> list[CopyInput]:
    """Set a token into each sentence, the categories in turn. Sentences are reused if there are too few."""
    usable = [text for text in sources if LETTERS.search(text)]
    categories = list(TOKEN_MAKERS)
    inputs = []
    for index in range(count if usable else 0):
        text, category = usable[index % len(usable)], categories[index % len(categories)]
        rng = make_random(seed, f"copy {index}", text)
        token = TOKEN_MAKERS[category](rng)
        inputs.append(CopyInput(category, token, insert_token(text, token, rng)))
    return inputs


def insert_token(text: str, token: str, rng: random.Random) -> str:
    """Set a token between two words, or after the only one."""
    words = text.split()
    position = rng.randint(1, len(words) - 1) if len(words) > 1 else 1
    return " ".join([*words[:position], token, *words[position:]])


def is_intact(token: str, translation: str) -> bool:
    """Return whether a translation has the token, not as a part of a longer word or number.

    A Korean particle may follow it directly, and a mark.
    """
    before = r"(?<![A-Za-z0-9])" if token[0].isalnum() else ""
    after = r"(?![A-Za-z0-9])(?![.,]\d)" if token[-1].isalnum() else ""
    return re.search(before + re.escape(token) + after, translation) is not None
