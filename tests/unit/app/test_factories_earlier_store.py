"""The store that configurations shared becomes the first one's own, whole, and never while it is in use."""

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from proxy.app import factories
from proxy.app.factories import take_over, warn_of_spool
from proxy.settings import ConfigError, Environment, Settings, load
from proxy.storage.port import TeamRecord
from proxy.storage.sqlite import SqliteStore

TEXT = """
model_list: [{model_name: m, litellm_params: {model: embedded/claude-sonnet-4-5}}]
general_settings: {master_key: sk-m}
"""


def settings(folder: Path, name: str = "config.yaml", text: str = TEXT) -> Settings:
    (folder / name).write_text(text)
    return load(folder / name, environment=Environment({"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The store of an earlier version, with a team and with a settlement that waits."""
    path = tmp_path / "state/stratiform/spend.sqlite"

    async def make() -> None:
        store = await SqliteStore.open(path)
        await store.put(TeamRecord("search", created_at=1.0))
        await store.aclose()

    asyncio.run(make())
    waiting = path.with_name("spend.sqlite.spool")
    waiting.mkdir()
    (waiting / "1.spool").touch()
    return path


def teams(read: Settings) -> list[str]:
    async def main() -> list[str]:
        store = await factories.open_store(read)
        try:
            return [team.name for team in await store.records(TeamRecord)]
        finally:
            await store.aclose()

    return asyncio.run(main())


def test_the_first_configuration_has_the_earlier_store_and_the_second_one_has_its_own(
    tmp_path: Path, old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = settings(tmp_path), settings(tmp_path, "other.yaml")
    with caplog.at_level(logging.WARNING, "stratiform.store"):
        assert teams(first) == ["search"]
        assert teams(first) == ["search"]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"{old}, which all configurations shared, is now this configuration's own: {first.store_path}"
    assert teams(second) == []
    assert first.store_path != second.store_path
    assert not old.exists()
    assert (first.spool_folder / "1.spool").exists()


def test_a_move_that_was_broken_off_is_completed(tmp_path: Path, old: Path) -> None:
    read = settings(tmp_path)
    read.spool_folder.parent.mkdir(parents=True)
    old.with_name("spend.sqlite.spool").rename(read.spool_folder)
    assert teams(read) == ["search"]
    assert (read.spool_folder / "1.spool").exists()


def test_of_many_that_start_at_once_one_has_it(tmp_path: Path, old: Path) -> None:
    starting = [settings(tmp_path, f"{name}.yaml") for name in "abcdefgh"]
    together = Barrier(len(starting))

    def start(read: Settings) -> None:
        together.wait()
        take_over(read)

    with ThreadPoolExecutor(len(starting)) as threads:
        list(threads.map(start, starting))
    assert sorted(map(teams, starting)) == [*[[]] * 7, ["search"]]


def test_a_store_that_another_process_has_open_stays_where_it_is(tmp_path: Path, old: Path) -> None:
    read = settings(tmp_path)
    with closing(sqlite3.connect(old)) as other:
        other.execute("SELECT * FROM sqlite_master").fetchall()
        with pytest.raises(ConfigError, match=f"stratiform.store: {old}, the store of an earlier version, cannot be"):
            take_over(read)
    assert old.with_name("spend.sqlite.spool").exists()
    assert teams(read) == ["search"]


@pytest.mark.parametrize("store", ["memory", "sqlite:mine.sqlite", "redis://127.0.0.1:1/0"])
def test_a_configuration_that_names_its_store_takes_nothing(tmp_path: Path, old: Path, store: str) -> None:
    take_over(settings(tmp_path, text=f"{TEXT}stratiform: {{store: '{store}'}}\n"))
    assert old.exists()


def test_what_there_is_already_is_not_overwritten(tmp_path: Path, old: Path) -> None:
    read = settings(tmp_path)
    assert read.store_path is not None
    read.store_path.parent.mkdir(parents=True)
    read.store_path.touch()
    take_over(read)
    assert old.exists()
    assert read.store_path.stat().st_size == 0


def test_settlements_that_wait_for_a_redis_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = f"{TEXT}stratiform: {{store: 'redis://127.0.0.1:1/0'}}\n"
    spool = tmp_path / "state/stratiform/spool"
    spool.mkdir(parents=True)
    warn_of_spool(settings(tmp_path, text=text))
    assert not caplog.records
    (spool / "7.spool").touch()
    warn_of_spool(settings(tmp_path, text=text.replace("}\n", f", spool: '{spool}'}}\n")))
    assert not caplog.records
    warn_of_spool(settings(tmp_path, text=text))
    assert str(spool) in caplog.text
