"""Whatever the umask is, only the proxy's own user can read what it keeps on disk."""

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.kit.errors import StoreError
from proxy.storage.database import STORE, Database, make_private, read_small, replace_small


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def opened(path: Path, *, exclusive: bool) -> dict[str, int]:
    """The modes of the files while the database is in use."""
    database = await Database.open(path, STORE, exclusive=exclusive)
    try:
        await database.read(lambda connection: connection.execute("SELECT count(*) FROM entry").fetchall())
        return modes(path.parent)
    finally:
        await database.aclose()


def test_a_database_and_the_files_beside_it_are_its_owners_alone(tmp_path: Path, umask: int) -> None:
    found = asyncio.run(opened(tmp_path / "spend.sqlite", exclusive=False))
    assert found.keys() == {"spend.sqlite", "spend.sqlite-wal", "spend.sqlite-shm"}
    assert set(found.values()) == {0o600}


def test_files_that_others_could_read_are_taken_from_them_with_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "spend.sqlite"
    asyncio.run(opened(path, exclusive=False))
    beside = [path, path.with_name("spend.sqlite-wal"), path.with_name("spend.sqlite-shm")]
    for each in beside:
        each.touch()
        each.chmod(0o644)
    with caplog.at_level(logging.WARNING, "stratiform.store"):
        assert set(asyncio.run(opened(path, exclusive=False)).values()) == {0o600}
    assert all(any(str(each) in line for line in caplog.messages) for each in beside)


def test_a_small_file_is_its_owners_alone_at_every_moment(
    tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    write = Path.write_bytes

    def watched(path: Path, content: bytes) -> int:
        seen.append(path.stat().st_mode & 0o777)
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", watched)
    replace_small(tmp_path / "epoch", b"one")
    replace_small(tmp_path / "epoch", b"two")
    assert read_small(tmp_path / "epoch") == b"two"
    assert (seen, modes(tmp_path)) == ([0o600, 0o600], {"epoch": 0o600})


def test_a_small_file_of_an_earlier_version_is_tightened_when_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "epoch"
    file.write_bytes(b"one")
    file.chmod(0o644)
    assert (read_small(file), modes(tmp_path)) == (b"one", {"epoch": 0o600})


def test_a_folder_that_is_named_by_mistake_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(StoreError):
        asyncio.run(Database.open(tmp_path, STORE))
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_file_is_made_where_a_link_points(tmp_path: Path, umask: int) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    make_private(tmp_path / "link")
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o600
