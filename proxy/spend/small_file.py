"""A small file that all workers of a host read and replace, such as the known epoch of the store."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

_MOST_BYTES = 4096


class SmallFile:
    """Reads and replaces one file. ``path`` None: nothing is kept. A disk that is full or read-only keeps nothing: the
    process goes on with what it knows."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    async def read(self) -> bytes:
        """What the file holds; empty where there is none."""
        return await asyncio.to_thread(self._read)

    async def write(self, content: bytes) -> None:
        """Replace the file."""
        await asyncio.to_thread(self._write, content)

    def _read(self) -> bytes:
        if self._path is not None:
            with suppress(OSError), self._path.open("rb") as file:
                return file.read(_MOST_BYTES)
        return b""

    def _write(self, content: bytes) -> None:
        if self._path is None:
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            whole = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            whole.write_bytes(content)
            whole.replace(self._path)
