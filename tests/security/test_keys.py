"""Keys: where ours may stand, that no upstream and no log gets it, and that nobody learns the provider's."""

import re

import pytest

from tests.security.provider import Answer
from tests.security.world import KEYS, PROVIDER_KEYS, World, chat, parse

OURS = KEYS["team-a"]
OTHER = KEYS["team-b"]
THEIRS = PROVIDER_KEYS["alpha"]
CHAT = "/v1/chat/completions"

# Headers beside `Authorization: Bearer OURS`, none of which may be on the wire behind the proxy.
BESIDE = [
    ("x-api-key", OURS),
    ("api-key", OURS),
    ("x-goog-api-key", OURS),
    ("x-litellm-api-key", OURS),
    ("x-litellm-api-key", f"Bearer {OURS}"),
    ("ocp-apim-subscription-key", OURS),
    ("x-stratiform-key", OURS),
    ("proxy-authorization", f"Bearer {OURS}"),
    ("x-auth-token", OURS),
    ("x-api-token", OURS),
    ("cookie", f"session={OURS}"),
    ("authorization", f"Bearer {OURS}"),
    ("X-Api-Key", OURS),
    ("x_api_key", OURS),
    ("X_Goog_Api_Key", OURS),
    ("x-forwarded-authorization", f"Bearer {OURS}"),
    ("x-anything", f"before {OURS} behind"),
    ("user-agent", f"client/1.0 ({OURS})"),
    ("referer", f"http://intranet/?key={OURS}"),
    ("x-made", "sk-strat-0123456789012345678901234567890123456789012"),
    ("x-goog-api-key", OTHER),
    ("x-api-key", "sk-of-the-client-itself-8a7b6c5d"),
]
# Queries, of which no key of ours and no credential of the client's may go on beside the operator's.
QUERIES = [
    f"key={OURS}",
    f"api_key={OURS}",
    f"access_token={OURS}",
    "api-key=sk-of-the-client-itself",
    "key=sk-of-the-client-itself",
    "Api_Key=sk-of-the-client-itself",
    "%6bey=sk-of-the-client-itself",
    f"anything={OURS}",
    f"anything={OURS.replace('-', '%2D')}",
    f"anything={OURS.replace('-', '%252D')}",
    f"{OURS}=1",
    f"a=1&x-goog-api-key={OURS}",
]
ACCOUNTS = [
    ("openai-organization", "org-somebody"),
    ("openai-project", "proj_somebody"),
    ("OpenAI-Organization", "org-somebody"),
    ("openai_organization", "org-somebody"),
    ("anthropic-workspace-id", "wrkspc_somebody"),
    ("x-goog-user-project", "project-of-somebody"),
]


def none_of_ours(text: str) -> bool:
    """No key of the proxy's, in capitals or not."""
    return not any(key.lower() in text.lower() for key in KEYS.values()) and "sk-strat-" not in text


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "api-key", "x-goog-api-key", "x-litellm-api-key"])
def test_every_client_may_send_our_key_as_it_is_used_to(world: World, name: str) -> None:
    reply = world.call("POST", CHAT, chat(), [(name, OURS)], key=None)
    (seen,) = world.sent()
    assert reply.status == 200
    assert none_of_ours(seen.text)
    assert seen.text.count(THEIRS) == 1


@pytest.mark.parametrize(("name", "value"), BESIDE)
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_no_header_takes_a_key_upstream(world: World, path: str, name: str, value: str) -> None:
    body = chat() if path == CHAT else {"model": "cheap", "input": "text"}
    reply = world.call("POST", path, body, [("authorization", f"Bearer {OURS}"), (name, value)])
    (seen,) = world.sent()
    assert reply.status == 200
    assert none_of_ours(seen.text)
    assert "of-the-client-itself" not in seen.text
    assert seen.values("authorization") == [f"Bearer {THEIRS}"]


@pytest.mark.parametrize("query", QUERIES)
def test_no_query_takes_a_key_upstream(world: World, query: str) -> None:
    assert world.call("POST", f"{CHAT}?keep=a%20b&{query}&too=1", chat()).status == 200
    (seen,) = world.sent()
    assert none_of_ours(seen.text)
    assert "of-the-client-itself" not in seen.text
    assert seen.query in ("keep=a%20b&too=1", "keep=a%20b&a=1&too=1")


@pytest.mark.parametrize("written", [OURS, OURS.replace("-", "%2D"), OURS.replace("-", "%252d")])
def test_a_path_that_holds_a_key_is_refused(world: World, written: str) -> None:
    reply = world.call("GET", f"/v1/files/{written}/content")
    # What is encoded twice has more than one reading, and is no path at all.
    assert (reply.status, reply.error_code) in ((400, "key_in_path"), (404, "invalid_path"))
    assert world.sent() == []
    assert none_of_ours(reply.body.decode())


@pytest.mark.parametrize(("name", "value"), ACCOUNTS)
def test_whose_account_pays_is_the_operators_affair(world: World, name: str, value: str) -> None:
    assert world.call("POST", CHAT, chat(), [(name, value)]).status == 200
    (seen,) = world.sent()
    assert "somebody" not in seen.text


@pytest.mark.parametrize(
    "name",
    ["openai-organization", "openai-project", "anthropic-organization-id", "set-cookie", "x-litellm-key-spend",
     "x-litellm-model-api-base"],
)  # fmt: skip
def test_answers_do_not_tell_whose_account_it_was(world: World, name: str) -> None:
    world.providers["alpha"].script = lambda seen: Answer(200, {}, [(name, "secret"), ("x-request-id", "req-1")])
    reply = world.call("POST", CHAT, chat())
    assert reply.header("x-request-id") == "req-1"
    assert reply.header(name) is None


# What belongs to one connection, and what two servers read differently.

CONNECTION = [
    [("connection", "x-hop")],
    [("connection", "keep-alive"), ("connection", "x-hop")],
    [("Connection", "close"), ("CONNECTION", " X-Hop ,other")],
    [("connection", "te,\tx-hop")],
    [("connection", "X_Hop")],
]
HOPS = ["keep-alive", "te", "trailer", "upgrade", "proxy-connection", "http2-settings", "content_length",
        "transfer_encoding"]  # fmt: skip


@pytest.mark.parametrize("given", CONNECTION)
def test_every_connection_header_counts(world: World, given: list[tuple[str, str]]) -> None:
    assert world.call("POST", CHAT, chat(), [*given, ("x-hop", "mine"), ("x-kept", "1")]).status == 200
    (seen,) = world.sent()
    assert (seen.header("x-hop"), seen.header("x-kept")) == (None, "1")


@pytest.mark.parametrize("name", HOPS)
def test_what_belongs_to_the_connection_stays_here(world: World, name: str) -> None:
    assert world.call("POST", CHAT, chat(), [(name, "5")]).status == 200
    (seen,) = world.sent()
    assert seen.header(name) is None


BODY = b'{"model":"cheap","messages":[{"role":"user","content":"hi"}]}'
AMBIGUOUS = {
    "length and coding": b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"content-length: 2\r\ncontent-length: 3\r\n\r\nabc",
    "a list of lengths": b"content-length: 2, 2\r\n\r\nab",
    "a signed length": b"content-length: +2\r\n\r\nab",
    "an unknown coding": b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "another coding first": b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "identity first": b"transfer-encoding: identity, chunked\r\n\r\n0\r\n\r\n",
    "chunked, then another": b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two codings": b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two hosts": b"host: elsewhere\r\ncontent-length: 0\r\n\r\n",
    "a folded line": b"x-a: 1\r\n  connection: x-hop\r\ncontent-length: 0\r\n\r\n",
    "a space in front of the colon": b"authorization : Bearer x\r\ncontent-length: 0\r\n\r\n",
    "a bare carriage return": b"x-a: 1\rx-b: 2\r\ncontent-length: 0\r\n\r\n",
    "a control character": b"x-a: 1\x01\r\ncontent-length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_two_servers_read_differently_is_refused(world: World, name: str) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {OURS}\r\n".encode()
    received = world.raw(head + AMBIGUOUS[name] + b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n", quiet_s=2.0)
    assert parse(received, "POST").status == 400
    assert received.count(b"HTTP/1.1 ") == 1
    assert world.sent() == []


@pytest.mark.parametrize("name", ["authorization", "x-stratiform-mode", "connection", "x-kept"])
def test_trailers_are_no_headers(world: World, name: str) -> None:
    value = f"Bearer {OURS}" if name == "authorization" else "x-kept"
    given = b"" if name == "authorization" else f"authorization: Bearer {OURS}\r\n".encode()
    request = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()
        + given
        + b"transfer-encoding: chunked\r\n\r\n"
        + b"%x\r\n%s\r\n0\r\n%s: %s\r\n\r\n" % (len(BODY), BODY, name.encode(), value.encode())
        + b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    statuses = re.findall(rb"HTTP/1.1 (\d+)", world.raw(request))
    # Neither the request itself nor the one behind it in the same bytes has what stands in the trailer.
    assert statuses == ([b"401", b"401"] if name == "authorization" else [b"200", b"401"])
    assert all("x-kept" not in seen.text for seen in world.sent())


def test_a_second_key_of_ours_is_not_the_providers(world: World) -> None:
    headers = [("x-stratiform-key", OURS), ("authorization", f"Bearer {OTHER}")]
    world.call("POST", CHAT, chat(), headers)
    assert all(none_of_ours(seen.text) for seen in world.sent())
