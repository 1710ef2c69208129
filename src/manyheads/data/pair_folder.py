"""A data folder of pairs that are taken as they are: corrections, and a sample of other text."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from manyheads.atomic_io import atomic_directory, write_manifest
from manyheads.config import CorpusConfig, Recipe, SubwordConfig
from manyheads.data.filtering import InputReport
from manyheads.data.prepare import build_manifest, write_text
from manyheads.data.store import DATA_SCHEMA, DROPPED, MANIFEST, Store
from manyheads.data.tokenize import encode_split
from manyheads.text.corpus import SentencePair
from manyheads.text.subwords import SubwordPair


def write_pair_folder(
    folder: Path,
    subwords: SubwordPair,
    languages: Mapping[str, str],
    splits: Mapping[str, Sequence[tuple[str, str]]],
    name: str,
) -> Store:
    """Write the pairs of splits with the subwords of a model. Nothing is cleaned or dropped."""
    corpus = CorpusConfig(source=languages["source"], target=languages["target"])
    recipe = Recipe(corpus=corpus, subwords=SubwordConfig(reuse_from=name))
    reports, counts = {}, {}
    with atomic_directory(folder, MANIFEST) as aside:
        (aside / DROPPED).touch()
        subwords.save(aside)
        for split, texts in splits.items():
            pairs = [SentencePair(*text, line) for line, text in enumerate(texts, 1)]
            counts[split] = encode_split(
                aside, split, subwords, iter(pairs), len(pairs), lambda stage, done, total: None
            )
            reports[split] = [InputReport(name, (), 1.0, read=len(pairs), kept=len(pairs))]
            if split != "train":
                write_text(aside, split, corpus, pairs)
        write_manifest(aside, DATA_SCHEMA, build_manifest(recipe, subwords, reports, counts))
    return Store.open(folder)
