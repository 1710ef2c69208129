"""What a front-end process and the engine process send each other: JSON after its length in four bytes."""

import json
import struct
from dataclasses import MISSING, asdict, fields
from functools import lru_cache
from typing import Any

from manyheads.config import DecodingConfig
from manyheads.errors import ConfigError, RequestError
from manyheads.pipeline.jobs import Decoding, SentenceJob
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
from manyheads.serve.responses import TooManyNumbersError

HEADER = struct.Struct(">I")
Message = dict[str, Any]
ERRORS: dict[str, type[Exception]] = {
    error.__name__: error for error in (RequestError, ConfigError, TooManyNumbersError, MemoryError)
}
DEFAULTS = {
    field.name: field.default for field in fields(DecodingConstraints) if field.default is not MISSING
}


def encode_message(message: Message) -> bytes:
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return HEADER.pack(len(body)) + body


class MessageBuffer:
    """Makes messages of the bytes of a socket."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are complete now."""
        self._data += data
        messages = []
        start = 0
        while len(self._data) - start >= HEADER.size:
            (size,) = HEADER.unpack_from(self._data, start)
            end = start + HEADER.size + size
            if len(self._data) < end:
                break
            body = self._data[start + HEADER.size : end]
            messages.append(json.loads(body.decode("utf-8", "surrogatepass")))
            start = end
        del self._data[:start]
        return messages


# ---- what is decoded


@lru_cache(maxsize=256)
def encode_config(config: DecodingConfig) -> str:
    return json.dumps(asdict(config))


@lru_cache(maxsize=256)
def decode_config(text: str) -> DecodingConfig:
    return DecodingConfig(**json.loads(text))


def encode_request(request: Request) -> list[Any]:
    """Return the source, and of the constraints only those that are set."""
    own = request.constraints
    extra = {name: getattr(own, name) for name, default in DEFAULTS.items() if getattr(own, name) != default}
    if "word_start_ids" in extra:
        extra["word_start_ids"] = sorted(own.word_start_ids)
    return [request.source, own.max_length, extra] if extra else [request.source, own.max_length]


def decode_request(source: list[int], max_length: int, extra: dict[str, Any] | None = None) -> Request:
    if not extra:
        return Request(source, create_plain_constraints(max_length))
    values = {name: freeze(value) for name, value in extra.items()}
    if "word_start_ids" in values:
        values["word_start_ids"] = frozenset(values["word_start_ids"])
    return Request(source, DecodingConstraints(max_length, **values))


@lru_cache(maxsize=4096)
def create_plain_constraints(max_length: int) -> DecodingConstraints:
    return DecodingConstraints(max_length)


def freeze(value: Any) -> Any:
    return tuple(map(freeze, value)) if isinstance(value, list) else value


def encode_decoding(decoding: Decoding) -> list[Any]:
    requests = [encode_request(sentence.request) for sentence in decoding.sentences]
    return [encode_config(decoding.config), decoding.scores, requests]


def decode_decoding(config: str, scores: Any, requests: list[list[Any]]) -> Decoding:
    """Return what is to be decoded. Its sentences have no texts: the engine needs none."""
    sentences = [SentenceJob("", decode_request(*request)) for request in requests]
    return Decoding(decode_config(config), scores, sentences)


def encode_hypotheses(hypotheses: list[Hypothesis]) -> list[Any]:
    return [[own.tokens, own.token_scores, own.score, own.known_log_probability] for own in hypotheses]


def decode_hypotheses(rows: list[list[Any]]) -> list[Hypothesis]:
    return [Hypothesis(*row) for row in rows]


# ---- errors


def encode_error(error: BaseException) -> list[str]:
    name = next((name for name, known in ERRORS.items() if isinstance(error, known)), "")
    if isinstance(error, TooManyNumbersError):
        name = TooManyNumbersError.__name__
    is_plain = bool(name) or isinstance(error, RuntimeError)
    return [name, str(error) if is_plain else f"{type(error).__name__}: {error}"]


def decode_error(name: str, message: str) -> Exception:
    return ERRORS.get(name, RuntimeError)(message)
