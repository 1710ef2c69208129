"""Schemas of requests and responses in the dialect of DeepL."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from manyheads.serve.schemas import StrictRequest, Text, Texts, default_if_empty

Ignored = Annotated[str | bool | int | None, Field(description="Has no effect.")]
Unavailable = Annotated[
    str | list[str] | None, Field(description="Refused, unless its value changes nothing.")
]


class DeepLTranslateRequest(StrictRequest):
    """DeepL's fields. Those without a meaning here are accepted, or refused if they would change the text."""

    text: Texts
    target_lang: Annotated[Text, Field(description="The language to translate to.", examples=["KO"])]
    source_lang: Annotated[Text | None, Field(description="By default it is detected.")] = None
    tag_handling: Annotated[
        Literal["html", "xml"] | None, default_if_empty(None), Field(description="Tags are kept.")
    ] = None
    show_billed_characters: bool = False
    context: Ignored = None
    split_sentences: Ignored = None
    preserve_formatting: Ignored = None
    outline_detection: Ignored = None
    tag_handling_version: Ignored = None
    model_type: Ignored = None
    enable_beta_languages: Ignored = None
    formality: Unavailable = None
    glossary_id: Unavailable = None
    style_id: Unavailable = None
    custom_instructions: Unavailable = None
    splitting_tags: Unavailable = None
    non_splitting_tags: Unavailable = None
    ignore_tags: Unavailable = None


class DeepLLanguagesRequest(StrictRequest):
    type: Annotated[Text, Field(description="source or target.")] = "source"


class DeepLTranslation(BaseModel):
    model_config = ConfigDict(json_schema_extra={"required": ["detected_source_language", "text"]})
    detected_source_language: str
    text: str
    billed_characters: int | None = None


class DeepLTranslateResponse(BaseModel):
    translations: list[DeepLTranslation]


class DeepLLanguage(BaseModel):
    model_config = ConfigDict(json_schema_extra={"required": ["language", "name"]})
    language: str
    name: str
    supports_formality: bool | None = None
