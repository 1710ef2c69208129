"""The data folder of a parser: the sentence is the source, its linearized tree without the words the target.

Preparing, training and decoding are then those of translation. Every bracket and every tag is one subword.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from manyheads.config import NUM_SPECIAL_TOKENS, SPLITS, Recipe, SubwordConfig
from manyheads.data.prepare import prepare
from manyheads.data.store import Store
from manyheads.errors import DataError
from manyheads.paper.treebank import ParserInput, Treebank
from manyheads.progress import Progress
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from manyheads.text.trees import Leaf, Tree, get_leaves, linearize

SOURCE_LANGUAGE, TARGET_LANGUAGE = "und", "und-x-tree"  # any language, and brackets
MIN_VOCAB_SIZE = 300  # of which 256 are bytes


def format_source(sentence: Sequence[Leaf], parser_input: ParserInput) -> str:
    """Return the model input of a sentence. A tag is one subword and precedes its word."""
    if parser_input == "words":
        return " ".join(leaf.word for leaf in sentence)
    return "".join(f"[{leaf.tag}]{leaf.word if parser_input == 'both' else ''}" for leaf in sentence)


def format_target(tree: Tree) -> str:
    """Return the model output of a tree: brackets and tags, which align it with the words."""
    return "".join(linearize(tree))


def prepare_data(
    trees: Treebank, parser_input: ParserInput, vocab_size: int, folder: Path, progress: Progress
) -> Store:
    """Open the data folder of these trees, and prepare it if it does not exist."""
    texts = {folder / f"{split}.tsv": format_tsv(getattr(trees, split), parser_input) for split in SPLITS}
    if (folder / "data").exists():
        if any(not file.exists() or file.read_text(encoding="utf-8") != text for file, text in texts.items()):
            raise DataError(f"{folder}: was made from other trees; choose another folder with --out")
        return Store.open(folder / "data")
    (folder / "subwords").mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8", newline="\n")
    progress.update("training subwords", 0, None)
    train_subwords(trees.train, parser_input, vocab_size).save(folder / "subwords")
    return prepare(make_recipe(folder), folder / "data", report_progress=progress.update)


def format_tsv(trees: Iterable[Tree], parser_input: ParserInput) -> str:
    """Return one line per tree: source, tab, target."""
    return "".join(
        f"{format_source(get_leaves(tree), parser_input)}\t{format_target(tree)}\n" for tree in trees
    )


def make_recipe(folder: Path) -> Recipe:
    """Return a recipe without filters: a tree is not a translation, and many sentences share a tree."""
    inputs = {split: [{"files": [f"{folder}/{split}.tsv"]}] for split in SPLITS}
    no_filter = {
        **dict.fromkeys(("script", "identical", "duplicates", "leakage"), False),
        "markup": "ignore",
        "max_length": None,
        "max_length_ratio": None,
    }
    corpus = {"source": SOURCE_LANGUAGE, "target": TARGET_LANGUAGE}
    subwords = {"reuse_from": f"{folder}/subwords"}
    return Recipe.from_mapping({**inputs, "corpus": corpus, "clean": no_filter, "subwords": subwords})


def train_subwords(trees: Sequence[Tree], parser_input: ParserInput, vocab_size: int) -> SubwordPair:
    """Train subwords of words and tags for the source, of brackets and tags for the target."""
    sentences = [get_leaves(tree) for tree in trees]
    sources = [format_source(sentence, parser_input) for sentence in sentences]
    targets = [format_target(tree) for tree in trees]
    brackets = {token for tree in trees for token in linearize(tree)}
    tags = {f"[{leaf.tag}]" for sentence in sentences for leaf in sentence}
    if parser_input == "tags":
        return SubwordPair(train_symbol_subwords(sources, tags), train_symbol_subwords(targets, brackets))
    source_symbols = tags if parser_input == "both" else set[str]()
    return SubwordPair(
        train_word_subwords(sources, source_symbols, vocab_size), train_symbol_subwords(targets, brackets)
    )


def train_symbol_subwords(texts: Sequence[str], symbols: set[str]) -> SubwordTokenizer:
    """Train subwords for texts that consist of symbols only."""
    size = NUM_SPECIAL_TOKENS + len(symbols) + 1  # and the space that SentencePiece prepends
    config = SubwordConfig(
        vocab_size=size,
        byte_fallback=False,
        copy_symbols=False,
        term_symbols=False,
        user_symbols=tuple(sorted(symbols)),
    )
    return SubwordTokenizer.train(texts, config)


def train_word_subwords(texts: Sequence[str], symbols: set[str], vocab_size: int) -> SubwordTokenizer:
    """Train `vocab_size` subwords; half as many, repeatedly, where there are too few words."""
    config = SubwordConfig(
        vocab_size=vocab_size, copy_symbols=False, term_symbols=False, user_symbols=tuple(sorted(symbols))
    )
    try:
        return SubwordTokenizer.train(texts, config)
    except DataError:
        if vocab_size < 2 * MIN_VOCAB_SIZE:
            raise
        return train_word_subwords(texts, symbols, vocab_size // 2)
