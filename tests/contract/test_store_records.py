"""The directory and the layout state in every engine of the store, and what outlives the process."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.storage import Balance, BudgetRecord, Charge, Granted, KeyRecord, Store, TeamRecord
from tests.contract.store_calls import T, ask, balance, end, on_each_store
from tests.contract.stores import DURABLE, ENGINES


@on_each_store
async def test_the_directory_keeps_records_and_says_when_it_changed(store: Store) -> None:
    versions = [await store.directory_version()]
    key = KeyRecord(
        "key-1", "d" * 64, "red", user="ann", models=("m", "n*"), mode="mark", requests_per_minute=60,
        tokens_per_minute=10_000, expires_at=T, created_at=T - 1, note="note",
    )  # fmt: skip
    records = [
        TeamRecord("red", mode="tier", models=("m",), created_at=T),
        key,
        BudgetRecord("b", "red", "user", unit="tokens", hard=10, soft=5, webhook="https://hooks"),
    ]
    for record in records:
        await store.put(record)
        versions.append(await store.directory_version())
    assert [
        *await store.records(TeamRecord),
        *await store.records(KeyRecord),
        *await store.records(BudgetRecord),
    ] == records
    await store.put(replace(key, revoked_at=T))
    assert await store.records(KeyRecord) == [replace(key, revoked_at=T)]
    versions.append(await store.directory_version())
    assert await store.remove("team", "red")
    assert await store.records(TeamRecord) == []
    versions.append(await store.directory_version())
    assert not await store.remove("team", "red")
    assert versions == sorted(set(versions))
    assert await store.directory_version() == versions[-1]


@on_each_store
async def test_a_record_that_follows_from_an_earlier_version_is_not_put(store: Store) -> None:
    assert await store.put(TeamRecord("red"), 0)
    version = await store.directory_version()
    assert await store.put(TeamRecord("blue"))
    assert not await store.put(TeamRecord("red", mode="mark"), version)
    assert await store.records(TeamRecord) == [TeamRecord("blue"), TeamRecord("red")]
    assert await store.put(TeamRecord("red", mode="mark"), await store.directory_version())
    assert (await store.records(TeamRecord))[1].mode == "mark"


@on_each_store
async def test_blobs_are_kept_by_scope_for_a_time(store: Store) -> None:
    await store.save("s", {"a": b"\0\xff", "b": b""}, 60.0, T)
    await store.save("t", {"a": b"other"}, 60.0, T)
    assert await store.load("s", ["b", "x", "a"], T) == [b"", None, b"\0\xff"]
    assert await store.load("t", ["a"], T) == [b"other"]
    await store.save("s", {"a": b"new"}, 60.0, T + 30)
    assert await store.load("s", ["a", "b"], T) == [b"new", b""]
    if not store.is_shared:
        await store.expire(T + 60)
        assert await store.load("s", ["a", "b"], T + 60) == [b"new", None]


@on_each_store
async def test_the_store_answers_a_ping(store: Store) -> None:
    await store.ping()


@pytest.mark.parametrize("engine", DURABLE)
async def test_a_restart_of_a_durable_store_forgets_nothing(engine: str, tmp_path: Path) -> None:
    async with ENGINES[engine](tmp_path) as store:
        assert store.is_durable
        await store.settle(end("x", Charge("a", 4)), T)
        await store.reserve(ask("y", Charge("a", 5, 100)), T)
        await store.put(TeamRecord("red"))
        await store.save("s", {"a": b"blob"}, 600.0, T)
        version = await store.directory_version()
    async with ENGINES[engine](tmp_path) as store:
        assert await balance(store) == (4, 5, 0)
        assert await store.settle(end("x", Charge("a", 9)), T) == [Balance("a", 4, 5)]
        assert await store.settle(end("y", Charge("a", 3)), T) == [Balance("a", 7, 0)]
        assert await store.records(TeamRecord) == [TeamRecord("red")]
        assert await store.directory_version() == version
        assert await store.load("s", ["a"], T) == [b"blob"]


@pytest.mark.parametrize("engine", DURABLE)
async def test_two_processes_that_share_a_store_cannot_pass_a_limit_together(engine: str, tmp_path: Path) -> None:
    async with ENGINES[engine](tmp_path) as one, ENGINES[engine](tmp_path) as two:
        asked = await asyncio.gather(
            *(store.reserve(ask(f"{i}", Charge("a", 3, 100)), T) for i in range(50) for store in ((one, two)[i % 2],))
        )
        assert sum(isinstance(answer, Granted) for answer in asked) == 33
        assert await balance(one) == await balance(two) == (0, 99, 0)


@on_each_store
async def test_blobs_are_listed_page_by_page_the_last_saved_first(store: Store) -> None:
    # Names that a server's locale would sort otherwise, many of which were saved at once.
    names = [f"{sign}{number}" for number in range(6) for sign in ("a", "B", "a-", "é")]
    for start in range(0, len(names), 8):
        await store.save("s", {name: name.encode() for name in names[start : start + 8]}, 60.0, T + start)
    await store.save("t", {"other": b"other"}, 60.0, T + 99)
    await store.save("s", {"gone": b"gone"}, 1.0, T)
    expected = sorted(
        ((name, T + 60.0 + 8 * (place // 8)) for place, name in enumerate(names)),
        key=lambda one: (one[1], one[0].encode()),
        reverse=True,
    )
    for most in (1, 5, 8, 24, 100):
        found: list[tuple[str, float, bytes]] = []
        behind = (float("inf"), "")
        while page := await store.page("s", behind, most, T + 30.0):
            assert len(page) <= most
            found += page
            behind = (page[-1][1], page[-1][0])
        assert [(name, until) for name, until, _ in found] == expected
        assert all(blob == name.encode() for name, _, blob in found)
    assert not await store.page("none", (float("inf"), ""), 5, T)
