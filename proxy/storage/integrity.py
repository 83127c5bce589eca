"""Looks for damage in a SQLite file (``PRAGMA quick_check``), bounded in time and beside the event loop.

The tables are checked one after the other, the most important ones first. SQLite can be interrupted between two tables
only, so the thread may go on for a while after its time is over. Nobody waits for it then.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

from proxy.storage.sqlite_errors import is_damage

_MOST_CHARS = 200


async def damage_of(path: Path, tables: Sequence[str], most_s: float) -> str | None:
    """What is wrong with a file, in SQLite's words. Empty: nothing is wrong. None: the time was too short to know."""
    found: Future[str | None] = Future()
    ended = threading.Event()

    def check() -> None:
        found.set_result(_checked(path, tables, ended.is_set))

    threading.Thread(target=check, name=f"check {path.name}", daemon=True).start()
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
