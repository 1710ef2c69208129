"""Which language each side is in: by py3langid. Without it the character models decide."""

from collections.abc import Sequence

import numpy as np

from manyheads.confidence.ragged import Floats
from manyheads.text.identification import LETTER, MIN_LETTERS, are_related, load_identifier
from manyheads.text.languages import get_base_language

MAX_EVIDENCE = 6.0  # nats against the language
MAX_CHARACTERS = 300  # of a text that are looked at


def score_language(texts: Sequence[str], language: str) -> tuple[Floats, list[str]]:
    """Return evidence of at most 0 that each text is in the language, and what else it looks like.

    The evidence is 0, and the name empty, where nothing speaks against the language or the text is short.
    """
    evidence, names = np.zeros(len(texts)), [""] * len(texts)
    identifier, base = load_identifier(), get_base_language(language)
    if identifier is None or base not in identifier.labels:
        return evidence, names
    for n, text in enumerate(texts):
        beginning = text[:MAX_CHARACTERS]
        if len(beginning) < MIN_LETTERS or len(LETTER.findall(beginning)) < MIN_LETTERS:
            continue
        label, probability = identifier.classify(beginning)
        if not are_related(base, label):
            evidence[n] = -min(MAX_EVIDENCE, -np.log1p(-min(float(probability), 1 - 1e-9)))
            names[n] = str(label)
    return evidence, names
