"""The engines that the store's contract is checked on, each opened afresh in a folder of the test.

An engine that can be opened twice on the same data (a file, a server) says so: what must survive a restart, and what
two processes see of each other, is checked on those.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from proxy.storage import Store
from proxy.storage.redis import RedisStore
from proxy.storage.sqlite import MemoryStore, SqliteStore
from tests.redis_server import RedisServer, redis_server

Check = Callable[[Store], Awaitable[None]]
Opener = Callable[[Path], AbstractAsyncContextManager[Store]]


@asynccontextmanager
async def memory(folder: Path) -> AsyncIterator[Store]:
    """Nothing is left of it."""
    yield MemoryStore()


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Store]:
    """One file."""
    store = await SqliteStore.open(folder / "deep" / "store.sqlite")
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[Store]:
    """One server, started for the first that opens it; its file is read by the next one on the same folder."""
    address = folder / "address"
    if address.exists():
        async with redis_store(address.read_text()) as store:
            yield store
        return
    with redis_server(folder / "redis") as server:
        address.write_text(server.url)
        try:
            async with redis_store(server.url) as store:
                yield store
        finally:
            address.unlink()


@asynccontextmanager
async def redis_store(url: str) -> AsyncIterator[Store]:
    """The store of a server that runs; patient, on a machine that does much at once."""
    store = RedisStore(url, timeout_s=10.0, state_timeout_s=10.0)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def on_cluster(nodes: list[RedisServer]) -> AsyncIterator[Store]:
    """A cluster that runs, emptied: a new one for every test would take seconds each."""
    for node in nodes:
        assert node.call("FLUSHALL") == "+OK"
    async with redis_store(nodes[0].url) as store:
        yield store


ENGINES: dict[str, Opener] = {"memory": memory, "sqlite": sqlite, "redis": redis}
DURABLE = ["sqlite", "redis"]
"""Those that can be opened again on the same folder, also twice at once."""
