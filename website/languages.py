"""Two languages in one site: x.md and x.ko.md, with a navigation each and links between them.

The navigation of mkdocs.yml is the English one. The Korean one has the same order, the headings of the
Korean pages as titles, except for the start page, and a link to the English page where there is no Korean
one.
"""

import logging
from copy import copy
from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation, get_navigation

ENGLISH, KOREAN = "en", "ko"
PAGES = {"Start": "시작"}
SECTIONS = {"The book": "책", "Guide": "사용 안내", "Reference": "참고", "Results": "측정 결과"}


def find_language(path: str) -> str:
    return KOREAN if path.endswith(".ko.md") else ENGLISH


def find_sibling(path: str, paths: set[str]) -> str | None:
    """Return the document with the same content in the other language, if there is one."""
    stem = path.removesuffix(".md").removesuffix(".ko").removesuffix(".en")
    candidates = [f"{stem}.md", f"{stem}.en.md"] if find_language(path) == KOREAN else [f"{stem}.ko.md"]
    return next((candidate for candidate in candidates if candidate in paths), None)


def build_korean_navigation(files: Files, config: Any) -> Navigation:
    pages = {file.src_uri: file.page for file in files.documentation_pages()}
    paths = set(pages)

    def translate(item: Any) -> Any:
        if isinstance(item, str):
            return find_sibling(item, paths) or item
        if isinstance(item, list):
            return [translate(part) for part in item]
        ((title, value),) = item.items()
        if isinstance(value, list):
            return {SECTIONS[title]: translate(value)}
        path = translate(value)
        if title in PAGES and (page := pages[path]):
            page.title = PAGES[title]
        return path if path != value else {f"{title} (English)": to_url(value)}

    korean = copy(config)
    korean.data = {**config.data, "nav": translate(config["nav"]), "validation": copy(config["validation"])}
    korean["validation"]["nav"] = copy(config["validation"]["nav"])
    korean["validation"]["nav"]["not_found"] = logging.DEBUG  # English pages are links here
    return get_navigation(files, korean)


def to_url(path: str) -> str:
    return str(PurePosixPath(path).with_suffix(".html"))


def list_alternates(path: str, paths: set[str]) -> list[dict[str, str]]:
    """Return the links of the language selector of a page."""
    names = {ENGLISH: "English", KOREAN: "한국어"}
    own = find_language(path)
    start = {ENGLISH: "index.md", KOREAN: "index.ko.md"}
    pages = {
        language: path if language == own else find_sibling(path, paths) or start[language]
        for language in names
    }
    return [
        {"name": names[language], "link": to_url(page), "lang": language} for language, page in pages.items()
    ]
