"""Keeps the calls that the store gets later.

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

from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.clock import Clock
from proxy.kit.errors import StoreError
from proxy.kit.tasks import within
from proxy.models.charges import NANOS_PER_USD
from proxy.storage import Balance, Charge, Granted, PutOff, Refused, Release, Reserve, Settle, Store
from proxy.storage.sqlite import Spool

_log = logging.getLogger("stratiform.store")


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
# How many lost calls are named in the log when the worker ends.
_MOST_NAMED = 1000

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
    When the worker ends, the calls that wait in memory go to any spool that takes them. A reservation that is made late
    lasts ``lease_s``, as any new one, if its exchange still runs. Otherwise it keeps its own expiry time, and is
    billed."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        spools: Sequence[Spool],
        timeout_s: float,
        lease_s: float,
        most_in_memory: int = _MOST_IN_MEMORY,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._lease_s = lease_s
        self._spools = spools
        self._memory = Spool(None, most_in_memory)
        self._lost = 0
        self._arriving = 0
        self._places = asyncio.Semaphore(_TEAMS_AT_ONCE)
        self.backlog = Backlog()
        self.running: dict[str, tuple[str, Sequence[Charge]]] = {}
        """For each exchange that runs: its team, and the charges that the store has reserved for it."""
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
        if is_kept := await self._is_spooled(ask):
            self.backlog.add(ask)
            self._metrics.spooled(self.pending)
        return is_kept

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
            self._metrics.settlement_lost()
            if self._lost % _LOST_A_LINE == 0:
                _log.error(
                    "settlements are lost, %d by now: neither the store nor the spool takes them, and memory is full",
                    self._lost + 1,
                )
            self._lost += 1
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
        """Have the store carry out the calls of one spool. A call that the spool cannot delete is carried out again
        later, which changes nothing. Raises StoreError if the spool fails."""
        after = 0
        while not attempt.is_over and (page := await spool.page(after)):
            after = page[-1][0]
            teams: dict[str, list[tuple[int, PutOff]]] = {}
            for number, call in page:
                if call.team not in attempt.failed:
                    teams.setdefault(call.team, []).append((number, call))
            answers = await asyncio.gather(*(self._carried_out(team, calls, attempt) for team, calls in teams.items()))
            done = [number for numbers in answers for number in numbers]
            await spool.forget(done)
            attempt.carried_out += len(done)
            self._metrics.replayed(by=len(done))
            self._metrics.spooled(self.pending)

    async def _carried_out(self, team: str, calls: Sequence[tuple[int, PutOff]], attempt: "_Attempt") -> Sequence[int]:
        """Have the store carry out calls of one team. Returns their numbers, or none if it does not take them."""
        async with self._places:
            if attempt.is_over:
                return ()
            try:
                until, runs = self._clock.now() + self._lease_s, self.running
                late = [
                    replace(call, expires_at=until) if isinstance(call, Reserve) and call.exchange_id in runs else call
                    for _, call in calls
                ]
                async with within(self._timeout_s):
                    await self._store.carry_out(team, late, self._clock.now())
            except (StoreError, TimeoutError) as error:
                attempt.failed.add(team)
                attempt.is_over = await attempt.is_away(error) or attempt.is_over
                return ()
        for _, call in calls:
            self.backlog.remove(call)
            if isinstance(call, Reserve) and call.exchange_id in self.running:
                self.running[call.exchange_id] = (team, call.charges)
        return [number for number, _ in calls]

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

    def _spool_failed(self, error: StoreError) -> None:
        self._metrics.store_failed("spool")
        if self.trouble != str(error):  # one line for each reason, not for each settlement
            _log.error("spool failed: %s", error)
        self.trouble = str(error)


def lines_of_lost(calls: Sequence[PutOff]) -> Iterator[str]:
    """Log lines about calls that could not be kept anywhere: how many, what they cost, and which. There are no lines if
    nothing is lost. They show no client's text and no key."""
    costs = [call.entry.cost / NANOS_PER_USD if isinstance(call, Settle) else 0.0 for call in calls]
    if calls:
        yield f"{len(calls)} calls to the store, worth ${sum(costs):.6f}, cannot be written anywhere: they are lost"
    for call, cost_usd in zip(calls[:_MOST_NAMED], costs, strict=False):
        yield f"lost: {call.exchange_id} of {call.team}, ${cost_usd:.6f}"
    if len(calls) > _MOST_NAMED:
        yield f"lost: {len(calls) - _MOST_NAMED} more"
