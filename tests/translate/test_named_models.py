"""Models by name: of the box, which may be empty, and of the user's own folder."""

import json
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import manyheads as mh
from manyheads import checkpoint
from manyheads.atomic_io import open_locked, write_manifest
from manyheads.bulk.jobs import create_translate_job
from manyheads.checkpoint.manifest import MODEL_SCHEMA
from manyheads.cli import main
from manyheads.demo import translate_with_box
from manyheads.loading import choose_engine
from manyheads.named_models import resolution
from manyheads.named_models.listing import format_models, read_card_scores, summarize_models
from manyheads.named_models.resolution import has_name, list_models, require_models, resolve_model
from support.untrained_model import save_untrained_model

CARD = """# Translation from en to ko

## Scores

- test, 500 of 500 lines, by torch with the model's decoding:
  - BLEU 27.35 ± 0.50 (`nrefs:1|case:mixed|eff:no|tok:char|smooth:exp|version:2.6.0`)
  - chrF 55.10 ± 0.40 (`nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0`)

## Stress tests

BLEU 1.00
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained_model(tmp_path_factory.mktemp("named") / "model")


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two empty folders: a box, and one of the user's own."""
    folder = tmp_path / "box"
    folder.mkdir()
    monkeypatch.setattr(resolution, "BOX", folder)
    monkeypatch.setattr("manyheads.export.ctranslate2.BOX", folder)
    monkeypatch.setenv("MANYHEADS_MODELS", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return folder


def mark_as_int8(folder: Path) -> None:
    manifest = checkpoint.read_model_manifest(folder)
    values = {key: value for key, value in manifest.items() if key not in ("format", "files", "sha256")}
    (folder / checkpoint.MANIFEST).unlink()
    write_manifest(folder, MODEL_SCHEMA, values | {"quantization": "int8"})


def test_a_name_is_looked_up_in_the_own_folder_and_then_in_the_box(box: Path, model: Path) -> None:
    shutil.copytree(model, box / "en-ko")
    assert resolve_model("en-ko") == box / "en-ko"
    own = box.parent / "own" / "en-ko"
    shutil.copytree(model, own)
    assert resolve_model("en-ko") == own
    assert [(named.name, named.origin) for named in list_models()] == [("en-ko", "own")]
    assert has_name(own)
    assert has_name(box / "en-ko")
    assert not has_name(model)


def test_a_path_that_exists_always_wins(box: Path, model: Path) -> None:
    shutil.copytree(model, box / "en-ko")
    shutil.copytree(model, Path("en-ko"))
    assert resolve_model("en-ko") == Path("en-ko")
    assert resolve_model("gone/model") == Path("gone/model")  # which is no name
    assert resolve_model(model) == model


def test_an_unknown_name_lists_the_known_and_the_nearest(box: Path, model: Path) -> None:
    shutil.copytree(model, box / "en-ko")
    with pytest.raises(mh.CheckpointError, match=r"did you mean en-ko\? \(known names: en-ko\)"):
        mh.load("en-kr")
    with pytest.raises(mh.CheckpointError, match=r"nor the name of a model \(known names: en-ko\)"):
        mh.load("zzz")


def test_an_empty_box_says_what_to_do(box: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(mh.CheckpointError, match=r"en-de: not a model folder, nor .*none is installed"):
        mh.load("en-de")
    with pytest.raises(mh.RequestError, match=r"run/model, copy one to .*own/NAME, or train one"):
        require_models()
    assert "cp -r run/model" in format_models(summarize_models())


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["manyheads", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_commands_take_names(
    box: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(model, box / "en-ko")
    Path("a.en").write_text("I go home.\n", encoding="utf-8")
    assert run(monkeypatch, "translate", "en-ko", "a.en", "--device", "cpu") == 0
    by_name = capsys.readouterr().out
    assert run(monkeypatch, "translate", str(model), "a.en", "--device", "cpu") == 0
    assert capsys.readouterr().out == by_name
    assert run(monkeypatch, "inspect", "en-ko", "--json") == 0
    assert json.loads(capsys.readouterr().out)["languages"] == {"source": "en", "target": "ko"}
    assert run(monkeypatch, "look", "en-ko", "I go home.", "-o", "page.html") == 0
    assert Path("page.html").exists()
    capsys.readouterr()
    assert run(monkeypatch, "translate", "en-de") == 3
    assert capsys.readouterr().err.startswith("manyheads: en-de: not a model folder, nor the name of a model")


def test_serve_without_arguments_serves_all_named_models(
    box: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "serve") == 2
    assert "no model is given" in capsys.readouterr().err
    shutil.copytree(model, box / "en-ko")
    shutil.copytree(model, box.parent / "own" / "mine")
    calls = []
    monkeypatch.setattr("manyheads.serve.server.serve", lambda folders, *_, **__: calls.append(folders))
    assert run(monkeypatch, "serve") == 0
    assert calls == [[box / "en-ko", box.parent / "own" / "mine"]]


def test_the_list_has_languages_size_and_scores_of_the_card(
    box: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(model, box / "en-ko")
    mark_as_int8(box / "en-ko")
    (box / "en-ko" / "model_card.md").write_text(CARD, encoding="utf-8")
    shutil.copytree(model, box.parent / "own" / "mine")
    (box.parent / "own" / "mine" / "manyheads.json").write_text("{}", encoding="utf-8")
    assert run(monkeypatch, "models", "--json") == 0
    boxed, damaged = json.loads(capsys.readouterr().out)
    size = sum(path.stat().st_size for path in (box / "en-ko").iterdir() if path.suffix != ".md")
    assert boxed["megabytes"] == pytest.approx(size / 1e6)
    assert boxed["scores"] == "BLEU 27.4, chrF 55.1"
    assert (boxed["languages"], boxed["quantization"], boxed["origin"]) == ("en to ko", "int8", "box")
    assert "not the manifest of a model folder" in damaged["error"]
    assert run(monkeypatch, "models") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("en-ko  en to ko   int8     0.1  BLEU 27.4, chrF 55.1")
    assert len(lines) == 3


def test_a_card_without_scores_has_none(tmp_path: Path) -> None:
    assert read_card_scores(tmp_path / "gone.md") == ""
    (tmp_path / "card.md").write_text("# A model\n\nBLEU 3.00\n", encoding="utf-8")
    assert read_card_scores(tmp_path / "card.md") == ""


def test_int8_models_with_a_name_run_in_ctranslate2_on_a_cpu(
    box: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyheads.loading.count_gpus", lambda: 0)
    shutil.copytree(model, box / "en-ko")
    assert choose_engine(box / "en-ko") == "torch"  # float weights
    mark_as_int8(box / "en-ko")
    assert choose_engine(box / "en-ko") == "ctranslate2:int8"
    assert choose_engine(model) == "torch"
    assert choose_engine(box / "en-ko", [model]) == "torch"
    assert choose_engine(box / "en-ko", device="cuda") == "torch"
    monkeypatch.setattr("manyheads.loading.count_gpus", lambda: 1)
    assert choose_engine(box / "en-ko") == "torch"
    assert choose_engine(box / "en-ko", device="cpu") == "ctranslate2:int8"
    monkeypatch.setattr("manyheads.loading.find_spec", lambda name: None)
    assert choose_engine(box / "en-ko", device="cpu") == "torch"


def test_what_ctranslate2_cannot_do_runs_in_torch(
    box: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user chose no engine, so that a message to use another one would be wrong."""
    monkeypatch.setattr("manyheads.loading.count_gpus", lambda: 0)
    shutil.copytree(model, box / "en-ko")
    mark_as_int8(box / "en-ko")
    Path("a.en").write_text("I go home.\n", encoding="utf-8")
    options = ["--temperature", "1", "--seed", "1"]
    assert run(monkeypatch, "translate", "en-ko", "a.en", *options) == 0, capsys.readouterr().err
    refused = run(monkeypatch, "translate", "en-ko", "a.en", *options, "--engine", "ctranslate2")
    assert refused == 2
    assert "use the torch engine" in capsys.readouterr().err


def test_the_conversion_of_a_model_of_the_box_is_kept_in_the_cache(box: Path, model: Path) -> None:
    shutil.copytree(model, box / "en-ko")
    mh.load("en-ko", engine="ctranslate2")
    assert [path.name for path in box.iterdir()] == ["en-ko"]
    assert (box.parent / "cache" / "manyheads" / "en-ko.ctranslate2" / "conversion.json").exists()


def test_a_model_whose_conversion_cannot_be_written_runs_in_torch(
    box: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the user chose the engine: then it is an error."""
    monkeypatch.setattr("manyheads.loading.count_gpus", lambda: 0)
    shutil.copytree(model, box / "en-ko")
    mark_as_int8(box / "en-ko")
    (box.parent / "cache").write_text("in the way", encoding="utf-8")
    assert mh.load("en-ko").engine.name.startswith("torch")
    job = create_translate_job([box / "en-ko"], None, None, {}, None, False, False)
    assert job.engine == "torch"
    with pytest.raises(mh.RequestError, match="cannot be written"):
        mh.load("en-ko", engine="ctranslate2")


def test_a_process_waits_for_the_conversion_of_another(
    box: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(model, box / "en-ko")
    part = box.parent / "cache" / "manyheads" / ".en-ko.ctranslate2.manyheads-part"
    waited: list[float] = []
    with ExitStack() as other:
        other.enter_context(open_locked(part))

        def wait(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 3:
                other.close()

        monkeypatch.setattr("manyheads.export.ctranslate2.time.sleep", wait)
        mh.load("en-ko", engine="ctranslate2")
    assert len(waited) == 3
    with open_locked(part):
        monkeypatch.setattr("manyheads.export.ctranslate2.WAIT_SECONDS", 0.0)
        mh.load("en-ko", engine="ctranslate2")  # it is complete
        shutil.rmtree(part.parent / "en-ko.ctranslate2")
        with pytest.raises(mh.DataError, match="another process is writing it"):
            mh.load("en-ko", engine="ctranslate2")


@pytest.mark.skipif(sys.platform != "linux", reason="folders of Linux")
def test_without_a_home_the_folders_are_temporary(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    monkeypatch.setattr("tempfile.tempdir", str(box.parent))
    assert resolution.find_platform_folder("cache") == box.parent / ".cache" / "manyheads"
    assert resolution.find_platform_folder("data") == box.parent / ".local" / "share" / "manyheads"


def test_the_demo_begins_with_the_box_if_it_has_a_model(
    box: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyheads.demo.BOX", box)
    assert translate_with_box(Path("demo")) is None
    shutil.copytree(model, box / "en-ko")
    boxed = translate_with_box(Path("demo"))
    assert (boxed.name, boxed.page) == ("en-ko", Path("demo-en-ko.html"))
    assert "animal" in boxed.page.read_text(encoding="utf-8")
    assert not Path("demo").exists()
