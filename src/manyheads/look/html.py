"""A page as a single HTML file with its data and its program.

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
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from manyheads.errors import RequestError

FOLDERS = ("assets", "live")  # no file name is in both
IMPORT = re.compile(r'^import \{[^}]*\} from "\.\.?/(?:assets/)?([a-z_]+\.js)";\n', flags=re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function|class|const)", flags=re.MULTILINE)
JSON_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_page(data: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the attention page."""
    return write_atomically(render_page(data), path)


def render_page(data: dict[str, Any]) -> str:
    """Return the page for the data that attention_data.py describes."""
    title = f"{data['text']['source']} - Manyheads"
    return render_html(data, title, template="template.html", style="attention.css", entry="main.js")


def write_atomically(content: str, path: str | os.PathLike[str]) -> Path:
    """Write a page to a temporary file, and rename it when it is complete."""
    target = Path(path)
    if target.is_dir():
        raise RequestError(f"{target}: is a folder; give a file name, such as {target / 'page.html'}")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.manyheads-part")
    try:
        temporary.write_text(content, encoding="utf-8")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def render_html(data: dict[str, Any], title: str, *, template: str, style: str, entry: str) -> str:
    """Return a page with its data, its style sheet and the program that starts in the module `entry`."""
    css, script = read_asset(style), bundle_modules(entry)
    policy = (
        f"default-src 'none'; script-src {csp_hash(script)}; style-src {csp_hash(css)}; "
        f"img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(title),
        "style": css,
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
def bundle_modules(entry: str) -> str:
    """Concatenate a module and all that it needs, each after its imports, without these two keywords."""
    order: list[str] = []

    def add(name: str) -> None:
        if name not in order:
            for imported in IMPORT.findall(read_asset(name)):
                add(imported)
            order.append(name)

    add(entry)
    return "\n".join(EXPORT.sub("", IMPORT.sub("", read_asset(name))) for name in order)


@cache
def read_asset(name: str) -> str:
    folders = [files("manyheads.look").joinpath(folder, name) for folder in FOLDERS]
    return next(path for path in folders if path.is_file()).read_text(encoding="utf-8")
