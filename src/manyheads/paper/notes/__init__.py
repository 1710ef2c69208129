"""The questions of the study notes, answered by experiments and reported in two languages.

Each experiment is a module: `measure` returns a frozen dataclass of numbers, `make_table` and `draw_figure`
show them. The text is in text/: prose in Markdown and labels in TOML, one file of each per language. The
numbers are filled into the prose, and select the conclusions (see pages.py).
"""
