"""Keys: where ours may stand, that no upstream and no log gets it, and that nobody learns the provider's."""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from urllib.parse import quote, unquote

import pytest

from tests.examples import sampled
from tests.security.provider import Answer, event
from tests.security.world import CONFIG, KEYS, PROVIDER_KEYS, World, chat, world_of

OURS = KEYS["team-a"]
OTHER = KEYS["team-b"]
THEIRS = PROVIDER_KEYS["alpha"]
CHAT = "/v1/chat/completions"

# Headers beside `Authorization: Bearer OURS`, none of which may be on the wire behind the proxy.
BESIDE = [
    ("x-api-key", OURS), ("api-key", OURS), ("x-goog-api-key", OURS), ("x-litellm-api-key", OURS),
    ("x-litellm-api-key", f"Bearer {OURS}"), ("ocp-apim-subscription-key", OURS), ("x-stratiform-key", OURS),
    ("proxy-authorization", f"Bearer {OURS}"), ("x-auth-token", OURS), ("x-api-token", OURS),
    ("cookie", f"session={OURS}"), ("authorization", f"Bearer {OURS}"), ("X-Api-Key", OURS), ("x_api_key", OURS),
    ("X_Goog_Api_Key", OURS), ("x-forwarded-authorization", f"Bearer {OURS}"),
    ("x-anything", f"before {OURS} behind"), ("user-agent", f"client/1.0 ({OURS})"),
    ("referer", f"http://intranet/?key={OURS}"), ("x-made", "sk-strat-0123456789012345678901234567890123456789012"),
    ("x-goog-api-key", OTHER), ("x-api-key", "sk-of-the-client-itself-8a7b6c5d"),
]  # fmt: skip
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
    ("openai-organization", "org-somebody"), ("openai-project", "proj_somebody"),
    ("OpenAI-Organization", "org-somebody"), ("openai_organization", "org-somebody"),
    ("anthropic-workspace-id", "wrkspc_somebody"), ("x-goog-user-project", "project-of-somebody"),
]  # fmt: skip


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
@pytest.mark.parametrize("path", sampled([CHAT, "/v1/embeddings"], 2))
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


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "x-http-method", "X_Original_URL", "x-rewrite-url"])
@pytest.mark.parametrize("path", ["/v1/vector_stores", "/v1/embeddings", CHAT])
def test_no_header_makes_another_request_of_a_request(world: World, path: str, name: str) -> None:
    assert world.call("POST", path, {**chat(), "input": "x"}, [(name, "GET"), ("x-kept", "1")]).status == 200
    (seen,) = world.sent()
    assert name.lower() not in {key for key, _ in seen.headers}
    assert seen.header("x-kept") == "1"


def test_a_client_with_its_own_key_sends_the_headers_that_it_likes() -> None:
    with world_of(upstream="{alpha}/v1", config="router_settings: {num_retries: 0}") as world:
        assert world.call("POST", CHAT, chat(), [("x-original-url", "/x")], key="sk-of-the-client").status == 200
        assert world.sent()[0].header("x-original-url") == "/x"


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


@pytest.mark.parametrize(
    ("beside", "passes"),
    sampled(
        [
            ([], True), ([("x-custom", OURS)], True), ([("cookie", OURS)], True),
            ([("x-api-key", "sk-provider-too-1")], True), ([("x-api-key", OURS)], False),
            ([("x-goog-api-key", OTHER)], False),
        ],
        3,
        1,
    ),
)  # fmt: skip
def test_with_the_providers_own_key_only_that_goes_on(beside: list[tuple[str, str]], *, passes: bool) -> None:
    config = CONFIG.replace("- name: team-a\n", "- name: team-a\n      client_keys: forward\n")
    headers = [("x-stratiform-key", OURS), ("authorization", "Bearer sk-of-the-client-itself"), *beside]
    with world_of(config) as world:
        world.call("POST", f"{CHAT}?a={OURS}", chat(), [*headers, ("openai-organization", "org-theirs")])
        (seen,) = world.sent()
    assert none_of_ours(seen.text)
    # A second key of ours is no provider's: the request is then one of the team's, with the operator's key.
    assert seen.values("authorization") == [f"Bearer {'sk-of-the-client-itself' if passes else THEIRS}"]
    assert seen.values("openai-organization") == (["org-theirs"] if passes else [])


# The provider's key in the provider's errors.

QUOTED = {
    "whole": THEIRS,
    "in capitals": THEIRS.upper(),
    "with a scheme": f"Bearer {THEIRS}",
    "masked as OpenAI does": f"{THEIRS[:8]}{'*' * 12}{THEIRS[-4:]}",
    "masked with dots": f"{THEIRS[:3]}...{THEIRS[-4:]}",
    "its end alone": f"****{THEIRS[-4:]}",
    "its beginning alone": f"{THEIRS[:14]}***",
    "a long beginning": THEIRS[:16],
    "a long end": THEIRS[-10:],
    "in an address": f"https://host/v1?key={THEIRS}&alt=sse",
    "percent-encoded": THEIRS.replace("-", "%2D"),
    "in HTML": THEIRS.replace("-", "&#45;"),
}


def bodies(text: str) -> dict[str, bytes]:
    """An error that says so, as servers write errors."""
    escaped = "".join(f"\\u{ord(char):04x}" for char in text)
    said = json.dumps({"error": {"message": f"Incorrect API key provided: {text}.", "code": text}})
    return {
        "json": said.encode(),
        "escaped": b'{"error": {"message": "Incorrect API key provided: %s."}}' % escaped.encode(),
        "text": f"bad key {text}\n".encode(),
        "html": f"<html><p>bad key: <b>{text}</b></p></html>".encode(),
    }


def tells(body: bytes) -> bool:
    """Whether somebody could learn more than the first letters of the provider's key."""
    text = body.decode("utf-8", "replace").lower()
    text = re.sub(r"\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), text)
    text = re.sub(r"&#(\d+);", lambda match: chr(int(match[1])), unquote(text))
    # The random id of an exchange may hold the last four characters by chance.
    text = re.sub(r"\bsx-[0-9a-f]{16}\b", "", text)
    return any(part.lower() in text for part in (THEIRS, THEIRS[:12], THEIRS[-4:]))


@pytest.mark.parametrize("kind", sampled(["json", "escaped", "text", "html"], 3))
@pytest.mark.parametrize("quoted", QUOTED)
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_errors_do_not_quote_the_providers_key(world: World, path: str, quoted: str, kind: str) -> None:
    data = bodies(QUOTED[quoted])[kind]
    types = {"text": "text/plain", "html": "text/html"}
    headers = [
        ("content-type", types.get(kind, "application/json")), ("x-error", f"key {QUOTED[quoted]}"),
        ("www-authenticate", f'Bearer error="{THEIRS}"'),
    ]  # fmt: skip
    pieces = tuple(data[at : at + 5] for at in range(0, len(data), 5))
    world.providers["alpha"].script = lambda seen: Answer(401, pieces, headers)
    reply = world.call("POST", path, chat() if path == CHAT else {"model": "cheap", "input": "x"})
    assert reply.status == 401
    assert not tells(reply.body)
    assert not tells(repr(reply.headers).encode())
    assert not tells(world.log.encode())


@pytest.mark.parametrize("status", [301, 400, 403, 429, 500, 503])
def test_an_error_of_any_status_does_not_quote_the_providers_key(world: World, status: int) -> None:
    body = {"error": {"message": THEIRS}}
    world.providers["alpha"].script = lambda seen: Answer(status, body, [("location", f"/x?key={THEIRS}")])
    reply = world.call("POST", CHAT, chat())
    assert reply.status == status
    assert not tells(reply.body + repr(reply.headers).encode())


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_packed_errors_are_unpacked_or_replaced(world: World, coding: str) -> None:
    plain = json.dumps({"error": {"message": THEIRS}}).encode()
    packed = {"gzip": gzip.compress(plain), "deflate": zlib.compress(plain), "br": b"\x8b\x02\x80" + plain}[coding]
    world.providers["alpha"].script = lambda seen: Answer(400, packed, [("content-encoding", coding)])
    reply = world.call("GET", "/v1/files", headers=[("accept-encoding", coding)])
    assert reply.status == 400
    assert reply.header("content-encoding") is None
    assert "error" in reply.json
    assert not tells(reply.body)


STREAMED_ERRORS = [
    event({"error": {"message": f"the key {THEIRS} was revoked", "code": 401}}),
    event({"type": "error", "error": {"type": "authentication_error", "message": THEIRS}}, "error"),
    event({"type": "response.failed", "response": {"error": {"message": f"sk-...{THEIRS[-4:]}"}}}, "response.failed"),
]


@pytest.mark.parametrize("failed", STREAMED_ERRORS)
@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_error_events_do_not_quote_the_providers_key(world: World, path: str, failed: bytes, size: int) -> None:
    begun = event({"id": "1", "choices": [{"index": 0, "delta": {"content": 'an "error" in words'}}]})
    data = begun + failed
    chunks = tuple(data[at : at + size] for at in range(0, len(data), size))
    script = Answer(200, chunks, [("content-type", "text/event-stream")])
    world.providers["alpha"].script = lambda seen: script
    reply = world.call("POST", path, chat(stream=True))
    assert reply.body.startswith(begun)
    assert b"redacted" in reply.body
    assert not tells(reply.body)


def test_what_went_well_passes_byte_for_byte(world: World) -> None:
    body = {"choices": [{"message": {"content": f'the "error" was {THEIRS[:3]}...{THEIRS[-4:]}'}}], "error": None}
    world.providers["alpha"].script = lambda seen: Answer(200, body)
    assert world.call("POST", CHAT, chat()).json == body
    told = event({"type": "response.output_text.delta", "delta": f"key {THEIRS[:3]}...{THEIRS[-4:]}", "error": None})
    world.providers["alpha"].script = lambda seen: Answer(200, (told,), [("content-type", "text/event-stream")])
    assert world.call("POST", "/v1/responses", chat(stream=True)).body == told


def test_a_clients_own_key_may_be_quoted_to_the_client() -> None:
    config = 'model_list: [{model_name: m, litellm_params: {model: openai/m, api_base: "{alpha}/v1"}}]'
    with world_of(config) as world:
        said = {"error": {"message": "Incorrect API key provided: sk-of-the-client-1234"}}
        world.providers["alpha"].script = lambda seen: Answer(401, said)
        reply = world.call("POST", CHAT, chat("m"), key="sk-of-the-client-1234")
        assert reply.json == said
        assert "sk-of-the-client-1234" not in world.log


# Keys in the wrong place are not logged, kept or counted.

WRONG = "sk-proj-Wr0ngPlaceWr0ngPlaceWr0ngPlace12"
# As a user's name it is kept: clients name their users by hashes.
HASH = "0f" * 20
PLACES = ["path", "encoded path", "query", "model", "user", "header", "method", "session"]
WRONG_KEYS = [
    WRONG, KEYS["team-b"], "sk-ant-api03-Wr0ngPlaceWr0ng", "AIzaSyWr0ngPlaceWr0ngPlaceWr0ngPlace",
    "gsk_Wr0ngPlaceWr0ngPl", "xai-Wr0ngPlaceWr0ngPlace", "Bearer Wr0ngPlaceWr0ngPlace", "sk-strat-Wr0ngPlace",
    "ghp_Wr0ngPlaceWr0ngPlaceWr0ngPlace123", OURS, HASH,
]  # fmt: skip
ANY = """
model_list: [{model_name: "*", litellm_params: {model: "openai/*", api_base: "{alpha}/v1", api_key: "sk-provider-alpha-6b1f0c8e2d"}}]
stratiform:
  store: "{sqlite}"
  teams: [{name: team-a, keys: [sk-alpha-team-83bd0f6f1c2e55aa, the-words-of-team-7]}]
"""  # noqa: E501


@pytest.fixture(scope="module")
def anything() -> Iterator[World]:
    with world_of(ANY) as world:
        yield world


@pytest.mark.parametrize(
    ("place", "wrong"),
    sampled([(place, wrong) for place in PLACES for wrong in WRONG_KEYS if (place, wrong) != ("user", HASH)], 3),
)
def test_a_key_in_the_wrong_place_is_not_logged_or_kept(anything: World, place: str, wrong: str) -> None:
    anything.forget()
    written = quote(wrong, safe="")
    match place:
        case "path":
            anything.call("GET", f"/v1/files/{written}")
        case "encoded path":
            anything.call("GET", "/v1/files/" + "".join(f"%{ord(char):02x}" for char in wrong))
        case "query":
            anything.call("GET", f"/v1/files?key={written}")
        case "model":
            anything.call("POST", CHAT, chat(wrong))
        case "user":
            anything.call("POST", CHAT, chat("m", user=wrong))
        case "header":
            anything.call("POST", CHAT, chat("m"), [("x-stratiform-mode", wrong)])
        case "method":
            anything.call(written.replace("%", ""), "/v1/files")
        case "session":
            anything.call("POST", CHAT, chat("m"), [("x-session-id", wrong)])
    kept = anything.log + anything.metrics() + repr(anything.ledger("team-a"))
    assert wrong.removeprefix("Bearer ") not in kept


@pytest.mark.parametrize("model", [OURS, f"openai/{OURS}", "sk-strat-0123456789012345678901234567890123456789012"])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings"])
def test_a_key_as_the_model_goes_nowhere(anything: World, path: str, model: str) -> None:
    anything.forget()
    reply = anything.call("POST", path, {**chat(model), "prompt": "x", "input": "x"})
    assert (reply.status, reply.error_code, anything.sent()) == (400, "key_in_model", [])


def test_a_key_that_looks_like_words_is_no_user(anything: World) -> None:
    key = "the-words-of-team-7"
    assert anything.call("POST", CHAT, chat("m", user=f"I am {key}"), key=key).status == 200
    entry = anything.ledger("team-a")[-1]
    assert entry.user.startswith("I am ")
    assert key not in repr(entry)


def test_a_word_in_place_of_a_key_is_no_key() -> None:
    with world_of(upstream="{alpha}/v1", config="router_settings: {num_retries: 0}") as world:
        reply = world.call("POST", CHAT, chat("lm-studio/qwen"), key="lm-studio")
        assert reply.status == 200
        assert world.sent()[0].json["model"] == "lm-studio/qwen"
        assert "model=lm-studio/qwen" in world.log
