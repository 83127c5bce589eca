"""A small file that all workers of a host read and replace, such as the known epoch of the store.

Where there is no path, nothing is kept. A disk that is full or read-only keeps nothing either: the process goes on with
what it knows. Both functions wait for the disk, so a thread of their own calls them.
"""

import os
from contextlib import suppress
from pathlib import Path

from proxy.storage.private_file import make_private, tighten

_MOST_BYTES = 4096


def read_small(path: Path | None) -> bytes:
    """What the file holds; empty where there is none."""
    if path is not None:
        tighten(path)
        with suppress(OSError), path.open("rb") as file:
            return file.read(_MOST_BYTES)
    return b""


def replace_small(path: Path | None, content: bytes) -> None:
    """Replace the file."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        whole = path.with_name(f"{path.name}.{os.getpid()}")
        make_private(whole)
        whole.write_bytes(content)
        whole.replace(path)
