"""Completing a recipe: languages inferred from file names, names for inputs, and the checks of both."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from manyheads.config import SPLITS, CorpusConfig, InputConfig, Recipe
from manyheads.errors import ConfigError, DataError
from manyheads.text.input_files import strip_compression_suffix
from manyheads.text.languages import check_language, get_base_language, is_known_language
from manyheads.text.subwords import SubwordPair


def complete_recipe(recipe: Recipe) -> Recipe:
    """Fill in languages that the recipe leaves open from the file names, and name every input."""
    if not recipe.train:
        raise ConfigError("no training text: give --train FILE twice, source and target, or one file of both")
    source, target = recipe.corpus.source, recipe.corpus.target
    if not (source and target):
        inferred = infer_languages(recipe.train)
        source, target = source or inferred[0], target or inferred[1]
    corpus = replace(recipe.corpus, source=source, target=target)
    if all(input_config.tag for input_config in recipe.train) and not recipe.valid:
        raise ConfigError(
            "every training text has a tag, as synthetic text has, and held-out pairs are never taken from "
            "it: give --valid, or real text"
        )
    for split in SPLITS:
        for input_config in getattr(recipe, split):
            check_file_languages(input_config, corpus)
    inputs: dict[str, Any] = {split: tuple(name_inputs(getattr(recipe, split))) for split in SPLITS}
    return add_tag_symbols(replace(recipe, corpus=corpus, **inputs))


def add_tag_symbols(recipe: Recipe) -> Recipe:
    """Make the tags of inputs symbols that are never split."""
    tags = [input_config.tag for input_config in recipe.train if input_config.tag]
    symbols = tuple(dict.fromkeys([*recipe.subwords.user_symbols, *tags]))
    return replace(recipe, subwords=replace(recipe.subwords, user_symbols=symbols))


def check_tags(recipe: Recipe, subwords: SubwordPair) -> None:
    """Refuse tags that the subwords of another folder do not have."""
    for input_config in recipe.train:
        if input_config.tag and input_config.tag not in subwords.source.pieces:
            raise ConfigError(
                f"the tag {input_config.tag!r} is no piece of the subwords of {recipe.subwords.reuse_from}: "
                f"prepare those with subwords.user_symbols, or leave the tag out"
            )


def infer_languages(inputs: Sequence[InputConfig]) -> tuple[str, str]:
    """Return the languages that file names state: train.en.xz and train.ko.xz are English and Korean."""
    for input_config in inputs:
        codes = get_suffix_codes(input_config)
        if len(codes) == 2 and codes[0] != codes[1] and all(map(is_known_language, codes)):
            return codes[0], codes[1]
    for file in (file for input_config in inputs for file in input_config.files):
        if not os.path.exists(file):
            raise DataError(f"{file}: No such file or directory")
    raise ConfigError("the languages are not known, and no file name states them: give --pair en-ko")


def get_suffix_codes(input_config: InputConfig) -> list[str]:
    """Return the suffix of each file without its compression: en of train.en.xz."""
    return [strip_compression_suffix(file).suffix[1:] for file in input_config.files]


def check_file_languages(input_config: InputConfig, corpus: CorpusConfig) -> None:
    """Refuse wrong codes, and files whose suffix is another language than their side."""
    languages = corpus.source, corpus.target
    for code in languages:
        check_language(code)
    if len(input_config.files) != 2:
        return
    for file, code, wanted in zip(input_config.files, get_suffix_codes(input_config), languages, strict=True):
        if is_known_language(code) and get_base_language(code) != get_base_language(wanted):
            raise ConfigError(
                f"{file} is given for {wanted}, but its suffix is {code}: give the source first, then the "
                f"target; the languages are {corpus.source} and {corpus.target} (--pair)"
            )


def name_inputs(inputs: Iterable[InputConfig]) -> Iterator[InputConfig]:
    """Name each input after its first file unless it has a name, and number those with the same name."""
    counts: Counter[str] = Counter()
    for input_config in inputs:
        name = input_config.name or strip_compression_suffix(input_config.files[0]).stem
        counts[name] += 1
        yield replace(input_config, name=name if counts[name] == 1 else f"{name}-{counts[name]}")
