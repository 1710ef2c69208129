"""The built-in corpus: English-Korean and English-German sentence pairs without end, from a seed.

A meaning is sampled (sentences.py) and then realized in two languages (english.py, korean.py, german.py). The
target is a function of the source: an English sentence has one Korean sentence in each register, and one
German sentence.
"""

from manyheads.playground.constructions import CONSTRUCTIONS
from manyheads.playground.generate import (
    PAIRS,
    REGISTERS,
    PlaygroundExample,
    assign_split,
    generate_corpus,
    generate_examples,
    generate_treebank,
)

__all__ = [
    "CONSTRUCTIONS",
    "PAIRS",
    "REGISTERS",
    "PlaygroundExample",
    "assign_split",
    "generate_corpus",
    "generate_examples",
    "generate_treebank",
]
