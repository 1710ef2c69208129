"""Run the commands of a document: files that they read, and options that keep them small."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SMALL = [
    "model.layers=1", "model.d_model=32", "model.d_ff=64", "model.heads=2", "data.batch_tokens=600",
    "train.steps=150", "train.warmup=20", "train.learning_rate=5e-3", "train.schedule=linear",
    "train.checkpoint_every=50", "train.validate_every=75", "train.bleu_sentences=2", "train.card=false",
]  # fmt: skip
OPTIONS = {
    "adapt": ["train.steps=6", "train.validate_every=3", "--sentences", "8"],
    "distill": ["--speed-seconds", "0.02", "--vocab-size", "600", "--preset", "student-tiny", *SMALL],
}


def write_lines(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run_command(folder: Path, command: str, variables: Mapping[str, str] | None = None) -> str:
    """Run a command in a shell, which expands braces, without a GPU or a network. Return what it prints."""
    own = f'{shlex.quote(sys.executable)} -m manyheads "$@"'
    done = subprocess.run(
        ["bash", "-c", f"manyheads() {{ {own}; }}; {command}"], cwd=folder, capture_output=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", **(variables or {})},
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stderr.decode()}"
    return done.stdout.decode()


def add_options(command: str, options: Mapping[str, list[str]]) -> str:
    """Add the options of a command's verb."""
    for verb, added in options.items():
        if command.startswith(f"manyheads {verb} "):
            command = f"{command} {shlex.join(added)}"
    return command
