"""The server's page in a real browser: everything on it works, and its numbers are the model's."""

import json
import shutil
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from test_page_paths import write_log

import manyheads as mh
from manyheads.look.attention_data import merge_into_words
from manyheads.look.attention_data import stack_maps as maps_of
from manyheads.look.forward_walk import walk_layer
from manyheads.serve.limits import ServerLimits
from manyheads.serve.word_alignment import WordAlignment
from support.scripted_translator import ScriptedTranslator

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: the server's page is not looked at in a browser"
)

Open = Callable[..., Any]
SOURCE = "I go home today."
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1100, "height": 900}
READY = {"translate": "textarea", "attention": ".look .controls", "walk": ".walk .step", "training": ".curve"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """Opens the page of a server, and at the end holds that nothing else was asked and nothing went wrong."""
    wrong: list[str] = []
    contexts = []

    def start(
        port: int, view: str = "translate", before: Callable[[Any], Any] | None = None, **how: Any
    ) -> Any:
        context = browser.new_context(**{"viewport": DESK, "locale": "en-US", **how})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(6000)
        own = (f"http://127.0.0.1:{port}/", f"blob:http://127.0.0.1:{port}/")
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: asked.url.startswith(own) or wrong.append(asked.url))
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}") or dialog.dismiss())
        if before:
            before(page)
        page.goto(f"http://127.0.0.1:{port}/#{view}")
        return page

    start.wrong = wrong  # type: ignore[attr-defined]
    yield start
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def run(tmp_path: Path) -> Path:
    train = [
        {"event": "train", "step": n, "loss": 8 / n, "perplexity": 100 / n, "learning_rate": n / 1e4}
        for n in range(1, 11)
    ]
    valid = [
        {"event": "valid", "step": n, "loss": 4 / n, "perplexity": 60 / n, "bleu": 9.5 * n} for n in (5, 10)
    ]
    return write_log(tmp_path / "a run", [*train, *valid])


def type_in(page: Any, text: str) -> None:
    page.fill("textarea", text)
    page.wait_for_function(
        "text => document.querySelector('.told')?.textContent.match(/Translated|번역했/)", arg=text
    )


def go(page: Any, view: str) -> None:
    page.click(f'nav a[href="#{view}"]')
    page.wait_for_selector(READY[view])


def told(page: Any) -> str:
    return str(page.locator(".translate-view > .told").text_content())


def test_what_one_types_is_translated_by_the_model(
    visit: Open, listening: Any, speaker: mh.Translator
) -> None:
    """The smoke test of every run; the others are in `make test-all`."""
    with listening(speaker) as port:
        page = visit(port)
        type_in(page, SOURCE)
        ours = speaker.translate(SOURCE, nbest=4, alignment=True)
        assert page.locator(".output").text_content() == ours.text
        assert page.locator(".read").text_content() == ours.text, "for who cannot see it"


# ---- translating


@pytest.mark.heavy
def test_typing_asks_once_when_it_pauses(visit: Open, listening: Any) -> None:
    model = ScriptedTranslator()
    with listening(model) as port:
        page = visit(port)
        page.locator("textarea").press_sequentially("one two three", delay=20)
        page.wait_for_function("() => document.querySelector('.output').textContent === 'three two one'")
        assert model.calls == [["one two three"]]


@pytest.mark.heavy
@pytest.mark.parametrize("gives_up", [True, False])
def test_an_answer_that_comes_too_late_is_not_shown(visit: Open, listening: Any, gives_up: bool) -> None:
    """Also where the browser could not call the request back."""
    slow = """(givesUp) => { const ask = window.fetch; window.fetch = async (path, how) => {
        const answer = await ask(path, givesUp ? how : { ...how, signal: undefined });
        if (String(how?.body).includes("slow")) await new Promise(done => setTimeout(done, 900));
        return answer; } }"""
    with listening() as port:
        before = f"({slow})({json.dumps(gives_up)})"
        page = visit(port, before=lambda page: page.add_init_script(before))
        page.fill("textarea", "slow one")
        page.wait_for_timeout(650)
        page.fill("textarea", "quick one")
        page.wait_for_function("() => document.querySelector('.output').textContent === 'one quick'")
        page.wait_for_timeout(1100)
        assert page.locator(".output").text_content() == "one quick"


@pytest.mark.heavy
def test_emptied_the_page_shows_nothing(visit: Open, listening: Any) -> None:
    with listening() as port:
        page = visit(port)
        type_in(page, "one two")
        page.fill("textarea", "")
        page.wait_for_selector(".output.empty")
        assert page.locator(".copy").is_disabled()
        assert page.locator(".others li").count() == 0


@pytest.mark.heavy
def test_alternatives_are_as_many_as_one_asks_for(visit: Open, listening: Any) -> None:
    with listening() as port:
        page = visit(port)
        type_in(page, "a b")
        assert page.locator(".others li > span").all_text_contents() == ["b a 1", "b a 2", "b a 3"]
        page.select_option("[name=alternatives]", "1")
        page.wait_for_function("() => document.querySelectorAll('.others li').length === 1")


@pytest.mark.heavy
def test_swapping_turns_languages_and_texts_round(visit: Open, listening: Any) -> None:
    with listening(ScriptedTranslator(), ScriptedTranslator("ko", "en")) as port:
        page = visit(port)
        type_in(page, "one two")
        page.click(".swap")
        page.wait_for_function("() => document.querySelector('.output').textContent === 'one two'")
        assert page.input_value("textarea") == "two one"
        assert [page.input_value(f"[name={name}]") for name in ("from", "to")] == ["ko", "en"]
    with listening() as port:
        assert visit(port).locator(".swap").is_disabled(), "nothing translates back"


@pytest.mark.heavy
def test_models_and_languages_can_be_chosen_and_told(visit: Open, listening: Any) -> None:
    models = [ScriptedTranslator(), ScriptedTranslator(), ScriptedTranslator("de", "ko")]
    with listening(*models) as port:
        page = visit(port)
        type_in(page, "one two")
        page.select_option("[name=model]", "en-ko-2")
        page.wait_for_timeout(300)
        assert [len(one.calls) for one in models] == [1, 1, 0]
        page.select_option("[name=from]", "auto")
        type_in(page, "Wo ist bitte die Bibliothek?")
        page.wait_for_function("() => document.querySelector('.detected').textContent.includes('German')")
        assert models[2].calls[-1] == ["Wo ist bitte die Bibliothek?"]


@pytest.mark.heavy
def test_copying_puts_the_translation_on_the_clipboard(visit: Open, listening: Any) -> None:
    with listening() as port:
        page = visit(port, permissions=["clipboard-read", "clipboard-write"])
        type_in(page, "one two")
        page.click(".copy")
        page.wait_for_function("() => document.querySelector('.told')?.textContent === 'Copied.'")
        assert page.evaluate("navigator.clipboard.readText()") == "two one"
        page.locator(".others button").first.click()
        page.wait_for_function("() => navigator.clipboard.readText().then(text => text === 'two one 1')")


@pytest.mark.heavy
def test_a_file_comes_back_line_for_line(visit: Open, listening: Any, tmp_path: Path) -> None:
    lines = [f"line {n}" if n % 5 else "" for n in range(1, 90)]
    path = tmp_path / "some.en.txt"
    path.write_bytes("\r\n".join(lines).encode())
    with listening() as port:
        page = visit(port)
        page.set_input_files("#file", path)
        page.click(".begin")
        page.wait_for_selector(".saved:not([hidden])")
        with page.expect_download() as saving:
            page.click(".saved")
        assert saving.value.suggested_filename == "some.en.ko.txt"
        found = Path(saving.value.path()).read_bytes().decode()
        assert found == "\r\n".join(" ".join(reversed(line.split())) for line in lines)


@pytest.mark.heavy
def test_a_file_that_is_no_text_or_has_too_long_a_line_is_told(
    visit: Open, listening: Any, tmp_path: Path
) -> None:
    with listening() as port:
        page = visit(port)
        for content, why in ((b"\xff\xfe\x00", "not UTF-8"), (b"a\n" + b"b" * 10_001, "Line 2 is longer")):
            (tmp_path / "file.txt").write_bytes(content)
            page.set_input_files("#file", tmp_path / "file.txt")
            page.click(".begin")
            page.wait_for_function(
                "why => document.querySelector('.files .told').textContent.includes(why)", arg=why
            )
            assert not page.locator(".saved").is_visible()


@pytest.mark.heavy
def test_a_busy_server_is_asked_again_and_a_refusal_is_told(visit: Open, listening: Any) -> None:
    answers = iter([{"status": 503, "headers": {"retry-after": "1"}, "json": {"error": "full"}}])

    def busy(route: Any) -> None:
        answer = next(answers, None)
        route.fulfill(**answer) if answer else route.continue_()

    with listening() as port:
        page = visit(port, before=lambda page: page.route("**/translate", busy))
        page.fill("textarea", "one two")
        page.wait_for_function("() => document.querySelector('.told')?.textContent?.includes('again in 1 s')")
        page.wait_for_function("() => document.querySelector('.output').textContent === 'two one'")
        page.fill("textarea", "impossible")
        page.wait_for_function(
            "() => document.querySelector('.told')?.textContent === 'this cannot be translated'"
        )
        page.fill("textarea", "x" * 10_001)
        page.wait_for_function("() => document.querySelector('.told')?.textContent?.includes('use a file')")
        assert page.locator(".output.empty").count() == 1, "no translation of another text beside it"
        assert page.locator(".others li").count() == 0
        assert page.locator(".copy").is_disabled()
    assert all("503" in one or "400" in one for one in visit.wrong)  # type: ignore[attr-defined]
    visit.wrong.clear()  # type: ignore[attr-defined]


@pytest.mark.heavy
def test_a_key_is_asked_for_and_used(visit: Open, listening: Any) -> None:
    with listening(api_key="schlüssel") as port:
        page = visit(port)
        page.fill("#key", "wrong")
        page.click(".key button")
        page.wait_for_function("() => document.querySelector('[role=alert]').textContent.includes('API key')")
        page.fill("#key", "schlüssel")
        page.click(".key button")
        type_in(page, "one two")
        assert page.locator(".output").text_content() == "two one"
    assert all("403" in one for one in visit.wrong)  # type: ignore[attr-defined]
    visit.wrong.clear()  # type: ignore[attr-defined]


@pytest.mark.heavy
def test_nothing_that_a_text_holds_can_act(visit: Open, listening: Any) -> None:
    nasty = "<img/src=x/onerror=alert(1)> <script>alert(2)</script> {{7*7}}"
    with listening() as port:
        page = visit(port)
        type_in(page, nasty)
        assert page.locator(".output").text_content() == " ".join(reversed(nasty.split(" ")))
        assert page.locator("main img, main script").count() == 0


# ---- words


@pytest.mark.heavy
def test_confidence_is_the_models_and_shown_by_more_than_color(
    visit: Open, listening: Any, speaker: mh.Translator
) -> None:
    words = WordAlignment.from_translation(speaker.translate(SOURCE, beam=4, nbest=4, alignment=True))
    with listening(speaker) as port:
        page = visit(port)
        type_in(page, SOURCE)
        shown = page.locator(".output .word")
        assert shown.count() > 0
        for place in range(shown.count()):
            word = shown.nth(place)
            number = int(word.get_attribute("data-word"))
            chance = words.probabilities[number]
            assert chance is not None
            assert float(word.get_attribute("data-chance")) == pytest.approx(chance, rel=1e-3)
            level = "sure" if chance >= 0.8 else "fair" if chance >= 0.5 else "unsure"
            assert word.get_attribute("data-level") == level
            assert {"fair": "less sure"}.get(level, level) in word.get_attribute("aria-label")
        seen = {
            level: page.eval_on_selector(
                f'.sample[data-level="{level}"]',
                "one => (({ textDecorationLine, textDecorationStyle }) => "
                "textDecorationLine + textDecorationStyle)(getComputedStyle(one))",
            )
            for level in ("sure", "fair", "unsure")
        }
        assert len(set(seen.values())) == 3, "told apart without color"


@pytest.mark.heavy
def test_a_word_under_the_pointer_or_the_focus_shows_what_it_came_from(
    visit: Open, listening: Any, speaker: mh.Translator
) -> None:
    words = WordAlignment.from_translation(speaker.translate(SOURCE, beam=4, nbest=4, alignment=True))
    marked = "spans => spans.map(one => Number(one.dataset.word))"
    with listening(speaker) as port:
        page = visit(port)
        type_in(page, SOURCE)
        shown = page.locator(".output .word")
        for place in range(shown.count()):
            number = int(shown.nth(place).get_attribute("data-word"))
            shown.nth(place).hover()
            assert page.eval_on_selector_all(".mirror .marked", marked) == words.sources[number]
            for source in words.sources[number]:
                assert f"“{words.source[source]}”" in page.locator(".word-told").text_content()
        page.mouse.move(2, 2)
        assert page.locator(".marked").count() == 0
        shown.first.focus()
        page.keyboard.press("End")
        number = int(shown.last.get_attribute("data-word"))
        assert page.eval_on_selector_all(".mirror .marked", marked) == words.sources[number]
        page.keyboard.press("Enter")
        page.locator("textarea").focus()
        assert page.eval_on_selector_all(".mirror .marked", marked) == words.sources[number], "kept"
        source = page.locator(".mirror .word").nth(1)
        source.hover()
        came = [n for n, sources in enumerate(words.sources) if 1 in sources]
        places = shown.evaluate_all(marked)
        assert page.eval_on_selector_all(".output .marked", marked) == [n for n in came if n in places]


# ---- attention, step by step, training


@pytest.mark.heavy
def test_the_attention_view_shows_the_translation_and_the_models_numbers(
    visit: Open, listening: Any, speaker: mh.Translator
) -> None:
    with listening(speaker) as port:
        page = visit(port, "attention")
        page.wait_for_function("() => document.querySelector('.told')?.textContent?.includes('first')")
        go(page, "translate")
        type_in(page, SOURCE)
        shown = page.locator(".output").text_content()
        go(page, "attention")
        attention = speaker.attention(SOURCE, shown.strip())
        page.click('[data-set="view"][data-value="head"]')
        page.click('[data-set="kind"][data-value="cross"]')
        page.click(".numbers summary")
        page.wait_for_selector(".numbers td")
        found = page.eval_on_selector_all(".numbers td", "cells => cells.map(one => Number(one.textContent))")
        ours = merge_into_words(maps_of(attention, "cross"), attention, "cross")[-1, 0].flatten()
        assert found == pytest.approx(ours.tolist(), abs=1e-4)


@pytest.mark.heavy
def test_of_several_sentences_the_first_is_looked_at(
    visit: Open, listening: Any, speaker: mh.Translator
) -> None:
    """As it was translated: alone."""
    asked: list[dict[str, Any]] = []
    with listening(speaker) as port:
        page = visit(port)
        page.on("request", lambda one: one.url.endswith("/look") and asked.append(one.post_data_json))
        type_in(page, f"{SOURCE} We read a book at school.")
        go(page, "attention")
        assert [(one["q"], "translation" in one) for one in asked] == [(SOURCE, False)]
        assert "only the first" in page.locator(".first-only").text_content()
        go(page, "walk")
        assert page.input_value("#sentence") == SOURCE


@pytest.mark.heavy
def test_what_cannot_be_looked_into_is_said_in_the_pages_language(
    visit: Open, listening: Any, speaker: mh.Translator
) -> None:
    with listening(speaker, limits=ServerLimits(max_numbers=2000)) as port:
        page = visit(port, locale="ko-KR")
        type_in(page, SOURCE)
        for view in ("attention", "walk"):
            page.click(f'nav a[href="#{view}"]')
            page.wait_for_function("() => document.querySelector('.told').textContent.includes('너무 길어')")
            assert page.locator(".look .controls, .walk .step").count() == 0
    assert all("400" in one for one in visit.wrong)  # type: ignore[attr-defined]
    visit.wrong.clear()  # type: ignore[attr-defined]
    with listening() as port:
        for view in ("attention", "walk"):
            page = visit(port, view, locale="ko-KR")
            page.wait_for_function("() => document.querySelector('.told')?.textContent?.includes('torch')")


@pytest.mark.heavy
def test_a_text_in_the_targets_language_or_left_as_it_is_is_noticed(visit: Open, listening: Any) -> None:
    with listening() as port:
        page = visit(port)
        type_in(page, "나는 오늘 집에 간다.")
        page.wait_for_function(
            "() => document.querySelector('.hint-language').textContent.includes('Korean')"
        )
        type_in(page, "I would like to read this book today.")
        page.wait_for_function("() => document.querySelector('.hint-language').textContent === ''")
        page.fill("textarea", "Korea")
        page.wait_for_function("() => document.querySelector('.told').textContent.includes('unchanged')")


@pytest.mark.heavy
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_the_walk_shows_the_models_numbers_shapes_and_formulas(
    visit: Open, listening: Any, speaker: mh.Translator, stack: Any
) -> None:
    read = """steps => steps.map(step => [step.dataset.step, step.querySelector(".sizes")?.textContent,
        step.querySelector(".formula").textContent,
        [...step.querySelectorAll("tbody tr")].map(row => [...row.querySelectorAll("td")].map(
            cell => cell.dataset.value === undefined ? null : Number(cell.dataset.value)))])"""
    with listening(speaker) as port:
        page = visit(port, "walk")
        page.wait_for_selector(READY["walk"])
        page.fill("#sentence", SOURCE)
        page.click(".walk-form button")
        page.select_option("[name=stack]", stack)
        page.select_option("[name=walk-layer]", index=1)
        page.select_option("[name=walk-head]", index=1)
        page.wait_for_function(
            "([text, last]) => document.querySelector('.walked')?.textContent.startsWith(text) && "
            "document.querySelector(last)",
            arg=[SOURCE, '[data-step="self.input"]'],
        )
        page.wait_for_timeout(300)
        ours = walk_layer(speaker, SOURCE, stack=stack, layer=1)
        found = page.eval_on_selector_all(".walk .step", read)
        expected = [f"{one['part']}.{one['name']}" for one in ours["steps"]]
        assert [name for name, *_ in found][: len(expected)] == expected
        for (name, sizes, formula, rows), step in zip(found, ours["steps"], strict=False):
            numbers = step["numbers"]
            if step["axes"][0] == "H":
                numbers = numbers[1]
            elif step["axes"][1] == "H":
                numbers = [one[1] for one in numbers]
            shown = [one[:8] if "columns" not in step else one for one in numbers]
            assert list(map(len, rows)) == list(map(len, shown)), name
            # Both are rounded to six digits, each after its own run of the model.
            for row, own in zip(rows, shown, strict=True):
                assert row == [value if value is None else pytest.approx(value, abs=1.5e-6) for value in own]
            assert sizes == " × ".join(map(str, step["shape"]))
            assert formula.strip()
        more = page.locator('[data-step="feed_forward.hidden"] .more')
        more.click()
        page.wait_for_selector('[data-step="feed_forward.hidden"] [aria-expanded="true"]')
        whole = walk_layer(speaker, SOURCE, stack=stack, layer=1, width=1000)
        wide = next(
            rows for name, _, _, rows in page.eval_on_selector_all(".walk .step", read) if "hidden" in name
        )
        expected = next(one["numbers"] for one in whole["steps"] if one["name"] == "hidden")
        assert wide == [pytest.approx(row, abs=1.5e-6) for row in expected]
        assert page.evaluate("document.activeElement.className") == "more", "the focus stays"


@pytest.mark.heavy
def test_curves_are_the_runs_numbers_and_can_be_read_by_keys(visit: Open, listening: Any, run: Path) -> None:
    with listening(runs=[run]) as port:
        page = visit(port, "training")
        page.wait_for_selector(".curve")
        assert page.locator(".curve").count() == 4
        loss = page.locator('[data-curve="loss"]')
        heights = [
            float(one.split()[1]) for one in loss.locator("path.train").get_attribute("d")[1:].split("L")
        ]
        values = [8 / n for n in range(1, 11)]
        slope = (heights[0] - heights[-1]) / (values[0] - values[-1])
        assert heights == pytest.approx([heights[0] + slope * (v - values[0]) for v in values], abs=0.11)
        loss.locator("summary").click()
        loss.locator("td").first.wait_for()
        cells = loss.locator("tbody tr").nth(4).locator("td").all_text_contents()
        assert list(map(float, cells)) == [8 / 5, 4 / 5]
        loss.locator("svg").focus()
        page.keyboard.press("Home")
        assert loss.locator(".reading").text_content() == "Step 1: training 8"
        page.keyboard.press("ArrowRight")
        assert loss.locator("svg").get_attribute("aria-valuetext") == "Step 2: training 4"
        page.locator('[data-curve="bleu"] svg').hover()
        assert "validation" in page.locator('[data-curve="bleu"] .reading').text_content()
    with listening() as port:
        page = visit(port, "training")
        page.wait_for_function("() => document.querySelector('.told')?.textContent?.includes('--run RUN')")


# ---- everyone


@pytest.mark.heavy
def test_it_follows_the_browsers_language_and_remembers_another(visit: Open, listening: Any) -> None:
    with listening() as port:
        page = visit(port, locale="ko-KR")
        page.wait_for_selector("textarea")
        assert page.locator("nav a").first.text_content() == "번역"
        type_in(page, "one two")
        page.select_option("[name=page-language]", "en")
        assert page.locator("nav a").first.text_content() == "Translate"
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.locator(".output").text_content() == "two one", "what was there stays"
        page.reload()
        page.wait_for_selector("textarea")
        assert page.locator("nav a").first.text_content() == "Translate"
        tables = page.evaluate(
            """async () => { const { TEXTS } = await import("/texts.js");
            const names = (table, path = "") => Object.entries(table).flatMap(([name, value]) =>
                typeof value === "object" && !Array.isArray(value) ? names(value, `${path}${name}.`)
                : [`${path}${name}:${typeof value}`]);
            return [names(TEXTS.en), names(TEXTS.ko)]; }"""
        )
        assert tables[0] == tables[1]


@pytest.mark.heavy
@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault_and_nothing_is_wider_than_a_phone(
    visit: Open, listening: Any, speaker: mh.Translator, run: Path, scheme: str, locale: str
) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    with listening(speaker, runs=[run]) as port:
        for size in (DESK, PHONE):
            page = visit(port, color_scheme=scheme, locale=locale, viewport=size)
            type_in(page, f"{SOURCE} We read a book.\n{'x' * 60}")
            page.evaluate(axe)
            for view in READY:
                go(page, view)
                if view == "translate":
                    page.locator(".output .word").first.focus()
                found = page.evaluate("axe.run().then(found => found.violations)")
                serious = [one for one in found if one["impact"] in ("serious", "critical")]
                assert not serious, f"{view}: {json.dumps(serious, indent=1)[:3000]}"
                wide = page.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                assert wide <= 0, f"{view} is wider than the screen"
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme]


@pytest.mark.heavy
def test_all_of_it_is_reached_by_keys_alone(visit: Open, listening: Any, speaker: mh.Translator) -> None:
    with listening(speaker) as port:
        page = visit(port)
        page.wait_for_selector("textarea")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        reached = []
        for _ in range(40):
            page.keyboard.press("Tab")
            name = page.evaluate(
                "(({ id, className, name }) => id || name || className.split(' ')[0])(document.activeElement)"
            )
            if name == "source-text" and "source-text" not in reached:
                page.keyboard.type(SOURCE)
                page.wait_for_selector(".output .word")
            reached.append(name)
        assert [
            one for one in dict.fromkeys(reached) if one in ("from", "to", "source-text", "copy", "word")
        ] == ["from", "to", "source-text", "copy", "word"]
        assert {"alternatives", "file"} <= set(reached)
        page.focus('nav a[href="#walk"]')
        page.keyboard.press("Enter")
        page.wait_for_selector(READY["walk"])
        assert page.evaluate("document.activeElement.id") == "main"
        assert page.title() == "Step by step - Manyheads"
