"""Refuse requests that a proxy in front could read differently (request smuggling).

h11 accepts what many servers once did: lines that end with a line feed alone, headers that continue on the
next line, and Content-Length beside Transfer-Encoding. RFC 9112 lets a server refuse all of them.
"""

from h11 import RemoteProtocolError
from h11._receivebuffer import ReceiveBuffer

MAX_CHUNKS = 10_000  # of a body: reading a chunk takes as long as kilobytes of another one
LENGTH, ENCODING = b"content-length", b"transfer-encoding"


class StrictReceiveBuffer(ReceiveBuffer):
    """The buffer of a connection, which looks at the bytes of a request line and its headers."""

    def __init__(self) -> None:
        super().__init__()
        self.problem = ""  # for the response
        self._is_extracting_lines = False
        self._num_chunks = 0  # of the body that is being received

    def maybe_extract_lines(self) -> list[bytearray] | None:
        self._is_extracting_lines = True
        self._num_chunks = 0
        try:
            return super().maybe_extract_lines()
        finally:
            self._is_extracting_lines = False

    def maybe_extract_next_line(self) -> bytearray | None:
        """Extract the line with the size of a chunk."""
        line = super().maybe_extract_next_line()
        if line is not None:
            self._num_chunks += 1
            if self._num_chunks > MAX_CHUNKS:
                self.problem = f"the body has more than {MAX_CHUNKS} chunks"
            elif b"\r" in line[:-2]:
                self.problem = "the line with the size of a chunk has a CR without LF"
            if self.problem:
                raise RemoteProtocolError(self.problem)
        return line

    def _extract(self, count: int) -> bytearray:
        part = super()._extract(count)
        if self._is_extracting_lines and (problem := find_problem(bytes(part))):
            self.problem = problem
            raise RemoteProtocolError(problem)
        return part


def find_problem(head: bytes) -> str:
    """Return what is wrong with a request line and its headers, or with trailers; nothing: an empty text."""
    num_lines = head.count(b"\r\n")
    if head.count(b"\n") != num_lines or head.count(b"\r") != num_lines:
        return "a line of the headers does not end with CR LF"
    if b"\r\n " in head or b"\r\n\t" in head:
        return "a header continues on the next line"
    fields = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
    names = [name.strip().lower() for name, _, _ in fields]
    if LENGTH in names and ENCODING in names:
        return "Content-Length and Transfer-Encoding cannot be sent together"
    if any(name == LENGTH and b"," in value for name, (_, _, value) in zip(names, fields, strict=True)):
        return "Content-Length has several values"
    if names.count(LENGTH) > 1 or names.count(ENCODING) > 1:
        return "Content-Length or Transfer-Encoding is sent twice"
    return ""
