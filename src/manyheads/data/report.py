"""What a data folder says of itself, for people: what was read, dropped and why, kept; lengths; examples."""

from collections.abc import Iterator, Sequence
from typing import Any

from manyheads.data.store import Side, Store
from manyheads.text.subwords import SubwordPair, SubwordTokenizer

BAR_WIDTH = 24  # columns of the longest bar
LENGTH_BOUNDS = (8, 16, 32, 64, 128, 256, 512)  # of the histogram, in tokens


def format_report(manifest: dict[str, Any]) -> str:
    """The whole report of `prepare`."""
    lines = [line for split, told in manifest["splits"].items() for line in format_split(split, told)]
    return "\n".join(
        [*lines, *format_subwords(manifest["subwords"]), *format_histogram(manifest["splits"]["train"])]
    )


def format_split(split: str, told: dict[str, Any]) -> Iterator[str]:
    tokens = " / ".join(f"{told[side]['tokens']:,}" for side in ("source", "target"))
    yield f"{split}: {told['pairs']:,} pairs, {tokens} tokens (source / target, ends included)"
    for part in told["inputs"]:
        yield from format_input(part)
    left_out = sum(sum(part["bad"].values()) for part in told["inputs"])
    if split != "train" and left_out:
        yield f"  note: {left_out:,} bad lines of {split} are left out: a score will not be of the whole set"


def format_input(part: dict[str, Any]) -> Iterator[str]:
    weight = "" if part["weight"] == 1 else f", weight {part['weight']:g}"
    yield f"  {part['name']}{weight}: read {part['read']:,}, kept {part['kept']:,}"
    for heading in ("bad", "dropped", "mended"):
        for reason, number in part[heading].items():
            yield f"    {heading:8}{number:>12,}  {reason}"


def format_subwords(told: dict[str, Any]) -> Iterator[str]:
    sizes = f"{told['source_vocab_size']:,}" + (
        "" if told["joint"] else f" and {told['target_vocab_size']:,}"
    )
    yield f"subwords: {told['algorithm']}, {'joint' if told['joint'] else 'separate'}, {sizes} pieces"


def format_histogram(told: dict[str, Any]) -> Iterator[str]:
    """Training pairs by the tokens of a side, source beside target."""
    names, counts = format_length_bounds(), [told[side]["lengths"] for side in ("source", "target")]
    most = max(1, *counts[0], *counts[1])
    yield f"{'tokens':>9}  {'source':>11}  {'target':>11}"
    last = max(place for place, both in enumerate(zip(*counts, strict=True)) if any(both))
    for name, source, target in list(zip(names, *counts, strict=True))[: last + 1]:
        bars = [mark * round(BAR_WIDTH * number / most) for mark, number in (("▒", source), ("░", target))]
        yield f"{name:>9}  {source:>11,}  {target:>11,}  {bars[0]:{BAR_WIDTH}} {bars[1]}".rstrip()


def format_length_bounds() -> list[str]:
    starts = [1, *(bound + 1 for bound in LENGTH_BOUNDS)]
    spans = [f"{low}-{high}" for low, high in zip(starts, LENGTH_BOUNDS, strict=False)]
    return [*spans, f"over {LENGTH_BOUNDS[-1]}"]


def iterate_examples(store: Store, count: int) -> Iterator[tuple[list[str], list[str]]]:
    """Some training pairs as the model sees them, spread over the corpus."""
    split = store.load_split("train")
    step = max(1, len(split) // max(1, count))
    for pair in list(range(step // 2, len(split), step))[:count]:
        yield (
            get_pieces(split.source, pair, store.subwords.source),
            get_pieces(split.target, pair, store.subwords.target),
        )


def get_pieces(side: Side, pair: int, subwords: SubwordTokenizer) -> list[str]:
    return [subwords.id_to_piece(one) for one in side[pair].tolist()]


def summarize(store: Store, count: int, sentences: Sequence[str] = ()) -> dict[str, Any]:
    """For `inspect`: the description without the list of files, examples, and how sentences are split."""
    told = {key: value for key, value in store.manifest.items() if key != "files"}
    pairs = [{"source": source, "target": target} for source, target in iterate_examples(store, count)]
    split = [{"sentence": text, **segment_text(store.subwords, text)} for text in sentences]
    return {**told, "bytes": store.total_bytes, "examples": pairs, "sentences": split}


def segment_text(subwords: SubwordPair, text: str) -> dict[str, list[str]]:
    if subwords.is_joint:
        return {"pieces": subwords.source.encode_as_pieces(text)}
    return {
        "as source": subwords.source.encode_as_pieces(text),
        "as target": subwords.target.encode_as_pieces(text),
    }


def format_summary(told: dict[str, Any]) -> str:
    """The same for people."""
    languages = told["languages"]
    lines = [f"{languages['source']} to {languages['target']}, {told['bytes']:,} bytes", format_report(told)]
    for pair in told["examples"]:
        lines += ["", " ".join(pair["source"]), " ".join(pair["target"])]
    for split in told["sentences"]:
        lines += ["", split["sentence"]]
        lines += [f"{way}: {' '.join(pieces)}" for way, pieces in split.items() if way != "sentence"]
    return "\n".join(lines)
