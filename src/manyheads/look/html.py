"""Pages as single HTML files with their data and their program.

The program is the ES modules of the folders assets/ and live/, concatenated in the order of their imports. A
strict Content-Security-Policy holds the hashes of this script and this style, so a browser runs nothing else,
whatever a token holds.
"""

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from manyheads.atomic_io import write_bytes_atomically
from manyheads.errors import RequestError

ATTENTION_PAGE = ("template.html", "main.js", ("attention.css",))
WALK_PAGE = ("walk_template.html", "walk_main.js", ("attention.css", "walk.css"))
FOLDERS = ("assets", "live")  # no file name is in both
IMPORT = re.compile(r'^import \{[^}]*\} from "\.\.?/(?:[a-z_./]+/)?([a-z_]+\.js)";\n', flags=re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function|class|const)", flags=re.MULTILINE)
JSON_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_page(data: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the attention page."""
    return write_html(render_page(data), path)


def write_walk_page(data: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the page of a walk."""
    return write_html(render_walk_page(data), path)


def write_html(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a page, which is complete or not there."""
    target = Path(path)
    if target.is_dir():
        raise RequestError(f"{target}: is a folder; give a file name, such as {target / 'page.html'}")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomically(target, text.encode("utf-8", "replace"))  # the name of a folder may be any bytes
    return target


def render_page(data: dict[str, Any]) -> str:
    """Return the page for the data that attention_data.py describes."""
    return render_template(ATTENTION_PAGE, data["text"]["source"], data)


def render_walk_page(data: dict[str, Any]) -> str:
    """Return the page for the layers of both stacks, as forward_walk.walk_model returns them."""
    return render_template(WALK_PAGE, data["encoder"][0]["source"], data)


def render_template(
    page: tuple[str, str, tuple[str, ...]], title: str, data: dict[str, Any], script_source: str = ""
) -> str:
    """Return a page: its template, the module that its program starts in, and its style sheets.

    `script_source` is what its policy allows besides the program.
    """
    template, entry_module, styles = page
    style, script = "".join(map(read_asset, styles)), bundle_modules(entry_module)
    policy = (
        f"default-src 'none'; script-src {csp_hash(script)}{script_source}; style-src {csp_hash(style)}; "
        f"img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(f"{title} - Manyheads"),
        "style": style,
        "data": embed_json(data),
        "script": script,
    }
    return re.sub(r"\{(\w+)\}", lambda match: parts[match.group(1)], read_asset(template))


def embed_json(data: dict[str, Any]) -> str:
    """Return JSON without the characters that could end its HTML element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda match: JSON_ESCAPES[match.group()], text)


def csp_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@cache
def bundle_modules(entry_module: str = "main.js") -> str:
    """Return the program of a page."""
    return concat_modules(entry_module, read_asset)


def concat_modules(entry_module: str, read_module: Callable[[str], str]) -> str:
    """Concatenate all modules, each after its imports, without the import and export keywords."""
    order: list[str] = []

    def add(name: str) -> None:
        if name not in order:
            for imported in IMPORT.findall(read_module(name)):
                add(imported)
            order.append(name)

    add(entry_module)
    return "\n".join(EXPORT.sub("", IMPORT.sub("", read_module(name))) for name in order)


@cache
def read_asset(name: str) -> str:
    folders = [files("manyheads.look").joinpath(folder, name) for folder in FOLDERS]
    return next(path for path in folders if path.is_file()).read_text(encoding="utf-8")
