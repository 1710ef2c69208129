"""The attention page in a notebook."""

import html
from typing import Any

from manyheads.errors import RequestError
from manyheads.look.attention_data import build_attention_data
from manyheads.look.html import render_page
from manyheads.translation import AttentionMaps

DEFAULT_HEIGHT = 760  # pixels


def show(attention: AttentionMaps, height: int = DEFAULT_HEIGHT) -> Any:
    """Return the page in a sandboxed frame, which cannot reach the notebook but can download pictures."""
    try:
        from IPython.display import HTML
    except ImportError:
        raise RequestError(
            "show() needs a notebook, and IPython is not installed: pip install ipython, or write a page "
            "with `manyheads look`"
        ) from None
    page = html.escape(render_page(build_attention_data(attention)))
    return HTML(
        f'<div><iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="Attention" '
        f'style="width: 100%; height: {height:d}px; border: 0"></iframe></div>'
    )
