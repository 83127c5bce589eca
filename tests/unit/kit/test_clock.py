"""Clocks."""

import time

import pytest

from proxy.kit.clock import TIME_HEADER, Readings, SteadyClock, SystemClock, boot_time, request_time
from proxy.kit.errors import InvalidRequest
from tests.doubles import ManualClock


def test_the_system_clock_tells_the_time() -> None:
    before = time.time()
    assert before <= SystemClock().now() <= time.time()


def test_a_request_brings_its_time_only_where_that_is_trusted() -> None:
    headers = [(TIME_HEADER, "1700000000.25")]
    assert request_time(headers, ManualClock(1.0)) == 1700000000.25
    assert request_time([], ManualClock(1.0)) == 1.0


@pytest.mark.parametrize("text", ["", "noon", "nan", "inf", "-1", "1,5"])
def test_a_bad_time_is_the_clients_error(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request_time([(TIME_HEADER, text)], ManualClock())
    assert caught.value.param == TIME_HEADER


def test_the_monotonic_clock_counts_the_time_that_the_machine_sleeps() -> None:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    before = time.clock_gettime(clock)
    assert before <= boot_time() <= time.clock_gettime(clock)


def test_a_machine_that_slept_has_not_been_stepped() -> None:
    wall, monotonic = 1_700_000_000.0, 10.0
    clock = SteadyClock(Readings(lambda: wall, lambda: monotonic))
    wall, monotonic = wall + 86400, monotonic + 86400
    assert clock.now() == wall
