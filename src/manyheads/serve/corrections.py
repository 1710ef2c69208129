"""Corrections over HTTP: `POST /suggest` of LibreTranslate, and undo. Each user has a space of its own."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from starlette.exceptions import HTTPException

from manyheads.errors import ManyheadsError
from manyheads.memory.translation_memory import TranslationMemory
from manyheads.serve.limits import ServerLimits
from manyheads.serve.responses import RequestRejected
from manyheads.serve.served_model import ServedModel

LOG = logging.getLogger("manyheads.serve")
RATE_SECONDS = 60.0
EVER = 1e12  # seconds

T = TypeVar("T")


class ServedCorrections:
    """Adds and undoes corrections, within the limits of each user."""

    def __init__(self, limits: ServerLimits, is_enabled: bool) -> None:
        self.limits, self.is_enabled = limits, is_enabled

    def check_enabled(self) -> None:
        if not self.is_enabled:
            raise HTTPException(403, "suggestions are disabled on this server: serve with --corrections")

    async def add(self, model: ServedModel, source: str, target: str, user: str) -> None:
        """Store a correction in the space of a user."""
        memory = self._get_memory(model)
        for name, text in (("q", source), ("s", target)):
            if not text.strip():
                raise HTTPException(400, f"{name}: must not be empty")

        def check_and_add() -> None:
            self._check_rate(memory, user)
            memory.add([(source, target)], user, user)

        await self._run(check_and_add)

    async def undo(self, model: ServedModel, source: str, user: str) -> bool:
        """Take back the newest correction of a text in the space of a user. Return whether there was one."""
        memory = self._get_memory(model)
        return await self._run(lambda: memory.database.undo_source(user, source.strip()))

    @staticmethod
    def _get_memory(model: ServedModel) -> TranslationMemory:
        memory: TranslationMemory | None = getattr(model.translator, "memory", None)
        if memory is None:
            raise HTTPException(400, f"the model {model.name} has no folder for corrections")
        return memory

    def _check_rate(self, memory: TranslationMemory, user: str) -> None:
        """Refuse more corrections than a user may add. They are counted in the file, by all processes."""
        if memory.database.count_since(user, RATE_SECONDS) >= self.limits.max_corrections:
            raise RequestRejected(
                429,
                f"too many suggestions: at most {self.limits.max_corrections} in {RATE_SECONDS:g} seconds",
                retry_after=str(int(RATE_SECONDS)),
            )
        if memory.database.count_since(user, EVER) >= self.limits.max_stored_corrections:
            raise HTTPException(
                403,
                f"there are {self.limits.max_stored_corrections} suggestions of this user already: learn "
                f"from them, and start a new memory",
            )

    @staticmethod
    async def _run(work: Callable[[], T]) -> T:
        """Run work in a thread, as it waits for the disk. Errors of the file do not show its path."""
        try:
            return await asyncio.to_thread(work)
        except ManyheadsError as error:
            LOG.error("%s", error)
            raise RequestRejected(
                503, "the correction could not be stored; the log of the server says why", retry_after="5"
            ) from None
