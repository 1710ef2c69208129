"""What goes in and what comes out, as OpenAPI describes it. Names are LibreTranslate's where it has them."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from manyheads.serve.languages import ModelRegistry
from manyheads.serve.limits import ServerLimits

MAX_WIDTH = 2**20
SURROGATES = re.compile("[\ud800-\udfff]")  # halves of a character, which JSON can write


def replace_surrogates(text: Any) -> Any:
    """Halves of characters become U+FFFD, where they do not make one together."""
    if not isinstance(text, str) or not SURROGATES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def default_if_empty(default: Any) -> BeforeValidator:
    """Null and the empty string, which some clients send for what they leave out, are the default."""
    return BeforeValidator(lambda value: default if value is None or value == "" else value)


Text = Annotated[str, BeforeValidator(replace_surrogates)]
Texts = Annotated[Text | list[Text], Field(description="A text, or a list of them.", examples=["I go home."])]
Source = Annotated[Text, Field(description="The language of q.", examples=["en"])]
Target = Annotated[Text, Field(description="The language to translate to.", examples=["ko"])]
Key = Annotated[Text | None, Field(description="Where the server asks for one; or Authorization: Bearer.")]
Model = Annotated[Text | None, Field(description="The name of a model, where several have the pair.")]


# ---- what is asked


class TranslateRequest(BaseModel):
    q: Texts
    source: Annotated[Text, Field(description='The language of q, or "auto".', examples=["en"])]
    target: Target
    format: Annotated[
        Literal["text", "html"], default_if_empty("text"), Field(description="html: tags are kept in place.")
    ] = "text"
    alternatives: Annotated[
        int, default_if_empty(0), Field(ge=0, description="Further translations of each text.")
    ] = 0
    details: Annotated[
        bool, Field(description="Also tokens, their scores and the alignment; of format text.")
    ] = False
    model: Model = None
    api_key: Key = None


class DetectRequest(BaseModel):
    q: Texts
    api_key: Key = None


class ScoreRequest(BaseModel):
    q: Texts
    translation: Annotated[Text | list[Text], Field(description="A translation of each text of q.")]
    source: Source
    target: Target
    model: Model = None
    api_key: Key = None


class LookRequest(BaseModel):
    q: Annotated[Text, Field(description="One sentence.", examples=["I go home."])]
    source: Source
    target: Target
    translation: Annotated[Text | None, Field(description="Looked at in place of the model's own.")] = None
    model: Model = None
    api_key: Key = None


class AttentionRequest(LookRequest):
    layer: Annotated[int | None, Field(ge=0, description="Only this one, from 0; else all.")] = None


class WalkRequest(LookRequest):
    stack: Annotated[Literal["encoder", "decoder"], Field(description="What is walked through.")] = "encoder"
    layer: Annotated[int, Field(ge=0, description="Which of its layers, from 0.")] = 0
    width: Annotated[int, Field(ge=1, le=MAX_WIDTH, description="Numbers that are told of each vector.")] = 8


# ---- what is answered

Number = float | None  # null where it is not finite


class ErrorResponse(BaseModel):
    error: str
    code: Annotated[
        Literal["too_long"] | None, Field(description="Where a page has words of its own for it.")
    ] = None


class Detection(BaseModel):
    language: str
    confidence: Annotated[float, Field(ge=0, le=100, description="In per cent.")]


class WordDetail(BaseModel):
    """Of a translation."""

    text: str
    probability: Annotated[Number, Field(description="Probability of its tokens together; null: not known.")]
    sources: Annotated[list[int], Field(description="The source words that it came from, by number.")]


class TranslationDetails(BaseModel):
    score: Annotated[Number, Field(description="log p divided by the length penalty.")]
    sourceTokens: list[str]
    tokens: list[str]
    tokenScores: Annotated[list[Number], Field(description="log p of each token.")]
    alignment: Annotated[
        list[tuple[int, int]] | None, Field(description="Source token and target token, by number.")
    ]
    sourceWords: list[str]
    words: Annotated[list[WordDetail], Field(description="What the tokens make up.")]
    sentences: Annotated[list[str], Field(description="That the text was parted into.")]


class TranslateResponse(BaseModel):
    """A list where q was one. What was not asked for is not there."""

    model_config = ConfigDict(json_schema_extra={"required": ["translatedText"]})
    translatedText: str | list[str]
    detectedLanguage: Detection | list[Detection] | None = None
    alternatives: list[str] | list[list[str]] | None = None
    details: TranslationDetails | list[TranslationDetails] | None = None


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
    frontendTimeout: Annotated[int, Field(description="Milliseconds to wait while someone types.")]
    keyRequired: bool
    language: DefaultLanguages
    suggestions: bool
    filesTranslation: bool
    supportedFilesFormat: list[str]
    textLimit: Annotated[int, Field(description="Ours: texts of a request.")]
    alternativesLimit: Annotated[int, Field(description="Ours.")]


class ModelInfo(BaseModel):
    name: str
    source: str
    target: str
    engine: str
    objective: str
    max_length: Annotated[int, Field(description="Tokens of a sentence that it was trained for.")]
    alignment: Annotated[bool, Field(description="Whether it has alignments and attention maps.")]


class ScoreDetails(BaseModel):
    score: Number
    logProbability: Number
    sourceTokens: list[str]
    tokens: list[str]
    tokenScores: list[Number]


class ScoreResponse(BaseModel):
    scores: list[ScoreDetails]


AttentionMaps = Annotated[list[list[list[list[float]]]], Field(description="[layer][head][from][to]")]


class AttentionResponse(BaseModel):
    translatedText: str
    sourceTokens: Annotated[list[str], Field(description="With the end.")]
    targetTokens: Annotated[list[str], Field(description="With the end.")]
    encoder: AttentionMaps
    decoder: AttentionMaps
    cross: AttentionMaps


class LookResponse(BaseModel):
    """What the attention page shows; look/maps.py describes every field."""

    model_config = ConfigDict(extra="allow")
    format: int
    text: dict[str, str]
    tokens: dict[str, list[str]]
    words: dict[str, list[str]]
    layers: int
    heads: int
    moments: list[dict[str, Any]]


class WalkStep(BaseModel):
    part: Literal["embedding", "self", "cross", "feed_forward", "output"]
    name: str
    axes: list[str]
    shape: list[int]
    rows: str
    columns: str | None = None
    numbers: Annotated[list[Any], Field(description="Nested; null: may not be seen.")]


class WalkResponse(BaseModel):
    """One sentence through one layer; look/walk.py describes every field."""

    model_config = ConfigDict(extra="allow")
    source: str
    target: str
    tokens: dict[str, list[str]]
    ids: dict[str, list[int]]
    stack: Literal["encoder", "decoder"]
    layer: int
    steps: list[WalkStep]
    candidates: list[list[tuple[str, float]]]


CurvePoints = Annotated[list[dict[str, float]], Field(description="By step; at most 1,000, evenly taken.")]


class TrainingRunInfo(BaseModel):
    name: str
    ended: bool
    train: CurvePoints
    valid: CurvePoints


# ---- how OpenAPI tells it

ERROR_DESCRIPTIONS = {
    400: "The request is malformed, asks for what there is not, or passes a limit.",
    403: "A missing or wrong API key, or a Host or Origin that is not this server's.",
    404: "There is no such path.",
    405: "The path has no such method.",
    408: "The client was too slow to send its request.",
    413: "The body is too large.",
    415: "The body is neither JSON nor a form, or is compressed.",
    503: "There is no place in the queue, or it took too long. Retry-After says when to come again.",
}
RETRY_AFTER_HEADER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}}
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {
        "model": ErrorResponse,
        "description": why,
        **({"headers": RETRY_AFTER_HEADER} if code == 503 else {}),
    }
    for code, why in ERROR_DESCRIPTIONS.items()
}


def describe_request_body(
    kind: type[BaseModel], limits: ServerLimits, pairs: ModelRegistry
) -> dict[str, Any]:
    """The request body of an operation, in every way in which it may come, with the limits in it."""
    schema = kind.model_json_schema()
    properties = schema["properties"]
    for key in ("q", "translation"):
        for option in properties.get(key, {}).get("anyOf", [properties.get(key, {})]):
            if option.get("type") == "string":
                option["maxLength"] = limits.max_characters
            elif option.get("type") == "array":
                option["maxItems"] = limits.max_texts
    if "alternatives" in properties:
        properties["alternatives"]["maximum"] = limits.max_alternatives
    for key, codes in (("source", pairs.codes), ("target", pairs.codes)):
        if key in properties:
            properties[key]["enum"] = [*codes, *(["auto"] if "auto" in str(properties[key]) else [])]
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {
        "requestBody": {
            "required": True,
            "description": "The same fields may stand in the query string.",
            "content": {one: {"schema": schema} for one in kinds},
        }
    }
