"""What is billed where nobody settles: kept before a call is sent, and replaced by the end of its exchange."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from proxy.storage.port import Charge, LedgerEntry, PutOff, Release, Reserve, Settle
from proxy.storage.spool import Spool


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def intent(name: str) -> Reserve:
    return Reserve(
        name, "red", [Charge("a", 5, None, 60.0, 2, ["b"])], 99.5, LedgerEntry(name, 7.5, "red", ending="lost")
    )


def end(name: str) -> Settle:
    return Settle(LedgerEntry(name, 7.5, "red", cost=3), [Charge("a", 3, within=[])])


async def calls_in(spool: Spool) -> list[PutOff]:
    return [call for _, call in await spool.page(0)]


def test_the_end_of_an_exchange_takes_the_place_of_its_intent(tmp_path: Path) -> None:
    async def main() -> None:
        spool = Spool(tmp_path)
        for call in (intent("settled"), intent("released"), intent("runs"), end("settled"), Release("released", "red")):
            await spool.add(call)
        assert await calls_in(spool) == [intent("runs"), end("settled"), Release("released", "red")]
        assert spool.size == 3
        await spool.aclose()

    run(main)


def test_what_was_read_is_forgotten_and_nothing_that_came_in_its_place(tmp_path: Path) -> None:
    async def main() -> None:
        spool = Spool(tmp_path)
        await spool.add(intent("x"))
        read = [number for number, _ in await spool.page(0)]
        await spool.add(end("x"))
        await spool.forget(read)
        assert (await calls_in(spool), spool.size) == ([end("x")], 1)
        await spool.aclose()

    run(main)


def test_intents_and_their_ends_at_once_count_each_call_once(tmp_path: Path) -> None:
    async def main() -> None:
        spool = Spool(tmp_path)
        await asyncio.gather(*(spool.add(intent(str(number))) for number in range(100)))
        await asyncio.gather(*(spool.add(end(str(number))) for number in range(0, 100, 2)))
        assert spool.size == 100
        kinds = [type(call) for call in await calls_in(spool)]
        assert (kinds.count(Reserve), kinds.count(Settle)) == (50, 50)
        await spool.aclose()

    run(main)


def test_an_intent_whose_end_was_found_elsewhere_is_not_taken_over(tmp_path: Path) -> None:
    async def main() -> None:
        refuge = tmp_path / "refuge"
        dead, elsewhere = Spool(tmp_path / "spool"), Spool(refuge)
        for call in (intent("settled"), intent("runs")):
            await dead.add(call)
        assert await elsewhere.rescue([]) == ([], [])
        await elsewhere.add(end("settled"))
        await dead.aclose()
        await elsewhere.aclose()
        spool = Spool(tmp_path / "spool", refuges=[refuge])
        assert await spool.adopt() == [end("settled"), intent("runs")]
        assert await spool.adopt() == []
        await spool.aclose()

    run(main)
