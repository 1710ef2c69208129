"""Noise in the words of synthetic sources: some are left out, and neighbors change places.

Beam search writes text that is too regular to learn from. With noise a model has to rely less on it, and more
on the target (Edunov et al., 2018). Words that must survive verbatim are never left out.
"""

import random
from hashlib import blake2b

from manyheads.text.noise import is_verbatim

DROP_RATE = 0.1  # of the words
MAX_SHIFT = 3  # places that a word may move, roughly


def add_word_noise(text: str, seed: int) -> str:
    """Leave out a tenth of the words and shuffle the rest locally, as text and seed determine."""
    rng = random.Random(blake2b(f"{seed} {text}".encode("utf-8", "replace"), digest_size=8).digest())
    words = text.split()
    kept = [word for word in words if is_verbatim(word) or rng.random() >= DROP_RATE] or words
    keys = [position + rng.random() * MAX_SHIFT for position in range(len(kept))]
    return " ".join(word for _, word in sorted(zip(keys, kept, strict=True), key=lambda pair: pair[0]))
