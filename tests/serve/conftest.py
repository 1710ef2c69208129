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
from manyheads.serve.app import application
from manyheads.serve.limits import Limits
from manyheads.serve.middleware import Doors
from manyheads.serve.server import listening_server
from manyheads.text.subwords import SubwordPair, Subwords
from support.draw import randomize_weights
from support.scripted import ScriptedTranslator, serve_scripted

Asking = Callable[..., AbstractContextManager[TestClient]]
Listening = Callable[..., AbstractContextManager[int]]


@pytest.fixture(scope="session")
def asking() -> Asking:
    @contextmanager
    def ask(
        *translators: ScriptedTranslator, limits: Limits | None = None, doors: Doors | None = None, **how: Any
    ) -> Any:
        app = application(serve_scripted(*(translators or (ScriptedTranslator(),))), limits, doors, **how)
        with TestClient(app, base_url="http://localhost") as client:
            yield client

    return ask


@pytest.fixture(scope="module")
def client(asking: Asking) -> Iterator[TestClient]:
    with asking() as found:
        yield found


@pytest.fixture
def listening() -> Listening:
    """A server on a port, in a thread: the whole of it, as `manyheads serve` runs it."""

    @contextmanager
    def listen(*translators: ScriptedTranslator, limits: Limits | None = None, **how: Any) -> Iterator[int]:
        app = application(serve_scripted(*(translators or (ScriptedTranslator(),))), limits, **how)
        server = listening_server(app)
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


def small(folder: Path, seed: int, *, speaks: bool) -> mh.Translator:
    """It says bytes, or, where it speaks, pieces of words."""
    subwords = Subwords.train(TEXTS, SubwordConfig(vocab_size=320))
    config = mh.Config(
        model=mh.ModelConfig(vocab_size=320, layers=2, d_model=16, d_ff=32, heads=2),
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
    return small(tmp_path_factory.mktemp("served") / "model", 0, speaks=False)


@pytest.fixture(scope="session")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> mh.Translator:
    return small(tmp_path_factory.mktemp("served") / "model", 1, speaks=True)
