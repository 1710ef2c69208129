"""Messages over pipes: JSON in UTF-8 after its length in four bytes."""

import json
import struct
from collections.abc import Iterator
from typing import IO, Any

HEADER = struct.Struct(">I")


def write_message(stream: IO[bytes], message: dict[str, Any]) -> None:
    body = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    stream.write(HEADER.pack(len(body)) + body)
    stream.flush()


def read_messages(stream: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield messages until the other side closes the pipe, even in the middle of one."""
    while len(header := stream.read(HEADER.size)) == HEADER.size:
        (size,) = HEADER.unpack(header)
        body = stream.read(size)
        if len(body) < size:
            return
        yield json.loads(body.decode("utf-8", "surrogatepass"))
