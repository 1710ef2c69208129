"""Every command of docs/own-data.md runs, in its order, on small files of the names that it uses."""

import json
import re
import shlex
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pytest

from manyheads import playground
from support import document_commands
from support.document_commands import SMALL, add_options, run_command, write_lines
from support.server_process import start_server
from support.source_tree import ROOT

PAGE, KOREAN_PAGE = ROOT / "docs" / "own-data.md", ROOT / "docs" / "own-data.ko.md"
# What keeps the commands small. Everything else is as the page has it.
OPTIONS = document_commands.OPTIONS | {
    "prepare": ["subwords.vocab_size=600"],
    "learn": ["--seconds", "3", "--sentences", "10", "--max-loss", "100"],
    "backtranslate": ["--workers", "1"],
}
IMPORTED = "opus-mt-en-ko"  # what the page downloads


def list_commands(page: Path) -> list[str]:
    """Return the lines of the page's blocks that are commands."""
    lines = re.findall(r"^    (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return [line for line in lines if line.startswith(("manyheads ", "curl "))]


def test_the_korean_page_has_the_same_commands() -> None:
    assert list_commands(KOREAN_PAGE) == list_commands(PAGE)
    assert len(list_commands(PAGE)) > 25


@pytest.mark.heavy
def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    write_files(tmp_path)
    with ExitStack() as servers:
        for command in list_commands(PAGE):
            if command.startswith(f"manyheads export {IMPORTED}"):
                run(tmp_path, f"manyheads export run/model --to huggingface --out {IMPORTED}")
            if command.startswith("manyheads serve "):
                model, *options = shlex.split(command)[2:]
                server = servers.enter_context(start_server(*options, model=tmp_path / model))
                continue
            if command.startswith("curl "):
                answer = run(tmp_path, command.replace("localhost:5000", f"localhost:{server.port}"))
                assert "translatedText" in json.loads(answer)
            else:
                run(tmp_path, command)
    check_results(tmp_path)


def write_files(folder: Path) -> None:
    """Write the files that the page names: pairs of the built-in grammar, its configuration and recipe."""
    corpus = playground.generate_corpus("en-ko", train=1700, valid=60, test=30, seed=1, words=3)
    train, sizes = iter(corpus["train"]), {"train": 800, "talks": 260, "captions": 260, "own": 300}
    pairs = {name: list(islice(train, size)) for name, size in sizes.items()}
    pairs |= {"valid": corpus["valid"], "test": corpus["test"], "news": list(islice(train, 40))}
    for name, own in pairs.items():
        for side, language in enumerate(("en", "ko")):
            write_lines(folder / f"{name}.{language}", [pair[side] for pair in own])
    for name in ("photos", "text"):
        write_lines(folder / f"{name}.en", [source for source, _ in corpus["test"][:3]])
    write_lines(folder / "corrections.tsv", [f"{source}\t{target}" for source, target in corpus["test"][:6]])
    write_lines(folder / "terms.tsv", ["dog\t고양이"])
    run(folder, f"manyheads inspect small {' '.join(SMALL)} > run.toml")
    recipe = re.search(r"^    # recipe.toml\n(.*?)^    manyheads", PAGE.read_text("utf-8"), flags=re.M | re.S)
    assert recipe is not None
    write_lines(folder / "recipe.toml", [line[4:] for line in recipe[1].splitlines()])


def run(folder: Path, command: str) -> str:
    options = {verb: own for verb, own in OPTIONS.items() if verb != "prepare" or "reuse_from" not in command}
    return run_command(folder, add_options(command, options))


def check_results(folder: Path) -> None:
    """Check what the page says that there is afterwards."""
    pairs = (folder / "bt" / "news.ko.tsv").read_text(encoding="utf-8").splitlines()
    assert 0 < len(pairs) <= 40, "those of too low confidence are left out"
    assert all(pair.count("\t") == 1 for pair in pairs)
    assert (folder / "talks" / "adaptation.md").is_file()
    assert (folder / "run" / "model" / "adapters" / "captions.safetensors").is_file()
    assert (folder / "run" / "model" / "memory" / "corrections.sqlite").is_file()
    assert json.loads((folder / "company" / "adaptation.json").read_text(encoding="utf-8"))["new"]
    manifest = json.loads((folder / "student" / "model" / "manyheads.json").read_text(encoding="utf-8"))
    assert manifest["quantization"] == "int8"
