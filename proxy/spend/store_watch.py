"""Watches the store: asks for its time, and notices when it was emptied or replaced by another one.

Every ten seconds the worker asks the store for its time, because budgets use the store's clock where the machine's own
differs from it (``proxy.clock``). This also reads the clock while no request comes, so that a step is noticed.

Every five seconds it asks for the store's epoch (``proxy.core.epoch``). The known epoch is kept in memory and in a
small file of the spool folder, one file for each address of a store. In addition, every reservation brings the epoch of
the store that granted it, so the first request after the loss notices an emptied Redis. The caller of ``trusts``
decides what follows from the answer.

At the end stands the list of all parts that do not work as they should, for readiness probes.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from proxy.access.authentication import Directory
from proxy.clock import SETTLED_S, Departure, SteadyClock
from proxy.core import epoch
from proxy.core.epoch import StoreEpoch
from proxy.ports import Fault, StoreError
from proxy.spend.store_client import StoreClient
from proxy.storage.port import Store
from proxy.storage.private_file import read_small, replace_small
from proxy.tasks import within
from proxy.telemetry.metrics import Metrics

TIME_EVERY_S = 10.0
EPOCH_EVERY_S = 5.0
"""How often a serving process asks the store."""
_TIMEOUT_S = 2.0
_MOST_BYTES = 256

_clock_log = logging.getLogger("stratiform.clock")
_log = logging.getLogger("stratiform.store")


async def ask_time(clock: SteadyClock, store: Store) -> None:
    """Ask the store for its time, and correct the clock. It does not wait for a store that is away."""
    with suppress(StoreError, TimeoutError):
        async with asyncio.timeout(_TIMEOUT_S):
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
        self._known = found[:_MOST_BYTES].decode("utf-8", "ignore").strip()

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
        return epoch.not_accepted(await self._store.facts())

    async def accept(self) -> Sequence[str]:
        """Accept the store as it is. Returns the epochs whose loss is accepted. Raises StoreError."""
        await self._ask()
        facts = await self._store.facts()
        await self._store.put_facts(epoch.to_accept(facts), overwrite=True)
        await self._ask()
        return epoch.not_accepted(facts)

    async def restored(self, counter: str) -> None:
        """Note that a counter was restored and is reliable again. Raises StoreError."""
        await self._ask()
        await self._store.put_facts(epoch.to_restore(await self._store.facts(), counter), overwrite=True)

    async def _ask(self) -> StoreEpoch:
        """Ask the store, one question at a time. Raises StoreError."""
        try:
            async with within(_TIMEOUT_S), self._turn:
                facts = await self._store.facts()
                if added := epoch.to_add(facts, self._known, secrets.token_hex(8)):
                    await self._store.put_facts(added, overwrite=False)
                    facts = await self._store.facts()
                found = epoch.read(facts, self._known)
                self.current = found.id
                self._note(found.lost)
                if not found.lost and found.id != self._known:
                    self._known = found.id
                    await asyncio.to_thread(replace_small, self._file, found.id.encode("utf-8"))
                return found
        except TimeoutError as error:
            raise StoreError("the store did not answer in time") from error

    def _note(self, lost: str) -> None:
        """Report a change once, in the log and in a metric."""
        if bool(lost) == bool(self._lost):
            return
        self._lost = lost
        self._on_change(bool(lost))
        if lost:
            _log.error(
                "the store was emptied or exchanged: it does not hold the counters that were known. Restore the "
                "counters of budgets with `stratiform budgets set-spent`, then accept the store with "
                "`stratiform budgets accept-store`; on_store_error says whether budgets refuse requests until then"
            )
        else:
            _log.warning("the store was accepted as it is")


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
