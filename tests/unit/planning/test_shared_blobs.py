"""Loads and saves that many requests share: none is forgotten, and a crowd costs no more than its calls."""

import asyncio

from proxy.planning.shared_blobs import SharedBlobs
from proxy.storage.memory import MemoryStore

NOW = 1_700_000_000.0


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
