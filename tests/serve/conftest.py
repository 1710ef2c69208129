"""Servers for tests: in this process, or listening on a socket."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import SubwordConfig
from manyheads.serve.allowed_hosts import AllowedHosts
from manyheads.serve.app import create_app
from manyheads.serve.limits import ServerLimits
from manyheads.serve.server import create_server
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.browser import browser, pages  # noqa: F401
from support.scripted_translator import ScriptedTranslator, serve_scripted
from support.strategies import randomize_weights

CreateClient = Callable[..., AbstractContextManager[TestClient]]
RunServer = Callable[..., AbstractContextManager[int]]


@pytest.fixture(scope="session")
def create_client() -> CreateClient:
    """Create clients of servers in this process, without a socket."""

    @contextmanager
    def create(
        *translators: ScriptedTranslator,
        limits: ServerLimits | None = None,
        allowed_hosts: AllowedHosts | None = None,
        **options: Any,
    ) -> Any:
        models = serve_scripted(*(translators or (ScriptedTranslator(),)))
        app = create_app(models, limits, allowed_hosts, **options)
        with TestClient(app, base_url="http://localhost") as client:
            yield client

    return create


@pytest.fixture(scope="module")
def client(create_client: CreateClient) -> Iterator[TestClient]:
    with create_client() as client:
        yield client


@pytest.fixture
def run_server() -> RunServer:
    """Run servers on ports of their own, each in a thread, as `manyheads serve` runs them."""

    @contextmanager
    def run(
        *translators: ScriptedTranslator, limits: ServerLimits | None = None, **options: Any
    ) -> Iterator[int]:
        app = create_app(serve_scripted(*(translators or (ScriptedTranslator(),))), limits, **options)
        server = create_server(app)
        server_socket = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [server_socket]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield server_socket.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
            server_socket.close()
            assert not thread.is_alive()

    return run


# ---- small models that were never trained

TEXTS = ["나는 오늘 집에 간다.", "I go home today.", "We read a book at school."] * 20


def make_translator(folder: Path, seed: int, *, outputs_words: bool) -> mh.Translator:
    """Save and load a model whose translations are bytes, or pieces of words."""
    subwords = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=320))
    config = mh.Config(
        model=mh.TransformerConfig(vocab_size=320, layers=2, d_model=16, d_ff=32, heads=2),
        data=mh.DataConfig(max_length=40),
        decoding=mh.DecodingConfig(max_extra_length=6),
    )
    torch.manual_seed(seed)
    model = mh.Transformer(config.model)
    randomize_weights(model)
    if outputs_words:
        with torch.no_grad():
            model.output.weight[3:259] = 0  # the bytes
            model.output.weight[259:] *= 3
    languages = {"source": "en", "target": "ko"}
    pair = SubwordPair(subwords, subwords)
    checkpoint.save(folder, checkpoint.collect_weights(model), pair, config, step=1, languages=languages)
    return mh.load(folder, device="cpu")


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> mh.Translator:
    return make_translator(tmp_path_factory.mktemp("served") / "model", 0, outputs_words=False)


@pytest.fixture(scope="session")
def word_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "model"
    make_translator(folder, 25, outputs_words=True)  # one that writes several words
    return folder


@pytest.fixture(scope="session")
def word_translator(word_model: Path) -> mh.Translator:
    return mh.load(word_model, device="cpu")
