"""The systems of bench/translate_file.py: the command, the engine, CTranslate2 directly, Hugging Face."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import report
from manyheads.config import DecodingConfig
from manyheads.errors import ManyheadsError
from manyheads.export.ctranslate2 import ensure_converted
from manyheads.export.marian import open_marian
from manyheads.export.to_huggingface import to_huggingface
from manyheads.inference.conversion import read_pieces
from manyheads.inference.engine import Decoder, decode_all
from manyheads.loading import load
from manyheads.search.options import DecodingConstraints
from peers import MarianEngine

HF_BATCHES = {"cuda": (2**12, 2**13, 2**14, 2**15), "cpu": (2**9, 2**10, 2**11)}  # source tokens
DIRECT_BATCHES = (
    ("tokens", 512), ("tokens", 1024), ("tokens", 2048), ("tokens", 3072), ("tokens", 4096), ("examples", 32)
)  # fmt: skip
CHUNK = 1024  # lines tokenized, and outputs detokenized, at once
SEARCH_SECONDS = 15.0  # of a candidate's sample, about: few sentences would not fill large batches
MAX_DECODING_LENGTH = 256  # CTranslate2's own default


@dataclass(frozen=True)
class Workload:
    """The lines of a file, and their sentences as token ids that end with the end token."""

    text: Path
    lines: list[str]
    translator: Any  # whose subwords and segmentation are used

    @cached_property
    def sources(self) -> list[list[int]]:
        """What the command's engine gets, text to copy replaced by copy symbols."""
        translator = self.translator
        preparer, _ = translator._create_stages(translator._read_options())
        chunks = (self.lines[start : start + CHUNK] for start in range(0, len(self.lines), CHUNK))
        jobs = [job for chunk in chunks for job in preparer.prepare(chunk)]
        return [sentence.request.source for job in jobs for sentence in job.sentences]

    def constraints(self, sources: Sequence[list[int]]) -> list[DecodingConstraints]:
        """The limits of the command: as long as the source, and some tokens more."""
        extra = self.translator.decoding.max_extra_length
        return [DecodingConstraints(len(source) - 1 + extra) for source in sources]

    def sample(self, count: int) -> list[list[int]]:
        """Return about so many sentences, evenly from the whole file."""
        return self.sources[:: max(1, len(self.sources) // count)][:count]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        rows = [list(row) for row in ids]
        chunks = (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))
        return [text for chunk in chunks for text in self.translator.subwords.target.decode_sentences(chunk)]

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Return the subword tokens of outputs, without end tokens: the same count for every system."""
        if not texts:
            return 0
        return len(self.translator.subwords.target.encode_batch(texts).ids) - len(texts)


@dataclass
class Output:
    """What one run of a system wrote. A line of the command may hold several sentences of the others."""

    seconds: float
    texts: list[str]
    cpu_seconds: float | None = None  # of the command's process


class System:
    """What a row of the table measures."""

    name: str
    note = ""  # what was searched for it
    is_command = False

    def prepare(self, beam: int) -> None:
        """Do what is not measured: load, compile, search for the best settings."""

    def run(self, beam: int) -> Output:
        raise NotImplementedError


# ---- the command


@dataclass
class Command(System):
    """`manyheads translate` as users run it: a process, its start included, from a file to a file."""

    name: str
    model: Path
    text: Path
    engine: str
    device: str
    checkout: Path | None = None  # of another version of the code
    extra: tuple[str, ...] = ()
    is_command: bool = field(default=True, init=False)

    def run(self, beam: int, text: Path | None = None, prefix: Sequence[str] = ("-m", "manyheads")) -> Output:
        arguments = ["translate", str(self.model), str(text or self.text), "--beam", str(beam)]
        arguments += ["--engine", self.engine, *self.extra]
        if self.engine.startswith("torch"):
            arguments += ["--device", self.device]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        finished = subprocess.run(
            [sys.executable, *prefix, *arguments], stdout=subprocess.PIPE, env=self.environment
        )
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if finished.returncode:
            raise ManyheadsError(f"{self.name}: exit code {finished.returncode}")
        cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Output(seconds, finished.stdout.decode().split("\n")[:-1], cpu_seconds)

    @property
    def environment(self) -> dict[str, str]:
        source = (self.checkout or Path(__file__).parents[1]) / "src"
        return {**os.environ, "PYTHONPATH": os.fspath(source.resolve()), "HF_HUB_OFFLINE": "1"}


# ---- the engine alone


class EngineAlone(System):
    """Our engine on ids, everything tokenized and warm: ids in, ids out."""

    def __init__(self, name: str, workload: Workload, model: Path, engine: str, device: str) -> None:
        self.name, self.workload, self.device = name, workload, device
        on_device = device if engine.startswith("torch") else None
        self.decoder: Decoder = load(model, engine=engine, device=on_device).engine

    def prepare(self, beam: int) -> None:
        """On a GPU decode everything once: kernels and graphs of every shape."""
        self._decode(self.workload.sources if self.device == "cuda" else self.workload.sample(64), beam)

    def run(self, beam: int) -> Output:
        tokens: list[list[int]] = []
        seconds = report.time_call(
            lambda: tokens.extend(self._decode(self.workload.sources, beam)), self.device
        )
        return Output(seconds, self.workload.decode(tokens))

    def _decode(self, sources: list[list[int]], beam: int) -> list[list[int]]:
        config = DecodingConfig(beam=beam, alpha=self.workload.translator.decoding.alpha)
        results = decode_all(self.decoder, sources, self.workload.constraints(sources), config, scores="none")
        return [hypotheses[0].tokens for hypotheses in results]


# ---- the peers


class HuggingFace(System):
    """Marian's generate with the same weights, on a sample in batches by length, of the best size."""

    name = "Hugging Face generate"

    def __init__(self, workload: Workload, model: Path, device: str, sentences: int, folder: Path) -> None:
        self.workload, self.device = workload, device
        self.sources = workload.sample(sentences)
        if not folder.exists():
            to_huggingface(model, folder)
        marian = open_marian(folder)
        marian.generation_config.max_length = None  # given to each call
        marian.generation_config.length_penalty = None
        half = device == "cuda"
        self.decoder: Any = MarianEngine(
            marian.to(torch.bfloat16) if half else marian, marian.config.pad_token_id, device
        )
        self.batches: dict[int, int] = {}

    @property
    def note(self) -> str:  # type: ignore[override]
        sizes = ", ".join(f"{tokens} (beam {beam})" for beam, tokens in self.batches.items())
        return f"{len(self.sources):,} sentences; batches of {sizes} source tokens"

    def prepare(self, beam: int) -> None:
        if beam in self.batches:
            return
        sample = sorted(self.sources, key=len)
        speeds: dict[int, float] = {}
        for tokens in HF_BATCHES[self.device]:
            middle = len(sample) // 2
            count = max(1, 2 * tokens // len(sample[middle]))  # about two batches
            part = sample[max(0, middle - count // 2) : middle + count // 2 + 1]
            self.decoder.batch_tokens = tokens
            try:
                if not speeds:
                    self._decode(part[:8], beam)
                seconds = report.time_call(lambda part=part: self._decode(part, beam), self.device)  # type: ignore[misc]
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                break
            speeds[tokens] = len(part) / seconds
        self.batches[beam] = max(speeds, key=lambda tokens: speeds[tokens])

    def run(self, beam: int) -> Output:
        self.decoder.batch_tokens = self.batches[beam]
        tokens: list[list[int]] = []
        seconds = report.time_call(lambda: tokens.extend(self._decode(self.sources, beam)), self.device)
        return Output(seconds, self.workload.decode(tokens))

    def _decode(self, sources: list[list[int]], beam: int) -> list[list[int]]:
        config = DecodingConfig(beam=beam, alpha=self.workload.translator.decoding.alpha)
        constraints = self.workload.constraints(sources)
        results = decode_all(self.decoder, sources, constraints, config, scores="none")
        return [hypotheses[0].tokens for hypotheses in results]


@dataclass(frozen=True)
class DirectSettings:
    """How CTranslate2 is called."""

    inter_threads: int
    intra_threads: int
    batch_type: str
    batch_size: int

    def __str__(self) -> str:
        threads = f"inter_threads={self.inter_threads}, intra_threads={self.intra_threads}"
        return f"{threads}, max_batch_size={self.batch_size} {self.batch_type}"


class DirectCTranslate2(System):
    """CTranslate2 called on tokens, with the threads, batch type and size that are fastest on a sample."""

    def __init__(self, name: str, workload: Workload, model: Path, compute_type: str, cores: int) -> None:
        self.name, self.workload, self.cores = name, workload, cores
        self.folder, self.compute_type = ensure_converted(model), compute_type
        pieces = read_pieces(self.folder, "source")
        self.sources = [[pieces[token] for token in source] for source in workload.sources]
        self.ids = {piece: token for token, piece in enumerate(read_pieces(self.folder, "target"))}
        self.best: dict[int, DirectSettings] = {}
        self.translators: dict[tuple[int, int], Any] = {}

    @property
    def note(self) -> str:  # type: ignore[override]
        return "; ".join(f"beam {beam}: {settings}" for beam, settings in self.best.items())

    def prepare(self, beam: int) -> None:
        """Search threads first, then the batch, on as many sentences as take some seconds."""
        if beam in self.best:
            self._translate(self.sources[:8], beam, self.best[beam])
            return
        threads = [
            (inter, self.cores // inter) for inter in range(1, self.cores + 1) if not self.cores % inter
        ]
        start = DirectSettings(*threads[-1], *DIRECT_BATCHES[2])
        trial = self.sources[:: max(1, len(self.sources) // 200)]
        rate = len(trial) / self._time(trial, beam, start)
        count = max(64, int(rate * SEARCH_SECONDS))
        sample = self.sources[:: max(1, len(self.sources) // count)][:count]
        by_threads = [DirectSettings(*pair, *DIRECT_BATCHES[2]) for pair in threads]
        best = min(by_threads, key=lambda settings: self._time(sample, beam, settings))
        pair = (best.inter_threads, best.intra_threads)
        by_batch = [DirectSettings(*pair, *batch) for batch in DIRECT_BATCHES]
        self.best[beam] = min(by_batch, key=lambda settings: self._time(sample, beam, settings))

    def run(self, beam: int) -> Output:
        results: list[Any] = []
        start = time.perf_counter()
        results.extend(self._translate(self.sources, beam, self.best[beam]))
        seconds = time.perf_counter() - start
        ids = [[self.ids[piece] for piece in result.hypotheses[0]] for result in results]
        return Output(seconds, self.workload.decode(ids))

    def _time(self, sources: list[list[str]], beam: int, settings: DirectSettings) -> float:
        self._translate(sources[:8], beam, settings)
        return report.time_call(lambda: self._translate(sources, beam, settings), "cpu")

    def _translate(self, sources: list[list[str]], beam: int, settings: DirectSettings) -> Any:
        alpha = self.workload.translator.decoding.alpha if beam > 1 else 0.0
        return self._translator(settings).translate_batch(
            sources,
            beam_size=beam,
            length_penalty=alpha,
            max_batch_size=settings.batch_size,
            batch_type=settings.batch_type,
            max_input_length=0,
            max_decoding_length=MAX_DECODING_LENGTH,
        )

    def _translator(self, settings: DirectSettings) -> Any:
        import ctranslate2

        threads = (settings.inter_threads, settings.intra_threads)
        if threads not in self.translators:
            self.translators.clear()  # the threads of another would wait, and its weights take memory
            self.translators[threads] = ctranslate2.Translator(
                str(self.folder), compute_type=self.compute_type, inter_threads=threads[0],
                intra_threads=threads[1],
            )  # fmt: skip
        return self.translators[threads]


def make_busy_processes(count: int) -> list["subprocess.Popen[bytes]"]:
    """Start processes that each keep a core busy."""
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
