"""The readable report of a data folder: what was read, dropped and kept; lengths; examples."""

from collections.abc import Iterator, Sequence
from typing import Any

from manyheads.data.store import Side, Store
from manyheads.text.subwords import SubwordPair, SubwordTokenizer

BAR_WIDTH = 24  # columns of the longest bar
LENGTH_BOUNDS = (8, 16, 32, 64, 128, 256, 512)  # of the histogram, in tokens


def format_report(manifest: dict[str, Any]) -> str:
    """Format the whole report of `prepare`."""
    splits = manifest["splits"]
    lines = [line for name, split in splits.items() for line in format_split(name, split)]
    return "\n".join([*lines, *format_subwords(manifest["subwords"]), *format_histogram(splits["train"])])


def count_dropped(manifest: dict[str, Any]) -> int:
    """Return the number of pairs that were invalid or dropped, in all splits."""
    inputs = (report for split in manifest["splits"].values() for report in split["inputs"])
    return sum(sum(report[heading].values()) for report in inputs for heading in ("invalid", "dropped"))


def format_split(name: str, split: dict[str, Any]) -> Iterator[str]:
    tokens = " / ".join(f"{split[side]['tokens']:,}" for side in ("source", "target"))
    yield f"{name}: {split['pairs']:,} pairs, {tokens} tokens (source / target, end tokens included)"
    for input_report in split["inputs"]:
        yield from format_input(input_report)
    num_invalid = sum(sum(input_report["invalid"].values()) for input_report in split["inputs"])
    if name != "train" and num_invalid:
        yield f"  note: {num_invalid:,} invalid lines of {name} are skipped: scores will not cover the set"


def format_input(report: dict[str, Any]) -> Iterator[str]:
    weight = "" if report["weight"] == 1 else f", weight {report['weight']:g}"
    yield f"  {report['name']}{weight}: read {report['read']:,}, kept {report['kept']:,}"
    for heading in ("invalid", "dropped", "normalized"):
        for reason, count in report[heading].items():
            yield f"    {heading:11}{count:>12,}  {reason}"


def format_subwords(subwords: dict[str, Any]) -> Iterator[str]:
    sizes = f"{subwords['source_vocab_size']:,}"
    if not subwords["joint"]:
        sizes += f" and {subwords['target_vocab_size']:,}"
    yield f"subwords: {subwords['algorithm']}, {'joint' if subwords['joint'] else 'separate'}, {sizes} pieces"


def format_histogram(split: dict[str, Any]) -> Iterator[str]:
    """Format the training pairs by the tokens of each side."""
    names, counts = format_length_bounds(), [split[side]["lengths"] for side in ("source", "target")]
    peak = max(1, *counts[0], *counts[1])
    yield f"{'tokens':>9}  {'source':>11}  {'target':>11}"
    last = max(index for index, both in enumerate(zip(*counts, strict=True)) if any(both))
    for name, source, target in list(zip(names, *counts, strict=True))[: last + 1]:
        bars = [mark * round(BAR_WIDTH * count / peak) for mark, count in (("▒", source), ("░", target))]
        yield f"{name:>9}  {source:>11,}  {target:>11,}  {bars[0]:{BAR_WIDTH}} {bars[1]}".rstrip()


def format_length_bounds() -> list[str]:
    starts = [1, *(bound + 1 for bound in LENGTH_BOUNDS)]
    ranges = [f"{low}-{high}" for low, high in zip(starts, LENGTH_BOUNDS, strict=False)]
    return [*ranges, f"over {LENGTH_BOUNDS[-1]}"]


def iterate_examples(store: Store, count: int) -> Iterator[tuple[list[str], list[str]]]:
    """Yield training pairs as subword pieces, spread evenly over the corpus."""
    split = store.load_split("train")
    step = max(1, len(split) // max(1, count))
    for index in list(range(step // 2, len(split), step))[:count]:
        yield (
            get_pieces(split.source, index, store.subwords.source),
            get_pieces(split.target, index, store.subwords.target),
        )


def get_pieces(side: Side, index: int, tokenizer: SubwordTokenizer) -> list[str]:
    return [tokenizer.id_to_piece(token_id) for token_id in side[index].tolist()]


def summarize(store: Store, count: int, sentences: Sequence[str] = ()) -> dict[str, Any]:
    """Return what `inspect` shows: the manifest without its files, examples, and segmented sentences."""
    manifest = {key: value for key, value in store.manifest.items() if key != "files"}
    examples = [{"source": source, "target": target} for source, target in iterate_examples(store, count)]
    segmented = [{"sentence": text, **segment_text(store.subwords, text)} for text in sentences]
    return {**manifest, "bytes": store.total_bytes, "examples": examples, "sentences": segmented}


def segment_text(subwords: SubwordPair, text: str) -> dict[str, list[str]]:
    if subwords.is_joint:
        return {"pieces": subwords.source.encode_as_pieces(text)}
    return {
        "as source": subwords.source.encode_as_pieces(text),
        "as target": subwords.target.encode_as_pieces(text),
    }


def format_summary(summary: dict[str, Any]) -> str:
    """Format the result of `summarize` as text."""
    languages = summary["languages"]
    title = f"{languages['source']} to {languages['target']}, {summary['bytes']:,} bytes"
    lines = [title, format_report(summary)]
    for pair in summary["examples"]:
        lines += ["", " ".join(pair["source"]), " ".join(pair["target"])]
    for segmented in summary["sentences"]:
        lines += ["", segmented["sentence"]]
        lines += [f"{side}: {' '.join(pieces)}" for side, pieces in segmented.items() if side != "sentence"]
    return "\n".join(lines)
