"""The store's money half, as requests use it: it may be slow or away, and no request waits for that twice.

A call that fails, or takes longer than ``timeout_s``, puts the store *away*: from then on nothing is asked of it, and
settlements go to the worker's own spool, until the background loop finds that it answers again and has replayed the
spool. The same loop renews the reservations of exchanges that still run, bills those of workers that died, and deletes
ledger entries that are older than the configuration keeps them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from proxy.metrics import Metrics
from proxy.ports import Clock, StoreError
from proxy.state.spool import Pending, Release, Spool
from proxy.store import Balance, Granted, MoneyStore, Refused, Reserve, Settle, Store
from proxy.tasks import Tasks, spawn

LEASE_S = 60.0
"""How long a reservation stands without being renewed."""
_TIMEOUT_S = 2.0
_RETRY_S = 0.5
_FORGET_EVERY_S = 3600.0
# What could not even be spooled is kept in memory, up to a bound.
_MOST_IN_MEMORY = 10_000

_log = logging.getLogger("stratiform.store")


class Books:
    """Reservations and the ledger. Between ``start`` and ``aclose`` its background loop runs."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        spool: Spool | None = None,
        *,
        lease_s: float = LEASE_S,
        timeout_s: float = _TIMEOUT_S,
        retry_s: float = _RETRY_S,
        keep_entries_s: float | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._spool = spool
        self._lease_s = lease_s
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._keep_entries_s = keep_entries_s
        self._running: dict[str, set[str]] = {}
        self._in_memory: deque[Pending] = deque(maxlen=_MOST_IN_MEMORY)
        self._tasks: Tasks = set()
        self._wake = asyncio.Event()
        self._is_closing = False
        self._forgotten_at = -_FORGET_EVERY_S
        self.is_away = False
        self.troubles: dict[str, str] = {}
        """What does not work by now, the "store" or the "spool", and why."""

    @property
    def store(self) -> MoneyStore:
        """The store itself, for whoever may wait for it."""
        return self._store

    @property
    def is_durable(self) -> bool:
        """Whether what is written outlives the process."""
        return self._store.is_durable

    @property
    def pending(self) -> int:
        """Calls that wait for the store to come back."""
        return len(self._in_memory) + (self._spool.size if self._spool is not None else 0)

    async def start(self) -> None:
        """Take over what dead workers have left, and begin to look after reservations."""
        if self._spool is not None:
            with suppress(StoreError):
                await self._spool.adopt()
        await self._look_after()
        spawn(self._loop(), self._tasks)

    async def aclose(self) -> None:
        """Write what can be written, and release the store and the spool. What is left is for the next worker."""
        self._is_closing = True
        self._wake.set()
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        if self.pending:
            await self._come_back()
        for close in (self._store.aclose, self._spool.aclose if self._spool is not None else None):
            if close is None:
                continue
            try:
                await close()
            except StoreError as error:
                self._failed("close", error)

    def now(self) -> float:
        """The time by which reservations end."""
        return self._clock.now()

    def lease(self) -> float:
        """Until when a reservation stands that is made now."""
        return self._clock.now() + self._lease_s

    async def reserve(self, ask: Reserve) -> Granted | Refused | None:
        """The store's answer; None where it is away. Then the reservation may stand all the same."""
        if self.is_away:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._store.reserve(ask, self._clock.now())
        except (StoreError, TimeoutError) as error:
            self._failed("reserve", error)
            return None
        except asyncio.CancelledError:
            self.abandon(ask.exchange_id, ask.team)
            raise
        if isinstance(answer, Granted):
            self._running.setdefault(ask.team, set()).add(ask.exchange_id)
        return answer

    async def settle(self, end: Settle) -> Sequence[Balance] | None:
        """The balances of what was charged; None where the store is away and the settlement was spooled."""
        self.ended(end.entry.team, end.entry.exchange_id)
        if not self.is_durable:
            return await self._store.settle(end, self._clock.now())
        if not self.is_away:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._store.settle(end, self._clock.now())
            except (StoreError, TimeoutError) as error:
                self._failed("settle", error)
        await self._put_off(end)
        return None

    async def defer(self, ask: Reserve) -> bool:
        """Have a reservation stand until its ``expires_at`` without being renewed; it is made where there is none.
        Whether the store answered."""
        self.ended(ask.team, ask.exchange_id)
        if self.is_away:
            return False
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._store.reserve(ask, self._clock.now())
                await self._store.renew(ask.team, [ask.exchange_id], ask.expires_at)
        except (StoreError, TimeoutError) as error:
            self._failed("reserve", error)
            return False
        return True

    async def release(self, exchange_id: str, team: str) -> None:
        """Give a reservation back, now or later."""
        self.ended(team, exchange_id)
        if not self.is_away:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._store.release(exchange_id, team, self._clock.now())
                return
            except (StoreError, TimeoutError) as error:
                self._failed("release", error)
        await self._put_off(Release(exchange_id, team))

    async def balance(self, team: str, accounts: Sequence[str]) -> Balance | None:
        """The sum of these counters; None where the store is away."""
        if self.is_away:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._store.balances(team, accounts, self._clock.now())
        except (StoreError, TimeoutError) as error:
            self._failed("balances", error)
            return None
        return Balance(
            accounts[0],
            sum(one.spent for one in found),
            sum(one.reserved for one in found),
            sum(one.expected for one in found),
        )

    async def claim(self, team: str, name: str, keep_s: float) -> bool:
        """Whether this is the first to claim a name; not where the store is away."""
        if self.is_away:
            return False
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._store.claim(team, name, keep_s, self._clock.now())
        except (StoreError, TimeoutError) as error:
            self._failed("claim", error)
            return False

    def abandon(self, exchange_id: str, team: str) -> None:
        """Give a reservation back in the background: whoever asked for it has left."""
        spawn(self.release(exchange_id, team), self._tasks)

    def ended(self, team: str, exchange_id: str) -> None:
        """An exchange does not run any more: its reservation is not renewed."""
        running = self._running.get(team)
        if running is None:
            return
        running.discard(exchange_id)
        if not running:
            del self._running[team]

    async def _put_off(self, call: Pending) -> None:
        """Keep a call for later: on disk, or in memory where even that fails."""
        if self._spool is not None:
            try:
                await self._spool.add(call)
            except StoreError as error:
                self._failed("spool", error)
            else:
                self.troubles.pop("spool", None)
                self._metrics.spooled(self.pending)
                return
        if len(self._in_memory) == _MOST_IN_MEMORY:
            self._metrics.store_failed("forget")
            _log.error("%d settlements wait in memory: the oldest is forgotten", _MOST_IN_MEMORY)
        self._in_memory.append(call)
        self._metrics.spooled(self.pending)

    def _failed(self, operation: str, error: Exception) -> None:
        self._metrics.store_failed(operation)
        if operation in ("spool", "close"):
            if self.troubles.get("spool") != _text(error):  # one line for each reason, not for each settlement
                _log.error("%s failed: %s", operation, error)
            if operation == "spool":
                self.troubles["spool"] = _text(error)
            return
        self.troubles["store"] = _text(error)
        if not self.is_away:
            self.is_away = True
            self._metrics.store_is_away(True)
            _log.error("the store is away (%s: %s); settlements are spooled until it answers", operation, _text(error))
        self._wake.set()

    async def _loop(self) -> None:
        while True:
            pause_s = self._retry_s if self.is_away or self._in_memory else self._lease_s / 3
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            if self._is_closing:
                return
            if self._wake.is_set():  # news of an outage: no sooner than the pause between attempts
                self._wake.clear()
                continue
            await self._look_after()

    async def _look_after(self) -> None:
        if self.is_away or self.pending:
            await self._come_back()
        if self.is_away:
            return
        try:
            await self._renew()
            expired = await self._store.expire(self._clock.now())
            if expired:
                self._metrics.reservations_expired(expired)
                _log.warning("%d reservations of workers that died were billed as they stood", expired)
            await self._forget()
        except StoreError as error:
            self._failed("renew", error)

    async def _come_back(self) -> None:
        """Ask whether the store answers, and if so replay what was put off."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._store.ping()
            replayed = await self._spool.replay(self._carry_out) if self._spool is not None else 0
            while self._in_memory:
                await self._carry_out(self._in_memory[0])
                self._in_memory.popleft()
                replayed += 1
        except (StoreError, TimeoutError) as error:
            self._failed("replay", error)
            return
        finally:
            self._metrics.spooled(self.pending)
        self.troubles.clear()
        if replayed:
            _log.warning("%d calls that had been put off were replayed", replayed)
        if self.is_away:
            self.is_away = False
            self._metrics.store_is_away(False)
            _log.warning("the store answers again")

    async def _carry_out(self, call: Pending) -> None:
        async with asyncio.timeout(self._timeout_s):
            if isinstance(call, Settle):
                await self._store.settle(call, self._clock.now())
            else:
                await self._store.release(call.exchange_id, call.team, self._clock.now())
        self._metrics.replayed()

    async def _renew(self) -> None:
        until = self.lease()
        for team, exchanges in list(self._running.items()):
            await self._store.renew(team, list(exchanges), until)

    async def _forget(self) -> None:
        now = self._clock.now()
        if self._keep_entries_s is None or now < self._forgotten_at + _FORGET_EVERY_S:
            return
        self._forgotten_at = now
        await self._store.forget_entries(now - self._keep_entries_s)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
