"""Known corpora, from a server on this machine that fails in every way a server can. No test reaches out."""

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

from manyheads.errors import ConfigError, DataError, RequestError
from manyheads.progress import Progress, ProgressBars, ProgressLines, create_progress
from manyheads.text.datasets.catalog import Catalog, CatalogEntry, CorpusPart, LanguagePair, load_catalog
from manyheads.text.datasets.download import PartialFile, download, get_version
from manyheads.text.datasets.get import get_corpus

ROOT = Path(__file__).parents[2]
BODY = bytes(range(256)) * 2000  # 512 kB
HALF = len(BODY) // 2
SHA256 = hashlib.sha256(BODY).hexdigest()
ENVIRONMENT = {**os.environ, "no_proxy": "*", "PYTHONPATH": str(ROOT / "src")}  # of other processes
AT_ONCE = (0.0, 0.0, 0.0)
ENGLISH = "I go home.\nYou sleep.\nNEL\x85and LS\u2028stay inside a line\n"
GERMAN = "Ich gehe heim.\nDu schläfst.\nNEL\x85und LS\u2028bleiben in der Zeile\n"


# The server


class Site:
    """Files by path, and for each path a script: what goes wrong with the first request, the second, ..."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.scripts: dict[str, list[tuple[Any, ...]]] = {}
        self.tags: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.sent: list[int] = []
        self.go_on = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(site, self)

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


def answer(site: Site, handler: BaseHTTPRequestHandler) -> None:
    path, headers = handler.path, dict(handler.headers)
    site.asked.append((path, headers))
    script = site.scripts.get(path, [])
    fault, *details = script.pop(0) if script else ("none",)
    if fault == "status" or path not in site.files:
        handler.send_error(details[0] if fault == "status" else 404)
        return
    if fault == "redirect":
        handler.send_response(302)
        handler.send_header("Location", details[0])
        handler.end_headers()
        return
    if fault == "becomes":
        site.files[path] = details[0]
    body = site.files[path]
    tag = f'"{hashlib.md5(body).hexdigest()}"'
    wanted = re.fullmatch(r"bytes=(\d+)-", headers.get("Range", ""))
    ranged = wanted and headers.get("If-Range") == tag and fault != "ignore range"
    start = int(wanted[1]) if wanted and ranged else 0
    if ranged and start >= len(body):
        handler.send_error(416)
        return
    handler.send_response(206 if ranged else 200)
    if fault != "no tag":
        handler.send_header("ETag", tag)
    if ranged:
        skew = 1 if fault == "wrong range" else 0
        handler.send_header("Content-Range", f"bytes {start + skew}-{len(body) - 1}/{len(body)}")
    lie = details[0] if fault == "lie" else 0
    handler.send_header("Content-Length", str(len(body) - start + lie))
    handler.end_headers()
    end = details[0] if fault in ("drop", "reset", "stall", "no tag") else len(body)
    handler.wfile.write(body[start:end])
    handler.wfile.flush()
    site.sent.append(len(body[start:end]))
    if fault == "stall":
        site.go_on.wait(10)
    if fault == "reset":  # not even a polite end
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture(autouse=True)
def this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, and a connection to anywhere else is a failure of the test."""
    monkeypatch.setenv("no_proxy", "*")
    connect = socket.create_connection

    def guarded(address: tuple[str, int], *rest: Any, **more: Any) -> socket.socket:
        assert address[0] == "127.0.0.1", f"a test reached for {address}"
        return connect(address, *rest, **more)

    monkeypatch.setattr(socket, "create_connection", guarded)


def only(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# One file


def test_a_download_is_whole_and_leaves_nothing_beside_it(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY)
    seen = download(address, tmp_path / "file", sha256=SHA256, size=len(BODY))
    assert (tmp_path / "file").read_bytes() == BODY
    assert (seen.size, seen.sha256, seen.url) == (len(BODY), SHA256, address)
    assert only(tmp_path) == ["file"]
    assert site.asked[0][1]["User-Agent"].startswith("manyheads")


@pytest.mark.parametrize("fault", ["drop", "reset"])
def test_a_dropped_connection_goes_on_where_it_broke_off(site: Site, tmp_path: Path, fault: str) -> None:
    address = site.put("/file", BODY, (fault, HALF), (fault, HALF + 1000))
    download(address, tmp_path / "file", sha256=SHA256, retry_delays=AT_ONCE)
    assert (tmp_path / "file").read_bytes() == BODY
    ranges = [headers.get("Range") for _, headers in site.asked]
    assert ranges[0] is None
    if fault == "drop":  # of a reset, the last bytes may be lost on the way
        assert ranges[1:] == [f"bytes={HALF}-", f"bytes={HALF + 1000}-"]
        assert sum(site.sent) == len(BODY)
    assert only(tmp_path) == ["file"]


def test_a_killed_download_is_continued_by_the_next_process(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY, ("stall", HALF))
    code = (
        "import sys, pathlib; from manyheads.text.datasets.download import download; "
        "download(sys.argv[1], pathlib.Path(sys.argv[2]))"
    )
    part = tmp_path / "file.part"
    victim = subprocess.Popen([sys.executable, "-c", code, address, str(tmp_path / "file")], env=ENVIRONMENT)
    try:
        while not part.exists() or part.stat().st_size < HALF - 2**16:
            assert victim.poll() is None, "the process ended by itself"
    finally:
        victim.kill()
        victim.wait()
        site.go_on.set()
    assert only(tmp_path) == ["file.part", "file.part.json"]
    kept = part.stat().st_size
    assert 0 < kept <= HALF
    download(address, tmp_path / "file", sha256=SHA256)
    assert site.sent[-1] == len(BODY) - kept
    assert (tmp_path / "file").read_bytes() == BODY


def test_an_interrupt_leaves_the_beginning_and_never_the_final_name(site: Site, tmp_path: Path) -> None:
    class Impatient(Progress):
        def update(self, stage: str, done: int, total: int | None) -> None:
            if done >= HALF:
                raise KeyboardInterrupt

    address = site.put("/file", BODY)
    with pytest.raises(KeyboardInterrupt):
        download(address, tmp_path / "file", progress=Impatient())
    assert only(tmp_path) == ["file.part", "file.part.json"]
    kept = (tmp_path / "file.part").stat().st_size
    download(address, tmp_path / "file", sha256=SHA256)
    assert site.asked[-1][1]["Range"] == f"bytes={kept}-"


def test_a_complete_file_that_was_not_yet_renamed_is_not_asked_for_again(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY)
    part = PartialFile(tmp_path / "file", address)
    part.path.write_bytes(BODY)
    part.write_metadata('"tag"', len(BODY))
    download(address, tmp_path / "file", sha256=SHA256)
    assert site.asked == []


def test_a_server_that_ignores_the_range_starts_over(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY, ("drop", HALF), ("ignore range",))
    download(address, tmp_path / "file", sha256=SHA256, retry_delays=AT_ONCE)
    assert [headers.get("Range") for _, headers in site.asked] == [None, f"bytes={HALF}-"]
    assert (tmp_path / "file").read_bytes() == BODY


def test_a_file_that_changed_between_two_attempts_is_not_glued_together(site: Site, tmp_path: Path) -> None:
    other = BODY[::-1]
    address = site.put("/file", BODY, ("drop", HALF), ("becomes", other))
    download(address, tmp_path / "file", retry_delays=AT_ONCE)
    assert "If-Range" in site.asked[1][1]
    assert (tmp_path / "file").read_bytes() == other


def test_a_file_that_became_shorter_starts_over(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY)
    part = PartialFile(tmp_path / "file", address)
    part.path.write_bytes(BODY + b"more")
    part.write_metadata(f'"{hashlib.md5(BODY).hexdigest()}"', None)
    download(address, tmp_path / "file", sha256=SHA256, retry_delays=AT_ONCE)
    assert [headers.get("Range") for _, headers in site.asked] == [f"bytes={len(BODY) + 4}-", None]


def test_another_range_than_was_asked_for_is_not_believed(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY, ("drop", HALF), ("wrong range",))
    download(address, tmp_path / "file", sha256=SHA256, retry_delays=AT_ONCE)
    assert [headers.get("Range") for _, headers in site.asked] == [None, f"bytes={HALF}-", None]
    assert (tmp_path / "file").read_bytes() == BODY


def test_without_a_tag_nothing_is_resumed(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY, ("no tag", HALF))
    download(address, tmp_path / "file", sha256=SHA256, retry_delays=AT_ONCE)
    assert [headers.get("Range") for _, headers in site.asked] == [None, None]


def test_a_weak_tag_promises_no_equal_bytes() -> None:
    date = "Sun, 15 Nov 2026 12:00:00 GMT"
    assert get_version({"ETag": '"a"', "Last-Modified": date}) == '"a"'
    assert get_version({"ETag": 'W/"a"', "Last-Modified": date}) == date
    assert get_version({"ETag": 'W/"a"'}) is None


def test_bytes_of_another_address_are_not_continued(site: Site, tmp_path: Path) -> None:
    part = PartialFile(tmp_path / "file", "http://127.0.0.1/elsewhere")
    part.path.write_bytes(b"other")
    part.write_metadata('"tag"', 10)
    download(site.put("/file", BODY), tmp_path / "file", sha256=SHA256)
    assert "Range" not in site.asked[0][1]


def test_a_truncated_file_is_an_error_that_keeps_what_came(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY, *[("drop", HALF)] * 9)
    with pytest.raises(
        DataError, match=r"256,000 bytes came, 512,000 were announced; 256,000 bytes are kept"
    ) as error:
        download(address, tmp_path / "file", retry_delays=AT_ONCE)
    assert address in str(error.value)
    assert len(site.asked) == 5  # one that brought something, and as many as there are waits, and one
    assert only(tmp_path) == ["file.part", "file.part.json"]


def test_a_server_that_announces_more_than_it_has_is_an_error(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY, *[("lie", 7)] * 9)
    with pytest.raises(DataError, match="could not be fetched"):
        download(address, tmp_path / "file", retry_delays=AT_ONCE)
    assert not (tmp_path / "file").exists()


def test_attempts_that_bring_the_file_further_are_not_counted(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY, *[("drop", 50_000 * step) for step in range(1, 10)])
    download(address, tmp_path / "file", sha256=SHA256, retry_delays=(0.0,))
    assert len(site.asked) == 10


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_passing_fault_of_the_server_is_tried_again(site: Site, tmp_path: Path, status: int) -> None:
    address = site.put("/file", BODY, ("status", status), ("status", status))
    download(address, tmp_path / "file", sha256=SHA256, retry_delays=AT_ONCE)
    assert len(site.asked) == 3


def test_a_lasting_fault_of_the_server_is_an_error(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY, *[("status", 503)] * 9)
    with pytest.raises(DataError, match="the server answers 503 Service Unavailable"):
        download(address, tmp_path / "file", retry_delays=AT_ONCE)
    assert len(site.asked) == 4


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_missing_file_names_the_address_the_status_and_the_remedy(
    site: Site, tmp_path: Path, status: int
) -> None:
    address = site.put("/file", BODY, ("status", status))
    with pytest.raises(DataError) as error:
        download(address, tmp_path / "file", retry_delays=AT_ONCE)
    for word in (address, str(status), "--table"):
        assert word in str(error.value)
    assert len(site.asked) == 1
    assert only(tmp_path) == []


@pytest.mark.parametrize("sums", [{"sha256": "0" * 64}, {"md5": "0" * 32}, {"size": 3}])
def test_a_wrong_file_is_removed_and_both_sums_told(site: Site, tmp_path: Path, sums: dict[str, Any]) -> None:
    address = site.put("/file", BODY)
    with pytest.raises(DataError) as error:
        download(address, tmp_path / "file", **sums)
    ours = {"sha256": SHA256, "md5": hashlib.md5(BODY).hexdigest(), "size": len(BODY)}
    for what, wanted in sums.items():
        assert f"{what} {ours[what]} instead of {wanted}" in str(error.value)
    assert only(tmp_path) == []


def test_what_is_there_and_right_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    address = site.put("/file", BODY)
    first = download(address, tmp_path / "file", sha256=SHA256)
    assert download(address, tmp_path / "file", sha256=SHA256) == first
    assert len(site.asked) == 1


def test_what_is_there_and_wrong_is_fetched_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"of an older table")
    download(site.put("/file", BODY), tmp_path / "file", sha256=SHA256)
    assert (tmp_path / "file").read_bytes() == BODY


def test_a_redirect_within_the_web_is_followed(site: Site, tmp_path: Path) -> None:
    site.put("/there", BODY)
    download(site.put("/here", b"", ("redirect", "/there")), tmp_path / "file", sha256=SHA256)
    assert (tmp_path / "file").read_bytes() == BODY


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/file"])
def test_a_redirect_out_of_the_web_is_refused(site: Site, tmp_path: Path, place: str) -> None:
    address = site.put("/file", BODY, ("redirect", place))
    with pytest.raises(DataError, match=re.escape(place)):
        download(address, tmp_path / "file", retry_delays=AT_ONCE)
    assert only(tmp_path) == []


@pytest.mark.parametrize("address", ["ftp://127.0.0.1/a", "data:,a", "/etc/passwd", "gopher://a"])
def test_other_schemes_are_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(DataError, match="is not an address that begins with http:, https: or file:"):
        download(address, tmp_path / "file")


def test_a_file_of_this_machine_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(BODY)
    download((tmp_path / "mine").as_uri(), tmp_path / "file", sha256=SHA256)
    assert (tmp_path / "file").read_bytes() == BODY
    with pytest.raises(DataError, match="No such file"):
        download((tmp_path / "nothing").as_uri(), tmp_path / "other")


def test_a_network_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
    with pytest.raises(DataError, match=re.escape(address) + ".* the network says: .*refused"):
        download(address, tmp_path / "file", retry_delays=AT_ONCE)


@pytest.mark.skipif(sys.platform == "win32", reason="no flock")
def test_two_processes_do_not_write_one_file(site: Site, tmp_path: Path) -> None:
    import fcntl

    address = site.put("/file", BODY)
    with (tmp_path / "file.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process is fetching"):
            download(address, tmp_path / "file")
    assert site.asked == []
    download(address, tmp_path / "file", sha256=SHA256)
    assert only(tmp_path) == ["file"]


def test_a_new_attempt_is_announced(site: Site, tmp_path: Path) -> None:
    log = io.StringIO()
    address = site.put("/file", BODY, ("status", 503))
    download(address, tmp_path / "file", progress=ProgressLines(log), retry_delays=AT_ONCE)
    assert log.getvalue().startswith("file: the server answers 503 Service Unavailable; again in 0 s\n")


def test_a_full_disk_is_not_taken_for_a_fault_of_the_network(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    opened = Path.open
    full = lambda path, *mode, **more: Full() if path.suffix == ".part" else opened(path, *mode, **more)  # noqa: E731
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match="No space left") as error:
        download(site.put("/file", BODY), tmp_path / "file", retry_delays=AT_ONCE)
    assert error.value.errno == errno.ENOSPC
    assert len(site.asked) == 1


# A corpus


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return made.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return made.getvalue()


PACKERS = {
    "c.zip": zipped,
    "c.tgz": tarred,
    "c.tar.gz": tarred,
    "c.tar": lambda files: tarred(files, "w"),
}
# A plain tar has no sum over its files' bytes: only a published one can tell.
DAMAGED = [
    (name, damage)
    for name in [*PACKERS, "c.{language}.gz"]
    for damage in ("cut", "flipped", "page")
    if (name, damage) != ("c.tar", "flipped")
]
SIDES = {"in/c.en": ENGLISH.encode(), "in/c.de": GERMAN.encode(), "in/c.fr": b"decoy\n"}


def toy(**splits: list[CorpusPart]) -> Catalog:
    corpus = CatalogEntry("toy", "A toy", "CC0", "here", "here", splits, ["en-de"])
    return Catalog({}, {"toy": corpus})


def archive_of(site: Site, name: str, body: bytes, **more: Any) -> Catalog:
    return toy(train=[CorpusPart(address=site.put(f"/{name}", body), member="in/c.{language}", **more)])


def text(folder: Path, name: str) -> str:
    return (folder / name).read_bytes().decode()


@pytest.mark.parametrize("name", PACKERS)
def test_both_sides_come_out_of_an_archive_byte_for_byte(site: Site, tmp_path: Path, name: str) -> None:
    got = get_corpus("toy", "en-de", tmp_path / "out", catalog=archive_of(site, name, PACKERS[name](SIDES)))
    assert (text(got.folder, "train.en"), text(got.folder, "train.de")) == (ENGLISH, GERMAN)
    assert got.splits["train"].pairs == 3  # \n alone ends a line
    assert only(got.folder) == ["downloads", "source.json", "train.de", "train.en"]


def test_the_target_may_be_the_source(site: Site, tmp_path: Path) -> None:
    got = get_corpus("toy", "de-en", tmp_path, catalog=archive_of(site, "c.zip", zipped(SIDES)))
    assert got.splits["train"].files == ["train.de", "train.en"]
    assert text(tmp_path, "train.de") == GERMAN


def test_a_file_for_each_side_is_unpacked_and_checked_by_language(site: Site, tmp_path: Path) -> None:
    english, german = gzip.compress(ENGLISH.encode()), gzip.compress(GERMAN.encode())
    site.put("/valid.en.gz", english)
    site.put("/valid.de.gz", german)
    sums = {"en": hashlib.md5(english).hexdigest(), "de": hashlib.md5(german).hexdigest()}
    address = site.base + "/valid.{language}.gz"
    got = get_corpus("toy", None, tmp_path / "a", catalog=toy(valid=[CorpusPart(address=address, md5=sums)]))
    assert (text(got.folder, "valid.en"), text(got.folder, "valid.de")) == (ENGLISH, GERMAN)
    swapped = {"en": sums["de"], "de": sums["en"]}
    with pytest.raises(DataError, match=f"md5 {sums['en']} instead of {sums['de']}"):
        get_corpus("toy", None, tmp_path / "b", catalog=toy(valid=[CorpusPart(address=address, md5=swapped)]))


def test_parts_follow_each_other_in_the_order_of_the_table(site: Site, tmp_path: Path) -> None:
    unended = {"in/c.en": b"one", "in/c.de": b"eins"}  # the last line lacks its end
    packed = {"c.en.gz": gzip.compress(b"two\n"), "c.de.gz": gzip.compress(b"zwei\n")}
    parts = [
        CorpusPart(address=site.put("/1.tgz", tarred(unended)), member="in/c.{language}"),
        CorpusPart(address=site.put("/2.tar", tarred(packed, "w")), member="c.{language}.gz"),
        CorpusPart(address=site.put("/3.zip", zipped(SIDES)), member="in/c.{language}", pairs=["fr-de"]),
    ]
    got = get_corpus("toy", "en-de", tmp_path, catalog=toy(train=parts))
    assert (text(tmp_path, "train.en"), text(tmp_path, "train.de")) == ("one\ntwo\n", "eins\nzwei\n")
    assert [one["address"] for one in got.splits["train"].downloads] == [parts[0].address, parts[1].address]


def test_sides_of_differing_length_are_refused_and_nothing_is_complete(site: Site, tmp_path: Path) -> None:
    table = archive_of(site, "c.zip", zipped({"in/c.en": b"a\nb\n", "in/c.de": b"a\n"}))
    with pytest.raises(DataError, match="has 2 lines of en and 1 of de"):
        get_corpus("toy", "en-de", tmp_path, catalog=table)
    assert not {"train.en", "train.de", "source.json"} & set(only(tmp_path))


def test_an_empty_corpus_is_refused(site: Site, tmp_path: Path) -> None:
    table = archive_of(site, "c.zip", zipped({"in/c.en": b"", "in/c.de": b""}))
    with pytest.raises(DataError, match="0 lines of en and 0 of de"):
        get_corpus("toy", "en-de", tmp_path, catalog=table)


@pytest.mark.parametrize(("name", "damage"), DAMAGED)
def test_a_damaged_archive_is_an_error_and_is_fetched_anew(
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
    address = site.base + f"/{name}"
    table = toy(train=[CorpusPart(address=address, member="in/c.{language}")])
    for language in ("en", "de"):
        site.put("/" + name.replace("{language}", language), bad)
    with pytest.raises(DataError, match=r"is damaged .* run again to fetch it anew"):
        get_corpus("toy", "en-de", tmp_path, catalog=table)
    assert not (tmp_path / "source.json").exists()
    for language in ("en", "de"):
        site.put("/" + name.replace("{language}", language), good)
    assert get_corpus("toy", "en-de", tmp_path, catalog=table).splits["train"].pairs == 200


def test_a_member_that_is_not_there_names_what_was_looked_for(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no member in/c\.de; mend `member`"):
        get_corpus("toy", "en-de", tmp_path, catalog=archive_of(site, "c.zip", zipped({"in/c.en": b"a\n"})))


def test_a_link_in_an_archive_is_not_followed(site: Site, tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name in ("in/c.en", "in/c.de"):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info)
    with pytest.raises(DataError, match="has no member"):
        get_corpus("toy", "en-de", tmp_path, catalog=archive_of(site, "c.tgz", made.getvalue()))


def test_names_in_an_archive_choose_no_path_here(site: Site, tmp_path: Path) -> None:
    files = {"../../evil.en": b"a\n", "../../evil.de": b"a\n"}
    table = toy(train=[CorpusPart(address=site.put("/c.tgz", tarred(files)), member="*evil.{language}")])
    got = get_corpus("toy", "en-de", tmp_path / "deep" / "out", catalog=table)
    assert text(got.folder, "train.en") == "a\n"
    assert not list(tmp_path.rglob("evil*"))


def test_two_members_for_one_side_are_not_guessed_between(site: Site, tmp_path: Path) -> None:
    files = {"a/c.en": b"a\n", "b/c.en": b"b\n", "a/c.de": b"a\n"}
    table = toy(train=[CorpusPart(address=site.put("/c.zip", zipped(files)), member="*/c.{language}")])
    with pytest.raises(DataError, match="two members like"):
        get_corpus("toy", "en-de", tmp_path, catalog=table)


# The folder


def test_the_folder_says_where_it_is_from(site: Site, tmp_path: Path) -> None:
    body = zipped(SIDES)
    got = get_corpus("toy", "en-de", tmp_path, catalog=archive_of(site, "c.zip", body))
    page = json.loads((tmp_path / "source.json").read_text(encoding="utf-8"))
    seen = {"address": f"{site.base}/c.zip", "size": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    assert page["splits"]["train"]["downloads"] == [seen]
    assert (page["corpus"], page["pair"], page["license"]) == ("toy", "en-de", "CC0")
    assert got.sha256 == {seen["address"]: seen["sha256"]}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", page["date"])


def test_a_complete_folder_is_left_alone(site: Site, tmp_path: Path) -> None:
    table = archive_of(site, "c.zip", zipped(SIDES))
    first = get_corpus("toy", "en-de", tmp_path, catalog=table)
    second = get_corpus("toy", "en-de", tmp_path, catalog=table)
    assert (first.fresh, second.fresh) == (True, False)
    assert second.splits == first.splits
    assert len(site.asked) == 1
    assert "nothing done" in second.to_text()


def test_again_fetches_anew(site: Site, tmp_path: Path) -> None:
    table = archive_of(site, "c.zip", zipped(SIDES))
    get_corpus("toy", "en-de", tmp_path, catalog=table)
    site.put("/c.zip", zipped({"in/c.en": b"new\n", "in/c.de": b"neu\n"}))
    assert get_corpus("toy", "en-de", tmp_path, catalog=table, again=True).fresh
    assert text(tmp_path, "train.de") == "neu\n"


def test_a_file_that_was_lost_is_made_again_from_the_kept_download(site: Site, tmp_path: Path) -> None:
    table = archive_of(site, "c.zip", zipped(SIDES))
    get_corpus("toy", "en-de", tmp_path, catalog=table)
    (tmp_path / "train.en").unlink()
    assert get_corpus("toy", "en-de", tmp_path, catalog=table).fresh
    assert text(tmp_path, "train.en") == ENGLISH
    assert len(site.asked) == 1


def test_one_cache_serves_two_folders(site: Site, tmp_path: Path) -> None:
    table = archive_of(site, "c.zip", zipped(SIDES))
    for folder, pair in [("a", "en-de"), ("b", "de-en")]:
        get_corpus("toy", pair, tmp_path / folder, catalog=table, cache=tmp_path / "cache")
    assert len(site.asked) == 1
    assert "downloads" not in only(tmp_path / "a")


def test_equal_names_at_different_addresses_do_not_meet(site: Site, tmp_path: Path) -> None:
    train = CorpusPart(address=site.put("/a/c.zip", zipped(SIDES)), member="in/c.{language}")
    other = {"in/c.en": b"other\n", "in/c.de": b"anders\n"}
    valid = CorpusPart(address=site.put("/b/c.zip", zipped(other)), member="in/c.{language}")
    get_corpus("toy", "en-de", tmp_path, catalog=toy(train=[train], valid=[valid]))
    assert (text(tmp_path, "train.en"), text(tmp_path, "valid.en")) == (ENGLISH, "other\n")


def test_another_corpus_is_not_overwritten_unless_told(site: Site, tmp_path: Path) -> None:
    first = archive_of(site, "c.zip", zipped(SIDES))
    get_corpus("toy", "en-de", tmp_path, catalog=first)
    moved = CatalogEntry(
        "toy2", "t", "l", "h", "h", {"test": first.corpora["toy"].splits["train"]}, ["en-de"]
    )
    second = Catalog({}, {"toy2": moved})
    with pytest.raises(RequestError, match="holds toy en-de, not toy2 en-de; give another --out"):
        get_corpus("toy2", "en-de", tmp_path, catalog=second)
    get_corpus("toy2", "en-de", tmp_path, catalog=second, again=True)
    assert only(tmp_path) == ["downloads", "source.json", "test.de", "test.en"]


def test_a_page_of_someone_elses_is_not_taken_for_ours(site: Site, tmp_path: Path) -> None:
    (tmp_path / "source.json").write_text('{"mine": 1}')
    with pytest.raises(DataError, match="is not a page that get wrote"):
        get_corpus("toy", "en-de", tmp_path, catalog=archive_of(site, "c.zip", zipped(SIDES)), again=True)
    assert only(tmp_path) == ["source.json"]


def test_an_interrupted_corpus_goes_on_and_is_never_taken_for_complete(site: Site, tmp_path: Path) -> None:
    train = CorpusPart(address=site.put("/a.zip", zipped(SIDES)), member="in/c.{language}")
    test = CorpusPart(address=site.put("/b.zip", zipped(SIDES), ("status", 404)), member="in/c.{language}")
    table = toy(train=[train], test=[test])
    with pytest.raises(DataError, match="404"):
        get_corpus("toy", "en-de", tmp_path, catalog=table)
    assert not {"train.en", "test.en", "source.json"} & set(only(tmp_path))
    get_corpus("toy", "en-de", tmp_path, catalog=table)
    assert [path for path, _ in site.asked] == ["/a.zip", "/b.zip", "/b.zip"]


# Other lists


def test_any_corpus_of_opus_is_found_through_its_interface(site: Site, tmp_path: Path) -> None:
    files = {
        "README": b"r",
        "Talks.en-ko.en": b"I\n",
        "Talks.en-ko.ko": "나\n".encode(),
        "Talks.en-ko.ids": b"1",
    }
    release = site.put("/OPUS-Talks/v1/moses/en-ko.txt.zip", zipped(files))
    rows = [
        {"source": "ko", "target": "", "url": site.base + "/mono.gz"},
        {"source": "en", "target": "ko", "url": release, "size": 1, "version": "v1"},
    ]
    site.put("/api?corpus=Talks&from=en&to=ko", json.dumps({"corpora": rows}).encode())
    own = tmp_path / "own.toml"
    own.write_text(
        f'[addresses]\nopus_interface = "{site.base}/api?corpus={{corpus}}&from={{first}}&to={{second}}"\n'
        f'opus_release = "{site.base}/OPUS-{{corpus}}/{{version}}/moses/{{first}}-{{second}}.txt.zip"\n'
    )
    table = load_catalog(own)
    got = get_corpus("opus/Talks", "ko-en", tmp_path / "latest", catalog=table)
    assert (text(got.folder, "train.ko"), text(got.folder, "train.en")) == ("나\n", "I\n")
    asked = len(site.asked)
    get_corpus("opus/Talks/v1", "ko-en", tmp_path / "v1", catalog=table)
    assert [path for path, _ in site.asked[asked:]] == ["/OPUS-Talks/v1/moses/en-ko.txt.zip"]


@pytest.mark.parametrize(
    ("reply", "message"),
    [(b'{"corpora": []}', "OPUS has no Talks for en-ko"), (b"<html>", "does not answer with a list")],
)
def test_what_opus_does_not_have_is_told(site: Site, tmp_path: Path, reply: bytes, message: str) -> None:
    packaged = load_catalog()
    table = Catalog({"opus_interface": site.put("/api", reply)}, packaged.corpora)
    with pytest.raises(DataError, match=message):
        get_corpus("opus/Talks", "en-ko", tmp_path, catalog=table)


def test_test_sets_come_through_the_list_of_sacrebleu(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sacrebleu.dataset import DATASETS
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    sides = {
        f"t/{name}.sgm": f'<doc origlang="en">\n<seg id="1">{words}</seg>\n</doc>\n'.encode()
        for name, words in [("src", "I  go &amp; see."), ("ref", "Ich gehe &amp; sehe.")]
    }
    body = tarred(sides)
    made = FakeSGMLDataset(
        "toy/full",
        data=[site.put("/test.tgz", body, ("drop", 50))],
        md5=[hashlib.md5(body).hexdigest()],
        langpairs={"en-de": ["t/src.sgm", "t/ref.sgm"]},
    )
    monkeypatch.setitem(DATASETS, "toy/full", made)
    home = os.path.expanduser("~/.sacrebleu")
    before = os.path.exists(home)
    got = get_corpus("sacrebleu/toy/full", "en-de", tmp_path / "out", retry_delays=AT_ONCE)
    assert (text(got.folder, "test.en"), text(got.folder, "test.de")) == (
        "I go &amp; see.\n",
        "Ich gehe &amp; sehe.\n",
    )
    assert got.sha256 == {f"{site.base}/test.tgz": hashlib.sha256(body).hexdigest()}
    assert (os.path.exists(home), made.data) == (before, [f"{site.base}/test.tgz"])
    with pytest.raises(RequestError, match="sacrebleu/toy/full has no de-en; it has en-de"):
        get_corpus("sacrebleu/toy/full", "de-en", tmp_path / "other")
    with pytest.raises(RequestError, match="did you mean sacrebleu/toy/full"):
        get_corpus("sacrebleu/toy/ful", "de-en", tmp_path / "other")


def test_a_test_set_without_the_file_it_should_have_is_damaged(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sacrebleu.dataset import DATASETS
    from sacrebleu.dataset.plain_text import PlainTextDataset

    address = site.put("/test.tgz", tarred({"t/src": b"a\n"}))
    made = PlainTextDataset("toy", data=[address], langpairs={"en-de": ["t/src", "t/ref"]})
    monkeypatch.setitem(DATASETS, "toy", made)
    with pytest.raises(DataError, match="is damaged"):
        get_corpus("sacrebleu/toy", "en-de", tmp_path)


def test_the_playground_is_written_without_a_network(tmp_path: Path) -> None:
    from manyheads import playground

    got = get_corpus("playground", "en-ko", tmp_path)
    counts = {name: split.pairs for name, split in got.splits.items()}
    assert counts == {"train": 20_000, "valid": 500, "test": 500}
    expected = playground.generate_corpus("en-ko", **counts, seed=1)
    for name, pairs in expected.items():
        lines = [text(tmp_path, f"{name}.{code}").split("\n")[:-1] for code in ("en", "ko")]
        assert list(zip(*lines, strict=True)) == pairs
    assert got.sha256 == {}
    get_corpus("playground", "ko-en", tmp_path / "turned")
    assert text(tmp_path / "turned", "valid.ko") == text(tmp_path, "valid.ko")


def test_files_of_ones_own_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("mine")
    with pytest.raises(RequestError, match="is there and is not from get"):
        get_corpus("playground", "en-ko", tmp_path)
    assert (tmp_path / "train.en").read_text() == "mine"


def test_a_call_that_fails_leaves_the_corpus_that_was_there_and_no_trace_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_corpus("playground", "en-ko", tmp_path / "old")
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir() if path.is_file()}

    def fail(*_: Any, **__: Any) -> None:
        raise DataError("no network")

    monkeypatch.setattr("manyheads.playground.generate_corpus", fail)
    for folder in ("old", "new"):
        with pytest.raises(DataError, match="no network"):
            get_corpus("playground", "en-ko", tmp_path / folder, again=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir() if path.is_file()} == before
    assert not (tmp_path / "new").exists()


# The table


def known() -> list[CatalogEntry]:
    return list(load_catalog().corpora.values())


@pytest.mark.parametrize("corpus", known(), ids=lambda corpus: corpus.name)
def test_every_row_of_the_table_is_well_formed(corpus: CatalogEntry) -> None:
    table = load_catalog()
    assert corpus.title
    assert corpus.license
    assert corpus.license_at
    assert corpus.list_parts()
    for text in corpus.pairs or ["en-ko", "ko-en"]:
        pair = LanguagePair.parse(text)
        assert corpus.choose_pair(text) == pair
        for part in [part for parts in corpus.select_parts(pair).values() for part in parts]:
            for language in pair.languages:
                known = {
                    **pair.get_placeholder_values(),
                    "language": language,
                    "corpus": "C",
                    "version": "v1",
                }
                filled = [table.fill(given, known) for given in (part.address, part.member) if given]
                filled += [table.fill(table.addresses[name], known) for name in table.addresses]
                assert not [made for made in filled if "{" in made or "}" in made]
                assert not part.address or filled[0].startswith("https://")
                sums = part.get_expected_file(language)
                assert re.fullmatch(r"[0-9a-f]{64}", sums["sha256"] or "0" * 64)
                assert re.fullmatch(r"[0-9a-f]{32}", sums["md5"] or "0" * 32)
                if part.address and "{language}" in part.address and isinstance(part.md5, dict):
                    assert sums["md5"], f"no sum for {language}"


def test_no_address_of_the_table_goes_without_encryption() -> None:
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
    assert [len(one["train"]) for one in parts.values()] == [3, 5]
    assert parts["en-de"]["test"] == [CorpusPart(sacrebleu="wmt14/full")]


def test_the_test_sets_that_the_table_names_are_on_the_list_of_sacrebleu() -> None:
    from sacrebleu.dataset import DATASETS

    for corpus in known():
        for part in corpus.list_parts():
            if part.sacrebleu and "{" not in part.sacrebleu:
                for pair in map(LanguagePair.parse, corpus.pairs):
                    assert str(pair) in DATASETS[part.sacrebleu].langpairs


def test_czech_has_no_test_of_2017() -> None:
    multi30k = load_catalog().corpora["multi30k"]
    assert "test2017" in multi30k.select_parts(LanguagePair.parse("de-en"))
    assert "test2017" not in multi30k.select_parts(LanguagePair.parse("en-cs"))


def test_the_documents_list_every_address_that_no_test_reaches() -> None:
    page = (ROOT / "docs" / "corpora.md").read_text(encoding="utf-8")
    table = load_catalog()
    addresses = [*table.addresses.values()]
    addresses += [
        table.fill(part.address, {name: f"{{{name}}}" for name in ("other", "language")})
        for corpus in known()
        for part in corpus.list_parts()
        if part.address
    ]
    for address in addresses:
        assert address in page


@pytest.mark.parametrize("pair", ["en-de", "de-en"])
def test_one_line_of_ones_own_mends_a_moved_address(site: Site, tmp_path: Path, pair: str) -> None:
    """The packaged recipe of Europarl, from a mirror."""
    files = {"europarl-v7.de-en.en": ENGLISH.encode(), "europarl-v7.de-en.de": GERMAN.encode()}
    site.put("/mirror/europarl/v7/de-en.tgz", tarred(files))
    own = tmp_path / "own.toml"
    own.write_text(f'addresses.statmt = "{site.base}/mirror"\n')
    got = get_corpus("europarl", pair, tmp_path / "out", catalog=load_catalog(own))
    assert text(got.folder, "train.de") == GERMAN


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("adresses.statmt = 1", "unknown key adresses; did you mean addresses"),
        ("[corpora.a]\ntitel = 1", "unknown key titel; did you mean title"),
        ("[corpora.a]\ntitle = 'a'", "corpora.a lacks license, license_at, homepage, splits"),
        ("corpora.a = 1", "shape of the corpora in known.toml"),
        ("addresses = 1", "are tables"),
        ("= 1", "is not TOML"),
        ("{part}{{ adress = 'a' }}]", "unknown key adress; did you mean address"),
        (
            "{part}{{ member = 'a' }}]",
            "a part needs one of address, opus, sacrebleu, playground, but",
        ),
        ("{part}{{ opus = 'a', address = 'b' }}]", "but has address and opus"),
        ("{part}{{ address = 'a' }}]\nsplits.'../b' = []", "names files, so it has letters and digits alone"),
    ],
)
def test_a_wrong_table_is_told_what_is_wrong(tmp_path: Path, written: str, message: str) -> None:
    part = "[corpora.a]\ntitle='a'\nlicense='a'\nlicense_at='a'\nhomepage='a'\nsplits.train = ["
    (tmp_path / "own.toml").write_text(written.format(part=part) if "{part}" in written else written)
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_catalog(tmp_path / "own.toml")


def test_a_placeholder_that_nothing_fills_is_told(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing fills \{langauge\}"):
        get_corpus(
            "toy", "en-de", tmp_path, catalog=toy(train=[CorpusPart(address=site.base + "/{langauge}.gz")])
        )


@pytest.mark.parametrize(
    ("name", "pair", "message"),
    [
        ("multi30kk", "en-de", "unknown corpus multi30kk; did you mean multi30k?"),
        ("multi30k", None, "multi30k needs --pair: en-de, en-fr"),
        ("multi30k", "en-ko", "multi30k has no en-ko; it has en-de, en-fr"),
        ("multi30k/x", "en-de", "multi30k is one corpus: leave out /x"),
        ("opus", "en-de", "must be opus/NAME"),
        ("opus/", "en-de", "must be opus/NAME"),
        ("opus/a?b", "en-de", "must be opus/NAME"),
        ("opus/Books", None, "opus needs --pair, such as en-de"),
        ("tatoeba", "en", "must be two languages"),
        ("tatoeba", "en-en", "must be two languages"),
        ("tatoeba", "en-../x", "must be two languages"),
    ],
)
def test_a_wrong_call_is_told_before_anything_is_written(
    tmp_path: Path, name: str, pair: str | None, message: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        get_corpus(name, pair, tmp_path / "out")
    assert only(tmp_path) == []


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


def own_table(site: Site, tmp_path: Path, body: bytes) -> Path:
    own = tmp_path / "own.toml"
    own.write_text(
        "[corpora.toy]\ntitle = 'A toy'\nlicense = 'CC0'\nlicense_at = 'here'\nhomepage = 'here'\n"
        "pairs = ['en-de']\n"
        f"splits.train = [{{ address = '{site.put('/c.zip', body)}', member = 'in/c.{{language}}' }}]\n"
    )
    return own


def test_the_command_brings_a_corpus_and_says_what_it_brought(site: Site, tmp_path: Path) -> None:
    own = own_table(site, tmp_path, zipped(SIDES))
    done = manyheads("get", "toy", "--table", str(own), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout == "toy en-de is in toy.en-de\ntrain: 3 pairs, train.en train.de\nlicense: CC0 (here)\n"
    )
    assert done.stderr.splitlines()[:2] == ["A toy", "license: CC0 (here)"]
    assert "c.zip: done in" in done.stderr
    assert text(tmp_path / "toy.en-de", "train.en") == ENGLISH
    second = manyheads("get", "toy", "--table", str(own), "--json", folder=tmp_path)
    row = json.loads(second.stdout)
    assert (row["fresh"], row["splits"]["train"]["pairs"], row["folder"]) == (False, 3, "toy.en-de")


def test_the_command_fails_with_3_and_one_line(site: Site, tmp_path: Path) -> None:
    own = own_table(site, tmp_path, b"not a zip")
    done = manyheads("get", "toy", "--table", str(own), "--out", "out", folder=tmp_path)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("manyheads: c.zip is damaged")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["multi30kk"], "unknown corpus multi30kk; did you mean multi30k?"),
        ([], "get needs the NAME of a corpus; manyheads get --list shows them"),
        (["toy", "--table", "nowhere.toml"], "nowhere.toml cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_command_is_one_clear_line_and_exit_code_2(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = manyheads("get", *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"manyheads: {message}\n")


def test_the_list_shows_names_pairs_and_licenses(tmp_path: Path) -> None:
    done = manyheads("get", "--list", "--json", folder=tmp_path)
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["wmt14"]["bytes"] == 657632379 + 918311367 + 80418416
    shown = load_catalog().to_text()
    for name, row in rows.items():
        assert f"{name}\n" in shown
        assert row["license"] in shown
        assert ", ".join(row["pairs"]) in shown


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
    address = site.put("/file", BODY)
    terminal, log = Terminal(), io.StringIO()
    with create_progress(terminal, unit="bytes") as bars:
        bars.message("A toy [bold]")
        download(address, tmp_path / "a", progress=bars)
    with create_progress(log) as lines:
        download(address, tmp_path / "b", progress=lines)
    assert isinstance(bars, ProgressBars)
    assert isinstance(lines, ProgressLines)
    assert "A toy [bold]" in terminal.getvalue()
    assert "100%" in terminal.getvalue() or "512.0/512.0 kB" in terminal.getvalue()
    assert re.fullmatch(r"b \.\.\.\nb: done in \d\.\d s\n", log.getvalue())
