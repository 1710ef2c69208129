"""JSON responses, and the error that every layer of the server answers with."""

import json
import math
from typing import Any

from starlette.responses import Response

from manyheads.errors import RequestError

INTERNAL_ERROR = "internal server error; see the log of the server"


class NanSafeJSONResponse(Response):
    """JSON in UTF-8, with null for NaN and infinities."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        try:
            text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError:
            text = json.dumps(replace_nan(content), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def replace_nan(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: replace_nan(item) for key, item in value.items()}
    return [replace_nan(item) for item in value] if isinstance(value, list | tuple) else value


class RequestRejected(Exception):
    """A request that is answered with an error status. Underscores in header names become hyphens."""

    def __init__(self, status: int, error: str, **headers: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def to_response(self, path: str = "") -> Response:
        return NanSafeJSONResponse(format_error(path, self.error), self.status, headers=self.headers)


def format_error(path: str, message: str) -> dict[str, str]:
    """Return an error in the format of LibreTranslate, or of DeepL for its paths."""
    return {"message" if path.startswith("/v2/") else "error": message}


class TooManyNumbersError(RequestError):
    """The response would hold more numbers than the server sends. Clients know it by its code."""


class ClientDisconnected(Exception):
    """The client closed its connection, so there is no one to answer."""
