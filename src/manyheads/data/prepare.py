"""From files to a data folder: read, clean, train subwords, encode, store. Everything dropped is listed.

Text is processed as a stream. Training pairs that pass the filters are spooled to disk until the subwords are
trained on a sample of them. Memory grows by eight bytes a pair, for finding duplicates.
"""

from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from manyheads.atomic_io import atomic_directory, write_manifest
from manyheads.config import SPLITS, CorpusConfig, InputConfig, Recipe
from manyheads.data.filtering import (
    DropLog,
    InputReport,
    drop_duplicates,
    drop_judged_bad,
    explain_empty,
    filter_pairs,
    make_byte_progress,
    read_normalized_pairs,
)
from manyheads.data.held_out import HeldOut, index_sides, load_held_out
from manyheads.data.integrity import VERIFIED
from manyheads.data.judged import JudgedScores, ScorePass
from manyheads.data.recipe import check_tags, complete_recipe
from manyheads.data.store import DATA_SCHEMA, DROPPED, MANIFEST, Store
from manyheads.data.tokenize import CHUNK_PAIRS, Spool, TokenCounts, encode_split, train_subwords
from manyheads.errors import DataError
from manyheads.progress import Progress, ReportProgress
from manyheads.text.casing import CaseCounter
from manyheads.text.clean import Cleaner, SeenKeys
from manyheads.text.corpus import SentencePair
from manyheads.text.subwords import SubwordPair

SILENT = Progress()


def prepare(
    recipe: Recipe, folder: Path, *, force: bool = False, report_progress: ReportProgress = SILENT.update
) -> Store:
    """Make a data folder by a recipe. `force` replaces an existing one."""
    recipe = complete_recipe(recipe)
    reused = SubwordPair.load(recipe.subwords.reuse_from) if recipe.subwords.reuse_from else None
    if reused:
        check_tags(recipe, reused)
    judged = JudgedScores.load(Path(recipe.clean.judged), recipe.clean.keep) if recipe.clean.judged else None
    with atomic_directory(folder, MANIFEST, force, unlisted=(VERIFIED,)) as aside:
        with (aside / DROPPED).open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            log = DropLog(recipe.corpus.on_invalid, file)
            held_out, reports = load_held_out(recipe, judged, log, report_progress)
            counter = make_case_counter(recipe)
            with Spool(aside) as spool:
                reports["train"] = read_training(
                    recipe, held_out, judged, log, spool, counter, report_progress
                )
        subwords = reused or train_subwords(recipe, spool, report_progress)
        if counter:
            subwords = replace(subwords, casing=counter.build())
        subwords.save(aside)
        tags = [input_config.tag for input_config in recipe.train if input_config.tag]
        counts = {
            "train": encode_split(aside, "train", subwords, spool.pairs(), spool.count, report_progress, tags)
        }
        for split, pairs in held_out.items():
            counts[split] = encode_split(aside, split, subwords, iter(pairs), len(pairs), report_progress)
            write_text(aside, split, recipe.corpus, pairs)
        spool.remove()
        report_progress("computing checksums", 0, None)
        write_manifest(aside, DATA_SCHEMA, build_manifest(recipe, subwords, reports, counts))
    return Store.open(folder)


def make_case_counter(recipe: Recipe) -> CaseCounter | None:
    """Return what learns the case lexicon; None if there is to be none, or that of the reused subwords."""
    if recipe.subwords.reuse_from or not recipe.subwords.case_lexicon:
        return None
    return CaseCounter.for_language(recipe.corpus.source)


def read_training(
    recipe: Recipe,
    held_out: HeldOut,
    judged: JudgedScores | None,
    log: DropLog,
    spool: Spool,
    counter: CaseCounter | None,
    report_progress: ReportProgress,
) -> list[InputReport]:
    """Read, filter and spool the training pairs. `counter` sees the sources, without tags."""
    sampled = [split for split in held_out if not getattr(recipe, split)]
    sampled_pairs = {(pair.source, pair.target): split for split in sampled for pair in held_out[split]}
    cleaner = Cleaner(recipe.clean, recipe.corpus, index_sides(held_out))
    scores = judged.start_pass() if judged else None
    seen = SeenKeys() if recipe.clean.duplicates else None
    progress = make_byte_progress("reading train", recipe.train, report_progress)
    reports = []
    for input_config in recipe.train:
        report = InputReport(input_config.name, input_config.files, input_config.weight)
        pairs = read_normalized_pairs(input_config, "train", cleaner, log, report, progress)
        own_scores = select_scores(scores, input_config)
        while chunk := list(islice(pairs, CHUNK_PAIRS)):
            plausible = list(drop_judged_bad(chunk, own_scores, log, report))
            kept = list(filter_pairs(plausible, cleaner, sampled_pairs, log, report))
            if seen:
                kept = list(drop_duplicates(kept, seen, log, report))
            if counter:
                counter.add(pair.source for pair in kept)
            spool.write(add_tag(kept, input_config.tag))
            report.kept += len(kept)
        reports.append(report)
    if not spool.count:
        raise DataError(f"no training pair is left: {explain_empty(reports)}")
    return reports


def select_scores(scores: ScorePass | None, input_config: InputConfig) -> ScorePass | None:
    """Return the scores of an input. Synthetic text may be made after the rest was judged, and have none."""
    if scores is None or (input_config.tag and input_config.files[0] not in scores.judged.by_file):
        return None
    return scores


def add_tag(pairs: list[SentencePair], tag: str) -> list[SentencePair]:
    """Put the tag of an input before its sources. Filters have seen them without it."""
    return [pair._replace(source=f"{tag} {pair.source}") for pair in pairs] if tag else pairs


def write_text(folder: Path, split: str, corpus: CorpusConfig, pairs: list[SentencePair]) -> None:
    for side, language in enumerate((corpus.source, corpus.target)):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")


def build_manifest(
    recipe: Recipe,
    subwords: SubwordPair,
    reports: dict[str, list[InputReport]],
    counts: dict[str, dict[str, TokenCounts]],
) -> dict[str, Any]:
    reused = recipe.subwords.reuse_from
    return {
        "languages": {"source": recipe.corpus.source, "target": recipe.corpus.target},
        "splits": {
            split: {
                "pairs": sum(report.kept for report in reports[split]),
                **{side: asdict(side_counts) for side, side_counts in counts[split].items()},
                "inputs": [report.as_dict() for report in reports[split]],
            }
            for split in SPLITS
            if split in reports
        },
        "subwords": {
            "algorithm": f"from {reused}" if reused else recipe.subwords.algorithm,
            "joint": subwords.is_joint,
            "source_vocab_size": len(subwords.source),
            "target_vocab_size": len(subwords.target),
            "sha256": {name: tokenizer.sha256 for name, tokenizer in subwords.files.items()},
        },
        "recipe": asdict(recipe),
    }
