"""A small English-German corpus of the built-in grammar, for REHEARSE=1 of runs/science-gpu.sh.

python bench/rehearsal_data.py FOLDER            FOLDER/data, with train, valid and test
"""

import argparse
from dataclasses import replace
from pathlib import Path

from manyheads.paper.small_corpus import SCARCE

HELD_OUT = 12  # pairs of valid and of test


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    store = replace(SCARCE, held_out=HELD_OUT).load(folder)  # untrained models write long outputs
    store.folder.rename(folder / "data")


if __name__ == "__main__":
    main()
