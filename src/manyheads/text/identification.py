"""Which language a sentence is in: by its script, or by py3langid where that is installed."""

import re
from functools import cache
from typing import Any

from manyheads.text.languages import SCRIPTS, get_base_language, get_script_pattern

# Languages that py3langid takes for each other in short texts.
RELATED = (
    {"en", "pcm"}, {"no", "nb", "nn", "da"}, {"hr", "bs", "sr", "sh"}, {"id", "ms"}, {"cs", "sk"},
    {"zh", "yue", "wuu"}, {"es", "gl", "ast"}, {"nl", "af"}, {"ru", "be", "uk"},
)  # fmt: skip
MIN_SCRIPT_LETTERS, MIN_LETTERS = 4, 20  # of a sentence that is judged by its script, by the identifier
MIN_PROBABILITY = 0.95
LOOKS_LIKE = "looks like "  # how notes begin
# Text of another language has short subwords. Only where they are is the identifier asked: it takes 30 µs.
MAX_TOKEN_CHARACTERS = 3.0
LETTER = re.compile(r"[^\W\d_]")


@cache
def load_identifier() -> Any:
    """Load the model of py3langid, for all languages that it knows; None without it. Takes half a second."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        return None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def are_related(language: str, other: str) -> bool:
    """Return whether two languages are the same, or cannot be told apart."""
    return language == other or any({language, other} <= group for group in RELATED)


class LanguageCheck:
    """Notes which sentences are not in the source language."""

    def __init__(self, language: str) -> None:
        self.language = get_base_language(language)
        self.script = get_script_pattern(language)

    def find_note(self, text: str, num_tokens: int) -> str | None:
        """Return what a text looks like, if certainly another language. `num_tokens` counts the end."""
        if self.script is not None and not self.script.search(text):
            letters = LETTER.findall(text)
            if len(letters) >= MIN_SCRIPT_LETTERS:
                return f"{LOOKS_LIKE}{find_script(letters[0])}, not {self.language}"
        if len(text) >= MAX_TOKEN_CHARACTERS * num_tokens or len(text) < MIN_LETTERS:
            return None
        return self._identify(text)

    def _identify(self, text: str) -> str | None:
        identifier = load_identifier() if len(LETTER.findall(text)) >= MIN_LETTERS else None
        if identifier is None or self.language not in identifier.labels:
            return None
        label, probability = identifier.classify(text)
        if probability < MIN_PROBABILITY or are_related(self.language, label):
            return None
        return f"{LOOKS_LIKE}{label}, not {self.language}"


def find_script(letter: str) -> str:
    """Return the name of a letter's script."""
    for name, characters in SCRIPTS.items():
        if re.match(f"[{characters}]", letter):
            return name
    return "another script"
