import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import typer

import manyheads as mh
from manyheads import cli
from manyheads.cli import app
from manyheads.cli.app import GROUPS
from support.untrained_model import save_untrained_model

HEAVY = ("torch", "numpy", "transformers", "matplotlib", "sentencepiece", "rich.progress", "lxml", "polib")


def manyheads(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "manyheads", *arguments], capture_output=True, text=True, encoding="utf-8"
    )


def test_help_answers_without_importing_torch() -> None:
    code = (
        "import sys\nfrom manyheads.cli import main\nsys.argv = ['manyheads', '--help']\n"
        "try: main()\nexcept SystemExit as end: assert end.code in (0, None)\n"
        f"sys.exit(','.join(name for name in {HEAVY} if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "inspect" in done.stdout


def test_a_command_whose_reader_is_gone_ends_with_0_and_says_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "manyheads", "prepare", "data", "--show-recipe"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_is_one_line_that_a_terminal_only_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Names in messages may come from elsewhere, such as that of a file in a manifest."""
    from manyheads.cli.app import exit_with_error

    with pytest.raises(SystemExit):
        exit_with_error("has no a\x1b]0;title\x07\nb\r\u202e\x9bc 나", 3)
    assert capsys.readouterr().err == "manyheads: has no a\\x1b]0;title\\x07 b \\u202e\\x9bc 나\n"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], ["inspect", "--help"]])
def test_help_and_version_exit_with_0(arguments: list[str]) -> None:
    done = manyheads(*arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_verb_shows_an_example() -> None:
    for command in app.registered_commands:
        verb = command.callback.__name__
        assert f"Example: manyheads {verb} " in " ".join(manyheads(verb, "--help").stdout.split())


def test_help_groups_all_commands_and_cuts_no_description_off() -> None:
    text = manyheads("--help").stdout
    listed = [name for names in GROUPS.values() for name in names]
    assert listed[0] == "demo"
    commands = [command.callback for command in app.registered_commands]
    assert sorted(listed) == sorted([*(command.__name__ for command in commands), "paper"])
    assert [heading for heading in GROUPS if f"\n{heading}:\n" in text] == list(GROUPS)
    words = " ".join(text.split())
    for command in commands:
        description = " ".join(command.__doc__.split("\n\n")[0].split())
        assert f"{command.__name__} {description}" in words
    assert "..." not in text.partition("\nStart here:")[2]


def test_paper_help_cuts_no_description_off() -> None:
    text = manyheads("paper", "--help").stdout
    assert "table1 Measure the cost and the path length of each type of layer" in " ".join(text.split())
    assert "..." not in text.partition("\nCommands:")[2]


def test_inspect_prints_a_file_to_start_from(tmp_path: Path) -> None:
    done = manyheads("inspect", "base", "model.layers=12", "model.norm=pre")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# 107,223,040 parameters")
    file = tmp_path / "run.toml"
    file.write_text(done.stdout, encoding="utf-8")
    assert mh.Config.load(file).model == mh.TransformerConfig(layers=12, norm="pre")
    again = json.loads(manyheads("inspect", str(file), "--json").stdout)
    assert again["model"]["encoder_layers"] == again["model"]["decoder_layers"] == 12
    assert again["parameters"]["total"] == 107_223_040


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "bse"], "bse: no file or folder, and unknown preset bse; did you mean base?"),
        (
            ["inspect", "base", "--sentence", "x"],
            "--sentence, --verify and --curves need a folder, but base is a configuration",
        ),
        (["inspect", "base", "model.haeds=4"], "unknown key model.haeds; did you mean model.heads?"),
        (["inspect", "base", "model.heads=0"], "model.heads is 0, but must be at least 1 and below 1048576"),
        (["inspect", "base", "heads"], "'heads' is not an assignment: write section.key=value"),
    ],
)
def test_a_wrong_call_is_one_clear_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    done = manyheads(*arguments)
    assert done.returncode == 2
    assert done.stderr == f"manyheads: {message}\n"
    assert done.stdout == ""


def test_evaluate_creates_the_folder_of_its_output_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    save_untrained_model(tmp_path / "model")
    for name in ("a.en", "a.ko"):
        Path(name).write_text("I go.\n", encoding="utf-8")
    options = ["--out", "new/out.ko", "--device", "cpu", "--bootstrap-samples", "0"]
    monkeypatch.setattr(sys, "argv", ["manyheads", "evaluate", "model", "a.en", "a.ko", *options])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code in (0, None)
    assert "manyheads: new: folder created\n" in capsys.readouterr().err
    assert len(Path("new/out.ko").read_text(encoding="utf-8").splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "gone.toml"], ["train", "gone.toml"], ["get", "toy", "--catalog", "gone.toml"],
        ["translate", "MODEL", "gone.en"], ["score", "MODEL", "gone.en", "gone.ko"],
        ["evaluate", "MODEL", "gone.en", "gone.ko"], ["evaluate", "MODEL", "gone"],
        ["prepare", "data", "--recipe", "gone.toml"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_input_file_that_does_not_exist_is_exit_code_3(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    if "MODEL" in arguments:
        save_untrained_model(tmp_path / "MODEL")
    monkeypatch.setattr(sys, "argv", ["manyheads", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (3, "")
    assert err.startswith("manyheads: gone")
    assert err.endswith(": No such file or directory\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "no such command 'trian'. Did you mean 'train'?"),
        (["translate"], "manyheads translate needs MODEL; manyheads translate --help shows how to call it"),
        (["translate", ".", "--beam", "x"], "--beam is 'x', but must be an integer"),
        (["translate", ".", "--temperature", "x"], "--temperature is 'x', but must be a number"),
        (["demo", "--seconds", "0"], "--seconds is '0', but must be at least 1"),
        (["translate", ".", "--bem", "4"], "manyheads translate has no option --bem; did you mean --beam?"),
        (["doctor", "--xyzzy"], "manyheads doctor has no option --xyzzy"),
        (["translate", ".", "--beam"], "option '--beam' requires an argument"),
        (["models", "more"], "got unexpected extra argument(s) (more)"),
        (["paper", "figure"], "no such command 'figure'. Did you mean 'figures'?"),
    ],
)
def test_a_call_that_the_parser_refuses_is_one_line_that_names_the_option(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setattr(sys, "argv", ["manyheads", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert err == f"manyheads: {message}\n"


@pytest.mark.parametrize("arguments", [[], ["paper"]])
def test_a_group_without_a_command_shows_its_help(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["manyheads", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    assert end.value.code == 2
    assert (out + err).startswith("Usage: manyheads ")


# ---- prepare, and inspect of what it made

PAIRS = [(f"I have {n} books.", f"나는 책이 {n}권 있다.") for n in range(100)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for side, code in enumerate(("en", "ko")):
        text = "".join(f"{pair[side]}\n" for pair in PAIRS)
        (folder / f"train.{code}").write_text(text + "\x00\n", encoding="utf-8")
    done = prepare(folder)
    assert done.returncode == 0, done.stderr
    assert "train: 90 pairs" in done.stdout
    assert "invalid               1  NUL" in done.stdout
    assert "training subwords: done in" in done.stderr
    assert done.stdout.endswith(
        f"{folder}/data: complete. Dropped pairs are listed in {folder}/data/dropped.tsv\n"
    )
    return folder


def prepare(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    files = [f"--train={folder}/train.en", f"--train={folder}/train.ko"]
    return manyheads("prepare", f"{folder}/data", *files, "subwords.vocab_size=320", *more)


def test_prepare_reports_as_json(prepared: Path) -> None:
    done = prepare(prepared, "--json", "--force")
    report = json.loads(done.stdout)
    assert report["splits"]["train"]["pairs"] == 90
    assert report["splits"]["train"]["inputs"][0]["invalid"] == {"NUL": 1}
    assert report["languages"] == {"source": "en", "target": "ko"}


def test_inspect_shows_a_data_folder_and_how_a_sentence_is_split(prepared: Path) -> None:
    done = manyheads(
        "inspect", f"{prepared}/data", "--sentence", "나는 <b> 있다", "--verify", "--examples", "2"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("en to ko, ")
    assert done.stdout.count("</s>") == 4
    assert "나는 <b> 있다\npieces: ▁나는 " in done.stdout
    report = json.loads(manyheads("inspect", f"{prepared}/data", "--json", "--sentence", "have").stdout)
    assert "".join(report["sentences"][0]["pieces"]) == "▁have"
    assert len(report["examples"]) == 3


def test_inspect_finds_damage(prepared: Path, tmp_path: Path) -> None:
    shutil.copytree(prepared / "data", tmp_path / "data")
    file = tmp_path / "data" / "train.source.tokens.npy"
    file.write_bytes(file.read_bytes()[:-2] + b"\xff\xff")
    done = manyheads("inspect", f"{tmp_path}/data", "--verify")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-1] == (
        f"manyheads: {file}: damaged, corpus.json has another SHA-256: prepare the data again"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["data"], 2, "no training text: give --train FILE twice, source and target, or one file of both"),
        (["data", "--train=a.en"], 2, "a.en has no counterpart: plain text comes in two files"),
        (["data", "--train=a.en", "--train=a.ko"], 3, "a.en: No such file or directory"),
        (["data", "--train=here.en", "--train=a.xx"], 3, "a.xx: No such file or directory"),
        (
            ["data", "--train=here.tmx"],
            2,
            "the languages are not known, and no file name states them: give --pair",
        ),
        (["data", "--train=a.tmx", "--pair", "enko"], 2, "the pair is 'enko', but must be two languages"),
        (
            ["data", "clean.max_length_rato=3"],
            2,
            "unknown key clean.max_length_rato; did you mean clean.max_length_ratio?",
        ),
        (
            ["data", "--on-invalid", "cry"],
            2,
            "corpus.on_invalid is 'cry', but must be one of 'default', 'stop', 'skip'",
        ),
        (["data", "--recipe", "gone.toml"], 3, "gone.toml: No such file or directory"),
    ],
)
def test_a_wrong_prepare_is_one_clear_line(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("here.en", "here.tmx"):
        (tmp_path / name).touch()
    done = manyheads("prepare", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"manyheads: {message}")
    assert done.stderr.count("\n") == 1


def test_prepare_takes_the_columns_of_a_table(tmp_path: Path) -> None:
    rows = "".join(f"{n}\t{english}\t{korean}\n" for n, (english, korean) in enumerate(PAIRS))
    (tmp_path / "a.tsv").write_text("id\tenglish\tkorean\n" + rows, encoding="utf-8")
    small = ["--pair=en-ko", "subwords.vocab_size=320", "--json"]
    for fields in ("2,3", "english,korean"):
        folder = tmp_path / fields
        done = manyheads("prepare", str(folder), f"--train={tmp_path}/a.tsv", f"--fields={fields}", *small)
        assert json.loads(done.stdout)["splits"]["train"]["pairs"] >= 90, done.stderr


def test_prepare_does_not_overwrite(prepared: Path) -> None:
    done = prepare(prepared)
    assert done.returncode == 2
    assert (
        done.stderr
        == f"manyheads: {prepared}/data: exists already; choose another folder, or replace it with --force\n"
    )


def test_prepare_mentions_the_list_of_dropped_pairs_only_if_there_are_any(tmp_path: Path) -> None:
    for side, code in enumerate(("en", "ko")):
        text = "".join(f"{pair[side]}\n" for pair in PAIRS)
        (tmp_path / f"train.{code}").write_text(text, encoding="utf-8")
    assert prepare(tmp_path, "corpus.hold_out=0").stdout.endswith(f"\n{tmp_path}/data: complete.\n")


def test_show_recipe_prints_a_recipe_that_prepare_takes(prepared: Path, tmp_path: Path) -> None:
    shown = prepare(prepared, "--show-recipe").stdout
    assert "[[train]]" in shown
    (tmp_path / "recipe.toml").write_text(shown, encoding="utf-8")
    done = manyheads("prepare", f"{tmp_path}/data", "--recipe", f"{tmp_path}/recipe.toml")
    assert done.returncode == 0, done.stderr
    again = (tmp_path / "data" / "train.source.tokens.npy").read_bytes()
    assert again == (prepared / "data" / "train.source.tokens.npy").read_bytes()


@pytest.mark.parametrize(
    ("error", "code"), [(OSError(errno.ENOSPC, "No space left on device"), 4), (MemoryError(), 4)]
)
def test_lack_of_disk_or_memory_exits_with_4_and_leaves_nothing(
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
) -> None:
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr("manyheads.data.store.ArrayWriter.write", full)
    files = [f"--train={prepared}/train.en", f"--train={prepared}/train.ko"]
    monkeypatch.setattr(
        sys, "argv", ["manyheads", "prepare", f"{tmp_path}/data", *files, "subwords.vocab_size=320"]
    )
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == code
    assert capsys.readouterr().err.splitlines()[-1].startswith("manyheads: ")
    assert list(tmp_path.iterdir()) == []


def test_serve_takes_the_defaults_of_its_limits() -> None:
    from manyheads.serve.limits import ServerLimits

    defaults = {
        parameter.name: parameter.default
        for parameter in typer.main.get_command(app).commands["serve"].params  # type: ignore[attr-defined]
        if hasattr(ServerLimits, parameter.name)
    }
    assert len(defaults) == 14
    assert defaults == {name: getattr(ServerLimits(), name) for name in defaults}


SHELL = f"{sys.executable} -m manyheads"


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_traceback(tmp_path: Path, stream: str) -> None:
    model = save_untrained_model(tmp_path / "model")
    done = subprocess.run(
        ["sh", "-c", f"{SHELL} translate {model} {stream}"],
        input=b"one two\n",
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr


def test_names_and_texts_that_are_not_utf_8_are_no_traceback(tmp_path: Path) -> None:
    """A name of a folder may be any bytes, but a text that is stored must be UTF-8."""
    model = os.fsencode(
        save_untrained_model(tmp_path / "model").rename(os.fsdecode(bytes(tmp_path) + b"/m\xff"))
    )
    for arguments, code in (
        ([b"correct", model, b"--source", b"a", b"--target", b"b"], 0),
        ([b"correct", model, b"--export", model + b".tsv"], 0),
        ([b"inspect", model], 0),
        ([b"look", model, b"one two", b"--out", model + b".html"], 0),
        ([b"correct", model, b"--source", b"a\xff", b"--target", b"b"], 2),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "manyheads", *arguments], capture_output=True, timeout=60
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (code, False), (
            arguments,
            done.stderr[-500:],
        )
    assert done.stderr.count(b"\n") == 1


INTERRUPTED = """
import os, signal, sys
class Finder:
    def find_spec(self, module, *_):
        if module == os.environ.get("INTERRUPTED"):
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.path[0] = ""
from manyheads.cli import app, main
sys.modules["manyheads.cli.app"].app = lambda **_: {command}
main()
"""


@pytest.mark.parametrize("name", ["manyheads", "__main__.py"])
def test_an_interrupt_while_modules_are_imported_is_no_traceback(tmp_path: Path, name: str) -> None:
    script = tmp_path / "manyheads" / name
    script.parent.mkdir()
    script.write_text(INTERRUPTED.format(command="sys.exit(signal.getsignal(signal.SIGINT).__name__)"))
    for module, code, message in (
        ("manyheads.cli.translation", -signal.SIGINT, ""),
        ("", 1, "interrupt\n"),  # the command runs: typer handles KeyboardInterrupt
    ):
        environment = {**os.environ, "INTERRUPTED": module}
        command = [sys.executable, str(script), "models"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path
        )
        assert (done.returncode, done.stderr) == (code, message), module


def test_an_interrupt_while_torch_is_imported_exits_without_an_exception(tmp_path: Path) -> None:
    """Its C++ code ends the process by SIGABRT where an exception passes through."""
    (tmp_path / "torch.py").write_text(
        "import os, signal\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    for _ in range(100): pass\n"
        "except KeyboardInterrupt:\n    os.abort()\n"
    )
    script = tmp_path / "manyheads" / "manyheads"
    script.parent.mkdir()
    script.write_text(INTERRUPTED.format(command='__import__("torch")'))
    done = subprocess.run(
        [sys.executable, str(script), "models"], capture_output=True, timeout=60, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (130, b"")
