"""A page that somebody looks at on this machine spends nothing of the operator's.

A browser sends a page's requests to any address, also to a proxy that only this machine reaches, and says in ``Origin``
whose page asks. A proxy without keys would add the operator's key, and the provider's own headers would let the page
read the answer. With DNS rebinding the page's own name leads to this machine.
"""

import json
from collections.abc import Iterator

import pytest

from tests.contract.litellm_calls import LITELLM
from tests.security.provider import Answer, Seen
from tests.security.world import CONFIG, MODELS, PRICES, World, chat, world_of

pytestmark = LITELLM

CHAT = "/v1/chat/completions"
OPEN = MODELS + 'stratiform:\n  port: 0\n  store: "{sqlite}"' + PRICES
FOREIGN = ["https://evil.example", "http://evil.example:4000", "null", "http://6.6.6.6", "http://localhost.evil.example",
           "http://127.0.0.1.evil.example", "HTTPS://EVIL.EXAMPLE", "http://evil.example/localhost", "evil.example",
           "http://user@localhost:1@evil.example"]  # fmt: skip
OWN = ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080", "http://app.localhost", "http://0.0.0.0:1",
       "chrome-extension://abcdef", "vscode-webview://1x2y", "tauri://localhost", "app://obsidian.md"]  # fmt: skip


def permissive(seen: Seen) -> Answer | None:
    """OpenAI's API lets every page read its answers."""
    allows = [("access-control-allow-origin", "*"), ("access-control-allow-headers", "*")]
    return Answer(204, b"", allows) if seen.method == "OPTIONS" else None


@pytest.fixture(scope="module")
def begun() -> Iterator[World]:
    with world_of(OPEN) as world:
        yield world


@pytest.fixture
def keyless(begun: World) -> World:
    begun.forget()
    for provider in begun.providers.values():
        provider.script = permissive
    return begun


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_a_page_of_another_site_does_not_ask_with_the_operators_key(keyless: World, origin: str, kind: str) -> None:
    reply = keyless.call("POST", CHAT, chat(), [("origin", origin), ("content-type", kind)], key=None)
    assert (reply.status, reply.error_code, keyless.sent()) == (403, "foreign_origin", [])


def test_a_name_that_leads_to_this_machine_makes_no_page_its_own(keyless: World) -> None:
    body = json.dumps(chat()).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: evil.example:4000\r\norigin: http://evil.example:4000\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    assert keyless.raw(head.encode() + body).startswith(b"HTTP/1.1 403")
    assert keyless.sent() == []


@pytest.mark.parametrize("method", ["OPTIONS", "GET", "DELETE"])
def test_no_browser_is_told_that_such_a_page_may_ask(keyless: World, method: str) -> None:
    asks = [("origin", "https://evil.example"), ("access-control-request-method", "POST")]
    for path in (CHAT, "/v1/files", "/v1/embeddings"):
        reply = keyless.call(method, path, None, asks, key=None)
        assert reply.status in (403, 404, 405)
        assert reply.header("access-control-allow-origin") is None
    assert keyless.sent() == []


@pytest.mark.parametrize("origin", OWN)
def test_pages_and_programs_of_this_machine_ask(keyless: World, origin: str) -> None:
    assert keyless.call("POST", CHAT, chat(), [("origin", origin)], key=None).status == 200
    assert len(keyless.sent()) == 1


def test_a_page_of_the_same_address_asks(keyless: World) -> None:
    for host, origin in (("10.0.0.7:4000", "http://10.0.0.7:3000"), ("[fd00::7]", "https://[fd00::7]:3")):
        head = (
            f"GET /v1/files HTTP/1.1\r\nhost: {host}\r\norigin: {origin}\r\nx-stratiform-model: cheap\r\n"
            "connection: close\r\n\r\n"
        )
        assert keyless.raw(head.encode()).startswith(b"HTTP/1.1 200")


def test_a_page_with_a_key_asks() -> None:
    page = [("origin", "https://chat.example")]
    with world_of(CONFIG) as world:
        assert world.call("POST", CHAT, chat(), page).status == 200
        assert world.call("POST", CHAT, chat(), page, key="master").status == 200
    with world_of(upstream="{alpha}/v1", config="router_settings: {num_retries: 0}") as world:
        assert world.call("POST", CHAT, chat(), page, key="sk-of-the-client").status == 200


def test_the_keys_of_litellm_are_the_operators_too() -> None:
    with world_of(OPEN.replace("transport: http", "transport: litellm")) as world:
        assert world.call("POST", CHAT, chat(), [("origin", "https://evil.example")], key=None).status == 403
        assert world.sent() == []


@pytest.mark.parametrize(
    "name", ["x-accel-redirect", "X-Sendfile", "x-lighttpd-send-file", "strict-transport-security", "clear-site-data"]
)
def test_a_provider_commands_neither_the_server_in_front_nor_the_browser(keyless: World, name: str) -> None:
    for provider in keyless.providers.values():
        provider.script = lambda seen: Answer(200, {"choices": []}, [(name, "/etc/passwd"), ("x-kept", "1")])
    reply = keyless.call("POST", CHAT, chat(), key=None)
    assert (reply.header(name.lower()), reply.header("x-kept")) == (None, "1")
