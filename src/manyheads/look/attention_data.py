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
from manyheads.look.measures import MEASURES, compute_measures, find_heads_like_figures
from manyheads.translator import Attention

FORMAT = 1
SPECIAL_TOKENS = BEGIN, END = "<s>", "</s>"
WORD_START = "\u2581"
ATTENTION_TYPES = ("encoder", "decoder", "cross")
SIDES = {"encoder": ("source", "source"), "decoder": ("read", "read"), "cross": ("written", "source")}
WEIGHT_SCALE = 65535  # what a weight of 1 is stored as
MAX_WEIGHTS = 100_000_000  # of a page: some 260 MB, and more than a browser likes
WORD_INTERNAL_PUNCTUATION = "'’-"  # punctuation that parts no word

Maps = NDArray[np.float32]


def build_attention_data(
    attention: Attention, *, source: str = "", target: str = "", name: str = "", step: int | None = None
) -> dict[str, Any]:
    """The attention of one sentence, of one model."""
    return combine_snapshots(
        attention, source, target, [build_snapshot(attention, name=name, step=step, translation=target)]
    )


def combine_snapshots(
    attention: Attention, source: str, target: str, moments: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What all moments share, and the moments."""
    tokens = tokens_by_side(attention)
    word_of = {side: get_word_ids(own) for side, own in tokens.items()}
    layers = getattr(attention.trace, attention_types(attention)[0])
    heads = len(layers[0][0])
    return {
        "format": FORMAT,
        "languages": attention.languages,
        "text": {
            "source": source or " ".join(tokens_to_words(tokens["source"])[:-1]),
            "target": target or " ".join(tokens_to_words(tokens["written"])[:-1]),
        },
        "sides": {kind: SIDES[kind] for kind in attention_types(attention)},
        "tokens": {side: list(own) for side, own in tokens.items()},
        "words": {side: tokens_to_words(own) for side, own in tokens.items()},
        "word_of": word_of,
        "layers": len(layers),
        "heads": heads,
        "colors": head_colors(heads),
        "measures": MEASURES,
        "moments": list(moments),
    }


def build_snapshot(
    attention: Attention, *, name: str, step: int | None, translation: str, num_snapshots: int = 1
) -> dict[str, Any]:
    """What one model makes of the sentence; a page will have so many moments of it."""
    check_size(attention, num_snapshots)
    maps = {kind: stack_maps(attention, kind) for kind in attention_types(attention)}
    merged = {kind: merge_into_words(one, attention, kind) for kind, one in maps.items()}
    return {
        "name": name,
        "step": step,
        "said": translation,
        "maps": {kind: [[encode_map(head) for head in layer] for layer in one] for kind, one in maps.items()},
        "measures": {
            kind: {
                "tokens": compute_measures(maps[kind], kind),
                "words": compute_measures(merged[kind], kind),
            }
            for kind in maps
        },
        "like": {kind: find_figure_heads(one, attention, kind) for kind, one in merged.items()},
        "chances": [round_significant(math.exp(one)) for one in attention.token_scores],
        "candidates": [
            [[piece, round_significant(math.exp(log_p))] for piece, log_p in step]
            for step in attention.candidates
        ],
    }


def check_size(attention: Attention, moments: int) -> None:
    """Before anything is made of the maps."""
    weights = moments * sum(
        layer[0].numel() for kind in ATTENTION_TYPES for layer in getattr(attention.trace, kind)
    )
    if weights > MAX_WEIGHTS:
        raise RequestError(
            f"{weights:,} attention weights, but a page holds at most {MAX_WEIGHTS:,}: "
            f"give a shorter sentence"
        )


# ---- maps


def attention_types(attention: Attention) -> list[str]:
    """Those that the model has: a recurrent or convolutional one looks from target to source alone."""
    return [kind for kind in ATTENTION_TYPES if getattr(attention.trace, kind)]


def stack_maps(attention: Attention, kind: str) -> Maps:
    """Every map of a kind. [L, H, Q, K]

    A token that may see nothing, as in a narrow window, looks at nothing: zeros, not NaN.
    """
    layers = getattr(attention.trace, kind)
    found: Maps = np.nan_to_num(np.stack([layer[0].float().cpu().numpy() for layer in layers]))
    return found


def encode_map(map_QK: Maps) -> str:
    whole = np.rint(map_QK.clip(0, 1) * WEIGHT_SCALE).astype("<u2")
    return base64.b64encode(whole.tobytes()).decode("ascii")


def merge_into_words(maps: Maps, attention: Attention, kind: str) -> Maps:
    """The same between words: what a word's tokens look at on average, at all tokens of another together."""
    numbers = [get_word_ids(tokens_by_side(attention)[side]) for side in SIDES[kind]]
    return merge_tokens(maps, numbers[0], numbers[1])


def find_figure_heads(maps: Maps, attention: Attention, kind: str) -> dict[str, list[dict[str, Any]]]:
    """The heads most like those of the paper's figures; the maps are between words."""
    words = [tokens_to_words(tokens_by_side(attention)[side]) for side in SIDES[kind]]
    return find_heads_like_figures(
        maps, kind, [is_word(one) for one in words[0]], [is_word(one) for one in words[1]]
    )


def merge_tokens(maps: Maps, rows: Sequence[int], columns: Sequence[int]) -> Maps:
    """[..., Q tokens, K tokens] -> [..., Q words, K words]. A row that summed to 1 still does."""
    row_of = np.eye(max(rows) + 1, dtype=np.float32)[list(rows)]  # [tokens, words]
    column_of = np.eye(max(columns) + 1, dtype=np.float32)[list(columns)]
    found: Maps = (row_of / row_of.sum(0)).T @ maps @ column_of
    return found


# ---- tokens and words


def tokens_by_side(attention: Attention) -> dict[str, list[str]]:
    written = attention.target_tokens
    return {"source": attention.source_tokens, "read": [BEGIN, *written[:-1]], "written": written}


def get_word_ids(tokens: Sequence[str]) -> list[int]:
    """Which word each token is a part of, counted from 0.

    A word begins at a space, and punctuation stands by itself, as in the paper's figures; an apostrophe or a
    hyphen is part of its word.
    """
    numbers: list[int] = []
    for place, token in enumerate(tokens):
        first = place == 0
        begins = (
            first
            or token.startswith(WORD_START)
            or classify_token(token) != classify_token(tokens[place - 1])
        )
        numbers.append(0 if first else numbers[-1] + begins)
    return numbers


def classify_token(token: str) -> str:
    """The sign itself (begin, end), mark (punctuation) or word."""
    if token in SPECIAL_TOKENS:
        return token
    bare = token.removeprefix(WORD_START)
    is_mark = bare and not re.fullmatch(r"<0x[0-9A-F]{2}>", bare) and all(map(is_punctuation, bare))
    return "mark" if is_mark else "word"


def is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] == "P" and character not in WORD_INTERNAL_PUNCTUATION


def tokens_to_words(tokens: Sequence[str]) -> list[str]:
    numbers = get_word_ids(tokens)
    words = [""] * (numbers[-1] + 1) if numbers else []
    for number, token in zip(numbers, tokens, strict=True):
        words[number] += token
    return [decode_word(word) or "\u2423" for word in words]  # a space alone is written as an open box


def is_word(word: str) -> bool:
    return word not in SPECIAL_TOKENS and any(map(str.isalnum, word))


def decode_word(word: str) -> str:
    """Without the sign for a space; bytes become the letters that they spell."""
    spelled = re.sub(
        r"(?:<0x[0-9A-F]{2}>)+",
        lambda found: bytes.fromhex(re.sub(r"<0x|>", "", found.group())).decode("utf-8", "replace"),
        word,
    )
    return spelled.replace(WORD_START, " ").strip()


# ---- numbers and colors


def round_significant(number: float) -> float:
    return float(f"{number:.5g}")


def head_colors(heads: int) -> list[str]:
    """One a head, neighbors far apart on the wheel, and equally well seen on white and on black."""
    hues = [(0.6 + head * 0.381966) % 1 for head in range(heads)]  # the golden section never comes back
    return [color_with_luminance(hue, (0.2, 0.13, 0.27)[head // 8 % 3]) for head, hue in enumerate(hues)]


def color_with_luminance(hue: float, luminance: float) -> str:
    """The color of a hue that has so much relative luminance (WCAG 2); 0.2 has a contrast of 4 to both."""
    shades = [colorsys.hls_to_rgb(hue, light / 256, 0.75) for light in range(256)]
    nearest = min(shades, key=lambda shade: abs(relative_luminance(shade) - luminance))
    return "#" + "".join(f"{round(255 * one):02x}" for one in nearest)


def relative_luminance(shade: tuple[float, float, float]) -> float:
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in shade)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
