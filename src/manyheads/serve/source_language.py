"""The language that a text is translated from, and what to say if it looks like another one."""

from dataclasses import dataclass

from manyheads.serve.languages import LanguageDetector, language_name
from manyheads.serve.model_registry import ModelRegistry

LANGUAGE_NOTE = "looks like "  # begins the notes about languages


@dataclass(frozen=True)
class SourceLanguage:
    code: str  # that the text is translated from
    detected: str  # that it is in
    confidence: float  # of that, in percent
    note: str = ""  # where the two differ


def detect_source(
    text: str, target: str, detector: LanguageDetector, registry: ModelRegistry
) -> SourceLanguage:
    """Detect the language of a text. One that is not served is translated from the likeliest that is."""
    sources = registry.find_sources(target)
    # At equal confidence, as for a text without letters, take a language that can be translated.
    ranking = sorted(detector.detect(text), key=lambda entry: (entry[1], entry[0] in sources), reverse=True)
    detected, confidence = ranking[0]
    if detected in registry.codes or not sources:
        return SourceLanguage(detected, detected, confidence)
    code = next((language for language, _ in ranking if language in sources), sources[0])
    names = language_name(detected), language_name(code)
    note = f"{LANGUAGE_NOTE}{names[0]}, which is not served; translated from {names[1]}"
    return SourceLanguage(code, detected, confidence, note)


def check_source(text: str, source: str, detector: LanguageDetector) -> SourceLanguage:
    """Return the language that a request gives, with a note if the text is clearly in another one."""
    foreign = detector.find_foreign(text, source)
    if foreign is None:
        return SourceLanguage(source, source, 100.0)
    note = f"{LANGUAGE_NOTE}{language_name(foreign[0])}, not {language_name(source)}"
    return SourceLanguage(source, *foreign, note)
