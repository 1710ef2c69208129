"""A second dialect: DeepL's `/v2/translate` and `/v2/languages`, which many tools speak."""

from typing import Any

from fastapi import Request
from starlette.exceptions import HTTPException

from manyheads.serve.deepl_schemas import DeepLLanguagesRequest, DeepLTranslateRequest
from manyheads.serve.endpoints import Endpoints
from manyheads.serve.languages import language_name
from manyheads.serve.request_parsing import read_fields, to_list, validate_request
from manyheads.serve.schemas import TranslateRequest
from manyheads.text.languages import get_base_language

# What would change a translation in a way that is not available, with the values that change nothing.
UNAVAILABLE: dict[str, tuple[Any, ...]] = {
    "glossary_id": (None, ""),
    "formality": (None, "", "default", "prefer_more", "prefer_less"),
    "style_id": (None, ""),
    "custom_instructions": (None, "", []),
    "splitting_tags": (None, "", []),
    "non_splitting_tags": (None, "", []),
    "ignore_tags": (None, "", []),
}


class DeepLEndpoints:
    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints

    async def translate(self, request: Request) -> dict[str, Any]:
        endpoints = self.endpoints
        fields = await read_fields(request, endpoints.limits)
        endpoints.admit(request, fields.pop("auth_key", None))
        own = validate_request(DeepLTranslateRequest, fields, endpoints.limits)
        for name, allowed in UNAVAILABLE.items():
            if getattr(own, name) not in allowed:
                raise HTTPException(400, f"{name} is not available here: leave it out")
        texts = to_list(own.text)
        query = TranslateRequest(
            q=texts,
            source=own.source_lang or "auto",
            target=own.target_lang,
            format="html" if own.tag_handling else "text",
        )
        endpoints.normalize_languages(query)
        endpoints.metrics.record_characters(sum(map(len, texts)))
        response = await endpoints.translate_query(request, query)
        detected = [entry["language"] for entry in response.get("detectedLanguage", [])]
        translations = []
        for number, (text, translated) in enumerate(zip(texts, response["translatedText"], strict=True)):
            code = detected[number] if detected else query.source
            entry = {"detected_source_language": get_base_language(code).upper(), "text": translated}
            if own.show_billed_characters:
                entry["billed_characters"] = len(text)
            translations.append(entry)
        return {"translations": translations}

    async def languages(self, request: Request) -> list[dict[str, Any]]:
        fields = await read_fields(request, self.endpoints.limits)  # DeepL's own client sends a body
        self.endpoints.admit(request, fields.pop("auth_key", None))
        side = validate_request(DeepLLanguagesRequest, fields, self.endpoints.limits).type
        if side not in ("source", "target"):
            raise HTTPException(400, f"type is {side[:100]!r}, but must be source or target")
        codes = sorted({getattr(model, side) for model in self.endpoints.registry.models})
        if side == "source":
            codes = list(dict.fromkeys(map(get_base_language, codes)))
        return [
            {"language": code.upper(), "name": language_name(code)}
            | ({"supports_formality": False} if side == "target" else {})
            for code in codes
        ]
