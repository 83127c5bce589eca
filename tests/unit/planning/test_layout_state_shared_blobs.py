"""Loads and saves that many requests share: none is forgotten, and a crowd costs no more than its calls."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from proxy.planning.layout_state import SLICE_S, SharedBlobs
from proxy.storage.sqlite import MemoryStore

NOW = 1_700_000_000.0


class Scope(str):
    """The name of a client that counts how often it is looked up."""

    __slots__ = ()
    looked_up: ClassVar[list[int]] = [0]

    def __hash__(self) -> int:
        self.looked_up[0] += 1
        return super().__hash__()

    __eq__ = str.__eq__


def blobs_of(store: MemoryStore) -> SharedBlobs:
    return SharedBlobs(store, list[str]().append, is_shared=True)


def test_what_comes_in_the_turn_in_which_writing_ends_is_written_too() -> None:
    async def main() -> None:
        store = MemoryStore()
        blobs, loop = blobs_of(store), asyncio.get_running_loop()
        blobs.put("red", {"a": b"1"}, NOW)
        writing = asyncio.all_tasks() - {asyncio.current_task()}
        ended = asyncio.Event()

        def watch() -> None:
            if all(task.done() for task in writing):
                blobs.put("red", {"b": b"2"}, NOW)
                ended.set()
            else:
                loop.call_soon(watch)

        watch()
        await ended.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        assert await store.load("red", ["a", "b"], NOW) == [b"1", b"2"]

    asyncio.run(main())


def test_a_crowd_of_clients_is_gone_through_once() -> None:
    async def look_ups(clients: int) -> int:
        blobs, before = blobs_of(MemoryStore()), Scope.looked_up[0]
        await asyncio.gather(*(blobs.load(Scope(f"s{n}"), ["a", "b"], NOW) for n in range(clients)))
        return Scope.looked_up[0] - before

    assert asyncio.run(look_ups(800)) < 5 * asyncio.run(look_ups(200))


def test_a_large_client_is_asked_for_in_parts_and_behind_the_others() -> None:
    class Recorder(MemoryStore):
        calls: ClassVar[list[tuple[str, int]]] = []

        async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
            self.calls.append((scope, len(names)))
            return await super().load(scope, names, now)

    async def main() -> None:
        store = Recorder()
        blobs = blobs_of(store)
        await store.save("red", {f"n{n}": b"%d" % n for n in range(1_200)}, 60.0, NOW)
        found, _ = await asyncio.gather(
            blobs.load("red", [f"n{n}" for n in range(1_200)], NOW), blobs.load("blue", ["a"], NOW)
        )
        assert found is not None
        assert len(found) == 1_200
        assert store.calls == [("red", 500), ("blue", 1), ("red", 500), ("red", 200)]

    asyncio.run(main())


def test_no_more_than_so_many_ask_a_silent_store_without_waiting() -> None:
    async def main() -> None:
        blobs, begun = blobs_of(MemoryStore()), list[int]()

        async def learn(number: int) -> None:
            begun.append(number)
            await asyncio.get_running_loop().create_future()

        for number in range(200):
            assert not await blobs.recall(partial(learn, number), 0.0)
        await asyncio.sleep(0)
        assert len(begun) == 64
        await blobs.aclose()

    asyncio.run(main())


def test_after_its_end_nothing_is_counted() -> None:
    class Silent(MemoryStore):
        async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
            return await asyncio.get_running_loop().create_future()

    async def main() -> None:
        blobs, loop = blobs_of(Silent()), asyncio.get_running_loop()
        for n in range(40):
            await blobs.recall(partial(blobs.load, f"s{n}", ["a"], NOW), 1e-9)
        await blobs.aclose()
        timers: list[str] = []
        call_later = loop.call_later

        def noted(delay: float, callback: Callable[..., object], *given: object) -> asyncio.TimerHandle:
            timers.append(getattr(callback, "__qualname__", ""))
            return call_later(delay, callback, *given)

        loop.call_later = noted  # type: ignore[method-assign, assignment]
        await asyncio.sleep(5 * SLICE_S)
        assert [name for name in timers if name.startswith("SharedBlobs")] == []

    asyncio.run(main())


def test_an_answer_that_lacks_a_name_is_none_and_holds_nobody_up() -> None:
    class Short(MemoryStore):
        async def load(self, scope: str, names: Sequence[str], now: float) -> Sequence[bytes | None]:
            return [b"1"]

    async def main() -> None:
        blobs, found = blobs_of(Short()), list[object]()

        async def learn() -> None:
            found.append(await blobs.load("red", ["a", "b"], NOW))

        assert await blobs.recall(learn, 60 * SLICE_S)
        assert found == [None]
        assert await blobs.load("red", ["a"], NOW) == {"a": b"1"}
        await blobs.aclose()

    asyncio.run(main())
