"""JAX as a row of bench/train_step.py: packs sentences into rows, and runs jax_transformer.py beside it."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import manyheads as mh
from packed_transformer import PackedTransformer
from training_system import LEARNING_RATE, TRAIN, TrainingSystem
from workload import WorkloadBatch

ROW_LENGTH = 128
Arrays = dict[str, NDArray[Any]]
Sentences = list[tuple[list[int], list[int], list[int]]]  # source, input and labels of each


def pack_rows(sentences: Iterable[tuple[list[int], list[int], list[int]]], length: int) -> list[Sentences]:
    """Put each sentence into the first row that has space for its source and its target."""
    rows: list[Sentences] = []
    free: list[tuple[int, int]] = []
    open_rows: list[int] = []  # rows that another sentence may fit in
    for sentence in sentences:
        sizes = len(sentence[0]), len(sentence[2])
        for row in open_rows:
            if free[row][0] >= sizes[0] and free[row][1] >= sizes[1]:
                break
        else:
            row = len(rows)
            rows.append([])
            free.append((length, length))
            open_rows.append(row)
        rows[row].append(sentence)
        free[row] = free[row][0] - sizes[0], free[row][1] - sizes[1]
        if min(free[row]) < 4:  # no sentence is that short
            open_rows.remove(row)
    return rows


def make_arrays(rows: list[Sentences], length: int) -> Arrays:
    """Return tokens, sentence numbers from 1 (0: padding) and positions. [R, length] each"""
    names = ("source", "inputs", "labels", "source_ids", "target_ids", "source_positions", "target_positions")
    arrays = {name: np.zeros((len(rows), length), np.int32) for name in names}
    for index, row in enumerate(rows):
        ends = [0, 0]
        for number, (source, inputs, labels) in enumerate(row, 1):
            for side, (name, tokens) in enumerate((("source", source), ("target", labels))):
                span = slice(ends[side], ends[side] + len(tokens))
                arrays[f"{name}_ids"][index, span] = number
                arrays[f"{name}_positions"][index, span] = np.arange(len(tokens))
                ends[side] = span.stop
                if name == "source":
                    arrays["source"][index, span] = source
                else:
                    arrays["inputs"][index, span], arrays["labels"][index, span] = inputs, labels
    return arrays


def pack_steps(batches: list[WorkloadBatch], length: int = ROW_LENGTH, seed: int = 1) -> Arrays:
    """Pack the sentences of all batches, longest first, and deal the rows out to as many equal steps."""
    sentences = [
        sentence
        for batch in batches
        for sentence in zip(batch.sources, batch.inputs, batch.labels, strict=True)
    ]
    sentences.sort(key=lambda sentence: -len(sentence[0]) - len(sentence[2]))
    rows, steps = pack_rows(sentences, length), len(batches)
    rows += [[] for _ in range(-len(rows) % steps)]
    np.random.default_rng(seed).shuffle(rows)
    arrays = make_arrays(rows, length)
    return {name: array.reshape(steps, -1, length) for name, array in arrays.items()}


class JaxSystem(TrainingSystem):
    """The peer in JAX. Its steps hold the same sentences as the batches, in another order."""

    def __init__(self, config: mh.TransformerConfig, device: str) -> None:
        self.device, self.peak_bytes = device, 0
        self.folder = tempfile.TemporaryDirectory()
        weights = {
            name: parameter.detach().numpy()
            for name, parameter in PackedTransformer(config, TRAIN, "dense").named_parameters()
        }
        weights_file = Path(self.folder.name) / "weights.npz"
        np.savez(weights_file, **weights)  # type: ignore[arg-type]
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("jax_transformer.py")),
                str(weights_file),
                json.dumps(make_sizes(config)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                "JAX_PLATFORMS": "cpu" if device == "cpu" else "cuda",
            },
        )

    def ask(self, **request: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"JAX ended with exit code {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        self.peak_bytes = max(self.peak_bytes, answer["peak_bytes"])
        return answer

    def prepare_batches(self, batches: list[WorkloadBatch]) -> Path:
        """Pack the sentences, and let JAX compile for them."""
        arrays = pack_steps(batches)
        real = (arrays["source_ids"] > 0).sum() + (arrays["target_ids"] > 0).sum()
        share = real / (2 * arrays["labels"].size)
        self.note = f"rows of {ROW_LENGTH}, {share:.1%} of them real tokens; steps dispatched ahead"
        file = Path(self.folder.name) / "steps.npz"
        np.savez(file, **arrays)  # type: ignore[arg-type]
        if self.device == "cuda":
            torch.cuda.empty_cache()
        self.ask(load=str(file))
        return file

    def time_pass(self, prepared: Path) -> float:
        seconds: float = self.ask(time=str(prepared))["seconds"]
        return seconds


def make_sizes(config: mh.TransformerConfig) -> dict[str, Any]:
    """Return what the program of JAX depends on."""
    return {
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "heads": config.heads,
        "dropout": config.dropout,
        "smoothing": TRAIN.label_smoothing,
        "betas": [TRAIN.beta1, TRAIN.beta2],
        "epsilon": TRAIN.epsilon,
        "learning_rate": LEARNING_RATE,
    }
