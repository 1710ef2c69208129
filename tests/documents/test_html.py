"""HTML keeps its tags while its words are translated."""

import random
import re
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.documents import html_tokenizer
from manyheads.documents.html_document import HtmlDocument
from manyheads.translation import Translation


def reverse_translation(text: str) -> Translation:
    """Reverse the words, with their alignment."""
    words = text.split()
    last = len(words) - 1
    return Translation(
        text,
        " ".join(reversed(words)),
        source_tokens=[f"\u2581{word}" for word in words],
        tokens=[f"\u2581{word}" for word in reversed(words)],
        alignment=[(n, last - n) for n in range(len(words))],
    )


def translate(page: str, is_aligned: bool = True) -> str:
    document = HtmlDocument(page)
    translations = [reverse_translation(text) for text in document.texts]
    if not is_aligned:
        translations = [replace(translation, alignment=None) for translation in translations]
    return document.render(translations)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>one two</p> <p>three four</p>", "<p>two one</p> <p>four three</p>"),
        ("one <b>two</b> three", "three <b>two</b> one"),
        ("<b>one</b> two three", "three two <b>one</b>"),
        ("<b>one two</b>", "<b>two one</b>"),
        ("<a href='>'>one</a> two", "two <a href='>'>one</a>"),
        ("<i>a <b>b</b> c</i> d", "d <i>c <b>b</b> a</i>"),
        ("<i>a</i> <b>b</b> c", "c <b>b</b> <i>a</i>"),
        ("one<br>two three<hr/>", "one<br>three two<hr/>"),
        ("one <span></span>two", "<span></span>two one"),
        ("one\n   two", "two one"),
        ("  <p>\n one two </p>\n", "  <p> two one </p>\n"),
        ("a &lt;b&gt; &amp; c", "c &amp; &lt;b&gt; a"),
        ("one two&nbsp;", "two one&nbsp;"),
        ("<code>one two</code> three four", "<code>one two</code> four three"),
        ("<pre>one\n two</pre>", "<pre>one\n two</pre>"),
        ("<style>a b { c: d }</style>", "<style>a b { c: d }</style>"),
        ("<script>if (a < b && c > d) '</p>'</script>e f", "<script>if (a < b && c > d) '</p>'</script>f e"),
        ('<p translate="no">one two</p>three four', '<p translate="no">one two</p>four three'),
        (
            '<div class="x notranslate"><div>a b</div> c d</div>e f',
            '<div class="x notranslate"><div>a b</div> c d</div>f e',
        ),
        ('<img class="notranslate">a b', '<img class="notranslate">b a'),
        ("<!-- one two -->a b", "<!-- one two -->b a"),
        ("<!doctype html><?php a b ?>a b", "<!doctype html><?php a b ?>b a"),
        ("<!-->a b<!--->c d", "<!-->b a<!--->d c"),
        ("<!-- a b --!>c d-->", "<!-- a b --!>d--&gt; c"),
        ("<![CDATA[a b]]>c d", "<![CDATA[a b]]>d c"),
        ("<![CDATA[a > b c", "<![CDATA[a > c b"),
        ("<svg><![CDATA[</svg> a b]]>c d</svg>e f", "<svg><![CDATA[</svg> a b]]>c d</svg>f e"),
        ("<!-- a b", "<!-- a b"),
        ('<a href="?translate=no">a b</a>', '<a href="?translate=no">b a</a>'),
        (
            '<p data-translate="no" title="class=notranslate">a b</p>',
            '<p data-translate="no" title="class=notranslate">b a</p>',
        ),
        ("<p class=notranslate>a b</p>c d", "<p class=notranslate>a b</p>d c"),
        ("<p TRANSLATE = 'No'>a b</p>c d", "<p TRANSLATE = 'No'>a b</p>d c"),
        ('<p class="notranslated">a b</p>', '<p class="notranslated">b a</p>'),
        ("<p title=it's>it's a b</p>", "<p title=it's>b a it's</p>"),
        ("<b>one two", "<b>two one"),
        ("one two</b> three four", "two one</b> four three"),
        ("<b>a <i>b c</b> d e</i>", "<b>a <i>c b</b> e d</i>"),
        ("a < b and c > d", "d &gt; c and b &lt; a"),
        ("", ""),
        ("<", "<"),
        ("<p", "<p"),
        ("🙂 &copy; …", "🙂 &copy; …"),
        ('<IMG ALT="one two">A B', '<IMG ALT="one two">B A'),
    ],
)
def test_tags_are_placed_around_the_aligned_words(page: str, expected: str) -> None:
    assert translate(page) == expected


def test_words_are_given_to_the_first_of_two_tags() -> None:
    document = HtmlDocument("<i>a b d e</i> <b>c f</b> g")
    source, target = "abdecfg", "abcdegf"
    translation = Translation(
        " ".join(source),
        " ".join(target),
        source_tokens=[f"\u2581{word}" for word in source],
        tokens=[f"\u2581{word}" for word in target],
        alignment=[(source.index(word), number) for number, word in enumerate(target)],
    )
    assert document.render([translation]) == "<i>a b c d e</i> g <b>f</b>"


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("one two <b>three four</b> five", "five four three two one", "five <b>four three</b> two one"),
        ("I <b>go</b> home.", "Je vais maison.", "Je <b>vais</b> maison."),
        ("See <a href='x'>Figure 2</a> for more.", "mehr: siehe Figure 2",
         "mehr: siehe <a href='x'>Figure 2</a>"),
        ("<i>a</i> b", "", "<i></i>"),
    ],
)  # fmt: skip
def test_without_an_alignment_sentences_stay_whole_and_tags_go_by_same_words_and_positions(
    page: str, text: str, expected: str
) -> None:
    document = HtmlDocument(page)
    (source,) = document.texts
    assert "<" not in source
    assert document.render([Translation(source, text)]) == expected


def find_tags(page: str) -> list[str]:
    return sorted(re.findall(r"<[^>]*>", page))


WORDS = ["one", "two", "three", "&amp;", "&lt;", "é", "나는"]


def random_page(rng: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(rng.randint(1, 4)):
        draw = rng.random()
        if draw < 0.5 or depth > 3:
            parts.append(" ".join(rng.choices(WORDS, k=rng.randint(0, 4))))
        else:
            name = rng.choice(["b", "i", "span", "p", "div", "a"])
            parts.append(f'<{name} id="{rng.random()}">{random_page(rng, depth + 1)}</{name}>')
    return " ".join(parts)


@pytest.mark.parametrize("is_aligned", [True, False])
def test_every_tag_and_word_comes_out_once_and_well_nested(is_aligned: bool) -> None:
    rng = random.Random(1)
    for _ in range(300):
        page = random_page(rng)
        output = translate(page, is_aligned)
        assert find_tags(output) == find_tags(page)
        words = [sorted(re.sub(r"<[^>]*>", " ", html).split()) for html in (page, output)]
        assert words[0] == words[1]
        stack: list[str] = []
        for closing, name in re.findall(r"<(/?)(\w+)", output):
            if not closing:
                stack.append(name)
            else:
                assert stack.pop() == name


PIECES = [
    "<",
    ">",
    "</",
    "/>",
    "<!--",
    "-->",
    "b",
    "<p>",
    "</p>",
    "<b>",
    "</b>",
    '"',
    "'",
    "=",
    " ",
    "&",
    "&amp;",
]


@given(
    st.lists(st.sampled_from([*PIECES, "<script>", "<a href=", "&#x110000;", "\x00", "word"]), max_size=40)
)
def test_malformed_html_never_fails(pieces: list[str]) -> None:
    for is_aligned in (True, False):
        assert isinstance(translate("".join(pieces), is_aligned), str)


REPEATED_PIECES = ["<b>", "<a '\"", "<!--", "<b></i>", "</b>", "<p><b>x</p>", "<", "&", "<b>x "]
BACKTRACKING_PIECES = [
    "<a",
    "<a\"'",
    "<!",
    "</a",
    "<a =",
    '<a ="',
    '<a =">"',
    "<a ='x",
    "<pre>",
    "<pre></pre",
    "<?",
    "--!",
    "<svg><",
]


@pytest.mark.parametrize("piece", [*REPEATED_PIECES, *BACKTRACKING_PIECES])
def test_repeated_pieces_take_linear_time(piece: str) -> None:
    for page in (
        piece * (20_000 // len(piece)),
        f"<pre>{piece * 4000}",
        f"{piece * 4000}>",
        f'{piece * 4000}=">',
    ):
        start = time.process_time()
        assert translate(page)
        assert time.process_time() - start < 4  # seconds of CPU time; a busy machine counts more of them


class CountingPattern:
    """Adds up the characters that a pattern reads, at most."""

    def __init__(self, pattern: "re.Pattern[str]") -> None:
        self.pattern, self.num_read = pattern, 0

    def match(self, text: str, start: int) -> "re.Match[str] | None":
        match = self.pattern.match(text, start)
        self.num_read += (match.end() if match else len(text)) - start
        return match


def test_end_tags_without_an_end_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for number in (500, 1000):
        counter = CountingPattern(html_tokenizer.DECLARATION)
        with monkeypatch.context() as patched:
            patched.setattr(html_tokenizer, "DECLARATION", counter)
            page = "</1>" * number + "</1" * number
            assert "".join(token.raw for token in html_tokenizer.tokenize(page)) == page
        counts.append(counter.num_read)
    assert counts == [4 * 500, 4 * 1000]


BROKEN_MARKUP = [
    "</ em>", "</>", "</1>", "</!x>", "</-->", "</\u00e9m>", "</ b c='d'>", "<!>", "<!x>", "<!-x->", "<?>",
    "<?php x ?>",
    "<![CDATA[x]]>", "<!-- x --!>", "<!-->", "<!--->", "<!DOCTYPE>", "<br/ >", "<br / x>", "<hr =x>",
    "<img a='1' a=\"2\">", "<img a=b\">", "<input value=a/b>", "<p <b>", "<p/x>", "<P\n>", "</p x=1>",
    "<img a='>'>",
]  # fmt: skip
CUT_OFF_TAGS = ["<em", "</em", "<em ", "<em\n", "<br/", '<a href="x y', "<a href=", "<!-- x", "<!D", "<?p"]


@pytest.mark.parametrize("is_aligned", [True, False])
@pytest.mark.parametrize("markup", BROKEN_MARKUP)
def test_broken_markup_keeps_its_bytes(markup: str, is_aligned: bool) -> None:
    assert translate(f"<p>a b {markup} c d</p>", is_aligned) == f"<p>b a {markup} d c</p>"


@pytest.mark.parametrize("markup", CUT_OFF_TAGS)
def test_a_tag_that_the_end_of_the_page_cuts_off_keeps_its_bytes(markup: str) -> None:
    assert translate(f"<p>a b</p>c d {markup}") == f"<p>b a</p>d c {markup}"
