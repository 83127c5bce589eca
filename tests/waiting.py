"""Waiting for what has no event: what other processes do, and what is done in the background."""

import asyncio
import http.client
import time
import urllib.error
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

MOST_S = 180.0
"""It ends a test that hangs, and decides nothing else: a machine may be busy."""


def until(found: Callable[[], T | None], check: Callable[[], object] = lambda: None) -> T:
    """What another thread or process has done, as soon as it is there. A connection that breaks off, because the
    process that had taken it ends, says nothing yet. ``check`` may fail the test at once."""
    deadline = time.monotonic() + MOST_S
    while not (value := _asked(found)):
        check()
        assert time.monotonic() < deadline, "what was waited for has not come"
        time.sleep(0.01)
    return value


async def until_async(found: Callable[[], object]) -> None:
    """Wait for something that other tasks of this event loop do."""
    async with asyncio.timeout(MOST_S):
        while not found():
            await asyncio.sleep(0.002)


def _asked(found: Callable[[], T | None]) -> T | None:
    with suppress(ConnectionError, http.client.HTTPException, urllib.error.URLError):
        return found()
    return None
