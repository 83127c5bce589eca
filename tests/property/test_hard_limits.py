"""A hard limit is never passed, whatever happens in whichever order, on every engine that needs no server.

The machine plays workers that reserve, settle, release, renew, die and come back late, and every call may come again.
After each step what is spent and reserved is at most the limit, the counters are what a plain model of exchanges adds
up to, and every exchange stands in the ledger as often as it should: once, or not at all.
"""

import asyncio
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.state.memory import MemoryStore
from proxy.state.sqlite import SqliteStore
from proxy.store import Charge, Entry, Granted, Reserve, Settle, Store

T = TypeVar("T")
ACCOUNT, TEAM, LEASE_S = "a", "red", 60.0


@dataclass
class Known:
    """An exchange as it should stand: reserved, spent, or gone."""

    amount: int
    expires_at: float
    state: str = "open"  # open, billed, settled, released
    spent: int = 0


class Machine(RuleBasedStateMachine):
    """Memory; ``OnSqlite`` is the same on a file."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store: Store = self.run(self.opened())
        self.now = 1000.0
        self.known: dict[str, Known] = {}

    async def opened(self) -> Store:
        return MemoryStore()

    def run(self, call: Awaitable[T]) -> T:
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        self.run(self.store.aclose())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    @initialize(limit=st.integers(0, 100))
    def begin(self, limit: int) -> None:
        self.limit = limit

    def expire(self) -> None:
        for one in self.known.values():
            if one.state == "open" and one.expires_at <= self.now:
                one.state, one.spent = "billed", one.amount

    def taken(self) -> int:
        return sum(one.amount if one.state == "open" else one.spent for one in self.known.values())

    @rule(number=st.integers(0, 30), amount=st.integers(0, 40))
    def reserve(self, number: int, amount: int) -> None:
        name = f"x{number:02}"
        before = self.known.get(name)
        ask = Reserve(
            name, TEAM, [Charge(ACCOUNT, before.amount if before else amount, self.limit)], self.now + LEASE_S,
            Entry(name, self.now, TEAM, cost=before.amount if before else amount),
        )  # fmt: skip
        answer = self.run(self.store.reserve(ask, self.now))
        self.expire()
        if before is not None:
            assert isinstance(answer, Granted), "known: granted as before"
            return
        fits = self.taken() + amount <= self.limit
        assert isinstance(answer, Granted) == fits
        if fits:
            self.known[name] = Known(amount, self.now + LEASE_S)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), share=st.floats(0, 1))
    def settle(self, data: Any, share: float) -> None:
        name = data.draw(st.sampled_from(sorted(self.known)))
        one = self.known[name]
        cost = int(one.amount * share)
        if one.state == "released":
            return
        self.run(self.store.settle(Settle(Entry(name, self.now, TEAM, cost=cost), [Charge(ACCOUNT, cost)]), self.now))
        if one.state != "settled":
            one.state, one.spent = "settled", cost

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def release(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.known)))
        self.run(self.store.release(name, TEAM, self.now))
        if self.known[name].state == "open":
            self.known[name].state = "released"

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def renew(self, data: Any) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.known)), max_size=5))
        self.run(self.store.renew(TEAM, names, self.now + LEASE_S))
        for name in names:
            if self.known[name].state == "open":
                self.known[name].expires_at = self.now + LEASE_S

    @rule(seconds=st.floats(0, 90))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.store.expire(self.now))
        self.expire()

    @invariant()
    def it_adds_up(self) -> None:
        (balance,) = self.run(self.store.balances(TEAM, [ACCOUNT], self.now))
        assert balance.spent + balance.reserved <= getattr(self, "limit", 0)
        assert balance.reserved == sum(one.amount for one in self.known.values() if one.state == "open")
        written = {name: one for name, one in self.known.items() if one.state in ("billed", "settled")}
        assert balance.spent == sum(one.spent for one in written.values())
        ledger = self.run(self.store.entries(0.0, 1e12))
        assert sorted((entry.exchange_id, entry.cost, entry.estimated) for entry in ledger) == sorted(
            (name, one.spent, one.state == "billed") for name, one in written.items()
        )


class OnSqlite(Machine):
    """The same, on a file; one with a restart."""

    async def opened(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return await SqliteStore.open(Path(self.folder.name) / "store")

    @rule()
    def restart(self) -> None:
        self.run(self.store.aclose())
        self.store = self.run(SqliteStore.open(Path(self.folder.name) / "store"))

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


TestOnMemory = Machine.TestCase
TestOnMemory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestOnSqlite = OnSqlite.TestCase
TestOnSqlite.settings = settings(
    max_examples=12, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
