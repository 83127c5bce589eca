"""What is SQLite's own (tests/contract/test_store.py holds what every engine promises)."""

import asyncio
from pathlib import Path

from proxy.state.database import Database
from proxy.state.migrations import STORE
from proxy.state.sqlite import SqliteStore


def test_layout_state_is_bounded_by_bytes(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(await Database.open(tmp_path / "store.sqlite", STORE), state_bytes=1_000_000)
        for number in range(2_000):
            await store.save("s", {f"n{number}": bytes(1_000)}, 1e6, float(number))
        found = await store.load("s", [f"n{number}" for number in range(2_000)], 2000.0)
        kept = [blob is not None for blob in found]
        assert 400 <= sum(kept) <= 1_063
        assert kept == sorted(kept), "what was saved last is kept"
        await store.aclose()

    asyncio.run(main())
