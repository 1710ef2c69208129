"""Lines that users and attackers send: other languages, broken text, capitals, markup, very long lines."""

import random

SENTENCES = [
    "I go home today.", "We read a book at school.", "The teacher gives the student a letter.",
    "나는 오늘 집에 간다.", "Je ne sais pas pourquoi il est parti.", "Ich weiß es nicht genau.",
    "Привет, как дела?", "今日は学校に行きます。", "مرحبا بالعالم", "สวัสดีชาวโลก",
]  # fmt: skip
VALUES = [
    "https://example.org/a_b?x=1&y=%20#z", "user@example.co.kr", "$1,234.56", "2024-05-17", "{name}", "%s",
    "%(count)d", "<b>", "</b>", "<a href='x y'>", "ABC-1234/x", "🙂", "👩‍👩‍👧", "🇰🇷", "⟦0⟧", "⟦7⟧",
    "1234567890", "Łukasz", "🤷🏽‍♀️",
]  # fmt: skip
RANGES = [
    (0, 0x20), (0x20, 0x7F), (0x80, 0x250), (0x300, 0x370), (0x5D0, 0x700), (0x2000, 0x2070),
    (0xAC00, 0xD7A4), (0xD800, 0xE000), (0xFE00, 0xFE10), (0x1F300, 0x1F700), (0xE0000, 0xE0080),
]  # fmt: skip
MARKUP = ["<b>{}</b>", "{{{{{}}}}}", "({})", "[{}](https://a.b/c)", "**{}**", "%({})s"]


def make_hostile_lines(count: int, seed: int = 0) -> list[str]:
    """Return lines of every sort in turn. They hold no line breaks."""
    rng = random.Random(seed)
    makers = (
        make_values, make_random, make_capitals, make_repetition, make_word_salad, make_long_word, make_marks,
        make_fragment, make_nested_markup, make_mixed_languages,
    )  # fmt: skip
    lines = [makers[number % len(makers)](rng) for number in range(count)]
    return [" ".join(line.splitlines()) for line in lines]


def make_values(rng: random.Random) -> str:
    words = rng.choice(SENTENCES).split(" ")
    for _ in range(rng.choice([1, 1, 2, 3, 12])):
        words.insert(rng.randrange(len(words) + 1), rng.choice(VALUES))
    return rng.choice([" ", " ", ""]).join(words)


def make_random(rng: random.Random) -> str:
    ranges = [rng.choice(RANGES) for _ in range(3)]
    return "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randint(1, 80)))


def make_capitals(rng: random.Random) -> str:
    return make_values(rng).upper() if rng.random() < 0.5 else rng.choice(SENTENCES).title()


def make_repetition(rng: random.Random) -> str:
    return rng.choice(["ha", "가", "no ", "🙂", "1", "a1-", ". ", "<", "%s"]) * rng.randint(1, 200)


def make_word_salad(rng: random.Random) -> str:
    words = [word for sentence in SENTENCES for word in sentence.split()]
    return " ".join(rng.choice(words) for _ in range(rng.randint(1, 60)))


def make_long_word(rng: random.Random) -> str:
    alphabet = rng.choice(["abc", "가나다", "0123456789", "a.b/c@", "\u0301e"])
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(50, 1500)))


def make_marks(rng: random.Random) -> str:
    return "".join(rng.choice(" .,!?…\"'“”()[]{}<>%$#@&*-–—/\\|~^`+=_:;") for _ in range(rng.randint(1, 60)))


def make_fragment(rng: random.Random) -> str:
    return rng.choice(rng.choice(SENTENCES).split())


def make_nested_markup(rng: random.Random) -> str:
    inner = rng.choice(SENTENCES)
    for _ in range(rng.randint(1, 6)):
        inner = rng.choice(
            ["<b>{}</b>", "{{{{{}}}}}", "({})", "[{}](https://a.b/c)", "**{}**", "%({})s"]
        ).format(inner)
    return inner


def make_mixed_languages(rng: random.Random) -> str:
    return " ".join(rng.choice(SENTENCES) for _ in range(rng.randint(2, 6)))
