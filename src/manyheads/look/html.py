"""One file that holds a page, its data and its program, and needs nothing from outside.

The program is the ES modules of the folder page/, laid one after the other in the order of their imports.
A strict Content-Security-Policy names the hash of this one script and this one style; whatever a token may
hold, no browser runs it.
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

ENTRY_MODULE = "main.js"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z]+\.js)";\n', flags=re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function|class|const)", flags=re.MULTILINE)
JSON_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_page(data: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Complete or absent: written aside and renamed."""
    place = Path(path)
    if place.is_dir():
        raise RequestError(f"{place}: is a folder; give the page a name, such as {place / 'page.html'}")
    place.parent.mkdir(parents=True, exist_ok=True)
    aside = place.with_name(f".{place.name}.manyheads-part")
    try:
        aside.write_text(render_page(data), encoding="utf-8")
        aside.replace(place)
    finally:
        aside.unlink(missing_ok=True)
    return place


def render_page(data: dict[str, Any]) -> str:
    """The page of what maps.py describes."""
    style, script = read_asset("page.css"), bundle_modules()
    policy = (
        f"default-src 'none'; script-src {csp_hash(script)}; style-src {csp_hash(style)}; "
        f"img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(f"{data['text']['source']} - Manyheads"),
        "style": style,
        "data": embed_json(data),
        "script": script,
    }
    return re.sub(r"\{(\w+)\}", lambda found: parts[found.group(1)], read_asset("page.html"))


def embed_json(data: dict[str, Any]) -> str:
    """JSON in which no character can end the element that it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda found: JSON_ESCAPES[found.group()], text)


def csp_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@cache
def bundle_modules() -> str:
    """All modules as one: each after those that it imports, without the words import and export."""
    order: list[str] = []

    def add(name: str) -> None:
        if name not in order:
            for needed in IMPORT.findall(read_asset(name)):
                add(needed)
            order.append(name)

    add(ENTRY_MODULE)
    return "\n".join(EXPORT.sub("", IMPORT.sub("", read_asset(name))) for name in order)


@cache
def read_asset(name: str) -> str:
    """A file of the folder page/."""
    return files("manyheads.look").joinpath("assets", name).read_text(encoding="utf-8")
