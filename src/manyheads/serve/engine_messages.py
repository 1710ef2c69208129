"""What a front-end process and the engine process send each other: JSON after its length in four bytes."""

import json
import struct
from typing import Any

from manyheads.errors import ConfigError, RequestError
from manyheads.inference.engine_messages import (
    decode_config,
    decode_request,
    encode_config,
    encode_request,
)
from manyheads.pipeline.jobs import Decoding, SentenceJob
from manyheads.serve.responses import TooManyNumbersError

HEADER = struct.Struct(">I")
Message = dict[str, Any]
ERRORS: dict[str, type[Exception]] = {
    error.__name__: error for error in (RequestError, ConfigError, TooManyNumbersError, MemoryError)
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


def encode_decoding(decoding: Decoding) -> list[Any]:
    requests = [encode_request(sentence.request) for sentence in decoding.sentences]
    return [encode_config(decoding.config), decoding.scores, requests]


def decode_decoding(config: str, scores: Any, requests: list[list[Any]]) -> Decoding:
    """Return what is to be decoded. Its sentences have no texts: the engine needs none."""
    sentences = [SentenceJob("", decode_request(*request)) for request in requests]
    return Decoding(decode_config(config), scores, sentences)


# ---- errors


def encode_error(error: BaseException) -> list[str]:
    name = next((name for name, known in ERRORS.items() if isinstance(error, known)), "")
    if isinstance(error, TooManyNumbersError):
        name = TooManyNumbersError.__name__
    is_plain = bool(name) or isinstance(error, RuntimeError)
    return [name, str(error) if is_plain else f"{type(error).__name__}: {error}"]


def decode_error(name: str, message: str) -> Exception:
    return ERRORS.get(name, RuntimeError)(message)
