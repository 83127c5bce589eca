"""Keys, how they are made, and what a request says about its sender and its session."""

import asyncio
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from proxy.engine.exchange import Principal
from proxy.kit.errors import NotReady, ProxyError, StoreError, Unauthorized
from proxy.kit.modes import Mode
from proxy.kit.secrets import KEY_PREFIX
from proxy.models import Headers, RateLimit
from proxy.storage import BudgetRecord, KeyRecord, TeamRecord
from proxy.storage.sqlite import MemoryStore
from proxy.teams.authentication import (
    CLIENT_KEYS_TEAM,
    DEFAULT_TEAM,
    Declared,
    Directory,
    Identity,
    declared_id,
    digest_of,
    is_address,
    is_loopback,
    new_id,
    new_key,
)
from tests.examples import for_every
from tests.money import Flaky

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


# The master key


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([bearer("sk-master")], True), ([("x-api-key", "sk-master")], True), ([bearer("sk-red")], False),
        ([bearer("sk-maste")], False), ([bearer(digest_of("sk-master"))], False),
        ([("x-stratiform-key", "sk-master")], False), ([], False),
    ],
)  # fmt: skip
def test_the_master_is_who_sends_the_master_key(headers: Headers, expected: bool) -> None:
    assert identity().is_master(headers) is expected


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


def test_keys_are_random_and_can_be_told_by_their_prefix() -> None:
    keys = {new_key() for _ in range(1000)}
    assert len(keys) == 1000
    assert all(re.fullmatch(r"sk-strat-[A-Za-z0-9]{43}", key) for key in keys)
    assert KEY_PREFIX == "sk-strat-"


def test_what_is_kept_is_the_sha_256() -> None:
    assert digest_of("sk-strat-x") == hashlib.sha256(b"sk-strat-x").hexdigest()
    assert len(digest_of("\udcff")) == 64


def test_ids_are_public_and_tell_nothing() -> None:
    assert re.fullmatch(r"key-[a-z0-9]{12}", new_id())
    assert len({new_id() for _ in range(1000)}) == 1000
    digest = digest_of("sk-1")
    assert re.fullmatch(r"key-[0-9a-f]{12}", declared_id(digest))
    assert declared_id(digest) == declared_id(digest)
    assert declared_id(digest)[4:] not in digest


# Every sender, by every pair of headers


SENDERS = Declared(
    [
        TeamRecord("red", paths=("files",)), TeamRecord("blue", forwards_keys=True),
        TeamRecord("gold", forwards_keys=True, paths=("*",)),
    ],
    [
        key("sk-red"), key("sk-blue", team="blue"), key("sk-strat-gold", team="gold"), key("sk-gone", team="gone"),
        key("sk-revoked", team="blue", revoked_at=5.0), key("sk-expired", expires_at=100.0),
    ],
    master_digest=digest_of("sk-master"),
)  # fmt: skip
KEYS = {"sk-red": "red", "sk-blue": "blue", "sk-strat-gold": "gold", "sk-revoked": "blue", "sk-expired": "red",
        "sk-master": DEFAULT_TEAM}  # fmt: skip
ENDED = {"sk-revoked": "This API key has been revoked.", "sk-expired": "This API key has expired."}
SENT = ["", *KEYS, "sk-gone", "sk-strat-unknown", "sk-provider"]


def sender(own: str, token: str, other: str, forwards_unknown: bool, is_loaded: bool) -> tuple[object, ...] | str:
    """Who sends these keys: as the proxy's own, as a bearer token, and in Azure's header. For each principal its team,
    its key, whether its key is ours, whether the provider's key is passed on, and whether it is confined."""
    theirs = [one for one in (token, other) if one]
    for one in [own] if own else theirs:
        if one in KEYS:
            if one in ENDED:
                return ENDED[one]
            brings = bool(own and theirs) and KEYS[one] in ("blue", "gold")
            brings = brings and not any(each in KEYS or each.startswith("sk-strat-") for each in theirs)
            name = "master" if one == "sk-master" else declared_id(digest_of(one))
            return KEYS[one], name, not brings, brings, one not in ("sk-master", "sk-strat-gold") and not brings
    looks_ours = bool(own) or any(one.startswith("sk-strat-") for one in theirs)
    if looks_ours and not is_loaded:
        return "not ready"
    if forwards_unknown and theirs and not looks_ours:
        return CLIENT_KEYS_TEAM, "", False, True, False
    if not own and not theirs:
        return "No API key: send one of this proxy's keys as `Authorization: Bearer KEY`."
    return "Incorrect API key: this proxy does not know the key that was sent." if is_loaded else "not ready"


def admitted(who: Identity, headers: Headers) -> tuple[object, ...] | str:
    try:
        one = who.admit(headers, 100.0)
    except NotReady:
        return "not ready"
    except ProxyError as error:
        return error.message
    return one.team, one.key_id, one.virtual, one.forwards_key, one.is_confined


@for_every(product([False, True], [False, True]))
def test_whom_the_headers_of_a_request_name(forwards_unknown: bool, is_loaded: bool) -> None:
    store = Flaky()
    store.is_out = not is_loaded
    directory = Directory(replace(SENDERS, forwards_unknown=forwards_unknown), store)
    asyncio.run(directory.load())
    who = Identity(directory, SALT)
    for own, token, other in product(SENT, SENT, SENT):
        pairs = {"api-key": other, "Authorization": token and f"Bearer {token}", "X-Stratiform-Key": own and f" {own} "}
        headers = [(name, value) for name, value in pairs.items() if value]
        assert admitted(who, headers) == sender(own, token, other, forwards_unknown, is_loaded), headers


def test_a_principal_says_all_that_its_key_and_its_team_say() -> None:
    rights = {"mode": "mark", "models": ("m",), "requests_per_minute": 1, "tokens_per_minute": 2}
    team = TeamRecord("red", forwards_keys=True, paths=("files", "batches"), **rights)  # type: ignore[arg-type]
    who = identity(
        Declared([team], [key("sk-red", user="ann", **{**rights, "mode": "tier", "tokens_per_minute": None})])
    )
    found = admit(who, bearer("sk-red"), ("thread-id", "t"))
    key_id = declared_id(digest_of("sk-red"))
    assert found == Principal(
        found.scope, "red", "t", Mode.MARK, True, False, key_id, "ann", (("m",), ("m",)),
        (RateLimit(key_id, 1, None), RateLimit("", 1, 2)), True, ("files", "batches"),
    )  # fmt: skip
    forwarded = admit(who, ("x-stratiform-key", "sk-red"), bearer("sk-provider"), ("thread-id", "u"))
    assert forwarded == replace(found, session_hint="u", virtual=False, forwards_key=True, is_confined=False)


def test_state_that_is_kept_for_a_client_is_found_by_every_later_version() -> None:
    """Scopes, ids and signatures are names in stores that outlive a version: another spelling would lose them."""
    who = identity(SENDERS, salt=bytes(range(100)))
    key_id = declared_id(digest_of("sk-red"))
    assert key_id == "key-4b2ba786e3cd"
    text = f"red\0{key_id}".encode()
    assert admit(who, bearer("sk-red")).scope == hashlib.blake2b(text, digest_size=16, key=bytes(range(64))).hexdigest()
    open_door = identity(Declared(), salt=b"k")
    assert admit(open_door).scope == hashlib.blake2b(b"\0", digest_size=16, key=b"k").hexdigest()
    assert admit(open_door, bearer("\udcff")).scope == hashlib.blake2b(b"\0\xff", digest_size=16, key=b"k").hexdigest()
    stranger = admit(identity(FORWARDING, salt=b"k"), bearer("sk-p")).scope
    assert stranger == hashlib.blake2b(b"client-keys\0sk-p", digest_size=16, key=b"k").hexdigest()
    assert who.signed("text") == hmac.digest(digest_of("sk-master").encode(), b"text", "sha256").hex()
    assert (who.has_master, open_door.has_master, open_door.signed("text")) == (True, False, "")


class CountedKeys(dict[str, KeyRecord]):
    """Counts how often all keys are read."""

    reads = 0

    def values(self) -> Iterable[KeyRecord]:  # type: ignore[override]
        self.reads += 1
        return super().values()


async def test_keys_are_read_once_for_each_snapshot_and_a_change_counts_from_the_next_request_on() -> None:
    directory = Directory(TEAMS, MemoryStore())
    await directory.load()
    who = Identity(directory, SALT)
    assert admit(who, bearer("sk-red")).mode is Mode.OBSERVE
    changed = CountedKeys({one.id: replace(one, mode="passthrough") for one in directory.snapshot.keys.values()})
    directory.snapshot = replace(directory.snapshot, keys=changed)
    for _ in range(5):
        assert admit(who, bearer("sk-red")).mode is Mode.PASSTHROUGH
    assert changed.reads == 1


def nonempty() -> Iterator[Declared]:
    yield Declared(teams=[RED])
    yield Declared(keys=[key("sk-red")])
    yield Declared(master_digest="d")
    yield Declared(forwards_unknown=True)


def test_a_configuration_is_empty_if_it_names_nobody() -> None:
    assert Declared().is_empty
    assert Declared(budgets=[BudgetRecord("b", "red", hard=1)], bounds_all="max_budget").is_empty
    assert not any(one.is_empty for one in nonempty())
    for one in nonempty():
        with pytest.raises(Unauthorized):
            admit(identity(one))


@for_every(
    [
        ("127.0.0.1", True, True), ("127.8.9.1", True, True), ("::1", True, True), ("::ffff:127.0.0.1", True, True),
        ("10.0.0.1", True, False), ("0.0.0.0", True, False), ("::", True, False), ("::ffff:10.0.0.1", True, False),
        ("2001:db8::1", True, False), ("localhost", False, True), ("example.com", False, False), ("", False, False),
        ("127.0.0.1:80", False, False), ("localhost.example.com", False, False),
    ]
)  # fmt: skip
def test_which_addresses_only_this_machine_reaches(name: str, is_one: bool, is_local: bool) -> None:
    assert (is_address(name), is_loopback(name)) == (is_one, is_local)
