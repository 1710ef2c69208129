"""The attention page in a real browser: what it shows is the model's, and everything on it works."""

import json
import math
import re
import shutil
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manyheads as mh
from manyheads.look.attention_data import ATTENTION_TYPES, build_attention_data, merge_into_words, stack_maps
from manyheads.look.html import render_page as page_of
from manyheads.look.html import write_page
from manyheads.look.training_walk import compare_checkpoints
from support.attention_samples import MARKUP_TOKENS, random_attention_data, with_markup_tokens

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: the page is not looked at in a browser"
)

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Opens pages, and at the end holds that nothing was asked of the network and nothing went wrong."""
    wrong: list[str] = []
    contexts = []

    def start(path: Path | str, fragment: str = "", **settings: Any) -> Any:
        context = browser.new_context(
            **{"viewport": {"width": 1100, "height": 900}, "locale": "en-US", **settings}
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: request.url.startswith("http") and wrong.append(request.url))
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}") or dialog.dismiss())
        page.goto(f"{path.as_uri() if isinstance(path, Path) else path}#{fragment}")
        page.wait_for_selector(".look .controls")
        return page

    start.wrong = wrong  # type: ignore[attr-defined]
    yield start
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def data(attention: mh.Attention) -> dict[str, Any]:
    return build_attention_data(attention)


@pytest.fixture(scope="module")
def path(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(data, tmp_path_factory.mktemp("page") / "page.html")


def expected(attention: mh.Attention, kind: str, words: bool) -> np.ndarray:
    """[layers, heads, rows, columns]"""
    maps = stack_maps(attention, kind)
    return merge_into_words(maps, attention, kind) if words else maps


def drawn_lines(page: Any) -> dict[tuple[int, int, int], float]:
    """By head, row and column the weight that each line stands for, which is also its strength."""
    found = page.eval_on_selector_all(
        ".picture line",
        """lines => lines.map(({ dataset, attributes }) => [dataset.head, dataset.row, dataset.column,
            dataset.weight, attributes['stroke-opacity'].value].map(Number))""",
    )
    assert all(weight == pytest.approx(opacity, abs=1e-4) for *_, weight, opacity in found)
    return {(int(head), int(row), int(column)): weight for head, row, column, weight, _ in found}


def settle(page: Any) -> None:
    """Pictures are drawn once a frame."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def token(page: Any, side: int, place: int, picture: int = 0) -> Any:
    return page.locator(".picture").nth(picture).locator(f'.token[data-side="{side}"][data-place="{place}"]')


def test_the_page_opens_and_its_lines_are_the_models_weights(
    open_page: Open, path: Path, attention: mh.Attention
) -> None:
    """The smoke test of every run; the others are in `make test-all`."""
    page = open_page(path)
    maps = expected(attention, "encoder", words=True)[-1]
    found = drawn_lines(page)
    assert found.keys() == {tuple(map(int, place)) for place in zip(*np.nonzero(maps >= 0.01), strict=True)}
    for place, weight in found.items():
        assert weight == pytest.approx(maps[place], abs=1e-4)
    assert page.locator(".token").all_text_contents()[:3] == ["I", "go", "home"]


# ---- every view


@pytest.mark.heavy
@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("kind", ATTENTION_TYPES)
def test_one_head_shows_the_models_numbers(
    open_page: Open, path: Path, attention: mh.Attention, kind: str, words: bool
) -> None:
    page = open_page(path, f"view=head&kind={kind}&layer=1&head=3{'' if words else '&tokens=1'}")
    maps = expected(attention, kind, words)[0, 2]
    cells = page.eval_on_selector_all(
        ".picture rect[data-row]",
        "cells => cells.map(one => [one.dataset.row, one.dataset.column, one.dataset.weight].map(Number))",
    )
    assert len(cells) == maps.size
    for row, column, weight in cells:
        assert weight == pytest.approx(maps[int(row), int(column)], abs=1e-4)
    written = page.locator(".picture svg > g[aria-hidden] > text").all_text_contents()
    assert sorted(map(float, written)) == pytest.approx(sorted(maps[maps >= 0.005].tolist()), abs=0.0051)
    page.locator(".numbers summary").click()
    page.locator(".numbers td").first.wait_for()
    told = page.eval_on_selector_all(
        ".numbers tbody tr",
        "rows => rows.map(row => [...row.cells].slice(1).map(one => Number(one.innerText)))",
    )
    np.testing.assert_allclose(told, maps, atol=1e-4)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ATTENTION_TYPES)
def test_the_grid_shows_every_map_pixel_by_pixel(
    open_page: Open, path: Path, attention: mh.Attention, kind: str
) -> None:
    page = open_page(path, f"view=grid&kind={kind}&tokens=1")
    page.locator(".card canvas").nth(7).wait_for()
    maps = expected(attention, kind, words=False)
    pixels = page.evaluate(
        """() => [...document.querySelectorAll('.card')].map(card => {
            const canvas = card.querySelector('canvas');
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const opacities = [...data].filter((_, n) => n % 4 === 3);
            return [Number(card.dataset.layer), Number(card.dataset.head), opacities];
        })"""
    )
    for layer, head, strengths in pixels:
        np.testing.assert_allclose(np.array(strengths) / 255, maps[layer, head].ravel(), atol=0.51 / 255)
    page.locator('.card[data-layer="0"][data-head="2"]').click()
    assert "view=head" in page.url
    assert page.locator("[name=head]").input_value() == "2"


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ATTENTION_TYPES)
def test_the_table_shows_measures_and_sorts_by_any(
    open_page: Open, path: Path, data: dict[str, Any], kind: str
) -> None:
    page = open_page(path, f"view=table&kind={kind}")
    values = data["moments"][0]["measures"][kind]["words"]
    for place, name in enumerate(data["measures"]):
        page.locator(f'[data-order="{name}"]').click()
        rows = page.eval_on_selector_all(
            ".measures tbody tr",
            """(rows, name) => rows.map(row => [row.dataset.layer, row.dataset.head,
                row.querySelector(`[data-measure=${name}]`).innerText])""",
            name,
        )
        shown = [one for _, _, one in rows]
        for layer, head, text in rows:
            value = values[int(layer)][int(head)][place]
            assert text == "–" if value is None else float(text) == pytest.approx(value, abs=5.1e-4)
        if shown[0] != "–":
            assert list(map(float, shown)) == sorted(map(float, shown), reverse=True)
        assert page.locator('th[aria-sort="descending"]').count() == 1
    page.locator(f'[data-order="{name}"]').click()
    assert page.locator('th[aria-sort="ascending"]').count() == 1
    page.locator(".measures tbody button").first.click()
    assert page.locator(".picture rect[data-row]").count() > 0


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["decoder", "cross"])
def test_lines_of_the_other_kinds_are_the_models_too(
    open_page: Open, path: Path, attention: mh.Attention, kind: str
) -> None:
    page = open_page(path)
    page.locator(f'[data-value="{kind}"]').click()
    page.locator("[name=words]").uncheck()
    page.locator("[name=layer]").select_option(index=0)
    found = drawn_lines(page)
    maps = expected(attention, kind, words=False)[0]
    assert len(found) == int((maps >= 0.01).sum())
    assert all(weight == pytest.approx(maps[place], abs=1e-4) for place, weight in found.items())


# ---- one token alone, heads on and off, side by side


@pytest.mark.heavy
def test_a_token_under_the_pointer_or_with_the_focus_is_alone(
    open_page: Open, path: Path, attention: mh.Attention
) -> None:
    page = open_page(path)
    every = drawn_lines(page)
    token(page, 0, 2).hover()
    settle(page)
    assert drawn_lines(page) == {place: one for place, one in every.items() if place[1] == 2}
    maps = expected(attention, "encoder", words=True)[-1]
    told = page.locator(".status").inner_text()
    assert told.startswith("“home” looks at: 2.1: ")
    best = max(maps[0, 2])
    assert float(re.search(r"2\.1: “\S+” ([\d.]+)", told)[1]) == pytest.approx(best, abs=1e-4)
    token(page, 1, 3).hover()
    settle(page)
    assert drawn_lines(page) == {place: one for place, one in every.items() if place[2] == 3}
    page.mouse.move(5, 5)
    settle(page)
    assert drawn_lines(page) == every
    token(page, 0, 0).focus()
    page.keyboard.press("ArrowDown")
    settle(page)
    assert drawn_lines(page).keys() == {place for place in every if place[1] == 1}
    page.keyboard.press("ArrowRight")
    settle(page)
    assert drawn_lines(page).keys() == {place for place in every if place[2] == 1}
    page.keyboard.press("Enter")
    assert token(page, 1, 1).get_attribute("aria-pressed") == "true"
    page.locator("h1").click()
    settle(page)
    assert drawn_lines(page).keys() == {place for place in every if place[2] == 1}, "Enter keeps it"
    token(page, 1, 1).focus()
    page.keyboard.press("Escape")
    page.locator("[data-value=lines]").focus()
    settle(page)
    assert drawn_lines(page) == every


@pytest.mark.heavy
def test_arrows_follow_the_columns_of_a_heat_map(open_page: Open, path: Path) -> None:
    page = open_page(path, "view=head&kind=cross")
    token(page, 1, 0).focus()
    for key, side, place in [
        ("ArrowRight", 1, 1), ("End", 1, 5), ("ArrowLeft", 1, 4), ("ArrowDown", 0, 4), ("ArrowUp", 0, 3),
        ("ArrowRight", 1, 3), ("Home", 1, 0), ("ArrowLeft", 1, 0),
    ]:  # fmt: skip
        page.keyboard.press(key)
        at = page.evaluate("(({ side, place }) => [side, place].map(Number))(document.activeElement.dataset)")
        assert at == [side, place], key


@pytest.mark.heavy
def test_heads_are_switched_on_and_off(open_page: Open, path: Path) -> None:
    page = open_page(path)
    page.locator('[data-chip="1"]').click()
    assert {head for head, _, _ in drawn_lines(page)} == {0, 2, 3}
    assert page.locator('[data-chip="1"]').get_attribute("aria-pressed") == "false"
    page.locator('[data-chips="none"]').click()
    assert drawn_lines(page) == {}
    page.locator('[data-chip="3"]').click()
    assert {head for head, _, _ in drawn_lines(page)} == {3}
    page.locator('[data-chips="all"]').click()
    assert {head for head, _, _ in drawn_lines(page)} == {0, 1, 2, 3}


@pytest.mark.heavy
@pytest.mark.parametrize("view", ["lines", "head"])
def test_two_heads_stand_side_by_side(
    open_page: Open, path: Path, attention: mh.Attention, view: str
) -> None:
    page = open_page(path, f"view={view}&layer=1&head=2")
    page.locator("[name=compare]").check()
    page.locator("[name=other-layer]").select_option(index=1)
    page.locator("[name=other-head]").select_option(index=3)
    assert page.locator(".picture").count() == 2
    boxes = [page.locator(".picture").nth(n).bounding_box() for n in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    maps = expected(attention, "encoder", words=True)
    for n, (layer, head) in enumerate([(0, 1), (1, 3)]):
        drawn = page.locator(".picture").nth(n).locator("[data-weight]")
        weights = drawn.evaluate_all("all => all.map(one => Number(one.dataset.weight))")
        wanted = maps[layer, head][maps[layer, head] >= (0.01 if view == "lines" else 0)]
        assert sorted(weights) == pytest.approx(sorted(wanted.tolist()), abs=1e-4)


@pytest.mark.heavy
def test_heads_like_the_figures_are_found_at_a_press(
    open_page: Open, path: Path, data: dict[str, Any]
) -> None:
    page = open_page(path, "kind=encoder")
    for likeness in ("long", "sharp", "structural"):
        for one in data["moments"][0]["like"]["encoder"][likeness]:
            page.locator(f'[data-find="{likeness}"]').click()
            lines = drawn_lines(page)
            assert {head for head, _, _ in lines} == {one["head"]}
            assert page.locator("[name=layer]").input_value() == str(one["layer"])
            assert f"{one['score']:.3f}" in page.locator(".found").inner_text()
            if likeness != "structural":
                assert {row for _, row, _ in lines} == {one["row"]}


# ---- steps, training, links, downloads


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["decoder", "cross"])
def test_the_slider_goes_through_the_decoders_steps(
    open_page: Open, path: Path, attention: mh.Attention, kind: str
) -> None:
    page = open_page(path, f"kind={kind}&tokens=1")
    assert page.locator(".steps").is_hidden()
    slider = page.locator("[name=step]")
    slider.focus()
    for step, expected_candidates in enumerate(attention.candidates):
        page.keyboard.press("ArrowRight")
        assert {row for _, row, _ in drawn_lines(page)} == {step}
        shown = page.eval_on_selector_all(
            ".steps li",
            "all => all.map(one => [one.querySelector('.piece').innerText, Number(one.dataset.chance)])",
        )
        for (piece, chance), (name, log_p) in zip(shown, expected_candidates, strict=False):
            assert (piece.strip(), chance) == (name.strip(), pytest.approx(math.exp(log_p), rel=1e-4))
        chosen = page.locator(".steps li.written .piece").inner_text()
        assert chosen.strip() == attention.target_tokens[step].strip()
    assert page.locator(".slider.step output").inner_text() == f"{step + 1} of {step + 1}"
    page.keyboard.press("Home")
    assert page.locator(".steps").is_hidden()


@pytest.mark.heavy
def test_the_slider_goes_through_training(open_page: Open, run: Path, tmp_path: Path) -> None:
    data = compare_checkpoints(run, "I go home.", device="cpu")
    page = open_page(write_page(data, tmp_path / "page.html"), "view=head&kind=cross")
    page.locator("[name=moment]").focus()
    seen = []
    for moment in reversed(data["moments"]):
        assert page.locator(".slider.moment output").inner_text() == f"step {moment['step']}"
        assert page.locator(".said span").last.inner_text() == moment["said"].strip()
        seen.append(page.locator(".picture rect[data-row]").first.get_attribute("data-weight"))
        translator = mh.load(run / "checkpoints" / moment["name"], device="cpu")
        own = translator.attention("I go home.", data["text"]["target"])
        assert float(seen[-1]) == pytest.approx(expected(own, "cross", words=True)[-1, 0, 0, 0], abs=1e-4)
        page.keyboard.press("ArrowLeft")
    assert len(set(seen)) == 3


@pytest.mark.heavy
def test_a_permalink_restores_the_view(open_page: Open, path: Path) -> None:
    page = open_page(path)
    page.locator("[data-value=cross]").click()
    page.locator("[name=layer]").select_option(index=0)
    page.locator("[name=words]").uncheck()
    page.locator('[data-chip="2"]').click()
    page.locator("[name=step]").fill("2")
    token(page, 1, 1).click()
    page.locator("[name=language]").select_option("ko")
    again = open_page(path, page.url.partition("#")[2])
    page.mouse.move(2, 2)
    page.evaluate("document.activeElement.blur()")
    settle(page)
    assert again.locator(".pictures").inner_html() == page.locator(".pictures").inner_html()
    assert again.locator(".steps").inner_html() == page.locator(".steps").inner_html()
    assert page.locator(".link").get_attribute("href") == "#" + page.url.partition("#")[2]
    other = open_page(path, "view=table&order=-entropy&kind=decoder")
    assert other.locator('th[aria-sort="descending"]').inner_text().startswith("entropy")
    other.evaluate("location.hash = 'view=head&head=2'")
    other.wait_for_selector(".picture rect[data-row]")
    for senseless in (
        "view=x&layer=99&head=-1&on=77&beside=9,9&token=5,5&step=1e9&moment=x&order=y",
        "%%%",
        "<b>",
    ):
        assert open_page(path, senseless).locator(".picture svg").count() == 1


@pytest.mark.heavy
@pytest.mark.parametrize(
    "fragment", ["kind=cross", "view=head&kind=cross&tokens=1", "view=grid", "view=head&beside=1,1"]
)
def test_svg_and_png_are_saved(open_page: Open, path: Path, tmp_path: Path, fragment: str) -> None:
    page = open_page(path, fragment)
    with page.expect_download() as saved:
        page.locator("[data-download=svg]").click()
    assert re.fullmatch(
        r"attention-(lines|head|grid)-(encoder|cross)(-2)?\.svg", saved.value.suggested_filename
    )
    saved.value.save_as(tmp_path / "picture.svg")
    root = ElementTree.parse(tmp_path / "picture.svg").getroot()
    texts = {one.text for one in root.iter("{http://www.w3.org/2000/svg}text")}
    wanted = {
        "head&kind=cross": "▁나는",
        "kind=cross": "나는",
        "view=grid": "2.4",
        "view=head&beside": "home",
    }
    assert next(text for start, text in wanted.items() if start in fragment) in texts
    assert not [one for one in root.iter() if one.get("class") or one.get("style")], "it needs no style sheet"
    with page.expect_download() as saved:
        page.locator("[data-download=png]").click()
    saved.value.save_as(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    from matplotlib.image import imread

    pixels = imread(tmp_path / "picture.png")
    box = [float(one) for one in root.get("viewBox").split()]
    assert pixels.shape[:2] == (math.ceil(2 * box[3]), math.ceil(2 * box[2]))
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20


# ---- languages, sizes, faults


@pytest.mark.heavy
def test_the_page_speaks_the_browsers_language_and_another_on_demand(open_page: Open, path: Path) -> None:
    page = open_page(path, locale="ko-KR")
    assert page.locator("[data-value=grid]").inner_text() == "모든 헤드"
    page.locator("[name=language]").select_option("en")
    assert page.locator("[data-value=grid]").inner_text() == "All heads"
    assert page.locator(".look").get_attribute("lang") == "en"
    assert open_page(path, locale="fr-FR").locator("[data-value=grid]").inner_text() == "All heads"


@pytest.mark.heavy
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1100])
def test_axe_finds_no_serious_fault(
    open_page: Open, run: Path, tmp_path: Path, scheme: str, width: int
) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    path = write_page(compare_checkpoints(run, "I go home.", device="cpu"), tmp_path / "page.html")
    for fragment in (
        "kind=cross&step=2&token=0,1",
        "view=grid",
        "view=head&beside=1,1&language=ko",
        "view=table&order=-entropy",
    ):
        page = open_page(path, fragment, color_scheme=scheme, viewport={"width": width, "height": 800})
        if page.locator(".numbers").is_visible():
            page.locator(".numbers summary").click()
            page.locator(".numbers td").first.wait_for()
        page.evaluate(axe)
        found = page.evaluate("axe.run().then(found => found.violations)")
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not serious, json.dumps(serious, indent=1)[:3000]
        overflow = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert overflow <= 0, f"{fragment}: the page is wider than the screen"


@pytest.mark.heavy
def test_nothing_that_a_token_holds_can_act(open_page: Open, attention: mh.Attention, tmp_path: Path) -> None:
    data = build_attention_data(
        with_markup_tokens(attention), source=MARKUP_TOKENS[0], target="</title><script>alert(2)</script>"
    )
    path = write_page(data, tmp_path / "page.html")
    for view in ("lines", "head", "grid", "table"):
        page = open_page(path, f"view={view}&tokens=1&kind=cross&step=1&token=0,0")
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 2
        assert page.title().startswith(MARKUP_TOKENS[0])
    page = open_page(path, "view=lines&tokens=1")
    assert token(page, 0, 0).get_attribute("aria-label") == MARKUP_TOKENS[0]


@pytest.mark.heavy
def test_the_policy_stops_what_would_get_in_all_the_same(open_page: Open, path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    hacked = text.replace(
        "</main>", "<img src=https://x.invalid/><script>document.title='hacked'</script></main>"
    )
    assert hacked != text
    (tmp_path / "page.html").write_text(hacked, encoding="utf-8")
    page = open_page(tmp_path / "page.html")
    assert page.title() != "hacked"
    assert open_page.wrong  # type: ignore[attr-defined]
    others = [one for one in open_page.wrong if "Content Security Policy" not in one]  # type: ignore[attr-defined]
    assert set(others) <= {"https://x.invalid/"}, "which was not let out, but is told"
    open_page.wrong.clear()  # type: ignore[attr-defined]


@pytest.mark.heavy
def test_a_hundred_tokens_of_the_largest_model_are_drawn_on_canvas_and_when_seen(
    open_page: Open, tmp_path: Path
) -> None:
    page = open_page(write_page(random_attention_data(), tmp_path / "page.html"))
    assert page.locator(".picture canvas").count() == 1
    assert page.locator(".picture line").count() == 0
    token(page, 0, 50).hover()
    settle(page)
    alone = drawn_lines(page)
    assert {row for _, row, _ in alone} == {50}, "few enough for SVG"
    page.locator("[data-value=head]").click()
    assert page.locator(".picture canvas").count() == 1
    page.locator("[data-value=lines]").click()
    start = time.monotonic()
    page.locator(".numbers summary").click()
    page.locator(".numbers td").first.wait_for()
    assert page.locator(".numbers td").count() == 100 * 100, "of 16 heads the chosen one"
    assert time.monotonic() - start < 2
    page.evaluate("document.querySelector('.numbers td').dataset.old = 'yes'")
    page.locator("[data-chip='3']").click()
    assert page.locator("[data-old]").count() == 1, "the same table is not made again"
    token(page, 0, 50).click()
    assert page.locator(".numbers td").count() == 15 * 100, "of every head the row that is alone"
    page.locator(".numbers summary").click()
    page.locator("[data-value=grid]").click()
    page.wait_for_selector(".card canvas")
    assert page.locator(".card").count() == 384
    assert page.locator(".card canvas").count() < 384
    page.locator(".card").last.scroll_into_view_if_needed()
    page.locator(".card").last.locator("canvas").wait_for()


def test_the_order_list_says_begin_where_the_decoder_cannot_see_the_end(open_page: Open, path: Path) -> None:
    page = open_page(path, "view=grid")
    name = page.locator("[name=order] [value=edge]")
    for kind, said in (("encoder", "on the end"), ("decoder", "on the begin"), ("cross", "on the end")):
        page.locator(f"[data-value={kind}]").click()
        assert name.text_content() == said


def test_a_grid_that_is_no_more_is_not_watched(open_page: Open, path: Path) -> None:
    page = open_page(path)
    page.evaluate(
        """() => {
          window.watched = new Set();
          const { observe, disconnect } = IntersectionObserver.prototype;
          IntersectionObserver.prototype.observe = function (one) {
            window.watched.add(this);
            return observe.call(this, one);
          };
          IntersectionObserver.prototype.disconnect = function () {
            window.watched.delete(this);
            return disconnect.call(this);
          };
        }"""
    )
    page.locator("[data-value=grid]").click()
    for kind in ("decoder", "cross", "encoder"):
        page.locator(f"[data-value={kind}]").click()
    assert page.evaluate("window.watched.size") == 1
    page.locator("[data-value=table]").click()
    assert page.evaluate("window.watched.size") == 0


# ---- elsewhere


@pytest.mark.heavy
def test_the_page_works_inside_a_notebooks_frame(
    open_page: Open, data: dict[str, Any], tmp_path: Path
) -> None:
    import html

    inside = html.escape(page_of(data))
    frame = (
        f'<iframe srcdoc="{inside}" sandbox="allow-scripts allow-downloads" width=900 height=700></iframe>'
    )
    outer = tmp_path / "notebook.html"
    outer.write_text(
        f'<!doctype html><div class="look"><p class="controls">.</p></div>{frame}', encoding="utf-8"
    )
    page = open_page(outer)
    inner = page.frame_locator("iframe")
    inner.locator("[data-value=head]").click()
    inner.locator(".picture rect[data-row]").first.wait_for()


@pytest.mark.heavy
def test_the_modules_work_as_they_are_from_a_server(browser: Any, data: dict[str, Any]) -> None:
    """As the server's page will use them: showAttention(element, data), no build step."""
    folder = str(files("manyheads.look").joinpath("page"))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    try:
        page.goto(f"http://127.0.0.1:{server.server_port}/page.css")
        page.evaluate(
            """async (data) => {
                const { showAttention } = await import('/show.js');
                const root = document.createElement('div');
                showAttention(root, data);
                document.body.append(root);
                showAttention(root, data, { language: 'ko' });
            }""",
            data,
        )
        assert page.locator("[data-value=head]").inner_text() == "헤드 하나"
        page.locator("[data-value=head]").click()
        assert page.locator(".picture rect[data-row]").count() > 0
        assert "#" not in page.url, "the address is the server's"
        assert page.locator(".controls").count() == 1, "another sentence takes the place of the one before"
    finally:
        page.close()
        server.shutdown()
        server.server_close()
