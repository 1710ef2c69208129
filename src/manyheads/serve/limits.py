"""How much the server takes, and for how long it waits. Each default has its home here."""

import math
from dataclasses import dataclass, fields

from manyheads.errors import ConfigError


@dataclass(frozen=True)
class ServerLimits:
    """Each is a clear 4xx when it is passed, but for those of the queue and of memory: they are 503."""

    max_body_bytes: int = 2**20  # bytes
    max_characters: int = 10_000  # of all texts of a request
    max_texts: int = 100  # of a request
    max_alternatives: int = 8
    max_form_fields: int = 1000  # of a form or a query string
    max_numbers: int = 2_000_000  # of all attention maps of an answer
    queue_size: int = 256  # requests that wait
    batch_tokens: int = 1024  # of sources that are translated together
    batch_wait: float = 0.002  # seconds that the first of a batch waits for company
    request_timeout: float = 30.0  # seconds from when a request is read to its answer
    client_timeout: float = 10.0  # seconds for a client to send its headers, its body, or to take its answer
    max_header_bytes: int = 2**17  # bytes of a request's line and headers
    max_connections: int = 4000
    max_buffered_bytes: int = 2**25  # bytes of all bodies that are being received

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not math.isfinite(value):
                raise ConfigError(f"the server's limit {one.name} is {value}, but must be finite")
            if value < 0 or (value == 0 and one.name not in ("alternatives", "gather")):
                raise ConfigError(f"the server's limit {one.name} is {value}, but must be above 0")
