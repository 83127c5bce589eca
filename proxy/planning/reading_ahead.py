"""Reads the large and new parts of a request beside the event loop."""

from collections.abc import Sequence
from functools import partial

from msgspec import Raw

from proxy.aside import LARGE_BYTES, OBJECT_BYTES, Aside
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.reader import RequestReader
from proxy.core.wire.json_body import Unreadable

# About 5 ms of reading and tokenising. For less, a thread costs more time than it saves.
_LARGE_BYTES = 400_000


async def read_ahead(reader: RequestReader, aside: Aside, parsed: ParsedBody) -> None:
    """Read large and new parts in another thread: to tokenise them here would hold up every other client."""
    if "messages" not in parsed.members:
        return
    size = len(parsed.body)
    if size < LARGE_BYTES:
        try:
            messages = parsed.unread()
        except Unreadable:
            return
        if _size(messages) < _LARGE_BYTES or _size(reader.unread(messages)) < _LARGE_BYTES:
            return
    fork = reader.fork()
    await aside.run(size, partial(fork.read_ahead, parsed))
    reader.merge(fork)


def _size(messages: Sequence[Raw]) -> int:
    """How many bytes of long messages there are to read."""
    return sum(map(len, messages)) + OBJECT_BYTES * len(messages)
