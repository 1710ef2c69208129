"""Remove test pairs that the training text nearly contains: most trigrams of the source are in one line.

    python bench/overlap.py train.en test.en [test.ko ...] --out clean       clean/test.en, clean/test.ko, ...

Words are compared in lower case. A test sentence of fewer than three words counts if the line itself occurs.
All files after the first are aligned with the second and lose the same lines.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

DEFAULT_SHARE = 0.8
Trigram = tuple[str, ...]


def read_file(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def make_trigrams(sentence: str) -> set[Trigram]:
    words = sentence.lower().split()
    return {tuple(words[start : start + 3]) for start in range(max(1, len(words) - 2))}


def compute_overlaps(train: Sequence[str], test: Sequence[str]) -> list[float]:
    """Return, for each test sentence, the largest share of its trigrams that one training line has."""
    wanted = [make_trigrams(sentence) for sentence in test]
    users: defaultdict[Trigram, list[int]] = defaultdict(list)
    for index, trigrams in enumerate(wanted):
        for trigram in trigrams:
            users[trigram].append(index)
    best = [0] * len(test)
    for line in train:
        shared = Counter(index for trigram in make_trigrams(line) for index in users.get(trigram, ()))
        for index, count in shared.items():
            best[index] = max(best[index], count)
    return [count / len(trigrams) for count, trigrams in zip(best, wanted, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path, nargs="+")
    parser.add_argument("--share", type=float, default=DEFAULT_SHARE, help="of the trigrams of a test source")
    parser.add_argument("--out", type=Path, help="folder of the remaining lines")
    options = parser.parse_args()
    overlaps = compute_overlaps(read_file(options.train), read_file(options.test[0]))
    kept = [index for index, overlap in enumerate(overlaps) if overlap < options.share]
    for share in (1.0, 0.8, 0.5):
        count = sum(overlap >= share for overlap in overlaps)
        print(f"{count:,} of {len(overlaps):,} ({count / len(overlaps):.1%}) share {share:.0%} or more")
    print(f"{len(kept):,} remain below {options.share:.0%}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        for path in options.test:
            lines = read_file(path)
            (options.out / path.name).write_text("".join(f"{lines[i]}\n" for i in kept), encoding="utf-8")


if __name__ == "__main__":
    main()
