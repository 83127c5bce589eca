"""The clock across restarts, what the store's clock does to it, and what is said about it."""

import asyncio
import logging
from pathlib import Path

import pytest

from proxy.clock import Readings, SteadyClock
from proxy.core.timing.steady_time import SETTLED_S
from proxy.ports import StoreError
from proxy.spend import timekeeping
from proxy.spend.timekeeping import ClockNews, Timekeeper
from proxy.storage.memory import MemoryStore
from proxy.telemetry.metrics import Metrics

WALL, HOUR, DAY = 1_700_000_000.0, 3600.0, 86400.0


class Host:
    """A machine that is started anew, or only its proxy is."""

    def __init__(self, folder: Path | None, store: MemoryStore | None = None) -> None:
        self.wall, self.monotonic = WALL, 50.0
        self.store = store or MemoryStore()
        self._folder = folder

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def proxy(self) -> SteadyClock:
        """The clock of a proxy that was started and ended."""

        async def main() -> SteadyClock:
            clock = SteadyClock(Readings(lambda: self.wall, lambda: self.monotonic))
            refresher = Timekeeper(clock, self.store, self._folder)
            await refresher.start()
            await refresher.aclose()
            return clock

        return asyncio.run(main())


class Timed(MemoryStore):
    """A store with a clock."""

    def __init__(self, time: float | None) -> None:
        super().__init__()
        self.at = time

    async def time(self) -> float | None:
        if self.at is None:
            raise StoreError("away")
        return self.at


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that names the start of the machine."""
    file = tmp_path / "boot_id"
    file.write_text("first\n")
    monkeypatch.setattr(timekeeping, "_BOOT_ID", file)
    return file


def test_a_proxy_goes_on_where_the_one_before_was(tmp_path: Path, boot: Path) -> None:
    host = Host(tmp_path / "spool")
    host.proxy()
    assert [file.name for file in (tmp_path / "spool").iterdir()] == ["clock.json"]
    host.passes(100)
    host.wall += DAY
    assert host.proxy().now() == WALL + 100
    host.passes(SETTLED_S)
    assert host.proxy().now() == host.wall


def test_behind_a_start_of_the_machine_the_time_does_not_run_back(tmp_path: Path, boot: Path) -> None:
    host = Host(tmp_path / "spool")
    host.proxy()
    boot.write_text("second")
    host.monotonic, host.wall = 1.0, WALL - HOUR
    clock = host.proxy()
    assert clock.now() == WALL
    host.passes(SETTLED_S)
    assert clock.now() == host.wall


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": 1}', "\0" * 100])
def test_a_file_that_cannot_be_read_is_none(tmp_path: Path, boot: Path, text: str) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "clock.json").write_text(text)
    assert Host(tmp_path / "spool").proxy().now() == WALL


def test_a_folder_that_cannot_be_written_hinders_nothing(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    assert Host(tmp_path / "spool").proxy().now() == WALL
    assert Host(None).proxy().now() == WALL


def test_the_store_tells_the_time_where_it_has_a_clock_and_answers() -> None:
    assert Host(None, Timed(WALL + HOUR)).proxy().now() == WALL + HOUR
    assert Host(None, Timed(None)).proxy().now() == WALL


def test_what_happens_to_the_clock_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics, wall, monotonic = Metrics(), WALL, 0.0
    clock = SteadyClock(Readings(lambda: wall, lambda: monotonic), ClockNews(metrics))

    def read(name: str) -> float:
        return metrics.registry.get_sample_value(f"stratiform_{name}") or 0.0

    with caplog.at_level(logging.WARNING):
        wall += DAY
        for _ in range(3):
            clock.now()
        assert (len(caplog.records), read("clock_steps_total"), read("clock_held_back_seconds")) == (1, 1, DAY)
        wall, monotonic = wall + SETTLED_S, SETTLED_S
        clock.now()
        assert (len(caplog.records), read("clock_steps_total"), read("clock_held_back_seconds")) == (2, 1, 0)
        clock.steady.told_by_store(wall, monotonic)
        wall += HOUR
        for _ in range(3):
            clock.now()
        assert (len(caplog.records), read("clock_off_store_seconds")) == (3, HOUR)
        wall -= HOUR
        clock.now()
        assert (len(caplog.records), read("clock_off_store_seconds")) == (4, 0)
    assert "stepped by +86400 s" in caplog.text
