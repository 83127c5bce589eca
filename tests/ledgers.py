"""Stores whose ledger holds given entries, for commands and proxies that read them."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from proxy.storage import LedgerEntry, Settle
from proxy.storage.sqlite import SqliteStore


def write_ledger(path: Path, entries: Iterable[LedgerEntry]) -> None:
    """Write entries into the store in this file, each at its own time."""

    async def write() -> None:
        store = await SqliteStore.open(path, busy_timeout_s=30.0)  # a server may have the file open
        for entry in entries:
            await store.settle(Settle(entry, ()), entry.at)
        await store.aclose()

    asyncio.run(write())
