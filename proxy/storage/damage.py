"""Damage in a SQLite file: the errors that show it, and the search for it (``PRAGMA quick_check``).

The search is bounded in time and runs outside the event loop. The tables are checked one after the other, the most
important ones first. The search can be interrupted only between two tables, so the thread may go on for a while after
its time is over. Nobody waits for it then.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import msgspec

from proxy.ports import StoreError

_PRIMARY = 0xFF  # the low byte of a result code of SQLite; the other bytes give details
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_MOST_CHARS = 200


class DamagedFile(StoreError):
    """The file holds content that this program did not write."""


def code_of(error: BaseException | None) -> int | None:
    """SQLite's primary result code, if the error has one."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & _PRIMARY if isinstance(code, int) else None


def is_damage(error: BaseException | None) -> bool:
    """Whether the error says that the file is damaged."""
    return code_of(error) in DAMAGE


def store_error(error: Exception) -> StoreError:
    """The error as a StoreError, which the callers of a store expect."""
    is_damaged = isinstance(error, msgspec.MsgspecError) or is_damage(error)
    return DamagedFile(str(error)) if is_damaged else StoreError(str(error))


async def damage_of(path: Path, tables: Sequence[str], most_s: float) -> str | None:
    """The damage of a file, in SQLite's words. Empty: nothing is wrong. None: the time was too short to know."""
    found: Future[str | None] = Future()
    ended = threading.Event()
    threading.Thread(
        target=lambda: found.set_result(_checked(path, tables, ended.is_set)), name=f"check {path.name}", daemon=True
    ).start()
    try:
        async with asyncio.timeout(most_s):
            return await asyncio.shield(asyncio.wrap_future(found))
    except TimeoutError:
        return None
    finally:
        ended.set()


def _checked(path: Path, tables: Sequence[str], is_ended: Callable[[], bool]) -> str | None:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            for table in tables:
                if is_ended():
                    return None
                (said,) = connection.execute(f"PRAGMA quick_check('{table}')").fetchone()
                if said != "ok":
                    return " ".join(said.split())[:_MOST_CHARS]
    except sqlite3.DatabaseError as error:
        return str(error) if is_damage(error) else None
    return ""
