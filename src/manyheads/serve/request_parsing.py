"""What a request says, be it JSON, a form or a query string."""

import json
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from manyheads.serve.limits import ServerLimits

FORM_TYPE, MULTIPART_TYPE = "application/x-www-form-urlencoded", "multipart/form-data"
MAX_DIGITS = 100  # of an integer; Python's own limit would speak in Python's words
RequestT = TypeVar("RequestT", bound=BaseModel)


async def read_fields(request: Request, limits: ServerLimits) -> dict[str, Any]:
    """The query string's fields and the body's, which go before. A field `q` that stands twice is a list."""
    said = parse_form(request.scope["query_string"], limits)
    body = await request.body()
    if not body:
        return said
    packed = request.headers.get("content-encoding", "").strip().lower()
    if packed not in ("", "identity"):
        raise HTTPException(415, f"the content encoding is {packed[:100]!r}, but bodies are read as they are")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return said | parse_json(body)
    if kind == FORM_TYPE:
        return said | parse_form(body, limits)
    if kind == MULTIPART_TYPE:
        return said | await parse_multipart(request, limits)
    raise HTTPException(
        415,
        f"the content type is {kind[:100]!r}, but must be application/json, {FORM_TYPE} or {MULTIPART_TYPE}",
    )


def parse_json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body.decode("utf-8-sig"), parse_constant=reject_constant, parse_int=parse_integer)
    except RecursionError:
        raise HTTPException(400, "the JSON is nested too deeply") from None
    except UnicodeDecodeError:
        raise HTTPException(400, "the body is not UTF-8") from None
    except ValueError as fault:
        raise HTTPException(400, f"the body is not JSON: {str(fault)[:100]}") from None
    if not isinstance(found, dict):
        raise HTTPException(400, 'the JSON must be an object, such as {"q": "..."}')
    return found


def parse_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise HTTPException(400, f"a number of {len(digits)} digits, but at most {MAX_DIGITS} are read")
    return int(digits)


def reject_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def parse_form(raw: bytes, limits: ServerLimits) -> dict[str, Any]:
    """Of a form or a query string. What is not UTF-8 becomes U+FFFD."""
    try:
        found = parse_qsl(
            raw.decode("utf-8", "replace"),
            keep_blank_values=True,
            errors="replace",
            max_num_fields=limits.max_form_fields,
        )
    except ValueError:
        raise HTTPException(400, f"a form of more than {limits.max_form_fields} fields") from None
    return group_repeated(found)


async def parse_multipart(request: Request, limits: ServerLimits) -> dict[str, Any]:
    async with request.form(
        max_files=0, max_fields=limits.max_form_fields, max_part_size=limits.max_body_bytes
    ) as form:
        return group_repeated(
            [(key, value) for key, value in form.multi_items() if not isinstance(value, UploadFile)]
        )


def group_repeated(found: list[tuple[str, str]]) -> dict[str, Any]:
    said: dict[str, Any] = dict(found)
    for key in ("q", "translation"):
        several = [value for name, value in found if name == key]
        if len(several) > 1:
            said[key] = several
    return said


def validate_request(kind: type[RequestT], said: dict[str, Any], limits: ServerLimits) -> RequestT:
    """The fields as the model has them; the first fault is told."""
    try:
        asked = kind.model_validate(said)
    except ValidationError as faults:
        first = faults.errors(include_url=False, include_context=False, include_input=False)[0]
        raise HTTPException(400, f"{first['loc'][0]}: {first['msg'][:200]}") from None
    for key in ("q", "translation"):
        check_texts(key, to_list(getattr(asked, key, None)), limits)
    return asked


def to_list(value: str | list[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else value


def check_texts(key: str, texts: list[str], limits: ServerLimits) -> None:
    if len(texts) > limits.max_texts:
        raise HTTPException(
            400, f"{key} has {len(texts)} texts, but at most {limits.max_texts} go in one request"
        )
    characters = sum(map(len, texts))
    if characters > limits.max_characters:
        raise HTTPException(
            400, f"{key} has {characters} characters, but at most {limits.max_characters} go in one request"
        )
