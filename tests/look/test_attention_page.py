"""The page is one file, and tokens cannot inject markup or scripts into it."""

import base64
import hashlib
import html
import json
import re
import sys
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

import manyheads as mh
from manyheads.look import html as pages
from manyheads.look import notebook
from manyheads.look.attention_data import build_attention_data
from manyheads.look.html import bundle_modules, embed_json, render_page, write_page
from support.attention_samples import MARKUP_TOKENS, random_attention_data, with_markup_tokens

TOKEN_TEXTS = ("beginToken", "endToken", "unknownToken", "byteToken")  # of token_text.js
ROLE_TEXTS = ("roles", "roleNotes")  # of role_texts.js
PAIR_TEXTS = ("source", "target", "language")  # of texts.js, in the page of a walk


def split_page(text: str) -> tuple[str, str, str, str]:
    """Return the policy, style, data and script of a page."""
    match = re.fullmatch(
        r'.*<meta http-equiv="Content-Security-Policy" content="([^"]*)">.*<style>(.*?)</style>.*'
        r'<script type="application/json" id="attention">(.*?)</script>\s*'
        r'<script type="module">(.*?)</script>\s*'
        r"</body>\s*</html>\s*",
        text,
        flags=re.S,
    )
    assert match
    return match[1], match[2], match[3], match[4]


def sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_allows_this_script_and_this_style_only(attention: mh.AttentionMaps) -> None:
    policy, style, _, script = split_page(render_page(build_attention_data(attention)))
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{sha256(script)}'; style-src 'sha256-{sha256(style)}'; "
        f"img-src data:; base-uri 'none'; form-action 'none'"
    )


def test_tokens_cannot_be_markup(attention: mh.AttentionMaps) -> None:
    data = build_attention_data(
        with_markup_tokens(attention), source="</title><script>alert(1)</script>", target=MARKUP_TOKENS[0]
    )
    text = render_page(data)
    _, _, json_data, _ = split_page(text)
    assert not re.search("[<>&\u2028\u2029]", json_data)
    assert json.loads(json_data)["tokens"]["source"][0] == MARKUP_TOKENS[0]
    assert text.count("<script") == 2
    assert "<img" not in text
    assert "<title>&lt;/title&gt;&lt;script&gt;" in text


def test_nan_is_rejected() -> None:
    with pytest.raises(ValueError, match="JSON"):
        embed_json({"weight": float("nan")})


def test_the_page_loads_nothing(attention: mh.AttentionMaps) -> None:
    text = render_page(build_attention_data(attention))
    addresses = set(re.findall(r"https?://[^\s\"'`<)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a namespace, not an address"
    assert not re.search(r"\b(?:src|href)=[\"']?(?!#)\w", text)


def test_the_modules_are_bundled_in_order() -> None:
    script = bundle_modules()
    assert not re.search(r"^(?:import|export)\b", script, flags=re.M)
    assert "</script" not in script
    assert script.count("function showAttention(") == 1
    assert (
        script.index("class AttentionMaps")
        < script.index("class AttentionExplorer")
        < script.index('getElementById("attention")')
    )
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", script, flags=re.M)
    assert len(names) == len(set(names)), "modules share one scope in the bundle"


@pytest.mark.parametrize("package", ["manyheads.look", "manyheads.serve"])
def test_no_program_of_a_page_writes_markup(package: str) -> None:
    """The pages of the command and of the server: what a user types becomes text."""
    scripts = list(Path(str(files(package))).rglob("*.js"))
    assert len(scripts) > 20
    for path in scripts:
        script = path.read_text(encoding="utf-8")
        for forbidden in (
            *(
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "setHTML",
                "srcdoc",
                "createContextualFragment",
            ),
            *("document.write", "eval(", "new Function", "DOMParser", "javascript:"),
        ):
            assert forbidden not in script, path.name


def test_both_languages_have_the_same_texts() -> None:
    english, korean = re.findall(
        r"^  (?:en|ko): \{\n(.*?)^  \},", pages.read_asset("texts.js"), flags=re.S | re.M
    )
    keys = [re.findall(r"^    (\w+):", text, flags=re.M) for text in (english, korean)]
    assert keys[0] == keys[1]
    assert not re.search("[가-힣]", english)
    used = set(re.findall(r"texts\.(\w+)", bundle_modules()))
    assert used <= {*keys[0], *TOKEN_TEXTS, *ROLE_TEXTS}


def test_every_role_has_a_word_and_a_sentence_in_both_languages() -> None:
    roles = set(re.findall(r'return (?:\w+ \? |\w+ === "cross" \? |share .*? \? )?"(\w+)"', read_roles()))
    roles |= set(re.findall(r': "(\w+)";', read_roles()))
    texts = pages.read_asset("role_texts.js")
    assert {"aligned", "focused", "previous", "mixed"} <= roles
    for role in roles:
        assert len(re.findall(rf"\b{role}: ", texts)) == 4, role


def read_roles() -> str:
    return pages.read_asset("head_roles.js").split("export function headRole")[1].split("\n}")[0]


def test_both_languages_of_the_walk_have_the_same_texts() -> None:
    english, korean = re.findall(
        r"^  (?:en|ko): \{\n(.*?)^  \},", pages.read_asset("walk_texts.js"), flags=re.S | re.M
    )
    keys = [re.findall(r"^ {4,6}(\w+):", text, flags=re.M) for text in (english, korean)]
    assert keys[0] == keys[1]
    assert not re.search("[가-힣]", english)
    script = bundle_modules("walk_main.js")
    assert set(re.findall(r"[^.]texts\.(\w+)", script)) <= {*keys[0], *TOKEN_TEXTS, *PAIR_TEXTS}
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", script, flags=re.M)
    assert len(names) == len(set(names)), "modules share one scope in the bundle"


def test_a_hundred_tokens_of_the_largest_model_fit_a_page() -> None:
    data = random_attention_data()
    text = render_page(data)
    assert 20e6 < len(text.encode()) < 32e6


def test_pages_are_written_atomically(
    attention: mh.AttentionMaps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_page(build_attention_data(attention), tmp_path / "page.html")
    before = path.read_text(encoding="utf-8")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write_page(build_attention_data(attention), path)
    assert path.read_text(encoding="utf-8") == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]


# ---- in a notebook


def test_show_returns_a_sandboxed_frame(attention: mh.AttentionMaps, monkeypatch: pytest.MonkeyPatch) -> None:
    display = ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    shown = notebook.show(with_markup_tokens(attention), height=500)
    match = re.fullmatch(
        r'<div><iframe srcdoc="([^"]*)" sandbox="allow-scripts allow-downloads" title="Attention" '
        r'style="width: 100%; height: 500px; border: 0"></iframe></div>',
        shown,
    )
    assert match
    assert html.unescape(match[1]) == render_page(build_attention_data(with_markup_tokens(attention)))


def test_show_without_ipython_is_an_error(
    attention: mh.AttentionMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(mh.RequestError, match="IPython is not installed"):
        notebook.show(attention, 500)
