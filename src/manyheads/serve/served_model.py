"""A loaded model under the name that clients use."""

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from manyheads.confidence.known_words import KnownWords
from manyheads.loading import list_adapters, read_adapter_space
from manyheads.look.example_sentences import TrainingFacts, read_training_facts
from manyheads.search.request_source import RequestFeed
from manyheads.translator import Translator

WINDOW = 2048  # sentences from the oldest unfinished one to the newest that an engine is given
RETIRED_SECONDS = 600.0  # after which no request to an adapted model that was replaced is left
WARM_UP_SENTENCES = (1, 64, 256, 1024)  # at once


@dataclass(eq=False)
class ServedModel:
    name: str  # en-ko, and en-ko-2 for the second model of the same pair
    translator: Translator
    retired_at: float | None = None  # when an adapted model was replaced by a newer one, by time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether it was replaced so long ago that every request to it has ended."""
        return self.retired_at is not None and self.retired_at < time.monotonic() - RETIRED_SECONDS

    @property
    def source(self) -> str:
        return self.translator.source_language

    @property
    def target(self) -> str:
        return self.translator.target_language

    @property
    def can_align(self) -> bool:
        """Whether its engine returns alignments."""
        return self.translator.engine.capabilities.alignment

    @property
    def is_calibrated(self) -> bool:
        """Whether its translations have a confidence."""
        return self.translator.is_calibrated

    @property
    def can_join(self) -> bool:
        """Whether sentences can join those that its engine is decoding."""
        engine = self.translator.engine
        return bool(getattr(engine, "can_join", hasattr(engine, "decode_batches")))

    @property
    def is_remote(self) -> bool:
        """Whether its engine runs in another process."""
        return hasattr(self.translator.engine, "run_sentence_task")

    @property
    def runs_on_cpu(self) -> bool:
        engine = self.translator.engine
        device = getattr(engine, "device", None)
        return bool(getattr(engine, "runs_on_cpu", device is None or device.type == "cpu"))

    @property
    def num_graphs(self) -> int:
        """How many CUDA graphs its engine has captured."""
        return getattr(self.translator.engine, "num_graphs", 0)

    @property
    def num_workers(self) -> int:
        """How many batches are worth running at once: an engine with own threads begins the next one."""
        return 2 if getattr(self.translator.engine, "threads", 1) > 1 else 1

    @property
    def can_adapt(self) -> bool:
        """Whether its engine runs adapters."""
        return hasattr(self.translator.engine, "with_adapter")

    def list_adapters(self, user: str | None = None) -> list[str]:
        """Return the names of the adapters that requests may choose; of a user, without those of others."""
        folder = getattr(self.translator, "folder", None)
        if folder is None or not self.can_adapt:
            return []
        names = list_adapters(folder)
        if user is None:
            return names
        return [name for name in names if read_adapter_space(folder, name) in (None, user)]

    @cached_property
    def known_words(self) -> KnownWords:
        """Which words its training sources had."""
        confidence = self.translator.confidence
        source_model = None if confidence is None else confidence.calibration.source_model
        return KnownWords.of(self.translator.subwords.source, self.source, source_model)

    @cached_property
    def training_facts(self) -> TrainingFacts:
        """What it was trained on, and examples of it; empty where its data are gone."""
        folder = getattr(self.translator, "folder", None)
        return read_training_facts(folder) if folder is not None else TrainingFacts()

    def warm_up(self) -> None:
        """Translate a sentence: the first one is slow, and shows that the model works.

        On a GPU also translate several at once, so that the graphs of all batch sizes are captured.
        """
        text, engine = "The first sentence is slow.", self.translator.engine
        self.translator.translate(text, corrections=False)
        if not self.can_join:
            return
        options, preparer, _ = self.translator.create_stages(scores="none", corrections=False)
        requests = [sentence.request for job in preparer.prepare([text]) for sentence in job.sentences]
        for count in (1,) if self.runs_on_cpu else WARM_UP_SENTENCES:
            feed = RequestFeed(starts_at_once=True)
            feed.put(requests * count)
            for _ in engine.decode(feed, options.config, scores="none", window=WINDOW):
                feed.close()

    def count_tokens(self, text: str) -> int:
        return len(self.translator.subwords.source.encode(text))

    def count_target_tokens(self, text: str) -> int:
        return len(self.translator.subwords.target.encode(text))

    def split_sentences(self, text: str) -> list[str]:
        """Split a text into the sentences that are translated separately."""
        with suppress_warnings():
            return self.translator.split_sentences(text)


def name_models(translators: Sequence[Translator]) -> list[ServedModel]:
    """Name models by their language pairs, and number those of the same pair."""
    counts: Counter[str] = Counter()
    models = []
    for translator in translators:
        pair = f"{translator.source_language}-{translator.target_language}"
        counts[pair] += 1
        models.append(ServedModel(pair if counts[pair] == 1 else f"{pair}-{counts[pair]}", translator))
    return models


def set_decoding(translator: Translator, options: dict[str, Any]) -> None:
    """Change how a model searches; what is not given stays as its folder says."""
    translator.decoding = replace(translator.decoding, **options)


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Ignore warnings, which would quote texts in the log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
