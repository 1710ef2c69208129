"""Every kind of model is trained, kept, taken up again, and called by the command line as any other."""

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
from manyheads.inference.cuda_graph_search import supports
from manyheads.model import ARCHITECTURES, build_model
from manyheads.search.beam import DecodingConstraints
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
LOOKS = {"lstm": 1, "convs2s": 2, "experts": 2}  # and at how many layers


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for side, code in enumerate(("en", "ko")):
        text = "".join(f"{pair[side]}\n" for pair in PAIRS)
        (folder / f"a.{code}").write_text(text, encoding="utf-8")
    tables: dict[str, Any] = {"train": [{"files": [f"{folder}/a.en", f"{folder}/a.ko"]}]}
    prepare(Recipe.from_mapping({**tables, "subwords": {"vocab_size": 320}}), folder / "data")
    return folder / "data"


def config(name: str, data: Path, **changes: Any) -> mh.Config:
    training: dict[str, Any] = {
        "steps": 4, "warmup": 2, "learning_rate": 5e-3, "log_every": 1, "validate_every": 2,
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
    """A model of each kind, by a run that was cut and taken up again."""
    found = {}
    for name in MODELS:
        run = tmp_path_factory.mktemp(name) / "run"
        assert train(config(name, data, steps=2), run, device="cpu") == "steps"
        assert train(config(name, data), run, change_config=True, device="cpu") == "steps"
        found[name] = run / "model"
    return found


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
def test_a_run_that_was_cut_is_the_run_that_was_not(
    name: str, data: Path, folders: dict[str, Path], tmp_path: Path
) -> None:
    train(config(name, data), tmp_path / "run", device="cpu")
    whole, cut = (
        checkpoint.read_tensors(folder / checkpoint.WEIGHTS)
        for folder in (tmp_path / "run/model", folders[name])
    )
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[key], cut[key]) for key in whole)


@pytest.mark.parametrize("name", MODELS)
def test_the_command_line_translates_scores_and_tells_of_each_kind(
    name: str, folders: dict[str, Path], manyheads: Call, tmp_path: Path
) -> None:
    model = str(folders[name])
    code, out, err = manyheads(
        "translate", model, "--device", "cpu", given="I have 3 books.\n\nI have 4 books.\n"
    )
    assert (code, err, len(out.splitlines())) == (0, "", 3)
    texts = out.splitlines()
    assert [one.text for one in mh.load(model, device="cpu").translate(["I have 3 books."])] == texts[:1]
    code, out, err = manyheads("inspect", model, "--json")
    told = json.loads(out)
    assert told["config"]["model"]["architecture"] == MODELS[name].architecture
    assert told["parameters"] == sum(
        one.numel() for one in build_model(mh.Config.from_mapping(told["config"]).model).parameters()
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_beams_score_is_that_of_forced_decoding(name: str, folders: dict[str, Path]) -> None:
    translator = mh.load(folders[name], device="cpu")
    found = translator.translate("I have 3 books.", beam=3, nbest=3, split=False)
    for one in (found, *found.alternatives):
        (scored,) = translator.score(["I have 3 books."], [one.text])
        if scored.tokens == one.tokens:  # else the text is split otherwise than it was written
            assert scored.log_probability == pytest.approx(one.log_probability, abs=1e-4)


@pytest.mark.parametrize("name", LOOKS)
def test_the_page_shows_what_maps_a_kind_has(
    name: str, folders: dict[str, Path], manyheads: Call, tmp_path: Path
) -> None:
    code, _, err = manyheads("look", str(folders[name]), "I have 3 books.", "--device", "cpu")
    assert (code, err) == (0, "")
    text = (tmp_path / "attention.html").read_text(encoding="utf-8")
    data = json.loads(text.split('id="attention">')[1].split("</script>")[0])
    kinds = ["encoder", "decoder", "cross"] if name == "experts" else ["cross"]
    assert list(data["sides"]) == list(data["snapshots"][0]["maps"]) == kinds
    assert data["layers"] == dict.fromkeys(kinds, LOOKS[name])
    (aligned,) = mh.load(folders[name], device="cpu").translate(["I have 3 books."], alignment=True)
    assert aligned.alignment is not None


@pytest.mark.parametrize(
    ("name", "why"),
    [("bytenet", "model.architecture is 'bytenet'"), ("seq2seq", "model.attention is 'none'")],
)
def test_what_has_no_attention_cannot_be_looked_at(
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
def test_other_formats_hold_the_transformer_alone(
    name: str, key: str, to: str, folders: dict[str, Path], manyheads: Call
) -> None:
    code, _, err = manyheads("export", str(folders[name]), "--to", to, "--out", "out")
    assert code == 2
    assert key in err


def test_a_walk_is_through_the_papers_layers(folders: dict[str, Path]) -> None:
    from manyheads.look.forward_walk import walk_layer

    for name, key in (("lstm", "model.architecture is 'recurrent'"), ("experts", "model.experts is 3")):
        with pytest.raises(mh.RequestError, match=key):
            walk_layer(mh.load(folders[name], device="cpu"), "I have 3 books.")


def test_several_kinds_decide_together(folders: dict[str, Path]) -> None:
    together = mh.load(folders["lstm"], folders["bytenet"], folders["convs2s"], device="cpu")
    (one,) = together.translate(["I have 3 books."], beam=2)
    (scored,) = together.score(["I have 3 books."], [one.text])
    if scored.tokens == one.tokens:
        assert scored.log_probability == pytest.approx(one.log_probability, abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_captured_graphs_and_compiled_programs_are_the_papers_transformer(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("manyheads.train.captured_step", "manyheads.inference.cuda_graph_search"):
        monkeypatch.setattr(f"{module}.kernels.there_is_triton", lambda: True)
    monkeypatch.setattr("manyheads.train.captured_step.has_kernel", lambda _: True)
    one = config(name, data)
    assert not can_capture(one, torch.device("cuda"))
    assert can_capture(replace(one, model=mh.TransformerConfig(**SIZES, heads=2)), torch.device("cuda"))
    model = build_model(MODELS[name])
    assert not supports(model, [DecodingConstraints(5)], mh.DecodingConfig())
    assert supports(
        build_model(mh.TransformerConfig(**SIZES, heads=2)), [DecodingConstraints(5)], mh.DecodingConfig()
    )
    with pytest.raises(mh.ConfigError, match=r"train.compile is true, but model\.(kind|experts) is"):
        train(config(name, data, compile=True), tmp_path / "run", device="cpu")


def test_every_kind_of_the_configuration_is_made() -> None:
    assert set(ARCHITECTURES) == set(get_args(get_type_hints(mh.ModelConfig)["architecture"]))
