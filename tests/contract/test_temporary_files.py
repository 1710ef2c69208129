"""A link in place of a temporary file: what it points to must not be overwritten."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.atomic_io import write_text_atomically
from manyheads.bulk.chunks import Block, RowChunk
from manyheads.bulk.outputs import OutputFolder
from manyheads.bulk.shards import list_shards
from manyheads.judge.corpus_reader import Position
from manyheads.judge.run import load_part, save_part
from manyheads.look.html import write_html
from manyheads.text.datasets.download import download
from manyheads.text.datasets.fetched import FetchedCorpus, SplitFiles
from manyheads.train.log import truncate_log


def write_page(folder: Path) -> str:
    return write_html("<p>page</p>", folder / "page.html").read_text()


def write_config(folder: Path) -> str:
    config = mh.Config(model=mh.TransformerConfig(vocab_size=320), data=mh.DataConfig(folder="data"))
    config.save(folder / "config.toml")
    return str(mh.Config.load(folder / "config.toml").data.folder)


def write_log(folder: Path) -> str:
    entry = json.dumps({"event": "train", "step": 1}) + "\n"
    (folder / "log.jsonl").write_text(entry)
    truncate_log(folder / "log.jsonl", 1)
    return (folder / "log.jsonl").read_text()


def write_adapter(folder: Path) -> str:
    matrices = torch.zeros(2, 4), torch.zeros(4, 2)
    adapter = checkpoint.Adapter("a", {"encoder.0.weight": matrices}, "0" * 64, {"rank": 2})
    checkpoint.write_adapter(folder / "a.safetensors", adapter)
    return str((folder / "a.safetensors").stat().st_size)


def write_part(folder: Path) -> str:
    scores = np.zeros(1, np.float32), ["short"], np.zeros((1, 4), np.uint64)
    save_part(folder / "0.npz", [Position(0, 1)], [scores])
    return load_part(folder / "0.npz").reasons[0]


def write_manifest(folder: Path) -> str:
    splits = {"train": SplitFiles(["train.en"], [0], 0, [])}
    FetchedCorpus("corpus", "en-ko", "", "", "", "", splits, folder).write_manifest()
    return (folder / "source.json").read_text()


def write_text(folder: Path) -> str:
    write_text_atomically(folder / "text.json", "{}")
    return (folder / "text.json").read_text()


def write_download(folder: Path) -> str:
    (folder / "there").write_text("downloaded")
    download((folder / "there").as_uri(), folder / "file")
    return (folder / "file").read_text()


def write_shard(folder: Path) -> str:
    (folder / "a.en").write_text("one\n")
    out = OutputFolder(folder / "out", list_shards([folder / "a.en"]), {"task": "translate"})
    with out.open() as pending:
        chunk = RowChunk(0, [Block(0, "a.en", 1, [["one"]], is_last=True)])
        list(out.write(pending, [(chunk, {"translation": ["eins"]})]))
    return (folder / "out" / "a.en").read_text()


WRITERS: list[tuple[str, Callable[[Path], str]]] = [
    (".page.html.part", write_page),
    (".config.toml.part", write_config),
    ("log.jsonl.part", write_log),
    (".a.safetensors.part", write_adapter),
    ("0.part", write_part),
    ("source.json.part", write_manifest),
    (".text.json.part", write_text),
    ("file.part", write_download),
    ("file.part.json", write_download),
    ("out/.job.json.part", write_shard),
    ("out/.a.en.manyheads-part", write_shard),
]


LINKS: list[Callable[[Path, Path], None]] = [os.symlink, os.link]
# A partial download is resumed, and one name of a file is as good as another.
CASES = [
    (link, temporary, write)
    for link in LINKS
    for temporary, write in WRITERS
    if link is os.symlink or write is not write_download
]


@pytest.mark.parametrize(("link", "temporary", "write"), CASES)
def test_the_target_of_a_link_in_place_of_a_temporary_file_is_kept(
    tmp_path: Path, link: Callable[[Path, Path], None], temporary: str, write: Callable[[Path], str]
) -> None:
    folder = tmp_path / "folder"
    (folder / temporary).parent.mkdir(parents=True)
    victim = tmp_path / "thesis.txt"
    victim.write_text("mine")
    link(victim, folder / temporary)
    assert write(folder)
    assert victim.read_text() == "mine"
    assert not os.path.lexists(folder / temporary)
