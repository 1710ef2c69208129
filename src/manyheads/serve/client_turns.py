"""So many requests at once. Those that wait are taken from each client in turn."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ClientTurns:
    """A semaphore that is fair to clients, however many requests one of them sends. For one event loop."""

    def __init__(self, count: int) -> None:
        self.num_free = count
        self.waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # by client

    @asynccontextmanager
    async def take(self, client: str) -> AsyncIterator[None]:
        await self._acquire(client)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, client: str) -> None:
        if self.num_free:
            self.num_free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had its turn already
                self._release()
            raise

    def _release(self) -> None:
        """Give the turn to the next client."""
        while self.waiting:
            client, turns = self.waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self.waiting[client] = turns
            if not turn.done():  # else it was canceled
                turn.set_result(None)
                return
        self.num_free += 1
