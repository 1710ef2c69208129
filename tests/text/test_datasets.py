"""Known corpora, fetched from a local server that fails in many ways. No test uses the network."""

import errno
import gzip
import hashlib
import io
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from manyheads.atomic_io import LockedError, open_locked
from manyheads.errors import ConfigError, DataError, RequestError, ResourceError
from manyheads.progress import Progress, ProgressBars, ProgressLines, create_progress
from manyheads.text.datasets.catalog import Catalog, CatalogEntry, CorpusPart, LanguagePair, load_catalog
from manyheads.text.datasets.download import PartialFile, download, get_version
from manyheads.text.datasets.get import get_corpus

ROOT = Path(__file__).parents[2]
BODY = bytes(range(256)) * 2000  # 512 kB
HALF = len(BODY) // 2
SHA256 = hashlib.sha256(BODY).hexdigest()
ENVIRONMENT = {**os.environ, "no_proxy": "*", "PYTHONPATH": str(ROOT / "src")}  # of other processes
NO_DELAYS = (0.0, 0.0, 0.0)
ENGLISH = "I go home.\nYou sleep.\nNEL\x85and LS\u2028stay inside a line\n"
GERMAN = "Ich gehe heim.\nDu schläfst.\nNEL\x85und LS\u2028bleiben in der Zeile\n"


# The server


class Site:
    """Files by path, and for each path a script: what goes wrong with the first request, the second, ..."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.scripts: dict[str, list[tuple[Any, ...]]] = {}
        self.tags: dict[str, str] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.sent: list[int] = []
        self.go_on = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                respond(site, self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:  # a client that hangs up is part of the play
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.go_on.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def put(self, path: str, body: bytes, *script: tuple[Any, ...]) -> str:
        self.files[path], self.scripts[path] = body, list(script)
        return self.base + path


def respond(site: Site, handler: BaseHTTPRequestHandler) -> None:
    path, headers = handler.path, dict(handler.headers)
    site.requests.append((path, headers))
    script = site.scripts.get(path, [])
    failure, *details = script.pop(0) if script else ("none",)
    if failure == "status" or path not in site.files:
        handler.send_error(details[0] if failure == "status" else 404)
        return
    if failure == "redirect":
        handler.send_response(302)
        handler.send_header("Location", details[0])
        handler.end_headers()
        return
    if failure == "becomes":
        site.files[path] = details[0]
    body = site.files[path]
    tag = f'"{hashlib.md5(body).hexdigest()}"'
    wanted = re.fullmatch(r"bytes=(\d+)-", headers.get("Range", ""))
    ranged = wanted and headers.get("If-Range") == tag and failure != "ignore range"
    start = int(wanted[1]) if wanted and ranged else 0
    if ranged and start >= len(body):
        handler.send_error(416)
        return
    handler.send_response(206 if ranged else 200)
    if failure != "no tag":
        handler.send_header("ETag", tag)
    if ranged:
        skew = 1 if failure == "wrong range" else 0
        handler.send_header("Content-Range", f"bytes {start + skew}-{len(body) - 1}/{len(body)}")
    lie = details[0] if failure == "lie" else 0
    handler.send_header("Content-Length", str(len(body) - start + lie))
    handler.end_headers()
    end = details[0] if failure in ("drop", "reset", "stall", "no tag") else len(body)
    site.sent.append(len(body[start:end]))  # before the client can have received them
    handler.wfile.write(body[start:end])
    handler.wfile.flush()
    if failure == "stall":
        site.go_on.wait(10)
    if failure == "reset":  # not even a polite end
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture(autouse=True)
def local_connections_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, and a connection to anywhere else is a failure of the test."""
    monkeypatch.setenv("no_proxy", "*")
    connect = socket.create_connection

    def guarded_connect(address: tuple[str, int], *args: Any, **kwargs: Any) -> socket.socket:
        assert address[0] == "127.0.0.1", f"a test connects to {address}"
        return connect(address, *args, **kwargs)

    monkeypatch.setattr(socket, "create_connection", guarded_connect)


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# One file


def test_a_download_is_complete_and_leaves_no_other_file(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY)
    downloaded = download(url, tmp_path / "file", sha256=SHA256, size=len(BODY))
    assert (tmp_path / "file").read_bytes() == BODY
    assert (downloaded.size, downloaded.sha256, downloaded.url) == (len(BODY), SHA256, url)
    assert list_names(tmp_path) == ["file"]
    assert site.requests[0][1]["User-Agent"].startswith("manyheads")


@pytest.mark.parametrize("failure", ["drop", "reset"])
def test_a_dropped_connection_is_resumed(site: Site, tmp_path: Path, failure: str) -> None:
    url = site.put("/file", BODY, (failure, HALF), (failure, HALF + 1000))
    download(url, tmp_path / "file", sha256=SHA256, retry_delays=NO_DELAYS)
    assert (tmp_path / "file").read_bytes() == BODY
    ranges = [headers.get("Range") for _, headers in site.requests]
    assert ranges[0] is None
    if failure == "drop":  # a reset may lose the last bytes
        assert ranges[1:] == [f"bytes={HALF}-", f"bytes={HALF + 1000}-"]
        assert sum(site.sent) == len(BODY)
    assert list_names(tmp_path) == ["file"]


def test_a_killed_download_is_resumed_by_the_next_process(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY, ("stall", HALF))
    code = (
        "import sys, pathlib; from manyheads.text.datasets.download import download; "
        "download(sys.argv[1], pathlib.Path(sys.argv[2]))"
    )
    part = tmp_path / "file.part"
    victim = subprocess.Popen([sys.executable, "-c", code, url, str(tmp_path / "file")], env=ENVIRONMENT)
    try:
        while not part.exists() or part.stat().st_size < HALF - 2**16:
            assert victim.poll() is None, "the process ended by itself"
    finally:
        victim.kill()
        victim.wait()
        site.go_on.set()
    assert list_names(tmp_path) == ["file.part", "file.part.json"]
    kept = part.stat().st_size
    assert 0 < kept <= HALF
    download(url, tmp_path / "file", sha256=SHA256)
    assert site.sent[-1] == len(BODY) - kept
    assert (tmp_path / "file").read_bytes() == BODY


def test_an_interrupt_leaves_a_partial_file_and_never_the_final_name(site: Site, tmp_path: Path) -> None:
    class Impatient(Progress):
        def update(self, stage: str, done: int, total: int | None) -> None:
            if done >= HALF:
                raise KeyboardInterrupt

    url = site.put("/file", BODY)
    with pytest.raises(KeyboardInterrupt):
        download(url, tmp_path / "file", progress=Impatient())
    assert list_names(tmp_path) == ["file.part", "file.part.json"]
    kept = (tmp_path / "file.part").stat().st_size
    download(url, tmp_path / "file", sha256=SHA256)
    assert site.requests[-1][1]["Range"] == f"bytes={kept}-"


def test_a_complete_file_that_was_not_yet_renamed_is_not_requested_again(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY)
    part = PartialFile(tmp_path / "file", url)
    part.path.write_bytes(BODY)
    part.write_metadata('"tag"', len(BODY))
    download(url, tmp_path / "file", sha256=SHA256)
    assert site.requests == []


def test_a_server_that_ignores_the_range_starts_over(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY, ("drop", HALF), ("ignore range",))
    download(url, tmp_path / "file", sha256=SHA256, retry_delays=NO_DELAYS)
    assert [headers.get("Range") for _, headers in site.requests] == [None, f"bytes={HALF}-"]
    assert (tmp_path / "file").read_bytes() == BODY


def test_a_file_that_changed_between_two_attempts_is_not_mixed(site: Site, tmp_path: Path) -> None:
    other = BODY[::-1]
    url = site.put("/file", BODY, ("drop", HALF), ("becomes", other))
    download(url, tmp_path / "file", retry_delays=NO_DELAYS)
    assert "If-Range" in site.requests[1][1]
    assert (tmp_path / "file").read_bytes() == other


def test_a_file_that_became_shorter_starts_over(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY)
    part = PartialFile(tmp_path / "file", url)
    part.path.write_bytes(BODY + b"more")
    part.write_metadata(f'"{hashlib.md5(BODY).hexdigest()}"', None)
    download(url, tmp_path / "file", sha256=SHA256, retry_delays=NO_DELAYS)
    assert [headers.get("Range") for _, headers in site.requests] == [f"bytes={len(BODY) + 4}-", None]


def test_another_range_than_requested_is_refused(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY, ("drop", HALF), ("wrong range",))
    download(url, tmp_path / "file", sha256=SHA256, retry_delays=NO_DELAYS)
    assert [headers.get("Range") for _, headers in site.requests] == [None, f"bytes={HALF}-", None]
    assert (tmp_path / "file").read_bytes() == BODY


def test_without_a_tag_nothing_is_resumed(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY, ("no tag", HALF))
    download(url, tmp_path / "file", sha256=SHA256, retry_delays=NO_DELAYS)
    assert [headers.get("Range") for _, headers in site.requests] == [None, None]


def test_a_weak_tag_is_not_used_to_resume() -> None:
    date = "Sun, 15 Nov 2026 12:00:00 GMT"
    assert get_version({"ETag": '"a"', "Last-Modified": date}) == '"a"'
    assert get_version({"ETag": 'W/"a"', "Last-Modified": date}) == date
    assert get_version({"ETag": 'W/"a"'}) is None


def test_bytes_of_another_url_are_not_resumed(site: Site, tmp_path: Path) -> None:
    part = PartialFile(tmp_path / "file", "http://127.0.0.1/elsewhere")
    part.path.write_bytes(b"other")
    part.write_metadata('"tag"', 10)
    download(site.put("/file", BODY), tmp_path / "file", sha256=SHA256)
    assert "Range" not in site.requests[0][1]


def test_a_truncated_file_is_an_error_that_keeps_the_bytes_received(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY, *[("drop", HALF)] * 9)
    with pytest.raises(
        DataError, match=r"256,000 bytes received, 512,000 announced; 256,000 bytes are kept"
    ) as error:
        download(url, tmp_path / "file", retry_delays=NO_DELAYS)
    assert url in str(error.value)
    assert len(site.requests) == 5  # one that got further, one for each delay, and one more
    assert list_names(tmp_path) == ["file.part", "file.part.json"]


def test_a_server_that_announces_more_than_it_has_is_an_error(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY, *[("lie", 7)] * 9)
    with pytest.raises(DataError, match="could not be downloaded"):
        download(url, tmp_path / "file", retry_delays=NO_DELAYS)
    assert not (tmp_path / "file").exists()


def test_attempts_that_make_progress_are_not_counted(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY, *[("drop", 50_000 * step) for step in range(1, 10)])
    download(url, tmp_path / "file", sha256=SHA256, retry_delays=(0.0,))
    assert len(site.requests) == 10


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_temporary_server_error_is_retried(site: Site, tmp_path: Path, status: int) -> None:
    url = site.put("/file", BODY, ("status", status), ("status", status))
    download(url, tmp_path / "file", sha256=SHA256, retry_delays=NO_DELAYS)
    assert len(site.requests) == 3


def test_a_lasting_server_error_is_an_error(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY, *[("status", 503)] * 9)
    with pytest.raises(DataError, match="the server replies 503 Service Unavailable"):
        download(url, tmp_path / "file", retry_delays=NO_DELAYS)
    assert len(site.requests) == 4


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_missing_file_names_the_url_the_status_and_the_remedy(
    site: Site, tmp_path: Path, status: int
) -> None:
    url = site.put("/file", BODY, ("status", status))
    with pytest.raises(DataError) as error:
        download(url, tmp_path / "file", retry_delays=NO_DELAYS)
    for word in (url, str(status), "--catalog"):
        assert word in str(error.value)
    assert len(site.requests) == 1
    assert list_names(tmp_path) == []


@pytest.mark.parametrize("sums", [{"sha256": "0" * 64}, {"md5": "0" * 32}, {"size": 3}])
def test_a_wrong_file_is_removed_and_both_checksums_are_shown(
    site: Site, tmp_path: Path, sums: dict[str, Any]
) -> None:
    url = site.put("/file", BODY)
    with pytest.raises(DataError) as error:
        download(url, tmp_path / "file", **sums)
    ours = {"sha256": SHA256, "md5": hashlib.md5(BODY).hexdigest(), "size": len(BODY)}
    for what, wanted in sums.items():
        assert f"{what} {ours[what]} instead of {wanted}" in str(error.value)
    assert list_names(tmp_path) == []


def test_an_existing_correct_file_is_not_downloaded_again(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY)
    first = download(url, tmp_path / "file", sha256=SHA256)
    assert download(url, tmp_path / "file", sha256=SHA256) == first
    assert len(site.requests) == 1


def test_an_existing_wrong_file_is_downloaded_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"of an older catalog")
    download(site.put("/file", BODY), tmp_path / "file", sha256=SHA256)
    assert (tmp_path / "file").read_bytes() == BODY


def test_an_http_redirect_is_followed(site: Site, tmp_path: Path) -> None:
    site.put("/there", BODY)
    download(site.put("/here", b"", ("redirect", "/there")), tmp_path / "file", sha256=SHA256)
    assert (tmp_path / "file").read_bytes() == BODY


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/file"])
def test_a_redirect_to_another_scheme_is_refused(site: Site, tmp_path: Path, place: str) -> None:
    url = site.put("/file", BODY, ("redirect", place))
    with pytest.raises(DataError, match=re.escape(place)):
        download(url, tmp_path / "file", retry_delays=NO_DELAYS)
    assert list_names(tmp_path) == []


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/a", "data:,a", "/etc/passwd", "gopher://a"])
def test_other_schemes_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="is not a URL that starts with http:, https: or file:"):
        download(url, tmp_path / "file")


def test_a_local_file_can_be_given_by_url(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(BODY)
    download((tmp_path / "mine").as_uri(), tmp_path / "file", sha256=SHA256)
    assert (tmp_path / "file").read_bytes() == BODY
    with pytest.raises(DataError, match="No such file"):
        download((tmp_path / "nothing").as_uri(), tmp_path / "other")


def test_a_missing_network_is_a_clear_error(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
    with pytest.raises(DataError, match=re.escape(url) + ".* network error: .*refused"):
        download(url, tmp_path / "file", retry_delays=NO_DELAYS)


@pytest.mark.skipif(sys.platform == "win32", reason="no flock")
def test_two_processes_do_not_write_one_file(site: Site, tmp_path: Path) -> None:
    import fcntl

    url = site.put("/file", BODY)
    with (tmp_path / "file.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process is downloading"):
            download(url, tmp_path / "file")
    assert site.requests == []
    download(url, tmp_path / "file", sha256=SHA256)
    assert list_names(tmp_path) == ["file"]


def test_a_retry_is_announced(site: Site, tmp_path: Path) -> None:
    log = io.StringIO()
    url = site.put("/file", BODY, ("status", 503))
    download(url, tmp_path / "file", progress=ProgressLines(log), retry_delays=NO_DELAYS)
    assert log.getvalue().startswith("file: the server replies 503 Service Unavailable; retrying in 0 s\n")


def test_a_full_disk_is_not_reported_as_a_network_error(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    opened = Path.open
    full = lambda path, *mode, **more: Full() if path.suffix == ".part" else opened(path, *mode, **more)  # noqa: E731
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(ResourceError, match=r"/file\.part: the disk is full; about [\d,]+ bytes are needed"):
        download(site.put("/file", BODY), tmp_path / "file", retry_delays=NO_DELAYS)
    assert len(site.requests) == 1


# A corpus


def make_zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return buffer.getvalue()


def make_tar(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


PACKERS = {
    "c.zip": make_zip,
    "c.tgz": make_tar,
    "c.tar.gz": make_tar,
    "c.tar": lambda files: make_tar(files, "w"),
}
# A plain tar has no checksum of its contents.
DAMAGED = [
    (name, damage)
    for name in [*PACKERS, "c.{language}.gz"]
    for damage in ("cut", "flipped", "page")
    if (name, damage) != ("c.tar", "flipped")
]
SIDES = {"in/c.en": ENGLISH.encode(), "in/c.de": GERMAN.encode(), "in/c.fr": b"decoy\n"}


def make_catalog(**splits: list[CorpusPart]) -> Catalog:
    corpus = CatalogEntry("toy", "A toy", "CC0", "here", "here", splits, ["en-de"])
    return Catalog({}, {"toy": corpus})


def make_archive_catalog(site: Site, name: str, body: bytes, **more: Any) -> Catalog:
    return make_catalog(train=[CorpusPart(url=site.put(f"/{name}", body), member="in/c.{language}", **more)])


def read_text(folder: Path, name: str) -> str:
    return (folder / name).read_bytes().decode()


@pytest.mark.parametrize("name", PACKERS)
def test_both_sides_are_copied_out_of_an_archive_byte_for_byte(site: Site, tmp_path: Path, name: str) -> None:
    got = get_corpus(
        "toy", "en-de", tmp_path / "out", catalog=make_archive_catalog(site, name, PACKERS[name](SIDES))
    )
    assert (read_text(got.folder, "train.en"), read_text(got.folder, "train.de")) == (ENGLISH, GERMAN)
    assert got.splits["train"].pairs == 3  # \n alone ends a line
    assert list_names(got.folder) == ["downloads", "source.json", "train.de", "train.en"]


def test_a_pair_can_be_fetched_in_reverse(site: Site, tmp_path: Path) -> None:
    got = get_corpus("toy", "de-en", tmp_path, catalog=make_archive_catalog(site, "c.zip", make_zip(SIDES)))
    assert got.splits["train"].files == ["train.de", "train.en"]
    assert read_text(tmp_path, "train.de") == GERMAN


def test_a_file_for_each_side_is_decompressed_and_checked_by_language(site: Site, tmp_path: Path) -> None:
    english, german = gzip.compress(ENGLISH.encode()), gzip.compress(GERMAN.encode())
    site.put("/valid.en.gz", english)
    site.put("/valid.de.gz", german)
    sums = {"en": hashlib.md5(english).hexdigest(), "de": hashlib.md5(german).hexdigest()}
    url = site.base + "/valid.{language}.gz"
    got = get_corpus("toy", None, tmp_path / "a", catalog=make_catalog(valid=[CorpusPart(url=url, md5=sums)]))
    assert (read_text(got.folder, "valid.en"), read_text(got.folder, "valid.de")) == (ENGLISH, GERMAN)
    swapped = {"en": sums["de"], "de": sums["en"]}
    with pytest.raises(DataError, match=f"md5 {sums['en']} instead of {sums['de']}"):
        get_corpus(
            "toy", None, tmp_path / "b", catalog=make_catalog(valid=[CorpusPart(url=url, md5=swapped)])
        )


def test_parts_follow_each_other_in_the_order_of_the_catalog(site: Site, tmp_path: Path) -> None:
    unended = {"in/c.en": b"one", "in/c.de": b"eins"}  # the last line lacks its end
    packed = {"c.en.gz": gzip.compress(b"two\n"), "c.de.gz": gzip.compress(b"zwei\n")}
    parts = [
        CorpusPart(url=site.put("/1.tgz", make_tar(unended)), member="in/c.{language}"),
        CorpusPart(url=site.put("/2.tar", make_tar(packed, "w")), member="c.{language}.gz"),
        CorpusPart(url=site.put("/3.zip", make_zip(SIDES)), member="in/c.{language}", pairs=["fr-de"]),
    ]
    got = get_corpus("toy", "en-de", tmp_path, catalog=make_catalog(train=parts))
    assert (read_text(tmp_path, "train.en"), read_text(tmp_path, "train.de")) == (
        "one\ntwo\n",
        "eins\nzwei\n",
    )
    assert [download["url"] for download in got.splits["train"].downloads] == [parts[0].url, parts[1].url]


def test_sides_of_differing_length_are_refused_and_nothing_is_complete(site: Site, tmp_path: Path) -> None:
    catalog = make_archive_catalog(site, "c.zip", make_zip({"in/c.en": b"a\nb\n", "in/c.de": b"a\n"}))
    with pytest.raises(DataError, match="has 2 lines of en and 1 of de"):
        get_corpus("toy", "en-de", tmp_path, catalog=catalog)
    assert not {"train.en", "train.de", "source.json"} & set(list_names(tmp_path))


def test_an_empty_corpus_is_refused(site: Site, tmp_path: Path) -> None:
    catalog = make_archive_catalog(site, "c.zip", make_zip({"in/c.en": b"", "in/c.de": b""}))
    with pytest.raises(DataError, match="0 lines of en and 0 of de"):
        get_corpus("toy", "en-de", tmp_path, catalog=catalog)


@pytest.mark.parametrize(("name", "damage"), DAMAGED)
def test_a_damaged_archive_is_an_error_and_is_downloaded_again(
    site: Site, tmp_path: Path, name: str, damage: str
) -> None:
    noise = b"".join(hashlib.sha256(bytes([n])).hexdigest().encode() + b"\n" for n in range(200))
    sides = {"in/c.en": noise, "in/c.de": noise}
    good = gzip.compress(noise) if "{" in name else PACKERS[name](sides)
    middle = len(good) // 2
    bad = {
        "cut": good[: middle + 600],
        "flipped": good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :],
        "page": b"<html>Please log in</html>",
    }[damage]
    url = site.base + f"/{name}"
    catalog = make_catalog(train=[CorpusPart(url=url, member="in/c.{language}")])
    for language in ("en", "de"):
        site.put("/" + name.replace("{language}", language), bad)
    with pytest.raises(DataError, match=r"is damaged .* and was removed: run again to download it"):
        get_corpus("toy", "en-de", tmp_path, catalog=catalog)
    assert not (tmp_path / "source.json").exists()
    for language in ("en", "de"):
        site.put("/" + name.replace("{language}", language), good)
    assert get_corpus("toy", "en-de", tmp_path, catalog=catalog).splits["train"].pairs == 200


def test_a_missing_member_is_named(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no member in/c\.de; correct `member`"):
        get_corpus(
            "toy",
            "en-de",
            tmp_path,
            catalog=make_archive_catalog(site, "c.zip", make_zip({"in/c.en": b"a\n"})),
        )


def test_a_link_in_an_archive_is_not_followed(site: Site, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("in/c.en", "in/c.de"):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info)
    with pytest.raises(DataError, match="has no member"):
        get_corpus("toy", "en-de", tmp_path, catalog=make_archive_catalog(site, "c.tgz", buffer.getvalue()))


def test_names_in_an_archive_cannot_choose_a_path(site: Site, tmp_path: Path) -> None:
    files = {"../../evil.en": b"a\n", "../../evil.de": b"a\n"}
    catalog = make_catalog(
        train=[CorpusPart(url=site.put("/c.tgz", make_tar(files)), member="*evil.{language}")]
    )
    got = get_corpus("toy", "en-de", tmp_path / "deep" / "out", catalog=catalog)
    assert read_text(got.folder, "train.en") == "a\n"
    assert not list(tmp_path.rglob("evil*"))


def test_two_members_for_one_side_are_refused(site: Site, tmp_path: Path) -> None:
    files = {"a/c.en": b"a\n", "b/c.en": b"b\n", "a/c.de": b"a\n"}
    catalog = make_catalog(
        train=[CorpusPart(url=site.put("/c.zip", make_zip(files)), member="*/c.{language}")]
    )
    with pytest.raises(DataError, match="two members like"):
        get_corpus("toy", "en-de", tmp_path, catalog=catalog)


# The folder


def test_the_manifest_records_the_downloads(site: Site, tmp_path: Path) -> None:
    body = make_zip(SIDES)
    got = get_corpus("toy", "en-de", tmp_path, catalog=make_archive_catalog(site, "c.zip", body))
    page = json.loads((tmp_path / "source.json").read_text(encoding="utf-8"))
    seen = {"url": f"{site.base}/c.zip", "size": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    assert page["splits"]["train"]["downloads"] == [seen]
    assert (page["corpus"], page["pair"], page["license"]) == ("toy", "en-de", "CC0")
    assert got.sha256 == {seen["url"]: seen["sha256"]}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", page["date"])


def test_a_complete_folder_is_left_alone(site: Site, tmp_path: Path) -> None:
    catalog = make_archive_catalog(site, "c.zip", make_zip(SIDES))
    first = get_corpus("toy", "en-de", tmp_path, catalog=catalog)
    second = get_corpus("toy", "en-de", tmp_path, catalog=catalog)
    assert (first.is_new, second.is_new) == (True, False)
    assert second.splits == first.splits
    assert len(site.requests) == 1
    assert "nothing done" in second.to_text()


def test_force_downloads_again(site: Site, tmp_path: Path) -> None:
    catalog = make_archive_catalog(site, "c.zip", make_zip(SIDES))
    get_corpus("toy", "en-de", tmp_path, catalog=catalog)
    site.put("/c.zip", make_zip({"in/c.en": b"new\n", "in/c.de": b"neu\n"}))
    assert get_corpus("toy", "en-de", tmp_path, catalog=catalog, force=True).is_new
    assert read_text(tmp_path, "train.de") == "neu\n"


def test_a_lost_file_is_written_again_from_the_cached_download(site: Site, tmp_path: Path) -> None:
    catalog = make_archive_catalog(site, "c.zip", make_zip(SIDES))
    get_corpus("toy", "en-de", tmp_path, catalog=catalog)
    (tmp_path / "train.en").unlink()
    assert get_corpus("toy", "en-de", tmp_path, catalog=catalog).is_new
    assert read_text(tmp_path, "train.en") == ENGLISH
    assert len(site.requests) == 1


def test_one_cache_serves_two_folders(site: Site, tmp_path: Path) -> None:
    catalog = make_archive_catalog(site, "c.zip", make_zip(SIDES))
    for folder, pair in [("a", "en-de"), ("b", "de-en")]:
        get_corpus("toy", pair, tmp_path / folder, catalog=catalog, cache=tmp_path / "cache")
    assert len(site.requests) == 1
    assert "downloads" not in list_names(tmp_path / "a")


def test_equal_file_names_at_different_urls_do_not_collide(site: Site, tmp_path: Path) -> None:
    train = CorpusPart(url=site.put("/a/c.zip", make_zip(SIDES)), member="in/c.{language}")
    other = {"in/c.en": b"other\n", "in/c.de": b"anders\n"}
    valid = CorpusPart(url=site.put("/b/c.zip", make_zip(other)), member="in/c.{language}")
    get_corpus("toy", "en-de", tmp_path, catalog=make_catalog(train=[train], valid=[valid]))
    assert (read_text(tmp_path, "train.en"), read_text(tmp_path, "valid.en")) == (ENGLISH, "other\n")


def test_another_corpus_is_not_overwritten_without_force(site: Site, tmp_path: Path) -> None:
    first = make_archive_catalog(site, "c.zip", make_zip(SIDES))
    get_corpus("toy", "en-de", tmp_path, catalog=first)
    moved = CatalogEntry(
        "toy2", "t", "l", "h", "h", {"test": first.corpora["toy"].splits["train"]}, ["en-de"]
    )
    second = Catalog({}, {"toy2": moved})
    with pytest.raises(RequestError, match="holds toy en-de, not toy2 en-de; give another --out"):
        get_corpus("toy2", "en-de", tmp_path, catalog=second)
    get_corpus("toy2", "en-de", tmp_path, catalog=second, force=True)
    assert list_names(tmp_path) == ["downloads", "source.json", "test.de", "test.en"]


def test_a_page_of_someone_elses_is_not_taken_for_ours(site: Site, tmp_path: Path) -> None:
    (tmp_path / "source.json").write_text('{"mine": 1}')
    with pytest.raises(DataError, match="was not written by `get`"):
        get_corpus(
            "toy", "en-de", tmp_path, catalog=make_archive_catalog(site, "c.zip", make_zip(SIDES)), force=True
        )
    assert list_names(tmp_path) == ["source.json"]


def test_an_interrupted_corpus_goes_on_and_is_never_taken_for_complete(site: Site, tmp_path: Path) -> None:
    train = CorpusPart(url=site.put("/a.zip", make_zip(SIDES)), member="in/c.{language}")
    test = CorpusPart(url=site.put("/b.zip", make_zip(SIDES), ("status", 404)), member="in/c.{language}")
    catalog = make_catalog(train=[train], test=[test])
    with pytest.raises(DataError, match="404"):
        get_corpus("toy", "en-de", tmp_path, catalog=catalog)
    assert not {"train.en", "test.en", "source.json"} & set(list_names(tmp_path))
    get_corpus("toy", "en-de", tmp_path, catalog=catalog)
    assert [path for path, _ in site.requests] == ["/a.zip", "/b.zip", "/b.zip"]


# Other lists


def test_any_corpus_of_opus_is_found_through_its_interface(site: Site, tmp_path: Path) -> None:
    files = {
        "README": b"r",
        "Talks.en-ko.en": b"I\n",
        "Talks.en-ko.ko": "나\n".encode(),
        "Talks.en-ko.ids": b"1",
    }
    release = site.put("/OPUS-Talks/v1/moses/en-ko.txt.zip", make_zip(files))
    rows = [
        {"source": "ko", "target": "", "url": site.base + "/mono.gz"},
        {"source": "en", "target": "ko", "url": release, "size": 1, "version": "v1"},
    ]
    site.put("/api?corpus=Talks&from=en&to=ko", json.dumps({"corpora": rows}).encode())
    user_file = tmp_path / "own.toml"
    user_file.write_text(
        f'[urls]\nopus_interface = "{site.base}/api?corpus={{corpus}}&from={{first}}&to={{second}}"\n'
        f'opus_release = "{site.base}/OPUS-{{corpus}}/{{version}}/moses/{{first}}-{{second}}.txt.zip"\n'
    )
    catalog = load_catalog(user_file)
    got = get_corpus("opus/Talks", "ko-en", tmp_path / "latest", catalog=catalog)
    assert (read_text(got.folder, "train.ko"), read_text(got.folder, "train.en")) == ("나\n", "I\n")
    num_requests = len(site.requests)
    get_corpus("opus/Talks/v1", "ko-en", tmp_path / "v1", catalog=catalog)
    assert [path for path, _ in site.requests[num_requests:]] == ["/OPUS-Talks/v1/moses/en-ko.txt.zip"]


@pytest.mark.parametrize(
    ("reply", "message"),
    [(b'{"corpora": []}', "OPUS has no Talks for en-ko"), (b"<html>", "does not reply with a list")],
)
def test_what_opus_does_not_have_is_told(site: Site, tmp_path: Path, reply: bytes, message: str) -> None:
    packaged = load_catalog()
    catalog = Catalog({"opus_interface": site.put("/api", reply)}, packaged.corpora)
    with pytest.raises(DataError, match=message):
        get_corpus("opus/Talks", "en-ko", tmp_path, catalog=catalog)


def test_test_sets_are_read_with_sacrebleu(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sacrebleu.dataset import DATASETS
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    sides = {
        f"t/{name}.sgm": f'<doc origlang="en">\n<seg id="1">{words}</seg>\n</doc>\n'.encode()
        for name, words in [("src", "I  go &amp; see."), ("ref", "Ich gehe &amp; sehe.")]
    }
    body = make_tar(sides)
    dataset = FakeSGMLDataset(
        "toy/full",
        data=[site.put("/test.tgz", body, ("drop", 50))],
        md5=[hashlib.md5(body).hexdigest()],
        langpairs={"en-de": ["t/src.sgm", "t/ref.sgm"]},
    )
    monkeypatch.setitem(DATASETS, "toy/full", dataset)
    home = os.path.expanduser("~/.sacrebleu")
    before = os.path.exists(home)
    got = get_corpus("sacrebleu/toy/full", "en-de", tmp_path / "out", retry_delays=NO_DELAYS)
    assert (read_text(got.folder, "test.en"), read_text(got.folder, "test.de")) == (
        "I go &amp; see.\n",
        "Ich gehe &amp; sehe.\n",
    )
    assert got.sha256 == {f"{site.base}/test.tgz": hashlib.sha256(body).hexdigest()}
    assert (os.path.exists(home), dataset.data) == (before, [f"{site.base}/test.tgz"])
    with pytest.raises(RequestError, match="sacrebleu/toy/full has no de-en; it has en-de"):
        get_corpus("sacrebleu/toy/full", "de-en", tmp_path / "other")
    with pytest.raises(RequestError, match="did you mean sacrebleu/toy/full"):
        get_corpus("sacrebleu/toy/ful", "de-en", tmp_path / "other")


def test_a_test_set_with_a_missing_file_is_damaged(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sacrebleu.dataset import DATASETS
    from sacrebleu.dataset.plain_text import PlainTextDataset

    url = site.put("/test.tgz", make_tar({"t/src": b"a\n"}))
    dataset = PlainTextDataset("toy", data=[url], langpairs={"en-de": ["t/src", "t/ref"]})
    monkeypatch.setitem(DATASETS, "toy", dataset)
    with pytest.raises(DataError, match="is damaged"):
        get_corpus("sacrebleu/toy", "en-de", tmp_path)


def test_the_playground_is_written_without_a_network(tmp_path: Path) -> None:
    from manyheads import playground

    got = get_corpus("playground", "en-ko", tmp_path)
    counts = {name: split.pairs for name, split in got.splits.items()}
    assert counts == {"train": 20_000, "valid": 500, "test": 500}
    expected = playground.generate_corpus("en-ko", **counts, seed=1)
    for name, pairs in expected.items():
        lines = [read_text(tmp_path, f"{name}.{code}").split("\n")[:-1] for code in ("en", "ko")]
        assert list(zip(*lines, strict=True)) == pairs
    assert got.sha256 == {}
    get_corpus("playground", "ko-en", tmp_path / "turned")
    assert read_text(tmp_path / "turned", "valid.ko") == read_text(tmp_path, "valid.ko")


def test_the_register_of_the_playground_is_chosen_and_recorded(tmp_path: Path) -> None:
    got = get_corpus("playground", "en-ko", tmp_path / "polite", register="polite")
    lines = read_text(tmp_path / "polite", "valid.ko").split("\n")[:-1]
    assert sum(line.endswith(("요.", "요?")) for line in lines) == len(lines) == 500
    assert got.register == json.loads(read_text(tmp_path / "polite", "source.json"))["register"] == "polite"
    assert not get_corpus("playground", "en-ko", tmp_path / "polite", register="polite").is_new
    with pytest.raises(RequestError, match="holds playground en-ko polite, not playground en-ko; give"):
        get_corpus("playground", "en-ko", tmp_path / "polite")


@pytest.mark.parametrize(
    ("name", "pair", "register", "message"),
    [
        ("playground", "en-ko", "polight", "unknown register polight; did you mean polite"),
        (
            "playground",
            "en-de",
            "polite",
            "--register is for the Korean of playground, not for playground en-de",
        ),
        ("multi30k", "en-de", "plain", "not for multi30k en-de"),
    ],
)
def test_a_register_is_refused_where_it_means_nothing(
    tmp_path: Path, name: str, pair: str, register: str, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        get_corpus(name, pair, tmp_path / "out", register=register)
    assert not (tmp_path / "out").exists()


def test_foreign_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("mine")
    with pytest.raises(RequestError, match="exists and was not written by `get`"):
        get_corpus("playground", "en-ko", tmp_path)
    assert (tmp_path / "train.en").read_text() == "mine"


def test_a_failed_call_leaves_the_existing_corpus_and_no_partial_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_corpus("playground", "en-ko", tmp_path / "old")
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir() if path.is_file()}

    def fail(*_: Any, **__: Any) -> None:
        raise DataError("no network")

    monkeypatch.setattr("manyheads.playground.generate_corpus", fail)
    for folder in ("old", "new"):
        with pytest.raises(DataError, match="no network"):
            get_corpus("playground", "en-ko", tmp_path / folder, force=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir() if path.is_file()} == before
    assert not (tmp_path / "new").exists()


def test_only_own_temporary_files_are_removed_and_links_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "downloads"
    (folder / "folder.part").mkdir(parents=True)
    (folder / "film.part").write_text("of a browser")
    (tmp_path / "victim").write_text("mine")
    for name in ("train.en.part", "source.json.part"):
        (folder / name).symlink_to(tmp_path / "victim")
    get_corpus("playground", "en-ko", folder)
    monkeypatch.setattr("manyheads.playground.generate_corpus", lambda *_, **__: pytest.fail("no disk"))
    with pytest.raises(pytest.fail.Exception):
        get_corpus("playground", "en-ko", folder, force=True)
    assert sorted(path.name for path in folder.glob("*.part")) == ["film.part", "folder.part"]
    assert (tmp_path / "victim").read_text() == "mine"


def test_two_calls_do_not_write_one_folder_at_once(tmp_path: Path) -> None:
    with open_locked(tmp_path / "out"), pytest.raises(LockedError, match="another process is writing it"):
        get_corpus("playground", "en-ko", tmp_path / "out")
    assert get_corpus("playground", "en-ko", tmp_path / "out").is_new


# The catalog


def list_entries() -> list[CatalogEntry]:
    return list(load_catalog().corpora.values())


@pytest.mark.parametrize("corpus", list_entries(), ids=lambda corpus: corpus.name)
def test_every_entry_of_the_catalog_is_well_formed(corpus: CatalogEntry) -> None:
    catalog = load_catalog()
    assert corpus.title
    assert corpus.license
    assert corpus.license_url
    assert corpus.list_parts()
    for text in corpus.pairs or ["en-ko", "ko-en"]:
        pair = LanguagePair.parse(text)
        assert corpus.choose_pair(text) == pair
        for part in [part for parts in corpus.select_parts(pair).values() for part in parts]:
            for language in pair.languages:
                values = {
                    **pair.get_placeholder_values(),
                    "language": language,
                    "corpus": "C",
                    "version": "v1",
                }
                filled = [catalog.fill(pattern, values) for pattern in (part.url, part.member) if pattern]
                filled += [catalog.fill(catalog.urls[name], values) for name in catalog.urls]
                assert not [text_ for text_ in filled if "{" in text_ or "}" in text_]
                assert not part.url or filled[0].startswith("https://")
                sums = part.get_expected_file(language)
                assert re.fullmatch(r"[0-9a-f]{64}", sums["sha256"] or "0" * 64)
                assert re.fullmatch(r"[0-9a-f]{32}", sums["md5"] or "0" * 32)
                if part.url and "{language}" in part.url and isinstance(part.md5, dict):
                    assert sums["md5"], f"no sum for {language}"


def test_every_url_of_the_catalog_is_https() -> None:
    packaged = (ROOT / "src/manyheads/text/datasets/catalog.toml").read_text(encoding="utf-8")
    assert "http://" not in packaged
    assert set(load_catalog().corpora) >= {
        "multi30k",
        "wmt14",
        "europarl",
        "tatoeba",
        "opus",
        "sacrebleu",
        "playground",
    }


def test_the_paper_trains_on_three_parts_for_german_and_five_for_french() -> None:
    wmt14 = load_catalog().corpora["wmt14"]
    parts = {pair: wmt14.select_parts(LanguagePair.parse(pair)) for pair in ("en-de", "fr-en")}
    assert [len(splits["train"]) for splits in parts.values()] == [3, 5]
    assert parts["en-de"]["test"] == [CorpusPart(sacrebleu="wmt14/full")]


def test_the_test_sets_of_the_catalog_are_known_to_sacrebleu() -> None:
    from sacrebleu.dataset import DATASETS

    for corpus in list_entries():
        for part in corpus.list_parts():
            if part.sacrebleu and "{" not in part.sacrebleu:
                for pair in map(LanguagePair.parse, corpus.pairs):
                    assert str(pair) in DATASETS[part.sacrebleu].langpairs


def test_czech_has_no_2017_test_set() -> None:
    multi30k = load_catalog().corpora["multi30k"]
    assert "test2017" in multi30k.select_parts(LanguagePair.parse("de-en"))
    assert "test2017" not in multi30k.select_parts(LanguagePair.parse("en-cs"))


def test_the_documents_list_every_url_of_the_catalog() -> None:
    page = (ROOT / "docs" / "corpora.md").read_text(encoding="utf-8")
    catalog = load_catalog()
    urls = [*catalog.urls.values()]
    urls += [
        catalog.fill(part.url, {name: f"{{{name}}}" for name in ("other", "language")})
        for corpus in list_entries()
        for part in corpus.list_parts()
        if part.url
    ]
    for url in urls:
        assert url in page


@pytest.mark.parametrize("pair", ["en-de", "de-en"])
def test_a_users_file_can_replace_a_moved_url(site: Site, tmp_path: Path, pair: str) -> None:
    """The packaged recipe of Europarl, from a mirror."""
    files = {"europarl-v7.de-en.en": ENGLISH.encode(), "europarl-v7.de-en.de": GERMAN.encode()}
    site.put("/mirror/europarl/v7/de-en.tgz", make_tar(files))
    user_file = tmp_path / "own.toml"
    user_file.write_text(f'urls.statmt = "{site.base}/mirror"\n')
    got = get_corpus("europarl", pair, tmp_path / "out", catalog=load_catalog(user_file))
    assert read_text(got.folder, "train.de") == GERMAN


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("ulrs.statmt = 1", "unknown key ulrs; did you mean urls"),
        ("[corpora.a]\ntitel = 1", "unknown key titel; did you mean title"),
        ("[corpora.a]\ntitle = 'a'", "corpora.a lacks license, license_url, homepage, splits"),
        ("corpora.a = 1", "is not a corpus as in catalog.toml"),
        ("urls = 1", "must be tables"),
        ("= 1", "is not TOML"),
        ("{part}{{ ulr = 'a' }}]", "unknown key ulr; did you mean url"),
        (
            "{part}{{ member = 'a' }}]",
            "a part needs one of url, opus, sacrebleu, playground, but",
        ),
        ("{part}{{ opus = 'a', url = 'b' }}]", "but has url and opus"),
        ("{part}{{ url = 'a' }}]\nsplits.'../b' = []", "is part of file names: use letters and digits only"),
    ],
)
def test_a_wrong_catalog_is_an_error_that_names_the_problem(
    tmp_path: Path, written: str, message: str
) -> None:
    part = "[corpora.a]\ntitle='a'\nlicense='a'\nlicense_url='a'\nhomepage='a'\nsplits.train = ["
    (tmp_path / "own.toml").write_text(written.format(part=part) if "{part}" in written else written)
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_catalog(tmp_path / "own.toml")


def test_an_unknown_placeholder_is_an_error(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown placeholder \{langauge\}"):
        get_corpus(
            "toy",
            "en-de",
            tmp_path,
            catalog=make_catalog(train=[CorpusPart(url=site.base + "/{langauge}.gz")]),
        )


@pytest.mark.parametrize(
    ("name", "pair", "message"),
    [
        ("multi30kk", "en-de", "unknown corpus multi30kk; did you mean multi30k?"),
        ("multi30k", None, "multi30k needs --pair: en-de, en-fr"),
        ("multi30k", "en-ko", "multi30k has no en-ko; it has en-de, en-fr"),
        ("multi30k/x", "en-de", "multi30k is a single corpus: leave out /x"),
        ("opus", "en-de", "must be opus/NAME"),
        ("opus/", "en-de", "must be opus/NAME"),
        ("opus/a?b", "en-de", "must be opus/NAME"),
        ("opus/Books", None, "opus needs --pair, such as en-de"),
        ("tatoeba", "en", "must be two languages"),
        ("tatoeba", "en-en", "must be two languages"),
        ("tatoeba", "en-../x", "must be two languages"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, pair: str | None, message: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        get_corpus(name, pair, tmp_path / "out")
    assert list_names(tmp_path) == []


# What the user sees


def manyheads(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "manyheads", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
        env=ENVIRONMENT,
    )


def write_catalog(site: Site, tmp_path: Path, body: bytes) -> Path:
    user_file = tmp_path / "own.toml"
    user_file.write_text(
        "[corpora.toy]\ntitle = 'A toy'\nlicense = 'CC0'\nlicense_url = 'here'\nhomepage = 'here'\n"
        "pairs = ['en-de']\n"
        f"splits.train = [{{ url = '{site.put('/c.zip', body)}', member = 'in/c.{{language}}' }}]\n"
    )
    return user_file


def test_the_command_fetches_a_corpus_and_reports_it(site: Site, tmp_path: Path) -> None:
    user_file = write_catalog(site, tmp_path, make_zip(SIDES))
    done = manyheads("get", "toy", "--catalog", str(user_file), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "toy en-de is in toy.en-de\ntrain: 3 pairs, train.en train.de\n"
    assert done.stderr.splitlines()[:2] == ["A toy", "license: CC0 (here)"]
    assert "c.zip: done in" in done.stderr
    assert read_text(tmp_path / "toy.en-de", "train.en") == ENGLISH
    second = manyheads("get", "toy", "--catalog", str(user_file), "--json", folder=tmp_path)
    row = json.loads(second.stdout)
    assert (row["is_new"], row["splits"]["train"]["pairs"], row["folder"]) == (False, 3, "toy.en-de")
    third = manyheads("get", "toy", "--catalog", str(user_file), folder=tmp_path)
    assert third.stdout.endswith("license: CC0 (here)\n")


def test_the_command_fails_with_exit_code_3_and_one_line(site: Site, tmp_path: Path) -> None:
    user_file = write_catalog(site, tmp_path, b"not a zip")
    done = manyheads("get", "toy", "--catalog", str(user_file), "--out", "out", folder=tmp_path)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("manyheads: c.zip is damaged")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["multi30kk"], "unknown corpus multi30kk; did you mean multi30k?"),
        ([], "get needs the NAME of a corpus; manyheads get --list shows them"),
    ],
)
def test_a_wrong_command_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = manyheads("get", *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"manyheads: {message}\n")


def test_the_list_shows_names_pairs_and_licenses(tmp_path: Path) -> None:
    done = manyheads("get", "--list", "--json", folder=tmp_path)
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["wmt14"]["bytes"] == 657632379 + 918311367 + 80418416
    listing = load_catalog().to_text()
    for name, row in rows.items():
        assert f"{name}\n" in listing
        assert row["license"] in listing
        assert ", ".join(row["pairs"]) in listing


def test_the_help_imports_neither_the_network_nor_anything_heavy() -> None:
    code = (
        "import sys\nfrom manyheads.cli import main\nsys.argv = ['manyheads', 'get', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = ('torch', 'numpy', 'sacrebleu', 'rich.progress', 'urllib.request')\n"
        "sys.exit(','.join(name for name in heavy if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_and_a_log_shows_lines(site: Site, tmp_path: Path) -> None:
    url = site.put("/file", BODY)
    terminal, log = Terminal(), io.StringIO()
    with create_progress(terminal, unit="bytes") as bars:
        bars.message("A toy [bold]")
        download(url, tmp_path / "a", progress=bars)
    with create_progress(log) as lines:
        download(url, tmp_path / "b", progress=lines)
    assert isinstance(bars, ProgressBars)
    assert isinstance(lines, ProgressLines)
    assert "A toy [bold]" in terminal.getvalue()
    assert "100%" in terminal.getvalue() or "512.0/512.0 kB" in terminal.getvalue()
    assert re.fullmatch(r"b \.\.\.\nb: done in \d\.\d s\n", log.getvalue())
