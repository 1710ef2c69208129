"""Group the tokens of a sentence into words."""

import re
import unicodedata
from collections.abc import Sequence

SPECIAL_TOKENS = BEGIN, END = "<s>", "</s>"
WORD_START = "\u2581"
WORD_INTERNAL_PUNCTUATION = "'’-"
SPECIAL_LABELS = {BEGIN: "[start]", END: "[end]"}  # as on the pages: assets/token_text.js
BYTE_TOKEN = r"<0x[0-9A-F]{2}>"


def get_word_ids(tokens: Sequence[str]) -> list[int]:
    """Return the index of the word of each token.

    A word begins at a space. Punctuation is a word of its own, as in the figures of the paper; an apostrophe
    or a hyphen is part of its word.
    """
    word_ids: list[int] = []
    for index, token in enumerate(tokens):
        if index == 0:
            word_ids.append(0)
            continue
        begins = token.startswith(WORD_START) or classify_token(token) != classify_token(tokens[index - 1])
        word_ids.append(word_ids[-1] + begins)
    return word_ids


def classify_token(token: str) -> str:
    """Return "punctuation", "word", or a special token itself."""
    if token in SPECIAL_TOKENS:
        return token
    piece = token.removeprefix(WORD_START)
    is_mark = piece and not re.fullmatch(BYTE_TOKEN, piece) and all(map(is_punctuation, piece))
    return "punctuation" if is_mark else "word"


def is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] == "P" and character not in WORD_INTERNAL_PUNCTUATION


def tokens_to_words(tokens: Sequence[str]) -> list[str]:
    """Join tokens to words. A space alone becomes an open box."""
    word_ids = get_word_ids(tokens)
    words = [""] * (word_ids[-1] + 1) if word_ids else []
    for word_id, token in zip(word_ids, tokens, strict=True):
        words[word_id] += token
    return [decode_word(word) or "\u2423" for word in words]


def readable_word(word: str) -> str:
    """Return the label of a special token, and other words as they are."""
    return SPECIAL_LABELS.get(word, word)


def is_word(word: str) -> bool:
    return word not in SPECIAL_TOKENS and any(map(str.isalnum, word))


def decode_word(word: str) -> str:
    """Remove the marks of spaces, and decode byte tokens."""
    decoded = re.sub(
        rf"(?:{BYTE_TOKEN})+",
        lambda match: bytes.fromhex(re.sub(r"<0x|>", "", match.group())).decode("utf-8", "replace"),
        word,
    )
    return decoded.replace(WORD_START, " ").strip()
