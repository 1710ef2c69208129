"""The screenshots in docs/pictures: attention page, walk, live page, and two views of the server's page.

manyheads demo --out demo --seconds 600
python bench/screenshots.py demo/run/model --run demo/run --run other/run

It writes docs/pictures/look-*.png and serve-*.png.

Needs playwright, Chromium and a font with Hangul. Figures 3 to 5 of docs/look.md are not screenshots, but
pictures that the page saved, of the model that is described there.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import manyheads as mh
from manyheads.look.attention_data import build_attention_data
from manyheads.look.forward_walk import walk_model
from manyheads.look.html import write_page, write_walk_page
from manyheads.look.live_page import build_live_data, write_live_page
from manyheads.look.training_walk import compare_checkpoints

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MEETING = "The happy farmer went to the hospital with Martin."
MEAL = "Paul and the doctor will eat the sandwich in an hour."
NUM_COLORS = 256
PARAGRAPH = f"{MEETING}\n{MEAL}"


def take_look_screenshots(browser: Any, translator: mh.Translator, out: Path) -> None:
    """The attention page as it opens: on a desktop in English, and on a phone in Korean and in dark mode."""
    with tempfile.TemporaryDirectory() as folder:
        page = open_attention(browser, translator, MEETING, Path(folder) / "page.html")
        page.screenshot(path=out / "look-page.png")
        phone = {"viewport": {"width": 390, "height": 844}, "locale": "ko-KR", "color_scheme": "dark"}
        touch = {"has_touch": True, "is_mobile": True}
        page = open_attention(browser, translator, MEETING, Path(folder) / "phone.html", **phone, **touch)
        page.screenshot(path=out / "look-phone.png", full_page=True)


def take_walk_screenshot(browser: Any, translator: mh.Translator, out: Path) -> None:
    """The softmax of cross-attention in the last layer, with the second token."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_walk_page(walk_model(translator, MEETING), Path(folder) / "walk.html")
        page = browser.new_context(viewport={"width": 1360, "height": 800}, locale="en-US").new_page()
        page.goto(path.as_uri())
        page.wait_for_selector(".walk .panel")
        page.locator('[data-layer^="decoder"]').last.click()
        page.locator('[data-block="decoder.cross"]').click()
        page.locator(".phases button").nth(2).click()
        page.locator(".head-row .chip").nth(2).click()
        page.wait_for_timeout(700)
        page.screenshot(path=out / "look-walk.png")


def take_live_screenshots(browser: Any, model: Path, out: Path) -> None:
    """The translator in a page: on a desktop with a token chosen; on a phone, dark, with a layer cut."""
    phone = {"viewport": {"width": 390, "height": 844}, "locale": "ko-KR", "color_scheme": "dark"}
    desktop = {"viewport": {"width": 1180, "height": 900}, "locale": "en-US"}
    with tempfile.TemporaryDirectory() as folder:
        path = write_live_page(build_live_data(model, text=MEAL), Path(folder) / "live.html")
        for name, settings in (("look-live.png", desktop), ("look-live-phone.png", phone)):
            page = browser.new_context(**settings).new_page()
            page.goto(path.as_uri())
            page.wait_for_selector(".picture .token")
            for text in (MEETING, MEAL):  # the first translation also compiles the program
                page.fill("textarea", text)
                page.wait_for_timeout(2000)
            if settings is phone:
                page.locator(".actions > button").last.click()  # cut the layer
                page.wait_for_selector(".variant")
            else:
                page.locator(".unit").nth(2).click()
            page.wait_for_timeout(2000)  # until every head is measured
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=out / name, full_page=settings is desktop)
        page = browser.new_context(viewport={"width": 1360, "height": 900}, locale="en-US").new_page()
        page.goto(path.as_uri())
        page.wait_for_selector(".picture .token")
        page.click("[data-panel='walk']")
        page.locator('[data-block="decoder.softmax"]').click()
        page.wait_for_timeout(1000)
        page.locator(".panel-switch").evaluate("node => node.scrollIntoView()")
        page.screenshot(path=out / "look-live-walk.png")


def take_training_screenshot(browser: Any, run: Path, out: Path) -> None:
    """The attention of one sentence at an early step of a run with snapshots."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_page(compare_checkpoints(run, MEETING, device="cpu"), Path(folder) / "training.html")
        page = browser.new_context(viewport={"width": 1240, "height": 820}, locale="en-US").new_page()
        page.goto(path.as_uri())
        page.wait_for_selector(".look .controls")
        page.locator("[name=snapshot]").fill("3")
        page.wait_for_timeout(500)
        page.screenshot(path=out / "look-training.png")


def open_attention(browser: Any, translator: mh.Translator, source: str, path: Path, **settings: Any) -> Any:
    attention, target = translator.attention(source), translator.translate(source).text
    write_page(build_attention_data(attention, source=source, target=target, name="Manyheads"), path)
    desktop = {"viewport": {"width": 1240, "height": 820}, "locale": "en-US"}
    page = browser.new_context(**{**desktop, **settings}).new_page()
    page.goto(path.as_uri())
    page.wait_for_selector(".look .controls")
    page.wait_for_timeout(300)
    return page


def take_server_screenshots(browser: Any, url: str, out: Path) -> None:
    """A translated text with one word pointed at; and the softmax of one head, in dark mode."""
    page = browser.new_context(viewport={"width": 1180, "height": 820}, locale="en-US").new_page()
    page.goto(f"{url}/#translate")
    page.fill("textarea", PARAGRAPH)
    page.get_by_text("Translated.", exact=True).wait_for()
    page.locator(".output .word").nth(3).hover()
    page.wait_for_timeout(300)
    page.screenshot(path=out / "serve-translate.png")
    dark = browser.new_context(viewport={"width": 1280, "height": 760}, color_scheme="dark", locale="en-US")
    page = dark.new_page()
    page.goto(f"{url}/#walk")
    page.wait_for_selector(".walk .panel")
    page.locator('[data-block="decoder.self"]').click()
    page.wait_for_selector(".phases button")
    page.locator(".phases button").nth(2).click()
    page.locator(".token-row .chip").nth(2).click()
    page.wait_for_timeout(700)
    page.screenshot(path=out / "serve-walk.png")


def take_curves_screenshot(browser: Any, url: str, out: Path) -> None:
    """The curves of the runs over time, with the cursor."""
    page = browser.new_context(viewport={"width": 1240, "height": 1240}, locale="en-US").new_page()
    page.goto(f"{url}/#training")
    page.wait_for_selector(".curve")
    if page.locator("[name=axis]").count():
        page.select_option("[name=axis]", "time")
    page.locator("[data-curve=loss] svg").hover()
    page.wait_for_timeout(300)
    page.screenshot(path=out / "serve-training.png")


def reduce_colors(path: Path) -> None:
    """Store a picture with 256 colors, in a third of the bytes."""
    from PIL import Image

    with Image.open(path) as image:
        if image.mode != "P":
            image.convert("RGB").quantize(NUM_COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


@contextmanager
def run_server(model: Path, runs: list[Path]) -> Iterator[str]:
    """Serve a model and the curves of runs on a free port; yield the URL."""
    command = [sys.executable, "-m", "manyheads", "serve", str(model), "--port=0", "--device=cpu", "--quiet"]
    command += [f"--run={run}" for run in runs]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(line.split()[-1] for line in server.stderr if " on http://" in line)
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path, help="an English-Korean model of the built-in corpus")
    parser.add_argument(
        "--run", type=Path, action="append", default=[], help="runs; the first with snapshots"
    )
    parser.add_argument("--out", type=Path, default=PICTURES, help="folder to write")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    arguments.out.mkdir(parents=True, exist_ok=True)
    translator = mh.load(arguments.model, device="cpu")
    with sync_playwright() as playwright, run_server(arguments.model, arguments.run) as url:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        take_look_screenshots(browser, translator, arguments.out)
        take_walk_screenshot(browser, translator, arguments.out)
        take_live_screenshots(browser, arguments.model, arguments.out)
        take_server_screenshots(browser, url, arguments.out)
        if arguments.run:
            take_training_screenshot(browser, arguments.run[0], arguments.out)
            take_curves_screenshot(browser, url, arguments.out)
        browser.close()
    for path in [*arguments.out.glob("look-*.png"), *arguments.out.glob("serve-*.png")]:
        reduce_colors(path)


if __name__ == "__main__":
    main()
