"""Teams, keys, budgets, facts and owners of objects as SQL. Functions over a connection that is in a transaction."""

import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from proxy.storage.port import RECORD_KINDS, ObjectRecord, R, Record, RecordKind, record_name


def directory_version(connection: sqlite3.Connection) -> int:
    """The version of the directory, which grows with every change."""
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
    """Delete a record. Returns whether there was one."""
    if deleted := connection.execute("DELETE FROM directory WHERE kind = ? AND name = ?", (kind, name)).rowcount:
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


_COLUMNS = "name, team, family, server, deployment, forget_at, bill"
# If the team already has the name, it keeps its bill. A name that another team has at the server stays that team's.
_REMEMBER = f"""
    INSERT INTO object ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (team, name) DO UPDATE SET forget_at = max(forget_at, excluded.forget_at)
    ON CONFLICT (server, name) DO NOTHING
"""


def remember(connection: sqlite3.Connection, records: Sequence[ObjectRecord], now: float) -> None:
    """Keep records. Records that have ended are deleted first, so that they do not block other teams."""
    connection.execute("DELETE FROM object WHERE forget_at <= ?", (now,))
    connection.executemany(
        _REMEMBER, [(r.name, r.team, r.family, r.server, r.deployment, r.forget_at, r.bill) for r in records]
    )


def trim_objects(connection: sqlite3.Connection, team: str, most: int) -> None:
    """Delete the records of a team that end first, until there are no more than ``most``."""
    (count,) = connection.execute("SELECT count(*) FROM object WHERE team = ?", (team,)).fetchone()
    connection.execute(
        "DELETE FROM object WHERE team = ? AND name IN "
        "(SELECT name FROM object WHERE team = ? ORDER BY forget_at, name LIMIT ?)",
        (team, team, max(0, count - most)),
    )


def owned(connection: sqlite3.Connection, team: str, names: Sequence[str], now: float) -> Sequence[ObjectRecord | None]:
    """The team's objects of these names."""
    # A list in JSON is one parameter. SQLite takes 32,766 at most (https://www.sqlite.org/limits.html).
    asked = msgspec.json.encode(names).decode()
    sql = f"SELECT {_COLUMNS} FROM object WHERE team = ? AND forget_at > ? AND name IN (SELECT value FROM json_each(?))"
    found = {row[0]: ObjectRecord(*row) for row in connection.execute(sql, (team, now, asked))}
    return [found.get(name) for name in names]


def disown(connection: sqlite3.Connection, team: str, name: str) -> None:
    """Delete the record of an object that was deleted."""
    connection.execute("DELETE FROM object WHERE team = ? AND name = ?", (team, name))


def take_bill(connection: sqlite3.Connection, team: str, name: str) -> str:
    """Take the object's bill away and return it. Only the first call gets it."""
    row = connection.execute("SELECT bill FROM object WHERE team = ? AND name = ?", (team, name)).fetchone()
    if row is None or not row[0]:
        return ""
    connection.execute("UPDATE object SET bill = '' WHERE team = ? AND name = ?", (team, name))
    return str(row[0])
