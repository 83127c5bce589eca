"""Who may connect: by the address of the connection alone, whatever headers say."""

import asyncio
from ipaddress import ip_network
from typing import Any

import pytest

from proxy.web.app import PROBES, AllowedAddresses

NETWORKS = [ip_network("10.1.0.0/16"), ip_network("192.0.2.7"), ip_network("2001:db8::/32")]


def status(client: Any, path: str = "/v1/models", headers: Any = (), kind: str = "http") -> int:
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "client": client, "headers": headers, "method": "GET"}
    asyncio.run(AllowedAddresses(app, NETWORKS)(scope, None, send))  # type: ignore[arg-type]
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.1.0.0", 200), ("10.1.255.255", 200), ("10.2.0.0", 403), ("192.0.2.7", 200), ("192.0.2.8", 403),
        ("::ffff:10.1.2.3", 200), ("::ffff:10.2.0.1", 403), ("2001:db8::1", 200), ("2001:db8::1%eth0", 200),
        ("2001:db9::1", 403), ("::1", 403), ("localhost", 403), ("", 403),
    ],
)  # fmt: skip
def test_the_address_of_the_connection_counts(address: str, expected: int) -> None:
    assert status((address, 4000)) == expected
    assert status((address, 4000), headers=[(b"x-forwarded-for", b"10.1.0.1")]) == expected


def test_a_connection_without_an_address_is_refused() -> None:
    assert status(None) == 403


def test_probes_and_the_lifespan_pass() -> None:
    assert {status(("10.2.0.0", 1), path) for path in PROBES} == {200}
    assert status(None, kind="lifespan") == 200
