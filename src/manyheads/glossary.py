"""Terms that must or must not come out, as constraints on token ids."""

import re
from collections.abc import Sequence
from functools import cached_property

from manyheads.config import EOS_ID
from manyheads.errors import RequestError
from manyheads.text.subwords import SubwordPair

Phrases = tuple[tuple[int, ...], ...]


class TermConstraints:
    """A prefix, a glossary and forbidden words, as token ids."""

    def __init__(
        self, subwords: SubwordPair, prefix: str, glossary: dict[str, str], forbid: Sequence[str]
    ) -> None:
        if isinstance(forbid, str):
            raise RequestError(f"forbid is the text {forbid!r}, but must be a list of words")
        self.subwords = subwords.target
        self.prefix = tuple(subwords.target.encode(prefix))
        self.forbidden_phrases = tuple(tuple(subwords.target.encode(word)) for word in forbid)
        longest_first = sorted(glossary.items(), key=lambda entry: -len(entry[0]))
        self.glossary = [
            (compile_term(source), tuple(subwords.target.encode(target)), is_hangul(target.strip()[-1:]))
            for source, target in longest_first
        ]
        if not all(self.forbidden_phrases) or not all(ids for _, ids, _ in self.glossary):
            raise RequestError("a glossary and words to forbid must not hold empty entries")

    def find_required(self, text: str) -> tuple[Phrases, Phrases]:
        """Return the phrases required by the terms in a text, and which of them must end a word.

        A phrase is required once, however often its term occurs. A term inside a longer one that has its own
        entry does not count.
        """
        required: dict[tuple[int, ...], bool] = {}
        for term, ids, may_continue in self.glossary:
            if term.search(text):
                required.setdefault(ids, may_continue)
            text = term.sub(lambda match: " " * len(match.group()), text)
        return tuple(required), tuple(ids for ids, may_continue in required.items() if not may_continue)

    def find_terms(self, text: str) -> list[tuple[int, int]]:
        """Return where terms of the glossary start and end."""
        return [match.span() for term, _, _ in self.glossary for match in term.finditer(text)]

    @cached_property
    def word_start_ids(self) -> frozenset[int]:
        """The ids of pieces that start a word, or are no part of one."""
        return frozenset(
            token
            for token, piece in enumerate(self.subwords.pieces)
            if token > EOS_ID and not piece[:1].isalnum() and piece[:1] != "<"
        )


def is_hangul(character: str) -> bool:
    return "가" <= character <= "힣"


def compile_term(term: str) -> "re.Pattern[str]":
    """Return a pattern of the term as a whole word, in any case. After Hangul, particles may follow."""
    term = term.strip()
    if not term:
        raise RequestError("a glossary must not hold empty entries")
    after = "" if is_hangul(term[-1]) or not term[-1].isalnum() else r"(?!\w)"
    before = r"(?<!\w)" if term[0].isalnum() else ""
    return re.compile(before + re.escape(term) + after, re.IGNORECASE)
