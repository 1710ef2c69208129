"""Schemas of requests and responses for OpenAPI. Names follow LibreTranslate where it has them."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from manyheads.confidence_policy import DEFAULT_MIN_CONFIDENCE, Below
from manyheads.documents.suffixes import DOCUMENT_SUFFIXES
from manyheads.serve.limits import ServerLimits

MAX_WIDTH = 2**20
MAX_PREFIX = 1000  # characters
MAX_FORBIDDEN = 20  # words
SURROGATES = re.compile("[\ud800-\udfff]")  # halves of a character, which JSON can hold


def replace_surrogates(text: Any) -> Any:
    """Combine surrogate pairs; single surrogates become U+FFFD."""
    if not isinstance(text, str) or not SURROGATES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def default_if_empty(default: Any) -> BeforeValidator:
    """Use the default for null and the empty string, which some clients send for omitted fields."""
    return BeforeValidator(lambda value: default if value is None or value == "" else value)


Text = Annotated[str, BeforeValidator(replace_surrogates)]
Texts = Annotated[Text | list[Text], Field(description="A text, or a list of them.", examples=["I go home."])]
Source = Annotated[Text, Field(description="The language of q.", examples=["en"])]
Target = Annotated[Text, Field(description="The language to translate to.", examples=["ko"])]
Key = Annotated[Text | None, Field(description="If the server requires one; or use Authorization: Bearer.")]
Model = Annotated[Text | None, Field(description="Name of a model, if several translate this pair.")]


AdapterField = Annotated[
    Text | None,
    BeforeValidator(lambda value: None if value == "" else value),
    Field(description="Name of an adapter of the model; /models lists them."),
]
GlossaryField = Annotated[
    dict[Text, Text] | Text | None,
    BeforeValidator(lambda value: None if value == "" else value),
    Field(
        description="Terms and what they must become, or the name of a stored glossary; /glossaries lists "
        "them.",
        examples=[{"invoice": "Rechnung"}],
    ),
]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
BELOW_MEANING = "keep the translation (the default), mark it with [?], return the source text, or nothing."
Confidence = Annotated[
    Probability | None,
    default_if_empty(None),
    Field(description=f"Where below applies: {DEFAULT_MIN_CONFIDENCE} by default, for calibrated models."),
]
BelowChoice = Annotated[
    Below | None,
    default_if_empty(None),
    Field(description=f"If a translation has less than min_confidence: {BELOW_MEANING}"),
]


# ---- requests


class StrictRequest(BaseModel):
    """A request whose unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class TranslateRequest(StrictRequest):
    q: Texts
    source: Annotated[Text, Field(description='The language of q, or "auto".', examples=["en"])]
    target: Target
    format: Annotated[
        Literal["text", "html"], default_if_empty("text"), Field(description="html: tags are kept.")
    ] = "text"
    alternatives: Annotated[
        int, default_if_empty(0), Field(ge=0, description="Number of alternative translations of each text.")
    ] = 0
    details: Annotated[
        bool, Field(description="Return tokens, their scores and the alignment; for format text.")
    ] = False
    prefix: Annotated[
        Text,
        default_if_empty(""),
        Field(max_length=MAX_PREFIX, description="How each sentence of the translation begins; not html."),
    ] = ""
    forbid: Annotated[
        list[Annotated[Text, Field(max_length=MAX_PREFIX)]],
        default_if_empty([]),
        Field(max_length=MAX_FORBIDDEN, description="Words that must not come out; not for html."),
    ] = []
    min_confidence: Confidence = None
    below: BelowChoice = None
    model: Model = None
    adapter: AdapterField = None
    glossary: GlossaryField = None
    api_key: Key = None


class FileRequest(StrictRequest):
    """The fields beside the file."""

    source: Annotated[Text, Field(description='The language of the document, or "auto".', examples=["en"])]
    target: Target
    min_confidence: Confidence = None
    below: BelowChoice = None
    model: Model = None
    adapter: AdapterField = None
    api_key: Key = None


class DetectRequest(StrictRequest):
    q: Texts
    api_key: Key = None


class ScoreRequest(StrictRequest):
    q: Texts
    translation: Annotated[Text | list[Text], Field(description="A translation of each text of q.")]
    source: Source
    target: Target
    model: Model = None
    adapter: AdapterField = None
    api_key: Key = None


class LookRequest(StrictRequest):
    q: Annotated[Text, Field(description="One sentence.", examples=["I go home."])]
    source: Source
    target: Target
    translation: Annotated[
        Text | None, Field(description="Shown instead of the translation of the model.")
    ] = None
    model: Model = None
    adapter: AdapterField = None
    api_key: Key = None


class AttentionRequest(LookRequest):
    layer: Annotated[int | None, Field(ge=0, description="Only this layer, counted from 0.")] = None


class WalkRequest(LookRequest):
    stack: Annotated[Literal["encoder", "decoder"], Field(description="The stack of the layer.")] = "encoder"
    layer: Annotated[int, Field(ge=0, description="The layer, counted from 0.")] = 0
    width: Annotated[int, Field(ge=1, le=MAX_WIDTH, description="Numbers shown of each vector.")] = 8
    parameters: Annotated[bool, Field(description="Include the learned numbers of the layer.")] = False


class UndoRequest(StrictRequest):
    q: Annotated[
        Text, Field(description="The text whose translation was corrected.", examples=["I go home."])
    ]
    source: Annotated[Text, Field(description='The language of q, or "auto".', examples=["en"])]
    target: Target
    model: Model = None
    api_key: Key = None


class SuggestRequest(UndoRequest):
    s: Annotated[Text, Field(description="The right translation.", examples=["나는 집에 간다."])]


# ---- responses

Number = float | None  # null where it is not finite


class ErrorResponse(BaseModel):
    model_config = ConfigDict(json_schema_extra={"required": []})
    error: str | None = None
    message: Annotated[str | None, Field(description="In place of error, for the paths of DeepL.")] = None
    code: Annotated[
        Literal["too_many_numbers"] | None, Field(description="Identifies some errors for programs.")
    ] = None


class Detection(BaseModel):
    language: str
    confidence: Annotated[int, Field(ge=0, le=100, description="In percent.")]


class WordDetail(BaseModel):
    """A word of a translation."""

    text: str
    probability: Annotated[
        Number, Field(description="Product of the probabilities of its tokens; null: unknown.")
    ]
    sources: Annotated[list[int], Field(description="Indices of the source words that it is aligned with.")]


class SentenceConfidence(BaseModel):
    """A sentence of a translation."""

    text: str
    confidence: Annotated[Probability | None, Field(description="Null: unknown.")]


class TranslationDetails(BaseModel):
    score: Annotated[Number, Field(description="log p divided by the length penalty.")]
    sourceTokens: list[str]
    tokens: list[str]
    tokenScores: Annotated[list[Number], Field(description="log p of each token.")]
    alignment: Annotated[
        list[tuple[int, int]] | None, Field(description="Indices of source token and target token.")
    ]
    sourceWords: list[str]
    unknownWords: Annotated[
        list[int], Field(description="Indices of source words that the model cannot know.")
    ]
    words: Annotated[list[WordDetail], Field(description="The words that the tokens form.")]
    sentences: Annotated[list[str], Field(description="The sentences of the text.")]
    sentenceConfidences: Annotated[
        list[SentenceConfidence],
        Field(description="The sentences of the translation, if the model is calibrated."),
    ]


class CorrectionMatch(BaseModel):
    """A correction that a text or a sentence of it matches."""

    match: Annotated[
        Literal["exact", "adapted", "similar"],
        Field(description="exact, adapted: its target is the translation. similar: for comparison."),
    ]
    similarity: Probability
    source: str
    target: str
    who: str
    when: str


class TranslateResponse(BaseModel):
    """Values are lists if q is a list. Fields that were not requested are absent."""

    model_config = ConfigDict(json_schema_extra={"required": ["translatedText"]})
    translatedText: str | list[str]
    detectedLanguage: Detection | list[Detection] | None = None
    alternatives: list[str] | list[list[str]] | None = None
    details: TranslationDetails | list[TranslationDetails] | None = None
    confidence: Annotated[
        Probability | list[Probability | None] | None,
        Field(description="Probability that the translation is adequate, if a model is calibrated."),
    ] = None
    notes: Annotated[
        list[str] | list[list[str]] | None, Field(description="What was unusual, if anything was.")
    ] = None
    corrections: Annotated[
        list[CorrectionMatch] | list[list[CorrectionMatch]] | None,
        Field(description="Your corrections that match, if any do."),
    ] = None


class SuggestResponse(BaseModel):
    success: bool


class FileResponse(BaseModel):
    translatedFileUrl: Annotated[str, Field(description="Where the document is for ten minutes.")]


class LanguageInfo(BaseModel):
    code: str
    name: str
    targets: list[str]


class HealthResponse(BaseModel):
    status: Literal["ok"]


class LanguageName(BaseModel):
    code: str
    name: str


class DefaultLanguages(BaseModel):
    source: LanguageName
    target: LanguageName


class FrontendSettings(BaseModel):
    apiKeys: bool
    charLimit: int
    frontendTimeout: Annotated[int, Field(description="Milliseconds to wait while the user types.")]
    keyRequired: bool
    language: DefaultLanguages
    suggestions: bool
    filesTranslation: bool
    supportedFilesFormat: list[str]
    textLimit: Annotated[int, Field(description="Texts per request; not in LibreTranslate.")]
    alternativesLimit: Annotated[int, Field(description="Not in LibreTranslate.")]


class ModelInfo(BaseModel):
    name: str
    source: str
    target: str
    engine: str
    objective: str
    max_length: Annotated[int, Field(description="Maximum tokens of a sentence in training.")]
    alignment: Annotated[bool, Field(description="Whether translations have alignments.")]
    attention: Annotated[bool, Field(description="Whether /attention, /look and /walk are available.")]
    calibrated: Annotated[bool, Field(description="Whether translations have a confidence.")]
    adapters: Annotated[list[str], Field(description="Adapters that a request may name.")]
    examples: Annotated[list[str], Field(description="Sources of its test set, short to long.")]
    training_pairs: Annotated[int | None, Field(description="Null: unknown.")]


class GlossaryInfo(BaseModel):
    name: str


class ScoreDetails(BaseModel):
    score: Number
    logProbability: Number
    sourceTokens: list[str]
    tokens: list[str]
    tokenScores: list[Number]


class ScoreResponse(BaseModel):
    scores: list[ScoreDetails]


LayerMaps = Annotated[list[list[list[list[float]]]], Field(description="[layer][head][query][key]")]


class AttentionResponse(BaseModel):
    translatedText: str
    sourceTokens: Annotated[list[str], Field(description="With the end token.")]
    targetTokens: Annotated[list[str], Field(description="With the end token.")]
    encoder: LayerMaps
    decoder: LayerMaps
    cross: LayerMaps


class LookResponse(BaseModel):
    """The data of the attention page, described in look/attention_data.py."""

    model_config = ConfigDict(extra="allow")
    format: int
    text: dict[str, str]
    tokens: dict[str, list[str]]
    words: dict[str, list[str]]
    layers: dict[str, int]
    heads: int
    snapshots: list[dict[str, Any]]


class WalkStep(BaseModel):
    part: Literal["embedding", "self", "cross", "feed_forward", "output"]
    name: str
    axes: list[str]
    shape: list[int]
    rows: str
    columns: str | None = None
    values: Annotated[list[Any], Field(description="Nested lists; null: masked.")]


class WalkResponse(BaseModel):
    """One sentence through one layer, described in look/forward_walk.py."""

    model_config = ConfigDict(extra="allow")
    source: str
    target: str
    tokens: dict[str, list[str]]
    ids: dict[str, list[int]]
    stack: Literal["encoder", "decoder"]
    layer: int
    steps: list[WalkStep]
    candidates: list[list[tuple[str, float]]]


CurvePoints = Annotated[
    list[dict[str, float]], Field(description="By step; at most 1,000, at even intervals.")
]


class TrainingRunInfo(BaseModel):
    name: str
    ended: bool
    train: CurvePoints
    valid: CurvePoints


# ---- OpenAPI

ERROR_DESCRIPTIONS = {
    400: "The request is malformed, names an unknown language or model, or exceeds a limit.",
    403: "The API key is missing or wrong, or the Host or Origin is not allowed.",
    404: "Unknown path.",
    405: "The path does not support this method.",
    408: "The client sent its request too slowly.",
    413: "The body is too large.",
    415: "The body is neither JSON nor a form, or is compressed.",
    429: "Too many requests, suggestions or wrong API keys of a client. Retry-After says when to retry.",
    503: "The queue is full, or the request timed out. Retry-After says when to retry.",
}
RETRY_AFTER_HEADER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}}
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {
        "model": ErrorResponse,
        "description": description,
        **({"headers": RETRY_AFTER_HEADER} if code in (429, 503) else {}),
    }
    for code, description in ERROR_DESCRIPTIONS.items()
}


def describe_request_body(
    schema_class: type[BaseModel], limits: ServerLimits, languages: Sequence[str]
) -> dict[str, Any]:
    """Describe the request body of an operation for every content type, with the limits of this server."""
    schema = schema_class.model_json_schema()
    properties = schema["properties"]
    for key in ("q", "s", "translation", "text"):
        for option in properties.get(key, {}).get("anyOf", [properties.get(key, {})]):
            if option.get("type") == "string":
                option["maxLength"] = limits.max_characters
            elif option.get("type") == "array":
                option["maxItems"] = limits.max_texts
    if "alternatives" in properties:
        properties["alternatives"]["maximum"] = limits.max_alternatives
    for key in ("source", "target"):
        if key in properties:
            properties[key]["enum"] = [*languages, *(["auto"] if "auto" in str(properties[key]) else [])]
    media_types = ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"]
    if schema_class is FileRequest:
        media_types = media_types[-1:]
        formats = ", ".join(DOCUMENT_SUFFIXES)
        properties["file"] = {"type": "string", "format": "binary", "description": f"A document: {formats}."}
        schema["required"].append("file")
    return {
        "requestBody": {
            "required": True,
            "description": "The same fields can be in the query string.",
            "content": {media_type: {"schema": schema} for media_type in media_types},
        }
    }
