"""Clients that others wrote for LibreTranslate complete their calls. `make test-all` installs them."""

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
    with start_server() as found:
        yield found


def test_libretranslatepy(server: ServerProcess) -> None:
    from libretranslatepy import LibreTranslateAPI

    client = LibreTranslateAPI(f"http://127.0.0.1:{server.port}/")
    assert client.translate("one two", "en", "ko") == "two one"
    assert client.detect("안녕하세요")[0]["language"] == "ko"
    assert client.languages()[0] == {"code": "en", "name": "English", "targets": ["ko"]}


def test_libretranslate_aio(server: ServerProcess) -> None:
    from libretranslate_aio import AsyncLibreTranslate, BadRequestError, LibreTranslate

    url = f"http://127.0.0.1:{server.port}"
    with LibreTranslate(url) as client:
        assert client.translate("one two", "en", "ko").translated_text == "two one"
        several = client.translate(["one two", "a b"], "auto", "ko", alternatives=2)
        assert several.translated_text == ["two one", "b a"]
        assert several.alternatives == [["two one 1", "two one 2"], ["b a 1", "b a 2"]]
        assert [one.language for one in several.detected_language] == ["en", "en"]
        assert client.translate("<p>a b</p>", "en", "ko", format="html").translated_text == "<p>b a</p>"
        assert client.detect("안녕하세요")[0].language == "ko"
        assert client.languages()[0].targets == ["ko"]
        assert client.frontend_settings().language.target.code == "ko"
        assert client.health()
        with pytest.raises(BadRequestError, match="is not served"):
            client.translate("a", "xx", "ko")

    async def story() -> str:
        async with AsyncLibreTranslate(url) as other:
            return (await other.translate("one two", "en", "ko")).translated_text

    assert asyncio.run(story()) == "two one"


def test_deep_translator(server: ServerProcess) -> None:
    from deep_translator import LibreTranslator

    client = LibreTranslator("en", "ko", api_key="any", custom_url=f"http://127.0.0.1:{server.port}/")
    assert client.translate("one two") == "two one"
    assert client.translate_batch(["one two", "a b"]) == ["two one", "b a"]


def test_the_npm_clients_libretranslate_and_translate(server: ServerProcess, tmp_path: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        pytest.skip("no node here: the clients of npm were not tried")
    shutil.copy(CLIENTS / "ask.mjs", tmp_path)
    (tmp_path / "package.json").write_text('{"name": "clients", "private": true, "type": "module"}')
    install = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *NPM]
    done = subprocess.run(install, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    if done.returncode:
        pytest.skip(f"npm could not fetch the clients: {(done.stderr or done.stdout).strip()[:200]}")
    command = [node, "ask.mjs", f"http://127.0.0.1:{server.port}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"libretranslate": "two one", "translate": "two one"}


@pytest.fixture(scope="module")
def server_of_a_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start_server(model=save_untrained_model(tmp_path_factory.mktemp("tiny") / "model")) as found:
        yield found


@pytest.mark.parametrize(("kind", "examples"), [("server", 150), ("server_of_a_model", 30)])
def test_schemathesis_finds_no_5xx_and_no_answer_that_is_not_described(
    kind: str, examples: int, request: pytest.FixtureRequest
) -> None:
    """What a form cannot say is not judged: an empty list, null, and the types of values."""
    server: ServerProcess = request.getfixturevalue(kind)
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "run",
        f"http://127.0.0.1:{server.port}/openapi.json",
    ]
    how = ["--checks=all", "--exclude-checks=positive_data_acceptance,negative_data_rejection"]
    more = [
        "--phases=examples,coverage,fuzzing",
        f"--max-examples={examples}",
        "--continue-on-failure",
        "--seed=1",
    ]
    done = subprocess.run([*command, *how, *more], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-5000:]
    with urlopen(f"http://127.0.0.1:{server.port}/openapi.json") as answer:
        described = sum(map(len, json.load(answer)["paths"].values()))
    assert f"Tested: {described}" in done.stdout
