"""Open pages are kept up to date by one task, which is there only while a page is open."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from proxy.errors import NotFound
from proxy.ui.live import Live
from proxy.ui.templates import mark_of


class Source:
    """Makes the parts of pages, and counts how often."""

    def __init__(self) -> None:
        self.parts = {"a": "one", "b": "one"}
        self.made: Counter[str] = Counter()
        self.live = Live(self.make, every_s=0.01)

    async def make(self, address: str) -> str:
        self.made[address] += 1
        if address not in self.parts:
            raise NotFound("gone")
        return self.parts[address]

    async def rounds(self, count: int) -> None:
        until = self.live.rounds + count
        while self.live.rounds < until:
            await asyncio.sleep(0.005)


def run(scene: Callable[[Source], Awaitable[None]]) -> None:
    async def main() -> None:
        source = Source()
        await asyncio.wait_for(scene(source), 30)
        await source.live.aclose()

    asyncio.run(main())


async def watch(source: Source, address: str, found: list[str], seen: str = "") -> None:
    async for part in source.live.follow(address, seen):
        found.append(part)


def test_a_page_is_told_what_changed_and_nothing_while_nothing_did() -> None:
    async def scene(source: Source) -> None:
        found: list[str] = []
        task = asyncio.ensure_future(watch(source, "a", found, mark_of("one")))
        await asyncio.sleep(0)
        await source.rounds(5)
        assert found == []
        source.parts["a"] = "two"
        await source.rounds(3)
        assert found == ["two"]
        task.cancel()

    run(scene)


def test_pages_of_one_address_are_made_once_a_round_however_many_look() -> None:
    async def scene(source: Source) -> None:
        found: list[list[str]] = [[] for _ in range(10)]
        tasks = [asyncio.ensure_future(watch(source, "a", one)) for one in found]
        await asyncio.sleep(0)
        await source.rounds(4)
        assert source.made["a"] <= source.live.rounds + 1
        assert found == [["one"]] * 10
        assert source.live.streams == 10
        for task in tasks:
            task.cancel()

    run(scene)


def test_without_an_open_page_nothing_is_read() -> None:
    async def scene(source: Source) -> None:
        task = asyncio.ensure_future(watch(source, "a", []))
        await asyncio.sleep(0)
        await source.rounds(2)
        task.cancel()
        await asyncio.wait([task])
        made = source.made.total()
        await asyncio.sleep(0.1)
        assert source.made.total() == made
        assert not source.live._tasks
        assert source.live.streams == 0
        found: list[str] = []
        task = asyncio.ensure_future(watch(source, "b", found))
        await asyncio.sleep(0)
        await source.rounds(1)
        assert found == ["one"]
        task.cancel()

    run(scene)


def test_a_page_that_is_gone_stops_no_other() -> None:
    async def scene(source: Source) -> None:
        found: list[str] = []
        tasks = [asyncio.ensure_future(watch(source, name, found)) for name in ("gone", "b")]
        await asyncio.sleep(0)
        await source.rounds(3)
        assert found == ["one"]
        for task in tasks:
            task.cancel()

    run(scene)


def test_streams_end_when_the_server_does() -> None:
    async def scene(source: Source) -> None:
        task = asyncio.ensure_future(watch(source, "a", []))
        await asyncio.sleep(0)
        await source.rounds(1)
        source.live.is_stopping = lambda: True
        await asyncio.wait_for(task, 60)

    run(scene)


def test_a_page_that_is_opened_while_the_last_one_closes_is_kept_up_to_date() -> None:
    async def scene(source: Source) -> None:
        found: list[str] = []
        last = asyncio.ensure_future(watch(source, "a", []))
        await asyncio.sleep(0)
        await source.rounds(1)
        last.cancel()
        task = asyncio.ensure_future(watch(source, "b", found))
        await asyncio.gather(last, return_exceptions=True)
        await source.rounds(2)
        assert found == ["one"]
        task.cancel()

    run(scene)
