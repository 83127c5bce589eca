"""Calls by digests and sizes, kept in a file without a name until all are read, and given back in the order of time.

Logs are written newest first, or by several programs at once. What is kept holds no text of a prompt.
"""

import math
import tempfile
from collections.abc import Iterator

import msgspec

from proxy.doctor.readers.call import Call


class Entries:
    """All calls; ``add`` and the reading may raise OSError where the disk is full."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the entries
        self._order: list[tuple[float, int, int]] = []
        self._end = 0

    def add(self, call: Call) -> None:
        """Keep one more. What has no time stays in the order in which it came, in front of all that has one."""
        written = msgspec.msgpack.encode(call)
        self._file.write(written)
        self._order.append((-math.inf if call.at is None else call.at, self._end, len(written)))
        self._end += len(written)

    def __iter__(self) -> Iterator[Call]:
        """The calls in the order of time; of equal times, in the order in which they came."""
        decoder = msgspec.msgpack.Decoder(Call)
        for _, start, length in sorted(self._order):
            self._file.seek(start)
            yield decoder.decode(self._file.read(length))

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
