"""Served, booked, counted: what the provider wrote down, the ledger and the budgets' counters, compared call by call.

Every call carries its id as ``user``, which the provider records and the ledger keeps. A call that no kill has cut off
must be booked with exactly what the provider billed. An entry that is marked as estimated belongs to a call whose
client never had its whole answer, and is not below what the provider billed.
"""

import asyncio
import io
import json
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from proxy.cli import main
from proxy.models.charges import NANOS_PER_USD
from proxy.storage import Charge, LedgerEntry
from proxy.storage.redis import RedisStore
from proxy.storage.sqlite import SqliteStore
from tests.drill.clients import Told
from tests.drill.upstream import Served

ACCOUNT = "b:total:-:total"
"""The counter of a team's budget that never begins anew."""
_AN_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Books:
    """What a store holds: the ledger, and of each team's budget what is spent and what is reserved."""

    entries: Sequence[LedgerEntry]
    spent: dict[str, int]
    reserved: dict[str, int]


def read(store: str, teams: Iterable[str], account: str = ACCOUNT, *, ahead_s: float = _AN_HOUR_S) -> Books:
    """Read a store, after the reservations of workers that died have been billed, as they are a minute later."""

    async def main() -> Books:
        opened = (
            RedisStore(store, timeout_s=20.0)
            if store.startswith("redis")
            else await SqliteStore.open(Path(store.removeprefix("sqlite:")))
        )
        try:
            await opened.expire(time.time() + ahead_s)
            entries: list[LedgerEntry] = []
            while page := await opened.entries(
                entries[-1].at if entries else 0.0, 1e12, entries[-1].exchange_id if entries else ""
            ):
                entries += page
            spent, reserved = {}, {}
            for team in teams:
                found = await opened.balance(team, Charge(account, 0), time.time())
                spent[team], reserved[team] = found.spent, found.reserved
            return Books(entries, spent, reserved)
        finally:
            await opened.aclose()

    return asyncio.run(main())


def reported_nanos(store: str) -> int:
    """The sum that ``stratiform spend`` prints for this store."""
    rows = json.loads(stratiform("spend", "--store", store, "--since", "7d", "--json"))["data"]
    return round(sum(row["cost_usd"] for row in rows) * NANOS_PER_USD)


def stratiform(*words: str) -> str:
    """What the command prints."""
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as said:
        code = main(words)
    assert code == 0, said.getvalue()
    return printed.getvalue()


@dataclass(slots=True)
class Comparison:
    """Sums in nano-dollars, and every way in which they can differ. No fault: ``faults`` is empty."""

    served: int = 0
    ledger: int = 0
    counter: int = 0
    limited: int = 0
    """What the ledger says of the teams that have a counter."""
    estimated: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """Whether nothing is missing, wrong, booked twice or counted otherwise."""
        return not self.faults

    def sums(self) -> str:
        """Served, ledger and budget, in USD; of budgets, what they count and what the ledger has of their teams."""
        served, ledger, counter, limited = (
            f"{nanos / NANOS_PER_USD:.6f}" for nanos in (self.served, self.ledger, self.counter, self.limited)
        )
        return f"{served} / {ledger} / {counter}" + (f" of {limited}" if self.limited != self.ledger else "")


def compare(
    served: Iterable[Served],
    told: Iterable[Told],
    books: Books,
    *,
    unlimited: Collection[str] = (),
    ceiling: int | None = None,
) -> Comparison:
    """Compare them. ``unlimited`` teams have no counter; ``ceiling`` is the most that one call is reserved with."""
    found = Comparison()
    told = {one.id: one for one in told}
    costs: dict[str, int | None] = {}
    for call in served:
        before = costs.get(call.id, 0)
        costs[call.id] = None if before is None or call.nanos is None else before + call.nanos
    found.served = sum(cost or 0 for cost in costs.values())
    found.ledger = sum(entry.cost for entry in books.entries)
    found.counter = sum(books.spent[team] for team in books.spent if team not in unlimited)
    found.estimated = [entry.user for entry in books.entries if entry.estimated]
    booked = {entry.user: entry for entry in books.entries}
    names = Counter(entry.user for entry in books.entries)
    _add(found, "booked twice", [name for name, count in names.items() if count > 1])
    _add(found, "served and not booked", [name for name, cost in costs.items() if cost != 0 and name not in booked])
    _add(
        found, "booked wrongly", [e.user for e in booked.values() if not e.estimated and e.cost != costs.get(e.user, 0)]
    )
    _add(
        found, "estimated below what was served", [e.user for e in booked.values() if e.cost < (costs.get(e.user) or 0)]
    )
    _add(found, "estimated above its reservation", [
        e.user for e in booked.values() if ceiling is not None and e.estimated and e.cost > ceiling
    ])  # fmt: skip
    _add(found, "estimated although the answer was whole", [
        e.user for e in booked.values()
        if e.estimated and costs.get(e.user) is not None and e.user in told and told[e.user].is_complete
    ])  # fmt: skip
    for team, spent in books.spent.items():
        sum_of_team = sum(entry.cost for entry in books.entries if entry.team == team)
        if team not in unlimited:
            found.limited += sum_of_team
        if team not in unlimited and spent != sum_of_team:
            found.faults.append(f"the counter of {team} says {_usd(spent)}, its entries {_usd(sum_of_team)}")
        if books.reserved[team]:
            found.faults.append(f"{team}: {_usd(books.reserved[team])} stay reserved")
    return found


def _add(found: Comparison, fault: str, names: Sequence[str]) -> None:
    if names:
        found.faults.append(f"{len(names)} {fault} ({', '.join(sorted(names)[:3])} ...)")


def _usd(nanos: int) -> str:
    return f"${nanos / NANOS_PER_USD:.6f}"
