"""The page inside a notebook."""

import html
from typing import Any

from manyheads.errors import RequestError
from manyheads.look.attention_data import build_attention_data
from manyheads.look.html import render_page
from manyheads.translator import Attention


def show(attention: Attention, height: int) -> Any:
    """A frame of its own, which can run its program and save pictures, and reach nothing of the notebook."""
    try:
        from IPython.display import HTML
    except ImportError:
        raise RequestError(
            "show() is for notebooks, and IPython is not installed: pip install ipython, or write a page "
            "with `manyheads look`"
        ) from None
    inside = html.escape(render_page(build_attention_data(attention)))
    return HTML(
        f'<div><iframe srcdoc="{inside}" sandbox="allow-scripts allow-downloads" title="Attention" '
        f'style="width: 100%; height: {height:d}px; border: 0"></iframe></div>'
    )
