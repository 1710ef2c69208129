"""The pages, built once, with a small model that was never trained."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.browser import browser, pages, skip_without_browser  # noqa: F401
from support.source_tree import ROOT
from support.untrained_model import save_untrained_model


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("material") is None:
        skip_without_browser("MkDocs Material is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    model = save_untrained_model(folder / "model")
    environment = {**os.environ, "MANYHEADS_BOOK_MODEL": str(model), "NO_MKDOCS_2_WARNING": "1"}
    call = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder / "pages"),
    ]
    process = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return folder / "pages"
