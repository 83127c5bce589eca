"""The engines that the store's contract is checked on, each opened afresh in a folder of the test.

An engine that can be opened twice on the same data (a file, a server) says so: what must survive a restart, and what two
processes see of each other, is checked on those.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from proxy.state.memory import MemoryStore
from proxy.state.sqlite import SqliteStore
from proxy.store import Store

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


ENGINES: dict[str, Opener] = {"memory": memory, "sqlite": sqlite}
DURABLE = ["sqlite"]
"""Those that can be opened again on the same folder, also twice at once."""
