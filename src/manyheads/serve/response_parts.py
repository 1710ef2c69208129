"""Parts of the responses of the HTTP API."""

from collections.abc import Sequence
from typing import Any

from manyheads.serve.languages import language_name
from manyheads.serve.served_model import ServedModel
from manyheads.serve.source_language import LANGUAGE_NOTE, SourceLanguage
from manyheads.serve.word_alignment import WordAlignment
from manyheads.translation import Translation


def format_detection(language: str, confidence: float) -> dict[str, Any]:
    """Confidences are whole percents: some clients of LibreTranslate read nothing else."""
    return {"language": language, "confidence": round(confidence)}


def format_confidences(translations: Sequence[Translation]) -> dict[str, list[float | None]]:
    """Return the confidences, if there are any. Four digits are more than a calibration can tell apart."""
    values = [translation.confidence for translation in translations]
    if all(value is None for value in values):
        return {}
    return {"confidence": [None if value is None else round(value, 4) for value in values]}


def format_notes(
    translations: Sequence[Translation], languages: Sequence[SourceLanguage]
) -> dict[str, list[list[str]]]:
    """Return what was unusual about each text and its translation, if anything was."""
    notes = [
        join_notes(translation, language)
        for translation, language in zip(translations, languages, strict=True)
    ]
    return {"notes": notes} if any(notes) else {}


def format_corrections(translations: Sequence[Translation]) -> dict[str, list[list[dict[str, Any]]]]:
    """Return the corrections that each text matches, if any does."""
    matches = [[match.to_dict() for match in translation.corrections] for translation in translations]
    return {"corrections": matches} if any(matches) else {}


def join_notes(translation: Translation, language: SourceLanguage) -> list[str]:
    """Return the notes of a translation. One note about the language of the text is enough."""
    if not language.note:
        return translation.notes
    others = [note for note in translation.notes if not note.startswith(LANGUAGE_NOTE)]
    return [language.note, *others]


def format_language(code: str) -> dict[str, Any]:
    return {"code": code, "name": language_name(code)}


def format_model(model: ServedModel, user: str) -> dict[str, Any]:
    translator = model.translator
    return {
        "name": model.name,
        "source": model.source,
        "target": model.target,
        "engine": translator.engine.name,
        "objective": translator.engine.objective,
        "max_length": translator.max_length,
        "alignment": translator.engine.capabilities.alignment,
        "attention": translator.engine.capabilities.attention,
        "calibrated": model.is_calibrated,
        "adapters": model.list_adapters(user),
        "examples": model.training_facts.examples,
        "training_pairs": model.training_facts.num_pairs,
    }


def distinct_alternatives(translation: Translation) -> list[str]:
    """Return the alternative texts without repetitions: different tokens can make the same text."""
    texts = [other.text for other in translation.alternatives if other.text != translation.text]
    return list(dict.fromkeys(texts))


def format_details(translation: Translation, model: ServedModel | None) -> dict[str, Any]:
    alignment = WordAlignment.from_translation(translation)
    return {
        "score": translation.score,
        "sourceTokens": translation.source_tokens,
        "tokens": translation.tokens,
        "tokenScores": translation.token_scores,
        "alignment": translation.alignment,
        "sentenceConfidences": [
            {"text": text, "confidence": None if confidence is None else round(confidence, 4)}
            for text, confidence in translation.sentence_confidences
        ],
        "sentences": model.split_sentences(translation.source) if model else [],
        **alignment.to_json(),
        "unknownWords": model.known_words.find_unknown(alignment.source) if model else [],
    }


def format_score(translation: Translation) -> dict[str, Any]:
    return {
        "score": translation.score,
        "logProbability": translation.log_probability,
        "sourceTokens": translation.source_tokens,
        "tokens": translation.tokens,
        "tokenScores": translation.token_scores,
    }
