"""The benchmarks of what users get: translating a file, start-up, memory, serving."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import host_profile
import manyheads as mh
import serve
import translate_file
import translate_memory
from manyheads import checkpoint
from manyheads.config import SubwordConfig
from manyheads.text.subwords import SubwordPair, SubwordTokenizer

BENCH = Path(__file__).parents[2] / "bench"
WORDS = ["one two three four", "five six seven", "eight nine ten eleven twelve"]
TINY = mh.TransformerConfig(vocab_size=60, layers=1, d_model=16, d_ff=32, heads=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights, and a text beside it."""
    folder = tmp_path_factory.mktemp("bench")
    torch.manual_seed(0)
    subwords = SubwordTokenizer.train(WORDS * 4, SubwordConfig(vocab_size=60, byte_fallback=False))
    (folder / "text").write_text("".join(f"{line}\n" for line in WORDS))
    checkpoint.save(
        folder / "model",
        checkpoint.collect_weights(mh.Transformer(TINY)),
        SubwordPair(subwords, subwords),
        mh.Config(model=TINY),
        step=0,
        languages={"source": "en", "target": "de"},
    )
    return folder / "model"


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / f"{script}.py"), *arguments]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished


# ---- translating a file


def test_speeds_are_compared_with_and_without_start_up() -> None:
    command = translate_file.Result(
        translate_file.COMMAND, 4, lines=10, tokens=1000, seconds=[5.0], startup=1.0
    )
    peer = translate_file.Result(translate_file.PEER, 4, lines=5, tokens=100, seconds=[1.0])
    busy = translate_file.Result(translate_file.PEER, 4, busy=True, lines=5, tokens=100, seconds=[4.0])
    rows = [command, peer, busy]
    assert translate_file.compute_ratio(rows, peer) == pytest.approx(2.0)
    assert translate_file.compute_steady_ratio(rows, peer) == pytest.approx(2.5)
    assert translate_file.compute_ratio(rows, busy) is None
    assert translate_file.compute_ratio(rows, command) is None
    assert translate_file.format_row(peer, rows)[7] == "2 x (2.5 x)"


@pytest.mark.parametrize(
    ("file", "function", "stage"),
    [
        ("text/segmentation.py", "split_text", "segmentation"),
        ("text/subwords.py", "encode_batch", "encoding"),
        ("text/subwords.py", "decode_batch", "decoding"),
        ("inference/torch_engine.py", "decode", "engine, host"),
        ("cli/text_io.py", "read_lines", "reading"),
        ("elsewhere.py", "work", "other"),
    ],
)
def test_functions_belong_to_stages(file: str, function: str, stage: str) -> None:
    frame = sys._getframe()
    assert host_profile.classify_frame(file, function, frame, frame) == stage


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_command_and_its_peers_are_measured_and_profiled(model: Path, tmp_path: Path) -> None:
    arguments = [str(model), str(model.parent / "text"), "--device", "cpu", "--engine", "ctranslate2:int8"]
    arguments += ["--beams", "2", "--busy", "--profile", "--keep", str(tmp_path)]
    run("translate_file", *arguments, "--json", str(tmp_path / "rows.json"))
    data: dict[str, Any] = json.loads((tmp_path / "rows.json").read_text())
    names = [translate_file.COMMAND, translate_file.ENGINE, translate_file.DIRECT, translate_file.PEER]
    assert [(row["system"], row["busy"]) for row in data["rows"]] == [
        (name, busy) for busy in (False, True) for name in names
    ]
    assert all(row["tokens_per_second"] > 0 for row in data["rows"])
    assert "inter_threads=" in data["rows"][2]["note"]
    assert len((tmp_path / "beam2.txt").read_text().splitlines()) == len(WORDS)
    assert data["profiles"][0]["threads"]["MainThread"]["wall"]


# ---- memory and interruption


def test_lines_with_and_without_words_are_mixed() -> None:
    lines = list(translate_memory.generate_lines(["a", "b"], 5, 2))
    assert lines == [b"a\n", b"--\n", b"b\n", b"----\n", b"a\n"]


def start_translation(model: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "manyheads", "translate", str(model), "--device", "cpu", "--beam", "1"]
    command += ["--max-extra-length", "2"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(b"...\n" * 20_000)  # more than a window: output begins before the input ends
    process.stdin.flush()
    return process


def test_translate_ends_when_its_reader_is_gone(model: Path) -> None:
    with start_translation(model) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"...\n"
        process.stdout.close()
        try:
            process.stdin.write(b"...\n" * 2_000_000)
            process.stdin.close()
        except BrokenPipeError:
            pass
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


def test_translate_ends_by_an_interrupt_while_it_waits_for_input(model: Path) -> None:
    with start_translation(model) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert b"Traceback" not in process.stderr.read()


# ---- serving


def test_the_new_server_is_compared_with_the_other_for_as_many_clients() -> None:
    rounds = [
        serve.LoadRound(name, clients, 1.0, requests_per_second=rate)
        for name, clients, rate in ((serve.NEW, 1, 10.0), (serve.OLD, 1, 5.0), (serve.OLD, 64, 5.0))
    ]
    assert [serve.compute_ratio(rounds, round_) for round_ in rounds] == [None, 2.0, None]


def test_the_responses_of_client_processes_are_added_up() -> None:
    total = serve.Load([0.1], [], cpu_share=0.5)
    total.add(serve.Load([0.2, 0.3], [0.1], Counter({"500": 1}), 0.25))
    assert (total.served, total.refused) == ([0.1, 0.2, 0.3], [0.1])
    assert (dict(total.other), total.cpu_share) == ({"500": 1}, 0.5)
