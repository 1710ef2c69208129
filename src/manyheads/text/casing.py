"""Sentences in capitals, which models have rarely seen: they are translated in lower case.

"I GO HOME."  ->  "I go home."  ->  "Ich gehe nach Hause."  ->  "ICH GEHE NACH HAUSE."
"""

import re

WORD = re.compile(r"[^\W\d_]{2,}")
MIN_LONGEST = 4  # letters of the longest of several words: "EU USA" are acronyms
MIN_SINGLE = 6  # letters of a word that is alone: "NATO" is one
ENGLISH_I = re.compile(r"(?<!\w)i(?=\W|$)")


def is_all_capitals(text: str) -> bool:
    """Return whether all letters that have case are capitals, and they are words rather than acronyms."""
    if not text.isupper():
        return False
    lengths = [len(word) for word in WORD.findall(text) if word.isupper()]
    return bool(lengths) and max(lengths) >= (MIN_SINGLE if len(lengths) == 1 else MIN_LONGEST)


def to_sentence_case(text: str, language: str) -> str:
    """Return a text of capitals in lower case, but for its first letter and the English "I".

    A capital whose lower case is not upper-cased to it again stays.
    """
    lower = text.lower()
    if to_capitals(lower) != text:
        lower = "".join(
            small if to_capitals(small := character.lower()) == character else character for character in text
        )
    if language.partition("-")[0].lower() == "en":
        lower = ENGLISH_I.sub("I", lower)
    first = next((index for index, character in enumerate(lower) if character.isalpha()), len(lower))
    return lower[:first] + text[first : first + 1] + lower[first + 1 :]


def to_capitals(text: str) -> str:
    """Return a text in capitals. The capital of ß is ẞ, which lower-cases back to it."""
    return text.replace("ß", "ẞ").upper()
