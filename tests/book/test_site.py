"""The built pages: links, languages, nothing from outside, and their size."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

MAX_BYTES = 15_000_000


class PageParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.language: str | None = None
        self.anchors: set[str] = set()
        self.links: list[str] = []  # that a reader follows
        self.loaded: list[str] = []  # that the browser loads

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "html":
            self.language = values.get("lang")
        self.anchors |= {value for key, value in attrs if key in ("id", "name") and value}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") != "canonical":
            self.loaded.append(values.get("href") or "")
        elif values.get("src"):
            self.loaded.append(values["src"])


@cache
def parse_page(path: Path) -> PageParser:
    parser = PageParser()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser


def list_pages(site: Path) -> list[Path]:
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


def has_anchor(page: Path, anchor: str) -> bool:
    return not anchor or page.suffix != ".html" or anchor in parse_page(page).anchors


def test_links_lead_to_pages_and_headings(site: Path) -> None:
    broken = []
    for path in list_pages(site):
        for link in parse_page(path).links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if not target.is_file() or not has_anchor(target, unquote(url.fragment)):
                broken.append(f"{path.name}: {link}")
    assert not broken


def test_pages_load_only_what_is_beside_them(site: Path) -> None:
    loaded = {(path, url) for path in list_pages(site) for url in parse_page(path).loaded}
    assert loaded
    assert not [url for path, url in loaded if not (path.parent / unquote(urlsplit(url).path)).is_file()]


def test_pages_say_their_language(site: Path) -> None:
    for path in list_pages(site):
        expected = "ko" if path.name.endswith(".ko.html") else "en"
        assert parse_page(path).language == expected, path.name


def test_the_korean_navigation_leads_to_korean_pages(site: Path) -> None:
    links = parse_page(site / "data.ko.html").links
    assert {"index.ko.html", "training.ko.html", "translation.ko.html"} <= set(links)
    assert "training.html" not in links


def test_the_first_tab_is_the_start_page_in_both_languages(site: Path) -> None:
    for name, title in (("index", "Start"), ("index.ko", "시작")):
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        first = page.split('<li class="md-tabs__item', 2)[1].split("</li>")[0]
        assert first.split("</a>")[0].split(">")[-1].strip() == title


@pytest.mark.parametrize("text", ["formula0placeholder", "→ <a"])
def test_no_marker_remains(text: str, site: Path) -> None:
    assert not [path.name for path in list_pages(site) if text in path.read_text(encoding="utf-8")]


def test_the_site_is_small(site: Path) -> None:
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < MAX_BYTES
