"""The commands of the guide run, page by page, on small files of the names that the pages use.

`test_own_data_page.py` does the same for docs/own-data.md.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from manyheads import playground
from support.document_commands import OPTIONS, SMALL, add_options, run_command, write_lines
from support.office_files import make_docx, make_odt
from support.source_tree import ROOT

pytestmark = pytest.mark.heavy
PAGES = [
    "configuration", "first-translation", "look", "robustness", "scaling", "students", "training",
    "training-curves", "translation",
]  # fmt: skip
# What a test cannot run, and why. Everything else runs.
SKIPPED = {
    r"--gpus|--ray|--machines": "needs GPUs or a cluster",
    r"^manyheads demo|demo/run/config.toml": "trains for minutes",
    r"^manyheads serve": "runs until it is stopped; tests/serve starts servers",
    r"^mkdir -p ~": "writes to the reader's home",
    r"^manyheads: ": "what a command prints",
}
# What keeps the commands small.
RUN = ["train.steps=200", "train.checkpoint_every=40", "data.folder=data"]
NUMBERS = {
    r"train\.steps=\d{4,}": "train.steps=240",
    "step-00000368": "step-00000200",
    "step-00000190": "step-00000160",
}


def list_commands(page: Path) -> list[str]:
    """Return the commands in the blocks of a page, without remarks; continued lines are joined."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    blocks = re.sub(r" *\\\n *", " ", "\n".join(re.findall(r"^    .*$", text, flags=re.M)))
    lines = re.findall(r"^ {4}((?:manyheads\b|echo |mkdir |head ).*)$", blocks, flags=re.M)
    commands = [re.split(r" {2,}| #", line.strip())[0] for line in lines]
    return [command for command in commands if not any(re.search(pattern, command) for pattern in SKIPPED)]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, documents, prepared data and a trained run."""
    folder = tmp_path_factory.mktemp("guide")
    corpus = playground.generate_corpus("en-ko", train=700, valid=60, test=30, seed=1, words=3)
    pairs = {**corpus, "talks": corpus["train"][:200]}
    for name, own in pairs.items():
        for side, language in enumerate(("en", "ko")):
            write_lines(folder / f"{name}.{language}", [pair[side] for pair in own])
    sources = [source for source, _ in corpus["test"][:4]]
    for name in ("a.en", "b.en", "text.en", "text.ko", "news.en", "report.en", "shards/1.en", "shards/2.en"):
        write_lines(folder / name, sources)
    shutil.copy(folder / "test.ko", folder / "test.de")
    write_lines(folder / "terms.tsv", ["dog\t고양이"])
    write_lines(folder / "page.html", ["<p>I go home.</p>"])
    (folder / "report.docx").write_bytes(make_docx("<w:p><w:r><w:t>I go home.</w:t></w:r></w:p>"))
    (folder / "letter.odt").write_bytes(make_odt("<text:p>I go home.</text:p>"))
    write_tables(folder, corpus["test"][:4])
    run(folder, "manyheads prepare data --train=train.{en,ko} --valid=valid.{en,ko} subwords.vocab_size=600")
    run(folder, f"manyheads inspect small {shlex.join([*SMALL, *RUN])} > run.toml")
    run(folder, "manyheads train run.toml")
    run(folder, "manyheads export run/model --to huggingface --out opus-mt-ko-en")
    for copy in ("run1/model", "run2/model", "run/average", "manyheads-demo/run/model", "names/en-de"):
        shutil.copytree(folder / "run" / "model", folder / copy, dirs_exist_ok=True)
    return folder


def write_tables(folder: Path, pairs: list[tuple[str, str]]) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    sources, targets = map(list, zip(*pairs, strict=True))
    parquet.write_table(arrow.table({"body": sources}), folder / "pages.parquet")
    parquet.write_table(arrow.table({"en": sources, "ko": targets}), folder / "pairs.parquet")


def run(folder: Path, command: str) -> str:
    for pattern, number in NUMBERS.items():
        command = re.sub(pattern, number, command)
    return run_command(folder, add_options(command, OPTIONS), {"MANYHEADS_MODELS": str(folder / "names")})


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_the_page_runs(name: str, workspace: Path, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(workspace, folder)
    commands = list_commands(ROOT / "docs" / f"{name}.md")
    assert commands
    for command in commands:
        run(folder, command)


@pytest.mark.parametrize("name", PAGES)
def test_the_korean_page_has_the_same_commands(name: str) -> None:
    assert list_commands(ROOT / "docs" / f"{name}.ko.md") == list_commands(ROOT / "docs" / f"{name}.md")
