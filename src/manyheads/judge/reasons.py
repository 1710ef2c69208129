"""Why a pair has a low score, in the words of reports."""

from collections.abc import Sequence

from manyheads.judge.combination import FLUENCY
from manyheads.judge.features import NAMES
from manyheads.judge.training import Judgment

GOOD_SCORE = 0.5  # below it a pair is more likely wrong than right, and has a reason
WORDS = {
    "replaced": "misaligned",
    "target cut": "missing text",
    "source cut": "added text",
    "extended": "added text",
    "copied": "untranslated copy",
    "foreign": "wrong language",
    "garbled": "garbled",
}
COPY = NAMES.index("copy")
LENGTHS = [NAMES.index(name) for name in ("short_source", "short_target")]
FORMS = [NAMES.index(name) for name in (*FLUENCY, "repetition", "encoding")]
SURE = 3.0  # badness of such features that is the reason by itself
NO_LANGUAGE = "zxx"  # what is no text of any language


def name_reasons(judgment: Judgment, types: Sequence[str]) -> list[str]:
    """Return the reason of each pair with a low score, and "" for the others."""
    best = judgment.odds.argmax(1).tolist()
    return [
        "" if score >= GOOD_SCORE else name_reason(judgment, n, types[best[n]])
        for n, score in enumerate(judgment.scores.tolist())
    ]


def name_reason(judgment: Judgment, number: int, likeliest: str) -> str:
    """Return the reason of a pair. Copies and other languages are certain where they are found at all."""
    reason, badness = WORDS[likeliest], judgment.badness[number]
    if badness[COPY] > SURE:
        return WORDS["copied"]
    language = judgment.languages[1][number] or judgment.languages[0][number]
    if language == NO_LANGUAGE:
        return "garbled"
    if language and reason in ("misaligned", "garbled", "wrong language"):
        return f"wrong language ({language})"
    if reason == "garbled" and badness[FORMS].max() < SURE:  # words in a row that are no translation
        return "misaligned"
    is_length = reason in ("missing text", "added text") and badness[LENGTHS].max() > SURE
    return "length" if is_length else reason
