"""Layout state in a SQLite file: blobs by scope and name, bounded by the room that they take in the file.

A row takes more room than its blob. Its scope and name stand in the table and in the index, a page is not filled to its
end, and a blob that is larger than half a page leaves the rest of the page empty. With blobs of twelve bytes, the file
would be twenty times as large as the blobs.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from proxy.storage.port import Place

# The approximate room that a row takes, with the empty room beside it. Tests compare it with real files.
_WEIGHT: Final = (
    "(length(value) + min(length(value), 2048) + 2 * (length(CAST(scope AS BLOB)) + length(CAST(name AS BLOB))) + 128)"
)
# The most rows that one transaction deletes, so that other work does not wait long.
_MOST_ROWS = 500


def load(connection: sqlite3.Connection, scope: str, names: Sequence[str], now: float) -> list[bytes | None]:
    """Blobs of one scope."""
    marks = ", ".join("?" * len(names))
    sql = f"SELECT name, value FROM blob WHERE scope = ? AND forget_at > ? AND name IN ({marks})"
    found = dict(connection.execute(sql, (scope, now, *names)).fetchall())
    return [found.get(name) for name in names]


def page(
    connection: sqlite3.Connection, scope: str, behind: Place, limit: int, now: float
) -> list[tuple[str, float, bytes]]:
    """Blobs of one scope, the last saved first."""
    # The rows are sorted without their blobs.
    rows = (
        "SELECT rowid FROM blob WHERE scope = ? AND forget_at > ? AND (forget_at, name) < (?, ?) "
        "ORDER BY forget_at DESC, name DESC LIMIT ?"
    )
    sql = f"SELECT name, forget_at, value FROM blob WHERE rowid IN ({rows}) ORDER BY forget_at DESC, name DESC"
    return connection.execute(sql, (scope, now, *behind, limit)).fetchall()


def save(connection: sqlite3.Connection, scope: str, blobs: Mapping[str, bytes], forget_at: float) -> None:
    """Write blobs of one scope."""
    rows = [(scope, name, blob, forget_at) for name, blob in blobs.items()]
    connection.executemany("INSERT OR REPLACE INTO blob VALUES (?, ?, ?, ?)", rows)


def forget(connection: sqlite3.Connection, now: float) -> None:
    """Delete blobs that were not saved again within their time to live. One call deletes a bounded number of rows."""
    sql = f"SELECT rowid FROM blob WHERE forget_at <= ? ORDER BY forget_at LIMIT {_MOST_ROWS}"
    connection.execute(f"DELETE FROM blob WHERE rowid IN ({sql})", (now,))


def weight(scope: str, blobs: Mapping[str, bytes]) -> int:
    """The approximate room that these blobs take in the file."""
    names = sum(len(name.encode()) for name in blobs) + len(blobs) * len(scope.encode())
    return sum(len(blob) + min(len(blob), 2048) for blob in blobs.values()) + 2 * names + 128 * len(blobs)


def total(connection: sqlite3.Connection) -> int:
    """The approximate room that all blobs take in the file. Every row is read."""
    return int(connection.execute(f"SELECT coalesce(sum({_WEIGHT}), 0) FROM blob").fetchone()[0])


def trim(connection: sqlite3.Connection, excess: int) -> int:
    """Delete the blobs that end first, until ``excess`` bytes are free or the bound of a call is reached. Returns how
    many bytes were freed."""
    oldest = connection.execute(f"SELECT rowid, {_WEIGHT} FROM blob ORDER BY forget_at LIMIT {_MOST_ROWS}").fetchall()
    freed = 0
    for row, size in oldest:
        if freed >= excess:
            break
        connection.execute("DELETE FROM blob WHERE rowid = ?", (row,))
        freed += size
    return freed
