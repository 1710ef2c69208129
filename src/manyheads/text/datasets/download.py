"""One file from one address: resumed where it broke off, checked, and never half there under its own name."""

import hashlib
import http.client
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from manyheads.errors import DataError
from manyheads.progress import Progress

if sys.platform != "win32":
    import fcntl

CHUNK_BYTES = 1 << 16
TIMEOUT_SECONDS = 30.0  # seconds without a byte
RETRY_DELAYS = (1.0, 3.0, 9.0)  # seconds before each new attempt
RETRYABLE_STATUSES = (408, 425, 429, 500, 502, 503, 504)  # statuses worth another attempt
REMEDY = "if it has moved, give its new address in a file: --table FILE (docs/corpora.md)"


@dataclass(frozen=True)
class DownloadedFile:
    """A file that is whole, and what was seen of it."""

    url: str
    path: Path
    size: int
    sha256: str


class InterruptedDownloadError(Exception):
    """An attempt ended early; what has come is kept, and another attempt goes on from there."""


class HttpRedirectHandler(urllib.request.HTTPRedirectHandler):
    """A server may send us to another address of the web, and nowhere else."""

    def redirect_request(
        self, request: urllib.request.Request, answer: IO[bytes], code: int, why: str, headers: Any, new: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(new).scheme not in ("http", "https"):
            raise DataError(f"{request.full_url} leads to {new}, which is not on the web; not followed")
        return super().redirect_request(request, answer, code, why, headers, new)


def download(
    url: str,
    path: Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    size: int | None = None,
    progress: Progress | None = None,
    retry_delays: Sequence[float] = RETRY_DELAYS,
    timeout: float = TIMEOUT_SECONDS,
) -> DownloadedFile:
    """The file at `path`: what is there already if it is right, otherwise fetched, checked and renamed."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https", "file"):
        raise DataError(f"{url} is not an address that begins with http:, https: or file:")
    if path.exists():
        seen = compute_checksums(path)
        if not describe_mismatch(seen, sha256, md5, size):
            return DownloadedFile(url, path, seen["size"], seen["sha256"])
        path.unlink()  # the table now asks for another file
    part = PartialFile(path, url)
    with lock_partial_file(part):
        fetch_with_retries(part, progress or Progress(), retry_delays, timeout)
        seen = compute_checksums(part.path)
        if wrong := describe_mismatch(seen, sha256, md5, size):
            part.remove()
            raise DataError(f"{url} is not the file that the table describes: {wrong}; removed; {REMEDY}")
        part.finish()
    return DownloadedFile(url, path, seen["size"], seen["sha256"])


def compute_checksums(path: Path) -> dict[str, Any]:
    """Size and sums of a file, in one reading."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            sha256.update(chunk)
            md5.update(chunk)
    return {"size": path.stat().st_size, "sha256": sha256.hexdigest(), "md5": md5.hexdigest()}


def describe_mismatch(seen: dict[str, Any], sha256: str | None, md5: str | None, size: int | None) -> str:
    """How the file differs from what was published; empty when it does not."""
    published = {"size": size, "sha256": sha256, "md5": md5}
    return ", ".join(
        f"{what} {seen[what]} instead of {wanted}"
        for what, wanted in published.items()
        if wanted is not None and seen[what] != wanted
    )


class PartialFile:
    """`NAME.part` and, beside it, `NAME.part.json`: which version of the file the bytes belong to."""

    def __init__(self, final: Path, address: str) -> None:
        self.final, self.url = final, address
        self.path = final.with_name(final.name + ".part")
        self.metadata_path = final.with_name(final.name + ".part.json")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def read_metadata(self) -> dict[str, Any]:
        """What is known of the file whose beginning is here; nothing, if that cannot be told."""
        try:
            memo = json.loads(self.metadata_path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return memo if isinstance(memo, dict) and memo.get("address") == self.url else {}

    def write_metadata(self, version: str | None, length: int | None) -> None:
        memo = {"address": self.url, "version": version, "length": length}
        self.metadata_path.write_text(json.dumps(memo), encoding="utf-8")

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.metadata_path.unlink(missing_ok=True)

    def finish(self) -> None:
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(self.path, self.final)
        self.metadata_path.unlink(missing_ok=True)


@contextmanager
def lock_partial_file(part: PartialFile) -> Iterator[None]:
    """One process at a time, where the system can lock a file. A killed process leaves no lock behind."""
    part.path.parent.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    with part.path.open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"another process is fetching {part.final}; let it finish first") from None
        except OSError:  # a file system without locks
            pass
        try:
            yield
        finally:
            if not part.size:
                part.remove()


def fetch_with_retries(part: PartialFile, progress: Progress, waits: Sequence[float], timeout: float) -> None:
    """Attempt after attempt. One that brought the file further than ever before does not count as lost."""
    furthest, lost = part.size, 0
    while True:
        try:
            return fetch_once(part, progress, timeout)
        except InterruptedDownloadError as fault:
            lost = 0 if part.size > furthest else lost + 1
            furthest = max(furthest, part.size)
            if lost > len(waits) or not waits:
                kept = f"; {part.size:,} bytes are kept, run again to go on" if part.size else ""
                raise DataError(f"{part.url} could not be fetched: {fault}{kept}; {REMEDY}") from fault
            wait = waits[max(lost - 1, 0)]
            progress.message(f"{part.final.name}: {fault}; again in {wait:g} s")
            time.sleep(wait)


def fetch_once(part: PartialFile, progress: Progress, timeout: float) -> None:
    """One request, for what is missing."""
    memo, have = part.read_metadata(), part.size
    version, length = memo.get("version"), memo.get("length")
    if have and have == length:
        return
    headers = {"User-Agent": "manyheads (get)", "Accept-Encoding": "identity"}
    if have and version and (length is None or have < length):
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    with open_url(part, urllib.request.Request(part.url, headers=headers), timeout) as answer:
        resumed = "Range" in headers and answer.status == 206
        if resumed and not (answer.headers.get("Content-Range") or "").startswith(f"bytes {have}-"):
            part.remove()
            raise InterruptedDownloadError("the server sent another range than was asked for")
        start = have if resumed else 0
        announced = answer.headers.get("Content-Length")
        total = start + int(announced) if announced and announced.isdigit() else None
        part.write_metadata(get_version(answer.headers), total)
        receive(answer, part, start, total, progress)


def get_version(headers: Any) -> str | None:
    """What a later If-Range may say: a strong tag, or else the date. A weak tag promises no equal bytes."""
    tag = headers.get("ETag")
    found = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")
    return str(found) if found else None


def open_url(part: PartialFile, request: urllib.request.Request, timeout: float) -> Any:
    """The server's answer; its refusals and the network's faults as our own errors."""
    try:
        return urllib.request.build_opener(HttpRedirectHandler).open(request, timeout=timeout)
    except urllib.error.HTTPError as refusal:
        with refusal:
            if refusal.code == 416:  # what is here is longer than the file: it is another one now
                part.remove()
                raise InterruptedDownloadError("the file became shorter") from refusal
            if refusal.code in RETRYABLE_STATUSES:
                raise InterruptedDownloadError(
                    f"the server answers {refusal.code} {refusal.reason}"
                ) from refusal
            said = f"the server answers {refusal.code} {' '.join(str(refusal.reason).split())}"
            raise DataError(f"{part.url} cannot be fetched: {said}; {REMEDY}") from refusal
    except urllib.error.URLError as fault:
        final = isinstance(fault.reason, ssl.SSLCertVerificationError) or part.url.startswith("file:")
        if final:
            raise DataError(f"{part.url} cannot be fetched: {fault.reason}; {REMEDY}") from fault
        raise InterruptedDownloadError(
            f"the network says: {fault.reason} (is this machine online?)"
        ) from fault
    except (OSError, http.client.HTTPException) as fault:  # while the answer's first lines were read
        raise InterruptedDownloadError(f"the connection broke: {fault or type(fault).__name__}") from fault


def receive(answer: Any, part: PartialFile, start: int, total: int | None, progress: Progress) -> None:
    """The bytes of the answer, behind those that are here. A full disk is an OSError, and passes up."""
    name, done = part.final.name, start
    with part.path.open("ab" if start else "wb") as file:
        while True:
            progress.update(name, done, total)
            try:
                chunk = answer.read(CHUNK_BYTES)
            except (OSError, http.client.HTTPException) as fault:
                raise InterruptedDownloadError(
                    f"the connection broke after {done:,} bytes: {fault}"
                ) from fault
            if not chunk:
                break
            file.write(chunk)
            done += len(chunk)
    if total is not None and done != total:
        raise InterruptedDownloadError(f"{done:,} bytes came, {total:,} were announced")
