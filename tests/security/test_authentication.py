"""Nobody gets in without a good key, in whichever form it is tried, and nothing of a refused request goes anywhere."""

import base64
import hashlib
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from proxy.teams.authentication import declared_id, digest_of
from tests.security.world import CONFIG, KEYS, PROVIDER_KEYS, World, chat, world_of

CHAT = "/v1/chat/completions"
GOOD, MASTER = KEYS["team-a"], KEYS["master"]

Headers = list[tuple[str, str]]


def bearer(key: str) -> Headers:
    return [("authorization", f"Bearer {key}")]


def basic(user: str, password: str) -> Headers:
    return [("authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())]


@pytest.fixture(scope="module")
def metered() -> Iterator[World]:
    with world_of(CONFIG.replace("  port: 0\n", f"  port: 0\n  metrics: {{key: {METRICS_KEY}}}\n")) as found:
        yield found


BAD: dict[str, Headers] = {
    "no header": [],
    "empty header": [("authorization", "")],
    "scheme alone": [("authorization", "Bearer")],
    "scheme and blanks": [("authorization", "Bearer    ")],
    "basic, key as the password": basic("", GOOD),
    "basic, key as the user": basic(GOOD, ""),
    "another scheme": [("authorization", f"Token {GOOD}")],
    "digest scheme": [("authorization", f'Digest username="{GOOD}"')],
    "scheme twice": [("authorization", f"Bearer Bearer {GOOD}")],
    "scheme with a colon": [("authorization", f"Bearer: {GOOD}")],
    "two keys in one header": bearer(f"sk-unknown, {GOOD}"),
    "a list of good keys": bearer(f"{GOOD},{KEYS['team-b']}"),
    "in quotes": bearer(f'"{GOOD}"'),
    "percent-encoded": bearer(quote(GOOD, safe="").replace("-", "%2D")),
    "base64 of the key": bearer(base64.b64encode(GOOD.encode()).decode()),
    "a prefix of the key": bearer(GOOD[:-1]),
    "the key and one more character": bearer(GOOD + "a"),
    "in capitals": bearer(GOOD.upper()),
    "a blank inside": bearer(GOOD[:8] + " " + GOOD[8:]),
    "cyrillic letters that look alike": bearer(GOOD.replace("a", "\u0430")),
    "full-width letters": bearer("".join(chr(ord(c) + 0xFEE0) for c in GOOD)),
    "zero-width space behind it": bearer(GOOD + "\u200b"),
    "bytes that are no UTF-8": bearer("sk-\udcff\udcfe"),
    "a very long key": bearer("sk-" + "a" * 50_000),
    "the digest instead of the key": bearer(digest_of(GOOD)),
    "the key's public id": bearer(declared_id(digest_of(GOOD))),
    "the digest of the master key": bearer(hashlib.sha256(MASTER.encode()).hexdigest()),
    "a prefix of the master key": bearer(MASTER[:-2]),
    "the team's name": bearer("team-a"),
    "the word master": bearer("master"),
    "the word null": bearer("null"),
    "a wildcard": bearer("*"),
    "SQL": bearer("' OR '1'='1"),
    "a reference to the environment": bearer("os.environ/MASTER_KEY"),
    "a reference to a file": bearer("file:///etc/passwd"),
    "the provider's key": bearer(PROVIDER_KEYS["alpha"]),
    "a key that looks made here": bearer("sk-strat-" + "A" * 43),
    "an expired key": bearer(KEYS["expired"]),
    "a cookie": [("cookie", f"authorization=Bearer {GOOD}; api_key={GOOD}")],
    "a proxy's authorization": [("proxy-authorization", f"Bearer {GOOD}")],
    "an invented header": [("x-authorization", f"Bearer {GOOD}"), ("authentication", GOOD), ("x-key", GOOD)],
    "forwarded by a proxy that nobody trusts": [("x-forwarded-user", "team-a"), ("x-remote-user", "master")],
    "a websocket's subprotocol": [("sec-websocket-protocol", f"realtime, openai-insecure-api-key.{GOOD}")],
    "an unknown key in our own header beside a good one": [*bearer(GOOD), ("x-stratiform-key", "sk-unknown")],
    "a name with an underscore": [("x_api_key", GOOD), ("HTTP_AUTHORIZATION", f"Bearer {GOOD}")],
}


@pytest.mark.parametrize("headers", BAD.values(), ids=BAD)
def test_a_key_that_is_not_plainly_a_good_one_is_refused(world: World, headers: Headers) -> None:
    reply = world.call("POST", CHAT, chat(), headers, key=None)
    assert (reply.status, reply.error_code) == (401, "invalid_api_key")
    assert world.sent() == []
    for secret in (GOOD, MASTER, KEYS["expired"], PROVIDER_KEYS["alpha"]):
        assert secret not in reply.body.decode()
        assert secret not in world.log


ELSEWHERE = {
    "in the query as api_key": (CHAT + f"?api_key={GOOD}", chat()),
    "in the query as key": (CHAT + f"?key={GOOD}&access_token={GOOD}", chat()),
    "in the path": (f"/v1/{GOOD}/chat/completions", chat()),
    "as a user of the URL": (f"http://{GOOD}@127.0.0.1{CHAT}", chat()),
    "in the body": (CHAT, chat(api_key=GOOD, key=GOOD, authorization=f"Bearer {GOOD}")),
    "in extra headers of the body": (CHAT, chat(extra_headers={"authorization": f"Bearer {GOOD}"})),
    "in our own part of the body": (CHAT, chat(stratiform={"key": GOOD})),
}


@pytest.mark.parametrize(("path", "body"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_good_key_in_another_place_is_none(world: World, path: str, body: object) -> None:
    reply = world.call("POST", path, body, key=None)
    assert reply.status in (400, 401, 404)
    assert world.sent() == []
    assert GOOD not in reply.body.decode()


CONTROLS = {
    "NUL inside": b"\x00", "NUL and more": b"\x00x", "vertical tab": b"\x0b", "escape": b"\x1b[0m", "DEL": b"\x7f",
}  # fmt: skip


@pytest.mark.parametrize("character", CONTROLS.values(), ids=CONTROLS)
def test_a_control_character_in_a_key_does_not_cut_it(world: World, character: bytes) -> None:
    head = b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer "
    answer = world.raw(head + GOOD.encode() + character + b"\r\n\r\n")
    assert answer.split(b" ")[1] in (b"400", b"401")


ACCEPTED = {
    "bearer": bearer(GOOD),
    "no scheme": [("authorization", GOOD)],
    "scheme in small letters": [("authorization", f"bearer {GOOD}")],
    "scheme in capitals, more blanks": [("AUTHORIZATION", f"BEARER   {GOOD}  ")],
    "Anthropic's header": [("x-api-key", GOOD)],
    "Azure's header": [("api-key", GOOD)],
    # Claude Code sends a stored key as x-api-key beside the configured token.
    "beside an unknown one": [*bearer("sk-of-something-else"), ("x-api-key", GOOD)],
}


@pytest.mark.parametrize("headers", ACCEPTED.values(), ids=ACCEPTED)
def test_a_good_key_is_accepted_as_clients_send_it_and_never_sent_on(world: World, headers: Headers) -> None:
    assert world.call("POST", CHAT, chat(), headers, key=None).status == 200
    (seen,) = world.sent()
    assert GOOD not in seen.text
    assert "sk-of-something-else" not in seen.text
    credentials = [*seen.values("authorization"), *seen.values("x-api-key"), *seen.values("api-key")]
    assert [one.removeprefix("Bearer ") for one in credentials] == [PROVIDER_KEYS["alpha"]]


PATHS = [
    ("POST", CHAT), ("POST", "/chat/completions"), ("POST", "/v1/chat/completions/"), ("POST", "/v1/completions"),
    ("POST", "/v1/embeddings"), ("POST", "/v1/responses"), ("POST", "/v1/messages"), ("POST", "/v1/images/generations"),
    ("POST", "/v1/audio/speech"), ("POST", "/v1/files"), ("GET", "/v1/files"), ("GET", "/v1/models"),
    ("GET", "/models"), ("GET", "/v1/models/cheap"), ("DELETE", "/v1/models/cheap"), ("PUT", "/v1/anything"),
    ("PATCH", "/v1/anything"),
    ("OPTIONS", "/v1/chat/whatever"), ("GET", "/v1/responses/resp_1"), ("GET", "/v1//models"), ("HEAD", "/v1/files"),
    ("GET", "/v1/"), ("POST", "/v1/engines/cheap/completions"), ("POST", "/v1/realtime/client_secrets"),
    ("POST", "/openai/deployments/cheap/chat/completions"), ("POST", "/openai/deployments/cheap/else"),
    ("GET", "/openai/models"), ("POST", "/openai/a//b"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), PATHS, ids=[f"{method} {path}" for method, path in PATHS])
@pytest.mark.parametrize("key", [None, "sk-unknown"])
def test_no_path_and_no_method_is_open(world: World, method: str, path: str, key: str | None) -> None:
    assert world.call(method, path, chat() if method == "POST" else None, key=key).status == 401
    assert world.sent() == []


@pytest.mark.slow
def test_the_key_is_asked_for_before_the_body_is_read(world: World) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 60000000\r\n\r\n"
    assert world.raw(head, quiet_s=2.0).split(b" ")[1] == b"401"


def test_a_revoked_key_ends_at_once_and_does_not_come_back(world: World) -> None:
    key_id, secret = world.new_key()
    assert world.call("POST", CHAT, chat(), key=secret).status == 200
    assert world.call("POST", f"/admin/keys/{key_id}/revoke", key="master").status == 200
    refused = world.call("POST", CHAT, chat(), key=secret)
    assert (refused.error_code, b"has been revoked" in refused.body) == ("invalid_api_key", True)
    assert world.call("PATCH", f"/admin/keys/{key_id}", {"note": "again"}, key="master").status == 200
    assert world.call("POST", CHAT, chat(), key=secret).status == 401
    assert world.call("DELETE", f"/admin/keys/{key_id}", key="master").status == 200
    assert world.call("POST", CHAT, chat(), key=secret).status == 401
    assert len(world.sent()) == 1


def test_keys_of_two_teams_are_billed_to_one_of_them_once(world: World) -> None:
    before = [world.spent(team) for team in ("team-a", "team-b")]
    headers = [*bearer(GOOD), ("x-api-key", KEYS["team-b"])]
    assert world.call("POST", CHAT, chat(), headers, key=None).status == 200
    after = [world.spent(team) for team in ("team-a", "team-b")]
    assert sum(now > then for now, then in zip(after, before, strict=True)) == 1
    (seen,) = world.sent()
    assert KEYS["team-b"] not in seen.text


def test_two_authorization_headers_are_one_teams_or_nobodys(world: World) -> None:
    before = [world.spent(team) for team in ("team-a", "listed")]
    headers = [*bearer(KEYS["listed"]), *bearer(GOOD)]
    reply = world.call("POST", CHAT, chat("dear"), headers, key=None)
    after = [world.spent(team) for team in ("team-a", "listed")]
    assert reply.status in (200, 400, 401, 403)
    assert after[1] == before[1], "a list of models holds for who is billed"
    assert all(key not in seen.text for seen in world.sent() for key in KEYS.values())


def test_without_any_key_configured_the_last_one_to_be_deleted_opens_no_door() -> None:
    text = """
model_list:
  - {model_name: m, litellm_params: {model: openai/m, api_base: "{alpha}/v1", api_key: x}}
general_settings: {master_key: sk-master-7d1fC0ffee00ab93e1}
stratiform: {store: "{sqlite}"}
"""
    with world_of(text) as world:
        assert world.call("POST", CHAT, chat("m"), key=None).status == 401
        key_id, secret = world.new_key("default")
        assert world.call("POST", CHAT, chat("m"), key=secret).status == 200
        assert world.call("DELETE", f"/admin/keys/{key_id}", key="master").status == 200
        for key in (secret, None, "sk-anything"):
            assert world.call("POST", CHAT, chat("m"), key=key).status == 401


METRICS_KEY = "sk-metrics-41aa0d"
"""Shorter than any key of the world, and the beginning of none."""


@pytest.mark.parametrize("headers", [each for name, each in BAD.items() if "our own header" not in name])
def test_metrics_are_shown_to_who_has_their_key_alone(metered: World, headers: Headers) -> None:
    refused = metered.call("GET", "/metrics", headers=[(n, v.replace(GOOD, METRICS_KEY)) for n, v in headers], key=None)
    assert (refused.status, refused.error_code) == (401, "invalid_api_key")
    assert b"stratiform_" not in refused.body


@pytest.mark.parametrize("key", ["team-a", "master", METRICS_KEY[:-1], METRICS_KEY + "0", METRICS_KEY.upper()])
def test_no_other_key_opens_the_metrics_and_theirs_opens_nothing_else(metered: World, key: str) -> None:
    assert metered.call("GET", "/metrics", headers=bearer(METRICS_KEY), key=None).status == 200
    assert metered.call("GET", "/metrics", key=key).status == 401
    assert metered.call("HEAD", "/metrics", key=key).status == 401
    for path in (CHAT, "/admin/keys"):
        assert metered.call("POST", path, chat(), bearer(METRICS_KEY), key=None).status in (401, 403)
    assert metered.call("GET", "/healthz", key=None).status == 200
    assert METRICS_KEY not in metered.log
