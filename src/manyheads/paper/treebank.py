"""The treebank of Table 4: trees for training, validation and test, from files or the built-in grammar."""

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal, get_args

from manyheads import playground
from manyheads.config import SPLITS
from manyheads.errors import DataError
from manyheads.progress import Progress
from manyheads.text.invalid import InvalidRecord
from manyheads.text.trees import Tree, get_words, read_trees, remove_labels, strip_annotations

ParserInput = Literal["words", "tags", "both"]
PARSER_INPUTS: tuple[ParserInput, ...] = get_args(ParserInput)
SPLIT_NAMES = {"train": "train", "valid": "valid", "dev": "valid", "test": "test"}
NO_SPLIT = ""  # of a file whose name states no split
HOLD_OUT_EVERY = 20  # trees: one of them for valid and one for test
# Labels of other treebanks that the Wall Street Journal's does not have: parts of noun phrases, and the
# headings, captions and citations of CRAFT.
FOREIGN_LABELS = ("NML", "TITLE", "HEADING", "CAPTION", "CIT")
SUBSET_SEED = 1
BUILT_IN_NAME = "the built-in grammar"
BUILT_IN_SIZES = {"train": 20_000, "valid": 300, "test": 300}


@dataclass(frozen=True)
class Treebank:
    """Trees for training, validation and test, and notes on them.

    `name` names the training corpora, `test_name` those of the test set.
    """

    name: str
    test_name: str
    train: list[Tree]
    valid: list[Tree]
    test: list[Tree]
    notes: list[str] = field(default_factory=list)
    part_sizes: tuple[int, ...] = ()  # training trees of each file; those of the tested corpora come first

    def take_train(self, size: int) -> "Treebank":
        """Return a treebank with `size` training trees: random ones of each file, file after file.

        A larger size adds trees to those of a smaller one.
        """
        if not 0 < size <= len(self.train):
            raise DataError(
                f"--sizes has {size:,}, but there are {len(self.train):,} training trees: give at most that"
            )
        subset: list[Tree] = []
        bounds = [0, *accumulate(self.part_sizes or (len(self.train),))]
        for start, end in pairwise(bounds):
            part = self.train[start:end]
            random.Random(SUBSET_SEED).shuffle(part)
            subset += part
        return replace(self, train=subset[:size], part_sizes=())


def make_built_in_treebank(sizes: dict[str, int] | None = None) -> Treebank:
    """Generate a treebank of the built-in corpus."""
    counts = sizes or BUILT_IN_SIZES
    trees = playground.generate_treebank(
        train=counts["train"], valid=counts["valid"], test=counts["test"], seed=1
    )
    return Treebank(BUILT_IN_NAME, BUILT_IN_NAME, trees["train"], trees["valid"], trees["test"])


# ---- reading


def read_treebank(
    paths: Sequence[Path], progress: Progress, removed_labels: Collection[str] = FOREIGN_LABELS
) -> Treebank:
    """Read trees from files, and from all files of folders.

    From training trees of corpora without a test file, brackets with `removed_labels` are removed.
    """
    files = [file for path in paths for file in list_files(path)]
    by_split, notes = group_files(files)
    tested = {parse_corpus_name(file) for file in by_split.get("test", [])}
    splits: dict[str, list[Tree]] = {split: [] for split in SPLITS}
    train_parts: list[list[Tree]] = []
    for split, split_files in by_split.items():
        for file in sorted(split_files, key=lambda file: parse_corpus_name(file) not in tested):
            progress.update(f"reading {file.name}", 0, None)
            trees = read_valid_trees(file, split in ("valid", "test"), notes)
            if split == "train" and parse_corpus_name(file) not in tested:
                trees = remove_foreign_labels(trees, removed_labels, file, notes)
            for name, part in (hold_out(trees, file, notes) if split == NO_SPLIT else {split: trees}).items():
                splits[name] += part
                train_parts += [part] if name == "train" else []
    for split, trees in splits.items():
        if not trees:
            raise DataError(
                f"no trees for {split}: file names state the split, such as wsj.train.ptb, wsj.valid.ptb and "
                f"wsj.test.ptb; a file that states none is split, and needs {HOLD_OUT_EVERY} trees or more"
            )
    parts = remove_leakage(train_parts, [*splits["valid"], *splits["test"]], notes)
    train_name, test_name = (format_corpus_names(by_split, split) for split in ("train", "test"))
    train = [tree for part in parts for tree in part]
    sizes = tuple(map(len, parts))
    return Treebank(train_name, test_name, train, splits["valid"], splits["test"], notes, sizes)


def list_files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(path for path in path.iterdir() if path.is_file() and not path.name.startswith("."))
        if not files:
            raise DataError(f"{path}: the folder is empty; add files of bracketed trees, one tree per line")
        return files
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; give files of bracketed trees, one tree per line")
    return [path]


def parse_split(file: Path) -> str:
    """Return the split in a file name, such as train in wsj10.train.ptb.xz, or NO_SPLIT."""
    parts = file.name.lower().split(".")
    return next((SPLIT_NAMES[part] for part in parts if part in SPLIT_NAMES), NO_SPLIT)


def format_corpus_names(by_split: dict[str, list[Path]], split: str) -> str:
    """Return the names of the corpora of a split."""
    files = [*by_split.get(split, []), *by_split.get(NO_SPLIT, [])]
    return ", ".join(dict.fromkeys(map(parse_corpus_name, files)))


def parse_corpus_name(file: Path) -> str:
    """Return the corpus in a file name, such as wsj10 in wsj10.train.ptb.xz."""
    return file.name.partition(".")[0]


def group_files(files: Iterable[Path]) -> tuple[dict[str, list[Path]], list[str]]:
    """Group files by split. Validation files of corpora without a test file are left out."""
    by_split: dict[str, list[Path]] = {}
    for file in files:
        by_split.setdefault(parse_split(file), []).append(file)
    tested = {parse_corpus_name(file) for file in by_split.get("test", [])}
    notes = []
    if tested and "valid" in by_split:
        left_out = [file for file in by_split["valid"] if parse_corpus_name(file) not in tested]
        by_split["valid"] = [file for file in by_split["valid"] if file not in left_out]
        notes = [
            f"{file.name}: not read, since {parse_corpus_name(file)} has no test file" for file in left_out
        ]
    return {split: files for split, files in by_split.items() if files}, notes


def read_valid_trees(file: Path, strict: bool, notes: list[str]) -> list[Tree]:
    """Read trees without traces and function tags. Invalid lines are an error if `strict`, else a note."""
    trees: list[Tree] = []
    invalid: list[InvalidRecord] = []
    for item in read_trees(str(file)):
        if isinstance(item, InvalidRecord):
            invalid.append(item)
        elif tree := strip_annotations(item):
            trees.append(tree)
    if invalid and (strict or not trees):
        raise DataError(
            f"{invalid[0]}: correct it; each line must hold one complete tree, such as "
            f"(TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))"
        )
    if invalid:
        notes.append(
            f"{len(invalid)} lines of {file.name} are not trees and were skipped; the first: {invalid[0]}"
        )
    return trees


def remove_foreign_labels(
    trees: Sequence[Tree], labels: Collection[str], file: Path, notes: list[str]
) -> list[Tree]:
    pairs = [remove_labels(tree, labels) for tree in trees]
    if removed := sum(count for _, count in pairs):
        notes.append(f"{file.name}: {removed:,} brackets with {', '.join(sorted(labels))} removed")
    return [tree for tree, _ in pairs]


def hold_out(trees: Sequence[Tree], file: Path, notes: list[str]) -> dict[str, list[Tree]]:
    """Split a file: of each twenty trees the last goes to test, the one before it to valid."""
    notes.append(
        f"{file.name}: of each {HOLD_OUT_EVERY} trees the last is held out for test, the one before for valid"
    )
    splits: dict[str, list[Tree]] = {split: [] for split in SPLITS}
    for index, tree in enumerate(trees):
        split = {HOLD_OUT_EVERY - 2: "valid", HOLD_OUT_EVERY - 1: "test"}.get(index % HOLD_OUT_EVERY, "train")
        splits[split].append(tree)
    return splits


def remove_leakage(
    train_parts: Sequence[list[Tree]], held_out: Sequence[Tree], notes: list[str]
) -> list[list[Tree]]:
    """Return the training trees, file by file, whose sentence is not held out."""
    sentences = {tuple(get_words(tree)) for tree in held_out}
    kept = [[tree for tree in part if tuple(get_words(tree)) not in sentences] for part in train_parts]
    removed = sum(map(len, train_parts)) - sum(map(len, kept))
    if removed:
        notes.append(f"{removed} training sentences are also in valid or test: removed")
    if not any(kept):
        raise DataError("no training tree is left: every sentence of train is also in valid or test")
    return kept
