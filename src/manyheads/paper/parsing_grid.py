"""The parsers of Table 4: a Transformer for each input, number of trees, number of steps and seed; grammars.

Numbers of trees and of steps vary independently, so that what more trees are worth is not confused with what
more training is worth.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from manyheads.config import Config
from manyheads.errors import ConfigError
from manyheads.evaluate.evalb import BracketScores, score_trees
from manyheads.paper.cky import CkyParser
from manyheads.paper.parsing import ParserEvaluation, match_punctuation, train_and_evaluate
from manyheads.paper.pcfg import Grammar
from manyheads.paper.treebank import ParserInput, Treebank
from manyheads.progress import Progress
from manyheads.text.trees import ROOT, Leaf, Tree, get_leaves

FALLBACK_LABEL = "S"  # of a sentence without a parse


@dataclass(frozen=True)
class ParserGrid:
    """What is trained: every combination."""

    inputs: Sequence[ParserInput]
    sizes: Sequence[int]  # training trees; empty: all
    steps: Sequence[int]  # empty: the config's
    seeds: int

    def list_runs(self, config: Config) -> Iterator[tuple[str, ParserInput, int | None, Config]]:
        """Yield the folder, input, number of trees and config of each run."""
        sizes: Sequence[int | None] = self.sizes or [None]
        step_counts: Sequence[int | None] = self.steps or [None]
        for parser_input in self.inputs:
            for size in sizes:
                for steps in step_counts:
                    for seed in range(1, self.seeds + 1):
                        parts = [
                            parser_input,
                            f"{size}trees" if size else "",
                            f"{steps}steps" if steps else "",
                        ]
                        name = "-".join([*filter(None, parts), f"seed{seed}"])
                        train = replace(config.train, seed=seed)
                        if steps:
                            train = replace(train, steps=steps)
                        yield name, parser_input, size, replace(config, train=train)


def parse_numbers(option: str, text: str | None) -> list[int]:
    """Parse numbers such as 850,1700; an empty list if there is no text."""
    try:
        numbers = [int(number.replace("_", "")) for number in text.split(",")] if text else []
    except ValueError:
        numbers = [0]
    if any(number < 1 for number in numbers) or len(set(numbers)) < len(numbers):
        raise ConfigError(f"{option} is {text!r}, but must be different numbers above 0, such as 850,3394")
    return numbers


@dataclass(frozen=True)
class GrammarEvaluation:
    """The parses of the test set by a grammar, and their scores."""

    parser_input: ParserInput
    train_trees: int
    num_rules: int
    score: BracketScores
    no_parse: int  # sentences without one, which got a flat tree
    seconds: float  # of estimating and parsing

    def to_dict(self) -> dict[str, Any]:
        names = ("parser_input", "train_trees", "num_rules", "no_parse", "seconds")
        return {**{name: getattr(self, name) for name in names}, **self.score.to_dict()}


@dataclass(frozen=True)
class ParserGroup:
    """The evaluations of one kind of parser, with several seeds."""

    evaluations: Sequence[ParserEvaluation]

    @property
    def first(self) -> ParserEvaluation:
        return self.evaluations[0]

    def mean(self, read: Callable[[ParserEvaluation], float]) -> float:
        return fmean(map(read, self.evaluations))

    @property
    def f1_std(self) -> float | None:
        """Standard deviation of F1 between seeds."""
        values = [evaluation.score.f1 for evaluation in self.evaluations]
        return stdev(values) if len(values) > 1 else None


def group_by_seed(results: Sequence[ParserEvaluation]) -> list[ParserGroup]:
    """Join the results that differ in their seed only."""
    groups: dict[tuple[str, int, int], list[ParserEvaluation]] = {}
    for result in results:
        groups.setdefault((result.parser_input, result.train_trees, result.steps), []).append(result)
    return [ParserGroup(group) for group in groups.values()]


def evaluate_grid(
    treebank: Treebank,
    grid: ParserGrid,
    config: Config,
    vocab_size: int,
    out: Path,
    device: str | None,
    make_progress: Callable[[], Progress],
) -> list[ParserEvaluation] | None:
    """Train and evaluate what is not trained yet. None: stopped by a signal; the same call resumes."""
    results = []
    for name, parser_input, size, run_config in grid.list_runs(config):
        trees = treebank.take_train(size) if size else treebank
        result = train_and_evaluate(
            trees, parser_input, run_config, vocab_size, out / name, device, make_progress
        )
        if result is None:
            return None
        results.append(result)
    return results


def evaluate_grammars(treebank: Treebank, grid: ParserGrid, progress: Progress) -> list[GrammarEvaluation]:
    """Estimate and evaluate a grammar for each input and number of trees."""
    grammars = []
    for size in grid.sizes or [len(treebank.train)]:
        trees = treebank.take_train(size)
        start = time.process_time()
        grammar = Grammar.estimate(trees.train)
        estimated = time.process_time() - start
        for gold_tags in sorted({parser_input != "words" for parser_input in grid.inputs}):
            start = time.process_time()
            parses, no_parse = parse_with_grammar(grammar, treebank.test, gold_tags, progress)
            grammars.append(
                GrammarEvaluation(
                    "tags" if gold_tags else "words",
                    len(trees.train),
                    grammar.num_rules,
                    score_trees(treebank.test, parses),
                    no_parse,
                    estimated + time.process_time() - start,
                )
            )
    return grammars


def parse_with_grammar(
    grammar: Grammar, gold: Sequence[Tree], gold_tags: bool, progress: Progress
) -> tuple[list[Tree], int]:
    """Parse the sentences of gold trees. Return the trees to score, and how many sentences had none."""
    parser, trees, no_parse = CkyParser(grammar), [], 0
    for done, tree in enumerate(gold, 1):
        sentence: list[Leaf] = get_leaves(tree)
        parse = parser.parse(sentence, gold_tags=gold_tags)
        if parse is None:
            no_parse += 1
            tags = [leaf.tag if gold_tags else "" for leaf in sentence]
            leaves = [Leaf(tag or "XX", leaf.word) for tag, leaf in zip(tags, sentence, strict=True)]
            parse = Tree(ROOT, (Tree(FALLBACK_LABEL, tuple(leaves)),))
        trees.append(match_punctuation(parse, tree)[0])
        progress.update("parsing with a grammar", done, len(gold))
    return trees, no_parse
