import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import manyheads as mh
from support.source_tree import ROOT, SOURCE
from support.untrained_model import save_untrained_model

MAX_WHEEL_BYTES = 40_000_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


def build_wheel(source: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    (built,) = out.glob("*.whl")
    return built


def install_wheel(wheel: Path, parent: Path) -> Path:
    """Install into an empty folder, so that no file of the checkout is used."""
    site = parent / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(site), str(wheel)], check=True, capture_output=True)
    return site


def test_the_wheel_contains_the_package_its_types_and_its_license(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "manyheads/py.typed" in names
    for package in ("look", "serve"):
        assets = {
            f"manyheads/{package}/assets/{path.name}" for path in (SOURCE / package / "assets").iterdir()
        }
        assert len(assets) > 10
        assert assets <= set(names)
    live = {f"manyheads/look/live/{path.name}" for path in (SOURCE / "look" / "live").iterdir()}
    assert len(live) > 10
    assert live <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"manyheads", f"manyheads-{mh.__version__}.dist-info"}


def test_the_wheel_holds_the_box_and_is_small(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    box = [path for path in (SOURCE / "box").rglob("*") if path.is_file()]
    assert {f"manyheads/{path.relative_to(SOURCE).as_posix()}" for path in box} <= names
    assert "manyheads/box/README.md" in names
    assert wheel.stat().st_size < MAX_WHEEL_BYTES


@pytest.mark.heavy
def test_a_model_in_the_box_is_in_the_wheel_and_translates_offline(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source)
    shutil.copytree(SOURCE, source / "src" / "manyheads")
    save_untrained_model(source / "src" / "manyheads" / "box" / "aa-bb")
    site = install_wheel(build_wheel(source, tmp_path), tmp_path)
    code = f"import sys; sys.path.insert(0, {str(site)!r})\nfrom manyheads.cli import main; main()"
    process = subprocess.run(
        [sys.executable, "-c", code, "translate", "aa-bb"],
        input="I go home.\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("\n") == 1


def test_the_wheel_declares_its_requirements_and_its_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"manyheads-{mh.__version__}.dist-info"
    metadata = archive.read(f"{info}/METADATA").decode()
    requirements = re.findall(r"^Requires-Dist: ([a-z-]+)[^;\n]*$", metadata, flags=re.M)
    assert sorted(requirements) == [
        "numpy",
        "rich",
        "sacrebleu",
        "sacremoses",
        "safetensors",
        "sentencepiece",
        "sentencex",
        "torch",
        "typer",
    ]
    extras = re.findall(r"^Provides-Extra: (\S+)$", metadata, flags=re.M)
    assert sorted(extras) == [
        "ctranslate2",
        "dev",
        "docs",
        "figures",
        "formats",
        "hub",
        "huggingface",
        "onnx",
        "parquet",
        "ray",
        "serve",
        "tensorboard",
    ]
    assert "manyheads = manyheads.cli:main" in archive.read(f"{info}/entry_points.txt").decode()


def test_the_wheel_installs_alone_and_runs(wheel: Path, tmp_path: Path) -> None:
    site = install_wheel(wheel, tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "import manyheads as mh\n"
        f"assert mh.__file__.startswith({str(site)!r}), mh.__file__\n"
        "model = mh.Transformer(mh.TransformerConfig(vocab_size=9, layers=1, d_model=4, d_ff=4, heads=1))\n"
        "print(tuple(model(mh.Packed.of([[3, 2]]), mh.Packed.of([[1, 4, 5]])).shape))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert process.stdout == "(3, 9)\n", process.stderr
