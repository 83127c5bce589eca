"""Files that only the user of the proxy may read, with any umask.

A small file, such as the known epoch of the store, is read and replaced by all workers of a host. If there is no path,
or the disk is full or read-only, nothing is kept: the process goes on with what it has in memory.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path

_MODE = 0o600
_OTHERS = 0o077
_MOST_BYTES = 4096

_log = logging.getLogger("stratiform.store")


def make_private(path: Path) -> None:
    """Create the file if there is none; at no moment can other users read it. An existing file is tightened without
    opening it: closing it would release the locks that SQLite holds on it. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE))
    tighten(path)


def tighten(path: Path) -> None:
    """Remove all access of other users to an existing file. A file of another user stays as it is."""
    with suppress(OSError):
        if path.stat().st_mode & _OTHERS:
            path.chmod(_MODE)
            _log.warning("%s could be used by other users of this machine: its mode is 0600 from now on", path)


def read_small(path: Path | None) -> bytes:
    """The content of the file; empty if there is no file."""
    if path is not None:
        tighten(path)
        with suppress(OSError), path.open("rb") as file:
            return file.read(_MOST_BYTES)
    return b""


def replace_small(path: Path | None, content: bytes) -> None:
    """Replace the content of the file."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        whole = path.with_name(f"{path.name}.{os.getpid()}")
        make_private(whole)
        whole.write_bytes(content)
        whole.replace(path)
