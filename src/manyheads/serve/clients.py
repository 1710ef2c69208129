"""Clients by their address: whom a request belongs to, and who has sent too many or wrong API keys."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network

from fastapi import Request

from manyheads.serve.responses import RequestRejected

MAX_TRACKED_CLIENTS = 10_000
IPV6_PREFIX = 64  # bits: one client has as many addresses as it likes behind them


def identify_client(request: Request) -> str:
    """Return the address of a client, or the network of an IPv6 address."""
    host = request.client.host if request.client else ""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:  # a Unix socket, or whatever a proxy was sent
        return ""
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, IPV6_PREFIX), strict=False))


class ClientLimiter:
    """Refuses the requests of a client that has done something too often, until some time has passed.

    What it did is forgotten at a steady rate: `max_number` in `seconds`.
    """

    def __init__(
        self, name: str, max_number: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.max_number, self.seconds, self.clock = name, max_number, seconds, clock
        self._events: OrderedDict[str, tuple[float, float]] = OrderedDict()  # their number, and when

    def check(self, client: str) -> None:
        """Raise an error with status 429 if a client must wait."""
        excess = self._count(client) - self.max_number + 1
        if excess > 0:
            raise RequestRejected(
                429,
                f"too many {self.name}: at most {self.max_number} in {self.seconds:g} seconds",
                retry_after=str(math.ceil(excess * self.seconds / self.max_number)),
            )

    def record(self, client: str) -> None:
        """Count it once more."""
        self._events[client] = self._count(client) + 1, self.clock()
        self._events.move_to_end(client)
        while len(self._events) > MAX_TRACKED_CLIENTS:
            self._events.popitem(last=False)

    def _count(self, client: str) -> float:
        number, then = self._events.get(client, (0.0, 0.0))
        return max(0.0, number - (self.clock() - then) * self.max_number / self.seconds)
