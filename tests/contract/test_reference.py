"""The generated reference pages are those of the code, and every key is described in both languages."""

import subprocess
import sys
import tomllib
from dataclasses import fields
from typing import Any

from manyheads.config import Config, DistillConfig, InputConfig, Recipe
from manyheads.config.model import ByteNetConfig, ConvS2SConfig, RecurrentConfig, TransformerConfig
from support.source_tree import ROOT, SOURCE

MODELS = [TransformerConfig, RecurrentConfig, ConvS2SConfig, ByteNetConfig]


def test_the_reference_pages_are_current() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "release" / "reference.py", "--check"],
        env={"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
    )
    assert check.returncode == 0, f"make reference: {check.stdout}{check.stderr}"


def test_the_korean_descriptions_are_of_the_keys_that_exist() -> None:
    sections: list[Any] = [
        *MODELS,
        *Config.sections().values(),
        *Recipe.sections().values(),
        InputConfig,
        DistillConfig,
    ]
    keys: dict[str, set[str]] = {}
    for section in sections:
        keys.setdefault(section.table, set()).update(key.name for key in fields(section))
    korean = tomllib.loads((ROOT / "release" / "configuration.ko.toml").read_text(encoding="utf-8"))
    assert {table: set(entries) for table, entries in korean.items()} == keys
