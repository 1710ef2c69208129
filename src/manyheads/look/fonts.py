"""Choose fonts for matplotlib that have every character of a text."""

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from manyheads.errors import RequestError

DEFAULT_FONT = "DejaVu Sans"  # part of matplotlib
HANGUL_FONTS = (  # tried first: opening every installed font is slow
    "Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Nanum Gothic", "Malgun Gothic", "Apple SD Gothic Neo",
    "Source Han Sans KR", "Noto Sans CJK JP", "UnDotum", "Baekmuk Dotum",
)  # fmt: skip


@contextmanager
def fonts_covering(text: str) -> Iterator[None]:
    """Use fonts that have every character of a text; raise RequestError for one that no font has."""
    from matplotlib import rc_context

    missing = set(text) - font_characters(DEFAULT_FONT) - {" "}
    families = [DEFAULT_FONT]
    while missing:
        family = find_font(missing)
        families.append(family)
        missing -= font_characters(family)
    settings: dict[Any, Any] = {
        "font.family": families,
        "svg.fonttype": "path",
        "svg.hashsalt": "manyheads",
        "text.parse_math": False,  # a word with two dollar signs is not a formula
    }
    with rc_context(settings):
        yield


def find_font(characters: set[str]) -> str:
    """Return the name of a font that has at least one of the characters."""
    name = search_fonts(characters)
    if name is None and add_new_fonts():
        name = search_fonts(characters)
    return name or refuse_character(min(characters))


def add_new_fonts() -> int:
    """Add fonts that were installed since matplotlib made its list; return how many there are."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    known, count = {entry.fname for entry in fontManager.ttflist}, 0
    for path in findSystemFonts():
        if path not in known:
            try:
                fontManager.addfont(path)
                count += 1
            except (OSError, RuntimeError, ValueError):
                continue  # a font that cannot be opened
    return count


def search_fonts(characters: set[str]) -> str | None:
    from matplotlib.font_manager import fontManager

    # Fonts of last resort have a box for every character.
    installed = [entry.name for entry in fontManager.ttflist if not entry.name.startswith("Last Resort")]
    preferred = [name for name in HANGUL_FONTS if name in installed]
    for name in dict.fromkeys([*preferred, *installed]):
        if characters & font_characters(name):
            return name
    return None


def refuse_character(character: str) -> NoReturn:
    if "HANGUL" in unicodedata.name(character, ""):
        raise RequestError(
            f"no installed font has Hangul ({character}), so figures cannot show it: install one, such as "
            f"NanumGothic or Noto Sans CJK KR (Debian: fonts-noto-cjk)"
        )
    raise RequestError(
        f"no installed font has {character!r} ({unicodedata.name(character, 'unnamed')}), so figures cannot "
        f"show it: install one"
    )


def font_characters(family: str) -> set[str]:
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FT2Font

    try:  # a name in a list is used as it is; alone it would be parsed as a pattern
        path = findfont(FontProperties(family=[family]), fallback_to_default=False)
        return {chr(code) for code in FT2Font(path).get_charmap()}
    except (OSError, RuntimeError, ValueError):
        return set()  # a font that cannot be opened, such as one of color bitmaps
