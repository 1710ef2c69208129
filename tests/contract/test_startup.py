"""What a command must not import: modules that it does not need cost more time than its work."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.untrained_model import save_untrained_model

COMPILER = ("torch._dynamo", "torch._inductor", "sympy", "triton")
EXTRAS = (
    "transformers",
    "matplotlib",
    "sacrebleu",
    "fastapi",
    "onnx",
    "onnxruntime",
    "tensorboard",
    "lxml",
    "ray",
)
RUN = """
import sys
from manyheads.cli import main
sys.argv = ["manyheads", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert end.code in (0, None), end.code
print(*sys.modules, file=sys.stderr)
"""


def imported_by(*arguments: str) -> set[str]:
    """Run a command and return the modules that it has imported."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    return set(done.stderr.split())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained_model(tmp_path_factory.mktemp("startup") / "model")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.en"
    path.write_text("a b\nb a c\n", encoding="utf-8")
    return path


def test_help_needs_no_library_of_numbers() -> None:
    assert not imported_by("--help") & {"torch", "numpy", "sentencepiece", *COMPILER, *EXTRAS}


@pytest.mark.parametrize("engine", ["ctranslate2", "ctranslate2:int8"])
def test_ctranslate2_converts_and_translates_without_torch(model: Path, text: Path, engine: str) -> None:
    for _ in range(2):  # the first converts the model
        modules = imported_by("translate", str(model), str(text), "--engine", engine)
        assert not modules & {"torch", "ctranslate2.specs", "ctranslate2.converters", *COMPILER, *EXTRAS}
    modules = imported_by("score", str(model), str(text), str(text), "--engine", engine)
    assert not modules & {"torch", *COMPILER, *EXTRAS}


def test_torch_translates_and_scores_without_its_compiler(model: Path, text: Path) -> None:
    for arguments in (("translate", str(model), str(text)), ("score", str(model), str(text), str(text))):
        modules = imported_by(*arguments, "--device", "cpu")
        assert "torch" in modules
        assert not modules & {*COMPILER, *EXTRAS, "ctranslate2"}


def test_torch_can_convert_after_a_conversion_without_it(model: Path, tmp_path: Path) -> None:
    """The specifications of CTranslate2 that were imported without torch are forgotten."""
    code = (
        "import sys; from pathlib import Path\n"
        "from manyheads.export.ctranslate2 import convert\n"
        f"convert(Path({str(model)!r}), Path({str(tmp_path / 'out')!r}))\n"
        "assert 'torch' not in sys.modules\n"
        "import torch, ctranslate2\n"
        "assert ctranslate2.specs.model_spec.torch_is_available\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
