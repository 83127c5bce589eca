"""No admin right without the master key: whichever path, method, header or team it is tried with."""

import hashlib
from urllib.parse import quote

import pytest

from tests.security.world import KEYS, PROVIDER_KEYS, World, chat, world_of

MASTER = KEYS["master"]

OPERATIONS = [
    ("GET", "/admin/keys"), ("POST", "/admin/keys"), ("GET", "/admin/teams"), ("POST", "/admin/teams"),
    ("GET", "/admin/budgets"), ("POST", "/admin/budgets"), ("GET", "/admin/spend"), ("GET", "/admin/entries"),
    ("GET", "/admin/sessions"), ("GET", "/admin/sessions/x"), ("GET", "/admin/sessions/x/breakdown"),
    ("PATCH", "/admin/teams/team-a"), ("DELETE", "/admin/teams/team-a"), ("PATCH", "/admin/budgets/tight/total"),
    ("DELETE", "/admin/budgets/tight/total"), ("GET", "/admin/keys/key-000000000000"), ("GET", "/admin/nothing"),
    ("POST", "/admin/keys/key-000000000000/revoke"), ("DELETE", "/admin/keys/key-000000000000"), ("GET", "/admin/"),
    ("PUT", "/admin/keys"), ("OPTIONS", "/admin/keys"), ("HEAD", "/admin/keys"), ("BREW", "/admin/keys"),
]  # fmt: skip
ONES = {
    "nobody": None,
    "a team": "team-a",
    "a team without budget": "tight",
    "an expired key": "expired",
    "a made-up key": "sk-strat-" + "x" * 43,
    "the master's digest": hashlib.sha256(MASTER.encode()).hexdigest(),
    "half of the master key": MASTER[: len(MASTER) // 2],
    "the master key in capitals": MASTER.upper(),
    "the provider's key": PROVIDER_KEYS["alpha"],
}


@pytest.mark.parametrize("key", ONES.values(), ids=ONES)
def test_every_operation_asks_for_the_master_key(world: World, key: str | None) -> None:
    before = everything(world)
    for method, path in OPERATIONS:
        body = {"team": "team-a", "usd": 1000, "name": "x"} if method in ("POST", "PATCH", "PUT") else None
        reply = world.call(method, path, body, key=key)
        assert reply.status in (400, 401, 405), (method, path, reply.body)
        assert b"sk-strat-" not in reply.body
    assert everything(world) == before
    assert world.sent() == []


def everything(world: World) -> list[object]:
    """What the admin API manages."""
    return [world.call("GET", f"/admin/{kind}", key="master").json for kind in ("keys", "teams", "budgets")]


WAYS = {
    "below /v1": "/v1/admin/keys",
    "by dots": "/v1/../admin/keys",
    "by encoded dots": "/v1/%2e%2e/admin/keys",
    "by twice encoded dots": "/v1/%252e%252e/admin/keys",
    "by a dot and a semicolon": "/v1/..;/admin/keys",
    "in capitals": "/ADMIN/keys",
    "two slashes in front": "//admin/keys",
    "two slashes inside": "/admin//keys",
    "a slash at the end": "/admin/keys/",
    "an encoded slash": "/admin%2Fkeys",
    "an encoded letter": "/%61dmin/keys",
    "a semicolon": "/admin;x/keys",
    "a NUL": "/admin/keys%00",
    "a dot inside": "/admin/./keys",
    "a way back": "/healthz/../admin/keys",
    "absolute form": "http://127.0.0.1/admin/keys",
    "the root": "/admin",
    "a chat that ends there": "/v1/chat/completions/../../../admin/keys",
    "a query": "/v1/models?path=/admin/keys",
    "a full-width letter": "/%EF%BD%81dmin/keys",
}


@pytest.mark.parametrize("path", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("key", [None, "team-a"])
def test_no_spelling_of_the_path_is_a_way_around(world: World, path: str, key: str | None) -> None:
    reply = world.call("GET", path, key=key)
    text = reply.body.decode("utf-8", "replace")
    assert "key-" not in text
    assert '"team"' not in text
    if reply.status == 200:
        # A path that the provider is asked for: its answer, with its own key, and none of ours.
        assert path.startswith("/v1/")
    for seen in world.sent():
        assert KEYS["team-a"] not in seen.text


DISGUISES = {
    "in the query": ("/admin/keys?key={}&api_key={}", []),
    "a cookie": ("/admin/keys", [("cookie", "authorization={}; key={}")]),
    "basic": ("/admin/keys", [("authorization", "Basic {}")]),
    "another header": ("/admin/keys", [("x-master-key", "{}"), ("x-admin-key", "{}"), ("x-stratiform-key", "{}")]),
    "a trailing character": ("/admin/keys", [("authorization", "Bearer {}.")]),
    "encoded": ("/admin/keys", [("authorization", "Bearer " + quote(MASTER, safe="").replace("-", "%2D"))]),
    "twice in one header": ("/admin/keys", [("authorization", "Bearer {}, {}")]),
    "as a proxy's": ("/admin/keys", [("proxy-authorization", "Bearer {}")]),
}


@pytest.mark.parametrize(("path", "headers"), DISGUISES.values(), ids=DISGUISES)
def test_the_master_key_counts_in_its_own_place_only(world: World, path: str, headers: list[tuple[str, str]]) -> None:
    sent = [(name, value.replace("{}", MASTER)) for name, value in headers]
    reply = world.call("GET", path.replace("{}", MASTER), None, sent, key=None)
    assert reply.status == 401
    assert MASTER not in reply.body.decode()
    assert MASTER not in world.log


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"\xff\xfe", b'{"team":' * 1000, b" " * (2 << 20)])
def test_nothing_of_a_request_is_read_before_the_master_key(world: World, body: bytes) -> None:
    assert world.call("POST", "/admin/keys", body, key="team-a").status == 401


NO_MASTER = """
model_list: [{model_name: m, litellm_params: {model: openai/m, api_base: "{alpha}/v1", api_key: x}}]
stratiform: {store: "{sqlite}", teams: [{name: team-a, keys: [sk-alpha-team-83bd0f6f1c2e55aa]}]}
"""


def test_without_a_master_key_there_is_no_admin_api_whoever_asks() -> None:
    with world_of(NO_MASTER) as world:
        for key in (None, "team-a", "", "None", "null", "master", MASTER, hashlib.sha256(b"").hexdigest()):
            for method, path in OPERATIONS:
                reply = world.call(method, path, {} if method == "POST" else None, key=key)
                assert reply.status in (400, 404, 405), (key, method, path, reply.body)
        assert world.sent() == []


def test_a_made_key_gains_no_right_by_its_name_team_or_note(world: World) -> None:
    for fields in ({"note": "master"}, {"user": "master"}, {"user": "admin", "note": MASTER[:6]}):
        _, secret = world.new_key("default", **fields)
        assert world.call("GET", "/admin/keys", key=secret).status == 401
    for team in ("master", "admin", "../default"):
        world.call("POST", "/admin/teams", {"name": team}, key="master")
    assert world.call("POST", "/v1/chat/completions", chat(), key="master").status == 200
