"""Takes over the store of earlier versions, which all configurations of a user shared. It becomes the store of the
first configuration that starts.

The file is renamed while SQLite's exclusive lock is held, so that nobody reads or writes it at that moment. It is moved
last: if the process dies in between, the next start completes the rest.
"""

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from proxy.settings import ConfigError, Settings

_WAIT_S = 1.0

_log = logging.getLogger("stratiform.store")


def take_over(settings: Settings) -> None:
    """Move the file of earlier versions, and the settlements that wait for it, to the place of this configuration's
    store, if it has none yet. Raises ConfigError if another process uses the file, and OSError."""
    before = replace(settings, state_folder=settings.state_folder.parent)
    old, new = before.store_path, settings.store_path
    if new is None or old is None or old == new or new.exists() or not old.exists():
        return
    new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = [(before.spool_folder, settings.spool_folder), (before.spool_fallback, settings.spool_fallback)]
    with _one_at_a_time(old.parent):
        if new.exists() or not old.exists():
            return  # another process has just taken it over
        try:
            _move_unused(old, [*beside, (old, new)])
        except sqlite3.Error as error:
            raise ConfigError(
                [f"stratiform.store: {old}, the store of an earlier version, cannot be taken over ({error}): end what "
                 f"uses it, or name a file of this configuration's own (sqlite:PATH)"]
            ) from error  # fmt: skip
    _log.warning("%s, which all configurations shared, is now this configuration's own: %s", old, new)


def warn_of_spool(settings: Settings) -> None:
    """Log the place of settlements that an earlier version could not write to a Redis. They are not taken over, because
    all configurations put them into one folder, whatever their Redis was."""
    before = replace(settings, state_folder=settings.state_folder.parent).spool_folder
    if before != settings.spool_folder and any(before.glob("*.spool")):
        _log.warning("%s holds settlements of an earlier version: stratiform.spool with this folder books them", before)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """If several configurations start at once, the others wait until the first has taken over the store. SQLite's own
    lock does not make them wait: it refuses a change of the journal mode at once."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _move_unused(store: Path, pairs: list[tuple[Path, Path]]) -> None:
    """Move the files while no other process has the store open. Raises sqlite3.Error if another process has it open."""
    with closing(sqlite3.connect(f"{store.as_uri()}?mode=rw", _WAIT_S, isolation_level=None, uri=True)) as connection:
        # If this succeeds, no other process has the file open, and the file itself holds all data.
        connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        connection.execute("BEGIN EXCLUSIVE")
        for source, target in pairs:
            if source != target and source.exists() and not target.exists():
                source.rename(target)
