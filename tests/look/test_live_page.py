"""The file of the live page: what it holds, and which models it refuses."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.errors import RequestError
from manyheads.export.int8 import quantize_model
from manyheads.look import live_page
from manyheads.look.html import bundle_modules, read_asset
from manyheads.look.live_page import build_live_data, write_live_page
from manyheads.model import build_model
from manyheads.text.subwords import SubwordPair, SubwordTokenizer

LIVE = files("manyheads.look").joinpath("live")
LANGUAGES = {"source": "en", "target": "ko"}


def save(folder: Path, subwords: SubwordTokenizer, languages: dict[str, str], **model: Any) -> Path:
    small = {"vocab_size": 330, "layers": 1, "d_model": 8, "d_ff": 8}
    config = mh.Config(model=mh.ModelConfig.from_mapping({**small, **model}))
    torch.manual_seed(0)
    weights = checkpoint.collect_weights(build_model(config.model))
    pair = SubwordPair(subwords, subwords)
    checkpoint.save(folder, weights, pair, config, step=1, languages=languages)
    return folder


def test_an_int8_folder_and_the_model_it_was_made_from_give_the_same_page(
    model: Path, tmp_path: Path
) -> None:
    quantized = quantize_model(model, tmp_path / model.name).folder
    assert build_live_data(model) == build_live_data(quantized)


def test_the_page_is_one_file_that_loads_nothing(model: Path, tmp_path: Path) -> None:
    data = build_live_data(model, text="</script><b>")
    text = write_live_page(data, tmp_path / "page.html").read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s\"'`<)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a namespace, not an address"
    assert not re.search(r"\b(?:src|href)=[\"']?(?!#)\w", text)
    embedded = text.split('id="models">')[1].split("</script>")[0]
    assert json.loads(embedded) == data


def test_the_program_of_the_page_shares_one_scope_and_never_writes_markup() -> None:
    script = bundle_modules("live_main.js")
    assert not re.search(r"^(?:import|export)\b", script, flags=re.M)
    names = re.findall(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", script, flags=re.M)
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch("):
        assert forbidden not in script


def test_both_languages_of_the_live_page_have_the_same_texts() -> None:
    english, korean = re.findall(
        r"^  (?:en|ko): \{\n(.*?)^  \},", read_asset("live_texts.js"), flags=re.S | re.M
    )
    keys = [re.findall(r"^    (\w+):", text, flags=re.M) for text in (english, korean)]
    assert keys[0] == keys[1]
    assert not re.search("[가-힣]", english)
    scripts = [path.read_text(encoding="utf-8") for path in LIVE.iterdir() if path.name.endswith(".js")]
    used = {key for script in scripts for key in re.findall(r"texts\.(?!js\b)(\w+)", script)}
    assert used <= {*keys[0], "roles", "roleNotes"}, "with those of role_texts.js"


def test_models_that_the_engine_does_not_run_are_refused(
    subwords: SubwordTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recurrent = save(tmp_path / "rnn", subwords, LANGUAGES, architecture="recurrent")
    with pytest.raises(RequestError, match=r"model\.architecture is 'recurrent', but the page runs"):
        build_live_data(recurrent)
    experts = save(tmp_path / "experts", subwords, LANGUAGES, experts=2)
    with pytest.raises(RequestError, match=r"model\.experts is 2"):
        build_live_data(experts)
    plain = save(tmp_path / "plain", subwords, LANGUAGES)
    other = save(tmp_path / "other", subwords, {"source": "ko", "target": "en"})
    with pytest.raises(RequestError, match=r"translates ko-en, but .* translates en-ko"):
        build_live_data(plain, other)
    monkeypatch.setattr(live_page, "MAX_WEIGHTS", 1000)
    with pytest.raises(RequestError, match=r"a file of 0 MB, but the maximum is 1,000 .*: train a student"):
        build_live_data(plain)


def test_what_a_larger_model_would_need_is_the_size_of_its_page(model: Path, tmp_path: Path) -> None:
    data = build_live_data(model)
    sizes = [np.prod(entry["shape"]) for entry in data["models"][0]["tensors"] if entry["dtype"] == "int8"]
    assert len(data["models"][0]["weights"]) >= sum(sizes) * 4 / 3, "base64"
    assert live_page.estimate_size(60_000_000) == "80 MB"


def test_two_checkpoints_of_the_same_name_are_told_apart(model: Path, run: Path, tmp_path: Path) -> None:
    copy = quantize_model(model, tmp_path / model.name).folder
    names = [own["name"] for own in build_live_data(model, copy)["models"]]
    assert len(set(names)) == 2
    first, last = checkpoint.list_checkpoints(run)[:: len(checkpoint.list_checkpoints(run)) - 1]
    names = [own["name"] for own in build_live_data(first, last)["models"]]
    assert names == [first.name, last.name]


def test_examples_are_found_from_another_folder(subwords: SubwordTokenizer, tmp_path: Path) -> None:
    """A relative data folder is that of the run, wherever the command is started."""
    folder = save(tmp_path / "demo" / "run" / "model", subwords, LANGUAGES)
    assert build_live_data(folder)["examples"] == []
    assert build_live_data(folder)["text"] == "I go home."
    data = tmp_path / "demo" / "data"
    data.mkdir()
    (data / "corpus.json").write_text("{}", encoding="utf-8")
    (data / "test.en").write_text("We read a book at school.\n", encoding="utf-8")
    assert build_live_data(folder)["examples"] == ["We read a book at school."]
    assert build_live_data(folder)["text"] == "We read a book at school."
