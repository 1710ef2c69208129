"""Published clients of LibreTranslate and DeepL work with this server. `make test-all` installs them."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from support.server_process import ServerProcess, start_server
from support.untrained_model import save_untrained_model

pytestmark = pytest.mark.heavy
CLIENTS = Path(__file__).parent / "clients"
NPM = ["libretranslate@1.0.1", "translate@3.1.0"]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with start_server() as process:
        yield process


def test_libretranslatepy_works(server: ServerProcess) -> None:
    from libretranslatepy import LibreTranslateAPI

    client = LibreTranslateAPI(f"http://127.0.0.1:{server.port}/")
    assert client.translate("one two", "en", "ko") == "two one"
    assert client.detect("안녕하세요")[0]["language"] == "ko"
    assert client.languages()[0] == {"code": "en", "name": "English", "targets": ["ko"]}


def test_libretranslate_aio_works(server: ServerProcess) -> None:
    from libretranslate_aio import AsyncLibreTranslate, BadRequestError, LibreTranslate

    url = f"http://127.0.0.1:{server.port}"
    with LibreTranslate(url) as client:
        assert client.translate("one two", "en", "ko").translated_text == "two one"
        several = client.translate(["one two", "a b"], "auto", "ko", alternatives=2)
        assert several.translated_text == ["two one", "b a"]
        assert several.alternatives == [["two one 1", "two one 2"], ["b a 1", "b a 2"]]
        assert [detection.language for detection in several.detected_language] == ["en", "en"]
        assert client.translate("<p>a b</p>", "en", "ko", format="html").translated_text == "<p>b a</p>"
        assert client.detect("안녕하세요")[0].language == "ko"
        assert client.languages()[0].targets == ["ko"]
        assert client.frontend_settings().language.target.code == "ko"
        assert client.health()
        with pytest.raises(BadRequestError, match="is not served"):
            client.translate("a", "xx", "ko")

    async def translate() -> str:
        async with AsyncLibreTranslate(url) as client:
            return str((await client.translate("one two", "en", "ko")).translated_text)

    assert asyncio.run(translate()) == "two one"


def test_libretranslate_aio_translates_documents(server: ServerProcess, tmp_path: Path) -> None:
    from libretranslate_aio import LibreTranslate

    (tmp_path / "page.html").write_text("<p>one <b>two</b></p>")
    with LibreTranslate(f"http://127.0.0.1:{server.port}") as client:
        assert ".docx" in client.frontend_settings().supported_files_format
        translated = client.translate_file(str(tmp_path / "page.html"), "en_US", "ko-KR")
        with urlopen(translated.translated_file_url) as response:
            assert response.read() == b"<p><b>two</b> one</p>"


def test_the_official_client_of_deepl_works(server: ServerProcess) -> None:
    import deepl

    client = deepl.DeepLClient("any:fx", server_url=f"http://127.0.0.1:{server.port}")
    result = client.translate_text("one two", target_lang="KO", source_lang="EN")
    assert (result.text, result.detected_source_lang) == ("two one", "EN")
    several = client.translate_text(["Where is the library, please?", "a b"], target_lang="KO")
    assert [entry.text for entry in several] == ["please? library, the is Where", "b a"]
    html = client.translate_text("<p>a <b>b</b></p>", target_lang="KO", source_lang="EN", tag_handling="html")
    assert html.text == "<p><b>b</b> a</p>"
    assert [language.code for language in client.get_source_languages()] == ["EN"]
    assert [language.code for language in client.get_target_languages()] == ["KO"]
    with pytest.raises(deepl.DeepLException, match="'FR' is not served"):
        client.translate_text("a", target_lang="FR")


def test_deep_translator_works(server: ServerProcess) -> None:
    from deep_translator import LibreTranslator

    client = LibreTranslator("en", "ko", api_key="any", custom_url=f"http://127.0.0.1:{server.port}/")
    assert client.translate("one two") == "two one"
    assert client.translate_batch(["one two", "a b"]) == ["two one", "b a"]


def test_the_npm_packages_libretranslate_and_translate_work(server: ServerProcess, tmp_path: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        pytest.skip("node is not installed")
    shutil.copy(CLIENTS / "translate.mjs", tmp_path)
    (tmp_path / "package.json").write_text('{"name": "clients", "private": true, "type": "module"}')
    install = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *NPM]
    process = subprocess.run(install, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    if process.returncode:
        pytest.skip(f"npm could not install the clients: {(process.stderr or process.stdout).strip()[:200]}")
    command = [node, "translate.mjs", f"http://127.0.0.1:{server.port}"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == {"libretranslate": "two one", "translate": "two one"}


@pytest.fixture(scope="module")
def model_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start_server(model=save_untrained_model(tmp_path_factory.mktemp("tiny") / "model")) as process:
        yield process


@pytest.mark.parametrize(("fixture", "examples"), [("server", 150), ("model_server", 30)])
def test_schemathesis_finds_no_5xx_and_no_undocumented_response(
    fixture: str, examples: int, request: pytest.FixtureRequest
) -> None:
    """Checks of data are excluded: a form cannot express empty lists, null and the types of values."""
    server: ServerProcess = request.getfixturevalue(fixture)
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "run",
        f"http://127.0.0.1:{server.port}/openapi.json",
    ]
    checks = ["--checks=all", "--exclude-checks=positive_data_acceptance,negative_data_rejection"]
    options = [
        "--phases=examples,coverage,fuzzing",
        f"--max-examples={examples}",
        "--continue-on-failure",
        "--seed=1",
    ]
    process = subprocess.run([*command, *checks, *options], capture_output=True, text=True, timeout=900)
    assert process.returncode == 0, process.stdout[-5000:]
    with urlopen(f"http://127.0.0.1:{server.port}/openapi.json") as response:
        num_operations = sum(map(len, json.load(response)["paths"].values()))
    assert f"Tested: {num_operations}" in process.stdout
