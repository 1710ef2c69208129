"""Stages 3 and 4: the pairs that the student learns from, and its data folder."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyheads.atomic_io import atomic_directory, report_disk_full
from manyheads.config import SPLITS, InputConfig, Recipe, SubwordConfig
from manyheads.data.prepare import prepare
from manyheads.distill.plan import DistillationPlan
from manyheads.distill.selection import ShardFiles, ShardSelector, append_file, select_shards
from manyheads.distill.source_text import TextPart, read_parts
from manyheads.errors import DataError
from manyheads.progress import ReportProgress, make_counter
from manyheads.text.subwords import count_cpus

COUNTS_FILE = "counts.json"
ORIGINAL, DISTILLED = "original", "distilled"


def write_pairs(plan: DistillationPlan, report_progress: ReportProgress) -> None:
    """Choose a hypothesis for every line, filter, and write two files for each input."""
    if plan.pair_folder.exists():
        return
    parts = read_parts(plan)
    advance = make_counter(report_progress, "choosing translations", sum(part.lines for part in parts))
    shards = [list_shard(plan, part, name) for part in parts for name in part.shards]
    part_numbers = [number for number, part in enumerate(parts) for _ in part.shards]
    selector = ShardSelector(plan.config, plan.store.target_language)
    num_processes = 1 if plan.config.choose == "score" else count_cpus()
    counts: list[Counter[str]] = [Counter() for _ in parts]
    with (
        report_disk_full(plan.pair_folder, 8 * plan.store.total_bytes),
        atomic_directory(plan.pair_folder, COUNTS_FILE) as folder,
    ):
        selected = select_shards(selector, shards, folder, num_processes)
        for number, shard, (outs, own) in zip(part_numbers, shards, selected, strict=True):
            for language, out in zip(list_languages(plan), outs, strict=True):
                append_file(out, folder / f"{number:02d}.{DISTILLED}.{language}")
            counts[number] += own
            advance(own.total())
            if plan.config.original_share and shard.reference:
                for language, path in zip(list_languages(plan), (shard.source, shard.reference), strict=True):
                    append_copy(path, folder / f"{number:02d}.{ORIGINAL}.{language}")
        if not sum(own["kept"] for own in counts):
            reasons = sum(counts, Counter())
            raise DataError(f"no pair is left: {format_counts(reasons)}; lower the limits of the filters")
        text = json.dumps([dict(own) for own in counts], indent=1)
        (folder / COUNTS_FILE).write_text(text + "\n", encoding="utf-8")


def format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.most_common() if count)


def read_counts(plan: DistillationPlan) -> list[Counter[str]]:
    """Return how many pairs of each input were kept, and why the others were not."""
    stored = json.loads((plan.pair_folder / COUNTS_FILE).read_text(encoding="utf-8"))
    return [Counter(counts) for counts in stored]


def list_languages(plan: DistillationPlan) -> tuple[str, str]:
    return plan.store.source_language, plan.store.target_language


def list_shard(plan: DistillationPlan, part: TextPart, name: str) -> ShardFiles:
    source, target = list_languages(plan)
    has_reference = plan.needs_references and not part.is_monolingual
    return ShardFiles(
        plan.text_folder / f"{name}.{source}",
        plan.translation_folder / f"{name}.{source}",
        plan.text_folder / f"{name}.{target}" if has_reference else None,
    )


def append_copy(path: Path, out: Path) -> None:
    with out.open("ab") as whole:
        whole.write(path.read_bytes())


# ---- the data folder


def prepare_student_data(plan: DistillationPlan, report_progress: ReportProgress) -> None:
    """Prepare the pairs, with the validation and test sets of the original data."""
    if not plan.data_folder.exists():
        prepare(build_recipe(plan), plan.data_folder, report_progress=report_progress)


def build_recipe(plan: DistillationPlan) -> Recipe:
    """Return the recipe of the student's data: that of the original data, with other inputs and subwords.

    With original pairs, each input is read twice, distilled and as it is. The filters drop distilled pairs
    only; weights of original pairs are such that their share is that of the plan in each input.
    """
    stored = {
        name: keys
        for name, keys in plan.store.manifest.get("recipe", {}).items()
        if name not in (*SPLITS, "subwords")
    }
    recipe = Recipe.from_mapping(stored)
    inputs = [
        create_input(plan, number, part, source_type, weight)
        for number, (part, counts) in enumerate(zip(read_parts(plan), read_counts(plan), strict=True))
        for source_type, weight in (
            (DISTILLED, part.weight),
            (ORIGINAL, compute_original_weight(part, counts["kept"], plan.config.original_share)),
        )
        if weight and has_pairs(plan, number, source_type)
    ]
    held_out: dict[str, Any] = {
        split: tuple(list_held_out(plan, split)) for split in ("valid", "test") if split in plan.store.splits
    }
    corpus = replace(
        recipe.corpus, source=list_languages(plan)[0], target=list_languages(plan)[1], hold_out=0
    )
    clean = replace(recipe.clean, judged=None, keep=None)  # scores are those of the original files
    return replace(
        recipe, corpus=corpus, clean=clean, subwords=choose_subwords(plan), train=tuple(inputs), **held_out
    )


def compute_original_weight(part: TextPart, num_kept: int, share: float) -> float:
    """Return the weight that makes the original pairs a share of an input, of which some are kept."""
    return part.weight * share / (1 - share) * num_kept / part.lines if part.lines else 0.0


def has_pairs(plan: DistillationPlan, number: int, source_type: str) -> bool:
    path = plan.pair_folder / f"{number:02d}.{source_type}.{plan.store.source_language}"
    return path.exists() and path.stat().st_size > 0


def create_input(
    plan: DistillationPlan, number: int, part: TextPart, source_type: str, weight: float
) -> InputConfig:
    files = tuple(
        str(plan.pair_folder / f"{number:02d}.{source_type}.{language}") for language in list_languages(plan)
    )
    name = f"{part.name}, distilled" if source_type == DISTILLED else part.name
    return InputConfig(
        files=files,
        name=name,
        weight=weight,
        format="plain",
        license=part.license,
        attribution=part.attribution,
    )


def list_held_out(plan: DistillationPlan, split: str) -> list[InputConfig]:
    """Return the input of a validation or test set, as the original data stores it."""
    files = tuple(str(plan.data / f"{split}.{language}") for language in list_languages(plan))
    names = [entry["name"] for entry in plan.store.manifest["splits"][split]["inputs"]]
    return [InputConfig(files=files, name=", ".join(names), format="plain")]


def choose_subwords(plan: DistillationPlan) -> SubwordConfig:
    """Return the subwords of the original data, or of another folder, or new ones of another size."""
    if plan.config.vocab_size is None:
        return SubwordConfig(reuse_from=str(plan.subword_folder))
    stored = dict(plan.store.manifest.get("recipe", {}).get("subwords", {}))
    return SubwordConfig(**{**stored, "reuse_from": None, "vocab_size": plan.config.vocab_size})
