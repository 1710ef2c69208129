"""Adapters of int8 models, of models with a name, and of models with a shortlist."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.checkpoint.merging import save_merged
from manyheads.checkpoint.shortlist import Shortlist, write_shortlist
from manyheads.errors import CheckpointError, RequestError
from manyheads.export.int8 import quantize_model
from manyheads.named_models import resolution
from manyheads.ops.int8 import Int8Linear
from manyheads.serve.adapted_models import AdaptedModels
from manyheads.serve.served_model import name_models
from support.random_adapter import save_random_adapter
from support.untrained_model import save_untrained_model

TEXTS = ["I go home today.", "We read a book at school.", "We go home."]
SHORTLIST = Shortlist(np.arange(4, 320), np.zeros(321, np.int64), np.zeros(0, np.int64))


@pytest.fixture
def int8_folder(tmp_path: Path) -> Path:
    """An int8 folder with an adapter."""
    quantize_model(save_untrained_model(tmp_path / "model"), tmp_path / "int8")
    save_random_adapter(tmp_path / "int8", "captions", seed=3)
    return tmp_path / "int8"


def test_an_int8_model_with_an_adapter_is_the_merged_model_rounded_again(
    int8_folder: Path, tmp_path: Path
) -> None:
    save_merged(int8_folder, "captions", tmp_path / "merged")
    assert checkpoint.read_info(tmp_path / "merged").quantization is None
    quantize_model(tmp_path / "merged", tmp_path / "merged-int8")
    for precision in ("int8", "float32"):
        options: Any = {"device": "cpu", "engine": f"torch:{precision}"}
        plain = mh.load(int8_folder, **options)
        adapted = mh.load(int8_folder, adapter="captions", **options)
        merged = mh.load(tmp_path / ("merged-int8" if precision == "int8" else "merged"), **options)
        ours, expected, base = (
            [(list(own.tokens), own.score) for own in other.translate(TEXTS)]
            for other in (adapted, merged, plain)
        )
        assert ours == expected != base


def test_layers_that_an_adapter_leaves_alone_are_shared(int8_folder: Path) -> None:
    base = mh.load(int8_folder, device="cpu", engine="torch:int8")
    engines: list[Any] = [base.engine]
    engines.append(engines[0].with_adapter(checkpoint.read_adapter(int8_folder, "captions")))
    outputs = [engine.search_model.output for engine in engines]
    layers = [next(engine.search_model.encoder.modules()) for engine in engines]
    changed = [
        [part.weight_FD for part in layer.modules() if isinstance(part, Int8Linear)] for layer in layers
    ]
    assert outputs[0].weight_FD is outputs[1].weight_FD
    assert all(not torch.equal(old, new) for old, new in zip(*changed, strict=True))


def test_adapters_survive_a_shortlist_but_do_not_use_it(int8_folder: Path) -> None:
    write_shortlist(int8_folder, SHORTLIST)
    plain: Any = mh.load(int8_folder, device="cpu").engine
    adapted: Any = mh.load(int8_folder, device="cpu", adapter="captions").engine
    assert plain.shortlist is not None
    assert adapted.shortlist is None


def test_other_weights_in_a_new_folder_have_no_adapters(tmp_path: Path) -> None:
    folder = save_untrained_model(tmp_path / "model")
    save_random_adapter(folder, "captions")
    quantize_model(folder, tmp_path / "int8")
    assert checkpoint.list_adapters(tmp_path / "int8") == []
    shutil.copytree(folder / "adapters", tmp_path / "int8" / "adapters")
    with pytest.raises(CheckpointError, match="was trained with other weights"):
        mh.load(tmp_path / "int8", device="cpu", adapter="captions")


def test_an_adapter_of_a_model_with_a_name_runs_in_torch(
    int8_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(resolution.MODELS_VARIABLE, str(tmp_path))
    monkeypatch.setattr("manyheads.loading.count_gpus", lambda: 0)
    assert mh.load("int8", adapter="captions").engine.name == "torch"
    (served,) = name_models([mh.load("int8")])
    assert served.translator.engine.name == "ctranslate2 int8"
    with pytest.raises(
        RequestError, match="the ctranslate2 int8 engine runs none: serve with --engine torch"
    ):
        AdaptedModels().get(served, "captions")
