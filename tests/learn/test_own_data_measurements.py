"""runs/own-data-gpu.sh, rehearsed with hundreds of pairs on a CPU: all steps, results, limits, resumption."""

import json
import lzma
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads import checkpoint, playground
from manyheads.config import SubwordConfig
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.source_tree import ROOT

SCRIPT = ROOT / "runs" / "own-data-gpu.sh"
SIZES = {  # lines of each corpus
    "europarl/train": 700, "europarl/valid": 30, "europarl/test": 30, "multi30k/train": 260,
    "multi30k/valid": 30, "multi30k/test_2016_flickr": 30, "tatoeba/train": 260, "tatoeba/valid": 30,
    "tatoeba/test": 30, "newstest/train_2008_2012": 60, "newstest/newstest2013": 30,
    "newstest/newstest2014": 30,
}  # fmt: skip
FRENCH = [
    "Le chien dort sous la table.",
    "Elle achète trois livres chaque semaine.",
    "Nous allons à la gare.",
]
RESULTS = (
    "judge.json", "multi30k.json", "tatoeba.json", "backtranslation.json", "backtranslation-news.json",
    "terms-de.json", "terms-ko.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpora, an untrained model, and the commands that the script calls."""
    here = tmp_path_factory.mktemp("own-data")
    pairs = playground.generate_corpus("en-de", train=2000, valid=0, test=0, seed=1)["train"]
    lines = iter(pairs)
    for name, size in SIZES.items():
        chosen = list(islice(lines, size))
        for side, language in enumerate(("en", "de")):
            write_xz(here / "data" / f"{name}.{language}.xz", [pair[side] for pair in chosen])
    write_xz(here / "data" / "multi30k" / "train.fr.xz", FRENCH * 40)
    subwords = SubwordTokenizer.train(
        [text for pair in pairs for text in pair], SubwordConfig(vocab_size=500)
    )
    config = mh.Config(
        model=mh.TransformerConfig(vocab_size=500, layers=1, d_model=32, d_ff=64, heads=2),
        data=mh.DataConfig(batch_tokens=600),
    )
    torch.manual_seed(0)
    weights = checkpoint.collect_weights(mh.Transformer(config.model))
    languages = {"source": "en", "target": "de"}
    checkpoint.save(
        here / "model", weights, SubwordPair(subwords, subwords), config, step=1, languages=languages
    )
    for name, words in {"python": "", "manyheads": "-m manyheads "}.items():
        command = here / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        command.chmod(0o755)
    return here


def write_xz(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))


def run(folder: Path, out: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": ""}
    command = ["sh", str(SCRIPT), str(folder / "model"), str(folder / "data"), str(folder / out)]
    return subprocess.run(
        command, env=environment | {"REHEARSAL": "1"} | variables, capture_output=True, text=True
    )


def read(folder: Path, out: str, name: str) -> Any:
    return json.loads((folder / out / "results" / name).read_text(encoding="utf-8"))


@pytest.mark.heavy
def test_all_steps_write_their_results_and_are_not_repeated(folder: Path) -> None:
    done = run(folder, "out")
    logs = {path.name: path.read_text()[-2000:] for path in (folder / "out" / "results").glob("*.log")}
    assert "not complete" not in done.stderr, (done.stderr, logs)
    assert done.returncode == 0
    assert set(RESULTS) <= set(done.stdout.split())
    judged = read(folder, "out", "judge.json")
    assert [row["rate"] for row in judged] == [0.1, 0.3]
    assert all({"clean", "damaged", "kept", "recovered"} <= set(row["bleu"]) for row in judged)
    adapted = read(folder, "out", "multi30k.json")["rows"]
    assert [row["method"] for row in adapted] == ["fine-tuning", "replay", "adapter-replay"]
    assert all(row["general_change"] is not None and row["report"]["curve"] for row in adapted)
    assert "bleu" in json.dumps(read(folder, "out", "backtranslation.json")).lower()
    again = run(folder, "out")
    steps = ("text", "judge", "multi30k", "tatoeba", "terms-de", "terms-ko", "backtranslation")
    assert [line for line in again.stderr.splitlines() if "complete" in line] == [
        f"{step}: complete" for step in steps
    ]


@pytest.mark.heavy
def test_what_the_time_does_not_allow_is_left_to_the_next_call(folder: Path) -> None:
    stopped = run(folder, "stopped", LIMIT="10")
    assert stopped.returncode == 75
    assert stopped.stderr == "text: no time left; the same call goes on\n"
    skipped = run(folder, "stopped", SKIP="judge multi30k tatoeba terms-de terms-ko backtranslation")
    assert skipped.returncode == 0
    assert (folder / "stopped" / "text" / "complete").exists()
    assert not [name for name in RESULTS if (folder / "stopped" / "results" / name).exists()]
