"""How fast the attention page answers: opening, hovering over a word, and opening another head.

python bench/page_speed.py                            50 x 50 tokens, 6 layers, 8 heads, random maps
python bench/page_speed.py --tokens 100 --layers 24 --heads 16

The page is opened from a file in headless Chromium without a network. A time is from the event to the next
frame, in milliseconds: the least, which other work on the machine disturbs least, the median and the largest
of several. Needs playwright and Chromium.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

import manyheads as mh
from manyheads.look.attention_data import build_attention_data
from manyheads.look.html import write_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
VIEWS = {
    "lines of all heads": "attention=encoder&layer=1",
    "lines of one head": "attention=cross",
    "heat map": "view=head",
}
# The time from an event on each of several elements to the frame that shows its effect.
MEASURE = """async ([selector, type, count]) => {
    const nodes = [...document.querySelectorAll(selector)];
    const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));
    const times = [];
    for (let n = 0; n < count; n++) {
        const node = nodes[(7 * n + 3) % nodes.length];
        await frame();
        const start = performance.now();
        if (type === "hover") node.dispatchEvent(new PointerEvent("pointerenter"));
        else node.click();
        await frame();
        times.push(performance.now() - start);
    }
    return times;
}"""


def random_page(path: Path, tokens: int, layers: int, heads: int) -> Path:
    """Write a page of random maps, in which no weight is 0."""

    def random_maps() -> list[list[torch.Tensor]]:
        return [[layer] for layer in (3 * torch.randn(layers, heads, tokens, tokens)).softmax(-1)]

    names = [*(f"▁w{n}" for n in range(tokens - 1)), "</s>"]
    trace = mh.Trace(random_maps(), random_maps(), random_maps())
    languages = {"source": "en", "target": "ko"}
    return write_page(build_attention_data(mh.AttentionMaps(names, names, trace, languages=languages)), path)


def measure_page(browser: Any, path: Path) -> dict[str, dict[str, float]]:
    """Return the least, the median and the largest time of each action."""
    results = {}
    for name, view in VIEWS.items():
        page = browser.new_context(viewport={"width": 1240, "height": 900}, offline=True).new_page()
        page.goto(f"{path.as_uri()}#{view}")
        page.wait_for_selector(".look .controls")
        actions = {"hover": ".picture .token", "click": ".navigator [data-head]"}
        for action, selector in actions.items():
            times = page.evaluate(MEASURE, [selector, action, 20])
            label = f"{name}, {'hover' if action == 'hover' else 'another head'}"
            results[label] = {
                "min_ms": min(times),
                "median_ms": statistics.median(times),
                "max_ms": max(times),
            }
        page.context.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=int, default=50, help="of each side")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--json", type=Path, help="file to write")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = random_page(Path(folder) / "page.html", arguments.tokens, arguments.layers, arguments.heads)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        results = measure_page(browser, path)
        browser.close()
    for label, times in results.items():
        least, median, largest = times.values()
        print(f"{label:34s} least {least:5.1f} ms, median {median:5.1f} ms, largest {largest:5.1f} ms")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
