"""The limits of the server, each with its default."""

import math
from dataclasses import dataclass, fields

from manyheads.errors import ConfigError, RequestError
from manyheads.serve.jobs import JobSize

MAY_BE_ZERO = ("max_alternatives", "batch_wait", "max_requests_per_minute")


@dataclass(frozen=True)
class ServerLimits:
    """Exceeding a limit is answered with a 4xx status; for the queue, time and memory it is 503,
    and 429 for what one client may have."""

    max_body_bytes: int = 2**20
    max_characters: int = 10_000  # of all texts of a request
    max_texts: int = 100  # per request
    max_alternatives: int = 8
    max_sentences: int = 1000  # of all texts of a request
    max_beam_tokens: int = 2**15  # tokens of a request, forced ones too, times the hypotheses of the search
    max_glossary_terms: int = 1000  # of a glossary in a request; stored ones may have more
    max_form_fields: int = 1000  # of a form or a query string
    max_numbers: int = 2_000_000  # of a response with attention maps or a walk
    queue_size: int = 256  # waiting requests
    batch_tokens: int = 2**14  # source tokens that are translated together
    batch_wait: float = 0.002  # seconds that the first request of a batch waits for others
    request_timeout: float = 30.0  # seconds from the request to its response
    client_timeout: float = 10.0  # seconds for a client to send its headers or body, or to read its response
    max_header_bytes: int = 2**17  # of the request line and headers
    max_connections: int = 4000
    max_wrong_keys: int = 10  # API keys of one address in a minute
    max_buffered_bytes: int = 2**25  # of all bodies that are being received
    max_requests_per_minute: int = 0  # of one address; 0: any number
    max_file_bytes: int = 2**23  # of the body of a request with a document
    max_file_characters: int = 200_000  # of all texts of a document
    file_timeout: float = 300.0  # seconds for a document
    max_corrections: int = 30  # that a user may suggest in a minute
    max_stored_corrections: int = 100_000  # of a user, for each model

    @property
    def stop_seconds(self) -> float:
        """How long requests that were accepted may take when the server stops."""
        return max(self.request_timeout, self.file_timeout) + 2 * self.client_timeout

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not math.isfinite(value):
                raise ConfigError(f"the server limit {field.name} is {value}, but must be finite")
            if value < 0 or (value == 0 and field.name not in MAY_BE_ZERO):
                raise ConfigError(f"the server limit {field.name} is {value}, but must be greater than 0")

    def check_work(self, size: JobSize) -> None:
        """Refuse a request that would take too long to decode."""
        num_tokens, num_sentences, num_hypotheses = size
        if num_sentences > self.max_sentences:
            raise RequestError(
                f"the request has {num_sentences} sentences, but the maximum is {self.max_sentences}: send "
                f"fewer at once"
            )
        if num_tokens * num_hypotheses > self.max_beam_tokens:
            raise RequestError(
                f"the request has {num_tokens} tokens, but the maximum is "
                f"{self.max_beam_tokens // num_hypotheses} for a search with {num_hypotheses} hypotheses: "
                f"send less text at once, or ask for fewer alternatives"
            )

    def check_forced_work(self, num_beam_tokens: int) -> None:
        """Refuse a prefix or terms that take too long to force: each required token is a hypothesis."""
        if num_beam_tokens > self.max_beam_tokens:
            raise RequestError(
                f"the prefix and the terms of the glossary make {num_beam_tokens} tokens times hypotheses, "
                f"but the maximum is {self.max_beam_tokens}: shorten them, or send less text at once"
            )
