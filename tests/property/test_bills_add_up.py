"""What is spent is the plain sum of what the upstream has billed, whatever happens in whichever order.

A program of steps runs against workers that share a store: requests are reserved, extended, settled, given back or
deferred, while the store goes away and comes back, answers get lost, workers end and die. The model beside it knows
only how much each exchange has set aside, and what it was billed.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine.exchange import Exchange, ExchangeOutcome, Settlement
from proxy.kit.errors import BudgetExceeded, BudgetUnavailable, StoreError
from proxy.protocol.response.usage import Usage
from proxy.storage.sqlite import MemoryStore
from tests.doubles import ManualClock
from tests.examples import examples
from tests.money import DOLLAR, MOST, NOW, SIZE, TOTAL, Budgeting, budgeting, exchange, spent

HARD = 1000
"""The limit, in dollars."""
CALL = MOST // DOLLAR
CHANGING = {"reserve", "settle", "carry_out", "renew", "expire"}
ASKING = {"ping", "claim", "forget_entries", "balance", "facts", "put_facts"}


class Line:
    """A worker's line to the common store: it may be down, and it may lose the next answer."""

    is_durable, is_shared = True, True

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_down = self.loses = False

    def __getattr__(self, name: str) -> Any:
        found: Callable[..., Awaitable[object]] = getattr(self._store, name)
        if name not in CHANGING | ASKING:
            return found

        async def call(*given: Any) -> object:
            if self.is_down:
                raise StoreError("the line is down")
            answer = await found(*given)
            if self.loses and name in CHANGING:
                self.loses = False
                raise StoreError("the answer got lost")
            return answer

        return call

    async def aclose(self) -> None:
        """The store stays open for the other workers."""


@dataclass
class Known:
    """An exchange as it should stand, in dollars: ``parts`` are set aside for its calls until it is ``billed``. What
    nobody has ``settled`` in the end is billed as it was set aside."""

    asked: Exchange
    parts: list[int]
    state: Literal["open", "deferred", "settled", "given back", "lost"] = "open"
    cost: int = 0

    @property
    def taken(self) -> int:
        return {"settled": self.cost, "given back": 0}.get(self.state, sum(self.parts))


@dataclass
class World:
    """The workers of one store, one after the other."""

    folder: Path
    policy: str
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))
    known: list[Known] = field(default_factory=list)
    number: int = 0
    line: Line = field(init=False)

    @asynccontextmanager
    async def worker(self) -> Any:
        self.line, places = Line(self.store), (self.folder / str(self.number), self.folder / str(self.number + 1))
        self.number += 1
        async with budgeting(
            TOTAL, store=self.line, spool=places[0], clock=self.clock, on_store_error=self.policy, retry_s=0.001,
            lease_s=1e5, timeout_s=60.0,
        ) as one:  # type: ignore[arg-type]  # fmt: skip
            yield one
        if places[0].exists() and not places[1].exists():
            copytree(places[0], places[1])

    def dies(self) -> None:
        """What is on the disk at this moment is all that the next worker finds."""
        self.line.is_down = True
        if (here := self.folder / str(self.number - 1)).exists():
            copytree(here, self.folder / str(self.number))

    def taken(self) -> int:
        return sum(one.taken for one in self.known)

    def of(self, pick: int, *states: str) -> Known | None:
        found = [one for one in self.known if one.state in states]
        return found[pick % len(found)] if found else None


async def reserve(world: World, worker: Budgeting, pick: int, dollars: int) -> None:
    is_in_step, asked = worker.store_client.is_in_step and not world.line.is_down, exchange(SIZE)
    fits = world.taken() + CALL + dollars <= HARD
    try:
        await worker.reserve(asked, limit=dollars)
    except (BudgetExceeded, BudgetUnavailable) as error:
        if isinstance(error, BudgetUnavailable):
            assert world.policy == "deny"
            assert worker.store_client.is_away
        else:
            assert not (is_in_step and fits)
        await worker.reservations.settle(asked)
        return
    assert fits or not is_in_step
    assert fits or world.policy == "allow"
    world.known.append(Known(asked, [CALL + dollars]))


async def extend(world: World, worker: Budgeting, pick: int, dollars: int) -> None:
    if (one := world.of(pick, "open")) is None or not worker.store_client.is_in_step or world.line.is_down:
        return
    more = max(0, one.parts[0] + dollars - sum(one.parts))
    fits = world.taken() + more <= HARD
    assert await worker.reservations.extend(one.asked, Settlement(Usage(1, 0), float(dollars))) is fits
    one.parts += [more] * (fits and more > 0)


async def settle(world: World, worker: Budgeting, pick: int, dollars: int) -> None:
    if (one := world.of(pick, "open")) is None:
        return
    # The provider bills no more than was set aside.
    one.state, one.cost = "settled", min(dollars, sum(one.parts))
    await worker.settle(one.asked, Usage(one.cost, 0))
    if worker.store_client.is_in_step and not world.line.is_down:
        left = HARD - sum(known.cost for known in world.known)
        assert worker.reservations.alerts.remaining()["red"] == (float(left), math.inf)


async def give_back(world: World, worker: Budgeting, pick: int, dollars: int) -> None:
    if (one := world.of(pick, "open")) is not None:
        one.state = "given back"
        await worker.reservations.settle(one.asked)


async def defer(world: World, worker: Budgeting, pick: int, dollars: int) -> None:
    if (one := world.of(pick, "open")) is None or not worker.store_client.is_in_step or world.line.is_down:
        return
    one.state, one.parts = "deferred", one.parts[:1]
    one.asked.attempts, one.asked.ending = 1, ExchangeOutcome.COMPLETED
    await worker.reservations.defer(one.asked)


async def settle_later(world: World, worker: Budgeting, pick: int, dollars: int) -> None:
    if (one := world.of(pick, "deferred")) is None:
        return
    one.state, one.cost = "settled", min(dollars, sum(one.parts))
    one.asked.settlement = Settlement(Usage(one.cost, 0), float(one.cost))
    await worker.reservations.settle_later(one.asked)


async def hang_up(world: World, worker: Budgeting, pick: int, dollars: int) -> None:
    """A client leaves while its request is reserved, so that nothing is sent."""
    asked = exchange(SIZE)
    reserving = asyncio.ensure_future(worker.reserve(asked, limit=dollars))
    await asyncio.sleep(dollars / 30_000)
    reserving.cancel()
    with suppress(asyncio.CancelledError, BudgetExceeded, BudgetUnavailable):
        await reserving
    await worker.reservations.settle(asked)


async def goes_away(world: World, worker: Budgeting, pick: int, dollars: int) -> None:
    world.line.is_down = True


async def comes_back(world: World, worker: Budgeting, pick: int, dollars: int) -> None:
    world.line.is_down = False
    await worker.in_step()


async def loses(world: World, worker: Budgeting, pick: int, dollars: int) -> None:
    world.line.loses = True


STEPS = (
    reserve, reserve, reserve, extend, settle, settle, give_back, hang_up, defer, settle_later, goes_away, comes_back,
    loses,
)  # fmt: skip
PROGRAM = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7), st.integers(0, 300)), max_size=14)


@settings(max_examples=examples(250, least=25))
@given(
    st.lists(st.tuples(PROGRAM, st.sampled_from(["ends", "dies"])), min_size=1, max_size=2),
    st.sampled_from(["allow", "deny"]),
)
def test_the_ledger_is_the_sum_of_what_was_billed(workers: list[tuple[list[Any], str]], policy: str) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(played(World(Path(folder), policy), workers))


async def played(world: World, workers: list[tuple[list[Any], str]]) -> None:
    for program, end in workers:
        async with world.worker() as one:
            for step, pick, dollars in program:
                await step(world, one, pick, dollars)
                assert one.sample("store_away") == one.store_client.is_away
                assert one.store_client.pending >= 0
                if world.line.is_down:
                    assert one.sample("spool_pending") == one.store_client.pending
            assert one.sample("settlements_lost_total") == 0
            if end == "dies":
                world.dies()
        for known in world.known:
            known.state = "lost" if known.state == "open" else known.state
    async with world.worker() as last:
        await last.in_step()
        assert last.store_client.troubles == {}
        await world.store.expire(NOW + 1e6)
        assert await spent(last) == (world.taken() * DOLLAR, 0)
    entries = await world.store.entries(0, NOW + 1)
    assert sum(entry.cost for entry in entries) == world.taken() * DOLLAR
    assert world.policy == "allow" or world.taken() <= HARD
    for known in world.known:
        own = [entry for entry in entries if entry.exchange_id.split("+")[0] == known.asked.arrival.id]
        assert sum(entry.cost for entry in own) == known.taken * DOLLAR
        are_estimates = {"settled": {False}, "given back": set()}.get(known.state, {True})
        assert {entry.estimated for entry in own} == are_estimates
