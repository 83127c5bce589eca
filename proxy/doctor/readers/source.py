"""One file as plain UTF-8 bytes, however it is compressed, and how far it has been read.

What a file is, its first bytes say, and not its name.
"""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Self, cast

HEAD_BYTES = 64 << 10
_BUFFER_BYTES = 1 << 20
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeError)
"""What reading raises where a file is damaged, or cut within its compression."""

_COMPRESSED: Mapping[bytes, Callable[[IO[bytes]], object]] = MappingProxyType(
    {b"\xfd7zXZ\x00": lzma.open, b"\x1f\x8b": gzip.open, b"BZh": bz2.open}
)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Source:
    """A file that is open. ``head`` are its first bytes, without a byte order mark; ``file`` begins where it begins.

    Raises one of ``UNREADABLE``, as reading does.
    """

    def __init__(self, path: Path) -> None:
        self.size = path.stat().st_size
        self._raw = path.open("rb")
        try:
            self.file = self._plain()
            self.head = self.file.peek(HEAD_BYTES)[:HEAD_BYTES]
        except UNREADABLE:
            self._raw.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._raw.close()

    @property
    def read_bytes(self) -> int:
        """The bytes of the file that have been read so far, as it lies on the disk; 0 of a pipe."""
        return self._raw.tell() if self._raw.seekable() else 0

    def _plain(self) -> io.BufferedReader:
        begin = self._raw.peek(8)
        open_as = next((how for magic, how in _COMPRESSED.items() if begin.startswith(magic)), None)
        # These have buffers of their own, which are small: what stands in front of damage is read.
        inner = self._raw if open_as is None else cast("io.BufferedReader", open_as(self._raw))
        begin = inner.peek(4)
        if begin.startswith(_UTF_16):
            inner = io.BufferedReader(_Transcoded(inner), _BUFFER_BYTES)
        elif begin.startswith(codecs.BOM_UTF8):
            inner.read(len(codecs.BOM_UTF8))
        return inner


class _Transcoded(io.RawIOBase):
    """UTF-16, which some shells write, as UTF-8."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        self._left = b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer; the number of bytes, 0 at the end."""
        while not self._left:
            read = self._file.read(_BUFFER_BYTES)
            # A half of a surrogate pair has no bytes in UTF-8.
            self._left = self._decoder.decode(read, final=not read).encode("utf-8", "replace")
            if not read:
                break
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count
