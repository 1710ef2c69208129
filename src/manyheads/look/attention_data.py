"""The attention of one sentence as plain data, which the page, the server and a notebook show alike.

    format      1
    languages   source and target
    text        source and target
    sides       by kind of attention: who looks, and at whom
    tokens      by side: pieces of words. `written` is what the decoder writes at each step, `read` what it
                has read by then: the begin sign, and then what was written one step before
    words       by side: the words that these make up
    word_of     by side: which word each token is a part of
    layers, heads, colors (one a head), measures (names, in the order of their values)
    moments     of training, the latest last; where a model is looked at, there is one:
        name, step, said (what this moment itself translates)
        maps        by kind, layer and head: base64 of uint16, little-endian, row after row; 65535 is 1
        measures    by kind, then "tokens" or "words", layer and head: values; null where there is none
        like        by kind, then "long", "sharp" or "structural": the heads most like Figures 3, 4 and 5
        chances     the probability of what was written, a step each
        candidates  the likeliest pieces at each step, with their probabilities

Shapes: L layers, H heads, Q tokens or words that look, K those that are looked at.
"""

import base64
import colorsys
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.errors import RequestError
from manyheads.look.measures import MEASURES, heads_like, measured
from manyheads.translator import Attention

FORMAT = 1
SIGNS = BEGIN, END = "<s>", "</s>"
WORD_START = "\u2581"
KINDS = ("encoder", "decoder", "cross")
SIDES = {"encoder": ("source", "source"), "decoder": ("read", "read"), "cross": ("written", "source")}
ONE = 65535  # what a weight of 1 is stored as
MOST_WEIGHTS = 100_000_000  # of a page: some 260 MB, and more than a browser likes
INSIDE_WORDS = "'’-"  # punctuation that parts no word

Maps = NDArray[np.float32]


def described(
    attention: Attention, *, source: str = "", target: str = "", name: str = "", step: int | None = None
) -> dict[str, Any]:
    """The attention of one sentence, of one model."""
    return together(attention, source, target, [moment(attention, name=name, step=step, said=target)])


def together(
    attention: Attention, source: str, target: str, moments: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What all moments share, and the moments."""
    tokens = sides_of(attention)
    word_of = {side: word_numbers(own) for side, own in tokens.items()}
    layers = getattr(attention.trace, kinds_of(attention)[0])
    heads = len(layers[0][0])
    return {
        "format": FORMAT,
        "languages": attention.languages,
        "text": {
            "source": source or " ".join(words_of(tokens["source"])[:-1]),
            "target": target or " ".join(words_of(tokens["written"])[:-1]),
        },
        "sides": {kind: SIDES[kind] for kind in kinds_of(attention)},
        "tokens": {side: list(own) for side, own in tokens.items()},
        "words": {side: words_of(own) for side, own in tokens.items()},
        "word_of": word_of,
        "layers": len(layers),
        "heads": heads,
        "colors": colors(heads),
        "measures": MEASURES,
        "moments": list(moments),
    }


def moment(
    attention: Attention, *, name: str, step: int | None, said: str, moments: int = 1
) -> dict[str, Any]:
    """What one model makes of the sentence; a page will have so many moments of it."""
    check_size(attention, moments)
    maps = {kind: stacked(attention, kind) for kind in kinds_of(attention)}
    merged = {kind: in_words(one, attention, kind) for kind, one in maps.items()}
    return {
        "name": name,
        "step": step,
        "said": said,
        "maps": {kind: [[stored(head) for head in layer] for layer in one] for kind, one in maps.items()},
        "measures": {
            kind: {"tokens": measured(maps[kind], kind), "words": measured(merged[kind], kind)}
            for kind in maps
        },
        "like": {kind: like_figures(one, attention, kind) for kind, one in merged.items()},
        "chances": [rounded(math.exp(one)) for one in attention.token_scores],
        "candidates": [
            [[piece, rounded(math.exp(log_p))] for piece, log_p in step] for step in attention.candidates
        ],
    }


def check_size(attention: Attention, moments: int) -> None:
    """Before anything is made of the maps."""
    weights = moments * sum(layer[0].numel() for kind in KINDS for layer in getattr(attention.trace, kind))
    if weights > MOST_WEIGHTS:
        raise RequestError(
            f"{weights:,} attention weights, but a page holds at most {MOST_WEIGHTS:,}: "
            f"give a shorter sentence"
        )


# ---- maps


def kinds_of(attention: Attention) -> list[str]:
    """Those that the model has: a recurrent or convolutional one looks from target to source alone."""
    return [kind for kind in KINDS if getattr(attention.trace, kind)]


def stacked(attention: Attention, kind: str) -> Maps:
    """Every map of a kind. [L, H, Q, K]

    A token that may see nothing, as in a narrow window, looks at nothing: zeros, not NaN.
    """
    layers = getattr(attention.trace, kind)
    found: Maps = np.nan_to_num(np.stack([layer[0].float().cpu().numpy() for layer in layers]))
    return found


def stored(map_QK: Maps) -> str:
    whole = np.rint(map_QK.clip(0, 1) * ONE).astype("<u2")
    return base64.b64encode(whole.tobytes()).decode("ascii")


def in_words(maps: Maps, attention: Attention, kind: str) -> Maps:
    """The same between words: what a word's tokens look at on average, at all tokens of another together."""
    numbers = [word_numbers(sides_of(attention)[side]) for side in SIDES[kind]]
    return merged(maps, numbers[0], numbers[1])


def like_figures(maps: Maps, attention: Attention, kind: str) -> dict[str, list[dict[str, Any]]]:
    """The heads most like those of the paper's figures; the maps are between words."""
    words = [words_of(sides_of(attention)[side]) for side in SIDES[kind]]
    return heads_like(maps, kind, [is_word(one) for one in words[0]], [is_word(one) for one in words[1]])


def merged(maps: Maps, rows: Sequence[int], columns: Sequence[int]) -> Maps:
    """[..., Q tokens, K tokens] -> [..., Q words, K words]. A row that summed to 1 still does."""
    row_of = np.eye(max(rows) + 1, dtype=np.float32)[list(rows)]  # [tokens, words]
    column_of = np.eye(max(columns) + 1, dtype=np.float32)[list(columns)]
    found: Maps = (row_of / row_of.sum(0)).T @ maps @ column_of
    return found


# ---- tokens and words


def sides_of(attention: Attention) -> dict[str, list[str]]:
    written = attention.target_tokens
    return {"source": attention.source_tokens, "read": [BEGIN, *written[:-1]], "written": written}


def word_numbers(tokens: Sequence[str]) -> list[int]:
    """Which word each token is a part of, counted from 0.

    A word begins at a space, and punctuation stands by itself, as in the paper's figures; an apostrophe or a
    hyphen is part of its word.
    """
    numbers: list[int] = []
    for place, token in enumerate(tokens):
        first = place == 0
        begins = first or token.startswith(WORD_START) or kind_of(token) != kind_of(tokens[place - 1])
        numbers.append(0 if first else numbers[-1] + begins)
    return numbers


def kind_of(token: str) -> str:
    """The sign itself (begin, end), mark (punctuation) or word."""
    if token in SIGNS:
        return token
    bare = token.removeprefix(WORD_START)
    is_mark = bare and not re.fullmatch(r"<0x[0-9A-F]{2}>", bare) and all(map(is_punctuation, bare))
    return "mark" if is_mark else "word"


def is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] == "P" and character not in INSIDE_WORDS


def words_of(tokens: Sequence[str]) -> list[str]:
    numbers = word_numbers(tokens)
    words = [""] * (numbers[-1] + 1) if numbers else []
    for number, token in zip(numbers, tokens, strict=True):
        words[number] += token
    return [readable(word) or "\u2423" for word in words]  # a space alone is written as an open box


def is_word(word: str) -> bool:
    return word not in SIGNS and any(map(str.isalnum, word))


def readable(word: str) -> str:
    """Without the sign for a space; bytes become the letters that they spell."""
    spelled = re.sub(
        r"(?:<0x[0-9A-F]{2}>)+",
        lambda found: bytes.fromhex(re.sub(r"<0x|>", "", found.group())).decode("utf-8", "replace"),
        word,
    )
    return spelled.replace(WORD_START, " ").strip()


# ---- numbers and colors


def rounded(number: float) -> float:
    return float(f"{number:.5g}")


def colors(heads: int) -> list[str]:
    """One a head, neighbors far apart on the wheel, and equally well seen on white and on black."""
    hues = [(0.6 + head * 0.381966) % 1 for head in range(heads)]  # the golden section never comes back
    return [as_bright(hue, (0.2, 0.13, 0.27)[head // 8 % 3]) for head, hue in enumerate(hues)]


def as_bright(hue: float, luminance: float) -> str:
    """The color of a hue that has so much relative luminance (WCAG 2); 0.2 has a contrast of 4 to both."""
    shades = [colorsys.hls_to_rgb(hue, light / 256, 0.75) for light in range(256)]
    nearest = min(shades, key=lambda shade: abs(luminance_of(shade) - luminance))
    return "#" + "".join(f"{round(255 * one):02x}" for one in nearest)


def luminance_of(shade: tuple[float, float, float]) -> float:
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in shade)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
