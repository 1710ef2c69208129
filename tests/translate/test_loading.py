"""Opening a model: what is done beside the import of torch, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads import atomic_io, checkpoint, errors
from manyheads.checkpoint.manifest import MODEL_SCHEMA
from manyheads.cuda import driver
from support.untrained_model import save_untrained_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_untrained_model(tmp_path / "model")


def damage(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_files_are_read_and_verified_without_torch(folder: Path) -> None:
    code = (
        "import sys; from manyheads import checkpoint\n"
        f"opened = checkpoint.open_model({str(folder)!r})\n"
        "files = opened.wait_for_files()\n"
        "assert 'torch' not in sys.modules\n"
        "assert files.weights and files.subwords.source.encode('가나다')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_weights_are_those_that_were_hashed(folder: Path) -> None:
    """A file that changes between its verification and its use does not matter."""
    expected, _, _ = checkpoint.load_model(folder)
    opened = checkpoint.open_model(folder)
    opened.wait_for_files()
    damage(folder / checkpoint.WEIGHTS)
    model, _ = checkpoint.build_opened_model(opened)
    for own, other in zip(model.parameters(), expected.parameters(), strict=True):
        assert own.equal(other)
    with pytest.raises(mh.CheckpointError, match=r"weights\.safetensors: damaged"):
        checkpoint.load_model(folder)


def test_the_error_of_a_file_is_that_of_the_whole_check(folder: Path) -> None:
    subwords = next(path for path in folder.iterdir() if path.suffix == ".model")
    damage(subwords)
    messages = []
    for read in (checkpoint.read_info, checkpoint.load_model, mh.load):
        with pytest.raises(mh.CheckpointError) as caught:
            read(folder)
        messages.append(str(caught.value))
    assert len(set(messages)) == 1
    assert "its SHA-256 is not that of manyheads.json" in messages[0]


@pytest.mark.parametrize("name", ["weights.safetensors", "subwords.model"])
def test_a_damaged_model_is_refused_before_anything_is_written(folder: Path, name: str) -> None:
    damage(folder / name)
    command = [sys.executable, "-m", "manyheads", "translate", str(folder), "--device", "cpu"]
    done = subprocess.run(command, input="가 나\n", capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 3
    assert done.stdout == ""
    expected = f"manyheads: {folder / name}: damaged, its SHA-256 is not that of manyheads.json\n"
    assert done.stderr == expected


def test_a_path_outside_the_folder_is_never_read(folder: Path) -> None:
    manifest = json.loads((folder / checkpoint.MANIFEST).read_text(encoding="utf-8"))
    manifest["files"]["../secret"] = {"bytes": 0, "sha256": ""}
    manifest["sha256"] = atomic_io.compute_checksum(manifest)
    (folder / checkpoint.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(mh.CheckpointError, match="which is not in the folder"):
        checkpoint.load_model(folder)


# ---- the context of a GPU


class FakeDriver:
    """The CUDA driver of a machine with a number of GPUs."""

    def __init__(self, num_gpus: int) -> None:
        self.num_gpus = num_gpus
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            return 0 if self.num_gpus or name == "cuInit" else 100  # CUDA_ERROR_NO_DEVICE

        return call


def test_a_context_is_created_only_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "open_driver", lambda: None)
    assert driver.start_context_creation() is None
    assert driver.count_gpus() == 0
    for num_gpus, last_call in ((0, "cuDeviceGet"), (1, "cuDevicePrimaryCtxRetain")):
        fake = FakeDriver(num_gpus)
        monkeypatch.setattr(driver, "open_driver", lambda fake=fake: fake)
        thread = driver.start_context_creation()
        assert thread is not None
        assert not thread.daemon  # the process must not end within the driver
        thread.join()
        assert fake.calls[-1] == last_call


@pytest.mark.parametrize(("device", "starts"), [("cpu", False), (None, True)])
def test_only_a_load_that_may_use_a_gpu_creates_a_context(
    folder: Path, monkeypatch: pytest.MonkeyPatch, device: str | None, starts: bool
) -> None:
    fake = FakeDriver(0)
    monkeypatch.setattr(driver, "open_driver", lambda: fake)
    assert mh.load(folder, device=device).translate("가 나").text is not None
    assert bool(fake.calls) == starts


def test_the_translator_splits_by_the_length_that_training_saw(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    for supported, expected in ((None, 40), (7, 7), (300, 40)):  # data.max_length is 40
        folder = save_untrained_model(tmp_path / str(supported), supported)
        assert checkpoint.read_info(folder).supported_length == supported
        for engine in ("torch", "ctranslate2"):
            assert mh.load(folder, device="cpu", engine=engine).max_length == expected
    sentences = mh.load(tmp_path / "7", device="cpu").split_sentences(
        "I go home today, we read a book at school."
    )
    assert len(sentences) > 1


def test_folders_without_a_supported_length_are_read(folder: Path) -> None:
    manifest = json.loads((folder / checkpoint.MANIFEST).read_text(encoding="utf-8"))
    del manifest["supported_length"]
    values = {key: value for key, value in manifest.items() if key not in ("format", "files", "sha256")}
    (folder / checkpoint.MANIFEST).unlink()
    atomic_io.write_manifest(folder, MODEL_SCHEMA, values)
    assert mh.load(folder, device="cpu").max_length == 40


def test_a_run_that_has_not_finished_is_answered_with_its_newest_checkpoint(
    folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    for path in (run, run / "model"):
        with pytest.raises(mh.CheckpointError, match=r"has no checkpoint in .*run/checkpoints yet"):
            mh.load(path, device="cpu")
    for step in (10, 20):
        folder.rename(run / "checkpoints" / f"step-{step:08}")
        save_untrained_model(folder)
    for path in (run, run / "model"):
        with pytest.raises(mh.CheckpointError, match=r"newest checkpoint is .*checkpoints/step-00000020$"):
            mh.load(path, device="cpu")
    folder.rename(run / "model")
    for path in (run, run / "nomodel"):
        with pytest.raises(mh.CheckpointError, match=r"did you mean .*run/model\?"):
            mh.load(path, device="cpu")


def test_extras_are_installed_from_the_checkout_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "__file__", f"{tmp_path}/src/manyheads/errors.py")
    assert errors.install_command("serve") == "pip install 'manyheads[serve]'"
    (tmp_path / "pyproject.toml").touch()
    assert errors.install_command("serve") == f"pip install '{tmp_path}[serve]'"
