"""Keeps the reservations of running exchanges, and the calls that the store gets later.

``Leases`` renews the reservations of this worker's exchanges, and has the store bill the reservations of dead workers
as they stand.

``Backlog`` knows what calls that are put off will charge. As long as the store does not know of a call, that amount is
added to what is spent. If the store has the reservation of a settlement, only the amount beyond that reservation
counts, because the store already counts the reserved amount against the limit. A reservation that is put off counts
until its exchange ends.

``CatchingUp`` keeps these calls, and has the store carry them out page by page. They wait in the worker's spool, or in
memory if the spool fails. Both places are bounded. A call that neither place takes is missing from the ledger; it is
counted and logged. The calls of one team in a page are one round trip. If the store does not take the calls of one
team, they wait, and the calls of other teams go on.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from proxy.core.money.charges import NANOS_PER_USD
from proxy.ports import Clock, StoreError
from proxy.storage.port import Balance, Charge, Granted, PutOff, Refused, Release, Reserve, Settle, Store
from proxy.storage.spool import Spool
from proxy.tasks import within
from proxy.telemetry.metrics import Metrics

_FORGET_EVERY_S = 3600.0

_log = logging.getLogger("stratiform.store")


class Leases:
    """The reservations of this worker's exchanges, and the regular work on reservations and old entries."""

    def __init__(
        self, store: Store, clock: Clock, metrics: Metrics, lease_s: float, keep_entries_s: float | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._lease_s = lease_s
        self._keep_entries_s = keep_entries_s
        # For each exchange: its team, and the charges that the store has reserved for it.
        self._running: dict[str, tuple[str, Sequence[Charge]]] = {}
        self._forgotten_at = -_FORGET_EVERY_S

    def until(self, for_s: float | None = None) -> float:
        """The time at which a reservation that is made or renewed now expires."""
        return self._clock.now() + (self._lease_s if for_s is None else for_s)

    def begins(self, ask: Reserve, held: Sequence[Charge] = ()) -> None:
        """Note that an exchange runs. ``held`` are the charges that the store has reserved for it: none if its
        reservation is put off."""
        self._running[ask.exchange_id] = (ask.team, held)

    def extended(self, ask: Reserve) -> Reserve:
        """The reservation, if it is made late. If its exchange still runs, it lasts as long as any new reservation.
        Otherwise it keeps its own expiry time, and is billed."""
        return replace(ask, expires_at=self.until()) if ask.exchange_id in self._running else ask

    def made(self, ask: Reserve) -> None:
        """Note that a reservation was made late."""
        if ask.exchange_id in self._running:
            self.begins(ask, ask.charges)

    def ended(self, exchange_id: str) -> Sequence[Charge]:
        """Note that an exchange has ended, so its reservation is not renewed any more. Returns the charges that the
        store has reserved for it."""
        _, held = self._running.pop(exchange_id, ("", ()))
        return held

    async def look_after(self) -> None:
        """Renew reservations of running exchanges, bill expired ones, and delete entries whose retention is over. A
        failure for one team does not stop the others. Raises StoreError."""
        failure: StoreError | None = None
        teams: dict[str, list[str]] = {}
        for exchange_id, (team, _) in self._running.items():
            teams.setdefault(team, []).append(exchange_id)
        for team, exchange_ids in teams.items():
            try:
                await self._store.renew(team, exchange_ids, self.until())
            except StoreError as error:
                if failure is not None:  # a second failure is the store's, not the team's
                    raise
                failure = error
        if expired := await self._store.expire(self._clock.now()):
            self._metrics.reservations_expired(by=expired)
            _log.warning("%d reservations of workers that died were billed as they stood", expired)
        await self._forget()
        if failure is not None:
            raise failure

    async def _forget(self) -> None:
        now = self._clock.now()
        if self._keep_entries_s is None or now < self._forgotten_at + _FORGET_EVERY_S:
            return
        await self._store.forget_entries(now - self._keep_entries_s)
        self._forgotten_at = now


class Backlog:
    """The sums of the calls that are put off, by team and counter. It knows only the calls of this worker."""

    def __init__(self) -> None:
        self._sums: dict[str, Counter[str]] = {}
        # For each exchange: the kind of its last call, and what the call charges that the store does not know of.
        self._calls: dict[str, tuple[type[PutOff], Counter[str]]] = {}

    def add(self, call: PutOff, reserved: Sequence[Charge] = ()) -> None:
        """Count a call in place of its exchange's earlier call. ``reserved`` are the charges that the store has
        reserved for its exchange."""
        match call:
            case Reserve():
                self._count(call, _amounts(call.charges))
            case Settle():
                self._count(call, _amounts(call.final) - _amounts(reserved))
            case Release():
                self._count(call, Counter())

    def remove(self, call: PutOff) -> None:
        """The store has carried a call out. A reservation whose exchange has ended meanwhile counts no more."""
        if self._calls.get(call.exchange_id, (None,))[0] is type(call):
            self._count(call, Counter())

    def _count(self, call: PutOff, amounts: Counter[str]) -> None:
        """Replace what the exchange of a call counts for. Only sums above zero are kept."""
        _, before = self._calls.pop(call.exchange_id, (None, Counter[str]()))
        if amounts:
            self._calls[call.exchange_id] = (type(call), amounts)
        sums = self._sums.setdefault(call.team, Counter())
        for account in before | amounts:
            sums[account] += amounts[account] - before[account]
            if sums[account] <= 0:
                del sums[account]
        if not sums:
            del self._sums[call.team]

    def lowered(self, ask: Reserve) -> Reserve:
        """The reservation to ask the store for: the same charges, with limits that are lowered by what is put off."""
        if ask.team not in self._sums:
            return ask
        charges = [
            charge if charge.limit is None else replace(charge, limit=charge.limit - self._pending(ask.team, charge))
            for charge in ask.charges
        ]
        return replace(ask, charges=charges)

    def counted(self, ask: Reserve, answer: Granted | Refused) -> Granted | Refused:
        """The store's answer, with what is put off added to what is spent."""
        if ask.team not in self._sums:
            return answer
        if isinstance(answer, Granted):
            pairs = zip(ask.charges, answer.balances, strict=True)
            return replace(answer, balances=[self._raised(ask.team, charge, balance) for charge, balance in pairs])
        return replace(answer, balance=self._raised(ask.team, answer.charge, answer.balance))

    def _raised(self, team: str, charge: Charge, balance: Balance) -> Balance:
        return replace(balance, spent=balance.spent + self._pending(team, charge))

    def _pending(self, team: str, charge: Charge) -> int:
        sums = self._sums.get(team, Counter[str]())
        return sum(sums[account] for account in (charge.account, *charge.within))


def _amounts(charges: Sequence[Charge]) -> Counter[str]:
    return Counter({charge.account: charge.amount for charge in charges})


# The number of teams that are served at once. It is small, so that requests still find a free connection to the store.
_TEAMS_AT_ONCE = 3
# The most bytes of calls that are kept in memory if they could not be spooled: some ten thousand calls.
_MOST_IN_MEMORY = 16 << 20
_LOST_A_LINE = 1000
# How many lost calls are named in the log when the worker ends, and how many in a line.
_MOST_NAMED = 1000
_NAMED_A_LINE = 20


Doubt = Callable[[Exception], Awaitable[bool]]
"""Says whether the store is away, after a call has failed with this error."""


@dataclass(slots=True)
class _Attempt:
    """One attempt to have the store carry out all calls."""

    is_away: Doubt
    is_over: bool = False
    failed: set[str] = field(default_factory=set)
    carried_out: int = 0


class CatchingUp:
    """The calls that are put off. ``backlog`` knows what they will charge. They wait in the first of the ``spools``.
    When the worker ends, the calls that wait in memory go to any spool that takes them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        spools: Sequence[Spool],
        timeout_s: float,
        leases: Leases,
        most_in_memory: int = _MOST_IN_MEMORY,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._leases = leases
        self._spools = spools
        self._memory = Spool(None, most_in_memory)
        self._lost = 0
        self._arriving = 0
        # The calls that the store has carried out, but that their spool could not delete: at most a page of each spool.
        self._undeleted: set[tuple[Spool, int]] = set()
        self._places = asyncio.Semaphore(_TEAMS_AT_ONCE)
        self.backlog = Backlog()
        self.trouble = ""
        """Why calls cannot be spooled at present; empty if they can."""

    @property
    def pending(self) -> int:
        return self._memory.size + sum(spool.size for spool in self._spools)

    async def adopt(self) -> None:
        """Take over the calls that dead workers have left."""
        for spool in self._spools:
            with suppress(StoreError):
                for call in await spool.adopt():
                    self.backlog.add(call)
        self._metrics.spooled(self.pending)

    async def intend(self, ask: Reserve) -> bool:
        """Keep an intent on disk: the bill of an exchange that is sent while the store is away and is never settled.
        Returns whether it could be kept."""
        if not await self._is_spooled(ask):
            return False
        self.backlog.add(ask)
        self._metrics.spooled(self.pending)
        return True

    async def put_off(self, call: PutOff, reserved: Sequence[Charge] = ()) -> None:
        """Keep a call for later: on disk, or in memory if that fails. ``reserved`` are the charges that the store has
        reserved for its exchange. A call that is lost counts against its team's limits as long as any call is put
        off."""
        self.backlog.add(call, reserved)
        self._arriving += 1
        try:
            if not await self._is_spooled(call):
                await self._memory.add([call])
        except StoreError:
            self._lose_one()
        finally:
            self._arriving -= 1
        self._metrics.spooled(self.pending)

    async def catch_up(self, is_away: Doubt) -> int:
        """Have the store carry out the calls that are put off, the oldest first. Returns how many it took. Calls that
        fail are kept. After a failure, ``is_away`` is asked: if the store is away, the attempt ends."""
        attempt = _Attempt(is_away)
        for spool in (self._memory, *self._spools):
            try:
                await self._empty(spool, attempt)
            except StoreError as error:
                self._spool_failed(error)
        self._metrics.spooled(self.pending)
        if not self.pending and not self._arriving:
            self.backlog = Backlog()
            self.trouble = ""
        return attempt.carried_out

    async def aclose(self) -> None:
        """Write the calls in memory to any spool that takes them, and release the spools. Raises StoreError."""
        lost: list[PutOff] = []
        for spool in self._spools:
            try:
                while page := await self._memory.page(0):
                    await spool.add([call for _, call in page], is_last=True)
                    await self._memory.forget([number for number, _ in page])
            except StoreError as error:
                self._spool_failed(error)
        while page := await self._memory.page(0):
            lost += [call for _, call in page]
            await self._memory.forget([number for number, _ in page])
        self._metrics.settlement_lost(by=len(lost))
        for line in lines_of_lost(lost):
            _log.error("%s", line)
        for spool in self._spools:
            if spool.size:
                _log.warning("what is put off (%d calls) waits in %s for the next start", spool.size, spool.path)
            await spool.aclose()

    async def _empty(self, spool: Spool, attempt: "_Attempt") -> None:
        """Have the store carry out the calls of one spool. Raises StoreError if the spool fails."""
        after = 0
        while not attempt.is_over and (page := await spool.page(after)):
            after = page[-1][0]
            news = [pair for pair in page if (spool, pair[0]) not in self._undeleted]
            self._undeleted.update((spool, number) for number in await self._carried_out(news, attempt))
            done = [number for number, _ in page if (spool, number) in self._undeleted]
            await spool.forget(done)
            self._undeleted.difference_update((spool, number) for number in done)
            self._metrics.spooled(self.pending)

    async def _carried_out(self, page: Sequence[tuple[int, PutOff]], attempt: "_Attempt") -> list[int]:
        """The numbers of the calls that the store has carried out."""
        teams: dict[str, list[tuple[int, PutOff]]] = {}
        for number, call in page:
            if call.team not in attempt.failed:
                teams.setdefault(call.team, []).append((number, call))
        answers = await asyncio.gather(*(self._is_taken(team, calls, attempt) for team, calls in teams.items()))
        done = [pair for calls, is_taken in zip(teams.values(), answers, strict=True) if is_taken for pair in calls]
        for _, call in done:
            self.backlog.remove(call)
            if isinstance(call, Reserve):
                self._leases.made(call)
        self._metrics.replayed(by=len(done))
        attempt.carried_out += len(done)
        return [number for number, _ in done]

    async def _is_taken(self, team: str, calls: Sequence[tuple[int, PutOff]], attempt: "_Attempt") -> bool:
        """Whether the store carried out these calls of one team."""
        async with self._places:
            if attempt.is_over:
                return False
            try:
                late = [self._leases.extended(call) if isinstance(call, Reserve) else call for _, call in calls]
                async with within(self._timeout_s):
                    await self._store.carry_out(team, late, self._clock.now())
            except (StoreError, TimeoutError) as error:
                attempt.failed.add(team)
                attempt.is_over = await attempt.is_away(error) or attempt.is_over
                return False
        return True

    async def _is_spooled(self, call: PutOff) -> bool:
        if not self._spools:
            return False
        try:
            await self._spools[0].add([call])
        except StoreError as error:
            self._spool_failed(error)
            return False
        self.trouble = ""
        return True

    def _lose_one(self) -> None:
        self._metrics.settlement_lost()
        if self._lost % _LOST_A_LINE == 0:
            _log.error(
                "settlements are lost, %d by now: neither the store nor the spool takes them, and memory is full",
                self._lost + 1,
            )
        self._lost += 1

    def _spool_failed(self, error: StoreError) -> None:
        self._metrics.store_failed("spool")
        if self.trouble != str(error):  # one line for each reason, not for each settlement
            _log.error("spool failed: %s", error)
        self.trouble = str(error)


def lines_of_lost(calls: Sequence[PutOff]) -> Iterator[str]:
    """Log lines about calls that could not be kept anywhere: how many, what they cost, and which. There are no lines if
    nothing is lost. They show no client's text and no key."""
    if not calls:
        return
    worth_usd = sum(call.entry.cost for call in calls if isinstance(call, Settle)) / NANOS_PER_USD
    yield f"{len(calls)} calls to the store, worth ${worth_usd:.6f}, cannot be written anywhere: they are lost"
    for start in range(0, min(len(calls), _MOST_NAMED), _NAMED_A_LINE):
        yield "lost: " + ", ".join(_said(call) for call in calls[start : min(start + _NAMED_A_LINE, _MOST_NAMED)])
    if len(calls) > _MOST_NAMED:
        yield f"lost: {len(calls) - _MOST_NAMED} more"


def _said(call: PutOff) -> str:
    """Exchange, team and cost."""
    cost = f" ${call.entry.cost / NANOS_PER_USD:.6f}" if isinstance(call, Settle) else ""
    return f"{call.exchange_id} of {call.team}{cost}"
