"""The book in a browser, from the disk and without a network: widgets, search, both languages, phone, axe."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.browser import BrowserPages
from support.source_tree import ROOT

OpenPage = Callable[..., Any]
CHAPTERS = sorted(path.name.removesuffix(".md") for path in (ROOT / "docs" / "book").glob("*.md"))
PHONE = {"width": 360, "height": 740}
OWN_NUMBERS = "[data-widget]:not([data-widget$=-of-sentence])"  # tables that do not grow with a sentence
SERIOUS = {"serious", "critical"}


@pytest.fixture
def open_page(pages: BrowserPages, site: Path) -> OpenPage:
    def open_file(name: str, **settings: Any) -> Any:
        page = pages.create(lambda url: url.startswith(("file:", "about:")), offline=True, **settings)
        page.set_default_timeout(20_000)
        page.goto((site / f"{name}.html").as_uri())
        return page

    return open_file


def wait_for_widgets(page: Any) -> list[Any]:
    page.wait_for_function(
        "() => [...document.querySelectorAll('[data-widget]')].every((n) => n.querySelector('table, svg'))"
    )
    return list(page.locator("[data-widget]").all())


def read_output(widget: Any) -> str:
    parts = widget.locator(".widget-summary, .widget-parts")
    return "".join(parts.evaluate_all("nodes => nodes.map(n => n.outerHTML)"))


def change(control: Any) -> None:
    """Change a control as a reader would."""
    match control.evaluate("node => node.type"):
        case "range":
            at_end = control.evaluate("node => node.value === node.max")
            control.press("ArrowLeft" if at_end else "ArrowRight")
        case "select-one":
            count = control.evaluate("node => node.options.length")
            index = control.evaluate("node => node.selectedIndex")
            control.select_option(index=(index + 1) % count)
        case _:
            control.fill("We read a book at school.")


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_control_of_every_widget_changes_its_numbers(chapter: str, open_page: OpenPage) -> None:
    page = open_page(f"book/{chapter}")
    for widget in wait_for_widgets(page):
        controls = widget.locator("input, select").all()
        assert controls
        for control in controls:
            before = read_output(widget)
            change(control)
            after = read_output(widget)
            name = widget.get_attribute("data-widget"), control.get_attribute("id")
            assert before != after, name
            assert "NaN" not in after, name
            assert "undefined" not in after, name


@pytest.mark.parametrize(("scheme", "expected"), [("light", "default"), ("dark", "slate")])
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_axe_finds_nothing_serious_and_a_phone_does_not_scroll_sideways(
    chapter: str, scheme: str, expected: str, open_page: OpenPage
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(f"book/{chapter}", color_scheme=scheme, reduced_motion="reduce")
    wait_for_widgets(page)
    assert page.locator("body").get_attribute("data-md-color-scheme") == expected
    options = {"resultTypes": ["violations"], "preload": False}  # from the disk nothing can be loaded
    assert not [
        (violation["id"], [node["target"] for node in violation["nodes"]][:3])
        for violation in axe.Axe().run(page, options=options).response["violations"]
        if violation["impact"] in SERIOUS
    ]
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize(("name", "language"), [("index", "en"), ("index.ko", "ko")])
@pytest.mark.parametrize(("query", "expected"), [("attention", "attention"), ("어텐션", "어텐션")])
def test_the_search_finds_both_languages(
    name: str, language: str, query: str, expected: str, open_page: OpenPage
) -> None:
    page = open_page(name)
    assert page.locator("html").get_attribute("lang") == language
    page.locator(".md-search__input").click()
    page.keyboard.type(query)
    result = page.locator(".md-search-result__item").first
    result.wait_for(timeout=60_000)  # the index is built in the page
    assert expected in result.inner_text().lower()


@pytest.mark.parametrize(("name", "query"), [("index", "warmup"), ("index.ko", "BLEU")])
def test_results_in_the_language_of_the_page_come_first(name: str, query: str, open_page: OpenPage) -> None:
    page = open_page(name)
    page.locator(".md-search__input").click()
    page.keyboard.type(query)
    page.locator(".md-search-result__item").first.wait_for(timeout=60_000)
    pages = page.locator(".md-search-result__item > a, .md-search-result__item > article a").evaluate_all(
        "links => [...new Set(links.map((link) => link.pathname.split('/').pop()))]"
    )
    is_other = [path.endswith(".ko.html") != name.endswith(".ko") for path in pages]
    assert not is_other[0]
    assert is_other == sorted(is_other)


def test_tokens_are_shown_as_on_the_attention_page(open_page: OpenPage) -> None:
    page = open_page("book/02-attention")
    wait_for_widgets(page)
    text = page.locator("[data-widget=attention-of-sentence] table").inner_text()
    assert "[end]" in text
    assert "▁" not in text
    assert "</s>" not in text


@pytest.mark.parametrize(("name", "expected"), [("02-attention", "Write an"), ("02-attention.ko", "쓰세요")])
def test_an_empty_sentence_is_not_translated(name: str, expected: str, open_page: OpenPage) -> None:
    page = open_page(f"book/{name}")
    wait_for_widgets(page)
    widget = page.locator("[data-widget=attention-of-sentence]")
    widget.locator("input[type=text]").fill(" ")
    assert expected in widget.locator(".widget-summary").inner_text()
    assert widget.locator("table").count() == 0


def test_captions_are_whole_on_a_phone(open_page: OpenPage) -> None:
    page = open_page("book/02-attention", viewport=PHONE)
    wait_for_widgets(page)
    for caption in page.locator(".widget caption span").all():
        box = caption.bounding_box()
        assert box["x"] + box["width"] <= PHONE["width"], caption.inner_text()


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_tables_of_widgets_are_whole_on_a_laptop(chapter: str, open_page: OpenPage) -> None:
    page = open_page(f"book/{chapter}", viewport={"width": 1280, "height": 800})
    wait_for_widgets(page)
    widths = page.locator(f"{OWN_NUMBERS} .widget-scroll").evaluate_all(
        "nodes => nodes.map(n => [n.scrollWidth, n.clientWidth])"
    )
    assert all(table <= widget for table, widget in widths), widths


def test_names_of_rows_stay_where_a_phone_scrolls_a_table(open_page: OpenPage) -> None:
    page = open_page("book/02-attention", viewport=PHONE)
    wait_for_widgets(page)
    table = page.locator("[data-widget=attention-of-sentence] .widget-scroll")
    name = table.locator("tbody th").first
    before = name.bounding_box()
    table.evaluate("node => { node.scrollLeft = node.scrollWidth; }")
    assert table.evaluate("node => node.scrollLeft") > 20
    assert name.bounding_box()["x"] == pytest.approx(before["x"], abs=1)


@pytest.mark.parametrize("name", ["index.ko", "configuration.ko", "troubleshooting.ko", "configuration"])
def test_words_in_tables_are_whole_on_a_phone(name: str, open_page: OpenPage) -> None:
    page = open_page(name, viewport=PHONE)
    broken = page.evaluate(
        """() => [...document.querySelectorAll('.md-content td :is(a, code)')]
            .filter((n) => !/[\\s(),./_=-]/.test(n.textContent) && n.getClientRects().length > 1)
            .map((n) => n.textContent)"""
    )
    assert not broken


def test_korean_lines_break_between_words(open_page: OpenPage) -> None:
    page = open_page("book/02-attention.ko")
    assert page.locator(".md-typeset p").first.evaluate("p => getComputedStyle(p).wordBreak") == "keep-all"


def test_tabs_have_full_contrast(open_page: OpenPage) -> None:
    page = open_page("index", viewport={"width": 1400, "height": 800})
    opacities = page.locator(".md-tabs__link").evaluate_all(
        "tabs => tabs.map(t => getComputedStyle(t).opacity)"
    )
    assert opacities
    assert set(opacities) == {"1"}


def test_the_search_takes_text_that_is_pasted(open_page: OpenPage) -> None:
    page = open_page("index")
    page.locator(".md-search__input").click()
    page.keyboard.type("attention")
    result = page.locator(".md-search-result__item")
    result.first.wait_for(timeout=60_000)
    page.locator(".md-search__input").fill("")
    page.keyboard.insert_text("어텐션")  # no keyup event
    result.filter(has_text="어텐션").first.wait_for()


def test_the_language_selector_leads_to_the_same_chapter(open_page: OpenPage) -> None:
    page = open_page("book/02-attention")
    links = page.locator(".md-select__link").evaluate_all("nodes => nodes.map(n => n.href.split('/').pop())")
    assert links == ["02-attention.html", "02-attention.ko.html"]
