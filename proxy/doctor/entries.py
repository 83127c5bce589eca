"""Calls by digests and sizes, kept in a file without a name until all are read, and given back in the order of time.

Logs are written newest first, or by several programs at once. An entry holds no text of a prompt.
"""

import math
import tempfile
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from proxy.core.diagnosis.record import PromptRecord
from proxy.core.response.miss_diagnostics import UNTOLD
from proxy.core.response.usage import Usage

LineSigns = Mapping[int, str]
"""What a line of a text evidently is ("time", "date", "random", "counter"), by its number; 0: the text as a whole."""


class Entry(Struct, frozen=True, array_like=True):
    """One call. ``record`` is its prompt, None where the log does not hold it; ``signs`` are those of its system texts
    by the index of the piece. ``continues``: the provider keeps what stands in front of the prompt."""

    at: float | None
    client: str
    session: str
    model: str
    provider: str
    profile: str
    record: PromptRecord | None
    usage: Usage | None
    cause: str = UNTOLD
    signs: Mapping[int, LineSigns] = {}
    continues: bool = False
    is_compacted: bool = False


class Entries:
    """All entries; ``add`` and the reading may raise OSError where the disk is full."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the entries
        self._order: list[tuple[float, int, int]] = []
        self._end = 0

    def __len__(self) -> int:
        return len(self._order)

    def add(self, entry: Entry) -> None:
        """Keep one more. What has no time stays in the order in which it came, in front of all that has one."""
        written = msgspec.msgpack.encode(entry)
        self._file.write(written)
        self._order.append((-math.inf if entry.at is None else entry.at, self._end, len(written)))
        self._end += len(written)

    def __iter__(self) -> Iterator[Entry]:
        """The entries in the order of time; of equal times, in the order in which they came."""
        decoder = msgspec.msgpack.Decoder(Entry)
        for _, start, length in sorted(self._order):
            self._file.seek(start)
            yield decoder.decode(self._file.read(length))

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
