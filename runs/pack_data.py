"""Make a data folder small for a machine that is reached slowly, and make it again there, to the byte.

    python runs/pack_data.py pack europarl/data packed         four fifths of its text in .xz; takes minutes
    python runs/pack_data.py restore packed data               seconds; to prepare it again would take minutes
    python runs/pack_data.py restore packed data --lines 200000 lines.en         also some sources as text

The tokens of the training pairs are compressed. Where a sentence begins follows from the end tokens.
"""

import argparse
import lzma
import shutil
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import numpy as np

from manyheads.config import EOS_ID
from manyheads.data.store import Store

SIDES = ("source", "target")
PRESET = 9 | lzma.PRESET_EXTREME
SEED = 7  # of the lines that are chosen


def pack(folder: Path, out: Path) -> None:
    """Write the tokens of both sides compressed, and everything else but the offsets as it is."""
    out.mkdir(parents=True)
    for path in folder.iterdir():
        if not path.name.startswith("train."):
            shutil.copy(path, out / path.name)
    with ProcessPoolExecutor(len(SIDES)) as pool:
        list(pool.map(pack_side, SIDES, repeat(folder), repeat(out)))


def pack_side(side: str, folder: Path, out: Path) -> None:
    content = (folder / f"train.{side}.tokens.npy").read_bytes()
    (out / f"train.{side}.tokens.npy.xz").write_bytes(lzma.compress(content, preset=PRESET))


def restore(packed: Path, out: Path) -> Store:
    """Write the data folder, and open it, which checks it."""
    out.mkdir(parents=True)
    for path in packed.iterdir():
        if path.suffix != ".xz":
            shutil.copy(path, out / path.name)
    with ProcessPoolExecutor(len(SIDES)) as pool:
        list(pool.map(restore_side, SIDES, repeat(packed), repeat(out)))
    return Store.open(out)


def restore_side(side: str, packed: Path, out: Path) -> None:
    path = out / f"train.{side}.tokens.npy"
    path.write_bytes(lzma.decompress((packed / f"{path.name}.xz").read_bytes()))
    ends = np.flatnonzero(np.load(path, mmap_mode="r") == EOS_ID) + 1
    np.save(out / f"train.{side}.offsets.npy", np.concatenate([[0], ends]).astype(np.int64))


def write_lines(store: Store, number: int, path: Path) -> None:
    """Write random sources of the training pairs, in their order, as text."""
    sources = store.load_split("train").source
    chosen = np.sort(np.random.default_rng(SEED).choice(len(sources), number, replace=False))
    decode = store.subwords.source.decode
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{decode(sources[int(index)].tolist())}\n" for index in chosen)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["pack", "restore"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--lines", nargs=2, metavar=("NUMBER", "FILE"), help="restore: sources as text")
    arguments = parser.parse_args()
    if arguments.action == "pack":
        pack(arguments.folder, arguments.out)
        return
    store = restore(arguments.folder, arguments.out)
    if arguments.lines:
        write_lines(store, int(arguments.lines[0]), Path(arguments.lines[1]))


if __name__ == "__main__":
    main()
