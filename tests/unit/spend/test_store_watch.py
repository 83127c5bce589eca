"""What the store's clock does to the proxy's, and what is said about it."""

import logging
from functools import partial

import pytest

from proxy.clock import SETTLED_S, Readings, SteadyClock
from proxy.ports import StoreError
from proxy.spend.store_watch import ask_time, report_departure
from proxy.storage.sqlite import MemoryStore
from proxy.telemetry.metrics import Metrics

WALL, HOUR, DAY = 1_700_000_000.0, 3600.0, 86400.0


class Timed(MemoryStore):
    """A store with a clock."""

    def __init__(self, time: float | None) -> None:
        super().__init__()
        self.at = time

    async def time(self) -> float | None:
        if self.at is None:
            raise StoreError("away")
        return self.at


@pytest.mark.parametrize(("told", "given"), [(WALL + HOUR, WALL + HOUR), (None, WALL)])
async def test_the_store_tells_the_time_where_it_has_a_clock_and_answers(told: float | None, given: float) -> None:
    clock = SteadyClock(Readings(lambda: WALL, lambda: 50.0))
    await ask_time(clock, Timed(told))
    assert clock.now() == given


def test_what_happens_to_the_clock_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics, wall, monotonic = Metrics(), WALL, 0.0
    clock = SteadyClock(Readings(lambda: wall, lambda: monotonic), partial(report_departure, metrics))

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
        clock.told_by_store(wall, monotonic)
        wall += HOUR
        for _ in range(3):
            clock.now()
        assert (len(caplog.records), read("clock_off_store_seconds")) == (3, HOUR)
        wall -= HOUR
        clock.now()
        assert (len(caplog.records), read("clock_off_store_seconds")) == (4, 0)
    assert "stepped by +86400 s" in caplog.text
