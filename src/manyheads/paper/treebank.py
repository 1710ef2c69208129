"""Trees for Table 4: which are learned from and which are held out, and the data folder that training reads.

A sentence is the source, its tree without the words the target, so that preparing, training and searching are
those of translation. Every bracket and every tag is one piece, which the subwords never split.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from manyheads import playground
from manyheads.config import NUM_SPECIAL_TOKENS, SPLITS, Recipe, SubwordConfig
from manyheads.data.prepare import prepare
from manyheads.data.store import Store
from manyheads.errors import DataError
from manyheads.progress import Progress
from manyheads.text.corpus import InvalidRecord
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from manyheads.text.trees import Leaf, Tree, get_leaves, get_words, linearize, read_trees, strip_annotations

ParserInput = Literal["words", "tags", "both"]
PARSER_INPUTS: tuple[ParserInput, ...] = get_args(ParserInput)
SPLIT_NAMES = {"train": "train", "valid": "valid", "dev": "valid", "test": "test"}
NO_SPLIT = ""  # the split of a file whose name tells none
HOLD_OUT_EVERY = 20  # of so many trees without a split one is valid's and one is test's
SOURCE_LANGUAGE, TARGET_LANGUAGE = "und", "und-x-tree"  # the languages of the data folder: any, and brackets
MIN_VOCAB_SIZE = 300  # of which 256 are bytes
BUILT_IN_NAME = "the built-in grammar"
BUILT_IN_SIZES = {"train": 20_000, "valid": 300, "test": 300}


@dataclass(frozen=True)
class Treebank:
    """Trees to learn from, to choose by, and to be judged by; and what is worth knowing of them.

    `name` is of what is learned from, `judged_by` of the test.
    """

    name: str
    test_name: str
    train: list[Tree]
    valid: list[Tree]
    test: list[Tree]
    notes: list[str] = field(default_factory=list)


def make_built_in_treebank(sizes: dict[str, int] | None = None) -> Treebank:
    """Of the sentences of the built-in corpus."""
    wanted = sizes or BUILT_IN_SIZES
    made = playground.generate_treebank(
        train=wanted["train"], valid=wanted["valid"], test=wanted["test"], seed=1
    )
    return Treebank(BUILT_IN_NAME, BUILT_IN_NAME, made["train"], made["valid"], made["test"])


# ---- reading


def read_treebank(paths: Sequence[Path], progress: Progress) -> Treebank:
    """The trees of files, and of all files of folders."""
    files = [file for place in paths for file in list_files(place)]
    chosen, notes = group_files(files)
    splits: dict[str, list[Tree]] = {split: [] for split in SPLITS}
    for split, own in chosen.items():
        for file in own:
            progress.update(f"reading {file.name}", 0, None)
            trees = read_valid_trees(file, split in ("valid", "test"), notes)
            for name, some in (hold_out(trees, file, notes) if split == NO_SPLIT else {split: trees}).items():
                splits[name] += some
    for split, trees in splits.items():
        if not trees:
            raise DataError(
                f"no trees for {split}: names tell the splits, such as wsj.train.ptb, wsj.valid.ptb and "
                f"wsj.test.ptb; a file whose name tells none is parted, and needs {HOLD_OUT_EVERY} trees or more"
            )
    kept = remove_leakage(splits, notes)
    learned, judged = (format_corpus_names(chosen, split) for split in ("train", "test"))
    return Treebank(learned, judged, kept, splits["valid"], splits["test"], notes)


def list_files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(path for path in path.iterdir() if path.is_file() and not path.name.startswith("."))
        if not found:
            raise DataError(f"{path}: an empty folder; put files of trees into it, one tree a line")
        return found
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; give files of bracketed trees, one tree a line")
    return [path]


def parse_split(file: Path) -> str:
    """train of wsj10.train.ptb.xz; nothing where the name tells none."""
    parts = file.name.lower().split(".")
    return next((SPLIT_NAMES[part] for part in parts if part in SPLIT_NAMES), NO_SPLIT)


def format_corpus_names(chosen: dict[str, list[Path]], split: str) -> str:
    """The corpora that a split comes from."""
    files = [*chosen.get(split, []), *chosen.get(NO_SPLIT, [])]
    return ", ".join(dict.fromkeys(map(parse_corpus_name, files)))


def parse_corpus_name(file: Path) -> str:
    """wsj10 of wsj10.train.ptb.xz."""
    return file.name.partition(".")[0]


def group_files(files: Iterable[Path]) -> tuple[dict[str, list[Path]], list[str]]:
    """Files by split. Valid and test are of corpora that have a test; the others are more to learn from."""
    by_split: dict[str, list[Path]] = {}
    for file in files:
        by_split.setdefault(parse_split(file), []).append(file)
    judged = {parse_corpus_name(file) for file in by_split.get("test", [])}
    notes = []
    if judged and "valid" in by_split:
        left_out = [file for file in by_split["valid"] if parse_corpus_name(file) not in judged]
        by_split["valid"] = [file for file in by_split["valid"] if file not in left_out]
        notes = [f"{file.name}: not read, for {parse_corpus_name(file)} has no test" for file in left_out]
    return {split: own for split, own in by_split.items() if own}, notes


def read_valid_trees(file: Path, strict: bool, notes: list[str]) -> list[Tree]:
    """Without traces and function tags. What is no tree stops the work, or is told and left out of train."""
    trees: list[Tree] = []
    bad: list[InvalidRecord] = []
    for found in read_trees(str(file)):
        if isinstance(found, InvalidRecord):
            bad.append(found)
        elif kept := strip_annotations(found):
            trees.append(kept)
    if bad and (strict or not trees):
        raise DataError(
            f"{bad[0]}: mend it; a file has one whole tree a line, such as (TOP (S (NP (DT The) (NN cat)) "
            f"(VP (VBZ sleeps)) (. .)))"
        )
    if bad:
        notes.append(f"{len(bad)} lines of {file.name} are no trees and left out; the first: {bad[0]}")
    return trees


def hold_out(trees: Sequence[Tree], file: Path, notes: list[str]) -> dict[str, list[Tree]]:
    """A file without a split: of each twenty trees in order the last is test's, the one before it valid's."""
    notes.append(
        f"{file.name}: of each {HOLD_OUT_EVERY} trees the last is set apart for test, the one before it for valid"
    )
    splits: dict[str, list[Tree]] = {split: [] for split in SPLITS}
    for place, tree in enumerate(trees):
        splits[
            {HOLD_OUT_EVERY - 2: "valid", HOLD_OUT_EVERY - 1: "test"}.get(place % HOLD_OUT_EVERY, "train")
        ].append(tree)
    return splits


def remove_leakage(splits: dict[str, list[Tree]], notes: list[str]) -> list[Tree]:
    """The training trees whose sentence stands in neither of the others."""
    held = {tuple(get_words(tree)) for split in ("valid", "test") for tree in splits[split]}
    kept = [tree for tree in splits["train"] if tuple(get_words(tree)) not in held]
    if len(kept) < len(splits["train"]):
        notes.append(
            f"{len(splits['train']) - len(kept)} training sentences stand in valid or test: left out"
        )
    if not kept:
        raise DataError("no training tree is left: every sentence of train stands in valid or test too")
    return kept


# ---- the data folder


def format_source(sentence: Sequence[Leaf], parser_input: ParserInput) -> str:
    """What the model reads of a sentence. A tag is one piece, and stands before its word."""
    if parser_input == "words":
        return " ".join(leaf.word for leaf in sentence)
    return "".join(f"[{leaf.tag}]{leaf.word if parser_input == 'both' else ''}" for leaf in sentence)


def format_target(tree: Tree) -> str:
    """What it is to write: tags that it has read too, by which it finds its place in the sentence."""
    return "".join(linearize(tree))


def prepare_data(
    trees: Treebank, parser_input: ParserInput, vocab_size: int, folder: Path, progress: Progress
) -> Store:
    """The data, made now or by an earlier call from the same trees."""
    texts = {folder / f"{split}.tsv": format_tsv(getattr(trees, split), parser_input) for split in SPLITS}
    if (folder / "data").exists():
        if any(not file.exists() or file.read_text(encoding="utf-8") != text for file, text in texts.items()):
            raise DataError(f"{folder}: was made of other trees than these; choose another folder with --out")
        return Store.open(folder / "data")
    (folder / "subwords").mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8", newline="\n")
    progress.update("learning subwords", 0, None)
    train_subwords(trees.train, parser_input, vocab_size).save(folder / "subwords")
    return prepare(make_recipe(folder), folder / "data", report_progress=progress.update)


def format_tsv(trees: Iterable[Tree], parser_input: ParserInput) -> str:
    """Source and target of a tree on a line, with a tab between them."""
    return "".join(
        f"{format_source(get_leaves(tree), parser_input)}\t{format_target(tree)}\n" for tree in trees
    )


def make_recipe(folder: Path) -> Recipe:
    """Nothing is filtered: a sentence and its tree are no translations, and many sentences have one tree."""
    inputs = {split: [{"files": [f"{folder}/{split}.tsv"]}] for split in SPLITS}
    no_filter = {
        **dict.fromkeys(("script", "identical", "duplicates", "leakage"), False),
        "markup": "ignore",
        "max_length": None,
        "max_length_ratio": None,
    }
    corpus = {"source": SOURCE_LANGUAGE, "target": TARGET_LANGUAGE}
    pieces = {"reuse_from": f"{folder}/subwords"}
    return Recipe.from_mapping({**inputs, "corpus": corpus, "clean": no_filter, "subwords": pieces})


def train_subwords(trees: Sequence[Tree], parser_input: ParserInput, vocab_size: int) -> SubwordPair:
    """Of the source words and tags, of the target brackets and tags alone."""
    sentences = [get_leaves(tree) for tree in trees]
    sources = [format_source(sentence, parser_input) for sentence in sentences]
    targets = [format_target(tree) for tree in trees]
    brackets = {token for tree in trees for token in linearize(tree)}
    tags = {f"[{leaf.tag}]" for sentence in sentences for leaf in sentence}
    if parser_input == "tags":
        return SubwordPair(train_symbol_subwords(sources, tags), train_symbol_subwords(targets, brackets))
    own = tags if parser_input == "both" else set[str]()
    return SubwordPair(
        train_word_subwords(sources, own, vocab_size), train_symbol_subwords(targets, brackets)
    )


def train_symbol_subwords(texts: Sequence[str], all_of_them: set[str]) -> SubwordTokenizer:
    """Pieces for texts that consist of symbols and nothing else."""
    size = NUM_SPECIAL_TOKENS + len(all_of_them) + 1  # and the space that SentencePiece begins a text with
    config = SubwordConfig(vocab_size=size, byte_fallback=False, user_symbols=tuple(sorted(all_of_them)))
    return SubwordTokenizer.train(texts, config)


def train_word_subwords(texts: Sequence[str], reserved: set[str], vocab_size: int) -> SubwordTokenizer:
    """Pieces of words, as many as asked for; half of that, and so on, where there are too few words."""
    config = SubwordConfig(vocab_size=vocab_size, user_symbols=tuple(sorted(reserved)))
    try:
        return SubwordTokenizer.train(texts, config)
    except DataError:
        if vocab_size < 2 * MIN_VOCAB_SIZE:
            raise
        return train_word_subwords(texts, reserved, vocab_size // 2)
