"""While the store is away or strange, or the provider still works: what is reserved, and what is billed later."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from proxy.engine.conclusion import bill_of, owing
from proxy.engine.exchange import ExchangeOutcome, Principal, Settlement
from proxy.kit.errors import BudgetExceeded, BudgetUnavailable, StoreError
from proxy.models import Deployment, RateLimit
from proxy.models.charges import Rule
from proxy.protocol.response.outcome import Outcome, Said
from proxy.protocol.response.usage import Usage
from proxy.storage import Charge, Granted, Refused, Reserve
from proxy.teams.bookings import counter_of
from proxy.teams.reservations import DEFERRED_S
from proxy.teams.store_client import Epochs
from tests.doubles import ManualClock, ModelList
from tests.money import (
    DOLLAR,
    MODEL,
    MOST,
    NOW,
    RED,
    SIZE,
    TOTAL,
    FixedRules,
    Flaky,
    budgeting,
    exchange,
    reserved,
    spent,
)
from tests.waiting import until_async


async def test_with_allow_traffic_goes_on_and_its_spend_is_written_later(tmp_path: Path) -> None:
    async with budgeting(TOTAL, spool=tmp_path) as one:
        before, during = exchange(SIZE), exchange(SIZE)
        await one.reserve(before)
        one.store.is_out = True
        await one.settle(before, Usage(50, 0))
        assert one.store_client.is_away
        assert one.sample("spool_pending") == 1
        await one.reserve(during)
        await one.settle(during, Usage(30, 0))
        assert (one.store_client.pending, one.sample("store_away"), one.sample("spool_pending")) == (2, 1, 2)
        one.store.is_out = False
        await one.in_step()
        assert await spent(one) == (80 * DOLLAR, 0)
        assert one.sample("spool_replayed_total") == 2
        assert len(await one.store.entries(0, NOW + 1)) == 2


async def test_a_reservation_that_was_refused_at_its_second_try_holds_nothing_when_the_first_try_arrives_late() -> None:
    class Slow(Flaky):
        """It loses the first call of a reservation on its way."""

        late: list[Reserve] = []

        async def reserve(self, ask: Reserve, now: float) -> Granted | Refused:
            if not self.late:
                self.late.append(ask)
                raise StoreError("nothing is heard")
            return await super().reserve(ask, now)

    store = Slow()
    async with budgeting(TOTAL, store=store) as one:
        await store.set_spent("red", Charge("b:total:-:total", 1000 * DOLLAR), NOW)
        refused = exchange(SIZE)
        with pytest.raises(BudgetExceeded):
            await one.reserve(refused)
        await one.reservations.settle(refused)
        await store.set_spent("red", Charge("b:total:-:total", 0), NOW)
        assert isinstance(await store.reserve(store.late[0], NOW), Granted)
        assert await spent(one) == (0, 0)


async def test_what_is_sent_without_the_store_is_billed_even_if_this_process_dies(tmp_path: Path) -> None:
    store, clock = Flaky(), ManualClock(NOW)
    async with budgeting(TOTAL, store=store, spool=tmp_path / "dead", clock=clock) as dead:
        store.is_out = True
        settled, runs, unsent = exchange(SIZE), exchange(SIZE), exchange(SIZE)
        for each in (settled, runs, unsent):
            await dead.reserve(each)
        await dead.settle(settled, Usage(30, 0))
        await dead.reservations.settle(unsent)
        # As a kill does: what is on the disk at this moment is all that the next process finds.
        copytree(tmp_path / "dead", tmp_path / "left")
    store.is_out = False
    async with budgeting(TOTAL, store=store, spool=tmp_path / "left", clock=clock) as one:
        await one.in_step()
        clock.set(NOW + 100)
        await store.expire(NOW + 100)
        assert await spent(one) == (30 * DOLLAR + MOST, 0)
        entries = {entry.exchange_id: entry for entry in await one.store.entries(0, NOW + 1)}
        assert entries.keys() == {settled.arrival.id, runs.arrival.id}
        lost = entries[runs.arrival.id]
        assert (lost.estimated, lost.ending, lost.cost) == (True, "lost", MOST)
        assert not entries[settled.arrival.id].estimated


async def test_what_still_runs_when_the_store_is_back_holds_its_reservation_and_is_settled_in_full(
    tmp_path: Path,
) -> None:
    store, clock = Flaky(), ManualClock(NOW)
    async with budgeting(TOTAL, store=store, spool=tmp_path, clock=clock, lease_s=0.06) as one:
        store.is_out = True
        runs = exchange(SIZE)
        await one.reserve(runs)
        clock.set(NOW + 1)  # longer than a lease
        store.is_out = False
        await one.in_step()
        await store.expire(NOW + 1)
        assert await spent(one) == (0, MOST), "it is not billed as one of a worker that died"
        for step in range(1, 4):  # longer than a lease: it is renewed
            clock.set(NOW + 1 + 0.04 * step)
            store.calls.clear()
            await until_async(lambda: store.calls.count("expire") >= 2)
        assert await spent(one) == (0, MOST)
        await one.settle(runs, Usage(30, 0))
        assert await spent(one) == (30 * DOLLAR, 0)
        (entry,) = await one.store.entries(0, NOW + 1)
        assert not entry.estimated


@pytest.mark.parametrize("policy", ["allow", "deny"])
async def test_with_deny_nothing_is_sent_that_cannot_be_written_down(tmp_path: Path, policy: str) -> None:
    (tmp_path / "file").write_text("no folder")
    store = Flaky()
    async with budgeting(store=store, spool=tmp_path / "file", on_store_error=policy) as one:
        store.is_out = True
        asked = exchange(SIZE)
        if policy == "allow":
            await one.reserve(asked)
            await one.settle(asked, Usage(30, 0))
        else:
            with pytest.raises(BudgetUnavailable, match="checked: what it spends cannot be written down.$"):
                await one.reserve(asked)
            await one.reservations.settle(asked)
        assert one.sample("store_errors_total", operation="spool") >= 1
        assert set(one.store_client.troubles) == {"store", "spool"}
        store.is_out = False
        await one.in_step()
        assert one.store_client.troubles == {}
        assert len(await one.store.entries(0, NOW + 1)) == (policy == "allow")


async def test_with_deny_rules_that_nobody_has_read_yet_may_hold_for_anybody(tmp_path: Path) -> None:
    async with budgeting(spool=tmp_path, on_store_error="deny") as one:
        one.store.is_out = True
        one.rules.are_known = False
        with pytest.raises(
            BudgetUnavailable, match="^The budgets of team 'red' cannot be checked: the store does not answer.$"
        ):
            await one.reserve(exchange(SIZE))
        one.rules.are_known = True
        await one.reserve(exchange(SIZE))


async def test_with_deny_an_outage_refuses_whom_a_budget_holds_for(tmp_path: Path) -> None:
    async with budgeting(TOTAL, spool=tmp_path, on_store_error="deny") as one:
        before = exchange(SIZE)
        await one.reserve(before)
        one.store.is_out = True
        for _ in range(2):
            with pytest.raises(BudgetUnavailable) as caught:
                await one.reserve(exchange(SIZE))
            assert caught.value.status == 503
        one.rules.held = [Rule("rate", "r", unit="requests", hard=0, window="minute", is_rate=True)]
        await one.reserve(exchange(SIZE, who=Principal("s", "blue")))
        one.rules.held = [TOTAL]
        await one.settle(before, Usage(50, 0))
        one.store.is_out = False
        await one.in_step()
        assert await spent(one) == (50 * DOLLAR, 0), "what was reserved stayed reserved until it was settled"
        await one.reserve(exchange(SIZE))


async def test_the_accounts_are_looked_at_ahead_of_the_first_request() -> None:
    store = Flaky()
    async with budgeting(TOTAL, store=store) as one:
        await one.settle(await reserved(one, exchange(SIZE)), Usage(50, 0))
    async with budgeting(TOTAL, store=store) as one:
        assert one.reservations.alerts.remaining() == {}
        rolling = replace(TOTAL, id="rolling", hard=70 * DOLLAR, window="rolling:3600")
        await one.reservations.alerts.look([("red", TOTAL), ("red", rolling)], NOW)
        assert one.reservations.alerts.remaining()["red"][0] == 70.0, "the least of them"


LOST = "checked: the store was emptied or exchanged. An operator must restore its counters or accept it first.$"


class Emptied(Flaky):
    """A store that can be emptied."""

    async def empty(self) -> None:
        await self._do("write", lambda connection: connection.execute("DELETE FROM fact"))
        await self._do("write", lambda connection: connection.execute("DELETE FROM counter"))

    async def reserved(self) -> int:
        found = await self._do(
            "write", lambda connection: connection.execute("SELECT sum(reserved) FROM counter").fetchone()
        )
        return int(found[0] or 0)


@pytest.mark.parametrize("policy", ["allow", "deny"])
async def test_a_store_that_was_emptied_is_seen_by_the_first_request(policy: str) -> None:
    store = Emptied()
    epochs = Epochs(store, None)
    async with budgeting(TOTAL, store=store, on_store_error=policy, epochs=epochs) as one:
        await one.reserve(exchange(1))
        await store.empty()
        if policy == "allow":
            await one.reserve(exchange(1))
            assert epochs.trouble
            await one.reserve(exchange(1))
            return
        for number in range(3):
            store.calls.clear()
            with pytest.raises(BudgetUnavailable, match=LOST):
                await one.reserve(exchange(1))
            assert ("reserve" in store.calls) is (number == 0), "once that is known, nothing is reserved"
        assert await store.reserved() == 0, "it was given back"
        await epochs.restored(counter_of("red", TOTAL))
        await one.reserve(exchange(1))
        one.rules.held = [TOTAL, replace(TOTAL, id="other")]
        with pytest.raises(BudgetUnavailable):
            await one.reserve(exchange(1))
        await epochs.accept()
        await one.reserve(exchange(1))
        assert not epochs.trouble


async def test_a_store_that_was_emptied_refuses_nothing_that_no_hard_budget_holds_for() -> None:
    store = Emptied()
    soft = replace(TOTAL, hard=None, soft=1)
    async with budgeting(soft, store=store, on_store_error="deny", epochs=Epochs(store, None)) as one:
        await one.reserve(exchange(1))
        await store.empty()
        await one.reserve(exchange(1))
        await one.reserve(exchange(1))


async def test_what_the_provider_still_works_on_stays_reserved_for_an_hour_and_is_billed_then() -> None:
    async with budgeting(TOTAL, lease_s=60.0) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=10)
        await one.reservations.defer(asked)
        await one.store.expire(NOW + 3590)
        assert await spent(one) == (0, MOST + 10 * DOLLAR)
        await one.store.expire(NOW + 3610)
        (entry,) = await one.store.entries(0, NOW + 1)
        assert (entry.exchange_id, entry.estimated) == (asked.arrival.id, True)
        assert await spent(one) == (entry.cost, 0)
        assert entry.cost > 0


async def test_what_was_set_aside_for_further_calls_is_given_back_when_the_last_one_is_deferred() -> None:
    async with budgeting(TOTAL) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=10)
        assert await one.reservations.extend(asked, Settlement(Usage(1, 0), 20.0))
        assert await spent(one) == (0, MOST + 30 * DOLLAR)
        await one.reservations.defer(asked)
        assert await spent(one) == (0, MOST + 10 * DOLLAR)


async def test_a_deferred_exchange_is_billed_with_what_it_did_cost_where_that_is_known_in_time() -> None:
    async with budgeting(TOTAL) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=10)
        await one.reservations.defer(asked)
        asked.attempts, asked.ending = 1, ExchangeOutcome.COMPLETED
        asked.settlement = Settlement(Usage(50, 7), 57.0)
        await one.reservations.settle_later(asked)
        assert await spent(one) == (57 * DOLLAR, 0)
        await one.store.expire(NOW + 7200)
        (entry,) = await one.store.entries(0, NOW + 1)
        assert (entry.ending, entry.estimated, entry.cost) == ("completed", False, 57 * DOLLAR)


async def test_a_deferred_exchange_is_settled_in_the_budgets_of_all_models_that_it_names() -> None:
    """Its provider may have chosen any of them."""

    class RulesOfModels(FixedRules):
        def rules(self, principal: Principal, *deployments: Deployment) -> Sequence[Rule]:
            return [replace(TOTAL, whom=one.name) for one in deployments]

    models = ModelList({name: replace(MODEL, name=name, id=name) for name in ("m", "n")})

    async with budgeting() as one:
        one.reservations._rules = RulesOfModels()
        asked = exchange(SIZE)
        asked.deployment, asked.requested.further = models.resolve("m"), [models.resolve("n")]
        await one.reservations.reserve(asked)
        await one.reservations.defer(asked)
        shown = exchange()
        shown.answer.outcome = Outcome(said=Said())
        later = owing(bill_of(asked), shown, models)
        assert later is not None
        later.settlement = Settlement(Usage(50, 7), 57.0)
        await one.reservations.settle_later(later)
        for model in ("m", "n"):
            assert await spent(one, f"b:total:{model}:total") == (57 * DOLLAR, 0)


async def test_a_deferred_exchange_counts_in_the_rates_of_its_key_when_it_is_settled() -> None:
    class Rates(FixedRules):
        def rules(self, principal: Principal, *deployments: Deployment) -> Sequence[Rule]:
            return [Rule("rate/requests", "r", "requests", one.requests, is_rate=True) for one in principal.rates]

    async with budgeting() as one:
        one.reservations._rules = Rates()
        asked = exchange(SIZE, who=replace(RED, rates=[RateLimit("key-1", requests=5)]))
        await one.reservations.reserve(asked)
        await one.reservations.defer(asked)
        shown = exchange()
        shown.answer.outcome = Outcome(said=Said())
        later = owing(bill_of(asked), shown, ModelList({"m": MODEL}))
        assert later is not None
        later.settlement = Settlement(Usage(50, 7), 57.0)
        await one.reservations.settle_later(later)
        assert await spent(one, "r:rate/requests:-:total") == (1, 0)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("is_late", [False, True])
async def test_an_exchange_that_is_deferred_while_the_store_is_away_costs_what_it_did_cost(
    tmp_path: Path, is_known: bool, is_late: bool
) -> None:
    async with budgeting(TOTAL, spool=tmp_path, retry_s=0.01, lease_s=60.0) as one:
        asked = exchange(SIZE)
        one.store.is_out = not is_known
        await one.reserve(asked, limit=10)
        one.store.is_out = True
        await one.reservations.defer(asked)
        one.store.is_out = False
        await one.in_step()
        assert await spent(one) == (0, MOST + 10 * DOLLAR)
        if is_late:
            await one.store.expire(NOW + 2 * DEFERRED_S)
            assert await spent(one) == (MOST + 10 * DOLLAR, 0)
        asked.attempts, asked.ending, asked.settlement = 1, ExchangeOutcome.COMPLETED, Settlement(Usage(50, 7), 57.0)
        await one.reservations.settle_later(asked)
        (entry,) = await one.store.entries(0, NOW + 1)
        assert (entry.cost, entry.estimated) == (57 * DOLLAR, False)
        assert await spent(one) == (57 * DOLLAR, 0)


async def test_an_exchange_that_is_deferred_and_that_nothing_keeps_is_billed_at_once() -> None:
    async with budgeting(TOTAL, retry_s=0.01) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=10)
        one.store.is_out = True
        await one.reservations.defer(asked)
        one.store.is_out = False
        await one.in_step()
        (entry,) = await one.store.entries(0, NOW + 1)
        assert (entry.ending, entry.estimated, entry.cost > 0) == ("deferred", True, True)
        assert await spent(one) == (entry.cost, 0)


async def test_what_was_reserved_for_nobody_is_not_deferred() -> None:
    async with budgeting(TOTAL) as one:
        await one.reservations.defer(exchange(SIZE))
        assert await spent(one) == (0, 0)


async def test_a_deferred_estimate_is_the_only_one_of_its_limit_until_it_is_billed() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % (b"word " * 800)

    for is_known in (True, False):
        async with budgeting(replace(TOTAL, hard=7000 * DOLLAR)) as one:
            first, second = (exchange(len(body), sent=((body, 0),)) for _ in range(2))
            await one.reserve(first)
            assert first.reservation.estimated
            assert 800 <= first.counted_tokens < len(body) / 2, (
                "from this and the usage it is learnt how much is counted"
            )
            await one.reservations.defer(first)
            with pytest.raises(BudgetExceeded):
                await one.reserve(second)
            await one.settle(second)
            if is_known:
                first.attempts, first.ending, first.settlement = 1, ExchangeOutcome.COMPLETED, Settlement()
                await one.reservations.settle_later(first)
            else:
                await one.store.expire(NOW + DEFERRED_S + 1)
            await one.reserve(exchange(len(body), NOW + (0 if is_known else DEFERRED_S + 1), sent=((body, 0),)))
