"""Calls of the store, in short notation."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from proxy.storage import Charge, LedgerEntry, Reserve, Settle, Store
from tests.contract.stores import Check

OnEach = Callable[[Check], None]
T = 1_700_000_000.0
"""When the calls are made, in seconds since 1970."""
LEASE_S = 60.0


def on_each_store(check: Check) -> Callable[[OnEach], None]:
    """Run a test on each engine of the store."""

    def test(on_each: OnEach) -> None:
        on_each(check)

    test.__doc__ = check.__doc__
    return test


def entry(name: str, cost: int = 0, at: float = T, team: str = "red", **more: object) -> LedgerEntry:
    """A line of the ledger."""
    return replace(LedgerEntry(name, at, team, cost=cost), **more)


def ask(name: str, *charges: Charge, at: float = T, team: str = "red", expires_at: float | None = None) -> Reserve:
    """A call that reserves."""
    cost = charges[0].amount if charges else 0
    return Reserve(name, team, charges, expires_at or at + LEASE_S, entry(name, cost, at, team))


def end(name: str, *final: Charge, at: float = T, team: str = "red", **more: object) -> Settle:
    """A call that settles."""
    return Settle(entry(name, final[0].amount if final else 0, at, team, **more), final)


async def balance(store: Store, account: str = "a", team: str = "red") -> tuple[int, int, int]:
    """What is spent, reserved and expected of an account."""
    found = await store.balance(team, Charge(account, 0), T)
    assert found.account == account
    return found.spent, found.reserved, found.expected


async def ledger(store: Store, **more: object) -> Sequence[LedgerEntry]:
    """Every line of the ledger."""
    return await store.entries(0.0, 1e12, **more)  # type: ignore[arg-type]
