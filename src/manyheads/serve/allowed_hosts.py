"""Which Host and Origin headers the server accepts: protection from DNS rebinding and foreign pages."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from manyheads.errors import ConfigError
from manyheads.serve.responses import RequestRejected

LOOPBACK = ("localhost", "127.0.0.1", "::1")
WILDCARD_ADDRESSES = ("0.0.0.0", "::", "")
HOST_PATTERN = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[\w.-]+))(?::[0-9]{1,5})?", re.ASCII)
ORIGIN_PATTERN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(?P<port>[0-9]{1,5}))?/?"
)
DEFAULT_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True)
class AllowedHosts:
    """The host names of the server, and the origins of the web pages that may call it.

    A page elsewhere whose name resolves to this server (DNS rebinding) is recognized by its Host header, one
    that sends a cross-origin request by its Origin header. A server bound to every address accepts any IP
    address as Host, but no other name.
    """

    hosts: frozenset[str]
    allow_any_address: bool = False
    origins: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def for_host(cls, host: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> "AllowedHosts":
        names = {*LOOPBACK, *(name.strip("[]").lower() for name in (host, *hosts))}
        return cls(
            frozenset(names - set(WILDCARD_ADDRESSES)),
            host in WILDCARD_ADDRESSES,
            frozenset(map(normalize_origin, origins)),
        )

    def check(self, hosts: list[str], origins: list[str]) -> None:
        """Raise RequestRejected unless the headers of a request are allowed."""
        name = parse_host(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (name in self.hosts or (self.allow_any_address and is_address(name))):
            raise RequestRejected(
                403, f"Host {','.join(hosts)[:100]!r} is not allowed: start the server with --allow-host"
            )
        for origin in origins:
            is_own = parse_origin_host(origin) == hosts[0].lower()
            if len(origins) > 1 or not (is_own or origin in self.origins):
                raise RequestRejected(
                    403, f"Origin {origin[:100]!r} is not allowed: start the server with --allow-origin"
                )


def parse_host(host: str) -> str | None:
    match = HOST_PATTERN.fullmatch(host)
    return (match["address"] or match["name"]).lower() if match else None


def normalize_origin(origin: str) -> str:
    """Write an origin as browsers do: in lower case, without a slash, without the default port."""
    match = ORIGIN_PATTERN.fullmatch(origin.strip().lower())
    if not match:
        raise ConfigError(
            f"--allow-origin is {origin!r}, but must be a scheme and a host, such as https://example.org"
        )
    port = "" if match["port"] in (None, DEFAULT_PORTS.get(match["scheme"])) else f":{match['port']}"
    return f"{match['scheme']}://{match['host']}{port}"


def parse_origin_host(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class AllowedHostsMiddleware:
    """Answers 403 to requests whose Host or Origin is not allowed."""

    def __init__(self, app: ASGIApp, allowed_hosts: AllowedHosts) -> None:
        self.app, self.allowed_hosts = app, allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            try:
                self.allowed_hosts.check(headers.getlist("host"), headers.getlist("origin"))
            except RequestRejected as error:
                await error.to_response()(scope, receive, send)
                return
        await self.app(scope, receive, send)


class AllowedOriginsMiddleware(CORSMiddleware):
    """Starlette's CORS for the allowed origins; requests of the server's own pages need none."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_cross_origin = scope["type"] == "http" and Headers(scope=scope).get("origin") in self.allow_origins
        await (super().__call__ if is_cross_origin else self.app)(scope, receive, send)
