"""A thread that reads a SQLite file beside the thread that writes it. In WAL mode neither waits for the other."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from proxy.storage.sqlite_errors import is_damage, store_error

T = TypeVar("T")


class Reader:
    """One connection, which is made for the first work. A connection that has met damage is closed, and the next work
    opens the file anew."""

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-reader")
        self._connection: sqlite3.Connection | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do work that only reads. Raises StoreError."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)
        except (sqlite3.Error, OSError, msgspec.MsgspecError, RuntimeError) as error:
            # RuntimeError: the executor has been shut down.
            raise store_error(error) from error

    async def let_go(self) -> None:
        """Close the file until there is work again."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)

    def close(self) -> None:
        """Finish the work, and close the file. May be called more than once."""
        self._thread.shutdown(wait=True)
        self._disconnect()

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(uri, uri=True, timeout=self._busy_timeout_s, check_same_thread=False)
        try:
            return work(self._connection)
        except sqlite3.Error as error:
            if is_damage(error):
                self._disconnect()
            raise

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
