"""What MkDocs does not do by itself: code from the source, formulas, widgets, links out of docs/.

`make docs` builds the pages. MANYHEADS_BOOK_MODEL is the folder of the model that the widgets run; without
it they say that there is none.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from code_lines import insert_code  # noqa: E402
from languages import KOREAN, build_korean_navigation, find_language, list_alternates  # noqa: E402
from math_markup import put_formulas, take_formulas  # noqa: E402
from widget_bundle import render_model_script, render_widget_script  # noqa: E402

DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\((\.\.?/[^)#\s]+)(?:#[^)]*)?\)")
ALTERNATE = re.compile(r'<link rel="alternate"[^>]*>\s*')
SEARCH_DIALOG = 'data-md-component="search" role="dialog"'
UNUSED = (
    "**/*.map",
    "javascripts/lunr/wordcut.js",
    "javascripts/lunr/tinyseg.js",
    "javascripts/lunr/min/lunr.*.js",
)
UNSEARCHED = {"log.md"}  # a record of the past, which would be a tenth of the index
USED_LANGUAGES = ("lunr.ko.", "lunr.multi.", "lunr.stemmer.")
MODEL = "MANYHEADS_BOOK_MODEL"


def on_nav(nav: Any, config: Any, files: Any) -> None:
    config["extra"]["navigations"] = {KOREAN: build_korean_navigation(files, config)}
    config["extra"]["paths"] = {file.src_uri for file in files.documentation_pages()}


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> Any:
    path, extra = page.file.src_uri, config["extra"]
    language = find_language(path)
    config["theme"]["language"] = language
    extra["alternate"] = list_alternates(path, extra["paths"])
    extra["homepage"] = "index.ko.html" if language == KOREAN else "index.html"
    context["nav"] = extra["navigations"].get(language, nav)
    return context


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = (DOCS / page.file.src_uri).parent
    if page.file.src_uri in UNSEARCHED:
        page.meta["search"] = {"exclude": True}
    elif page.file.src_uri.startswith("results/"):
        page.meta["search"] = {"boost": 0.5}  # after the chapters and guides
    text, page.formulas = take_formulas(unlink_outside(insert_code(markdown), folder))
    return text


def on_page_content(html: str, page: Any, **_: Any) -> str:
    return put_formulas(html, page.formulas)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Remove the links from which the theme would load a sitemap, which a browser refuses from the disk.

    Also name the dialog of the search for screen readers.
    """
    label = "검색" if find_language(page.file.src_uri) == KOREAN else "Search"
    return ALTERNATE.sub("", output).replace(SEARCH_DIALOG, f'{SEARCH_DIALOG} aria-label="{label}"')


def on_post_build(config: Any, **_: Any) -> None:
    assets = Path(config["site_dir"]) / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    (assets / "book.js").write_text(render_widget_script(), encoding="utf-8")
    for name in ("book.css", "iframe-worker.js", "search-input.js", "search-language.js"):
        (assets / name).write_bytes((Path(__file__).parent / name).read_bytes())
    for path in [path for pattern in UNUSED for path in assets.glob(pattern)]:
        if not path.name.startswith(USED_LANGUAGES):
            path.unlink()
    if folder := os.environ.get(MODEL):
        (assets / "book-model.js").write_text(render_model_script(Path(folder)), encoding="utf-8")


def unlink_outside(markdown: str, folder: Path) -> str:
    """Return the text with links to files outside docs/, which the pages do not have, as plain text."""

    def replace(match: re.Match[str]) -> str:
        text, target = match.groups()
        is_outside = not (folder / target).resolve().is_relative_to(DOCS)
        return text if is_outside else match.group()

    return LINK.sub(replace, markdown)
