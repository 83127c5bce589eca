"""The end of a body whose last event has come."""

import asyncio
from collections.abc import AsyncIterator

from proxy.errors import ProxyError

# Then the connection is dropped.
_LINGER_S = 0.5


async def ended(chunks: AsyncIterator[bytes]) -> None:
    """Wait a moment for the end of a body whose last event has come: then its connection can serve another call."""
    try:
        async with asyncio.timeout(_LINGER_S):
            async for _ in chunks:
                pass
    except (TimeoutError, ProxyError):
        pass
