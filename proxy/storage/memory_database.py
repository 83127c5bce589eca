"""A SQLite database without a file, which ends with the process."""

import sqlite3
import weakref
from pathlib import Path

from proxy.storage.database import T, Work
from proxy.storage.migrations import STORE, migrate


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
