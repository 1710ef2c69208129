"""The questions of the study notes, answered by running code and told in two languages.

An experiment is a module: `measure` gives a frozen dataclass of numbers, `draw` a figure of them. The words
are in text/: prose in Markdown and labels in TOML, a file of each for each language. Numbers are put into the
prose, and which conclusion is told depends on them (see pages.py).
"""
