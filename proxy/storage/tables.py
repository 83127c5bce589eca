"""The SQL of a store: functions over a connection that is in a transaction. ``proxy.storage`` defines what they
promise.

Budgets and the ledger come first, then teams, keys, facts and owners of objects, and last the layout state: blobs by
scope and name, bounded by the room that they take in the file. A row takes more room than its blob. Its scope and name
stand in the table and in the index, a page is not filled to its end, and a blob that is larger than half a page leaves
the rest of the page empty. With blobs of twelve bytes, the file would be twenty times as large as the blobs.
"""

import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from proxy.protocol.prices import MOST_AMOUNT
from proxy.storage import (
    EPOCH,
    GROUP_FIELDS,
    RECORD_KINDS,
    REMEMBERED_S,
    Balance,
    Charge,
    Granted,
    LedgerEntry,
    ObjectRecord,
    Place,
    PutOff,
    R,
    Record,
    RecordKind,
    Refused,
    Release,
    Reserve,
    Settle,
    SpendQuery,
    SpendRow,
    largest_first,
    record_name,
)

_COLUMNS = LedgerEntry.__match_args__
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM entry"
_INTO = f"INTO entry ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_REPLACE, _KEEP = f"INSERT OR REPLACE {_INTO}", f"INSERT OR IGNORE {_INTO}"
# A counter that was deleted or corrected meanwhile must not become negative.
_CHANGE = """
    INSERT INTO counter (team, account, spent, reserved, expected, forget_at)
        VALUES (:team, :account, max(0, :spent), max(0, :reserved), max(0, :expected), :forget_at)
    ON CONFLICT (team, account) DO UPDATE SET spent = max(0, spent + :spent),
        reserved = max(0, reserved + :reserved), expected = max(0, expected + :expected), forget_at = :forget_at
"""
_GROUPS = {**GROUP_FIELDS, "day": "date(at + :utc_offset_s, 'unixepoch')"}
_SUMMED = (
    "read_tokens", "write_5m_tokens + write_1h_tokens", "plain_tokens", "output_tokens", "cost", "saved", "estimated"
)  # fmt: skip
# sum() fails if the sum is too large for an integer; total() does not.
_SUMS = ", ".join(["count(*)", *(f"CAST(total({summed}) AS INTEGER)" for summed in _SUMMED)])

# States of a reservation.
_OPEN, _BILLED, _RELEASED = "open", "billed", "released"


class _HeldCharge(NamedTuple):
    """A charge as it is stored with a reservation."""

    account: str
    amount: int
    expected: int
    keep_s: float | None


class _Hold(NamedTuple):
    state: str
    charges: list[_HeldCharge]


_values = attrgetter(*_COLUMNS)
_held_charges = msgspec.json.Decoder(list[_HeldCharge])
_entry = msgspec.json.Decoder(LedgerEntry)


def reserve(connection: sqlite3.Connection, ask: Reserve, now: float) -> Granted | Refused:
    """Grant all charges or none. Expired reservations are billed first."""
    expire(connection, now)
    if _hold(connection, ask.exchange_id) is None and not _is_written(connection, ask.exchange_id):
        balances = []
        for charge in ask.charges:
            before = balance(connection, ask.team, charge)
            if charge.limit is not None and before.spent + before.reserved + charge.amount > charge.limit:
                return Refused(charge, before)
            reserved, expected = before.reserved + charge.amount, before.expected + charge.expected
            balances.append(Balance(charge.account, before.spent, reserved, expected))
        for charge in ask.charges:
            _change(connection, ask.team, charge, now, reserved=charge.amount, expected=charge.expected)
        held = [_HeldCharge(charge.account, charge.amount, charge.expected, charge.keep_s) for charge in ask.charges]
        connection.execute(
            "INSERT INTO hold VALUES (?, ?, ?, ?, ?)",
            (ask.exchange_id, _OPEN, ask.expires_at, _json(held), _json(ask.entry)),
        )
        return Granted(balances, _epoch(connection))
    connection.execute(
        "UPDATE hold SET at = max(at, ?), entry = ? WHERE exchange_id = ? AND state = ?",
        (ask.expires_at, _json(ask.entry), ask.exchange_id, _OPEN),
    )
    return Granted([balance(connection, ask.team, charge) for charge in ask.charges], _epoch(connection))


def settle(connection: sqlite3.Connection, end: Settle, now: float) -> Sequence[Balance]:
    """Write the entry and replace the reservation."""
    entry = end.entry
    hold = _hold(connection, entry.exchange_id)
    is_reserved = hold is not None and hold.state != _RELEASED
    if hold is not None and is_reserved:
        _undo(connection, entry.team, hold, now)
        connection.execute("DELETE FROM hold WHERE exchange_id = ?", (entry.exchange_id,))
    if _put(connection, entry, is_replaced=is_reserved):
        for charge in end.final:
            _change(connection, entry.team, charge, now, spent=charge.amount)
    return [balance(connection, entry.team, charge) for charge in end.final]


def release(connection: sqlite3.Connection, exchange_id: str, team: str, now: float) -> None:
    """Give a reservation back. If the reservation has not arrived yet, it must not take effect when it arrives."""
    if (hold := _hold(connection, exchange_id)) is None and not _is_written(connection, exchange_id):
        connection.execute("INSERT INTO hold VALUES (?, ?, ?, '[]', '')", (exchange_id, _RELEASED, now))
    elif hold is not None and hold.state == _OPEN:
        _undo(connection, team, hold, now)
        connection.execute("UPDATE hold SET state = ?, at = ? WHERE exchange_id = ?", (_RELEASED, now, exchange_id))


def carry_out(connection: sqlite3.Connection, team: str, calls: Sequence[PutOff], now: float) -> None:
    """Settle, release and reserve for one team."""
    for call in calls:
        match call:
            case Settle():
                settle(connection, call, now)
            case Reserve():
                reserve(connection, call, now)
            case Release():
                release(connection, call.exchange_id, team, now)


def renew(connection: sqlite3.Connection, team: str, exchange_ids: Sequence[str], expires_at: float) -> None:
    """Renew the reservations of exchanges that still run."""
    connection.executemany(
        "UPDATE hold SET at = max(at, ?) WHERE exchange_id = ? AND state = ?",
        [(expires_at, exchange_id, _OPEN) for exchange_id in exchange_ids],
    )


def expire(connection: sqlite3.Connection, now: float) -> int:
    """Bill every expired reservation as it stands, and mark it as estimated."""
    expired = connection.execute(
        "SELECT exchange_id, charges, entry FROM hold WHERE state = ? AND at <= ?", (_OPEN, now)
    ).fetchall()
    for exchange_id, charges, entry in expired:
        billed = replace(_entry.decode(entry), estimated=True)
        for charge in _held_charges.decode(charges):
            _change(
                connection,
                billed.team,
                charge,
                now,
                spent=charge.amount,
                reserved=-charge.amount,
                expected=-charge.expected,
            )
        _put(connection, billed, is_replaced=True)
        connection.execute("UPDATE hold SET state = ?, at = ? WHERE exchange_id = ?", (_BILLED, now, exchange_id))
    return len(expired)


def forget(connection: sqlite3.Connection, now: float) -> None:
    """Delete data whose time is over: counters, claims, and reservations that were released or billed long ago."""
    connection.execute("DELETE FROM hold WHERE state <> ? AND at <= ?", (_OPEN, now - REMEMBERED_S))
    connection.execute("DELETE FROM counter WHERE forget_at <= ? AND reserved = 0", (now,))
    connection.execute("DELETE FROM claim WHERE forget_at <= ?", (now,))


def balance(connection: sqlite3.Connection, team: str, charge: Charge, now: float = 0.0) -> Balance:
    """A counter, together with the counters that count towards the same limit."""
    accounts = (charge.account, *charge.within)
    sums = connection.execute(
        "SELECT coalesce(sum(spent), 0), coalesce(sum(reserved), 0), coalesce(sum(expected), 0) FROM counter "
        f"WHERE team = ? AND account IN ({', '.join('?' * len(accounts))})",
        (team, *accounts),
    )
    return Balance(charge.account, *sums.fetchone())


def set_spent(connection: sqlite3.Connection, team: str, charge: Charge, now: float) -> Balance:
    """Correct a counter. Returns the balance before."""
    before = balance(connection, team, charge)
    connection.executemany(
        "UPDATE counter SET spent = 0 WHERE team = ? AND account = ?",
        [(team, account) for account in (charge.account, *charge.within)],
    )
    _change(connection, team, charge, now, spent=charge.amount)
    return before


def claim(connection: sqlite3.Connection, team: str, name: str, keep_s: float, now: float) -> bool:
    """Claim a name. Returns whether nobody has claimed it in the last ``keep_s``."""
    return bool(
        connection.execute(
            "INSERT INTO claim VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET forget_at = excluded.forget_at WHERE forget_at <= ?",
            (team, name, now + keep_s, now),
        ).rowcount
    )


def spend(connection: sqlite3.Connection, query: SpendQuery) -> Sequence[SpendRow]:
    """A report."""
    groups = [_GROUPS[by] for by in query.by]
    asked = {"team": query.team, "key_id": query.key_id, "user": query.user, "model": query.model}
    conditions = [
        "at >= :since",
        "at < :until",
        *(f"{name} = :{name}" for name, value in asked.items() if value is not None),
    ]
    sql = f"SELECT {', '.join([*groups, _SUMS])} FROM entry WHERE {' AND '.join(conditions)}"
    if groups:
        sql += f" GROUP BY {', '.join(groups)}"
    values = {"since": query.since, "until": query.until, "utc_offset_s": query.utc_offset_s, **asked}
    cut = len(groups)
    return largest_first(
        SpendRow(dict(zip(query.by, row[:cut], strict=True)), *row[cut:])
        for row in connection.execute(sql, values)
        if row[cut]
    )


def entries(
    connection: sqlite3.Connection,
    since: float,
    until: float,
    after: str = "",
    limit: int = 1000,
    team: str | None = None,
) -> Sequence[LedgerEntry]:
    """A page of the ledger."""
    rows = connection.execute(
        f"{_SELECT} WHERE at >= :since AND at < :until AND (at, exchange_id) > (:since, :after) "
        "AND (:team IS NULL OR team = :team) ORDER BY at, exchange_id LIMIT :limit",
        {"since": since, "until": until, "after": after, "limit": limit, "team": team},
    )
    return [replace(entry, estimated=bool(entry.estimated)) for entry in (LedgerEntry(*row) for row in rows)]


def forget_entries(connection: sqlite3.Connection, before: float, most: int) -> int:
    """Delete older entries, the oldest first."""
    return connection.execute(
        "DELETE FROM entry WHERE exchange_id IN "
        "(SELECT exchange_id FROM entry WHERE at < ? ORDER BY at, exchange_id LIMIT ?)",
        (before, most),
    ).rowcount


def keep_entries(connection: sqlite3.Connection, most: int) -> None:
    """Delete the oldest entries, so that at most ``most`` remain."""
    (count,) = connection.execute("SELECT count(*) FROM entry").fetchone()
    forget_entries(connection, math.inf, max(0, count - most))


def _epoch(connection: sqlite3.Connection) -> str:
    """The file's epoch; empty if it has none yet."""
    row = connection.execute("SELECT value FROM fact WHERE name = ?", (EPOCH,)).fetchone()
    return row[0] if row else ""


def _hold(connection: sqlite3.Connection, exchange_id: str) -> _Hold | None:
    row = connection.execute("SELECT state, charges FROM hold WHERE exchange_id = ?", (exchange_id,)).fetchone()
    return _Hold(row[0], _held_charges.decode(row[1])) if row else None


def _is_written(connection: sqlite3.Connection, exchange_id: str) -> bool:
    return connection.execute("SELECT 1 FROM entry WHERE exchange_id = ?", (exchange_id,)).fetchone() is not None


def _undo(connection: sqlite3.Connection, team: str, hold: _Hold, now: float) -> None:
    for charge in hold.charges:
        if hold.state == _BILLED:
            _change(connection, team, charge, now, spent=-charge.amount)
        else:
            _change(connection, team, charge, now, reserved=-charge.amount, expected=-charge.expected)


def _change(
    connection: sqlite3.Connection,
    team: str,
    charge: Charge | _HeldCharge,
    now: float,
    *,
    spent: int = 0,
    reserved: int = 0,
    expected: int = 0,
) -> None:
    forget_at = None if charge.keep_s is None else now + charge.keep_s
    connection.execute(
        _CHANGE,
        {
            "team": team,
            "account": charge.account,
            "spent": spent,
            "reserved": reserved,
            "expected": expected,
            "forget_at": forget_at,
        },
    )


def _put(connection: sqlite3.Connection, entry: LedgerEntry, *, is_replaced: bool) -> bool:
    """Write an entry. An existing entry is replaced, or stays if not ``is_replaced``. Returns whether the entry was
    written."""
    # An earlier version may have stored an entry with a number that is too large for SQLite.
    values = [min(value, MOST_AMOUNT) if isinstance(value, int) else value for value in _values(entry)]
    return connection.execute(_REPLACE if is_replaced else _KEEP, values).rowcount > 0


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def directory_version(connection: sqlite3.Connection) -> int:
    """The version of the directory, which grows with every change."""
    return int(connection.execute("SELECT version FROM directory_version").fetchone()[0])


def records(connection: sqlite3.Connection, record_type: type[R]) -> Sequence[R]:
    """All records of a kind, by name."""
    rows = connection.execute("SELECT record FROM directory WHERE kind = ? ORDER BY name", (RECORD_KINDS[record_type],))
    return [msgspec.json.decode(text, type=record_type) for (text,) in rows]


def put(connection: sqlite3.Connection, record: Record, version: int | None = None) -> bool:
    """Create or replace a record, unless the directory has another version."""
    if version not in (None, directory_version(connection)):
        return False
    connection.execute(
        "INSERT OR REPLACE INTO directory VALUES (?, ?, ?)",
        (RECORD_KINDS[type(record)], record_name(record), _json(record)),
    )
    _raise_version(connection)
    return True


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


_OBJECT_COLUMNS = "name, team, family, server, deployment, forget_at, bill"
# If the team already has the name, it keeps its bill. A name that another team has at the server stays that team's.
_REMEMBER = f"""
    INSERT INTO object ({_OBJECT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)
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
    asked = _json(names)
    sql = (
        f"SELECT {_OBJECT_COLUMNS} FROM object WHERE team = ? AND forget_at > ? "
        "AND name IN (SELECT value FROM json_each(?))"
    )
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


# The approximate room that a row takes, with the empty room beside it. Tests compare it with real files.
_ROW_WEIGHT: Final = (
    "(length(value) + min(length(value), 2048) + 2 * (length(CAST(scope AS BLOB)) + length(CAST(name AS BLOB))) + 128)"
)
# The most rows that one transaction deletes, so that other work does not wait long.
_ROWS_AT_ONCE = 500


def load_blobs(connection: sqlite3.Connection, scope: str, names: Sequence[str], now: float) -> list[bytes | None]:
    """Blobs of one scope."""
    marks = ", ".join("?" * len(names))
    sql = f"SELECT name, value FROM blob WHERE scope = ? AND forget_at > ? AND name IN ({marks})"
    found = dict(connection.execute(sql, (scope, now, *names)).fetchall())
    return [found.get(name) for name in names]


def page_blobs(
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


def save_blobs(connection: sqlite3.Connection, scope: str, blobs: Mapping[str, bytes], forget_at: float) -> None:
    """Write blobs of one scope."""
    connection.executemany(
        "INSERT OR REPLACE INTO blob VALUES (?, ?, ?, ?)",
        [(scope, name, blob, forget_at) for name, blob in blobs.items()],
    )


def forget_blobs(connection: sqlite3.Connection, now: float) -> None:
    """Delete blobs that were not saved again within their time to live. One call deletes a bounded number of rows."""
    sql = f"SELECT rowid FROM blob WHERE forget_at <= ? ORDER BY forget_at LIMIT {_ROWS_AT_ONCE}"
    connection.execute(f"DELETE FROM blob WHERE rowid IN ({sql})", (now,))


def blobs_total(connection: sqlite3.Connection) -> int:
    """The approximate room that all blobs take in the file. Every row is read."""
    return int(connection.execute(f"SELECT coalesce(sum({_ROW_WEIGHT}), 0) FROM blob").fetchone()[0])


def trim_blobs(connection: sqlite3.Connection, excess: int) -> int:
    """Delete the blobs that end first, until ``excess`` bytes are free or the bound of a call is reached. Returns how
    many bytes were freed."""
    oldest = connection.execute(
        f"SELECT rowid, {_ROW_WEIGHT} FROM blob ORDER BY forget_at LIMIT {_ROWS_AT_ONCE}"
    ).fetchall()
    freed = 0
    for row, size in oldest:
        if freed < excess:
            connection.execute("DELETE FROM blob WHERE rowid = ?", (row,))
            freed += size
    return freed
