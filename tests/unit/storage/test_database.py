"""One writer thread, group commit, a file that keeps its promises through a kill, and files of earlier versions."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from proxy.kit.errors import StoreError
from proxy.storage import Charge, LedgerEntry, Settle
from proxy.storage.database import STORE, Database, damage_of, migrate
from proxy.storage.sqlite import SqliteStore
from tests.damage import damage_table, overwrite

SCHEMA = ("CREATE TABLE t (n INTEGER PRIMARY KEY)",)
ADD = "INSERT INTO t VALUES (?)"


def adding(number: int) -> Callable[[sqlite3.Connection], int]:
    return lambda connection: connection.execute(ADD, (number,)).rowcount


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM t").fetchone()[0])


async def test_what_gathers_is_committed_together_and_one_failure_takes_nobody_along(tmp_path: Path) -> None:
    database = await Database.open(tmp_path / "f", SCHEMA)
    commits: list[str] = []
    await database.write(
        lambda connection: connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    )
    commits.clear()
    numbers = [*range(50), 7, *range(50, 100)]
    done = await asyncio.gather(*(database.write(adding(n)) for n in numbers), return_exceptions=True)
    failed = [answer for answer in done if isinstance(answer, BaseException)]
    assert [type(error) for error in failed] == [StoreError]
    assert await database.read(count) == 100
    assert len(commits) < 50
    await database.aclose()


async def test_a_bug_in_a_job_is_raised_where_it_is_awaited(tmp_path: Path) -> None:
    database = await Database.open(tmp_path / "f", SCHEMA)

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute(ADD, (1,))
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        await database.write(broken)
    assert await database.read(count) == 0
    assert await database.write(adding(1)) == 1
    await database.aclose()


async def test_nobody_waits_for_one_who_left(tmp_path: Path) -> None:
    database = await Database.open(tmp_path / "f", SCHEMA)
    task = asyncio.ensure_future(database.write(adding(1)))
    await asyncio.sleep(0)
    task.cancel()
    assert await database.write(adding(2)) == 1
    assert await database.read(count) == 2, "it was handed over, and is done"
    await database.aclose()


async def test_closing_finishes_what_was_handed_over(tmp_path: Path) -> None:
    database = await Database.open(tmp_path / "f", SCHEMA)
    waiting = [asyncio.ensure_future(database.write(adding(n))) for n in range(20)]
    await asyncio.sleep(0)
    await database.aclose()
    await database.aclose()
    assert [await one for one in waiting] == [1] * 20
    for call in (database.write(adding(99)), database.read(count)):
        with pytest.raises(StoreError):
            await call


async def test_a_report_holds_up_nobody_that_reads_little(tmp_path: Path) -> None:
    database = await Database.open(tmp_path / "f", SCHEMA)
    await database.write(adding(1))
    ends = threading.Event()
    report = asyncio.ensure_future(database.report(lambda _: ends.wait(30)))
    await asyncio.sleep(0)
    assert await database.read(count) == 1
    assert not report.done()
    ends.set()
    assert await report
    await database.aclose()


async def test_a_file_that_was_read_and_closed_has_no_journal_left(tmp_path: Path) -> None:
    database = await Database.open(tmp_path / "f", SCHEMA)
    await database.write(adding(1))
    assert await database.read(count) == await database.report(count) == 1
    await database.aclose()
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


async def test_a_locked_file_is_a_store_error_and_heals(tmp_path: Path) -> None:
    database = await Database.open(tmp_path / "f", SCHEMA, busy_timeout_s=0.01)
    other = sqlite3.connect(tmp_path / "f", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await database.write(adding(1))
    other.execute("ROLLBACK")
    other.close()
    assert await database.write(adding(1)) == 1
    await database.aclose()


async def test_what_fails_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("this is not a database, however long it is made to be " * 20)
    for name in ("folder", "text", "text/below"):
        with pytest.raises(StoreError):
            await Database.open(tmp_path / name, SCHEMA)


async def test_an_exclusive_file_is_nobody_elses(tmp_path: Path) -> None:
    one = await Database.open(tmp_path / "f", SCHEMA, exclusive=True)
    with pytest.raises(StoreError, match="locked"):
        await Database.open(tmp_path / "f", SCHEMA, exclusive=True, busy_timeout_s=0.0)
    await one.aclose()
    two = await Database.open(tmp_path / "f", SCHEMA, exclusive=True, busy_timeout_s=0.0)
    await two.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two tables of some pages."""
    with closing(sqlite3.connect(tmp_path / "f")) as connection:
        for table in ("left", "right"):
            connection.execute(f"CREATE TABLE {table} (n INTEGER PRIMARY KEY, text TEXT)")
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", [(n, "x" * 100) for n in range(1000)])
        connection.commit()
    return tmp_path / "f"


def test_a_whole_file_is_whole(path: Path) -> None:
    assert asyncio.run(damage_of(path, ["left", "right"], 60.0)) == ""


def test_damage_of_the_tables_that_are_asked_for_is_told(path: Path) -> None:
    damage_table(path, "right")
    assert asyncio.run(damage_of(path, ["left"], 60.0)) == ""
    assert asyncio.run(damage_of(path, ["left", "right"], 60.0))


def test_a_file_that_is_no_database_is_damaged(path: Path) -> None:
    overwrite(path, 0, 100)
    assert asyncio.run(damage_of(path, ["left"], 60.0)) == "file is not a database"


def test_the_search_for_damage_takes_no_longer_than_it_may(path: Path) -> None:
    assert asyncio.run(damage_of(path, ["left"] * 100_000, 0.01)) is None


def test_what_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    assert asyncio.run(damage_of(tmp_path / "absent", ["left"], 60.0)) is None


async def test_spend_of_the_first_version_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "spend.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, STORE[:1])
    connection.execute("INSERT INTO spend VALUES ('x', 'red', 0.25, 7.0), ('y', 'red', 0.5, 8.0), ('z', 'blue', 1, 9)")
    connection.execute("INSERT INTO total VALUES ('red', 10.75), ('blue', 1)")
    connection.close()

    store = await SqliteStore.open(path)
    red = await store.balance("red", Charge("b:total:-:total", 0), 0.0)
    assert (red.spent, red.reserved) == (10_750_000_000, 0)
    assert [(e.exchange_id, e.team, e.cost) for e in await store.entries(0, 100)] == [
        ("x", "red", 250_000_000),
        ("y", "red", 500_000_000),
        ("z", "blue", 1_000_000_000),
    ]
    await store.settle(Settle(LedgerEntry("x", 7.0, "red", cost=1), [Charge("b:total:-:total", 1)]), 0.0)
    red = await store.balance("red", Charge("b:total:-:total", 0), 0.0)
    assert red.spent == 10_750_000_000, "an exchange that was settled is known again"
    await store.aclose()


def test_a_file_of_a_later_version_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "spend.sqlite"
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=f"the file has version 99, this program knows {len(STORE)}"):
        asyncio.run(SqliteStore.open(path))


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "f", isolation_level=None)
    migrate(connection, ["CREATE TABLE a (x)"])
    with pytest.raises(sqlite3.Error):
        migrate(connection, ["CREATE TABLE a (x)", "CREATE TABLE b (x); CREATE TABLE a (x)"])
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("a",)]
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()
