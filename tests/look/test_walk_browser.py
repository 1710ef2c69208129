"""The walk as a single file in a browser: its calculations, its diagram and its accessibility."""

import json
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads.look.forward_walk import walk_model
from manyheads.look.html import write_walk_page
from manyheads.text.subwords import SubwordTokenizer
from support.browser import BrowserPages
from support.walk_models import CONFIGS, SOURCE, TARGET, make_translator

OpenWalk = Callable[..., Any]
IDS = ["post", "pre", "additive", "batch"]
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def walks(model: Path) -> dict[str, Any]:
    return walk_model(mh.load(model, device="cpu"), SOURCE, TARGET)


@pytest.fixture(scope="module")
def path(walks: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_walk_page(walks, tmp_path_factory.mktemp("walk") / "walk.html")


@pytest.fixture
def open_walk(pages: BrowserPages, path: Path) -> OpenWalk:
    """Open the page from its file, without a network."""

    def open_file(file: Path = path, **settings: Any) -> Any:
        page = pages.create(lambda url: not url.startswith("http"), **settings)
        page.context.set_offline(True)
        page.goto(file.as_uri())
        page.wait_for_selector(".walk .panel")
        return page

    return open_file


CLICK = "node => node.dispatchEvent(new MouseEvent('click', { bubbles: true }))"


def read_number(text: str) -> float:
    return float(text.replace("−", "-"))


def walk_to_the_end(page: Any) -> Any:
    """Yield at every phase of the walk."""
    yield
    while page.locator(".next").is_enabled():
        page.locator(".next").click()
        yield


def test_the_calculation_of_every_phase_ends_in_the_number_of_the_model(open_walk: OpenWalk) -> None:
    """The smoke test of every run: the last number of each calculation is the one in the cell."""
    page = open_walk()
    assert check_calculations(page) == 1 + 2 * 8 + 1 + 2 * 14 + 2
    assert page.locator("[data-step='output.probabilities']").count() == 1, "it ends in probabilities"


@pytest.mark.heavy
@pytest.mark.parametrize("changes", CONFIGS[1:], ids=IDS[1:])
def test_the_calculations_of_other_configurations_are_correct(
    open_walk: OpenWalk, subwords: Any, tmp_path: Path, changes: dict[str, Any]
) -> None:
    walks = walk_model(make_translator(subwords, **changes), SOURCE, TARGET)
    check_calculations(open_walk(write_walk_page(walks, tmp_path / "walk.html")))


def check_calculations(page: Any) -> int:
    """Compare the result of the calculation of each phase with its cell; return the number of phases."""
    phases = 0
    for _ in walk_to_the_end(page):
        phases += 1
        value = read_number(page.locator(".calculation-value").inner_text().removesuffix("%"))
        lines = page.locator(".sums").all_inner_texts()
        assert not re.search("[−+·/] −", " ".join(lines)), "a negative number without brackets"
        if lines:
            last = read_number(re.split("[=→]", lines[-1])[-1].strip())
            last *= 100 if page.locator(".calculation-title").inner_text().startswith("p(") else 1
            assert last == pytest.approx(value, abs=0.006), page.locator(".calculation").inner_text()
        assert re.search(r"\.py:\d+$", page.locator(".code-line .quiet").inner_text())
    return phases


@pytest.mark.heavy
def test_sums_of_terms_equal_the_numbers_of_the_model(open_walk: OpenWalk, walks: dict[str, Any]) -> None:
    page = open_walk()
    page.locator('[data-block="decoder.self"]').click()
    page.locator(".next").click()
    scores = next(step for step in walks["decoder"][0]["steps"] if step["name"] == "scores")
    canvas = page.locator('[data-step="self.scores"] canvas')
    canvas.focus()
    page.keyboard.press("Home")
    for column in range(2):
        for summary in page.locator(".terms summary").all():
            summary.click()
        page.wait_for_timeout(50)
        terms = page.locator(".terms details [data-term], .terms > table [data-term]")
        products = terms.evaluate_all("all => all.map(node => Number(node.dataset.term))")
        assert sum(products[-4:]) / 2 == pytest.approx(scores["values"][0][1][column], abs=1e-4)  # sqrt(4)
        page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    assert "must not see" in page.locator(".symbols").inner_text(), "the future is masked"
    assert "masked_fill" in page.locator(".code-line code").inner_text()


@pytest.mark.heavy
def test_the_diagram_leads_through_the_model_with_the_keyboard(open_walk: OpenWalk) -> None:
    page = open_walk()
    page.locator('[data-block="encoder.embedding"]').focus()
    for key, block in [
        ("ArrowUp", "encoder.self"), ("ArrowUp", "encoder.self_add"), ("ArrowRight", "decoder.self_add"),
        ("ArrowUp", "decoder.cross"), ("ArrowDown", "decoder.self_add"), ("ArrowDown", "decoder.self"),
    ]:  # fmt: skip
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.block") == block
    page.keyboard.press("Enter")
    assert "Masked" in page.locator(".where").inner_text()
    assert page.locator('[aria-current="step"]').first.get_attribute("data-block") == "decoder.self"
    page.locator('[data-layer="decoder.1"]').click()
    assert "layer 2 of 2" in page.locator(".where").inner_text()
    page.locator(".token-row .chip").nth(3).click()
    assert page.locator('.token-row [aria-pressed="true"]').count() == 1
    assert page.locator(".marker text").text_content() == page.locator(".token-row .chip").nth(3).inner_text()


@pytest.mark.heavy
def test_a_layer_of_the_diagram_keeps_the_block_and_the_phase(open_walk: OpenWalk) -> None:
    page = open_walk()
    title = page.locator(".walk-stage :is(h2, h3)")
    page.locator('[data-block="decoder.cross"]').click()
    page.locator(".phases button").nth(2).click()
    weights = title.inner_text()
    for layer in (2, 2, 1):
        page.locator(f'[data-layer="decoder.{layer - 1}"]').click()
        assert (
            page.locator(".where").inner_text() == f"Decoder, layer {layer} of 2 · Multi-head cross-attention"
        )
        assert title.inner_text() == weights
    page.locator('[data-layer="encoder.1"]').click()
    assert page.locator(".where").inner_text() == "Encoder, layer 2 of 2 · Multi-head attention"
    page.locator('[data-block="decoder.softmax"]').click()
    page.locator('[data-layer="decoder.1"]').click()
    assert page.locator(".where").inner_text() == "Decoder, layer 2 of 2 · Masked multi-head attention"


@pytest.mark.heavy
def test_rows_of_cross_attention_have_the_token_read_and_the_one_of_the_attention_page(
    open_walk: OpenWalk, walks: dict[str, Any]
) -> None:
    page = open_walk()
    page.locator('[data-block="decoder.cross"]').click()
    page.locator(".phases button").nth(2).click()
    panel = page.locator('[data-step="cross.weights"]')
    panel.locator(".numbers summary").click()
    panel.locator("tbody th").first.wait_for()
    names = panel.locator("tbody th").all_inner_texts()
    read = page.locator(".token-row .chip").all_inner_texts()
    assert names == [f"{token} → {after}" for token, after in zip(read, [*read[1:], "[end]"], strict=True)]
    panel.locator("canvas").focus()
    page.keyboard.press("Home")
    assert f"[{names[1]}, " in page.locator(".calculation-title").inner_text()
    page.locator('[data-block="decoder.self"]').click()
    page.locator('[data-step="self.query"] .numbers summary').click()
    page.locator('[data-step="self.query"] tbody th').first.wait_for()
    assert page.locator('[data-step="self.query"] tbody th').all_inner_texts() == read


NAMES = [  # by configuration: the embedding, what follows a sublayer, and what the scores are said to be
    ("Embedding + position", "Add & norm", "Dividing by √d_k"),
    ("Embedding + position", "Add", "Dividing by √d_k"),
    ("Embedding", "Add & norm", "tanh"),
    ("Embedding + position", "Batch norm", "does not divide"),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("changes", "names"), list(zip(CONFIGS, NAMES, strict=True)), ids=IDS)
def test_the_diagram_and_its_texts_are_those_of_the_model(
    open_walk: OpenWalk,
    subwords: SubwordTokenizer,
    tmp_path: Path,
    changes: dict[str, Any],
    names: tuple[str, str, str],
) -> None:
    """A model without positions adds none; without residuals nothing is added back; pre-norm only adds."""
    translator = make_translator(subwords, **changes)
    page = open_walk(write_walk_page(walk_model(translator, SOURCE, TARGET), tmp_path / "walk.html"))
    embedding, after, scores = names
    for stack in ("encoder", "decoder"):
        for block, name in (("embedding", embedding), ("self_add", after), ("feed_forward_add", after)):
            label = page.locator(f'[data-block="{stack}.{block}"]').get_attribute("aria-label")
            assert label == f"{stack.capitalize()}: {name}"
    assert page.locator(".architecture .plus").count() == (2 if "position" in embedding else 0)
    residuals = page.locator(".architecture path.wire").evaluate_all(
        "paths => paths.filter(path => /H.*V.*H/.test(path.getAttribute('d'))).length"
    )
    assert residuals == (5 if "Add" in after else 0) + 1, "with the line from the encoder to the decoder"
    order = page.locator(".architecture > *").evaluate_all("parts => parts.map(part => part.classList[0])")
    assert order.index("wire") > max(n for n, name in enumerate(order) if name == "stack"), "lines are hidden"
    page.locator('[data-block="encoder.self"]').click()
    page.locator(".phases button").nth(1).click()
    assert scores in page.locator(".about-phase").inner_text()
    page.locator('[data-block="encoder.self_add"]').click()
    about = page.locator(".about-phase").inner_text()
    assert ("added back" in about) == ("Add" in after)
    assert ("mean 0" in about) == (after == "Add & norm")


@pytest.mark.heavy
@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_a_token_moves_unless_motion_is_reduced(open_walk: OpenWalk, motion: str) -> None:
    page = open_walk(reduced_motion=motion)
    page.locator(".next").click()
    positions = set()
    for _ in range(12):
        positions.add(page.locator(".marker").get_attribute("transform"))
        page.wait_for_timeout(30)
    assert (len(positions) > 1) == (motion == "no-preference")
    page.locator(".play").click()
    before = page.locator(".progress").inner_text()
    page.wait_for_timeout(2900)
    assert page.locator(".progress").inner_text() != before
    page.locator(".play").click()
    assert page.locator(".play").inner_text() == "Play"


@pytest.mark.heavy
@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_axe_finds_no_serious_violation_in_the_walk(
    open_walk: OpenWalk, scheme: str, locale: str, device: str
) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page = open_walk(color_scheme=scheme, locale=locale, **(PHONE if device == "phone" else {}))
    page.evaluate(axe)
    for number, _ in enumerate(walk_to_the_end(page)):
        if number % 5 and page.locator(".next").is_enabled():
            continue
        for summary in page.locator(".numbers > summary").all():
            summary.click()
        for canvas in page.locator(".panel canvas").all()[:1]:
            canvas.press("Enter")
            page.wait_for_selector(".walk.has-choice")
        violations = page.evaluate("axe.run().then(results => results.violations)")
        grave = ("serious", "critical")
        serious = [
            entry for entry in violations if entry["impact"] in grave or entry["id"] == "heading-order"
        ]
        assert not serious, json.dumps(serious, indent=1)[:3000]
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, "the page is wider than the screen"


@pytest.mark.heavy
@pytest.mark.parametrize("device", ["desktop", "phone"])
@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
def test_the_texts_of_the_diagram_can_be_read_and_fit_their_blocks(
    open_walk: OpenWalk, locale: str, device: str
) -> None:
    """Also that of the current block, which is bold; and a finger can hit every block and layer."""
    page = open_walk(
        locale=locale, **(PHONE if device == "phone" else {"viewport": {"width": 1280, "height": 800}})
    )
    measure = """() => [...document.querySelectorAll('.block')].map((block) => {
        const box = block.querySelector('rect').getBoundingClientRect();
        const texts = [...block.querySelectorAll('text')];
        const isInside = texts.map((text) => text.getBoundingClientRect()).every((text) =>
            text.left >= box.left + 2 && text.right <= box.right - 2 &&
            text.top >= box.top && text.bottom <= box.bottom);
        const scale = box.width / block.querySelector('rect').width.baseVal.value;
        const size = scale * parseFloat(getComputedStyle(texts[0]).fontSize);
        return [block.dataset.block, isInside, size, block.getBoundingClientRect().height];
    })"""
    for block in ("decoder.self", "decoder.cross", "encoder.self_add"):
        page.locator(f'[data-block="{block}"]').evaluate(CLICK)
        page.wait_for_selector(f'[data-block="{block}"][aria-current="step"]')
        if device == "phone":
            page.locator(".diagram-toggle").click()
        for name, is_inside, size, height in page.evaluate(measure):
            assert is_inside, name
            assert size >= 9.8, name
            assert height >= (18 if device == "desktop" else 20), name
    if device == "phone":
        sizes = [button.bounding_box() for button in page.locator(".layer-button").all()]
        assert min(min(box["width"], box["height"]) for box in sizes) >= 24


@pytest.mark.heavy
def test_the_tooltip_goes_away_when_the_keyboard_chooses(open_walk: OpenWalk) -> None:
    page = open_walk(viewport={"width": 1280, "height": 900})
    page.locator('[data-block="encoder.self"]').click()
    page.locator(".phases button").nth(1).click()
    canvas = page.locator('[data-step="self.scores"] canvas')
    canvas.focus()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 20)
    page.locator(".tooltip").wait_for()
    page.keyboard.press("ArrowRight")
    assert not page.locator(".tooltip").is_visible()


@pytest.mark.heavy
def test_the_colors_are_explained_where_a_sign_has_one(open_walk: OpenWalk) -> None:
    page = open_walk()
    assert page.locator(".legend").inner_text().split("\n") == ["above zero", "below zero"]
    colors = page.locator(".legend .swatch").evaluate_all(
        "all => all.map(node => getComputedStyle(node).backgroundColor)"
    )
    assert colors == ["rgb(43, 80, 200)", "rgb(180, 85, 45)"]
    page.locator('[data-block="decoder.softmax"]').click()
    page.wait_for_selector("[data-step='output.probabilities']")
    assert not page.locator(".legend").is_visible()


@pytest.mark.heavy
def test_a_code_line_never_breaks_inside_a_name(open_walk: OpenWalk) -> None:
    page = open_walk(viewport={"width": 1280, "height": 800})
    for _ in walk_to_the_end(page):
        broken = page.locator(".code-part").evaluate_all(
            "all => all.filter(node => node.getClientRects().length > 1"
            " || node.scrollWidth > node.clientWidth + 1).map(node => node.textContent)"
        )
        heights = page.locator(".code-part").evaluate_all("all => all.map(node => node.offsetHeight)")
        assert not broken
        assert len(set(heights)) <= 1, "one line each"
        code = page.locator(".code-line pre").evaluate("node => node.scrollWidth - node.clientWidth")
        assert code <= 0


@pytest.mark.heavy
def test_a_caption_names_a_matrix_once_and_the_ring_of_the_focus_lies_inside(open_walk: OpenWalk) -> None:
    """Outside it would be cut off by a panel that scrolls."""
    page = open_walk()
    page.locator('[data-block="decoder.cross"]').click()
    caption = page.locator('[data-step="cross.memory"] figcaption').inner_text()
    assert re.split(r"\s+", caption.strip())[:4] == ["Encoder", "output", "m", "8"]
    page.locator(".panel canvas").first.focus()
    page.keyboard.press("ArrowRight")
    style = (
        "node => [getComputedStyle(node).outlineWidth, getComputedStyle(node).outlineOffset].map(parseFloat)"
    )
    width, offset = page.locator(".panel canvas:focus-visible").evaluate(style)
    assert width > 0
    assert offset <= -width


@pytest.mark.heavy
def test_maps_with_short_names_are_side_by_side(open_walk: OpenWalk) -> None:
    page = open_walk(viewport={"width": 1280, "height": 800})
    page.locator('[data-block="encoder.self"]').click()
    page.locator(".phases button").nth(2).click()
    tops = [panel.bounding_box()["y"] for panel in page.locator(".panel canvas").all()]
    assert max(tops) - min(tops) < 40, "short names"


@pytest.mark.heavy
def test_a_phone_opens_the_diagram_and_closes_it_after_a_choice(open_walk: OpenWalk) -> None:
    page = open_walk(**PHONE)
    page.locator(".diagram-toggle").click()
    assert page.locator(".diagram-toggle").get_attribute("aria-expanded") == "true"
    page.locator('[data-block="decoder.cross"]').click()
    assert page.locator(".diagram-toggle").get_attribute("aria-expanded") == "false"
    assert "cross-attention" in page.locator(".where").inner_text()
    assert page.locator(".walk-stage h3").bounding_box()["y"] < 844, "the stage is above the fold"


@pytest.mark.heavy
@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
def test_the_diagram_and_the_buttons_stay_in_sight_on_a_phone(open_walk: OpenWalk, locale: str) -> None:
    """The small picture is a button, nothing shows through the bar, and a station begins with its title."""
    page = open_walk(locale=locale, **PHONE)
    for _ in range(9):
        page.locator(".next").click()
    page.locator(".panel canvas").last.scroll_into_view_if_needed()
    page.evaluate("scrollBy(0, 200)")
    assert page.locator(".walk-stage h3").bounding_box()["y"] < 0
    bar, diagram = (page.locator(name).bounding_box() for name in (".walk-head", ".walk-map"))
    assert bar["y"] == pytest.approx(0, abs=1)
    assert diagram["y"] == pytest.approx(0, abs=1)
    assert diagram["height"] <= bar["height"] + 1
    covered = page.evaluate(
        """([left, right, bottom]) => {
            const isCovered = (x, y) => document.elementFromPoint(x, y).closest('.walk-head, .walk-map');
            const steps = Array.from({ length: right - left - 2 }, (_, n) => left + 1 + n);
            return steps.every((x) => isCovered(x, 2) && isCovered(x, bottom - 3));
        }""",
        [round(bar["x"]), round(diagram["x"] + diagram["width"]), round(bar["height"])],
    )
    assert covered
    page.locator(".next").click()
    title = page.locator(".walk-stage h3").bounding_box()
    assert bar["height"] <= title["y"] + 1 < 300, "below the bar"
    name = {"en-US": "Diagram", "ko-KR": "그림"}[locale]
    assert page.locator(".diagram-toggle").get_attribute("aria-label") == name
    page.touchscreen.tap(diagram["x"] + 30, diagram["y"] + 40)
    assert page.locator(".diagram-toggle").get_attribute("aria-expanded") == "true"
    assert page.locator(".walk-map").bounding_box()["width"] > 300


@pytest.mark.heavy
@pytest.mark.parametrize("size", [(390, 844), (900, 700), (1280, 800)])
def test_the_calculation_of_a_chosen_cell_is_in_sight(open_walk: OpenWalk, size: tuple[int, int]) -> None:
    page = open_walk(viewport={"width": size[0], "height": size[1]})
    page.locator(".next").click()
    canvas = page.locator(".panel canvas").first
    canvas.evaluate("node => scrollBy(0, node.getBoundingClientRect().bottom - innerHeight + 4)")
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + box["width"] - 6, box["y"] + box["height"] - 6)
    page.wait_for_selector(".walk.has-choice")
    title, box = page.locator(".calculation-title").bounding_box(), canvas.bounding_box()
    for shown, part in (
        ([title["x"] + 6, title["y"] + 6], ".calculation"),
        ([box["x"] + box["width"] - 6, box["y"] + box["height"] - 6], "canvas"),
    ):
        is_on_top = "([x, y, part]) => Boolean(document.elementFromPoint(x, y)?.closest(part))"
        assert page.evaluate(is_on_top, [*shown, part]), part
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "the page is wider than the screen"
    page.locator(".back").click()
    assert page.locator(".walk.has-choice").count() == 0, "of a cell that is gone"
