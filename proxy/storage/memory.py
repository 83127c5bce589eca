"""The store in memory: a SQLite database without a file, which ends with the process.

The ledger is bounded. Calls of this store never wait, not even for a moment.
"""

from collections.abc import Sequence

from proxy.storage import money
from proxy.storage.database import MemoryDatabase
from proxy.storage.port import Balance, Settle
from proxy.storage.sqlite import SqliteStore

_MOST_ENTRIES = 100_000
# The bound is checked after each so many entries.
_ENTRIES_AT_ONCE = 1000


class MemoryStore(SqliteStore):
    """A store that never fails."""

    is_durable = False

    def __init__(self) -> None:
        super().__init__(MemoryDatabase())
        self._unbounded = 0

    async def settle(self, end: Settle, now: float) -> Sequence[Balance]:
        self._unbounded += 1
        if self._unbounded >= _ENTRIES_AT_ONCE:
            self._unbounded = 0
            await self._write(lambda connection: money.keep_entries(connection, _MOST_ENTRIES))
        return await super().settle(end, now)
