"""Reads one file as plain UTF-8 bytes, however it is compressed. Its first bytes, not its name, tell its format."""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, cast

UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeError)
"""The errors that reading raises if a file is damaged, or cut within its compression."""

_COMPRESSED: Mapping[bytes, Callable[[IO[bytes]], object]] = MappingProxyType(
    {b"\xfd7zXZ\x00": lzma.open, b"\x1f\x8b": gzip.open, b"BZh": bz2.open}
)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@contextmanager
def opened(path: Path) -> Iterator[tuple[io.BufferedReader, Callable[[], int]]]:
    """The file behind its byte order mark, and a function that says how many of its bytes on the disk were read so far
    (0 for a pipe). Raises one of ``UNREADABLE``, as reading does."""
    with path.open("rb") as raw:
        begin = raw.peek(8)
        open_as = next((how for magic, how in _COMPRESSED.items() if begin.startswith(magic)), None)
        # These readers have their own small buffers: content in front of a damaged place is still read.
        file = raw if open_as is None else cast("io.BufferedReader", open_as(raw))
        begin = file.peek(4)
        if begin.startswith(_UTF_16):
            file = io.BufferedReader(_Transcoded(file))
        elif begin.startswith(codecs.BOM_UTF8):
            file.read(len(codecs.BOM_UTF8))
        yield file, lambda: raw.tell() if raw.seekable() else 0


class _Transcoded(io.RawIOBase):
    """UTF-16, which some shells write, as UTF-8."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._text = io.TextIOWrapper(file, "utf-16", errors="replace", newline="")
        self._left = b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer. Returns the number of bytes, 0 at the end."""
        # Half of a surrogate pair has no bytes in UTF-8.
        self._left = self._left or self._text.read(1 << 20).encode("utf-8", "replace")
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count
