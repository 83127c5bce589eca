"""Keeps the clock of budgets correct: asks the store for its time, and reads the clock while no request comes."""

import asyncio
import logging
from contextlib import suppress

from proxy.clock import SteadyClock
from proxy.core.timing import SETTLED_S, Departure
from proxy.ports import StoreError
from proxy.storage.port import Store
from proxy.telemetry.metrics import Metrics

EVERY_S = 10.0
"""How often a serving process asks."""
_TIMEOUT_S = 2.0

_log = logging.getLogger("stratiform.clock")


async def ask_time(clock: SteadyClock, store: Store) -> None:
    """Ask the store for its time, and correct the clock. It does not wait for a store that is away."""
    with suppress(StoreError, TimeoutError):
        async with asyncio.timeout(_TIMEOUT_S):
            before_s = clock.readings.monotonic()
            store_s = await store.time()
        if store_s is not None:
            clock.steady.told_by_store(store_s, (before_s + clock.readings.monotonic()) / 2)
    # Reading the clock notices a step of the time, and the end of the step.
    clock.now()


class ClockNews:
    """Reports changes of the machine's clock in the log and in metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before = Departure()

    def __call__(self, departure: Departure) -> None:
        before, self._before = self._before, departure
        self._metrics.clock_is_held_back(departure.held_back_s)
        self._metrics.clock_is_off_store(departure.ahead_of_store_s)
        if departure.held_back_s and departure.held_back_s != before.held_back_s:
            self._metrics.clock_stepped()
            _log.warning(
                "the clock was stepped by %+.0f s; budgets go by the old time until the new one has stood for %.0f s",
                departure.held_back_s, SETTLED_S,
            )  # fmt: skip
        elif before.held_back_s and not departure.held_back_s:
            _log.warning("the step of the clock is over; budgets go by the clock again")
        if departure.ahead_of_store_s and not before.ahead_of_store_s:
            _log.warning(
                "this host's clock is %+.0f s off the store's, and budgets go by the store's: correct the host's clock",
                departure.ahead_of_store_s,
            )
        elif before.ahead_of_store_s and not departure.ahead_of_store_s:
            _log.warning("this host's clock agrees with the store's again")
