"""Keeps the clock that budgets use: it asks the store for its time, and remembers the clock across restarts.

The state stands in a small file of the spool folder, which all workers of a host write. The monotonic clock runs on
until the machine is started again, so that a step of the clock before or during a restart of the proxy is noticed, too.
After a start of the machine, a clock is known to be wrong only if it shows an earlier time than the file.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proxy.clock import SteadyClock
from proxy.core.timing.steady_time import SETTLED_S, Departure, SteadyState
from proxy.ports import StoreError
from proxy.spend.small_file import read_small, replace_small
from proxy.storage.port import Store
from proxy.tasks import Tasks, cancel, repeat, spawn
from proxy.telemetry.metrics import Metrics

EVERY_S = 10.0
_TIMEOUT_S = 2.0
_FILE = "clock.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger("stratiform.clock")


@dataclass(frozen=True, slots=True)
class _Kept:
    """The content of the file. ``boot`` names the last start of the machine; empty: not known."""

    boot: str
    time_s: float
    steady: SteadyState


_kept = msgspec.json.Decoder(_Kept)


class Timekeeper:
    """Keeps one clock right. ``folder`` is where it is remembered; None: nowhere."""

    def __init__(self, clock: SteadyClock, store: Store, folder: Path | None) -> None:
        self._clock = clock
        self._store = store
        self._file = folder / _FILE if folder is not None else None
        self._boot = read_small(_BOOT_ID).decode("ascii", "ignore").strip()
        self._tasks: Tasks = set()

    async def prepare(self) -> None:
        """Continue the clock of an earlier process, and ask the store once. A store that is away is not waited for."""
        with suppress(msgspec.DecodeError):
            found = _kept.decode(await asyncio.to_thread(read_small, self._file))
            monotonic_s = self._clock.readings.monotonic()
            if self._boot and found.boot == self._boot:
                self._clock.steady.resume(found.steady, monotonic_s)
            else:
                self._clock.steady.not_before(found.time_s, monotonic_s)
        await self._ask()

    async def start(self) -> None:
        """Prepare the clock, and keep it right until ``aclose``."""
        await self.prepare()
        await self._keep()
        spawn(repeat(EVERY_S, self._look), self._tasks)

    async def aclose(self) -> None:
        """Stop."""
        await cancel(self._tasks)

    async def _look(self) -> None:
        await self._ask()
        await self._keep()

    async def _ask(self) -> None:
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_TIMEOUT_S):
                before_s = self._clock.readings.monotonic()
                store_s = await self._store.time()
            if store_s is not None:
                self._clock.steady.told_by_store(store_s, (before_s + self._clock.readings.monotonic()) / 2)

    async def _keep(self) -> None:
        """Read the clock and write it down. Reading notices a step, and its end, even while no request comes."""
        kept = _Kept(self._boot, self._clock.now(), self._clock.steady.state)
        await asyncio.to_thread(replace_small, self._file, msgspec.json.encode(kept))


class ClockNews:
    """Reports in the log and in metrics what happens to the machine's clock."""

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
