"""Teams, keys, budgets and facts as SQL. Functions over a connection that is in a transaction."""

import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from proxy.storage.port import RECORD_KINDS, R, Record, RecordKind, record_name


def directory_version(connection: sqlite3.Connection) -> int:
    """The version, which grows with every change."""
    return int(connection.execute("SELECT version FROM directory_version").fetchone()[0])


def records(connection: sqlite3.Connection, record_type: type[R]) -> Sequence[R]:
    """All records of a kind, by name."""
    rows = connection.execute("SELECT record FROM directory WHERE kind = ? ORDER BY name", (RECORD_KINDS[record_type],))
    return [msgspec.json.decode(text, type=record_type) for (text,) in rows]


def put(connection: sqlite3.Connection, record: Record) -> None:
    """Create or replace a record."""
    row = (RECORD_KINDS[type(record)], record_name(record), msgspec.json.encode(record).decode())
    connection.execute("INSERT OR REPLACE INTO directory VALUES (?, ?, ?)", row)
    _raise_version(connection)


def remove(connection: sqlite3.Connection, kind: RecordKind, name: str) -> bool:
    """Delete a record; whether there was one."""
    deleted = connection.execute("DELETE FROM directory WHERE kind = ? AND name = ?", (kind, name)).rowcount
    if deleted:
        _raise_version(connection)
    return deleted > 0


def facts(connection: sqlite3.Connection) -> Mapping[str, str]:
    """All facts."""
    return dict(connection.execute("SELECT name, value FROM fact").fetchall())


def put_facts(connection: sqlite3.Connection, facts: Mapping[str, str], *, overwrite: bool) -> None:
    """Write facts."""
    how = "REPLACE" if overwrite else "IGNORE"
    connection.executemany(f"INSERT OR {how} INTO fact VALUES (?, ?)", list(facts.items()))


def _raise_version(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE directory_version SET version = version + 1")
