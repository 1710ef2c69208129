"""Formulas: LaTeX between dollar signs becomes MathML, which browsers draw without a script.

A formula is replaced by a word that Markdown does not touch, and put in place when the page is HTML.
"""

import re

from latex2mathml.converter import convert

CODE = r"^(?:```|~~~).*?^(?:```|~~~)[ ]*$|`[^`\n]+`"
FORMULA = re.compile(
    rf"({CODE})|\$\$(.+?)\$\$|(?<![\\$A-Za-z0-9])\$(?![\s$])([^$\n]+?)(?<!\s)\$(?![A-Za-z0-9$])", re.M | re.S
)
PLACEHOLDER = "formula{}placeholder"


def take_formulas(markdown: str) -> tuple[str, list[str]]:
    """Return the text with a word for each formula, and the formulas as MathML."""
    formulas: list[str] = []

    def replace(match: re.Match[str]) -> str:
        code, block, inline = match.groups()
        if code is not None:
            return str(code)
        formulas.append(render_formula(block or inline, is_block=block is not None))
        return PLACEHOLDER.format(len(formulas) - 1)

    return FORMULA.sub(replace, markdown), formulas


def put_formulas(html: str, formulas: list[str]) -> str:
    """Return the page with its formulas."""
    for index, formula in enumerate(formulas):
        word = PLACEHOLDER.format(index)
        html = html.replace(f"<p>{word}</p>", formula).replace(word, formula)
    return html


def render_formula(latex: str, *, is_block: bool) -> str:
    markup = convert(" ".join(latex.split()), display="block" if is_block else "inline")
    return f'<div class="formula" tabindex="0">{markup}</div>' if is_block else markup
