"""Files that only the user of the proxy may read, whatever the umask is."""

import logging
import os
from contextlib import suppress
from pathlib import Path

_MODE = 0o600
_OTHERS = 0o077

_log = logging.getLogger("stratiform.store")


def make_private(path: Path) -> None:
    """Make the file where there is none; at no moment can others read it. What is there already is tightened, and not
    opened: to close it would release the locks that SQLite holds on it. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE))
    tighten(path)


def tighten(path: Path) -> None:
    """Take a file that is there from all other users. A file of another user stays as it is."""
    with suppress(OSError):
        if path.stat().st_mode & _OTHERS:
            path.chmod(_MODE)
            _log.warning("%s could be used by other users of this machine: its mode is 0600 from now on", path)
