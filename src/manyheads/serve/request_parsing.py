"""Read the fields of a request from JSON, a form or a query string, and validate them."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from manyheads.config.fields import describe_unknown_name
from manyheads.serve.limits import ServerLimits
from manyheads.serve.responses import RequestRejected

LOG = logging.getLogger("manyheads.serve")
FORM_TYPE, MULTIPART_TYPE = "application/x-www-form-urlencoded", "multipart/form-data"
IGNORED_FIELDS = ("apiKey", "secret")  # which clients of LibreTranslate send
TEXT_FIELDS = ("q", "s", "translation", "text")  # which may be lists
MAX_DIGITS = 100  # of an integer; Python's own limit has a message about Python
RequestT = TypeVar("RequestT", bound=BaseModel)


async def read_fields(request: Request, limits: ServerLimits) -> dict[str, Any]:
    """Return the fields of the query string and of the body, which has precedence."""
    fields = parse_form(request.scope["query_string"], limits)
    body = await request.body()
    if not body:
        return fields
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise HTTPException(
            415, f"the content encoding is {encoding[:100]!r}, but compressed bodies are not supported"
        )
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "application/json" or media_type.endswith("+json"):
        return fields | parse_json(body)
    if media_type == FORM_TYPE:
        return fields | parse_form(body, limits)
    if media_type == MULTIPART_TYPE:
        return fields | await parse_multipart(request, limits)
    raise HTTPException(
        415,
        f"the content type is {media_type[:100]!r}, "
        f"but must be application/json, {FORM_TYPE} or {MULTIPART_TYPE}",
    )


def parse_json(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body.decode("utf-8-sig"), parse_constant=reject_constant, parse_int=parse_integer)
    except RecursionError:
        raise HTTPException(400, "the JSON is nested too deeply") from None
    except UnicodeDecodeError:
        raise HTTPException(400, "the body is not UTF-8") from None
    except ValueError as error:
        raise HTTPException(400, f"the body is not JSON: {str(error)[:100]}") from None
    if not isinstance(fields, dict):
        raise HTTPException(400, 'the JSON must be an object, such as {"q": "..."}')
    return fields


def parse_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise HTTPException(400, f"a number has {len(digits)} digits, but the maximum is {MAX_DIGITS}")
    return int(digits)


def reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def parse_form(raw: bytes, limits: ServerLimits) -> dict[str, Any]:
    """Parse a form or a query string. Bytes that are not UTF-8 become U+FFFD."""
    try:
        items = parse_qsl(
            raw.decode("utf-8", "replace"),
            keep_blank_values=True,
            errors="replace",
            max_num_fields=limits.max_form_fields,
        )
    except ValueError:
        raise HTTPException(400, f"the form has more than {limits.max_form_fields} fields") from None
    return group_repeated(items)


async def parse_multipart(request: Request, limits: ServerLimits) -> dict[str, Any]:
    async with read_form(request, limits, max_files=0, max_part_size=limits.max_body_bytes) as form:
        items = [(key, value) for key, value in form.multi_items() if not isinstance(value, UploadFile)]
        return group_repeated(items)


@asynccontextmanager
async def read_form(
    request: Request, limits: ServerLimits, max_files: int, max_part_size: int
) -> AsyncIterator[FormData]:
    """Parse a multipart form. Large parts are kept in temporary files while it is open."""
    try:
        max_fields = limits.max_form_fields
        form = await request.form(max_files=max_files, max_fields=max_fields, max_part_size=max_part_size)
    except UnicodeError:  # some codecs of Python raise it for any bytes
        raise HTTPException(400, "the form cannot be read with its charset: send UTF-8") from None
    except OSError as error:
        raise storage_error("the form", error) from None
    try:
        yield form
    finally:
        await form.close()


def storage_error(what: str, error: OSError) -> RequestRejected:
    """Log why something could not be stored, such as a full disk, and return the response."""
    LOG.error("%s could not be stored: %s", what, error.strerror)
    return RequestRejected(
        503, f"{what} could not be stored; the log of the server says why", retry_after="5"
    )


def group_repeated(items: list[tuple[str, str]]) -> dict[str, Any]:
    """Collect fields; those that may be lists become lists where they are repeated."""
    fields: dict[str, Any] = dict(items)
    for key in TEXT_FIELDS:
        values = [value for name, value in items if name == key]
        if len(values) > 1:
            fields[key] = values
    return fields


def validate_request(schema: type[RequestT], fields: dict[str, Any], limits: ServerLimits) -> RequestT:
    """Validate fields against a schema and the limits; the first error is reported."""
    if "apiKey" in fields:  # as a client from npm writes it
        fields = {"api_key": fields["apiKey"], **fields}
    known = list(schema.model_fields)
    for name in fields:
        if name not in known and name not in IGNORED_FIELDS:
            raise HTTPException(400, describe_unknown_name("field", name[:100], known))
    fields = {name: value for name, value in fields.items() if name in known}
    check_collections(fields, limits)
    try:
        query = schema.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise HTTPException(400, f"{first['loc'][0]}: {first['msg'][:200]}") from None
    for key in TEXT_FIELDS:
        check_texts(key, to_list(getattr(query, key, None)), limits)
    return query


def to_list(value: str | list[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else value


def check_collections(fields: dict[str, Any], limits: ServerLimits) -> None:
    """Refuse lists and tables that are too long before their items are looked at.

    Each item may be wrong, and an error of each takes seconds and much memory.
    """
    for name, value in fields.items():
        if isinstance(value, list | dict):
            is_text = name in TEXT_FIELDS
            maximum = limits.max_texts if is_text else max(limits.max_glossary_terms, limits.max_form_fields)
            if len(value) > maximum:
                items = "texts" if is_text else "items"
                raise HTTPException(400, f"{name} has {len(value)} {items}, but the maximum is {maximum}")


def check_texts(key: str, texts: list[str], limits: ServerLimits) -> None:
    num_characters = sum(map(len, texts))
    if num_characters > limits.max_characters:
        raise HTTPException(
            400, f"{key} has {num_characters} characters, but the maximum is {limits.max_characters}"
        )
