"""The page of the server in a browser: every view works, and shows the numbers of the model."""

import itertools
import json
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads.look.attention_data import merge_into_words, stack_maps
from manyheads.look.forward_walk import walk_layer
from manyheads.serve.limits import ServerLimits
from manyheads.serve.word_alignment import WordAlignment
from support.browser import BrowserPages
from support.run_logs import write_log
from support.scripted_translator import ScriptedTranslator

OpenPage = Callable[..., Any]
SOURCE = "I go home today."
PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1100, "height": 900}
READY = {
    "translate": "textarea",
    "attention": ".look .controls",
    "walk": ".walk .panel",
    "training": ".curve",
}


@pytest.fixture
def open_page(pages: BrowserPages) -> OpenPage:
    """Open the page of a server, which may send requests to this server only."""

    def open_url(
        port: int, view: str = "translate", before: Callable[[Any], Any] | None = None, **settings: Any
    ) -> Any:
        own = (f"http://127.0.0.1:{port}/", f"blob:http://127.0.0.1:{port}/")
        page = pages.create(lambda url: url.startswith(own), **settings)
        page.set_default_timeout(6000)
        if before:
            before(page)
        page.goto(f"http://127.0.0.1:{port}/#{view}")
        return page

    return open_url


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


def type_text(page: Any, text: str) -> None:
    page.fill("textarea", text)
    page.wait_for_function(
        "text => document.querySelector('.message')?.textContent.match(/Translated|번역했/)", arg=text
    )


def open_view(page: Any, view: str) -> None:
    page.click(f'nav a[href="#{view}"]')
    page.wait_for_selector(READY[view])


def read_message(page: Any) -> str:
    return str(page.locator(".translate-view > .message").text_content())


def test_text_is_translated_by_the_model_as_it_is_typed(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator
) -> None:
    """The smoke test of every run; the others are in `make test-all`."""
    with run_server(word_translator) as port:
        page = open_page(port)
        type_text(page, SOURCE)
        expected = word_translator.translate(SOURCE, nbest=4, alignment=True)
        assert page.locator(".output").text_content() == expected.text
        assert page.locator(".announcement").text_content() == expected.text, "for screen readers"


# ---- translation


@pytest.mark.heavy
def test_typing_sends_one_request_after_a_pause(open_page: OpenPage, run_server: Any) -> None:
    model = ScriptedTranslator()
    with run_server(model) as port:
        page = open_page(port)
        page.locator("textarea").press_sequentially("one two three", delay=20)
        page.wait_for_function("() => document.querySelector('.output').textContent === 'three two one'")
        assert model.calls == [["one two three"]]


@pytest.mark.heavy
@pytest.mark.parametrize("aborts", [True, False])
def test_a_late_response_is_not_shown(open_page: OpenPage, run_server: Any, aborts: bool) -> None:
    """Also if the browser could not abort the request."""
    slow = """(aborts) => { const { fetch } = window; window.fetch = async (path, options) => {
        const response = await fetch(path, aborts ? options : { ...options, signal: undefined });
        if (String(options?.body).includes("slow")) await new Promise(done => setTimeout(done, 900));
        return response; } }"""
    with run_server() as port:
        before = f"({slow})({json.dumps(aborts)})"
        page = open_page(port, before=lambda page: page.add_init_script(before))
        page.fill("textarea", "slow one")
        page.wait_for_timeout(650)
        page.fill("textarea", "quick one")
        page.wait_for_function("() => document.querySelector('.output').textContent === 'one quick'")
        page.wait_for_timeout(1100)
        assert page.locator(".output").text_content() == "one quick"


@pytest.mark.heavy
def test_an_empty_text_clears_the_result(open_page: OpenPage, run_server: Any) -> None:
    with run_server() as port:
        page = open_page(port)
        type_text(page, "one two")
        page.fill("textarea", "")
        page.wait_for_selector(".output.empty")
        assert page.locator(".copy").is_disabled()
        assert page.locator(".alternatives-list li").count() == 0


@pytest.mark.heavy
def test_the_number_of_alternatives_can_be_chosen(open_page: OpenPage, run_server: Any) -> None:
    with run_server() as port:
        page = open_page(port)
        type_text(page, "a b")
        assert page.locator(".alternatives-list li > span").all_text_contents() == ["b a 1", "b a 2", "b a 3"]
        assert page.locator(".no-alternatives").is_hidden()
        page.select_option("[name=alternatives]", "1")
        page.wait_for_function("() => document.querySelectorAll('.alternatives-list li').length === 1")
        page.route("**/translate", answer_with_one_alternative)
        page.select_option("[name=alternatives]", "3")
        page.locator(".no-alternatives", has_text="The search found no others.").wait_for()


def answer_with_one_alternative(route: Any) -> None:
    answer = route.fetch()
    route.fulfill(json={**answer.json(), "alternatives": ["b a 1"]})


@pytest.mark.heavy
def test_swapping_exchanges_languages_and_texts(open_page: OpenPage, run_server: Any) -> None:
    with run_server(ScriptedTranslator(), ScriptedTranslator("ko", "en")) as port:
        page = open_page(port)
        type_text(page, "one two")
        page.click(".swap")
        page.wait_for_function("() => document.querySelector('.output').textContent === 'one two'")
        assert page.input_value("textarea") == "two one"
        assert [page.input_value(f"[name={name}]") for name in ("from", "to")] == ["ko", "en"]
    with run_server() as port:
        swap = open_page(port).locator(".swap")
        assert swap.is_disabled(), "nothing translates back"
        assert "no model translates from Korean to English" in swap.get_attribute("title")


@pytest.mark.heavy
def test_models_and_languages_can_be_chosen_and_detected(open_page: OpenPage, run_server: Any) -> None:
    models = [ScriptedTranslator(), ScriptedTranslator(), ScriptedTranslator("de", "ko")]
    with run_server(*models) as port:
        page = open_page(port)
        type_text(page, "one two")
        page.select_option("[name=model]", "en-ko-2")
        page.wait_for_timeout(300)
        assert [len(model.calls) for model in models] == [1, 1, 0]
        page.select_option("[name=from]", "auto")
        type_text(page, "Wo ist bitte die Bibliothek?")
        page.wait_for_function("() => document.querySelector('.detected').textContent.includes('German')")
        assert models[2].calls[-1] == ["Wo ist bitte die Bibliothek?"]


@pytest.mark.heavy
def test_copy_buttons_write_to_the_clipboard(open_page: OpenPage, run_server: Any) -> None:
    with run_server() as port:
        page = open_page(port, permissions=["clipboard-read", "clipboard-write"])
        type_text(page, "one two")
        page.click(".copy")
        page.wait_for_function("() => document.querySelector('.message')?.textContent === 'Copied.'")
        assert page.evaluate("navigator.clipboard.readText()") == "two one"
        page.locator(".alternatives-list button").first.click()
        page.wait_for_function("() => navigator.clipboard.readText().then(text => text === 'two one 1')")


@pytest.mark.heavy
def test_files_are_translated_line_by_line(open_page: OpenPage, run_server: Any, tmp_path: Path) -> None:
    lines = [f"line {n}" if n % 5 else "" for n in range(1, 90)]
    path = tmp_path / "some.en.txt"
    path.write_bytes("\r\n".join(lines).encode())
    with run_server() as port:
        page = open_page(port)
        page.set_input_files("#file", path)
        page.click(".start")
        page.wait_for_selector(".download:not([hidden])")
        with page.expect_download() as download:
            page.click(".download")
        assert download.value.suggested_filename == "some.en.ko.txt"
        translation = Path(download.value.path()).read_bytes().decode()
        assert translation == "\r\n".join(" ".join(reversed(line.split())) for line in lines)


@pytest.mark.heavy
def test_files_that_are_not_text_or_have_too_long_lines_are_errors(
    open_page: OpenPage, run_server: Any, tmp_path: Path
) -> None:
    with run_server() as port:
        page = open_page(port)
        for content, why in ((b"\xff\xfe\x00", "not UTF-8"), (b"a\n" + b"b" * 10_001, "Line 2 is longer")):
            (tmp_path / "file.txt").write_bytes(content)
            page.set_input_files("#file", tmp_path / "file.txt")
            page.click(".start")
            page.wait_for_function(
                "why => document.querySelector('.files .message').textContent.includes(why)", arg=why
            )
            assert not page.locator(".download").is_visible()


@pytest.mark.heavy
def test_requests_are_retried_while_the_server_is_busy_and_errors_are_shown(
    open_page: OpenPage, pages: BrowserPages, run_server: Any
) -> None:
    answers = iter([{"status": 503, "headers": {"retry-after": "1"}, "json": {"error": "full"}}])

    def busy(route: Any) -> None:
        answer = next(answers, None)
        route.fulfill(**answer) if answer else route.continue_()

    with run_server() as port:
        page = open_page(port, before=lambda page: page.route("**/translate", busy))
        page.fill("textarea", "one two")
        page.wait_for_function(
            "() => document.querySelector('.message')?.textContent?.includes('Retrying in 1 s')"
        )
        page.wait_for_function("() => document.querySelector('.output').textContent === 'two one'")
        page.fill("textarea", "impossible")
        page.wait_for_function(
            "() => document.querySelector('.message')?.textContent === 'this cannot be translated'"
        )
        page.fill("textarea", "x" * 10_001)
        page.wait_for_function(
            "() => document.querySelector('.message')?.textContent?.includes('use a file')"
        )
        assert page.locator(".output.empty").count() == 1, "no translation of another text beside it"
        assert page.locator(".alternatives-list li").count() == 0
        assert page.locator(".copy").is_disabled()
    assert all("503" in problem or "400" in problem for problem in pages.problems)
    pages.problems.clear()


@pytest.mark.heavy
def test_the_page_asks_for_the_api_key(open_page: OpenPage, pages: BrowserPages, run_server: Any) -> None:
    with run_server(api_key="schlüssel") as port:
        page = open_page(port)
        page.fill("#key", "wrong")
        page.click(".key button")
        page.wait_for_function("() => document.querySelector('[role=alert]').textContent.includes('API key')")
        page.fill("#key", "schlüssel")
        page.click(".key button")
        type_text(page, "one two")
        assert page.locator(".output").text_content() == "two one"
    assert all("403" in problem for problem in pages.problems)
    pages.problems.clear()


@pytest.mark.heavy
def test_texts_cannot_inject_markup(open_page: OpenPage, run_server: Any) -> None:
    nasty = "<img/src=x/onerror=alert(1)> <script>alert(2)</script> {{7*7}}"
    with run_server() as port:
        page = open_page(port)
        type_text(page, nasty)
        assert page.locator(".output").text_content() == " ".join(reversed(nasty.split(" ")))
        assert page.locator("main img, main script").count() == 0


# ---- confidence

LEVELS = {"en-US": ("high, 90%", "low, 20%"), "ko-KR": ("높음, 90%", "낮음, 20%")}


@pytest.mark.heavy
@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
def test_a_translation_shows_its_confidence_in_words_and_its_low_sentences(
    open_page: OpenPage, run_server: Any, locale: str
) -> None:
    with run_server(ScriptedTranslator(is_calibrated=True)) as port:
        page = open_page(port, locale=locale)
        type_text(page, "one two")
        confidence = page.locator(".translation-confidence")
        high, low = LEVELS[locale]
        assert high in confidence.text_content()
        assert page.locator(".unsure").count() == 0
        assert page.locator(".notes").is_hidden()
        type_text(page, "one unsure two")
        page.wait_for_selector(".unsure")
        assert low in confidence.text_content()
        assert page.locator(".output").text_content() == "two unsure one", "the mark is not part of the text"
        unsure = page.locator(".unsure")
        assert unsure.all_text_contents() == ["unsure"]
        assert "20%" in unsure.get_attribute("aria-label")
        assert unsure.evaluate("node => getComputedStyle(node, '::before').content") == '"[?] "'
        assert page.locator(".notes li").all_text_contents() == ["loop removed"]
        page.fill("textarea", "")
        page.wait_for_selector(".output.empty")
        assert confidence.is_hidden()


@pytest.mark.heavy
def test_a_model_without_confidence_shows_none(open_page: OpenPage, run_server: Any) -> None:
    with run_server() as port:
        page = open_page(port)
        type_text(page, "unsure two")
        assert page.locator(".translation-confidence").is_hidden()


@pytest.mark.heavy
def test_a_file_says_how_many_lines_have_low_confidence(
    open_page: OpenPage, run_server: Any, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one two\n\nunsure two\nthree\n", encoding="utf-8")
    with run_server(ScriptedTranslator(is_calibrated=True)) as port:
        page = open_page(port)
        page.set_input_files("#file", str(file))
        page.click(".files .start")
        page.wait_for_selector(".download")
        assert "1 of 3 lines have low confidence" in page.locator(".files .message").text_content()


@pytest.mark.heavy
def test_axe_finds_no_serious_violation_in_a_translation_of_low_confidence(
    open_page: OpenPage, run_server: Any
) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    with run_server(ScriptedTranslator(is_calibrated=True)) as port:
        for scheme in ("light", "dark"):
            page = open_page(port, color_scheme=scheme, viewport=PHONE)
            type_text(page, "one unsure two")
            page.wait_for_selector(".unsure")
            page.evaluate(axe)
            violations = page.evaluate("axe.run().then(results => results.violations)")
            serious = [entry for entry in violations if entry["impact"] in ("serious", "critical")]
            assert not serious, json.dumps(serious, indent=1)[:3000]


# ---- words


@pytest.mark.heavy
def test_confidence_equals_that_of_the_model_and_is_visible_without_color(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator
) -> None:
    words = WordAlignment.from_translation(word_translator.translate(SOURCE, beam=4, nbest=4, alignment=True))
    with run_server(word_translator) as port:
        page = open_page(port)
        type_text(page, SOURCE)
        shown = page.locator(".output .word")
        assert shown.count() > 0
        for index in range(shown.count()):
            word = shown.nth(index)
            number = int(word.get_attribute("data-word"))
            probability = words.probabilities[number]
            assert probability is not None
            assert float(word.get_attribute("data-probability")) == pytest.approx(probability, rel=1e-3)
            level = "high" if probability >= 0.8 else "medium" if probability >= 0.5 else "low"
            assert word.get_attribute("data-level") == level
            assert f"; {level}, " in word.get_attribute("aria-label")
        seen = {
            level: page.eval_on_selector(
                f'.sample[data-level="{level}"]',
                "node => (({ textDecorationLine, textDecorationStyle }) => "
                "textDecorationLine + textDecorationStyle)(getComputedStyle(node))",
            )
            for level in ("high", "medium", "low")
        }
        assert len(set(seen.values())) == 3, "distinguishable without color"


@pytest.mark.heavy
def test_a_hovered_or_focused_word_shows_its_alignment(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator
) -> None:
    words = WordAlignment.from_translation(word_translator.translate(SOURCE, beam=4, nbest=4, alignment=True))
    word_numbers = "spans => spans.map(span => Number(span.dataset.word))"
    with run_server(word_translator) as port:
        page = open_page(port)
        type_text(page, SOURCE)
        shown = page.locator(".output .word")
        for index in range(shown.count()):
            number = int(shown.nth(index).get_attribute("data-word"))
            shown.nth(index).hover()
            assert (
                page.eval_on_selector_all(".source-words .highlighted", word_numbers) == words.sources[number]
            )
            for source in words.sources[number]:
                assert f"“{words.source[source]}”" in page.locator(".word-details").text_content()
        page.mouse.move(2, 2)
        assert page.locator(".highlighted").count() == 0
        shown.first.focus()
        page.keyboard.press("End")
        number = int(shown.last.get_attribute("data-word"))
        assert page.eval_on_selector_all(".source-words .highlighted", word_numbers) == words.sources[number]
        page.keyboard.press("Enter")
        page.locator("textarea").focus()
        assert (
            page.eval_on_selector_all(".source-words .highlighted", word_numbers) == words.sources[number]
        ), "pinned"
        box = page.locator(".source-words .word").nth(1).bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        aligned = [n for n, sources in enumerate(words.sources) if 1 in sources]
        visible = shown.evaluate_all(word_numbers)
        assert page.eval_on_selector_all(".output .highlighted", word_numbers) == [
            n for n in aligned if n in visible
        ]


# ---- attention, walk, training


@pytest.mark.heavy
def test_the_attention_view_shows_the_weights_of_the_model(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator
) -> None:
    with run_server(word_translator) as port:
        page = open_page(port, "attention")
        page.wait_for_function("() => document.querySelector('.message')?.textContent?.includes('first')")
        open_view(page, "translate")
        type_text(page, SOURCE)
        shown = page.locator(".output").text_content()
        open_view(page, "attention")
        attention = word_translator.attention(SOURCE, shown.strip())
        page.click('[data-set="view"][data-value="head"]')
        page.click('[data-set="attention"][data-value="cross"]')
        page.select_option("[name=layer]", index=1)
        page.select_option("[name=head]", index=0)
        page.click(".weights summary")
        page.wait_for_selector(".weights td")
        weights = page.eval_on_selector_all(
            ".weights td", "cells => cells.map(cell => Number(cell.textContent))"
        )
        expected = merge_into_words(stack_maps(attention, "cross"), attention, "cross")[-1, 0].flatten()
        assert weights == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.mark.heavy
def test_the_attention_view_shows_the_first_sentence(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator
) -> None:
    """The first sentence is sent alone, as it was translated."""
    requests: list[dict[str, Any]] = []
    with run_server(word_translator) as port:
        page = open_page(port)
        page.on(
            "request",
            lambda request: request.url.endswith("/look") and requests.append(request.post_data_json),
        )
        type_text(page, f"{SOURCE} We read a book at school.")
        open_view(page, "attention")
        assert [(request["q"], "translation" in request) for request in requests] == [(SOURCE, False)]
        assert "the first one is shown" in page.locator(".first-sentence").text_content()
        open_view(page, "walk")
        assert page.input_value("#sentence") == SOURCE


@pytest.mark.heavy
def test_the_attention_view_shows_a_sentence_that_is_written_there(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator
) -> None:
    shown = "text => document.querySelector('.sentence-pair .source [lang]')?.textContent === text"
    with run_server(word_translator) as port:
        page = open_page(port, "attention")
        page.fill("#sentence", SOURCE)
        page.click(".sentence-form button")
        page.wait_for_function(shown, arg=SOURCE)
        assert "Enter" not in page.locator(".attention-view .message").text_content()
        page.select_option("[name=page-language]", "ko")
        page.wait_for_function(shown, arg=SOURCE)
        assert page.input_value("#sentence") == SOURCE, "it stays in another language of the page"
        page.click('nav a[href="#training"]')
        open_view(page, "attention")
        page.wait_for_function(shown, arg=SOURCE)


@pytest.mark.heavy
def test_missing_attention_is_explained_in_the_language_of_the_page(
    open_page: OpenPage, pages: BrowserPages, run_server: Any, word_translator: mh.Translator
) -> None:
    with run_server(word_translator, limits=ServerLimits(max_numbers=2000)) as port:
        page = open_page(port, locale="ko-KR")
        type_text(page, SOURCE)
        for view in ("attention", "walk"):
            page.click(f'nav a[href="#{view}"]')
            page.wait_for_function(
                "() => document.querySelector('.message').textContent.includes('너무 길어')"
            )
            assert page.locator(".look .controls, .walk .panel").count() == 0
    assert all("400" in problem for problem in pages.problems)
    pages.problems.clear()
    with run_server() as port:
        for view in ("attention", "walk"):
            page = open_page(port, view, locale="ko-KR")
            page.wait_for_function("() => document.querySelector('.message')?.textContent?.includes('torch')")


@pytest.mark.heavy
def test_texts_in_the_target_language_and_unchanged_texts_are_noticed(
    open_page: OpenPage, run_server: Any
) -> None:
    with run_server() as port:
        page = open_page(port)
        type_text(page, "나는 오늘 집에 간다.")
        page.wait_for_function(
            "() => document.querySelector('.language-hint').textContent.includes('Korean')"
        )
        type_text(page, "I would like to read this book today.")
        page.wait_for_function("() => document.querySelector('.language-hint').textContent === ''")
        page.fill("textarea", "Korea")
        page.wait_for_function(
            "() => document.querySelector('.message').textContent.includes('same as the text')"
        )


READ_PANELS = """panels => panels.map(panel => [panel.dataset.step, panel.querySelector(".sizes").textContent,
    [...panel.querySelectorAll("tbody tr")].map(row => [...row.querySelectorAll("td")].map(
        cell => cell.dataset.value === undefined ? null : Number(cell.dataset.value)))])"""


@pytest.mark.heavy
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_the_walk_shows_the_numbers_and_shapes_of_the_model(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator, stack: Any
) -> None:
    with run_server(word_translator) as port:
        page = open_page(port, "walk")
        page.wait_for_selector(READY["walk"])
        page.fill("#sentence", SOURCE)
        page.click(".sentence-form button")
        page.wait_for_function(
            "text => document.querySelector('.sentence-pair .source [lang]')?.textContent === text",
            arg=SOURCE,
        )
        page.locator(f'[data-layer="{stack}.1"]').click()
        page.wait_for_function(
            "name => document.querySelector('.where').textContent.includes(name)", arg="layer 2 of 2"
        )
        page.locator(".head-row .chip").nth(1).click()
        walk = walk_layer(word_translator, SOURCE, stack=stack, layer=1, width=1000)
        expected = {f"{step['part']}.{step['name']}": step for step in walk["steps"]}
        seen = set()
        while "layer 2 of 2" in page.locator(".where").text_content():
            for summary in page.locator(".numbers > summary").all():
                summary.click()
            page.wait_for_function(
                "() => !document.querySelector('.numbers:not(:has(table))')"  # built when it opens
            )
            for more in page.locator(".more").all():
                more.click()
                assert page.evaluate("document.activeElement.className") == "more", "the focus stays"
            for name, sizes, rows in page.locator(".panel").evaluate_all(READ_PANELS):
                step, numbers = expected[name], expected[name]["values"]
                if step["axes"][0] == "H":
                    numbers = numbers[1]
                elif step["axes"][1] == "H":
                    numbers = [row[1] for row in numbers]
                assert sizes == " × ".join(map(str, step["shape"]))
                assert list(map(len, rows)) == list(map(len, numbers)), name
                # Both are rounded to six digits, each after its own run of the model.
                for row, own in zip(rows, numbers, strict=True):
                    assert row == [n if n is None else pytest.approx(n, abs=1.5e-6) for n in own], name
                seen.add(name)
            before = page.locator(".progress").text_content()
            page.locator(".next").click()
            page.wait_for_function(
                "text => document.querySelector('.progress').textContent !== text", arg=before
            )
        skipped = {"embedding.embedding", "embedding.position", "embedding.sum", "output.logits"}
        assert expected.keys() - seen <= skipped, "every step of the layer is shown"


@pytest.mark.heavy
def test_numbers_in_the_cells_of_a_map_are_short(open_page: OpenPage, run_server: Any) -> None:
    with run_server() as port:
        format_cells = """async ([values, isWeight]) => {
            const { formatCell } = await import('./look/matrix_view.js');
            return values.map((value) => formatCell(value, isWeight));
        }"""
        page = open_page(port)
        scores = page.evaluate(format_cells, [[-14.12, -9.96, 9.94, -0.5], False])
        assert scores == ["−14", "−10", "9.9", "−0.5"]
        assert page.evaluate(format_cells, [[1.0, 0.984, 0.004], True]) == ["1.00", ".98", ""]


@pytest.mark.heavy
def test_the_walk_shows_what_a_server_with_a_limit_sends(
    open_page: OpenPage, pages: BrowserPages, run_server: Any, word_translator: mh.Translator
) -> None:
    with run_server(word_translator, limits=ServerLimits(max_numbers=9_000)) as port:
        page = open_page(port, "walk")
        page.wait_for_selector(READY["walk"])
        page.locator(".next").click()
        page.wait_for_function(
            "() => document.querySelector('.calculation').textContent.includes('too large')"
        )
    assert all("400" in problem for problem in pages.problems)
    pages.problems.clear()


@pytest.mark.heavy
def test_curves_show_the_log_and_can_be_read_with_the_keyboard(
    open_page: OpenPage, run_server: Any, run: Path
) -> None:
    with run_server(runs=[run]) as port:
        page = open_page(port, "training")
        page.wait_for_selector(".curve")
        assert page.locator(".curve").count() == 4
        assert page.locator(".choices-row h3").text_content() == "Run: a run (running or stopped)"
        loss = page.locator('[data-curve="loss"]')
        assert loss.locator(".axis text").all_text_contents()[-1] == "10", "the last step has a label"
        assert "steps" in loss.locator(".axis text").all_text_contents()
        heights = [
            float(point.split()[1]) for point in loss.locator("path.train").get_attribute("d")[1:].split("L")
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
        assert loss.locator(".readout").text_content() == "Step 1: training 8"
        page.keyboard.press("ArrowRight")
        assert loss.locator("svg").get_attribute("aria-valuetext") == "Step 2: training 4"
        page.locator('[data-curve="bleu"] svg').hover()
        assert "validation" in page.locator('[data-curve="bleu"] .readout').text_content()
    with run_server() as port:
        page = open_page(port, "training")
        page.wait_for_function("() => document.querySelector('.message')?.textContent?.includes('--run RUN')")


@pytest.mark.heavy
def test_labels_of_curves_are_as_large_on_a_phone(open_page: OpenPage, run_server: Any, run: Path) -> None:
    with run_server(runs=[run]) as port:
        page = open_page(port, "training", viewport={"width": 360, "height": 740})
        page.wait_for_selector(".curve")
        for chart in page.locator(".curve svg").all():
            drawn = float(chart.get_attribute("viewBox").split()[2])
            assert chart.bounding_box()["width"] == pytest.approx(drawn, rel=0.1), "the text is not shrunk"
            labels = [label.bounding_box() for label in chart.locator(".axis text[text-anchor=middle]").all()]
            for left, right in itertools.pairwise(labels):
                assert left["x"] + left["width"] < right["x"], "the labels do not touch"


# ---- languages and accessibility


@pytest.mark.heavy
def test_the_page_uses_the_language_of_the_browser_or_the_saved_one(
    open_page: OpenPage, run_server: Any
) -> None:
    with run_server() as port:
        page = open_page(port, locale="ko-KR")
        page.wait_for_selector("textarea")
        assert page.locator("nav a").first.text_content() == "번역"
        type_text(page, "one two")
        page.select_option("[name=page-language]", "en")
        assert page.locator("nav a").first.text_content() == "Translate"
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.locator(".output").text_content() == "two one", "the translation stays"
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
        # Notes come from the server in English, so only the Korean table has them.
        english, korean = ([name for name in table if "knownNotes" not in name] for table in tables)
        assert english == korean


@pytest.mark.heavy
@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation_and_all_views_fit_a_phone(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator, run: Path, scheme: str, locale: str
) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    with run_server(word_translator, runs=[run]) as port:
        for size in (DESKTOP, PHONE):
            page = open_page(port, color_scheme=scheme, locale=locale, viewport=size)
            type_text(page, f"{SOURCE} We read a book.\n{'x' * 60}")
            page.evaluate(axe)
            for view in READY:
                open_view(page, view)
                if view == "translate":
                    page.locator(".output .word").first.focus()
                violations = page.evaluate("axe.run().then(results => results.violations)")
                serious = [
                    violation for violation in violations if violation["impact"] in ("serious", "critical")
                ]
                assert not serious, f"{view}: {json.dumps(serious, indent=1)[:3000]}"
                wide = page.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                assert wide <= 0, f"{view} is wider than the screen"
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert background == {"light": "rgb(246, 246, 243)", "dark": "rgb(16, 19, 23)"}[scheme]


@pytest.mark.heavy
def test_everything_is_reachable_with_the_keyboard(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator
) -> None:
    with run_server(word_translator) as port:
        page = open_page(port)
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
            name for name in dict.fromkeys(reached) if name in ("from", "to", "source-text", "copy", "word")
        ] == ["from", "to", "source-text", "copy", "word"]
        assert {"alternatives", "file"} <= set(reached)
        page.focus('nav a[href="#walk"]')
        page.keyboard.press("Enter")
        page.wait_for_selector(READY["walk"])
        assert page.evaluate("document.activeElement.id") == "main"
        assert page.title() == "Step by step - Manyheads"


# ---- corrections


def test_a_translation_is_edited_saved_and_undone(
    open_page: OpenPage, run_server: Any, word_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(word_model, tmp_path / "model")
    translator = mh.load(tmp_path / "model", device="cpu")
    with run_server(translator, api_key="secret", corrections=True) as port:
        page = open_page(port)
        page.fill("#key", "secret")
        page.click("form.key button")
        type_text(page, SOURCE)
        before = page.locator(".output").text_content()
        assert not page.locator(".undo").is_visible()
        page.click(".edit")
        assert page.input_value("#correction") == before
        page.fill("#correction", "나는 오늘 집에 간다.")
        page.click(".save")
        page.wait_for_function(
            "() => document.querySelector('.output').textContent === '나는 오늘 집에 간다.'"
        )
        page.wait_for_selector(".undo:visible")
        assert "from a correction" in str(page.locator(".notes").text_content())
        page.click(".undo")
        page.wait_for_function("text => document.querySelector('.output').textContent === text", arg=before)
        assert not page.locator(".correction").is_visible()


@pytest.mark.heavy
def test_a_server_without_corrections_shows_no_editor(open_page: OpenPage, run_server: Any) -> None:
    with run_server() as port:
        page = open_page(port)
        type_text(page, "one two")
        assert page.locator(".edit, .undo, .correction").count() == 0
