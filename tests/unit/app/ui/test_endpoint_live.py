"""Open pages are kept up to date, and each is made once however many look at it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from proxy.app.ui import Live
from proxy.app.ui.pages import mark_of
from proxy.kit.errors import NotFound
from tests.waiting import until_async


class Source:
    """Makes the parts of pages, and counts how often."""

    def __init__(self) -> None:
        self.parts = {"a": "one", "b": "one"}
        self.made: Counter[str] = Counter()
        self.live = Live(self.make, every_s=0.005)

    async def make(self, address: str) -> str:
        self.made[address] += 1
        if address == "broken":
            raise RuntimeError("a mistake of ours")
        if address not in self.parts:
            raise NotFound("gone")
        return self.parts[address]

    async def made_more(self, address: str, count: int = 2) -> None:
        until = self.made[address] + count
        await until_async(lambda: self.made[address] >= until)

    @asynccontextmanager
    async def watched(self, address: str, seen: str = "") -> AsyncIterator[list[str]]:
        found: list[str] = []

        async def watch() -> None:
            async for part in self.live.follow(address, seen):
                found.append(part)

        task = asyncio.ensure_future(watch())
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest is a hundred times as long as a machine takes, which may be busy."""
    monkeypatch.setattr("proxy.app.ui._REST", 0.0)


@pytest.fixture
def source() -> Source:
    return Source()


async def test_a_page_is_told_what_changed_and_nothing_while_nothing_did(source: Source) -> None:
    async with source.watched("a", mark_of("one")) as found:
        await source.made_more("a")
        assert found == []
        source.parts["a"] = "two"
        await source.made_more("a", 3)
        assert found == ["two"]


async def test_pages_of_one_address_are_made_once_however_many_look(source: Source) -> None:
    source.live = Live(source.make, every_s=30.0)
    found = [source.watched("a") for _ in range(10)]
    lists = [await one.__aenter__() for one in found]
    await until_async(lambda: all(lists))
    assert lists == [["one"]] * 10
    assert source.made["a"] == 1
    assert source.live.streams == 10
    for one in found:
        await one.__aexit__(None, None, None)
    assert source.live.streams == 0


async def test_without_an_open_page_nothing_is_made(source: Source) -> None:
    async with source.watched("a"):
        await source.made_more("a")
    made = source.made.total()
    await asyncio.sleep(0.05)
    assert source.made.total() == made
    async with source.watched("b") as found:
        await source.made_more("b")
        assert found == ["one"]


async def test_a_page_that_is_gone_or_cannot_be_made_stops_no_other(source: Source) -> None:
    async with source.watched("gone") as gone, source.watched("broken") as broken, source.watched("b") as found:
        await source.made_more("gone")
        await source.made_more("broken")
        await source.made_more("b")
        assert (gone, broken, found) == ([], [], ["one"])


async def test_streams_end_when_the_server_does(source: Source) -> None:
    follow = source.live.follow("a", "")
    assert await anext(follow) == "one"
    source.live.is_stopping = lambda: True
    assert await anext(follow, None) is None
    assert source.live.streams == 0


async def test_while_a_part_is_made_and_long_after_it_no_other_is(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.app.ui._REST", 100.0)

    going_on = asyncio.Event()

    async def make(address: str) -> str:
        source.made[address] += 1
        await going_on.wait()
        return address

    source.live = Live(make, every_s=0.001)
    async with source.watched("a"), source.watched("b"):
        await asyncio.sleep(0.2)
        assert source.made == {"a": 1}
        going_on.set()
        await asyncio.sleep(0.05)
        assert source.made == {"a": 1}  # it took 200 ms, so that the next one is made after 20 seconds


async def test_pages_that_wait_for_a_rest_to_end_are_made_in_turn(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each rest is a little shorter than a page waits between two looks, however long a part takes.
    monkeypatch.setattr("proxy.app.ui._REST", 1e9)
    monkeypatch.setattr("proxy.app.ui._MOST_REST_S", 0.009)

    source.parts = dict.fromkeys("abcde", "one")
    source.live = Live(source.make, every_s=0.01)
    async with AsyncExitStack() as stack:
        for address in source.parts:
            await stack.enter_async_context(source.watched(address))
        await until_async(lambda: source.made.total() >= 30)
    assert min(source.made[address] for address in source.parts) >= 2
