"""Keys, teams, and what a request says about its session."""

import asyncio
from collections.abc import Sequence

import pytest

from proxy.access.authentication import CLIENT_KEYS_TEAM, Declared, Directory, Identity, declared_id, digest_of, new_key
from proxy.core.modes import Mode
from proxy.errors import NotReady, Unauthorized
from proxy.ports import Headers, Principal, RateLimit, StoreError
from proxy.storage.port import KeyRecord, TeamRecord
from proxy.storage.sqlite import MemoryStore
from tests.examples import for_every

SALT = b"s" * 32


def key(secret: str, team: str = "red", **fields: object) -> KeyRecord:
    return KeyRecord(declared_id(digest_of(secret)), digest_of(secret), team, **fields)  # type: ignore[arg-type]


RED = TeamRecord("red", mode="observe")
TEAMS = Declared([RED], [key("sk-red"), key("sk-red-2")], master_digest=digest_of("sk-master"))


def identity(
    declared: Declared = TEAMS, managed: Sequence[TeamRecord | KeyRecord] = (), salt: bytes = SALT
) -> Identity:
    async def main() -> Directory:
        directory = Directory(declared, MemoryStore())
        await directory.load()
        for record in managed:
            await directory.put(record)
        return directory

    return Identity(asyncio.run(main()), salt)


def admit(who: Identity, *headers: tuple[str, str], now: float = 0.0) -> Principal:
    return who.admit(headers, now)


def bearer(text: str) -> tuple[str, str]:
    return "authorization", f"Bearer {text}"


def test_where_nobody_is_named_any_key_is_accepted_and_tells_clients_apart() -> None:
    door = identity(Declared())
    one, two, none = admit(door, bearer("a")), admit(door, bearer("b")), admit(door)
    assert len({one.scope, two.scope, none.scope}) == 3
    assert admit(door, bearer("a")) == one
    assert (one.team, one.mode, one.virtual, one.key_id, one.forwards_key) == ("default", Mode.TIER, False, "", False)


@pytest.mark.parametrize(
    "header",
    [bearer("k"), ("authorization", "bearer k"), ("Authorization", "Bearer  k "), ("authorization", "k"),
     ("x-api-key", "k"), ("api-key", "k")],
)  # fmt: skip
def test_a_key_may_come_in_any_header_that_clients_use(header: tuple[str, str]) -> None:
    door, open_door = identity(Declared([RED], [key("k")])), identity(Declared())
    assert admit(door, header) == admit(door, bearer("k"))
    assert admit(open_door, header) == admit(open_door, bearer("k"))


def test_a_teams_key_has_the_teams_name_and_mode_and_is_ours() -> None:
    who = identity()
    principal = admit(who, bearer("sk-red"))
    assert (principal.team, principal.mode, principal.virtual) == ("red", Mode.OBSERVE, True)
    assert principal.key_id == declared_id(digest_of("sk-red"))
    assert admit(who, bearer("sk-red-2")).scope != principal.scope
    master = admit(who, bearer("sk-master"))
    assert (master.team, master.key_id, master.mode, master.virtual) == ("default", "master", Mode.TIER, True)


@pytest.mark.parametrize("headers", [[], [("authorization", "")], [("cookie", "sk-red")]])
def test_with_keys_configured_a_request_without_one_is_refused(headers: Headers) -> None:
    with pytest.raises(Unauthorized, match="No API key: send"):
        identity().admit(headers, 0.0)


@for_every(["sk-re", "sk-redd", "SK-RED", "Bearer", "sk-red\udc80", "ключ", "sk-strat-unknown", digest_of("sk-red")])
def test_an_unknown_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(Unauthorized) as caught:
        admit(identity(), bearer(text))
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert text not in caught.value.message


def test_a_known_key_counts_beside_an_unknown_one() -> None:
    # Claude Code sends a stored key as x-api-key beside the configured token.
    assert admit(identity(), bearer("sk-other"), ("x-api-key", "sk-red")).team == "red"


def test_scopes_hold_no_key_and_depend_on_the_salt_alone() -> None:
    principal = admit(identity(), bearer("sk-red"))
    assert admit(identity(), bearer("sk-red")).scope == principal.scope
    assert admit(identity(salt=b"t" * 32), bearer("sk-red")).scope != principal.scope
    assert "sk-red" not in f"{principal!r} {identity()!r} {TEAMS!r}"


def test_what_the_team_and_the_key_say_is_added_up_to_the_narrower() -> None:
    team = TeamRecord("red", mode="mark", models=("sonnet", "gpt-*"), requests_per_minute=100)
    keys = [
        key("sk-low", mode="passthrough", models=("gpt-5",), tokens_per_minute=9, user="alice"),
        key("sk-high", mode="tier"),
    ]
    who = identity(Declared([team], keys))
    low, high = admit(who, bearer("sk-low")), admit(who, bearer("sk-high"))
    assert (low.mode, high.mode) == (Mode.PASSTHROUGH, Mode.MARK)
    assert (low.models, high.models) == ((("gpt-5",), ("sonnet", "gpt-*")), (("sonnet", "gpt-*"),))
    assert low.rates == (RateLimit(low.key_id, None, 9), RateLimit("", 100, None))
    assert high.rates == (RateLimit("", 100, None),)
    assert (low.user, high.user) == ("alice", "")


def test_a_mode_that_is_not_known_here_does_nothing() -> None:
    who = identity(managed=[TeamRecord("blue"), key("sk-blue", team="blue", mode="turbo")])
    assert admit(who, bearer("sk-blue")).mode is Mode.PASSTHROUGH


def test_an_expired_key_is_refused_from_that_second_on() -> None:
    who = identity(Declared([RED], [key("sk-red", expires_at=100.0)]))
    assert admit(who, bearer("sk-red"), now=99.9).team == "red"
    with pytest.raises(Unauthorized, match="has expired"):
        admit(who, bearer("sk-red"), now=100.0)


async def test_a_revoked_key_is_refused_at_once_and_a_deleted_one_is_unknown() -> None:
    directory = Directory(Declared([RED]), MemoryStore())
    await directory.load()
    who, secret = Identity(directory, SALT), new_key()
    made = KeyRecord("key-1", digest_of(secret), "red")
    await directory.put(made)
    assert admit(who, bearer(secret)).key_id == "key-1"
    await directory.put(KeyRecord("key-1", digest_of(secret), "red", revoked_at=5.0))
    with pytest.raises(Unauthorized, match="has been revoked"):
        admit(who, bearer(secret))
    await directory.remove("key", "key-1")
    with pytest.raises(Unauthorized, match="does not know"):
        admit(who, bearer(secret))


async def test_the_first_key_shuts_the_door_and_deleting_the_last_does_not_open_it() -> None:
    directory = Directory(Declared(), MemoryStore())
    await directory.load()
    who = Identity(directory, SALT)
    assert not admit(who, bearer("anything")).virtual
    await directory.put(TeamRecord("red"))
    assert not admit(who, bearer("anything")).virtual, "a team without a key locks nobody out"
    await directory.put(key("sk-red"))
    with pytest.raises(Unauthorized):
        admit(who, bearer("anything"))
    await directory.remove("key", key("sk-red").id)
    with pytest.raises(Unauthorized):
        admit(who, bearer("anything"))


def test_a_key_of_a_team_that_is_gone_is_nobodys() -> None:
    with pytest.raises(Unauthorized):
        admit(identity(managed=[key("sk-blue", team="blue")]), bearer("sk-blue"))


async def test_until_the_store_has_been_read_an_unknown_key_may_be_one() -> None:
    class Away(MemoryStore):
        async def directory_version(self) -> int:
            raise StoreError("away")

    directory = Directory(TEAMS, Away())
    await directory.load()
    who = Identity(directory, SALT)
    assert admit(who, bearer("sk-red")).team == "red"
    with pytest.raises(NotReady):
        admit(who, bearer("sk-strat-unknown"))
    open_door = Directory(Declared(), Away())
    await open_door.load()
    with pytest.raises(NotReady):
        admit(Identity(open_door, SALT), bearer("anything"))


# Keys of the provider


FORWARDING = Declared(
    [RED, TeamRecord(CLIENT_KEYS_TEAM, mode="mark", models=("m",))], [key("sk-red")], forwards_unknown=True
)


def test_where_they_are_let_through_an_unknown_key_is_the_providers() -> None:
    who = identity(FORWARDING)
    principal = admit(who, bearer("sk-provider"))
    assert (principal.team, principal.mode, principal.models) == (CLIENT_KEYS_TEAM, Mode.MARK, (("m",),))
    assert (principal.virtual, principal.forwards_key, principal.key_id) == (False, True, "")
    assert admit(who, bearer("sk-other")).scope != principal.scope
    assert admit(who, bearer("sk-red")).virtual


@pytest.mark.parametrize(
    "headers",
    [[], [bearer("sk-strat-revoked")], [("authorization", "Basic dTpw")], [("authorization", "sk-raw")],
     [("x-stratiform-key", "sk-unknown"), bearer("sk-provider")]],
)  # fmt: skip
def test_what_is_not_plainly_a_key_of_the_provider_is_not_let_through(headers: Headers) -> None:
    with pytest.raises(Unauthorized):
        identity(FORWARDING).admit(headers, 0.0)


def test_a_team_may_have_its_clients_bring_the_providers_key_along() -> None:
    declared = Declared([RED, TeamRecord("own", forwards_keys=True)], [key("sk-red"), key("sk-own", team="own")])
    who = identity(declared)
    both = admit(who, ("x-stratiform-key", "sk-own"), bearer("sk-provider"))
    assert (both.team, both.virtual, both.forwards_key) == ("own", False, True)
    alone = admit(who, ("x-stratiform-key", "sk-own"))
    assert (alone.virtual, alone.forwards_key) == (True, False), "without one of the client's own, the deployment's"
    other_team = admit(who, ("x-stratiform-key", "sk-red"), bearer("sk-provider"))
    assert (other_team.team, other_team.virtual, other_team.forwards_key) == ("red", True, False)
    assert admit(who, bearer("sk-own")).virtual


# The master key


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([bearer("sk-master")], True),
        ([("x-api-key", "sk-master")], True),
        ([bearer("sk-red")], False),
        ([bearer("sk-maste")], False),
        ([bearer(digest_of("sk-master"))], False),
        ([("x-stratiform-key", "sk-master")], False),
        ([], False),
    ],
)
def test_the_master_is_who_sends_the_master_key(headers: Headers, expected: bool) -> None:
    assert identity().is_master(headers) is expected


def test_where_there_is_no_master_key_nobody_has_it() -> None:
    who = identity(Declared([RED], [key("sk-red")]))
    assert not who.has_master
    assert not who.is_master([bearer("sk-red")])
    assert not who.is_master([bearer("")])


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        ([("x-session-id", "s"), ("x-session-affinity", "a")], "s"),
        ([("x-session-affinity", "a"), ("session-id", "i")], "a"),
        ([("session-id", "i"), ("thread-id", "t")], "t"),
        ([("session-id", "i")], "i"),
        ([("x-session-id", ""), ("session-id", "i")], "i"),
        ([("x-session-id", "x" * 1000)], "x" * 256),
        ([], ""),
    ],
)
def test_a_session_may_be_named_by_a_header(headers: list[tuple[str, str]], hint: str) -> None:
    assert identity(Declared()).admit(headers, 0.0).session_hint == hint
    assert identity().admit([*headers, bearer("sk-red")], 0.0).session_hint == hint
