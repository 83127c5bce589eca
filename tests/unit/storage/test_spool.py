"""The spool: what is put off survives, is carried out in order, and is taken over from workers that died."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from proxy.ports import StoreError
from proxy.storage.port import Charge, LedgerEntry, PutOff, Release, Settle
from proxy.storage.spool import PAGE, Spool


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


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


def test_calls_are_read_in_order_and_forgotten(tmp_path: Path) -> None:
    async def main() -> None:
        spool = Spool(tmp_path / "spool")
        assert not (tmp_path / "spool").exists(), "no file before there is something to write"
        for call in CALLS:
            await spool.add(call)
        assert spool.size == 3
        assert await emptied(spool) == CALLS
        assert (spool.size, await spool.page(0)) == (0, ())
        await spool.aclose()
        assert list((tmp_path / "spool").iterdir()) == []

    run(main)


def test_many_calls_at_once_open_one_file(tmp_path: Path) -> None:
    async def main() -> None:
        spool = Spool(tmp_path)
        await asyncio.gather(*(spool.add(end(str(number))) for number in range(PAGE + 50)))
        first = await spool.page(0)
        assert len(first) == PAGE
        assert len(await spool.page(first[-1][0])) == 50, "what is not forgotten is passed over"
        assert len(await emptied(spool)) == PAGE + 50
        await spool.aclose()

    run(main)


def test_what_is_left_at_the_end_is_taken_over_by_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        first = Spool(tmp_path)
        for call in CALLS:
            await first.add(call)
        second = Spool(tmp_path)
        assert await second.adopt() == [], "its worker lives"
        await first.aclose()
        assert await second.adopt() == CALLS
        assert await emptied(second) == CALLS
        await second.aclose()
        assert list(tmp_path.iterdir()) == []

    run(main)


WRITER = """
import asyncio, sys
from pathlib import Path
from proxy.storage.spool import Spool
from proxy.storage.port import Release

async def main():
    spool = Spool(Path(sys.argv[1]))
    for number in range(10_000):
        await spool.add(Release(str(number), "red"))
        print(number, flush=True)

asyncio.run(main())
"""


def test_what_a_killed_worker_has_put_off_is_not_lost(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in writer.stdout.read().split("\n") if line]

    async def main() -> None:
        spool = Spool(tmp_path)
        adopted = len(await spool.adopt())
        assert len(acknowledged) <= adopted <= len(acknowledged) + 1
        await spool.aclose()

    run(main)


def test_a_folder_that_cannot_be_used_is_a_store_error(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "file").write_text("x")
        spool = Spool(tmp_path / "file")
        assert await spool.adopt() == []
        with pytest.raises(StoreError):
            await spool.add(CALLS[0])
        await spool.aclose()

    run(main)
