"""SQLite files with damaged pages, as a failing disk leaves them; and a disk that is full."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.services import absent


def settle(path: Path) -> None:
    """Bring everything from the write-ahead log into the file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def damage_table(path: Path, table: str) -> None:
    """Overwrite every page of a table with noise. No process may have the file open."""
    settle(path)
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    overwrite(path, (root - 1) * size, size)


def overwrite(path: Path, offset: int, count: int) -> None:
    """Overwrite ``count`` bytes of a file from ``offset`` on with noise."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(range(251)) * (count // 251) + b"\xab" * (count % 251))


@contextmanager
def small_disk(folder: Path, size_kib: int) -> Iterator[Path]:
    """A file system of this size, mounted on a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    mount = [*prefix, "mount", "-t", "tmpfs", "-o", f"size={size_kib}k,mode=0777", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        absent("a file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run([*prefix, "umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Fill the rest of a disk. Returns the file that fills it."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue
    assert shutil.disk_usage(disk).free == 0
    return ballast
