"""Texts are read and prepared in two threads beside the engine, a bounded number ahead of it.

The reader takes texts from the caller's iterable, which may block: a pipe, a terminal. The preparer takes
what has been read, so many texts at a time, and makes jobs of it. A text is held from the moment it is read
until the caller has its translation and asks for more.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from manyheads.pipeline.jobs import TextJob

CHUNK_TEXTS, CHUNK_CHARACTERS = 256, 1 << 20  # prepared at once
MAX_HELD_CHARACTERS = 1 << 26
PATIENCE_SECONDS = 0.02  # for which results may wait for more texts to be read
SIGNAL_SECONDS = 0.1  # a signal that comes just before the main thread blocks is handled when it wakes up
JOIN_SECONDS = 0.2  # a reader that is blocked by the caller's iterable for longer is left behind


class BackgroundPreparation:
    """Reads and prepares texts in threads, which end with the texts or with `stop`."""

    def __init__(
        self, texts: Iterable[str], prepare: Callable[[list[str]], list[TextJob]], max_texts: int
    ) -> None:
        self.texts, self.prepare, self.max_texts = texts, prepare, max_texts
        self.lines: deque[str] = deque()  # read, not yet prepared
        self.chunks: deque[list[TextJob]] = deque()  # prepared, not yet taken
        self.num_read = self.num_characters_read = 0  # changed by the reader alone
        self.num_released = self.num_characters_released = 0  # changed by the caller alone
        self.error: BaseException | None = None  # from reading or preparing
        self.has_read_all = self.has_prepared_all = self.is_stopped = False
        self.is_reader_waiting = self.is_preparer_waiting = False  # for texts to be released, or read
        self.is_preparing = False
        self.is_patient = isinstance(texts, Sequence)  # which cannot block
        self.patience = PATIENCE_SECONDS  # what is left of it
        self.changed = threading.Condition()
        self.threads = [
            threading.Thread(target=target, name=f"manyheads {name}", daemon=True)
            for name, target in (("reader", self._read), ("preparer", self._prepare))
        ]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """End the threads, unless the reader is blocked by the caller's iterable."""
        with self.changed:
            self.is_stopped = True
            self.changed.notify_all()
        for thread in self.threads:
            thread.join(JOIN_SECONDS)

    def take(self, is_urgent: bool) -> list[TextJob]:
        """Return the next jobs; none after the last, or if there will be none for now.

        That is so if all texts that may be held are held. If it is urgent, because there are results to
        return, it is also so if the reader has waited too long for texts since `reset_patience`.
        """
        is_urgent &= not self.is_patient
        with self.changed:
            while not self.chunks:
                if self.has_prepared_all:
                    return []
                if self.is_preparing or self.lines:
                    self.changed.wait(SIGNAL_SECONDS)
                    continue
                if self.is_reader_waiting or (is_urgent and self.patience <= 0):
                    return []
                start = time.monotonic()
                self.changed.wait(min(self.patience, SIGNAL_SECONDS) if is_urgent else SIGNAL_SECONDS)
                self.patience -= time.monotonic() - start
            return self.chunks.popleft()

    def reset_patience(self) -> None:
        self.patience = PATIENCE_SECONDS

    def release(self, jobs: Sequence[TextJob]) -> None:
        """Let new texts be read in place of these."""
        with self.changed:
            self.num_released += len(jobs)
            self.num_characters_released += sum([len(job.text) for job in jobs])
            self.changed.notify_all()

    @property
    def is_exhausted(self) -> bool:
        """Whether there will never be another job."""
        return self.has_prepared_all and not self.chunks

    # ---- the threads

    def _read(self) -> None:
        try:
            texts = iter(self.texts)
            while not self.is_stopped:
                if self._is_full():
                    self._wait_for_release()
                    continue
                text = next(texts)
                self.lines.append(text)
                self.num_read += 1
                self.num_characters_read += len(text)
                if self.is_preparer_waiting:
                    self._notify()
        except StopIteration:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.has_read_all = True
            self._notify()

    def _is_full(self) -> bool:
        return (
            self.num_read - self.num_released >= self.max_texts
            or self.num_characters_read - self.num_characters_released >= MAX_HELD_CHARACTERS
        )

    def _wait_for_release(self) -> None:
        with self.changed:
            self.is_reader_waiting = True
            self.changed.notify_all()
            while self._is_full() and not self.is_stopped:
                self.changed.wait()
            self.is_reader_waiting = False

    def _prepare(self) -> None:
        try:
            while texts := self._take_lines():
                jobs = self.prepare(texts)
                with self.changed:
                    self.chunks.append(jobs)
                    self.is_preparing = False
                    self.changed.notify_all()
        except BaseException as error:
            self.error = error
        finally:
            self.has_prepared_all = True
            self._notify()

    def _take_lines(self) -> list[str]:
        """Return texts that have been read; none after the last."""
        with self.changed:
            self.is_preparer_waiting = True
            while not (self.lines or self.has_read_all or self.is_stopped):
                self.changed.wait()
            self.is_preparer_waiting = False
            texts: list[str] = []
            num_characters = 0
            while self.lines and len(texts) < CHUNK_TEXTS and num_characters < CHUNK_CHARACTERS:
                texts.append(self.lines.popleft())
                num_characters += len(texts[-1])
            self.is_preparing = bool(texts)
            return [] if self.is_stopped else texts

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()
