"""Servers to ask: in this process, or listening on a socket of its own."""

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
from manyheads.serve.app import create_app
from manyheads.serve.limits import ServerLimits
from manyheads.serve.middleware import AllowedHosts
from manyheads.serve.server import create_server
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.scripted_translator import ScriptedTranslator, serve_scripted
from support.strategies import randomize_weights

CreateClient = Callable[..., AbstractContextManager[TestClient]]
StartServer = Callable[..., AbstractContextManager[int]]


@pytest.fixture(scope="session")
def asking() -> CreateClient:
    @contextmanager
    def ask(
        *translators: ScriptedTranslator,
        limits: ServerLimits | None = None,
        doors: AllowedHosts | None = None,
        **how: Any,
    ) -> Any:
        app = create_app(serve_scripted(*(translators or (ScriptedTranslator(),))), limits, doors, **how)
        with TestClient(app, base_url="http://localhost") as client:
            yield client

    return ask


@pytest.fixture(scope="module")
def client(asking: CreateClient) -> Iterator[TestClient]:
    with asking() as found:
        yield found


@pytest.fixture
def listening() -> StartServer:
    """A server on a port, in a thread: the whole of it, as `manyheads serve` runs it."""

    @contextmanager
    def listen(
        *translators: ScriptedTranslator, limits: ServerLimits | None = None, **how: Any
    ) -> Iterator[int]:
        app = create_app(serve_scripted(*(translators or (ScriptedTranslator(),))), limits, **how)
        server = create_server(app)
        place = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield place.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
            place.close()
            assert not thread.is_alive()

    return listen


# ---- a small model that was never trained

TEXTS = ["나는 오늘 집에 간다.", "I go home today.", "We read a book at school."] * 20


def make_translator(folder: Path, seed: int, *, speaks: bool) -> mh.Translator:
    """It says bytes, or, where it speaks, pieces of words."""
    subwords = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=320))
    config = mh.Config(
        model=mh.TransformerConfig(vocab_size=320, layers=2, d_model=16, d_ff=32, heads=2),
        data=mh.DataConfig(max_length=40),
        decoding=mh.DecodingConfig(max_extra_length=6),
    )
    torch.manual_seed(seed)
    model = mh.Transformer(config.model)
    randomize_weights(model)
    if speaks:
        with torch.no_grad():
            model.output.weight[3:259] = 0  # the bytes
            model.output.weight[259:] *= 3
    languages = {"source": "en", "target": "ko"}
    pair = SubwordPair(subwords, subwords)
    checkpoint.save(folder, checkpoint.collect_weights(model), pair, config, step=1, languages=languages)
    return mh.load(folder, device="cpu")


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> mh.Translator:
    return make_translator(tmp_path_factory.mktemp("served") / "model", 0, speaks=False)


@pytest.fixture(scope="session")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> mh.Translator:
    return make_translator(tmp_path_factory.mktemp("served") / "model", 1, speaks=True)
