"""A damaged spool is set aside and said; what can be read of it goes on."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from proxy.storage.port import LedgerEntry, PutOff, Settle
from proxy.storage.spool import Spool
from tests.damage import overwrite, settle


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


CALLS: list[PutOff] = [Settle(LedgerEntry(f"n{number:03}", 7.5, "red", user="u" * 200), []) for number in range(400)]


async def left(folder: Path) -> Path:
    """The file of a worker that died."""
    spool = Spool(folder)
    await asyncio.gather(*(spool.add(call) for call in CALLS))
    await spool.aclose()
    (path,) = folder.glob("*.spool")
    settle(path)
    return path


def test_of_a_damaged_file_what_can_be_read_is_taken_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        path = await left(tmp_path)
        overwrite(path, path.stat().st_size // 2 // 4096 * 4096, 3 * 4096)
        spool = Spool(tmp_path)
        adopted = await spool.adopt()
        assert 200 < len(adopted) < 400
        assert all(call in CALLS for call in adopted)
        assert CALLS[0] in adopted
        assert CALLS[-1] in adopted
        aside = path.with_name(path.name + ".damaged")
        assert (path.exists(), aside.exists()) == (False, True)
        (line,) = [record.message for record in caplog.records]
        assert f"{path} is damaged" in line
        assert f"kept as {aside}" in line
        await spool.aclose()

    run(main)


def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    async def main() -> None:
        path = await left(tmp_path)
        overwrite(path, 0, 4096)
        spool = Spool(tmp_path)
        assert await spool.adopt() == []
        assert not path.exists()
        await spool.add(CALLS[0])
        await spool.aclose()

    run(main)


def test_a_worker_whose_own_file_is_damaged_goes_on_in_another(tmp_path: Path) -> None:
    async def main() -> None:
        spool = Spool(tmp_path)
        await asyncio.gather(*(spool.add(call) for call in CALLS[:-1]))
        database = await spool._opened()
        (path,) = tmp_path.glob("*.spool")
        read = [number for number, _ in await spool.page(0)]
        await database.let_go()
        settle(path)
        size = path.stat().st_size
        overwrite(path, size - 4096 * 3, 4096 * 3)
        await spool.add(CALLS[-1])
        assert list(tmp_path.glob("*.damaged"))
        assert 50 < spool.size < 400
        before = spool.size
        await spool.forget(read)
        assert before - len(read) <= spool.size < before, "numbers stand for the same calls as before"
        after = [call for _, call in await spool.page(0)]
        assert CALLS[-1] in after
        await spool.aclose()

    run(main)


def test_a_call_that_cannot_be_read_is_named_and_holds_nobody_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        path = await left(tmp_path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE pending SET call = '{\"entry' WHERE number = 3")
            connection.execute(
                "UPDATE pending SET call = CAST(x'ff00' AS TEXT), kind = CAST(x'ff' AS TEXT) WHERE number = 4"
            )
            connection.commit()
        spool = Spool(tmp_path)
        assert len(await spool.adopt()) == spool.size == 398
        assert [record.message for record in caplog.records] == [
            f"a spooled call of exchange '{name}' cannot be read, and is dropped" for name in ("n002", "n003")
        ]
        await spool.aclose()

    run(main)
