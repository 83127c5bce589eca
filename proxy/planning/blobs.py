"""What reads and what writes the blobs of one store."""

from collections.abc import Callable
from functools import partial

from proxy.planning.blob_loads import BlobLoads
from proxy.planning.blob_writes import BlobWrites
from proxy.storage.port import StateStore

_WRITE_EVERY_S = 2.0


def blobs_of(
    store: StateStore, failed: Callable[[str], None], *, is_shared: bool, memory_bytes: int
) -> tuple[BlobLoads, BlobWrites]:
    """The reads and the writes of a store. ``failed`` is told which of both could not be done. A sixteenth of
    ``memory_bytes`` may wait to be written: at once where other processes read it, and else every two seconds."""
    every_s = 0.0 if is_shared else _WRITE_EVERY_S
    writes = BlobWrites(store, partial(failed, "save"), every_s=every_s, most_bytes=memory_bytes // 16)
    return BlobLoads(store, partial(failed, "load")), writes
