"""What neither the store nor the spool takes at the end finds another place, and is found there."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from proxy.storage.port import LedgerEntry, PutOff, Settle
from proxy.storage.spool import Spool
from tests.damage import fill, small_disk

CALLS: list[PutOff] = [Settle(LedgerEntry(f"n{number:03}", 7.5, "red"), []) for number in range(600)]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_the_first_place_that_takes_them_has_them_in_files_of_this_user_alone(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "file").write_text("no folder")
        spool = Spool(tmp_path / "file", refuges=[tmp_path / "file", tmp_path / "second"])
        (file,), lost = await spool.rescue(CALLS)
        assert not lost
        assert (file.parent, file.stat().st_mode & 0o777) == (tmp_path / "second", 0o600)
        assert file.parent.stat().st_mode & 0o777 == 0o700
        next_one = Spool(tmp_path / "spool", refuges=[tmp_path / "second"])
        assert await next_one.adopt() == CALLS
        assert not list((tmp_path / "second").iterdir())
        await next_one.aclose()

    run(main)


def test_the_spool_itself_comes_first(tmp_path: Path) -> None:
    async def main() -> None:
        spool = Spool(tmp_path / "spool", refuges=[tmp_path / "second"])
        assert await spool.rescue(CALLS) == ([], [])
        assert spool.size == 600
        await spool.aclose()

    run(main)


def test_what_no_place_takes_is_given_back(tmp_path: Path) -> None:
    async def main(disk: Path) -> None:
        ballast = fill(disk)
        spool = Spool(disk / "spool", refuges=[disk / "second"])
        assert await spool.rescue(CALLS) == ([], CALLS)
        ballast.unlink()

    with small_disk(tmp_path / "disk", 512) as disk:
        asyncio.run(main(disk))


def test_files_and_folders_of_others_are_not_believed(tmp_path: Path) -> None:
    async def main() -> None:
        refuge = tmp_path / "refuge"
        planted = Spool(refuge)
        await planted.add(CALLS[0])
        await planted.aclose()
        (file,) = refuge.glob("*.spool")
        for path, mode in ((file, 0o666), (refuge, 0o777)):
            was = path.stat().st_mode
            path.chmod(mode)
            spool = Spool(tmp_path / "spool", refuges=[refuge])
            assert await spool.adopt() == []
            path.chmod(was)
        target = tmp_path / "elsewhere"
        file.rename(target)
        os.symlink(target, file)
        assert await Spool(tmp_path / "spool", refuges=[refuge]).adopt() == []
        refuge.chmod(0o777)
        assert await Spool(tmp_path / "file", refuges=[refuge])._take([]) == []
        (tmp_path / "file").write_text("no folder")
        assert await Spool(tmp_path / "file", refuges=[refuge]).rescue(CALLS[:1]) == ([], CALLS[:1])

    run(main)
