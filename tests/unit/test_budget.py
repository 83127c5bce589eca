"""Reservations, settlements, and what a store that fails may and may not do."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy import budget as budget_module
from proxy.budget import Budgets
from proxy.core.budget import Limit
from proxy.core.prices import Price
from proxy.core.profiles import NONE
from proxy.errors import BudgetExceeded, BudgetUnavailable, Forbidden
from proxy.ports import Deployment, Reservation, StoreError, Subject, Transport
from proxy.state.memory import MemoryStore

MODEL = Deployment("m", "m", Transport.HTTP, NONE)
RED = Subject("scope", "red")
PRICE = Price(input=0.01, output=0.1, read=0.001, write_5m=0.01, write_1h=0.02)


class Flaky(MemoryStore):
    """A store that can be taken away."""

    is_out = False
    calls = 0

    async def add_spend(self, exchange_id: str, team: str, usd: float, at: float) -> float:
        self._check()
        return await super().add_spend(exchange_id, team, usd, at)

    async def spent(self, team: str) -> float:
        self._check()
        return await super().spent(team)

    def _check(self) -> None:
        self.calls += 1
        if self.is_out:
            raise StoreError("gone fishing")


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def budgets(store: MemoryStore, on_error: Any = "allow", price: Price | None = PRICE, usd: float = 1.0) -> Budgets:
    return Budgets({"red": Limit(usd, assumed_output_tokens=5), "blue": None}, store, lambda _: price, on_error)


async def reserve(
    money: Budgets, exchange: str, tokens: int = 10, output: int | None = 0, who: Subject = RED
) -> Reservation:
    return await money.reserve(exchange, who, MODEL, tokens, output)


def test_money_is_reserved_at_the_dearest_rate_and_settled_to_what_it_was() -> None:
    async def main() -> None:
        store = MemoryStore()
        money = budgets(store)
        reservation = await reserve(money, "a")
        assert reservation.usd == pytest.approx(0.2)
        await money.settle(reservation, 0.9, now=1.0)
        assert await store.spent("red") == pytest.approx(0.9)
        with pytest.raises(BudgetExceeded) as caught:
            await reserve(money, "b")
        assert caught.value.status == 429
        assert caught.value.headers == {"x-should-retry": "false"}
        assert caught.value.message == (
            "The budget of team 'red' does not allow this request: $0.90 of the budget of $1.00 is spent, "
            "and this request may cost up to $0.20 (a lower output limit lowers that)."
        )
        await reserve(money, "c", tokens=5)

    run(main)


def test_output_is_reserved_as_the_request_limits_it_or_as_assumed() -> None:
    async def main() -> None:
        money = budgets(MemoryStore(), usd=100)
        assert (await reserve(money, "a", output=None)).usd == pytest.approx(0.2 + 5 * 0.1)
        assert (await reserve(money, "b", output=2)).usd == pytest.approx(0.2 + 2 * 0.1)

    run(main)


def test_many_at_once_cannot_pass_the_limit_together() -> None:
    async def main() -> None:
        money = budgets(MemoryStore())
        asked = await asyncio.gather(*(reserve(money, str(i)) for i in range(20)), return_exceptions=True)
        held = [one for one in asked if isinstance(one, Reservation)]
        assert len(held) == 5  # of $0.20 each
        assert all(isinstance(one, BudgetExceeded) for one in asked if one not in held)
        await money.settle(held[0], 0.0, 1.0)
        await reserve(money, "again")

    run(main)


def test_a_failed_request_releases_its_money_and_writes_nothing() -> None:
    async def main() -> None:
        store = Flaky()
        money = budgets(store)
        reservation = await reserve(money, "a", tokens=50)
        with pytest.raises(BudgetExceeded):
            await reserve(money, "b")
        calls = store.calls
        await money.settle(reservation, 0.0, 1.0)
        assert store.calls == calls
        await reserve(money, "b", tokens=50)

    run(main)


def test_a_new_process_goes_on_from_what_was_spent() -> None:
    async def main() -> None:
        store = MemoryStore()
        money = budgets(store)
        await money.settle(await reserve(money, "a"), 0.95, 1.0)
        with pytest.raises(BudgetExceeded):
            await reserve(budgets(store), "b")

    run(main)


def test_two_processes_on_one_store_follow_each_other() -> None:
    async def main() -> None:
        store = MemoryStore()
        one, two = budgets(store), budgets(store)
        first, second = await reserve(one, "a"), await reserve(two, "b")
        await one.settle(first, 0.5, 1.0)
        await two.settle(second, 0.4, 1.0)
        with pytest.raises(BudgetExceeded, match="\\$0.90 of"):
            await reserve(two, "c")

    run(main)


def test_teams_without_a_budget_are_recorded_and_strangers_are_not() -> None:
    async def main() -> None:
        store = MemoryStore()
        money = budgets(store)
        for team in ("blue", "green"):
            reservation = await reserve(money, team, who=Subject("s", team), tokens=10**9)
            assert reservation.usd == 0
            await money.settle(reservation, 7.0, 1.0)
        assert await store.spent("blue") == 7.0
        assert await store.spent("green") == 0.0

    run(main)


def test_a_budget_cannot_hold_where_the_price_is_not_known() -> None:
    async def main() -> None:
        money = budgets(MemoryStore(), price=None)
        with pytest.raises(Forbidden, match="Add it to `stratiform.prices`") as caught:
            await reserve(money, "a")
        assert caught.value.code == "model_price_unknown"
        assert (await reserve(money, "files", tokens=0, output=None)).usd == 0

    run(main)


def test_a_store_that_is_out_at_the_start_refuses_nobody_unless_told_to() -> None:
    async def main() -> None:
        store = Flaky()
        store.is_out = True
        await reserve(budgets(store), "a")
        with pytest.raises(BudgetUnavailable) as caught:
            await reserve(budgets(store, "deny"), "a")
        assert caught.value.status == 503
        assert "team 'red' cannot be checked" in caught.value.message

    run(main)


def test_spend_that_could_not_be_written_counts_and_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        store = Flaky()
        money = budgets(store)
        first, second = await reserve(money, "a"), await reserve(money, "b")
        store.is_out = True
        await money.settle(first, 0.5, 1.0)
        await money.settle(second, 0.45, 2.0)
        assert (money.store_errors, await MemoryStore.spent(store, "red")) == (1, 0.0)
        with pytest.raises(BudgetExceeded, match="\\$0.95 of"):
            await reserve(money, "c")
        store.is_out = False
        monkeypatch.setattr(budget_module, "_RETRY_S", 0.0)
        money._retry_at = 0.0
        await reserve(money, "d", tokens=2)
        assert await store.spent("red") == pytest.approx(0.95)

    run(main)


def test_an_outage_is_not_tried_again_by_every_request() -> None:
    async def main() -> None:
        store = Flaky()
        money = budgets(store)
        reservation = await reserve(money, "a")
        store.is_out = True
        await money.settle(reservation, 0.1, 1.0)
        calls = store.calls
        for i in range(5):
            await money.settle(await reserve(money, str(i)), 0.01, 1.0)
        assert store.calls == calls

    run(main)


def test_with_deny_an_outage_refuses_budgeted_teams_until_it_is_over() -> None:
    async def main() -> None:
        store = Flaky()
        money = budgets(store, "deny")
        reservation = await reserve(money, "a")
        store.is_out = True
        await money.settle(reservation, 0.1, 1.0)
        with pytest.raises(BudgetUnavailable):
            await reserve(money, "b")
        await money.settle(await reserve(money, "c", who=Subject("s", "blue")), 0.1, 1.0)
        store.is_out = False
        money._retry_at = 0.0
        await reserve(money, "d")
        assert await store.spent("red") == pytest.approx(0.1)
        assert await store.spent("blue") == pytest.approx(0.1)

    run(main)


def test_closing_writes_what_is_left() -> None:
    async def main() -> None:
        store = Flaky()
        money = budgets(store)
        reservation = await reserve(money, "a")
        store.is_out = True
        await money.settle(reservation, 0.1, 1.0)
        store.is_out = False
        await money.aclose()
        assert await store.spent("red") == pytest.approx(0.1)

    run(main)
