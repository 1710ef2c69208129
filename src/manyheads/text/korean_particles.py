"""Korean particles take one form after a consonant and another after a vowel: 책을, but 사과를.

Which one is right depends on the last syllable alone, so a particle behind a term can be corrected whatever
the model has written there.
"""

import re

FIRST_SYLLABLE, NUM_FINALS, RIEUL = ord("가"), 28, 8
AFTER_VOWEL = {"은": "는", "이": "가", "을": "를", "과": "와", "으로": "로"}  # by the form after a consonant
AFTER_CONSONANT = {vowel: consonant for consonant, vowel in AFTER_VOWEL.items()}
PARTICLE = "|".join([*AFTER_VOWEL, *AFTER_CONSONANT])


def correct_particles(text: str, term: str) -> str:
    """Return a text in which the particles behind a term, which ends in Hangul, have their right form."""
    final = (ord(term[-1]) - FIRST_SYLLABLE) % NUM_FINALS

    def replace_particle(match: "re.Match[str]") -> str:
        particle = AFTER_CONSONANT.get(match[1], match[1])
        is_open = final == 0 or (particle == "으로" and final == RIEUL)
        return term + (AFTER_VOWEL[particle] if is_open else particle)

    return re.sub(rf"(?<!\w){re.escape(term)}({PARTICLE})(?!\w)", replace_particle, text)
