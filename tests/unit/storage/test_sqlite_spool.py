"""The spool: what is put off survives, is carried out in order, and is taken over from workers that died."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from proxy.kit.errors import StoreError
from proxy.storage import Charge, LedgerEntry, PutOff, Release, Reserve, Settle
from proxy.storage.sqlite import PAGE, Spool
from tests.damage import overwrite, settle


def end(name: str) -> Settle:
    return Settle(LedgerEntry(name, 7.5, "red", cost=3, user="ünï"), [Charge("a", 3, None, 60.0, 0, ["b", "c"])])


CALLS: list[PutOff] = [end("x"), Release("y", "red"), end("z")]


async def emptied(spool: Spool) -> list[PutOff]:
    """Everything in the spool, which has none of it afterwards."""
    calls: list[PutOff] = []
    while page := await spool.page(0):
        calls += [call for _, call in page]
        await spool.forget([number for number, _ in page])
    return calls


async def test_calls_are_read_in_order_and_forgotten(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    assert not (tmp_path / "spool").exists(), "no file before there is something to write"
    for call in CALLS:
        await spool.add([call])
    assert spool.size == 3
    assert await emptied(spool) == CALLS
    assert (spool.size, await spool.page(0)) == (0, ())
    await spool.aclose()
    assert list((tmp_path / "spool").iterdir()) == []


async def test_many_calls_at_once_open_one_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    await asyncio.gather(*(spool.add([end(str(number))]) for number in range(PAGE + 50)))
    first = await spool.page(0)
    assert len(first) == PAGE
    assert len(await spool.page(first[-1][0])) == 50, "what is not forgotten is passed over"
    assert len(await emptied(spool)) == PAGE + 50
    await spool.aclose()


async def test_what_is_left_at_the_end_is_taken_over_by_the_next(tmp_path: Path) -> None:
    first = Spool(tmp_path)
    for call in CALLS:
        await first.add([call])
    second = Spool(tmp_path)
    assert await second.adopt() == [], "its worker lives"
    await first.aclose()
    assert await second.adopt() == CALLS
    assert await emptied(second) == CALLS
    await second.aclose()
    assert list(tmp_path.iterdir()) == []


WRITER = """
import asyncio, sys
from pathlib import Path
from proxy.storage.sqlite import Spool
from proxy.storage import Release

async def main():
    spool = Spool(Path(sys.argv[1]))
    for number in range(10_000):
        await spool.add([Release(str(number), "red")])
        print(number, flush=True)

asyncio.run(main())
"""


async def test_what_a_killed_worker_has_put_off_is_not_lost(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in writer.stdout.read().split("\n") if line]

    spool = Spool(tmp_path)
    adopted = len(await spool.adopt())
    assert len(acknowledged) <= adopted <= len(acknowledged) + 1
    await spool.aclose()


async def test_a_folder_that_cannot_be_used_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    spool = Spool(tmp_path / "file")
    assert await spool.adopt() == []
    with pytest.raises(StoreError):
        await spool.add(CALLS[:1])
    await spool.aclose()


async def test_a_shared_place_is_used_where_it_is_this_users_alone(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "fallback", tmp_path / "elsewhere"
    spool = Spool(folder, is_shared=True)
    await spool.add(CALLS)
    await spool.aclose()
    (file,) = folder.glob("*.spool")
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    folder.chmod(0o777)
    other = Spool(folder, is_shared=True)
    assert await other.adopt() == []
    with pytest.raises(StoreError, match="alone"):
        await other.add(CALLS)
    folder.chmod(0o700)
    elsewhere.symlink_to(folder)
    assert await Spool(elsewhere, is_shared=True).adopt() == []
    assert await other.adopt() == CALLS
    await emptied(other)
    await other.aclose()
    assert list(folder.iterdir()) == []


async def test_calls_that_come_together_are_kept_together_or_not_at_all(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=500)
    with pytest.raises(StoreError, match="spool_max_mib"):
        await spool.add(CALLS)
    assert (spool.size, await spool.page(0)) == (0, ())
    await spool.aclose()


def intent(name: str) -> Reserve:
    return Reserve(
        name, "red", [Charge("a", 5, None, 60.0, 2, ["b"])], 99.5, LedgerEntry(name, 7.5, "red", ending="lost")
    )


async def calls_in(spool: Spool) -> list[PutOff]:
    return [call for _, call in await spool.page(0)]


async def test_the_end_of_an_exchange_takes_the_place_of_its_intent(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for call in (intent("settled"), intent("released"), intent("runs"), end("settled"), Release("released", "red")):
        await spool.add([call])
    assert await calls_in(spool) == [intent("runs"), end("settled"), Release("released", "red")]
    assert spool.size == 3
    await spool.aclose()


async def test_what_was_read_is_forgotten_and_nothing_that_came_in_its_place(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    await spool.add([intent("x")])
    read = [number for number, _ in await spool.page(0)]
    await spool.add([end("x")])
    await spool.forget(read)
    assert (await calls_in(spool), spool.size) == ([end("x")], 1)
    await spool.aclose()


async def test_intents_and_their_ends_at_once_count_each_call_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    await asyncio.gather(*(spool.add([intent(str(number))]) for number in range(100)))
    await asyncio.gather(*(spool.add([end(str(number))]) for number in range(0, 100, 2)))
    assert spool.size == 100
    kinds = [type(call) for call in await calls_in(spool)]
    assert (kinds.count(Reserve), kinds.count(Settle)) == (50, 50)
    await spool.aclose()


MANY: list[PutOff] = [Settle(LedgerEntry(f"n{number:03}", 7.5, "red", user="u" * 200), []) for number in range(400)]


async def left(folder: Path) -> Path:
    """The file of a worker that died."""
    spool = Spool(folder)
    await asyncio.gather(*(spool.add([call]) for call in MANY))
    await spool.aclose()
    (path,) = folder.glob("*.spool")
    settle(path)
    return path


async def test_of_a_damaged_file_what_can_be_read_is_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = await left(tmp_path)
    overwrite(path, path.stat().st_size // 2 // 4096 * 4096, 3 * 4096)
    spool = Spool(tmp_path)
    adopted = await spool.adopt()
    assert 200 < len(adopted) < 400
    assert all(call in MANY for call in adopted)
    assert MANY[0] in adopted
    assert MANY[-1] in adopted
    aside = path.with_name(path.name + ".damaged")
    assert (path.exists(), aside.exists()) == (False, True)
    (line,) = [record.message for record in caplog.records]
    assert f"{path} is damaged" in line
    assert f"kept as {aside}" in line
    await spool.aclose()


async def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    path = await left(tmp_path)
    overwrite(path, 0, 4096)
    spool = Spool(tmp_path)
    assert await spool.adopt() == []
    assert not path.exists()
    await spool.add(MANY[:1])
    await spool.aclose()


async def test_a_worker_whose_own_file_is_damaged_goes_on_in_another(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    await asyncio.gather(*(spool.add([call]) for call in MANY[:-1]))
    database = await spool._opened()
    (path,) = tmp_path.glob("*.spool")
    read = [number for number, _ in await spool.page(0)]
    await database.let_go()
    settle(path)
    size = path.stat().st_size
    overwrite(path, size - 4096 * 3, 4096 * 3)
    await spool.add(MANY[-1:])
    assert list(tmp_path.glob("*.damaged"))
    assert 50 < spool.size < 400
    before = spool.size
    await spool.forget(read)
    assert before - len(read) <= spool.size < before, "numbers stand for the same calls as before"
    after = [call for _, call in await spool.page(0)]
    assert MANY[-1] in after
    await spool.aclose()


async def test_a_call_that_cannot_be_read_is_named_and_holds_nobody_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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
