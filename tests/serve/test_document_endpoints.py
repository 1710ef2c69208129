"""`/translate_file`, `/docs` and `/spec`, as clients of LibreTranslate use them."""

import asyncio
import errno
import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from manyheads.serve import document_store
from manyheads.serve.client_turns import ClientTurns
from manyheads.serve.document_store import DocumentStore
from manyheads.serve.limits import ServerLimits
from support.office_files import get_part, make_docx, make_odt, unpack
from support.scripted_translator import ScriptedTranslator

FIELDS = {"source": "en", "target": "ko"}
PARAGRAPH = "<w:p><w:r><w:t>one </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>two</w:t></w:r></w:p>"


def upload(client: TestClient, name: str, data: bytes | str, **fields: str) -> Any:
    return client.post("/translate_file", data={**FIELDS, **fields}, files={"file": (name, data)})


def fetch(client: TestClient, response: Any) -> Any:
    assert response.status_code == 200, response.text
    address = response.json()["translatedFileUrl"]
    assert address.startswith("http://localhost/download_file/")
    return client.get(address)


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", "one two\n\nthree four\n", "two one\n\nfour three\n"),
        ("A.HTML", "<p>one <b>two</b></p>", "<p><b>two</b> one</p>"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\na b\n", "1\n00:00:01,000 --> 00:00:02,000\nb a\n"),
        ("a.po", 'msgid "a b"\nmsgstr ""\n', 'msgid "a b"\nmsgstr "b a"\n'),
        ("../../etc/a.md", "# a *b*\n", "# *b* a\n"),
    ],
)
def test_a_document_is_translated_and_fetched(
    client: TestClient, name: str, data: str, expected: str
) -> None:
    response = fetch(client, upload(client, name, data))
    assert (response.status_code, response.text) == (200, expected)
    suffix = name.lower().rpartition(".")[2]
    assert response.headers["content-disposition"] == f'attachment; filename="translation.{suffix}"'
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["x-content-type-options"] == "nosniff"


def test_office_documents_are_translated(client: TestClient) -> None:
    translated = fetch(client, upload(client, "a.docx", make_docx(PARAGRAPH))).content
    assert list(unpack(translated)) == list(unpack(make_docx(PARAGRAPH)))
    assert re.findall(r"<w:t[^>]*>([^<]*)", get_part(translated, "word/document.xml")) == ["two", " one"]
    translated = fetch(
        client, upload(client, "a.odt", make_odt("<text:p>a b</text:p>"), source="auto")
    ).content
    assert "b a" in get_part(translated, "content.xml")


def test_a_document_longer_than_a_request_is_translated_in_parts(create_client: Any) -> None:
    translator = ScriptedTranslator()
    limits = ServerLimits(max_characters=30, max_texts=4, max_file_characters=1000)
    with create_client(translator, limits=limits) as client:
        text = "".join(f"line {n}\n" for n in range(10))
        assert fetch(client, upload(client, "a.txt", text)).text == "".join(f"{n} line\n" for n in range(10))
        assert [len(call) for call in translator.calls] == [4, 4, 2]
        error = upload(client, "a.txt", "word\n" * 300).json()["error"]
        assert error.startswith("the document has 1,200 characters to translate, but the maximum is 1,000")


@pytest.mark.parametrize(
    ("name", "data", "fields", "status", "error"),
    [
        ("a.pdf", "x", {}, 400, "a.pdf: not a document: its name must end in .txt"),
        ("a.docx", "x", {}, 400, "a.docx: is not a zip archive"),
        ("a.md", b"\xff", {}, 400, "a.md:1: byte 0xff is not UTF-8"),
        ("a.txt", "x", {"target": "fr"}, 400, "the language 'fr' is not served"),
        ("a.txt", "x", {"sorce": "en"}, 400, "unknown field sorce; did you mean source?"),
        ("a.txt", "impossible", {}, 400, "this cannot be translated"),
        ("a.txt", "x", {"below": "mark"}, 400, "need a calibrated model"),
        ("a.txt", "x" * 2000, {}, 413, "the body has more than 2000 bytes"),
    ],
)
def test_wrong_documents_are_named(
    create_client: Any, name: str, data: bytes, fields: dict[str, str], status: int, error: str
) -> None:
    with create_client(limits=ServerLimits(max_file_bytes=2000)) as client:
        response = upload(client, name, data, **fields)
        assert response.status_code == status
        assert error in response.json()["error"]


def test_damage_that_is_noticed_in_the_end_is_a_400(client: TestClient) -> None:
    data = bytearray(make_docx(PARAGRAPH))
    data[data.index(b"word/media/picture.png") + 25] ^= 1
    response = upload(client, "a.docx", bytes(data))
    assert response.status_code == 400
    assert "word/media/picture.png is damaged" in response.json()["error"]


def test_a_request_without_a_file_is_refused(client: TestClient) -> None:
    for request in ({"data": FIELDS}, {"json": FIELDS}):
        assert client.post("/translate_file", **request).status_code == 415
    response = client.post("/translate_file", files={"other": ("a.txt", "x")}, data=FIELDS)
    assert response.json()["error"] == "the file is the field 'other', but must be the field 'file'"
    response = client.post("/translate_file", files={key: (None, value) for key, value in FIELDS.items()})
    assert (response.status_code, response.json()["error"][:20]) == (400, "file: Field required")


def test_documents_need_the_api_key_but_fetching_needs_the_address_only(create_client: Any) -> None:
    with create_client(api_key="secret") as client:
        assert upload(client, "a.txt", "a b").status_code == 403
        assert fetch(client, upload(client, "a.txt", "a b", api_key="secret")).text == "b a"


@pytest.mark.parametrize(
    "name", ["x", "../serve", "%2e%2e/passwd", "A" * 24 + ".txt", "A" * 24 + ".txt/../x"]
)
def test_names_that_were_not_given_are_404(client: TestClient, name: str) -> None:
    assert client.get(f"/download_file/{name}").status_code == 404


def test_a_busy_document_times_out(create_client: Any) -> None:
    translator = ScriptedTranslator(release=threading.Event())
    with create_client(translator, limits=ServerLimits(file_timeout=0.2)) as client:
        response = upload(client, "a.txt", "a b")
        translator.release.set()
        assert (response.status_code, response.json()["error"]) == (503, "not completed within 0.2 seconds")


def test_the_store_forgets_old_documents_and_bounds_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    store = DocumentStore()
    first = store.save(b"1" * 10, ".txt")
    assert store.folder.stat().st_mode & 0o077 == 0, "other users cannot read it"
    monkeypatch.setattr(document_store, "MAX_STORED_BYTES", 25)
    time.sleep(0.01)
    second, third = store.save(b"2" * 10, ".txt"), store.save(b"3" * 10, ".txt")
    assert [store.read(name) for name in (first, second, third)] == [None, b"2" * 10, b"3" * 10]
    monkeypatch.setattr(document_store, "KEPT_SECONDS", 0.0)
    assert store.read(third) is None
    folder: Path = store.folder
    store.close()
    assert not folder.exists()


def test_the_description_of_the_api_is_a_page_and_a_specification(client: TestClient) -> None:
    assert client.get("/spec").json() == client.get("/openapi.json").json()
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for path in client.get("/spec").json()["paths"]:
        assert f"<code>{path}</code>" in page.text
    assert "<script" not in page.text
    assert "http" not in page.text.replace("HTTP", "")
    settings = client.get("/frontend/settings").json()
    assert settings["filesTranslation"] is True
    assert {".docx", ".odt", ".srt"} <= set(settings["supportedFilesFormat"])


def test_documents_that_wait_are_taken_from_each_client_in_turn() -> None:
    """A client with countless documents does not keep those of others waiting."""
    order: list[str] = []

    async def scenario() -> None:
        turns = ClientTurns(2)
        go_on = asyncio.Event()

        async def translate(client: str) -> None:
            async with turns.take(client):
                order.append(client)
                await go_on.wait()

        tasks = [asyncio.create_task(translate(client)) for client in "aaaaaabbc"]
        await asyncio.sleep(0)
        assert order == ["a", "a"]
        tasks[2].cancel()
        go_on.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (turns.num_free, list(turns.waiting)) == (2, [])

        async with turns.take("a"), turns.take("a"):
            late = asyncio.create_task(translate("b"))
            await asyncio.sleep(0)
        late.cancel()  # when it has its turn, but has not noticed yet
        await asyncio.gather(late, return_exceptions=True)
        assert (turns.num_free, list(turns.waiting)) == (2, [])

    asyncio.run(scenario())
    assert order[:8] == ["a", "a", "b", "c", "a", "b", "a", "a"]


def test_a_full_disk_or_a_removed_folder_is_a_503(
    create_client: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    def fill_disk(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = tmp_path / "documents"
    folder.mkdir()
    with create_client(document_folder=str(folder)) as client:
        address = upload(client, "a.txt", "a b").json()["translatedFileUrl"]
        with monkeypatch.context() as patched:
            patched.setattr(document_store, "write_bytes_atomically", fill_disk)
            response = upload(client, "a.txt", "a b")
            assert response.status_code == 503
            assert "the translated document could not be stored" in response.json()["error"]
        with monkeypatch.context() as patched:
            patched.setattr("tempfile.SpooledTemporaryFile.write", fill_disk)
            response = upload(client, "a.txt", "a b")
            assert response.status_code == 503
            assert response.json()["error"].startswith("the form could not be stored")
        assert client.get(address).text == "b a"
        shutil.rmtree(folder)
        assert client.get(address).status_code == 404
        assert upload(client, "a.txt", "a b").status_code == 503


@pytest.mark.parametrize("charset", ["undefined", "punycode", "idna", "utf-16", "no-such-codec", "x" * 500])
def test_a_form_in_an_odd_charset_is_no_error_of_the_server(client: TestClient, charset: str) -> None:
    """Python has codecs that raise UnicodeError itself, which Starlette does not expect."""
    fields = {"q": "caf\u00e9 b", **FIELDS}
    parts = [f'--b\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items()]
    headers = {"content-type": f"multipart/form-data; boundary=b; charset={charset}"}
    body = ("".join(parts) + "--b--\r\n").encode()
    for path in ("/translate", "/translate_file"):
        assert client.post(path, content=body, headers=headers).status_code in (200, 400), path
