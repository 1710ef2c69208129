"""What a request says, be it JSON, a form or a query string."""

import json
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from manyheads.serve.limits import Limits

FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data"
MOST_DIGITS = 100  # of an integer; Python's own limit would speak in Python's words
Asked = TypeVar("Asked", bound=BaseModel)


async def fields(request: Request, limits: Limits) -> dict[str, Any]:
    """The query string's fields and the body's, which go before. A field `q` that stands twice is a list."""
    said = pairs(request.scope["query_string"], limits)
    body = await request.body()
    if not body:
        return said
    packed = request.headers.get("content-encoding", "").strip().lower()
    if packed not in ("", "identity"):
        raise HTTPException(415, f"the content encoding is {packed[:100]!r}, but bodies are read as they are")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return said | parsed(body)
    if kind == FORM:
        return said | pairs(body, limits)
    if kind == PARTS:
        return said | await parts(request, limits)
    raise HTTPException(
        415, f"the content type is {kind[:100]!r}, but must be application/json, {FORM} or {PARTS}"
    )


def parsed(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body.decode("utf-8-sig"), parse_constant=refuse_constant, parse_int=integer)
    except RecursionError:
        raise HTTPException(400, "the JSON is nested too deeply") from None
    except UnicodeDecodeError:
        raise HTTPException(400, "the body is not UTF-8") from None
    except ValueError as fault:
        raise HTTPException(400, f"the body is not JSON: {str(fault)[:100]}") from None
    if not isinstance(found, dict):
        raise HTTPException(400, 'the JSON must be an object, such as {"q": "..."}')
    return found


def integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise HTTPException(400, f"a number of {len(digits)} digits, but at most {MOST_DIGITS} are read")
    return int(digits)


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def pairs(raw: bytes, limits: Limits) -> dict[str, Any]:
    """Of a form or a query string. What is not UTF-8 becomes U+FFFD."""
    try:
        found = parse_qsl(
            raw.decode("utf-8", "replace"),
            keep_blank_values=True,
            errors="replace",
            max_num_fields=limits.fields,
        )
    except ValueError:
        raise HTTPException(400, f"a form of more than {limits.fields} fields") from None
    return collected(found)


async def parts(request: Request, limits: Limits) -> dict[str, Any]:
    async with request.form(max_files=0, max_fields=limits.fields, max_part_size=limits.body) as form:
        return collected(
            [(key, value) for key, value in form.multi_items() if not isinstance(value, UploadFile)]
        )


def collected(found: list[tuple[str, str]]) -> dict[str, Any]:
    said: dict[str, Any] = dict(found)
    for key in ("q", "translation"):
        several = [value for name, value in found if name == key]
        if len(several) > 1:
            said[key] = several
    return said


def checked(kind: type[Asked], said: dict[str, Any], limits: Limits) -> Asked:
    """The fields as the model has them; the first fault is told."""
    try:
        asked = kind.model_validate(said)
    except ValidationError as faults:
        first = faults.errors(include_url=False, include_context=False, include_input=False)[0]
        raise HTTPException(400, f"{first['loc'][0]}: {first['msg'][:200]}") from None
    for key in ("q", "translation"):
        check_texts(key, texts_of(getattr(asked, key, None)), limits)
    return asked


def texts_of(value: str | list[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else value


def check_texts(key: str, texts: list[str], limits: Limits) -> None:
    if len(texts) > limits.texts:
        raise HTTPException(
            400, f"{key} has {len(texts)} texts, but at most {limits.texts} go in one request"
        )
    characters = sum(map(len, texts))
    if characters > limits.characters:
        raise HTTPException(
            400, f"{key} has {characters} characters, but at most {limits.characters} go in one request"
        )
