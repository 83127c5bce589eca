"""A Redis in which data is gone, or was written by another program, fails only the calls that need this data."""

from collections.abc import Awaitable, Callable

import pytest

from proxy.kit.errors import StoreError
from proxy.storage import (
    Charge,
    Granted,
    LedgerEntry,
    ObjectRecord,
    Release,
    Reserve,
    Settle,
    SpendQuery,
    Store,
    TeamRecord,
)
from tests.contract.stores import redis_store
from tests.redis_server import RedisServer

T = 1_700_000_000.0

UNREADABLE: dict[str, tuple[tuple[str, ...], Callable[[Store], Awaitable[object]]]] = {
    "a record that is no JSON": (
        ("HSET", "stratiform:{directory}:team", "red", "{bad"), lambda store: store.records(TeamRecord)
    ),
    "a record with other fields": (
        ("HSET", "stratiform:{directory}:team", "red", "{}"), lambda store: store.records(TeamRecord)
    ),
    "a version that is no number": (
        ("SET", "stratiform:{directory}:version", "new"), lambda store: store.directory_version()
    ),
    "a schema that is no number": (("SET", "stratiform:schema", "new"), lambda store: store.ping()),
    "a fact of another type": (("SET", "stratiform:{directory}:facts", "new"), lambda store: store.facts()),
    "an object of another type": (
        ("HSET", "stratiform:{objects}:records", "red\0o", "{bad"), lambda store: store.owned("red", ["o"], T)
    ),
    "an entry that is no JSON": (
        ("HSET", "stratiform:{t:red}:entries", "x", "{bad"), lambda store: store.entries(0.0, 2 * T)
    ),
    "an entry that is gone": (
        ("HDEL", "stratiform:{t:red}:entries", "x"), lambda store: store.spend(SpendQuery(0.0, 2 * T))
    ),
    "a counter that is no number": (
        ("HSET", "stratiform:{t:red}:accounts", "s:a", "new"), lambda store: store.balance("red", Charge("a", 0), T)
    ),
}  # fmt: skip


@pytest.mark.parametrize("written", UNREADABLE)
async def test_data_of_another_program_raises_a_store_error(server: RedisServer, written: str) -> None:
    """A loop of a worker goes on after a StoreError. After any other error it would end for good."""
    command, call = UNREADABLE[written]

    async with redis_store(server.url) as store:
        await store.put(TeamRecord(name="red"))
        await store.remember("red", [ObjectRecord("o", "red", "file", "srv", "d", 2 * T)], 9, T)
        await store.settle(Settle(LedgerEntry("x", T, "red"), [Charge("a", 1)]), T)
        assert not server.call(*command).startswith("-")
        with pytest.raises(StoreError, match="Redis"):
            await call(store)


KEYS_OF_A_TEAM = (
    "accounts", "forget", "open", "due", "closed", "closed_until", "entries", "order", "claims"
)  # fmt: skip


@pytest.mark.parametrize("evicted", KEYS_OF_A_TEAM)
async def test_a_team_that_lost_a_key_is_still_served(server: RedisServer, evicted: str) -> None:
    """A server that evicts may take any key. What was in it is lost, but the calls of later exchanges succeed."""
    charge = Charge("a", 1, limit=100, keep_s=60.0)

    async with redis_store(server.url) as store:
        for number in range(4):
            name = str(number)
            await store.reserve(Reserve(name, "red", [charge], T + 10, LedgerEntry(name, T, "red")), T)
        await store.carry_out("red", [Release("0", "red")], T)
        await store.settle(Settle(LedgerEntry("1", T, "red"), [charge]), T)
        assert server.call("DEL", f"stratiform:{{t:red}}:{evicted}") in (":0", ":1")
        await store.settle(Settle(LedgerEntry("2", T, "red"), [charge]), T + 5)
        later = Reserve("9", "red", [charge], T + 60, LedgerEntry("9", T, "red"))
        assert isinstance(await store.reserve(later, T + 20), Granted)
        await store.settle(Settle(LedgerEntry("9", T, "red"), [charge]), T + 20)
        assert await store.expire(T + 120) == 0


async def test_a_reservation_whose_time_was_lost_is_billed_unless_its_worker_renews_it(server: RedisServer) -> None:
    async with redis_store(server.url) as store:
        for name in ("x", "y"):
            await store.reserve(Reserve(name, "red", [Charge("a", 1)], T + 10, LedgerEntry(name, T, "red")), T)
        server.call("DEL", "stratiform:{t:red}:due")
        assert await store.expire(T + 1) == 0
        await store.renew("red", ["x"], T + 100)
        assert [await store.expire(T + 62), await store.expire(T + 101)] == [1, 1]


@pytest.mark.parametrize("evicted", ["blobs", "until", "sizes"])
async def test_a_scope_that_lost_a_key_begins_anew(server: RedisServer, evicted: str) -> None:
    async with redis_store(server.url) as store:
        await store.save("s", {"a": b"1"}, 60.0, T)
        server.call("DEL", f"stratiform:{{s:s}}:{evicted}")
        await store.save("s", {"b": b"2"}, 60.0, T)
        assert await store.load("s", ["a", "b"], T) == [None, b"2"]
    for name, count in (("blobs", 1), ("until", 1), ("sizes", 2)):
        command = "ZCARD" if name == "until" else "HLEN"
        assert server.call(command, f"stratiform:{{s:s}}:{name}") == f":{count}"
