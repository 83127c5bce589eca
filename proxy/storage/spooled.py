"""The rows of a spool's file, as SQL. Functions over a connection that is in a transaction, and one over a file."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proxy.storage.port import PutOff, Release, Reserve, Settle

INTENT = "intent"

_KINDS: dict[type[PutOff], str] = {Reserve: INTENT, Settle: "settle", Release: "release"}
_READ = {kind: msgspec.json.Decoder(call_type).decode for call_type, kind in _KINDS.items()}
# Columns are read as bytes, so that damaged text does not fail the other rows.
_SELECT = (
    "SELECT number, CAST(kind AS BLOB), CAST(exchange AS BLOB), CAST(call AS BLOB) FROM pending WHERE number > ? "
    "ORDER BY number"
)
_SALVAGE = "SELECT number, CAST(kind AS BLOB), x'', CAST(call AS BLOB) FROM pending ORDER BY number"
_ADD = "INSERT INTO pending (number, kind, exchange, call) VALUES (?, ?, ?, ?)"
_ADD_INTENT = (
    "INSERT INTO pending (number, kind, exchange, call) "
    f"SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM pending WHERE exchange = ?3 AND kind <> '{INTENT}')"
)
_END_INTENT = f"DELETE FROM pending WHERE exchange = ? AND kind = '{INTENT}' RETURNING length(CAST(call AS BLOB))"


@dataclass(frozen=True, slots=True)
class Added:
    """By how much a file has grown."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Row:
    """A call as the file has it."""

    number: int
    kind: str
    exchange: str
    text: bytes

    def call(self) -> PutOff | None:
        """The call; None where it cannot be read."""
        try:
            return _READ[self.kind](self.text)
        except (KeyError, msgspec.MsgspecError):
            return None


def row_of(number: int, call: PutOff) -> Row:
    """A call as a row of that number."""
    return Row(number, _KINDS[type(call)], call.exchange_id, msgspec.json.encode(call))


def adding(rows: Sequence[Row], room_bytes: int | None = None) -> Callable[[sqlite3.Connection], Added | None]:
    """Write rows. The end of an exchange replaces its intent, and an intent is not written behind the end of its
    exchange. None where there is no room for a row that replaces nothing."""

    def work(connection: sqlite3.Connection) -> Added | None:
        more = size = 0
        for row in rows:
            values = (row.number, row.kind, row.exchange, row.text.decode())
            ended = connection.execute(_END_INTENT, (row.exchange,)).fetchall() if row.kind != INTENT else []
            if room_bytes is not None and not ended and len(row.text) > room_bytes:
                return None
            added = connection.execute(_ADD_INTENT if row.kind == INTENT else _ADD, values).rowcount
            more += added - len(ended)
            size += added * len(row.text) - sum(length for (length,) in ended)
        return Added(more, size)

    return work


def behind(number: int, most: int = -1) -> Callable[[sqlite3.Connection], Sequence[Row]]:
    """Rows with a higher number, the oldest first."""
    return lambda connection: [_row(*found) for found in connection.execute(f"{_SELECT} LIMIT ?", (number, most))]


def forgetting(numbers: Sequence[int]) -> Callable[[sqlite3.Connection], int]:
    """Delete rows; how many there were."""
    return lambda connection: (
        connection.executemany("DELETE FROM pending WHERE number = ?", [(number,) for number in numbers]).rowcount
    )


def salvaged(path: Path) -> Sequence[Row]:
    """What can be read of a damaged file: it is read from the first row forwards, and from the last row backwards."""
    found: dict[int, Row] = {}
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
            for values in connection.execute(f"{_SALVAGE} {order}"):
                row = _row(*values)
                call = row.call()
                if call is not None:
                    found.setdefault(row.number, row_of(row.number, call))
    return [found[number] for number in sorted(found)]


def _row(number: int, kind: bytes, exchange: bytes, text: bytes) -> Row:
    return Row(number, kind.decode("ascii", "replace"), exchange.decode("utf-8", "replace"), text)
