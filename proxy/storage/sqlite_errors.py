"""What the errors of SQLite mean for a store."""

import sqlite3

import msgspec

from proxy.ports import StoreError

_PRIMARY = 0xFF  # the low byte of a result code of SQLite; the other bytes give details
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class DamagedFile(StoreError):
    """The file holds content that this program did not write."""


def code_of(error: BaseException | None) -> int | None:
    """SQLite's primary result code, where the error has one."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & _PRIMARY if isinstance(code, int) else None


def is_damage(error: BaseException | None) -> bool:
    """Whether the error says that the file is damaged."""
    return code_of(error) in DAMAGE


def store_error(error: Exception) -> StoreError:
    """The error as the callers of a store know it."""
    is_damaged = isinstance(error, msgspec.MsgspecError) or is_damage(error)
    return DamagedFile(str(error)) if is_damaged else StoreError(str(error))
