"""Tags stay, words change."""

import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.serve.html import HtmlDocument
from manyheads.translator import Translation


def mirrored(text: str) -> Translation:
    """The words backwards, aligned: what moves, moves far."""
    words = text.split()
    last = len(words) - 1
    return Translation(
        text,
        " ".join(reversed(words)),
        source_tokens=[f"\u2581{word}" for word in words],
        tokens=[f"\u2581{word}" for word in reversed(words)],
        alignment=[(n, last - n) for n in range(len(words))],
    )


def translated(page: str, whole: bool = True) -> str:
    document = HtmlDocument(page, whole)
    return document.render([mirrored(text) for text in document.texts])


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
        ("<p", "&lt;p"),
        ("🙂 &copy; …", "🙂 &copy; …"),
        ('<IMG ALT="one two">A B', '<IMG ALT="one two">B A'),
    ],
)
def test_tags_are_put_around_what_came_of_their_words(page: str, expected: str) -> None:
    assert translated(page) == expected


def test_of_words_that_two_tags_claim_the_second_takes_what_is_left() -> None:
    document = HtmlDocument("<i>a b d e</i> <b>c f</b> g")
    source, target = "abdecfg", "abcdegf"
    found = Translation(
        " ".join(source),
        " ".join(target),
        source_tokens=[f"\u2581{word}" for word in source],
        tokens=[f"\u2581{word}" for word in target],
        alignment=[(source.index(word), number) for number, word in enumerate(target)],
    )
    assert document.render([found]) == "<i>a b c d e</i> g <b>f</b>"


def test_without_an_alignment_the_text_between_two_tags_is_by_itself() -> None:
    assert translated("one two <b>three four</b> five", whole=False) == "two one <b>four three</b> five"


def markup(page: str) -> list[str]:
    return sorted(re.findall(r"<[^>]*>", page))


WORDS = ["one", "two", "three", "&amp;", "&lt;", "é", "나는"]


def drawn_page(chance: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(chance.randint(1, 4)):
        kind = chance.random()
        if kind < 0.5 or depth > 3:
            parts.append(" ".join(chance.choices(WORDS, k=chance.randint(0, 4))))
        else:
            name = chance.choice(["b", "i", "span", "p", "div", "a"])
            parts.append(f'<{name} id="{chance.random()}">{drawn_page(chance, depth + 1)}</{name}>')
    return " ".join(parts)


@pytest.mark.parametrize("whole", [True, False])
def test_every_tag_comes_out_once_and_well_nested_and_every_word_too(whole: bool) -> None:
    chance = random.Random(1)
    for _ in range(300):
        page = drawn_page(chance)
        found = translated(page, whole)
        assert markup(found) == markup(page)
        bare = [sorted(re.sub(r"<[^>]*>", " ", one).split()) for one in (page, found)]
        assert bare[0] == bare[1]
        stack: list[str] = []
        for closing, name in re.findall(r"<(/?)(\w+)", found):
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
def test_nothing_is_so_malformed_that_it_fails(pieces: list[str]) -> None:
    for whole in (True, False):
        assert isinstance(translated("".join(pieces), whole), str)


ALONE = ["<b>", "<a '\"", "<!--", "<b></i>", "</b>", "<p><b>x</p>", "<", "&", "<b>x "]
SLOW = [
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


@pytest.mark.parametrize("piece", [*ALONE, *SLOW])
def test_a_page_of_nothing_else_takes_no_long(piece: str) -> None:
    for page in (
        piece * (20_000 // len(piece)),
        f"<pre>{piece * 4000}",
        f"{piece * 4000}>",
        f'{piece * 4000}=">',
    ):
        start = time.process_time()
        assert translated(page)
        assert time.process_time() - start < 1
