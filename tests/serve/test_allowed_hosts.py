"""Only allowed hosts and origins are answered."""

from typing import Any

import pytest

import manyheads as mh
from manyheads.serve.allowed_hosts import AllowedHosts


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "127.0.0.1:5000"}, 200),
        ({"host": "[::1]:5000"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"host": "example.org"}, 200),
        ({"host": "evil.org"}, 403),
        ({"host": "localhost.evil.org"}, 403),
        ({"host": "[::"}, 403),
        ({"host": ""}, 403),
        ({"host": "10.0.0.1"}, 403),
        ({"host": "user@localhost"}, 403),
        ({"host": "localhost:x"}, 403),
        ({"host": "localhost/"}, 403),
        ({"host": "localhost?evil.org"}, 403),
        ({"host": "[::1"}, 403),
        ({"host": "localhost:5000", "origin": "http://localhost:5000"}, 200),
        ({"host": "localhost:5000", "origin": "http://localhost:3000"}, 403),
        ({"origin": "http://evil.org"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://friend.org"}, 200),
        ({"origin": "http://friend.org"}, 403),
    ],
)
def test_only_allowed_hosts_and_origins_are_answered(
    create_client: Any, headers: dict[str, str], status: int
) -> None:
    with create_client(
        allowed_hosts=AllowedHosts.for_host("127.0.0.1", ["example.org"], ["https://friend.org"])
    ) as client:
        response = client.get("/health", headers=headers)
        assert response.status_code == status
        assert response.headers.get("access-control-allow-origin") in (
            None if headers.get("origin") != "https://friend.org" else "https://friend.org",
        )
        preflight = client.options("/translate", headers={**headers, "access-control-request-method": "POST"})
        assert ("access-control-allow-methods" in preflight.headers) == (
            headers.get("origin") == "https://friend.org"
        )


@pytest.mark.parametrize(
    ("option", "origin"),
    [
        ("https://Friend.org/", "https://friend.org"),
        ("https://friend.org:443", "https://friend.org"),
        ("http://friend.org:80/", "http://friend.org"),
        ("http://friend.org:8080", "http://friend.org:8080"),
        ("moz-extension://0a-b", "moz-extension://0a-b"),
    ],
)
def test_allowed_origins_are_normalized_as_browsers_write_them(option: str, origin: str) -> None:
    assert AllowedHosts.for_host("127.0.0.1", [], [option]).origins == {origin}


@pytest.mark.parametrize("origin", ["*", "null", "friend.org", "https://a/b", "https://a@b", "https://", ""])
def test_invalid_origins_are_a_config_error(origin: str) -> None:
    with pytest.raises(mh.ConfigError, match=r"--allow-origin is .* such as https://example\.org"):
        AllowedHosts.for_host("127.0.0.1", [], [origin])


def test_bound_to_all_addresses_any_address_is_allowed_but_no_name(create_client: Any) -> None:
    with create_client(allowed_hosts=AllowedHosts.for_host("0.0.0.0")) as client:
        assert client.get("/health", headers={"host": "10.0.0.1:5000"}).status_code == 200
        assert client.get("/health", headers={"host": "evil.org"}).status_code == 403
