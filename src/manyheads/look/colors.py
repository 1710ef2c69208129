"""Colors of attention heads."""

import colorsys

GOLDEN_RATIO = 0.381966  # of a turn: hues never repeat
LUMINANCES = (
    0.2,
    0.13,
    0.27,
)  # of heads 1 to 8, 9 to 16, 17 to 24; 0.2 has a contrast of 4 to white and black


def head_colors(num_heads: int) -> list[str]:
    """Return a color per head. Those of neighbors differ, and all are visible on white and on black."""
    hues = [(0.6 + head * GOLDEN_RATIO) % 1 for head in range(num_heads)]
    return [color_with_luminance(hue, LUMINANCES[head // 8 % 3]) for head, hue in enumerate(hues)]


def color_with_luminance(hue: float, luminance: float) -> str:
    """Return the color of a hue with the given relative luminance (WCAG 2)."""
    shades = [colorsys.hls_to_rgb(hue, lightness / 256, 0.75) for lightness in range(256)]
    nearest = min(shades, key=lambda shade: abs(relative_luminance(shade) - luminance))
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in nearest)


def relative_luminance(color: tuple[float, float, float]) -> float:
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in color
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
