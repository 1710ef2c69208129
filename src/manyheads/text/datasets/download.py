"""Download a file: resumed after an interruption, checked, and never incomplete under its final name."""

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

from manyheads.atomic_io import report_disk_full
from manyheads.errors import DataError
from manyheads.progress import Progress

if sys.platform != "win32":
    import fcntl

CHUNK_BYTES = 1 << 16
TIMEOUT_SECONDS = 30.0  # without a byte
RETRY_DELAYS = (1.0, 3.0, 9.0)  # seconds before each retry
RETRYABLE_STATUSES = (408, 425, 429, 500, 502, 503, 504)
REMEDY = "if it has moved, give its new URL in a file: --catalog FILE (docs/corpora.md)"


@dataclass(frozen=True)
class DownloadedFile:
    """A complete file with its size and checksum."""

    url: str
    path: Path
    size: int
    sha256: str


class InterruptedDownloadError(Exception):
    """An attempt failed or ended early. The bytes received are kept, and another attempt resumes."""


class HttpRedirectHandler(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only."""

    def redirect_request(
        self,
        request: urllib.request.Request,
        response: IO[bytes],
        code: int,
        message: str,
        headers: Any,
        url: str,
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise DataError(
                f"{request.full_url} redirects to {url}, which is not http or https; not followed"
            )
        return super().redirect_request(request, response, code, message, headers, url)


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
    """Return the file at `path` if it is there and as expected; otherwise download, check and rename it."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https", "file"):
        raise DataError(f"{url} is not a URL that starts with http:, https: or file:")
    if path.exists():
        actual = compute_checksums(path)
        if not describe_mismatch(actual, sha256, md5, size):
            return DownloadedFile(url, path, actual["size"], actual["sha256"])
        path.unlink()  # the catalog now describes another file
    part = PartialFile(path, url)
    with lock_partial_file(part):
        fetch_with_retries(part, progress or Progress(), retry_delays, timeout)
        actual = compute_checksums(part.path)
        if mismatch := describe_mismatch(actual, sha256, md5, size):
            part.remove()
            raise DataError(f"{url} is not the file of the catalog: {mismatch}; removed; {REMEDY}")
        part.finish()
    return DownloadedFile(url, path, actual["size"], actual["sha256"])


def compute_checksums(path: Path) -> dict[str, Any]:
    """Return the size and checksums of a file."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            sha256.update(chunk)
            md5.update(chunk)
    return {"size": path.stat().st_size, "sha256": sha256.hexdigest(), "md5": md5.hexdigest()}


def describe_mismatch(actual: dict[str, Any], sha256: str | None, md5: str | None, size: int | None) -> str:
    """Describe how the file differs from what is expected; empty if it does not."""
    expected = {"size": size, "sha256": sha256, "md5": md5}
    return ", ".join(
        f"{key} {actual[key]} instead of {value}"
        for key, value in expected.items()
        if value is not None and actual[key] != value
    )


class PartialFile:
    """`NAME.part`, and `NAME.part.json` with the version of the file that the bytes belong to."""

    def __init__(self, final: Path, url: str) -> None:
        self.final, self.url = final, url
        self.path = final.with_name(final.name + ".part")
        self.metadata_path = final.with_name(final.name + ".part.json")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def read_metadata(self) -> dict[str, Any]:
        """Return the URL, version and length of the partial file, or nothing if they are unknown."""
        try:
            metadata = json.loads(self.metadata_path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return metadata if isinstance(metadata, dict) and metadata.get("url") == self.url else {}

    def write_metadata(self, version: str | None, length: int | None) -> None:
        metadata = {"url": self.url, "version": version, "length": length}
        self.metadata_path.write_text(json.dumps(metadata), encoding="utf-8")

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
    """Allow one process at a time, where files can be locked. A killed process leaves no lock."""
    part.path.parent.mkdir(parents=True, exist_ok=True)
    for path in (part.path, part.metadata_path):
        if path.is_symlink():  # what it points to is not ours to write, nor to resume
            path.unlink()
    if sys.platform == "win32":
        yield
        return
    with part.path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"another process is downloading {part.final}; wait for it") from None
        except OSError:  # a file system without locks
            pass
        try:
            yield
        finally:
            if not part.size:
                part.remove()


def fetch_with_retries(
    part: PartialFile, progress: Progress, retry_delays: Sequence[float], timeout: float
) -> None:
    """Retry after each delay. An attempt that got further than all before does not count as failed."""
    furthest, num_failed = part.size, 0
    while True:
        try:
            return fetch_once(part, progress, timeout)
        except InterruptedDownloadError as error:
            num_failed = 0 if part.size > furthest else num_failed + 1
            furthest = max(furthest, part.size)
            if num_failed > len(retry_delays) or not retry_delays:
                kept = f"; {part.size:,} bytes are kept, run again to resume" if part.size else ""
                raise DataError(f"{part.url} could not be downloaded: {error}{kept}; {REMEDY}") from error
            delay = retry_delays[max(num_failed - 1, 0)]
            progress.message(f"{part.final.name}: {error}; retrying in {delay:g} s")
            time.sleep(delay)


def fetch_once(part: PartialFile, progress: Progress, timeout: float) -> None:
    """Request the missing bytes once."""
    metadata, have = part.read_metadata(), part.size
    version, length = metadata.get("version"), metadata.get("length")
    if have and have == length:
        return
    headers = {"User-Agent": "manyheads (get)", "Accept-Encoding": "identity"}
    if have and version and (length is None or have < length):
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    with open_url(part, urllib.request.Request(part.url, headers=headers), timeout) as response:
        is_resumed = "Range" in headers and response.status == 206
        if is_resumed and not (response.headers.get("Content-Range") or "").startswith(f"bytes {have}-"):
            part.remove()
            raise InterruptedDownloadError("the server sent another range than requested")
        start = have if is_resumed else 0
        announced = response.headers.get("Content-Length")
        total = start + int(announced) if announced and announced.isdigit() else None
        part.write_metadata(get_version(response.headers), total)
        receive(response, part, start, total, progress)


def get_version(headers: Any) -> str | None:
    """Return the validator for If-Range: a strong ETag, or else the date. A weak ETag is not enough."""
    tag = headers.get("ETag")
    version = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")
    return str(version) if version else None


def open_url(part: PartialFile, request: urllib.request.Request, timeout: float) -> Any:
    """Open the URL. Errors become DataError, or InterruptedDownloadError if a retry may help."""
    try:
        return urllib.request.build_opener(HttpRedirectHandler).open(request, timeout=timeout)
    except urllib.error.HTTPError as refusal:
        with refusal:
            if refusal.code == 416:  # the partial file is longer than the file, which has changed
                part.remove()
                raise InterruptedDownloadError("the file became shorter") from refusal
            if refusal.code in RETRYABLE_STATUSES:
                raise InterruptedDownloadError(
                    f"the server replies {refusal.code} {refusal.reason}"
                ) from refusal
            reason = f"the server replies {refusal.code} {' '.join(str(refusal.reason).split())}"
            raise DataError(f"{part.url} cannot be downloaded: {reason}; {REMEDY}") from refusal
    except urllib.error.URLError as error:
        is_final = isinstance(error.reason, ssl.SSLCertVerificationError) or part.url.startswith("file:")
        if is_final:
            raise DataError(f"{part.url} cannot be downloaded: {error.reason}; {REMEDY}") from error
        raise InterruptedDownloadError(f"network error: {error.reason} (is this machine online?)") from error
    except (OSError, http.client.HTTPException) as error:  # while the response headers were read
        raise InterruptedDownloadError(f"the connection was lost: {error or type(error).__name__}") from error


def receive(response: Any, part: PartialFile, start: int, total: int | None, progress: Progress) -> None:
    """Append the bytes of the response to the partial file. A full disk raises ResourceError."""
    name, done = part.final.name, start
    with part.path.open("ab" if start else "wb") as file:
        while True:
            progress.update(name, done, total)
            try:
                chunk = response.read(CHUNK_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise InterruptedDownloadError(
                    f"the connection was lost after {done:,} bytes: {error}"
                ) from error
            if not chunk:
                break
            with report_disk_full(part.path, None if total is None else total - done, "The part is kept"):
                file.write(chunk)
                file.flush()
            done += len(chunk)
    if total is not None and done != total:
        raise InterruptedDownloadError(f"{done:,} bytes received, {total:,} announced")
