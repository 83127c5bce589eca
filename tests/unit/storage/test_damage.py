"""Damage of a file is found, and looking for it takes no longer than it may."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proxy.storage.damage import damage_of
from tests.damage import damage_table, overwrite


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
