"""A hard limit is never passed, whatever happens in whichever order, on every engine that needs no server; and no
request costs more than what is reserved for it, however it asks and whoever reads it.

The machine plays workers that reserve, settle, release, renew, die and come back late, and every call may come again.
After each step what is spent and reserved is at most the limit, the counters are what a plain model of exchanges adds
up to, and every exchange stands in the ledger as often as it should: once, or not at all.
"""

import asyncio
import json
import math
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.models.charges import bill, most_cost
from proxy.protocol.prices import Price
from proxy.protocol.request import head_of
from proxy.protocol.request.demand import demand_of
from proxy.protocol.response.usage import NOTHING_REPORTED, Usage
from proxy.storage import Charge, Granted, LedgerEntry, Release, Reserve, Settle, Store
from proxy.storage.sqlite import MemoryStore, SqliteStore
from tests.examples import examples

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
            LedgerEntry(name, self.now, TEAM, cost=before.amount if before else amount),
        )  # fmt: skip
        answer = self.run(self.store.reserve(ask, self.now))
        self.expire()
        if before is not None:
            assert isinstance(answer, Granted), "known: granted as before, and held on to"
            if before.state == "open":
                before.expires_at = max(before.expires_at, self.now + LEASE_S)
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
        self.run(
            self.store.settle(Settle(LedgerEntry(name, self.now, TEAM, cost=cost), [Charge(ACCOUNT, cost)]), self.now)
        )
        if one.state != "settled":
            one.state, one.spent = "settled", cost

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def release(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.known)))
        self.run(self.store.carry_out(TEAM, [Release(name, TEAM)], self.now))
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
        balance = self.run(self.store.balance(TEAM, Charge(ACCOUNT, 0), self.now))
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
TestOnMemory.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestOnSqlite = OnSqlite.TestCase
TestOnSqlite.settings = settings(
    max_examples=examples(12), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


# What a request asks for

LONGEST = 1000
PRICE = Price(1e-6, 1e-5, 1e-7, 1.25e-6, 2e-6, max_output_tokens=LONGEST)
KNOWN = {
    "/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/completions": ("max_tokens",),
    "/responses": ("max_output_tokens",),
    "/messages": ("max_tokens",),
}
COUNTS = ("n", "best_of", "num_completions")
NUMBERS = st.one_of(
    st.integers(-3, 2000),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-3, max_value=2000),
    st.integers(0, 2000).map(str),
    st.sampled_from([None, True, False, "x", "1_0", " 7 ", "1e2", [5], {"a": 1}]),
)
NAMES = st.sampled_from(("max_tokens", "max_completion_tokens", "max_output_tokens", *COUNTS))
Reader = Callable[[object], int | None]


def strict(found: object) -> int | None:
    """A server that knows whole numbers, and passes over the rest."""
    return found if type(found) is int and found > 0 else None


def lenient(found: object) -> int | None:
    """A server that makes a number of whatever it can."""
    try:
        number = float(str(found).replace("_", ""))
    except ValueError:
        return 1 if found is True else None
    return math.ceil(number) if 0 < number < 1e15 else None


def output_of(path: str, body: Mapping[str, object], read: Reader, largest: bool) -> int:
    """How much a server answers that knows the path's limits, and takes the largest of several, or the first."""
    limits = [limit for name in KNOWN[path] if (limit := read(body.get(name))) is not None]
    longest = LONGEST if not limits else max(limits) if largest else limits[0]
    answers = max(1, *(read(body.get(name)) or 1 for name in COUNTS))
    prompts = body.get("prompt")
    if path == "/completions" and isinstance(prompts, list):
        answers *= max(1, len(prompts))
    return longest * answers


@settings(max_examples=examples(300), deadline=None)
@given(
    path=st.sampled_from(sorted(KNOWN)),
    members=st.dictionaries(NAMES, NUMBERS, max_size=5),
    prompt=st.one_of(st.none(), st.text(max_size=3), st.lists(st.text(max_size=3), max_size=5)),
    read=st.sampled_from([strict, lenient]),
    largest=st.booleans(),
)
def test_no_request_costs_more_than_is_reserved_for_it(
    path: str, members: dict[str, Any], prompt: object, read: Reader, largest: bool
) -> None:
    body = {"model": "m", **members, **({"prompt": prompt} if path == "/completions" else {})}
    demand = demand_of("POST", path, head_of(json.dumps(body).encode()).asked)
    if demand.unclear:
        return
    limit = demand.max_output_tokens
    longest = limit if limit is not None else max(LONGEST, demand.least_output_tokens)
    reserved = most_cost(PRICE, demand, 100, longest * demand.answers, long_life=False)
    spent = bill(PRICE, demand, Usage(100, output_of(path, body, read, largest)), NOTHING_REPORTED)
    assert reserved is not None
    assert spent is not None
    assert spent.total_usd * 1e9 <= reserved + 1
