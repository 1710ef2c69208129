"""Every architecture trains, resumes, and works with every command as the Transformer does."""

import io
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import Recipe
from manyheads.data.prepare import prepare
from manyheads.inference.cuda_graph_search import supports_search
from manyheads.model import MODEL_CLASSES, build_model
from manyheads.train.captured_step import can_capture
from manyheads.train.run import train

PAIRS = [(f"I have {n} books.", f"나는 책이 {n}권 있다.") for n in range(60)]
SIZES: dict[str, Any] = {"layers": 2, "d_model": 16, "d_ff": 12, "dropout": 0.1}
MODELS = {
    "lstm": mh.RecurrentConfig(attention="additive", **SIZES),
    "seq2seq": mh.RecurrentConfig(cell="gru", attention="none", **SIZES),
    "convs2s": mh.ConvS2SConfig(attention="dot", positions="learned", max_positions=64, **SIZES),
    "bytenet": mh.ByteNetConfig(**SIZES),
    "experts": mh.TransformerConfig(experts=3, heads=2, **SIZES),
}
ATTENTION_LAYERS = {"lstm": 1, "convs2s": 2, "experts": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for side, code in enumerate(("en", "ko")):
        text = "".join(f"{pair[side]}\n" for pair in PAIRS)
        (folder / f"a.{code}").write_text(text, encoding="utf-8")
    tables: dict[str, Any] = {"train": [{"files": [f"{folder}/a.en", f"{folder}/a.ko"]}]}
    prepare(Recipe.from_mapping({**tables, "subwords": {"vocab_size": 320}}), folder / "data")
    return folder / "data"


def make_config(name: str, data: Path, **changes: Any) -> mh.Config:
    training: dict[str, Any] = {
        "steps": 4, "card": False, "warmup": 2, "learning_rate": 5e-3, "log_every": 1, "validate_every": 2,
        "checkpoint_every": 2, "bleu_sentences": 2, "average_checkpoints": 2, "clip_norm": 1.0,
    }  # fmt: skip
    return mh.Config(
        model=MODELS[name],
        data=mh.DataConfig(folder=str(data), batch_tokens=200, max_length=40),
        train=mh.TrainConfig(**{**training, **changes}),
        decoding=mh.DecodingConfig(beam=2, max_extra_length=4),
    )


@pytest.fixture(scope="module")
def folders(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each architecture, from a run that was resumed once."""
    models = {}
    for name in MODELS:
        run = tmp_path_factory.mktemp(name) / "run"
        assert train(make_config(name, data, steps=2), run, device="cpu") == "steps"
        assert train(make_config(name, data), run, change_config=True, device="cpu") == "steps"
        models[name] = run / "model"
    return models


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def manyheads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def call(*arguments: str, given: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["manyheads", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), encoding="utf-8"))
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    from manyheads.cli import main

    return call


@pytest.mark.parametrize("name", ["lstm", "experts"])
def test_a_resumed_run_ends_bit_identical(
    name: str, data: Path, folders: dict[str, Path], tmp_path: Path
) -> None:
    train(make_config(name, data), tmp_path / "run", device="cpu")
    uninterrupted, resumed = (
        checkpoint.read_tensors(folder / checkpoint.WEIGHTS)
        for folder in (tmp_path / "run/model", folders[name])
    )
    assert uninterrupted.keys() == resumed.keys()
    assert all(torch.equal(uninterrupted[key], resumed[key]) for key in resumed)


@pytest.mark.parametrize("name", MODELS)
def test_translate_and_inspect_work_for_each_architecture(
    name: str, folders: dict[str, Path], manyheads: Call, tmp_path: Path
) -> None:
    model = str(folders[name])
    code, out, err = manyheads(
        "translate", model, "--device", "cpu", given="I have 3 books.\n\nI have 4 books.\n"
    )
    assert (code, err, len(out.splitlines())) == (0, "", 3)
    texts = out.splitlines()
    assert [result.text for result in mh.load(model, device="cpu").translate(["I have 3 books."])] == texts[
        :1
    ]
    code, out, err = manyheads("inspect", model, "--json")
    report = json.loads(out)
    assert report["config"]["model"]["architecture"] == MODELS[name].architecture
    assert report["parameters"] == sum(
        parameter.numel()
        for parameter in build_model(mh.Config.from_mapping(report["config"]).model).parameters()
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_beam_score_equals_the_forced_decoding_score(name: str, folders: dict[str, Path]) -> None:
    translator = mh.load(folders[name], device="cpu")
    best = translator.translate("I have 3 books.", beam=3, nbest=3, split=False)
    for result in (best, *best.alternatives):
        (scored,) = translator.score(["I have 3 books."], [result.text])
        if scored.tokens == result.tokens:  # else the text is segmented in another way
            assert scored.log_probability == pytest.approx(result.log_probability, abs=1e-4)


@pytest.mark.parametrize("name", ATTENTION_LAYERS)
def test_the_attention_page_has_the_maps_of_each_architecture(
    name: str, folders: dict[str, Path], manyheads: Call, tmp_path: Path
) -> None:
    code, _, err = manyheads("look", str(folders[name]), "I have 3 books.", "--device", "cpu")
    assert (code, err) == (0, "")
    text = (tmp_path / "attention.html").read_text(encoding="utf-8")
    data = json.loads(text.split('id="attention">')[1].split("</script>")[0])
    names = ["encoder", "decoder", "cross"] if name == "experts" else ["cross"]
    assert list(data["sides"]) == list(data["snapshots"][0]["maps"]) == names
    assert data["layers"] == dict.fromkeys(names, ATTENTION_LAYERS[name])
    (aligned,) = mh.load(folders[name], device="cpu").translate(["I have 3 books."], alignment=True)
    assert aligned.alignment is not None


@pytest.mark.parametrize(
    ("name", "why"),
    [("bytenet", "model.architecture is 'bytenet'"), ("seq2seq", "model.attention is 'none'")],
)
def test_models_without_attention_have_no_attention_page(
    name: str, why: str, folders: dict[str, Path], manyheads: Call
) -> None:
    code, _, err = manyheads("look", str(folders[name]), "I have 3 books.")
    assert code == 2
    assert why in err
    with pytest.raises(mh.RequestError, match=why):
        mh.load(folders[name], device="cpu").translate(["I have 3 books."], alignment=True)


@pytest.mark.parametrize("to", ["ctranslate2", "onnx", "huggingface"])
@pytest.mark.parametrize(
    ("name", "key"), [("lstm", "model.architecture is 'recurrent'"), ("experts", "model.experts is 3")]
)
def test_exports_refuse_other_architectures(
    name: str, key: str, to: str, folders: dict[str, Path], manyheads: Call
) -> None:
    code, _, err = manyheads("export", str(folders[name]), "--to", to, "--out", "out")
    assert code == 2
    assert key in err


def test_the_forward_walk_refuses_other_architectures(folders: dict[str, Path]) -> None:
    from manyheads.look.forward_walk import walk_layer

    for name, key in (("lstm", "model.architecture is 'recurrent'"), ("experts", "model.experts is 3")):
        with pytest.raises(mh.RequestError, match=key):
            walk_layer(mh.load(folders[name], device="cpu"), "I have 3 books.")


def test_an_ensemble_may_mix_architectures(folders: dict[str, Path]) -> None:
    ensemble = mh.load(folders["lstm"], folders["bytenet"], folders["convs2s"], device="cpu")
    (result,) = ensemble.translate(["I have 3 books."], beam=2)
    (scored,) = ensemble.score(["I have 3 books."], [result.text])
    if scored.tokens == result.tokens:
        assert scored.log_probability == pytest.approx(result.log_probability, abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_cuda_graphs_and_compilation_need_the_transformer(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyheads.ops.dispatch.has_triton", lambda: True)
    monkeypatch.setattr("manyheads.ops.dispatch.has_flash_attention", lambda _: True)
    config = make_config(name, data)
    assert not can_capture(config, torch.device("cuda"))
    assert can_capture(replace(config, model=mh.TransformerConfig(**SIZES, heads=2)), torch.device("cuda"))
    model = build_model(MODELS[name])
    assert not supports_search(model, mh.DecodingConfig())
    assert supports_search(build_model(mh.TransformerConfig(**SIZES, heads=2)), mh.DecodingConfig())
    with pytest.raises(mh.ConfigError, match=r"train.compile is true, but model\.(architecture|experts) is"):
        train(make_config(name, data, compile=True), tmp_path / "run", device="cpu")


def test_every_architecture_of_the_config_can_be_built() -> None:
    assert set(MODEL_CLASSES) == set(get_args(get_type_hints(mh.ModelConfig)["architecture"]))
