"""Reads what is large and new in a request beside the event loop."""

from collections.abc import Sequence
from functools import partial

from msgspec import Raw

from proxy.aside import LARGE_BYTES, OBJECT_BYTES, Aside
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.reader import RequestReader
from proxy.core.wire.json_body import Unreadable

# About 5 ms of reading and tokenising: below that a thread costs more than it spares.
_LARGE_BYTES = 400_000


async def read_ahead(reader: RequestReader, aside: Aside, parsed: ParsedBody) -> None:
    """Read what is large and new in another thread: to tokenise it here would hold up every other client."""
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
    """How much there is to read, in bytes of long messages."""
    return sum(map(len, messages)) + OBJECT_BYTES * len(messages)
