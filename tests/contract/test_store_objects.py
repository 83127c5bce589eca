"""Objects of the provider's account in every engine of the store: whose they are, and for how long."""

import asyncio

from proxy.storage import ObjectRecord, Store
from tests.contract.store_calls import T, on_each_store


def made(name: str, team: str = "red", server: str = "s", forget_at: float = T + 100, **more: str) -> ObjectRecord:
    return ObjectRecord(name, team, "files", server, "gpt#1", forget_at, **more)


async def names_owned(store: Store, team: str, *names: str, now: float = T) -> list[str]:
    return [record.name for record in await store.owned(team, names, now) if record is not None]


@on_each_store
async def test_an_object_is_its_teams_alone(store: Store) -> None:
    records = [made("file-1"), made("\u00fc\n'{}", forget_at=T + 0.25)]
    await store.remember("red", records, 100, T)
    assert await store.owned("red", ["x", "file-1", "\u00fc\n'{}"], T) == [None, *records]
    assert await store.owned("blue", ["x", "file-1"], T) == [None, None]
    assert await store.owned("red", [], T) == []


@on_each_store
async def test_no_team_takes_over_an_object_that_another_team_has_made_at_a_server(store: Store) -> None:
    await store.remember("red", [made("file-1")], 100, T)
    await store.remember("blue", [made("file-1", "blue"), made("file-2", "blue")], 100, T)
    assert await names_owned(store, "blue", "file-1", "file-2") == ["file-2"]
    await store.remember("blue", [made("file-1", "blue", server="another")], 100, T)
    assert await names_owned(store, "blue", "file-1") == ["file-1"]
    assert await names_owned(store, "red", "file-1") == ["file-1"]


@on_each_store
async def test_an_object_that_was_deleted_or_has_ended_is_nobodys(store: Store) -> None:
    await store.remember("red", [made("a"), made("b"), made("c", forget_at=T + 200)], 100, T)
    await store.disown("red", "a")
    await store.disown("red", "unknown")
    assert await names_owned(store, "red", "a", "b", "c") == ["b", "c"]
    assert await names_owned(store, "red", "b", "c", now=T + 100) == ["c"]
    await store.remember("blue", [made(name, "blue", forget_at=T + 300) for name in "abc"], 100, T + 100)
    assert await names_owned(store, "blue", *"abc", now=T + 100) == ["a", "b"]
    await store.expire(T + 200)
    assert await names_owned(store, "red", *"abc", now=T) == [], "the records are gone, not only over"


@on_each_store
async def test_the_bill_of_an_object_is_taken_once_and_stays_when_the_object_is_remembered_again(store: Store) -> None:
    await store.remember("red", [made("resp", bill='{"x": "\u00fc"}')], 100, T)
    await store.remember("red", [made("resp", forget_at=T + 500)], 100, T)
    assert await store.take_bill("blue", "resp") == ""
    (later,) = await store.owned("red", ["resp"], T + 400)
    assert later == made("resp", forget_at=T + 500, bill='{"x": "\u00fc"}')
    taken = await asyncio.gather(*(store.take_bill("red", "resp") for _ in range(5)))
    assert sorted(taken) == ["", "", "", "", '{"x": "\u00fc"}']
    assert (await store.owned("red", ["resp"], T))[0] == made("resp", forget_at=T + 500)


@on_each_store
async def test_a_team_has_a_most_of_objects(store: Store) -> None:
    await store.remember("blue", [made("first", "blue")], 10, T)
    await store.remember("red", [made("lasting", forget_at=T + 900)], 10, T)
    for i in range(20):
        await store.remember("red", [made(f"x{i}", forget_at=T + 100 + i)], 10, T)
    found = await names_owned(store, "red", "lasting", *(f"x{i}" for i in range(20)))
    assert found == ["lasting", *(f"x{i}" for i in range(11, 20))]
    assert await names_owned(store, "blue", "first") == ["first"]
    many = [f"y{i}" for i in range(3000)]
    await store.remember("red", [made(name) for name in many], 5000, T)
    assert await names_owned(store, "red", *many) == many
