"""What the foundation does of its own accord while no request comes."""

from pathlib import Path

import pytest

from proxy.app import foundation
from proxy.app.settings import Settings
from proxy.app.settings.schema import Stratiform
from proxy.kit.errors import StoreError
from proxy.storage import TeamRecord
from proxy.storage.sqlite import SqliteStore
from tests.waiting import until_async


async def test_a_durable_store_is_asked_for_its_epoch_and_its_records_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have changed them."""
    monkeypatch.setattr("proxy.teams.store_client.EPOCH_EVERY_S", 0.01)
    monkeypatch.setattr(foundation, "POLL_S", 0.01)
    path = tmp_path / "store.sqlite"
    base = await foundation.lay(Settings(stratiform=Stratiform(store=f"sqlite:{path}"), folder=tmp_path))
    try:
        other = await SqliteStore.open(path)
        await other.put(TeamRecord("blue"))
        await other.aclose()
        await until_async(lambda: "blue" in base.state.directory.snapshot.teams)
        known = base.state.epochs.current
        await base.state.store.put_facts({"epoch": "another", f"lost:{known}": ""}, overwrite=True)
        await until_async(lambda: base.state.epochs.trouble)
    finally:
        for close in (*base.closing, base.state.store.aclose):
            await close()
    assert not base.state.loops


async def test_a_worker_without_requests_notices_that_its_store_is_away_when_it_reads_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> int:
        raise StoreError("away")

    settings = Settings(stratiform=Stratiform(store=f"sqlite:{tmp_path / 'store.sqlite'}"), folder=tmp_path)
    base = await foundation.lay(settings)
    client = base.store_client(settings)
    for name in ("directory_version", "ping"):
        monkeypatch.setattr(base.state.store, name, away)
    await base.state.directory.load()
    assert client.is_away
    for close in (*base.closing, base.state.store.aclose):
        await close()
