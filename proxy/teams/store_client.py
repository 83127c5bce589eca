"""The store as requests use it. The store may be slow or away, and no request waits for that twice.

The connection between the worker and the store is in one of three states::

    in step ──(a call and a ping fail)──> away ──(a ping succeeds)──> catching up
       └──<─────────────────────(nothing is put off any more)──────────────┘

While the store is *away*, no call goes to it, and settlements are put off. While the worker is *catching up*,
reservations and new settlements go to the store at once, so that the number of calls that were put off only falls.
Until the store has these calls, they count against the limits of their team (``proxy.teams.catching_up``). If a call
fails while the store answers a ping, only this call has failed: it is repeated once, and a settlement that fails again
is put off.

The second part watches the store: it asks for its time, and notices when it was emptied or replaced by another one.
Every ten seconds the worker asks the store for its time, because budgets use the store's clock where the machine's own
differs from it (``proxy.kit.clock``). This also reads the clock while no request comes, so that a step is noticed.

Every five seconds it asks for the store's epoch (``proxy.storage``). The known epoch is kept in memory and in a
small file of the spool folder, one file for each address of a store. In addition, every reservation brings the epoch of
the store that granted it, so the first request after the loss notices an emptied Redis. The caller of ``trusts``
decides what follows from the answer.

At the end stands the list of all parts that do not work as they should, for readiness probes.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

from proxy.engine.ports import Fault
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.clock import SETTLED_S, Clock, Departure, SteadyClock
from proxy.kit.errors import StoreError
from proxy.kit.tasks import Tasks, drain, pause, spawn, within
from proxy.kit.value import dataclass, replace
from proxy.storage import (
    Balance,
    Charge,
    Granted,
    PutOff,
    Refused,
    Release,
    Reserve,
    Settle,
    Store,
    StoreEpoch,
    epochs_not_accepted,
    facts_to_accept,
    facts_to_add,
    facts_to_restore,
    read_epoch,
)
from proxy.storage.database import read_small, replace_small
from proxy.storage.sqlite import Spool
from proxy.teams.authentication import Directory
from proxy.teams.catching_up import CatchingUp

# A store that does not answer counts as away after the time-out. The ping that confirms it takes this share of the
# time.
_PING_SHARE = 0.25
_MOST_PAUSES = 60
_FORGET_EVERY_S = 3600.0

_T = TypeVar("_T")
_log = logging.getLogger("stratiform.store")
_clock_log = logging.getLogger("stratiform.clock")


@dataclass(frozen=True, slots=True)
class StoreTimes:
    """Three times: how long a reservation lasts without being renewed, how long a call may take, and how long to wait
    before a store that failed is asked again."""

    lease_s: float = 60.0
    timeout_s: float = 2.0
    retry_s: float = 0.5


_TIMES = StoreTimes()


class StoreClient:
    """Reservations and the ledger. Between ``start`` and ``aclose`` its background loops run."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        spools: Sequence[Spool] = (),
        times: StoreTimes = _TIMES,
        keep_entries_s: float | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._times = times
        self._call_s, self._ping_s = times.timeout_s * (1 - _PING_SHARE), times.timeout_s * _PING_SHARE
        self._keep_entries_s = keep_entries_s
        self._forgotten_at = -_FORGET_EVERY_S
        self._catching_up = CatchingUp(store, clock, metrics, spools, self._call_s, times.lease_s)
        self._running = self._catching_up.running
        self._tasks: Tasks = set()
        self._question: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._renewal = asyncio.Event()
        self._closing = asyncio.Event()
        self.is_durable = store.is_durable
        self.is_away = False
        self._trouble = ""

    @property
    def pending(self) -> int:
        """How many calls the store has still to get."""
        return self._catching_up.pending

    @property
    def is_in_step(self) -> bool:
        """Whether the store answers and has every call."""
        return not self.is_away and not self.pending

    @property
    def troubles(self) -> Mapping[str, str]:
        """The parts that do not work now ("store" or "spool"), and why."""
        return {part: why for part, why in (("store", self._trouble), ("spool", self._catching_up.trouble)) if why}

    def lease(self, for_s: float | None = None) -> float:
        """The time at which a reservation that is made or renewed now expires."""
        return self._clock.now() + (self._times.lease_s if for_s is None else for_s)

    async def start(self) -> None:
        """Take over the calls that dead workers have left, and start the background loops."""
        await self._catching_up.adopt()
        if self.pending:
            await self._look("ping", self._call_s)
            self._news.set()
        spawn(self._recover(), self._tasks)
        await self._look_after_leases()
        spawn(self._renew(), self._tasks)

    async def aclose(self) -> None:
        """Write the calls that can be written, and release the store and the spool. The next worker takes over the
        rest."""
        self._closing.set()
        self._news.set()
        self._renewal.set()
        await drain(self._tasks)
        if self.pending:
            await self._look("ping", self._call_s)
            await self._catch_up()
        for close in (self._store.aclose, self._catching_up.aclose):
            try:
                await close()
            except StoreError as error:
                self._metrics.store_failed("close")
                _log.error("close failed: %s", error)

    async def reserve(self, ask: Reserve) -> Granted | Refused | None:
        """The store's answer, which includes the calls that are put off; None if the store gave no answer. In that case
        the store may have made the reservation nevertheless."""
        calls = 0

        async def call() -> Granted | Refused:
            nonlocal calls
            calls += 1
            return await self._store.reserve(self._catching_up.backlog.lowered(ask), self._clock.now())

        try:
            answer = await self._ask("reserve", call)
        except asyncio.CancelledError:
            # The caller was cancelled, so the reservation is given back in the background.
            spawn(self.release(ask.exchange_id, ask.team), self._tasks)
            raise
        if answer is None:
            return None
        if isinstance(answer, Granted):
            self._running[ask.exchange_id] = (ask.team, ask.charges)
        elif calls > 1:
            answer = replace(answer, is_repeated=True)
        return self._catching_up.backlog.counted(ask, answer)

    async def intend(self, ask: Reserve) -> bool:
        """Note an exchange that is sent although the store gave no answer, so that it is billed even if this process
        dies. The note is on disk on return. Returns whether it could be written."""
        if not self.is_durable:
            return True
        charges = [replace(charge, limit=None) for charge in ask.charges]
        self._running[ask.exchange_id] = (ask.team, ())
        # A spool that is interrupted loses count of its calls, or leaves its file locked.
        is_kept = await asyncio.shield(spawn(self._catching_up.intend(replace(ask, charges=charges)), self._tasks))
        self._news.set()
        return bool(is_kept)

    async def settle(self, end: Settle) -> Sequence[Balance] | None:
        """Settle an exchange. Returns the balances of its charges; None if the store gave no answer and the settlement
        was put off."""
        _, reserved = self._running.pop(end.entry.exchange_id, ("", ()))
        if not self.is_durable:
            return await self._store.settle(end, self._clock.now())
        balances = await self._ask("settle", lambda: self._store.settle(end, self._clock.now()))
        if balances is None:
            await self._put_off(end, reserved)
        return balances

    async def defer(self, ask: Reserve) -> bool:
        """Keep a reservation until its ``expires_at`` without renewing it. If there is no reservation, it is made. If
        the store gives no answer, this is put off. Returns whether it is kept anywhere."""
        self._running.pop(ask.exchange_id, None)
        if await self._ask("reserve", lambda: self._store.reserve(ask, self._clock.now())):
            return True
        is_kept = await self._catching_up.intend(ask)
        self._news.set()
        return is_kept

    async def release(self, exchange_id: str, team: str) -> None:
        """Give a reservation back, now or later, even if the caller is cancelled meanwhile."""
        self._running.pop(exchange_id, None)
        await asyncio.shield(spawn(self._released(Release(exchange_id, team)), self._tasks))

    async def _released(self, ask: Release) -> None:

        async def call() -> bool:
            await self._store.carry_out(ask.team, [ask], self._clock.now())
            return True

        if not await self._ask("release", call):
            await self._put_off(ask)

    async def balance(self, team: str, charge: Charge) -> Balance | None:
        """The counter of a charge; None if the store gave no answer."""
        return await self._ask("balances", lambda: self._store.balance(team, charge, self._clock.now()))

    async def claim(self, team: str, name: str, keep_s: float) -> bool:
        """Whether this call is the first to claim a name. False if the store gave no answer."""
        return bool(await self._ask("claim", lambda: self._store.claim(team, name, keep_s, self._clock.now())))

    async def _ask(self, operation: str, call: Callable[[], Awaitable[_T]]) -> _T | None:
        """The store's answer; None if it is away. A call that fails while the store answers is repeated once. If it
        fails again, the result is also None."""
        for is_last in (False, True):
            if self.is_away:
                break
            try:
                async with within(self._call_s):
                    answer = await call()
            except (StoreError, TimeoutError) as error:
                if not is_last:
                    await self.doubt(operation)
                    continue
                self._metrics.store_failed(operation)
                if self._trouble != _text(error):  # one log line for each reason, not for each call
                    _log.error("%s fails although the store answers: %s", operation, _text(error))
                self._trouble = _text(error)
            else:
                if self._trouble and not self.is_away and not self.pending:
                    self._trouble = ""
                return answer
        return None

    async def _put_off(self, call: PutOff, reserved: Sequence[Charge] = ()) -> None:
        await self._catching_up.put_off(call, reserved)
        self._news.set()

    async def doubt(self, operation: str) -> None:
        """A call has failed: find out whether the store is away. Calls that fail at the same time share one ping."""
        self._metrics.store_failed(operation)
        if self.is_away:
            return
        if self._question is None or self._question.done():
            self._question = spawn(self._look(operation, self._ping_s), self._tasks)
        await asyncio.shield(self._question)

    async def _look(self, operation: str, limit_s: float) -> None:
        """Find out by a ping whether the store is away. ``operation`` is the name of the call that failed before."""
        try:
            async with within(limit_s):
                await self._store.ping()
        except (StoreError, TimeoutError) as error:
            self._metrics.store_failed("ping")
            self._trouble = _text(error)
            if not self.is_away:
                self.is_away = True
                self._metrics.store_is_away(True)
                _log.error(
                    "the store is away (%s: %s); settlements are spooled until it answers", operation, self._trouble
                )
                self._news.set()
            return
        if self.is_away:
            self.is_away = False
            self._trouble = ""
            self._metrics.store_is_away(False)
            _log.warning("the store answers again; %d calls were put off", self.pending)
            self._renewal.set()

    async def _catch_up(self) -> int:
        """Have the store carry out the calls that are put off. Returns how many it took."""
        if self.is_away or not self.pending:
            return 0

        async def is_away(error: Exception) -> bool:
            _log.warning("what was put off is not taken: %s", _text(error))
            await self.doubt("replay")
            return self.is_away

        carried_out = await self._catching_up.catch_up(is_away)
        if not self.pending:
            self._trouble = ""
        if carried_out:
            _log.warning("calls that had been put off were carried out: %d; left: %d", carried_out, self.pending)
        return carried_out

    async def _look_after_leases(self) -> None:
        """Renew reservations of running exchanges, bill those of dead workers as they stand, and delete entries whose
        retention is over. A failure for one team does not stop the others."""
        if self.is_away:
            return
        failure: StoreError | None = None
        teams: dict[str, list[str]] = {}
        for exchange_id, (team, _) in self._running.items():
            teams.setdefault(team, []).append(exchange_id)
        try:
            for team, exchange_ids in teams.items():
                try:
                    await self._store.renew(team, exchange_ids, self.lease())
                except StoreError as error:
                    if failure is not None:  # a second failure is the store's, not the team's
                        raise
                    failure = error
            now = self._clock.now()
            if expired := await self._store.expire(now):
                self._metrics.reservations_expired(by=expired)
                _log.warning("%d reservations of workers that died were billed as they stood", expired)
            if self._keep_entries_s is not None and now >= self._forgotten_at + _FORGET_EVERY_S:
                await self._store.forget_entries(now - self._keep_entries_s)
                self._forgotten_at = now
        except StoreError as error:
            failure = error
        if failure is not None:
            _log.warning("reservations could not be looked after: %s", _text(failure))
            await self.doubt("renew")

    async def _recover(self) -> None:
        """Find out when the store is back, and catch up."""
        pause_s = self._times.retry_s
        while not self._closing.is_set():
            if self.is_in_step:
                await self._news.wait()
            self._news.clear()
            if await pause(pause_s, self._closing):  # after each attempt, and after the first failure
                return
            was_away = self.is_away
            if was_away:
                await self._look("ping", self._call_s)
            is_vain = not await self._catch_up() and not was_away
            # A store that answers may still refuse calls: the pause grows, so that they are not read again and again.
            pause_s = min(2 * pause_s, _MOST_PAUSES * self._times.retry_s) if is_vain else self._times.retry_s

    async def _renew(self) -> None:
        """Renew reservations from time to time, and as soon as the store is back."""
        while not self._closing.is_set():
            await pause(self._times.lease_s / 3, self._renewal)
            self._renewal.clear()
            if not self._closing.is_set():
                await self._look_after_leases()


def _text(error: Exception) -> str:
    return str(error) or "it does not answer in time"


TIME_EVERY_S = 10.0
EPOCH_EVERY_S = 5.0
"""How often a serving process asks the store."""
_WATCH_S = 2.0
_EMPTIED = (
    "the store was emptied or exchanged: it does not hold the counters that were known. Restore the counters of "
    "budgets with `stratiform budgets set-spent`, then accept the store with `stratiform budgets accept-store`; "
    "on_store_error says whether budgets refuse requests until then"
)


async def ask_time(clock: SteadyClock, store: Store) -> None:
    """Ask the store for its time, and correct the clock. It does not wait for a store that is away."""
    with suppress(StoreError, TimeoutError):
        async with asyncio.timeout(_WATCH_S):
            before_s = clock.readings.monotonic()
            store_s = await store.time()
        if store_s is not None:
            clock.told_by_store(store_s, (before_s + clock.readings.monotonic()) / 2)
    # Reading the clock notices a step of the time, and the end of the step.
    clock.now()


def report_departure(metrics: Metrics, before: Departure, departure: Departure) -> None:
    """Report a change of the machine's clock in the log and in metrics (``SteadyClock.on_departure``)."""
    metrics.clock_is_held_back(departure.held_back_s)
    metrics.clock_is_off_store(departure.ahead_of_store_s)
    if departure.held_back_s and departure.held_back_s != before.held_back_s:
        metrics.clock_stepped()
        _clock_log.warning(
            "the clock was stepped by %+.0f s; budgets go by the old time until the new one has stood for %.0f s",
            departure.held_back_s, SETTLED_S,
        )  # fmt: skip
    elif before.held_back_s and not departure.held_back_s:
        _clock_log.warning("the step of the clock is over; budgets go by the clock again")
    if departure.ahead_of_store_s and not before.ahead_of_store_s:
        _clock_log.warning(
            "this host's clock is %+.0f s off the store's, and budgets go by the store's: correct the host's clock",
            departure.ahead_of_store_s,
        )
    elif before.ahead_of_store_s and not departure.ahead_of_store_s:
        _clock_log.warning("this host's clock agrees with the store's again")


class Epochs:
    """A worker's knowledge about the epoch of its store. ``file`` is where the epoch is remembered; None: nowhere.
    ``on_change`` is called with True if the store is not the known one, and with False when that store was accepted."""

    def __init__(
        self,
        store: Store,
        file: Path | None,
        on_change: Callable[[bool], None] = lambda is_strange: None,
    ) -> None:
        self._store = store
        self._file = file
        self._on_change = on_change
        self._known = self.current = ""
        self._lost = ""
        self._turn = asyncio.Lock()

    @property
    def trouble(self) -> str:
        """A text that says what is wrong with the store; empty if nothing is wrong."""
        return "it was emptied or exchanged, and nobody has accepted it as it is" if self._lost else ""

    async def recall(self) -> None:
        """Read the epoch that an earlier process knew."""
        found = await asyncio.to_thread(read_small, self._file)
        self._known = found.decode("utf-8", "ignore").strip()

    async def start(self) -> None:
        """Recall the known epoch, and ask the store."""
        await self.recall()
        await self.look()

    async def look(self) -> None:
        """Ask the store, to notice a loss while no request comes. It does not wait for a store that is away."""
        with suppress(StoreError):
            await self._ask()

    async def trusts(self, granted_by: str | None, counters: Sequence[str]) -> bool:
        """Whether the counters of these names are reliable. ``granted_by`` is the epoch of the store that granted a
        reservation; None: nothing was granted yet. A store that does not answer is not trusted."""
        if not self._lost and (granted_by is None or (granted_by and granted_by == self._known)):
            return True
        try:
            found = await self._ask()
        except StoreError:
            return False
        return not found.lost or found.restored >= set(counters)

    async def not_accepted(self) -> Sequence[str]:
        """The lost epochs that nobody has accepted as lost. Raises StoreError."""
        await self._ask()
        return epochs_not_accepted(await self._store.facts())

    async def accept(self) -> Sequence[str]:
        """Accept the store as it is. Returns the epochs whose loss is accepted. Raises StoreError."""
        await self._ask()
        facts = await self._store.facts()
        await self._store.put_facts(facts_to_accept(facts), overwrite=True)
        await self._ask()
        return epochs_not_accepted(facts)

    async def restored(self, counter: str) -> None:
        """Note that a counter was restored and is reliable again. Raises StoreError."""
        await self._ask()
        await self._store.put_facts(facts_to_restore(await self._store.facts(), counter), overwrite=True)

    async def _ask(self) -> StoreEpoch:
        """Ask the store, one question at a time. Raises StoreError."""
        try:
            async with within(_WATCH_S), self._turn:
                facts = await self._store.facts()
                if added := facts_to_add(facts, self._known, secrets.token_hex(8)):
                    await self._store.put_facts(added, overwrite=False)
                    facts = await self._store.facts()
                found = read_epoch(facts, self._known)
                self.current = found.id
                if bool(found.lost) != bool(self._lost):
                    self._on_change(bool(found.lost))
                    if found.lost:
                        _log.error(_EMPTIED)
                    else:
                        _log.warning("the store was accepted as it is")
                self._lost = found.lost
                if not found.lost and found.id != self._known:
                    self._known = found.id
                    await asyncio.to_thread(replace_small, self._file, found.id.encode("utf-8"))
                return found
        except TimeoutError as error:
            raise StoreError("the store did not answer in time") from error


def faults(
    store_client: StoreClient, epochs: Epochs, directory: Directory, on_store_error: Literal["allow", "deny"]
) -> Iterator[Fault]:
    """One fault for each part that does not work. Under ``deny``, a spool that cannot be written blocks every request.
    A store that is away blocks the requests under a hard budget. Until the store has been read once, any request may be
    under a hard budget."""
    denies = on_store_error == "deny"
    denies_some = denies and any(budget.hard is not None for budget in directory.snapshot.budgets.values())
    for part, why in store_client.troubles.items():
        if part == "store":
            yield Fault("store", f"the store is away: {why}", denies_some or (denies and not directory.is_loaded))
        else:
            yield Fault(part, f"what the store does not take cannot be kept: {why}", denies)
    if epochs.trouble:
        yield Fault("epoch", f"the store is not the one that was known: {epochs.trouble}", denies_some)
    if directory.store_errors:
        yield Fault("directory", "the store's teams and keys cannot be read: what was read last holds")
