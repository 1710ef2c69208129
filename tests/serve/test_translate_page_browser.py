"""The translate and training views in a browser: examples, marks, alternatives, links, errors, runs."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads.confidence.known_words import KnownWords
from manyheads.serve.word_alignment import WordAlignment
from support.browser import BrowserPages
from support.office_files import get_part, make_docx
from support.run_logs import write_log
from support.scripted_translator import ScriptedTranslator

OpenPage = Callable[..., Any]
STROKES = "paths => paths.map(path => getComputedStyle(path).stroke)"
pytestmark = pytest.mark.heavy


@pytest.fixture
def open_page(pages: BrowserPages) -> OpenPage:
    """Open the page of a server, which may send requests to this server only."""

    def open_url(port: int, hash: str = "translate", **settings: Any) -> Any:
        own = (f"http://127.0.0.1:{port}/", f"blob:http://127.0.0.1:{port}/")
        page = pages.create(lambda url: url.startswith(own), **settings)
        page.set_default_timeout(10_000)
        page.goto(f"http://127.0.0.1:{port}/#{hash}")
        page.wait_for_selector("main section")
        return page

    return open_url


def type_text(page: Any, text: str) -> None:
    page.fill("textarea", text)
    page.get_by_text("Translated.", exact=True).wait_for()


def test_a_visitor_reads_what_the_model_knows_and_tries_an_example(
    open_page: OpenPage, run_server: Any, word_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus.json").write_text('{"splits": {"train": {"pairs": 12345}}}', encoding="utf-8")
    (tmp_path / "test.en").write_text("I go home.\nWe read a book at school.\n", encoding="utf-8")
    monkeypatch.setattr("manyheads.checkpoint.read_model_manifest", fake_manifest(tmp_path))
    with run_server(mh.load(word_model, device="cpu")) as port:
        page = open_page(port)
        assert "from 12,345 sentence pairs" in page.locator(".welcome").inner_text()
        page.locator(".example").last.click()
        page.get_by_text("Translated.", exact=True).wait_for()
        assert page.locator("textarea").input_value() == "We read a book at school."
        page.click(".clear")
        assert page.locator("textarea").input_value() == ""
        assert page.locator(".output.empty").count() == 1
        page.locator("nav a").nth(1).click()
        page.wait_for_selector(".look .controls")
        shown = page.locator(".sentence-pair .source [lang]").inner_text()
        assert shown == "We read a book at school.", "without a text, an example is shown"
        phone = open_page(port, viewport={"width": 300, "height": 740})
        examples = phone.locator(".example").all()
        assert len({example.bounding_box()["y"] for example in examples}) == 1, "one row on a phone"
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert phone.evaluate(wide) <= 0


def fake_manifest(data: Path) -> Callable[[Path], dict[str, Any]]:
    return lambda folder: {"config": {"data": {"folder": str(data)}}, "languages": {"source": "en"}}


def test_unknown_words_are_marked_where_they_are_typed(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KnownWords, "is_known", lambda self, word: word != "home")
    with run_server(word_translator) as port:
        page = open_page(port)
        type_text(page, "I go home.")
        assert page.locator(".source-words .unknown").all_text_contents() == ["home"]
        assert page.locator(".unknown-note").inner_text() == "The model does not know: home"
        page.fill("textarea", "At home today")
        assert page.locator(".source-words .unknown").all_text_contents() == ["home"], "at once"
        copy, text = (page.locator(name).bounding_box() for name in (".source-words", "textarea"))
        assert copy == text, "the marks lie behind the words"


def test_words_of_the_text_are_reached_with_the_caret(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator
) -> None:
    source = "I go home today."
    words = WordAlignment.from_translation(word_translator.translate(source, beam=4, nbest=4, alignment=True))
    with run_server(word_translator) as port:
        page = open_page(port)
        type_text(page, source)
        page.evaluate("document.querySelector('textarea').setSelectionRange(0, 0)")
        page.keyboard.press("ArrowRight")
        assert page.locator(".source-words .highlighted").all_text_contents() == [words.source[0]]


def test_alternatives_mark_what_differs(open_page: OpenPage, run_server: Any) -> None:
    with run_server() as port:
        page = open_page(port)
        type_text(page, "one two")
        assert page.locator(".alternatives-list mark").all_text_contents() == ["1", "2", "3"]
        parts = page.evaluate(
            """async () => {
                const { compareWords } = await import('./look/word_differences.js');
                return compareWords('a x e', 'a b c d e', { withOmitted: true });
            }"""
        )
        gap = {"word": "b c d", "isOmitted": True}
        assert [part for part in parts if "isOmitted" in part] == [gap], "one gap for words that are left out"
        differences = page.evaluate(
            """async () => {
                const { AlternativeList } = await import('./alternative_list.js');
                const list = document.createElement('ol');
                const page = { texts: { copy: 'Copy', use: 'Use' }, language: 'en' };
                new AlternativeList(page, {}).fill(list, ['a x d', 'a d'], 'a b d');
                return [...list.querySelectorAll('li > span')].map((node) => node.innerHTML);
            }"""
        )
        replaced, left_out = "a <mark>x</mark> d", "a <del>b</del> d"
        assert differences == [replaced, left_out], "a word in the place of another is marked once"
        for row in page.locator(".alternatives-list li .actions").all():
            tops = {button.bounding_box()["y"] for button in row.locator("button").all()}
            assert len(tops) == 1, "buttons of an alternative stay together"


def test_alternatives_open_at_a_word(
    open_page: OpenPage, run_server: Any, word_translator: mh.Translator
) -> None:
    with run_server(word_translator) as port:
        page = open_page(port)
        type_text(page, "I go home today.")
        word = page.locator(".output .word").nth(1)
        text, translation = word.text_content(), page.locator(".output").text_content()
        with page.expect_response("**/translate") as answer:
            word.click()
        fields = answer.value.request.post_data_json
        prefix = fields["prefix"]
        assert fields["forbid"] == [text]
        assert translation.startswith(prefix)
        assert translation.removeprefix(prefix).strip().startswith(text)
        others = [answer.value.json()["translatedText"], *answer.value.json()["alternatives"]]
        assert all(other.startswith(prefix) for other in others)
        page.wait_for_function("() => document.querySelectorAll('ol.at-word li').length > 0")
        assert page.locator("h4.at-word").inner_text() == f"Instead of “{text}”"
        word.focus()
        page.keyboard.press("Escape")
        page.wait_for_selector("h4.at-word", state="hidden")


def test_a_probability_is_never_called_100_percent(open_page: OpenPage, run_server: Any) -> None:
    with run_server() as port:
        shown = open_page(port).evaluate(
            """async () => { const { formatPercent } = await import('./word_spans.js');
            return [0.99999, 0.9981, 0.9, 0.012].map(formatPercent); }"""
        )
    assert shown == [">99.9%", "99.8%", "90%", "1.2%"]


def test_the_outline_of_the_text_does_not_cover_the_buttons_above(
    open_page: OpenPage, run_server: Any
) -> None:
    with run_server() as port:
        page = open_page(port)
        type_text(page, "one two")
        top = page.locator("textarea").bounding_box()["y"]
        outline = page.locator("textarea").evaluate(
            """node => { const { outlineWidth, outlineOffset } = getComputedStyle(node);
            return parseFloat(outlineWidth) + parseFloat(outlineOffset); }"""
        )
        assert outline > 0
        for name in (".clear", ".share-link"):
            box = page.locator(name).bounding_box()
            assert box["y"] + box["height"] <= top - outline


@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
def test_a_phone_shows_a_text_and_its_translation_together(
    open_page: OpenPage, run_server: Any, locale: str
) -> None:
    with run_server() as port:
        page = open_page(port, viewport={"width": 390, "height": 844}, locale=locale)
        page.fill("textarea", "one two three four five six seven\none two")
        page.wait_for_function("() => document.querySelector('.output').textContent.includes('two')")
        rows = {page.locator(f".choices-row .{name}").bounding_box()["y"] for name in ("from", "to")}
        assert len(rows) == 1, "the languages are in one row"
        for name in ("from", "to"):
            lines = page.locator(f".choices-row .{name}").evaluate(
                """node => { const range = document.createRange(); range.selectNode(node.firstChild);
                return range.getClientRects().length; }"""
            )
            assert lines == 1, "no name of a language field is broken"
        output = page.locator(".output").bounding_box()
        assert output["y"] + 96 <= 760, "three lines of the translation, with room for a longer welcome"


def test_a_shared_link_opens_the_page_with_its_text(open_page: OpenPage, run_server: Any) -> None:
    with run_server() as port:
        page = open_page(port, "translate?text=one%20two&source=en&target=ko")
        page.wait_for_function("() => document.querySelector('.output').textContent === 'two one'")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.click(".share-link")
        page.get_by_text("Link copied", exact=False).wait_for()
        link = page.evaluate("navigator.clipboard.readText()")
        assert link == f"http://127.0.0.1:{port}/#translate?text=one+two&source=en&target=ko"


def test_a_chosen_theme_stays(open_page: OpenPage, run_server: Any) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with run_server() as port:
        page = open_page(port)
        light = page.evaluate(background)
        page.select_option("[name=page-theme]", "dark")
        dark = page.evaluate(background)
        assert dark != light
        page.reload()
        page.wait_for_selector("textarea")
        assert page.evaluate(background) == dark
        page.select_option("[name=page-theme]", "system")
        assert page.evaluate(background) == light


def test_a_dropped_file_is_chosen(open_page: OpenPage, run_server: Any) -> None:
    with run_server() as port:
        page = open_page(port)
        drop_file(page, "a.txt", b"one two")
        assert page.locator(".files .quiet").last.inner_text() == "a.txt"
        page.click(".start")
        page.wait_for_selector(".download:not([hidden])")


def test_a_file_that_is_dropped_outside_the_view_is_chosen_and_never_opened(
    open_page: OpenPage, run_server: Any
) -> None:
    with run_server(ScriptedTranslator()) as port:
        page = open_page(port)
        drop_file(page, "a.txt", b"one two", on="header")
        assert page.locator(".files .quiet").last.inner_text() == "a.txt"
        drop_file(page, "b.txt", b"one two", on="body")
        assert page.locator(".files .quiet").last.inner_text() == "b.txt"
        page.click('nav a[href="#training"]')
        page.wait_for_selector(".training-view")
        is_handled = page.evaluate(
            """() => { const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File(["a"], "c.txt"));
            const options = { dataTransfer, bubbles: true, cancelable: true };
            return !document.body.dispatchEvent(new DragEvent("drop", options)); }"""
        )
        assert is_handled, "the browser would open the file"
        page.click('nav a[href="#translate"]')
        assert page.locator(".files .quiet").last.inner_text() == "b.txt"


def test_a_file_without_text_is_not_translated(open_page: OpenPage, run_server: Any) -> None:
    with run_server() as port:
        page = open_page(port)
        drop_file(page, "a.txt", b" \n\n")
        page.click(".start")
        page.locator(".files .is-error", has_text="This file has no text.").wait_for()
        assert page.locator(".download").is_hidden()


def drop_file(page: Any, name: str, data: bytes, on: str = "textarea") -> None:
    dropped = page.evaluate_handle(
        """([name, bytes]) => { const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], name)); return data; }""",
        [name, list(data)],
    )
    page.dispatch_event(on, "drop", {"dataTransfer": dropped})


def test_a_dropped_document_is_translated_as_a_document(open_page: OpenPage, run_server: Any) -> None:
    document = make_docx("<w:p><w:r><w:t>one two</w:t></w:r></w:p>")
    with run_server() as port:
        page = open_page(port)
        drop_file(page, "My Report.DOCX", document)
        page.click(".start")
        page.wait_for_selector(".download:not([hidden])")
        with page.expect_download() as download:
            page.click(".download")
        assert download.value.suggested_filename == "My Report.ko.docx"
        translation = Path(download.value.path()).read_bytes()
        assert "two one" in get_part(translation, "word/document.xml")
        assert page.locator(".files .message").inner_text() == "Translated."


def test_a_document_that_cannot_be_read_is_an_error(
    open_page: OpenPage, pages: BrowserPages, run_server: Any
) -> None:
    with run_server() as port:
        page = open_page(port)
        for name, reason in (("a.docx", "a.docx"), ("a.pdf", "not UTF-8 text, nor a document")):
            drop_file(page, name, b"\xff\xfe\x00")
            page.click(".start")
            page.locator(".files .is-error", has_text=reason).wait_for()
            assert page.locator(".download").is_hidden()
    assert all("400" in problem for problem in pages.problems)
    pages.problems.clear()


def test_an_alternative_becomes_the_translation_and_back(open_page: OpenPage, run_server: Any) -> None:
    with run_server(ScriptedTranslator(is_calibrated=True)) as port:
        page = open_page(port)
        type_text(page, "one two")
        page.locator(".use-alternative").nth(1).click()
        assert page.locator(".output").text_content() == "two one 2"
        assert page.locator(".announcement").text_content() == "two one 2", "for screen readers"
        assert page.locator(".translation-confidence").is_hidden(), "that was of another translation"
        shown = page.locator(".alternatives-list li > span")
        assert shown.count() == 3
        assert page.evaluate("document.activeElement.className") == "copy"
        page.locator(".use-alternative").first.click()
        assert page.locator(".output").text_content() == "two one"


def test_an_alternative_from_a_word_on_keeps_the_other_sentences(
    open_page: OpenPage, run_server: Any
) -> None:
    details = {
        "sentences": ["one", "two", "three"],
        "sentenceConfidences": [{"text": text, "confidence": 0.9} for text in ("A b.", "C d.", "E f.")],
        "words": [{"text": text, "probability": 0.9, "sources": []} for text in "AbCdEf"],
        "sourceWords": [],
        "unknownWords": [],
    }

    def answer(route: Any) -> None:
        is_at_word = "prefix" in route.request.post_data_json
        text = "C x." if is_at_word else "A b. C d. E f."
        route.fulfill(json={"translatedText": text, "alternatives": [], "details": details})

    with run_server() as port:
        page = open_page(port)
        page.route("**/translate", answer)
        type_text(page, "one two three")
        page.locator(".output .word", has_text="d").click()
        page.locator("ol.at-word .use-alternative").click()
        assert page.locator(".output").text_content() == "A b. C x. E f."


def test_errors_look_like_errors_and_a_lost_server_is_found_again(
    open_page: OpenPage, pages: BrowserPages, run_server: Any
) -> None:
    with run_server() as port:
        page = open_page(port)
        page.fill("textarea", "impossible")
        page.wait_for_selector(".notice.is-error .retry")
        page.route("**/translate", lambda route: route.abort())
        page.route("**/health", lambda route: route.abort())
        page.fill("textarea", "one two")
        page.wait_for_function(
            "() => document.querySelector('.message').textContent.includes('Trying again')"
        )
        page.unroute("**/translate")
        page.unroute("**/health")
        page.wait_for_function("() => document.querySelector('.output').textContent === 'two one'")
        assert page.locator(".notice.is-error").count() == 0
    assert all("400" in problem or "ERR_FAILED" in problem for problem in pages.problems)
    pages.problems.clear()


@pytest.mark.parametrize(
    ("view", "endpoint", "ready"),
    [("attention", "look", ".look .controls"), ("walk", "walk", ".walk .panel")],
)
def test_errors_of_the_attention_views_can_be_retried_and_a_lost_server_is_found_again(
    open_page: OpenPage,
    pages: BrowserPages,
    run_server: Any,
    word_translator: mh.Translator,
    view: str,
    endpoint: str,
    ready: str,
) -> None:
    with run_server(word_translator) as port:
        page = open_page(port)
        type_text(page, "I go home today.")
        refusal = {"status": 400, "json": {"error": "refused"}}
        page.route(f"**/{endpoint}", lambda route: route.fulfill(**refusal))
        page.click(f'nav a[href="#{view}"]')
        page.wait_for_selector(".notice.is-error .retry")
        assert page.locator(".notice .message").inner_text() == "refused"
        page.route(f"**/{endpoint}", lambda route: route.abort())
        page.route("**/health", lambda route: route.abort())
        page.click(".retry")
        page.wait_for_function(
            "() => document.querySelector('.is-error .message')?.textContent.includes('Trying again')"
        )
        page.unroute(f"**/{endpoint}")
        page.unroute("**/health")
        page.wait_for_selector(ready)
        assert page.locator(".notice.is-error").count() == 0
        assert page.locator(".notice .message").inner_text() == ""
    assert all("400" in problem or "ERR_FAILED" in problem for problem in pages.problems)
    pages.problems.clear()


def test_a_failed_attention_view_is_loaded_again_when_it_is_opened_again(
    open_page: OpenPage, pages: BrowserPages, run_server: Any, word_translator: mh.Translator
) -> None:
    with run_server(word_translator) as port:
        page = open_page(port)
        type_text(page, "I go home today.")
        for view, endpoint, ready in (("attention", "look", ".look .controls"), ("walk", "walk", ".panel")):
            page.route(f"**/{endpoint}", lambda route: route.fulfill(status=400, json={"error": "refused"}))
            page.click(f'nav a[href="#{view}"]')
            page.wait_for_selector(".notice.is-error")
            page.click('nav a[href="#translate"]')
            page.unroute(f"**/{endpoint}")
            page.click(f'nav a[href="#{view}"]')
            page.wait_for_selector(ready)
    assert all("400" in problem for problem in pages.problems)
    pages.problems.clear()


def test_a_lost_server_is_not_a_word_without_alternatives(
    open_page: OpenPage, pages: BrowserPages, run_server: Any, word_translator: mh.Translator
) -> None:
    with run_server(word_translator) as port:
        page = open_page(port)
        type_text(page, "I go home today.")
        page.route("**/translate", lambda route: route.abort())
        page.route("**/health", lambda route: route.abort())
        page.locator(".output .word").nth(1).click()
        page.wait_for_selector(".alternatives .notice.is-error .retry")
        assert "does not respond" in page.locator(".alternatives .message").inner_text()
        page.unroute("**/translate")
        page.unroute("**/health")
        page.wait_for_function("() => document.querySelectorAll('ol.at-word li').length > 0")
        assert page.locator(".alternatives .notice").is_hidden()
    assert all("ERR_FAILED" in problem for problem in pages.problems)
    pages.problems.clear()


# ---- training


def make_run(folder: Path, scale: float) -> Path:
    train = [
        {"event": "train", "step": n, "loss": scale * (8 / n + n % 2), "run_seconds": 30.0 * n}
        for n in range(1, 21)
    ]
    valid = [{"event": "valid", "step": 20, "loss": scale, "run_seconds": 601.0, "bleu": 9.5}]
    return write_log(folder, [*train, *valid])


def test_runs_are_overlaid_with_a_shared_cursor_and_a_time_axis(
    open_page: OpenPage, run_server: Any, tmp_path: Path
) -> None:
    runs = [make_run(tmp_path / "first", 1.0), make_run(tmp_path / "second", 2.0)]
    with run_server(ScriptedTranslator(), runs=runs) as port:
        page = open_page(port, "training")
        loss = page.locator('[data-curve="loss"]')
        loss.wait_for()
        assert loss.locator("path.train").count() == 2
        colors = loss.locator("path.train").evaluate_all(
            "paths => paths.map(p => getComputedStyle(p).stroke)"
        )
        assert len(set(colors)) == 2
        loss.locator("svg").focus()
        page.keyboard.press("End")
        assert loss.locator(".readout").inner_text() == (
            "Step 20: first training 0.4, first validation 1, second training 0.8, second validation 2"
        )
        assert "Step 20" in page.locator('[data-curve="bleu"] .readout').inner_text(), "the cursor is shared"
        page.select_option("[name=axis]", "time")
        assert loss.locator(".axis text").last.text_content() == "10 min"
        page.locator("[name=smoothing]").fill("0.9")
        assert loss.locator("path.train.faint").count() == 2
        page.locator("[name=run]").first.uncheck()
        assert loss.locator("path.train.faint").count() == 1


@pytest.mark.parametrize("width", [220, 300, 480])
def test_horizontal_axes_have_round_ticks_with_room_for_their_labels(
    open_page: OpenPage, run_server: Any, width: int
) -> None:
    """On a phone too, and not merely the first and the last step."""
    with run_server() as port:
        page = open_page(port)
        axes = page.evaluate(
            """async (width) => {
                const { createStepAxis, createTimeAxis } = await import('./chart_scale.js');
                const describe = ({ ticks, position, formatTick }) =>
                    ticks.map((tick) => [tick, position(tick), formatTick(tick).length]);
                const labels = ({ ticks, end, ...axis }) => describe({ ...axis, ticks: [...ticks, ...end] });
                const ends = [9, 19, 95, 950, 1140, 20000, 99999, 2300000];
                const all = (own) => [own, labels].flatMap((of) => [createStepAxis, createTimeAxis].map(
                    (axis) => ends.map((end) => of(axis([1, end / 2, end], [0, width])))));
                const [steps, times, stepLabels, timeLabels] = all(describe);
                return [[...steps, ...times], [...stepLabels, ...timeLabels]];
            }""",
            width,
        )
    axes, labels = axes
    assert any(len(own) > len(ticks) for ticks, own in zip(axes, labels, strict=True)), "the end has a label"
    for own in labels:
        for (_, left, characters), (_, right, others) in itertools.pairwise(own):
            assert right - left >= 6 * (characters + others) / 2 + 6
    for ticks in axes:
        assert 2 <= len(ticks) <= 5
        spacing = ticks[1][0] - ticks[0][0]
        assert all(tick % spacing == 0 for tick, *_ in ticks), f"{ticks} are not round"
        for (_, left, characters), (_, right, others) in itertools.pairwise(ticks):
            assert right - left >= 6 * (characters + others) / 2 + 6
