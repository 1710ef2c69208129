"""The live page in headless Chromium: its size, its speed, and whether it translates as torch does.

python bench/live_page.py run/model test.en                 types every sentence into the page

The page is opened from the disk without a network. The torch engine has the same int8 weights. Needs
playwright and Chromium. Times are those of this machine: say what else runs on it.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import manyheads as mh
from manyheads.export.int8 import quantize_model
from manyheads.look.live_page import build_live_data, write_live_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Types a text; returns the translation, and the milliseconds until it is there and until it is drawn.
TYPE_TEXT = """async (text) => {
    const [input, output] = ["textarea", ".output"].map((name) => document.querySelector(name));
    const changed = new Promise((resolve) => {
        const observer = new MutationObserver(() => { observer.disconnect(); resolve(performance.now()); });
        observer.observe(output, { childList: true });
    });
    input.value = text;
    const start = performance.now();
    input.dispatchEvent(new Event("input"));
    const there = (await changed) - start;
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    return [output.innerText, there, performance.now() - start];
}"""
# Points at tokens of the picture; returns the milliseconds until each is drawn.
HOVER = """async () => {
    const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    const times = [];
    for (const token of document.querySelectorAll(".picture .token")) {
        await frame();
        const start = performance.now();
        token.dispatchEvent(new PointerEvent("pointerenter"));
        await frame();
        times.push(performance.now() - start);
    }
    return times;
}"""


def measure_page(
    browser: Any, path: Path, texts: list[str], expected: list[str], beam: int
) -> dict[str, Any]:
    """Return the times of opening, typing and pointing, and the share of equal translations."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    start = time.perf_counter()
    page.goto(path.as_uri())
    page.wait_for_selector(".unit")
    opened = time.perf_counter() - start
    page.click(f"[data-beam='{beam}']")
    page.wait_for_timeout(1000)
    results = [page.evaluate(TYPE_TEXT, text) for text in texts]
    page.wait_for_timeout(1000)
    hovers = page.evaluate(HOVER)
    context.close()
    same = [own.split() == other.split() for (own, _, _), other in zip(results, expected, strict=True)]
    return {
        "beam": beam,
        "open_seconds": round(opened, 2),
        "same": sum(same),
        "sentences": len(same),
        "translation_ms": summarize([there for _, there, _ in results]),
        "drawn_ms": summarize([drawn for _, _, drawn in results]),
        "hover_ms": summarize(hovers),
        "problems": problems,
    }


def summarize(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "median": round(statistics.median(ordered), 1),
        "p90": round(ordered[int(0.9 * (len(ordered) - 1))], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("text", type=Path, help="source sentences, one a line")
    parser.add_argument("--sentences", type=int, default=1000, help="the first so many")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    texts = arguments.text.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        quantized = quantize_model(arguments.model, Path(folder) / "int8").folder
        translator = mh.load(quantized, device="cpu", engine="torch:float32")
        path = write_live_page(build_live_data(quantized, text=texts[0]), Path(folder) / "page.html")
        print(json.dumps({"bytes": path.stat().st_size}))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for beam in (1, 4):
            translated = translator.translate(texts, beam=beam, second_try=False)
            expected = [translation.text for translation in translated]
            print(json.dumps(measure_page(browser, path, texts, expected, beam)), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
