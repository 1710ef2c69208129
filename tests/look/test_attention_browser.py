"""The attention page in a browser: it shows the weights of the model, and every control works."""

import itertools
import json
import math
import re
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import manyheads as mh
from manyheads.look.attention_data import ATTENTION_TYPES, build_attention_data, merge_into_words, stack_maps
from manyheads.look.html import render_page, write_page
from manyheads.look.training_walk import compare_checkpoints
from support.attention_samples import MARKUP_TOKENS, random_attention_data, with_markup_tokens
from support.browser import BrowserPages

OpenPage = Callable[..., Any]
ALL_HEADS = "attention=encoder&layer=2&heads=1,2,3,4"  # the lines of a whole layer


@pytest.fixture
def open_page(pages: BrowserPages) -> OpenPage:
    """Open pages from files, which may not use the network."""

    def open_file(path: Path, fragment: str = "", **settings: Any) -> Any:
        page = pages.create(lambda url: not url.startswith("http"), **settings)
        page.goto(f"{path.as_uri()}#{fragment}")
        page.wait_for_selector(".look .controls")
        return page

    return open_file


@pytest.fixture(scope="module")
def data(attention: mh.AttentionMaps) -> dict[str, Any]:
    return build_attention_data(attention)


@pytest.fixture(scope="module")
def path(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(data, tmp_path_factory.mktemp("page") / "page.html")


def expected(attention: mh.AttentionMaps, attention_type: str, words: bool) -> np.ndarray:
    """[layers, heads, rows, columns]"""
    maps = stack_maps(attention, attention_type)
    return merge_into_words(maps, attention, attention_type) if words else maps


def read_lines(page: Any) -> dict[tuple[int, int, int], float]:
    """Return the weight of each line, which is also its opacity, by head, row and column."""
    lines = page.eval_on_selector_all(
        ".picture line",
        """lines => lines.map(({ dataset, attributes }) => [dataset.head, dataset.row, dataset.column,
            dataset.weight, attributes['stroke-opacity'].value].map(Number))""",
    )
    assert all(weight == pytest.approx(opacity, abs=1e-4) for *_, weight, opacity in lines)
    return {(int(head), int(row), int(column)): weight for head, row, column, weight, _ in lines}


def wait_for_frames(page: Any) -> None:
    """Wait until the pictures are drawn, which happens once per frame."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def read_token(token: str) -> str:
    """Return a token of the tests as people read it: without marks of spaces and bytes."""
    named = {"<s>": "[start]", "</s>": "[end]", "<unk>": "[unknown]", "▁": "␣"}
    if re.fullmatch("<0x..>", token):
        return f"[byte {token[3:5]}]"
    is_start = token.startswith("▁") or not re.search(r"\w", token)
    return named.get(token) or (token.removeprefix("▁") if is_start else f"·{token}")


def token(page: Any, side: int, index: int, picture: int = 0) -> Any:
    return page.locator(".picture").nth(picture).locator(f'.token[data-side="{side}"][data-index="{index}"]')


def test_the_lines_of_the_page_equal_the_weights_of_the_model(
    open_page: OpenPage, path: Path, attention: mh.AttentionMaps
) -> None:
    """The smoke test of every run; the others are in `make test-all`."""
    page = open_page(path, ALL_HEADS)
    maps = expected(attention, "encoder", words=True)[-1]
    lines = read_lines(page)
    assert lines.keys() == {
        tuple(map(int, position)) for position in zip(*np.nonzero(maps >= 0.01), strict=True)
    }
    for position, weight in lines.items():
        assert weight == pytest.approx(maps[position], abs=1e-4)
    assert page.locator(".token").all_text_contents()[:3] == ["I", "go", "home"]


def test_the_page_opens_with_the_sharpest_head_of_cross_attention(
    open_page: OpenPage, attention: mh.AttentionMaps, tmp_path: Path
) -> None:
    """Not with one that rests on a single word, however sharp it is."""
    rows, columns = attention.trace.cross[0][0][0].shape
    resting = torch.nn.functional.one_hot(torch.full((rows,), 2), columns).float()
    aligned = torch.nn.functional.one_hot(torch.arange(rows) % columns, columns).float()
    cross = [[torch.stack([resting] * 4)], [torch.stack([resting, resting, aligned, resting])]]
    trace = mh.Trace(attention.trace.encoder, attention.trace.decoder, cross)
    data = build_attention_data(replace(attention, trace=trace))
    page = open_page(write_page(data, tmp_path / "page.html"))
    assert {head for head, _, _ in read_lines(page)} == {2}
    pressed = page.locator('.navigator [aria-pressed="true"]')
    assert pressed.evaluate_all("all => all.map(node => [node.dataset.layer, node.dataset.head])") == [
        ["1", "2"]
    ]
    labels = page.locator(".navigator [data-head]").evaluate_all("all => all.map(node => node.ariaLabel)")
    assert labels[0] == "Layer 1, head 1: most weight is on one and the same word"
    assert page.locator("[data-value=cross]").get_attribute("aria-pressed") == "true"


# ---- every view


@pytest.mark.heavy
@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("attention_type", ATTENTION_TYPES)
def test_the_heat_map_equals_the_weights_of_the_model(
    open_page: OpenPage, path: Path, attention: mh.AttentionMaps, attention_type: str, words: bool
) -> None:
    page = open_page(
        path, f"view=head&attention={attention_type}&layer=1&head=3{'' if words else '&tokens=1'}"
    )
    maps = expected(attention, attention_type, words)[0, 2]
    cells = page.eval_on_selector_all(
        ".picture rect[data-row]",
        "cells => cells.map(({ dataset }) => [dataset.row, dataset.column, dataset.weight].map(Number))",
    )
    assert len(cells) == maps.size
    for row, column, weight in cells:
        assert weight == pytest.approx(maps[int(row), int(column)], abs=1e-4)
    written = page.locator(".picture svg > g[aria-hidden] > text").all_text_contents()
    assert sorted(map(float, written)) == pytest.approx(sorted(maps[maps >= 0.005].tolist()), abs=0.0051)
    page.locator(".weights summary").click()
    page.locator(".weights td").first.wait_for()
    table = page.eval_on_selector_all(
        ".weights tbody tr",
        "rows => rows.map(row => [...row.cells].slice(1).map(node => Number(node.innerText)))",
    )
    np.testing.assert_allclose(table, maps, atol=1e-4)


@pytest.mark.heavy
@pytest.mark.parametrize("attention_type", ATTENTION_TYPES)
def test_the_grid_shows_every_map_pixel_by_pixel(
    open_page: OpenPage, path: Path, attention: mh.AttentionMaps, attention_type: str
) -> None:
    page = open_page(path, f"view=grid&attention={attention_type}&tokens=1")
    page.locator(".card canvas").nth(7).wait_for()
    maps = expected(attention, attention_type, words=False)
    pixels = page.evaluate(
        """() => [...document.querySelectorAll('.card')].map(card => {
            const canvas = card.querySelector('canvas');
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const opacities = [...data].filter((_, n) => n % 4 === 3);
            return [Number(card.dataset.layer), Number(card.dataset.head), opacities];
        })"""
    )
    for layer, head, strengths in pixels:
        contrast = maps[layer, head].ravel() / maps[layer, head].max()
        np.testing.assert_allclose(np.array(strengths) / 255, contrast, atol=0.51 / 255 + 1e-4)
    page.locator('.card[data-layer="0"][data-head="2"]').click()
    assert "view=head" in page.url
    assert page.locator("[name=head]").input_value() == "2"


@pytest.mark.heavy
@pytest.mark.parametrize("attention_type", ATTENTION_TYPES)
def test_the_table_shows_measures_and_sorts_by_each(
    open_page: OpenPage, path: Path, data: dict[str, Any], attention_type: str
) -> None:
    page = open_page(path, f"view=table&attention={attention_type}")
    values = data["snapshots"][0]["measures"][attention_type]["words"]
    for index, name in enumerate(data["measures"]):
        page.locator(f'[data-sort="{name}"]').click()
        rows = page.eval_on_selector_all(
            ".measures tbody tr",
            """(rows, name) => rows.map(row => [row.dataset.layer, row.dataset.head,
                row.querySelector(`[data-measure=${name}]`).innerText])""",
            name,
        )
        shown = [text for _, _, text in rows]
        for layer, head, text in rows:
            value = values[int(layer)][int(head)][index]
            assert text == "–" if value is None else float(text) == pytest.approx(value, abs=5.1e-4)
        if shown[0] != "–":
            assert list(map(float, shown)) == sorted(map(float, shown), reverse=True)
        assert page.locator('th[aria-sort="descending"]').count() == 1
    page.locator(f'[data-sort="{name}"]').click()
    assert page.locator('th[aria-sort="ascending"]').count() == 1
    page.locator(".measures tbody button").first.click()
    assert page.locator(".picture rect[data-row]").count() > 0


@pytest.mark.heavy
@pytest.mark.parametrize("attention_type", ["decoder", "cross"])
def test_lines_of_the_other_attention_types_equal_the_weights(
    open_page: OpenPage, path: Path, attention: mh.AttentionMaps, attention_type: str
) -> None:
    page = open_page(path, ALL_HEADS)
    page.locator(f'[data-value="{attention_type}"]').click()
    page.locator("[name=words]").uncheck()
    page.locator("[name=layer]").select_option(index=0)
    page.locator('[data-chips="all"]').click()
    lines = read_lines(page)
    maps = expected(attention, attention_type, words=False)[0]
    assert len(lines) == int((maps >= 0.01).sum())
    assert all(weight == pytest.approx(maps[position], abs=1e-4) for position, weight in lines.items())


# ---- tokens, heads, comparison


@pytest.mark.heavy
def test_a_hovered_or_focused_token_is_shown_alone(
    open_page: OpenPage, path: Path, attention: mh.AttentionMaps
) -> None:
    page = open_page(path, ALL_HEADS)
    all_lines = read_lines(page)
    token(page, 0, 2).hover()
    wait_for_frames(page)
    assert read_lines(page) == {
        position: weight for position, weight in all_lines.items() if position[1] == 2
    }
    maps = expected(attention, "encoder", words=True)[-1]
    assert page.locator(".status p").inner_text() == "“home” attends to:"
    rows = page.locator(".hover-table tr")
    assert rows.locator("th").all_inner_texts() == ["2.1", "2.2", "2.3", "2.4"], "a row for each head"
    for head in range(4):
        weights = rows.nth(head).locator("td").evaluate_all("all => all.map(n => Number(n.dataset.weight))")
        assert weights == pytest.approx(sorted(maps[head, 2], reverse=True)[:3], abs=1e-4)
    token(page, 1, 3).hover()
    wait_for_frames(page)
    assert read_lines(page) == {
        position: weight for position, weight in all_lines.items() if position[2] == 3
    }
    page.mouse.move(5, 5)
    wait_for_frames(page)
    assert read_lines(page) == all_lines
    token(page, 0, 0).focus()
    page.keyboard.press("ArrowDown")
    wait_for_frames(page)
    assert read_lines(page).keys() == {position for position in all_lines if position[1] == 1}
    page.keyboard.press("ArrowRight")
    wait_for_frames(page)
    assert read_lines(page).keys() == {position for position in all_lines if position[2] == 1}
    page.keyboard.press("Enter")
    assert token(page, 1, 1).get_attribute("aria-pressed") == "true"
    page.locator("h1").click()
    wait_for_frames(page)
    assert read_lines(page).keys() == {position for position in all_lines if position[2] == 1}, (
        "Enter pins it"
    )
    token(page, 1, 1).focus()
    page.keyboard.press("Escape")
    page.locator("[data-value=lines]").focus()
    wait_for_frames(page)
    assert read_lines(page) == all_lines


@pytest.mark.heavy
def test_arrow_keys_follow_the_columns_of_a_heat_map(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "view=head&attention=cross")
    token(page, 1, 0).focus()
    for key, side, index in [
        ("ArrowRight", 1, 1), ("End", 1, 5), ("ArrowLeft", 1, 4), ("ArrowDown", 0, 4), ("ArrowUp", 0, 3),
        ("ArrowRight", 1, 3), ("Home", 1, 0), ("ArrowLeft", 1, 0),
    ]:  # fmt: skip
        page.keyboard.press(key)
        at = page.evaluate("(({ side, index }) => [side, index].map(Number))(document.activeElement.dataset)")
        assert at == [side, index], key


@pytest.mark.heavy
def test_names_beside_the_maps_of_all_heads_do_not_overlap(open_page: OpenPage, tmp_path: Path) -> None:
    data = random_attention_data(layers=2, heads=4, length=15)
    page = open_page(
        write_page(data, tmp_path / "page.html"), "view=grid", viewport={"width": 1280, "height": 900}
    )
    page.locator(".card svg").nth(7).wait_for()
    for card in page.locator(".card svg").all()[:2]:
        boxes = card.locator("text:not([transform])").evaluate_all(
            "all => all.map(node => node.getBoundingClientRect()).map(({ top, bottom }) => [top, bottom])"
        )
        assert len(boxes) == 15
        assert all(below[0] >= above[1] - 0.5 for above, below in itertools.pairwise(boxes))


@pytest.mark.heavy
def test_heads_can_be_toggled(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, ALL_HEADS)
    page.locator('[data-chip="1"]').click()
    assert {head for head, _, _ in read_lines(page)} == {0, 2, 3}
    assert page.locator('[data-chip="1"]').get_attribute("aria-pressed") == "false"
    page.locator('[data-chips="none"]').click()
    assert read_lines(page) == {}
    page.locator('[data-chip="3"]').click()
    assert {head for head, _, _ in read_lines(page)} == {3}
    page.locator('[data-chips="all"]').click()
    assert {head for head, _, _ in read_lines(page)} == {0, 1, 2, 3}


@pytest.mark.heavy
@pytest.mark.parametrize("view", ["lines", "head"])
def test_two_heads_are_compared_side_by_side(
    open_page: OpenPage, path: Path, attention: mh.AttentionMaps, view: str
) -> None:
    page = open_page(path, f"view={view}&attention=encoder&layer=1&head=2")
    page.locator("[name=compare]").check()
    page.locator("[name=other-layer]").select_option(index=1)
    page.locator("[name=other-head]").select_option(index=3)
    assert page.locator(".picture").count() == 2
    boxes = [page.locator(".picture").nth(n).bounding_box() for n in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    maps = expected(attention, "encoder", words=True)
    for n, (layer, head) in enumerate([(0, 1), (1, 3)]):
        drawn = page.locator(".picture").nth(n).locator("[data-weight]")
        weights = drawn.evaluate_all("all => all.map(node => Number(node.dataset.weight))")
        wanted = maps[layer, head][maps[layer, head] >= (0.01 if view == "lines" else 0)]
        assert sorted(weights) == pytest.approx(sorted(wanted.tolist()), abs=1e-4)


@pytest.mark.heavy
def test_buttons_find_the_heads_like_the_figures(
    open_page: OpenPage, path: Path, data: dict[str, Any]
) -> None:
    page = open_page(path, "attention=encoder")
    for pattern in ("long", "sharp", "structural"):
        for entry in data["snapshots"][0]["figure_heads"]["encoder"][pattern]:
            page.locator(f'[data-find="{pattern}"]').click()
            lines = read_lines(page)
            assert {head for head, _, _ in lines} == {entry["head"]}
            assert page.locator("[name=layer]").input_value() == str(entry["layer"])
            assert f"{entry['score']:.3f}" in page.locator(".find-result").inner_text()
            if pattern != "structural":
                assert {row for _, row, _ in lines} == {entry["row"]}


@pytest.mark.heavy
def test_the_rank_of_a_head_found_belongs_to_its_attention_type(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "attention=encoder")
    for expected_rank in ("1 of 3", "2 of 3"):
        page.locator('[data-find="sharp"]').click()
        assert page.locator(".find-result").inner_text().startswith(expected_rank)
    page.locator("[data-value=cross]").click()
    assert page.locator(".find-result").inner_text() == "", "of the encoder"
    page.locator('[data-find="sharp"]').click()
    assert page.locator(".find-result").inner_text().startswith("1 of 3"), "counted for each type"


@pytest.mark.heavy
def test_the_navigator_opens_heads_and_layers_in_every_view(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "attention=encoder&view=grid")
    for view in ("grid", "head", "lines"):
        page.locator(f"[data-value={view}]").click()
        page.locator('.navigator [data-layer="0"][data-head="2"]').click()
        assert page.locator("[name=layer]").input_value() == "0"
        assert page.locator("[name=head]").input_value() == "2"
    assert {head for head, _, _ in read_lines(page)} == {2}
    page.locator(".navigator .layer-name").nth(1).click()
    assert {head for head, _, _ in read_lines(page)} == {0, 1, 2, 3}
    page.locator('.navigator [data-layer="0"][data-head="1"] .map').hover()
    tooltip = page.locator(".map-tooltip").first.inner_text()
    assert re.fullmatch(r"Layer 1, head 2\s*“.+” → “.+” \d\.\d\d", tooltip)


@pytest.mark.heavy
def test_the_decoding_step_is_offered_where_it_has_an_effect(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "attention=cross&step=2")
    assert page.locator(".slider.step").is_visible()
    page.locator("[data-value=encoder]").click()
    assert page.locator(".slider.step").is_hidden()
    assert page.locator(".step-candidates").is_hidden()


@pytest.mark.heavy
def test_bold_labels_fit_their_space(open_page: OpenPage, path: Path) -> None:
    """The label of the hovered token is bold, and wider."""
    for fragment in (ALL_HEADS, "view=head&attention=cross"):
        page = open_page(path, fragment)
        for index in range(page.locator('.picture .token[data-side="0"]').count()):
            token(page, 0, index).hover()
            wait_for_frames(page)
            label = token(page, 0, index).locator("text").bounding_box()
            assert label["x"] >= page.locator(".picture svg").bounding_box()["x"] - 0.5


@pytest.mark.heavy
def test_a_phone_shows_the_picture_first_and_hints_for_fingers(open_page: OpenPage, path: Path) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    page = open_page(path, **phone)
    box = page.locator(".picture svg").bounding_box()
    assert box["y"] + box["height"] < 844, "the picture is above the fold"
    hint = page.locator(".hint").inner_text()
    assert "Tap" in hint
    assert "Enter" not in hint
    page = open_page(path, locale="ko-KR", **phone)
    assert page.locator(".about").evaluate("node => getComputedStyle(node).wordBreak") == "keep-all"


# ---- steps, training, links, downloads


@pytest.mark.heavy
@pytest.mark.parametrize("attention_type", ["decoder", "cross"])
def test_the_slider_goes_through_the_decoding_steps(
    open_page: OpenPage, path: Path, attention: mh.AttentionMaps, attention_type: str
) -> None:
    page = open_page(path, f"attention={attention_type}&tokens=1")
    assert page.locator(".step-candidates").is_hidden()
    slider = page.locator("[name=step]")
    slider.focus()
    for step, expected_candidates in enumerate(attention.candidates):
        page.keyboard.press("ArrowRight")
        assert {row for _, row, _ in read_lines(page)} == {step}
        shown = page.eval_on_selector_all(
            ".step-candidates li",
            """all => all.map(node =>
                [node.querySelector('.piece').innerText, Number(node.dataset.probability)])""",
        )
        for (piece, probability), (name, log_p) in zip(shown, expected_candidates, strict=False):
            assert probability == pytest.approx(math.exp(log_p), rel=1e-4)
            assert piece == read_token(name)
        chosen = page.locator(".step-candidates li.chosen .piece").inner_text()
        assert chosen == read_token(attention.target_tokens[step])
    assert page.locator(".slider.step output").inner_text() == f"{step + 1} of {step + 1}"
    page.keyboard.press("Home")
    assert page.locator(".step-candidates").is_hidden()


@pytest.mark.heavy
def test_the_slider_goes_through_the_checkpoints(open_page: OpenPage, run: Path, tmp_path: Path) -> None:
    data = compare_checkpoints(run, "I go home.", device="cpu")
    page = open_page(write_page(data, tmp_path / "page.html"), "view=head&attention=cross&layer=2&head=1")
    page.locator("[name=snapshot]").focus()
    seen = []
    for snapshot in reversed(data["snapshots"]):
        assert page.locator(".slider.snapshot output").inner_text() == f"step {snapshot['step']}"
        assert page.locator(".snapshot-translation span").last.inner_text() == snapshot["translation"].strip()
        seen.append(page.locator(".picture rect[data-row]").first.get_attribute("data-weight"))
        translator = mh.load(run / "checkpoints" / snapshot["name"], device="cpu")
        own = translator.attention("I go home.", data["text"]["target"])
        assert float(seen[-1]) == pytest.approx(expected(own, "cross", words=True)[-1, 0, 0, 0], abs=1e-4)
        page.keyboard.press("ArrowLeft")
    assert len(set(seen)) == 3


@pytest.mark.heavy
@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
def test_the_slider_of_training_and_the_views_have_room_on_a_phone(
    open_page: OpenPage, run: Path, tmp_path: Path, locale: str
) -> None:
    path = write_page(compare_checkpoints(run, "I go home.", device="cpu"), tmp_path / "page.html")
    page = open_page(path, viewport={"width": 360, "height": 740}, locale=locale)
    assert page.locator("[name=snapshot]").bounding_box()["width"] > 150
    controls, title = page.locator(".player").bounding_box(), page.locator(".look-main h2").bounding_box()
    assert title["y"] - controls["y"] - controls["height"] >= 12, "the heading has room above it"
    for group in page.locator(".controls .segments").all():
        assert len({button.bounding_box()["y"] for button in group.locator("button").all()}) == 1, "one row"


@pytest.mark.heavy
@pytest.mark.parametrize(("size", "highest"), [((1280, 800), 520), ((390, 844), 640)])
def test_the_step_and_its_translation_stay_in_sight_with_the_lines(
    open_page: OpenPage, run: Path, tmp_path: Path, size: tuple[int, int], highest: int
) -> None:
    source = "She likes the big orange, and we like the pear."
    path = write_page(compare_checkpoints(run, source, device="cpu"), tmp_path / "page.html")
    page = open_page(path, viewport={"width": size[0], "height": size[1]})
    picture = page.locator(".picture svg")
    assert picture.bounding_box()["y"] < highest, "much of the picture is above the fold"
    page.evaluate("y => scrollTo(0, y)", picture.bounding_box()["y"] - 200)
    for part in (".player .play", "[name=snapshot]", ".slider.snapshot output", ".snapshot-translation"):
        box = page.locator(part).bounding_box()
        assert 0 <= box["y"] < 120, part


@pytest.mark.heavy
def test_play_goes_through_the_checkpoints_until_the_reader_takes_over(
    open_page: OpenPage, run: Path, tmp_path: Path
) -> None:
    data = compare_checkpoints(run, "I go home.", device="cpu")
    page = open_page(write_page(data, tmp_path / "page.html"))
    play, step = page.locator(".play"), page.locator(".slider.snapshot output")
    assert step.inner_text() == "step 30", "the page opens with the newest"
    page.evaluate(
        """() => {
            const output = document.querySelector('.slider.snapshot output');
            window.seen = [];
            new MutationObserver(() => window.seen.push(output.value)).observe(output, { childList: true });
        }"""
    )
    play.click()
    assert play.inner_text() == "Pause"
    page.wait_for_function("() => window.seen.at(-1) === 'step 30'")
    assert page.evaluate("window.seen") == ["step 10", "step 20", "step 30"]
    assert play.inner_text() == "Play", "it stops at the end"
    play.evaluate("button => (button.click(), button.click())")
    page.wait_for_timeout(2200)
    assert step.inner_text() == "step 10", "paused"
    play.click()
    page.locator("[name=snapshot]").fill("1")
    assert play.inner_text() == "Play"
    page.wait_for_timeout(2200)
    assert step.inner_text() == "step 20", "the reader moved the slider"
    page.locator("[name=snapshot]").fill("0")
    play.click()
    page.wait_for_timeout(1400)
    assert step.inner_text() == "step 10", "long enough to be read"
    play.click()


@pytest.mark.heavy
def test_a_step_without_a_translation_says_so_and_the_rows_are_explained(
    open_page: OpenPage, run: Path, tmp_path: Path
) -> None:
    data = compare_checkpoints(run, "I go home.", device="cpu")
    data["snapshots"][0]["translation"] = ""
    page = open_page(write_page(data, tmp_path / "page.html"))
    shown, about = page.locator(".snapshot-translation span + span"), page.locator(".about")
    assert "newest model" in about.inner_text()
    page.locator("[name=snapshot]").fill("0")
    assert shown.inner_text() == "(nothing yet)"
    page.locator("[name=snapshot]").fill("1")
    assert shown.inner_text() == (data["snapshots"][1]["translation"] or "(nothing yet)")
    page.locator("[data-value=encoder]").click()
    assert "newest" not in about.inner_text(), "the source is the same at every step"


@pytest.mark.heavy
@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_lines_move_from_one_checkpoint_to_the_next_unless_motion_is_reduced(
    open_page: OpenPage, run: Path, tmp_path: Path, motion: str
) -> None:
    """On the way a weight is between those of both, and at the end it is that of the model."""
    data = compare_checkpoints(run, "I go home.", device="cpu")
    page = open_page(
        write_page(data, tmp_path / "page.html"),
        "view=head&attention=cross&layer=2&head=1&snapshot=1",
        reduced_motion=motion,
    )
    weights = []
    for snapshot in data["snapshots"]:
        own = mh.load(run / "checkpoints" / snapshot["name"], device="cpu").attention(
            "I go home.", data["text"]["target"]
        )
        weights.append(expected(own, "cross", words=True)[-1, 0, 0, 0])
    page.locator("[name=snapshot]").fill("0")
    page.evaluate(
        """() => {
            window.seen = [];
            const read = () => {
                window.seen.push(Number(document.querySelector('.picture rect[data-row]').dataset.weight));
                requestAnimationFrame(read);
            };
            read();
        }"""
    )
    page.locator(".play").click()
    page.wait_for_function("() => document.querySelector('.slider.snapshot output').value === 'step 30'")
    page.wait_for_timeout(800)
    seen = page.evaluate("window.seen")
    between = [weight for weight in seen if all(abs(weight - own) > 2e-4 for own in weights)]
    assert bool(between) == (motion == "no-preference")
    assert all(min(weights) - 1e-4 <= weight <= max(weights) + 1e-4 for weight in seen)
    assert seen[0] == pytest.approx(weights[0], abs=1e-4)
    assert seen[-1] == pytest.approx(weights[-1], abs=1e-4)


@pytest.mark.heavy
def test_a_permalink_restores_the_view(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, ALL_HEADS)
    page.locator("[data-value=cross]").click()
    page.locator('[data-chips="all"]').click()
    page.locator("[name=layer]").select_option(index=0)
    page.locator("[name=words]").uncheck()
    page.locator('[data-chip="2"]').click()
    page.locator("[name=step]").fill("2")
    token(page, 1, 1).click()
    page.locator("[name=language]").select_option("ko")
    again = open_page(path, page.url.partition("#")[2])
    page.mouse.move(2, 2)
    page.evaluate("document.activeElement.blur()")
    wait_for_frames(page)
    assert again.locator(".pictures").inner_html() == page.locator(".pictures").inner_html()
    assert again.locator(".step-candidates").inner_html() == page.locator(".step-candidates").inner_html()
    assert page.locator(".link").get_attribute("href") == "#" + page.url.partition("#")[2]
    other = open_page(path, "view=table&sort=-entropy&attention=decoder")
    assert other.locator('th[aria-sort="descending"]').inner_text().startswith("entropy")
    other.evaluate("location.hash = 'view=head&head=2'")
    other.wait_for_selector(".picture rect[data-row]")
    for senseless in (
        "view=x&layer=99&head=-1&heads=77&compare=9,9&token=5,5&step=1e9&snapshot=x&sort=y",
        "%%%",
        "<b>",
    ):
        assert open_page(path, senseless).locator(".picture svg").count() == 1


@pytest.mark.heavy
@pytest.mark.parametrize(
    "fragment",
    [
        "attention=cross&layer=2",
        "view=head&attention=cross&tokens=1&layer=2",
        "view=grid&attention=encoder",
        "view=head&compare=1,1&attention=encoder&layer=2",
    ],
)
def test_pictures_are_downloaded_as_svg_and_png(
    open_page: OpenPage, path: Path, tmp_path: Path, fragment: str
) -> None:
    page = open_page(path, fragment)
    with page.expect_download() as download:
        page.locator("[data-download=svg]").click()
    assert re.fullmatch(
        r"attention-(lines|head|grid)-(encoder|cross)(-2)?\.svg", download.value.suggested_filename
    )
    download.value.save_as(tmp_path / "picture.svg")
    root = ElementTree.parse(tmp_path / "picture.svg").getroot()
    texts = {node.text for node in root.iter("{http://www.w3.org/2000/svg}text")}
    wanted = {
        "head&attention=cross": "나는",
        "attention=cross": "나는",
        "view=grid": "2.4",
        "view=head&compare": "home",
    }
    assert next(text for start, text in wanted.items() if start in fragment) in texts
    assert not [node for node in root.iter() if node.get("class") or node.get("style")], (
        "it needs no style sheet"
    )
    with page.expect_download() as download:
        page.locator("[data-download=png]").click()
    download.value.save_as(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    from matplotlib.image import imread

    pixels = imread(tmp_path / "picture.png")
    box = [float(number) for number in root.get("viewBox").split()]
    assert pixels.shape[:2] == (math.ceil(2 * box[3]), math.ceil(2 * box[2]))
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20


# ---- languages, sizes, safety


@pytest.mark.heavy
def test_the_page_uses_the_language_of_the_browser_or_the_chosen_one(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, locale="ko-KR")
    assert page.locator("[data-value=grid]").inner_text() == "모든 헤드"
    page.locator("[name=language]").select_option("en")
    assert page.locator("[data-value=grid]").inner_text() == "All heads"
    assert page.locator(".look").get_attribute("lang") == "en"
    assert open_page(path, locale="fr-FR").locator("[data-value=grid]").inner_text() == "All heads"


@pytest.mark.heavy
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1100])
@pytest.mark.parametrize("language", ["en", "ko"])
def test_axe_finds_no_serious_violation(
    open_page: OpenPage, run: Path, tmp_path: Path, scheme: str, width: int, language: str
) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    path = write_page(compare_checkpoints(run, "I go home.", device="cpu"), tmp_path / "page.html")
    for fragment in (
        "attention=cross&step=2&token=0,1",
        "view=grid",
        "view=head&compare=1,1",
        "view=table&sort=-entropy",
    ):
        settings = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
        page = open_page(path, f"{fragment}&language={language}", **settings)
        if page.locator(".weights").is_visible():
            page.locator(".weights summary").click()
            page.locator(".weights td").first.wait_for()
        page.evaluate(axe)
        violations = page.evaluate("axe.run().then(results => results.violations)")
        serious = [violation for violation in violations if violation["impact"] in ("serious", "critical")]
        assert not serious, json.dumps(serious, indent=1)[:3000]
        overflow = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert overflow <= 0, f"{fragment}: the page is wider than the screen"


@pytest.mark.heavy
def test_tokens_cannot_inject_markup(
    open_page: OpenPage, attention: mh.AttentionMaps, tmp_path: Path
) -> None:
    data = build_attention_data(
        with_markup_tokens(attention), source=MARKUP_TOKENS[0], target="</title><script>alert(2)</script>"
    )
    path = write_page(data, tmp_path / "page.html")
    for view in ("lines", "head", "grid", "table"):
        page = open_page(path, f"view={view}&tokens=1&attention=cross&step=1&token=0,0")
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 2
        assert page.title().startswith(MARKUP_TOKENS[0])
    page = open_page(path, "view=lines&tokens=1&attention=encoder")
    assert token(page, 0, 0).get_attribute("aria-label") == f"·{MARKUP_TOKENS[0]}"


@pytest.mark.heavy
def test_the_policy_blocks_injected_scripts_and_images(
    open_page: OpenPage, pages: BrowserPages, path: Path, tmp_path: Path
) -> None:
    text = path.read_text(encoding="utf-8")
    hacked = text.replace(
        "</main>", "<img src=https://x.invalid/><script>document.title='hacked'</script></main>"
    )
    assert hacked != text
    (tmp_path / "page.html").write_text(hacked, encoding="utf-8")
    page = open_page(tmp_path / "page.html")
    assert page.title() != "hacked"
    assert pages.problems
    others = [problem for problem in pages.problems if "Content Security Policy" not in problem]
    assert set(others) <= {"https://x.invalid/"}, "a blocked request is reported too"
    pages.problems.clear()


@pytest.mark.heavy
def test_a_large_model_is_drawn_on_canvas_and_lazily(open_page: OpenPage, tmp_path: Path) -> None:
    heads = ",".join(map(str, range(1, 17)))
    fragment = f"attention=encoder&layer=24&heads={heads}"
    page = open_page(write_page(random_attention_data(), tmp_path / "page.html"), fragment)
    assert page.locator(".picture canvas").count() == 1
    assert page.locator(".picture line").count() == 0
    token(page, 0, 50).hover()
    wait_for_frames(page)
    lines = read_lines(page)
    assert {row for _, row, _ in lines} == {50}, "few enough for SVG"
    page.locator("[data-value=head]").click()
    assert page.locator(".picture canvas").count() == 1
    page.locator("[data-value=lines]").click()
    start = time.monotonic()
    page.locator(".weights summary").click()
    page.locator(".weights td").first.wait_for()
    assert page.locator(".weights td").count() == 100 * 100, "only the chosen head of 16"
    assert time.monotonic() - start < 2
    page.evaluate("document.querySelector('.weights td').dataset.old = 'yes'")
    page.locator("[data-chip='3']").click()
    assert page.locator("[data-old]").count() == 1, "the same table is not made again"
    token(page, 0, 50).click()
    assert page.locator(".weights td").count() == 15 * 100, "the pinned row of every head"
    page.locator(".weights summary").click()
    page.locator("[data-value=grid]").click()
    page.wait_for_selector(".card canvas")
    assert page.locator(".card").count() == 384
    assert page.locator(".card canvas").count() < 384
    page.locator(".card").last.scroll_into_view_if_needed()
    page.locator(".card").last.locator("canvas").wait_for()


def test_the_edge_of_the_decoder_is_named_beginning(open_page: OpenPage, path: Path) -> None:
    page = open_page(path, "view=grid")
    name = page.locator("[name=sort] [value=edge]")
    for attention_type, text in (
        ("encoder", "on the end"),
        ("decoder", "on the beginning"),
        ("cross", "on the end"),
    ):
        page.locator(f"[data-value={attention_type}]").click()
        assert name.text_content() == text


def test_a_replaced_grid_is_no_longer_observed(open_page: OpenPage, path: Path) -> None:
    page = open_page(path)
    page.evaluate(
        """() => {
          window.watched = new Set();
          const { observe, disconnect } = IntersectionObserver.prototype;
          IntersectionObserver.prototype.observe = function (node) {
            window.watched.add(this);
            return observe.call(this, node);
          };
          IntersectionObserver.prototype.disconnect = function () {
            window.watched.delete(this);
            return disconnect.call(this);
          };
        }"""
    )
    page.locator("[data-value=grid]").click()
    for attention_type in ("decoder", "cross", "encoder"):
        page.locator(f"[data-value={attention_type}]").click()
    assert page.evaluate("window.watched.size") == 1
    page.locator("[data-value=table]").click()
    assert page.evaluate("window.watched.size") == 0


@pytest.mark.heavy
def test_layers_are_limited_to_those_of_the_attention_type(
    open_page: OpenPage, attention: mh.AttentionMaps, tmp_path: Path
) -> None:
    trace = mh.Trace(attention.trace.encoder, attention.trace.decoder[:1], attention.trace.cross[:1])
    data = build_attention_data(replace(attention, trace=trace))
    page = open_page(write_page(data, tmp_path / "page.html"), "view=head&attention=encoder&layer=2")
    page.locator("[data-value=decoder]").click()
    assert page.locator("[name=layer]").input_value() == "0"
    assert page.locator("[name=layer] option:not([hidden])").count() == 1
    assert page.locator(".picture rect[data-row]").count() > 0
    page.locator("[data-value=grid]").click()
    assert page.locator(".card").count() == 4


# ---- other environments


@pytest.mark.heavy
def test_the_page_works_in_the_frame_of_a_notebook(
    open_page: OpenPage, data: dict[str, Any], tmp_path: Path
) -> None:
    import html

    inside = html.escape(render_page(data))
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
def test_the_modules_work_without_a_build_step(browser: Any, data: dict[str, Any]) -> None:
    """As the page of the server uses them: showAttention(element, data)."""
    folder = str(files("manyheads.look").joinpath("assets"))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    try:
        page.goto(f"http://127.0.0.1:{server.server_port}/attention.css")
        page.evaluate(
            """async (data) => {
                const { showAttention } = await import('/attention_explorer.js');
                const root = document.createElement('div');
                showAttention(root, data);
                document.body.append(root);
                showAttention(root, data, { language: 'ko' });
            }""",
            data,
        )
        assert page.locator("[data-value=head]").inner_text() == "히트맵"
        page.locator("[data-value=head]").click()
        assert page.locator(".picture rect[data-row]").count() > 0
        assert "#" not in page.url, "the address is the server's"
        assert page.locator(".controls").count() == 1, "the new view replaces the old one"
    finally:
        page.close()
        server.shutdown()
        server.server_close()
