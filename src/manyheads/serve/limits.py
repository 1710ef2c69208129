"""The limits of the server, each with its default."""

import math
from dataclasses import dataclass, fields

from manyheads.errors import ConfigError


@dataclass(frozen=True)
class ServerLimits:
    """Exceeding a limit is answered with a 4xx status; for the queue, time and memory it is 503."""

    max_body_bytes: int = 2**20
    max_characters: int = 10_000  # of all texts of a request
    max_texts: int = 100  # per request
    max_alternatives: int = 8
    max_form_fields: int = 1000  # of a form or a query string
    max_numbers: int = 2_000_000  # of a response with attention maps or a walk
    queue_size: int = 256  # waiting requests
    batch_tokens: int = 2**14  # source tokens that are translated together
    batch_wait: float = 0.002  # seconds that the first request of a batch waits for others
    request_timeout: float = 30.0  # seconds from the request to its response
    client_timeout: float = 10.0  # seconds for a client to send its headers or body, or to read its response
    max_header_bytes: int = 2**17  # of the request line and headers
    max_connections: int = 4000
    max_buffered_bytes: int = 2**25  # of all bodies that are being received

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not math.isfinite(value):
                raise ConfigError(f"the server limit {field.name} is {value}, but must be finite")
            if value < 0 or (value == 0 and field.name not in ("max_alternatives", "batch_wait")):
                raise ConfigError(f"the server limit {field.name} is {value}, but must be greater than 0")
