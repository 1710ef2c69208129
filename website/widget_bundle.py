"""The scripts of the book: the widgets with the engine of the live page, and a model for them.

Browsers load no ES modules from a file, so the modules are concatenated into one classic script. The model
is a script of its own, which the pages that need it load.
"""

import json
from pathlib import Path

from manyheads.look.html import concat_modules, read_asset

WIDGETS = Path(__file__).parent / "widgets"


def read_module(name: str) -> str:
    """Return a module of the widgets, or of the pages of manyheads look."""
    path = WIDGETS / name
    return path.read_text(encoding="utf-8") if path.exists() else read_asset(name)


def render_widget_script() -> str:
    """Return all modules as one script that leaves no global names."""
    return f'(() => {{\n"use strict";\n{concat_modules("book_main.js", read_module)}\n}})();\n'


def render_model_script(folder: Path) -> str:
    """Return a script with the weights of a model folder, rounded to int8, and its subwords."""
    from manyheads.look.live_page import build_live_data

    data = json.dumps(build_live_data(folder), ensure_ascii=False, separators=(",", ":"))
    return f"window.manyheadsBookModel = {data};\n"
