"""The store in memory: a SQLite database without a file, which ends with the process.

The ledger is bounded. Calls of this store never wait, not even for a moment.
"""

import sqlite3
import weakref
from collections.abc import Sequence
from pathlib import Path

from proxy.storage import money
from proxy.storage.database import T, Work
from proxy.storage.migrations import STORE, migrate
from proxy.storage.port import Balance, Settle
from proxy.storage.sqlite import SqliteStore

_MOST_ENTRIES = 100_000
# The bound is checked after each so many entries.
_ENTRIES_AT_ONCE = 1000


class MemoryDatabase:
    """A database that this process alone can see. Each piece of work runs at once, in the caller's thread."""

    path = Path(":memory:")

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._connection.close)
        migrate(self._connection, STORE)

    async def write(self, work: Work[T]) -> T:
        """Run the work."""
        return work(self._connection)

    read = report = write

    async def let_go(self) -> None:
        """There is no file to close."""

    aclose = let_go


class MemoryStore(SqliteStore):
    """A store that never fails."""

    is_durable = False

    def __init__(self) -> None:
        super().__init__(MemoryDatabase())
        self._unbounded = 0

    async def settle(self, end: Settle, now: float) -> Sequence[Balance]:
        """Write the entry and replace the reservation. The oldest entries beyond a bound are forgotten."""
        self._unbounded += 1
        if self._unbounded >= _ENTRIES_AT_ONCE:
            self._unbounded = 0
            await self._write(lambda connection: money.keep_entries(connection, _MOST_ENTRIES))
        return await super().settle(end, now)
