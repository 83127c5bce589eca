"""What every engine of the store promises (``proxy.storage``), on each of them: reservations and settlements."""

import asyncio
from dataclasses import replace

from proxy.storage import REMEMBERED_S, Balance, Charge, Granted, Refused, Release, Settle, Store
from tests.contract.store_calls import LEASE_S, T, ask, balance, end, entry, ledger, on_each_store


@on_each_store
async def test_a_reservation_is_settled_to_what_its_exchange_cost(store: Store) -> None:
    charges = [Charge("a", 50, 100, expected=20), Charge("tokens", 7, None, keep_s=60.0, expected=5)]
    granted = await store.reserve(ask("x", *charges), T)
    assert granted == Granted([Balance("a", 0, 50, 20), Balance("tokens", 0, 7, 5)])
    assert await ledger(store) == []
    final = [Charge("a", 30), Charge("tokens", 6, keep_s=60.0)]
    assert await store.settle(end("x", *final), T) == [Balance("a", 30, 0), Balance("tokens", 6, 0)]
    assert await balance(store) == (30, 0, 0)
    assert await ledger(store) == [entry("x", 30)]


@on_each_store
async def test_all_charges_of_a_reservation_are_granted_or_none(store: Store) -> None:
    assert isinstance(await store.reserve(ask("x", Charge("b", 6, 10)), T), Granted)
    tight = Charge("b", 5, 10)
    refused = await store.reserve(ask("y", Charge("a", 5, 10), tight, Charge("c", 1)), T)
    assert refused == Refused(tight, Balance("b", 0, 6))
    assert [await balance(store, name) for name in "abc"] == [(0, 0, 0), (0, 6, 0), (0, 0, 0)]
    assert isinstance(await store.reserve(ask("y", Charge("b", 4, 10)), T), Granted), "a refusal leaves no trace"


@on_each_store
async def test_spent_and_reserved_may_reach_the_limit_and_not_pass_it(store: Store) -> None:
    await store.settle(end("w", Charge("a", 4)), T)
    assert isinstance(await store.reserve(ask("x", Charge("a", 3, 10)), T), Granted)
    assert isinstance(await store.reserve(ask("y", Charge("a", 4, 10)), T), Refused)
    assert isinstance(await store.reserve(ask("y", Charge("a", 3, 10)), T), Granted)
    assert isinstance(await store.reserve(ask("z", Charge("a", 1, 10)), T), Refused)
    assert isinstance(await store.reserve(ask("z", Charge("a", 0, 10)), T), Granted)
    assert isinstance(await store.reserve(ask("v", Charge("a", 1, 0)), T), Refused)
    assert isinstance(await store.reserve(ask("v", Charge("a", 1, None)), T), Granted)


@on_each_store
async def test_many_reservations_at_once_cannot_pass_the_limit_together(store: Store) -> None:
    asked = await asyncio.gather(*(store.reserve(ask(str(i), Charge("a", 3, 100)), T) for i in range(60)))
    granted = [i for i, one in enumerate(asked) if isinstance(one, Granted)]
    assert len(granted) == 33
    assert await balance(store) == (0, 99, 0)
    await asyncio.gather(*(store.settle(end(str(i), Charge("a", 2)), T) for i in granted))
    assert await balance(store) == (66, 0, 0)


@on_each_store
async def test_parts_of_a_rolling_window_count_together(store: Store) -> None:
    await store.settle(end("x", Charge("r:1", 4, keep_s=600.0)), T)
    assert isinstance(await store.reserve(ask("y", Charge("r:2", 3, 10, 600.0, 1, ("r:1",))), T), Granted)
    third = Charge("r:3", 4, 10, 600.0, 0, ("r:2", "r:1"))
    assert await store.reserve(ask("z", third), T) == Refused(third, Balance("r:3", 4, 3, 1))
    granted = await store.reserve(ask("z", replace(third, within=("r:2",))), T)
    assert granted == Granted([Balance("r:3", 0, 7, 1)])
    final = Charge("r:3", 2, None, 600.0, 0, ("r:2", "r:1"))
    assert await store.settle(end("z", final), T) == [Balance("r:3", 6, 3, 1)]


@on_each_store
async def test_teams_have_their_own_counters(store: Store) -> None:
    for team in ("red", "blue"):
        assert isinstance(await store.reserve(ask(team, Charge("a", 10, 10), team=team), T), Granted)
    await store.settle(end("blue", Charge("a", 1), team="blue"), T)
    assert (await balance(store), await balance(store, team="blue")) == ((0, 10, 0), (1, 0, 0))


@on_each_store
async def test_an_account_that_was_not_reserved_is_charged_and_one_not_named_is_not(store: Store) -> None:
    await store.reserve(ask("x", Charge("a", 5), Charge("b", 5)), T)
    await store.settle(end("x", Charge("b", 2), Charge("c", 3)), T)
    assert [await balance(store, name) for name in "abc"] == [(0, 0, 0), (2, 0, 0), (3, 0, 0)]


@on_each_store
async def test_an_exchange_without_charges_is_held_and_written_too(store: Store) -> None:
    assert await store.reserve(ask("x"), T) == Granted([])
    assert await store.settle(Settle(entry("x", 7), ()), T) == []
    await store.reserve(ask("y"), T)
    assert await store.expire(T + LEASE_S) == 1
    assert await ledger(store) == [entry("x", 7), entry("y", estimated=True)]


@on_each_store
async def test_repeating_a_call_of_the_store_changes_nothing(store: Store) -> None:
    for _ in range(3):
        assert await store.reserve(ask("x", Charge("a", 5, 9)), T) == Granted([Balance("a", 0, 5)])
    for _ in range(3):
        assert await store.settle(end("x", Charge("a", 4)), T) == [Balance("a", 4, 0)]
    await store.settle(end("x", Charge("a", 9)), T + 1)
    assert await store.reserve(ask("x", Charge("a", 5, 9)), T) == Granted([Balance("a", 4, 0)])
    assert await balance(store) == (4, 0, 0)
    assert await ledger(store) == [entry("x", 4)]


@on_each_store
async def test_a_reservation_that_is_released_leaves_nothing(store: Store) -> None:
    await store.reserve(ask("x", Charge("a", 5, 9, expected=2)), T)
    for _ in range(2):
        await store.carry_out("red", [Release("x", "red")], T)
        assert await balance(store) == (0, 0, 0)
    assert await store.expire(T + LEASE_S) == 0
    assert await ledger(store) == []


@on_each_store
async def test_a_reserve_that_comes_late_holds_nothing(store: Store) -> None:
    await store.settle(end("settled", Charge("a", 4)), T)
    await store.carry_out("red", [Release("released", "red")], T)
    for name in ("settled", "released"):
        assert isinstance(await store.reserve(ask(name, Charge("a", 5, 9)), T), Granted)
    assert await balance(store) == (4, 0, 0)
    assert await store.expire(T + LEASE_S) == 0


@on_each_store
async def test_a_release_that_comes_late_changes_nothing(store: Store) -> None:
    await store.reserve(ask("settled", Charge("a", 5)), T)
    await store.settle(end("settled", Charge("a", 4)), T)
    await store.reserve(ask("billed", Charge("a", 3)), T)
    await store.expire(T + LEASE_S)
    for name in ("settled", "billed"):
        await store.carry_out("red", [Release(name, "red")], T)
    assert await balance(store) == (7, 0, 0)
    assert len(await ledger(store)) == 2


@on_each_store
async def test_calls_that_were_put_off_are_carried_out_at_once_as_one_by_one(store: Store) -> None:
    for name in ("settled", "released", "billed", "released late"):
        await store.reserve(ask(name, Charge("a", 5), expires_at=T + (10 if "ed late" in name else 50)), T)
    await store.expire(T + 20)
    calls = [
        end("settled", Charge("a", 4), Charge("b", 1, keep_s=60.0, within=["c"])),
        end("alone", Charge("a", 2), user="ünï"),
        Release("released", "red"),
        Release("released late", "red"),
        Release("unknown", "red"),
        end("free"),
    ]
    for at in (T + 20, T + 21):  # carried out twice, nothing changes
        await store.carry_out("red", calls, at)
        assert await balance(store) == (4 + 2 + 5, 5, 0)
        assert (await store.balance("red", Charge("b", 0), at)).spent == 1
        assert {one.exchange_id for one in await ledger(store)} == {"settled", "alone", "released late", "free"}
    await store.carry_out("red", [], T)
    assert await store.expire(T + 50) == 1
    await store.carry_out("red", [end("billed", Charge("a", 1))], T + 51)
    assert await balance(store) == (4 + 2 + 5 + 1, 0, 0)
    assert [one.user for one in await ledger(store) if one.exchange_id == "alone"] == ["ünï"]


@on_each_store
async def test_a_reservation_that_was_put_off_stands_until_its_exchange_ends_or_it_expires(store: Store) -> None:
    await store.settle(end("settled", Charge("a", 4)), T)
    await store.carry_out("red", [Release("released", "red")], T)
    await store.reserve(ask("known", Charge("a", 8)), T)
    calls = [
        ask("lost", Charge("a", 16, keep_s=3600.0, within=["c"]), Charge("b", 1), expires_at=T + 10),
        ask("ended", Charge("a", 32)),
        ask("runs", Charge("a", 64)),
        *(ask(name, Charge("a", 1000)) for name in ("settled", "released", "known")),
        end("ended", Charge("a", 128)),
    ]
    for at in (T + 1, T + 2):  # carried out twice, nothing changes
        await store.carry_out("red", calls, at)
        assert await balance(store) == (4 + 128, 8 + 16 + 64, 0)
        assert {one.exchange_id for one in await ledger(store)} == {"settled", "ended"}
    assert await store.expire(T + 11) == 1
    assert await balance(store) == (4 + 128 + 16, 8 + 64, 0)
    await store.carry_out("red", calls, T + 12)
    await store.settle(end("runs", Charge("a", 1)), T + 12)
    assert await balance(store) == (4 + 128 + 16 + 1, 8, 0)
    assert [one.exchange_id for one in await ledger(store) if one.estimated] == ["lost"]
    # A settlement that turns up after all corrects what was billed.
    await store.carry_out("red", [end("lost", Charge("a", 2))], T + 13)
    assert await balance(store) == (4 + 128 + 2 + 1, 8, 0)
    assert not any(one.estimated for one in await ledger(store))


@on_each_store
async def test_a_dead_workers_reservation_is_billed_as_it_stands(store: Store) -> None:
    await store.reserve(ask("x", Charge("a", 5, 9, expected=1), expires_at=T + 10), T)
    await store.reserve(ask("y", Charge("a", 2, 9), expires_at=T + 20), T)
    assert await store.expire(T + 9) == 0
    assert await store.expire(T + 10) == 1
    assert await balance(store) == (5, 2, 0)
    assert await ledger(store) == [entry("x", 5, estimated=True)]
    assert await store.expire(T + 10) == 0


@on_each_store
async def test_reserving_bills_the_expired_reservations_of_the_team(store: Store) -> None:
    await store.reserve(ask("x", Charge("a", 5, 9), expires_at=T + 10), T)
    await store.reserve(ask("y", Charge("a", 1, 9)), T + 10)
    assert await balance(store) == (5, 1, 0)
    assert [found.exchange_id for found in await ledger(store)] == ["x"]


@on_each_store
async def test_the_reservation_of_an_exchange_that_still_runs_is_renewed(store: Store) -> None:
    for name in ("x", "y", "z"):
        await store.reserve(ask(name, Charge("a", 1), expires_at=T + 10), T)
    await store.settle(end("z", Charge("a", 1)), T)
    await store.renew("red", ["x", "z", "unknown"], T + 100)
    await store.renew("red", ["x"], T + 20)  # an earlier renewal that arrives late
    assert await store.expire(T + 50) == 1
    assert [(found.exchange_id, found.estimated) for found in await ledger(store)] == [("y", True), ("z", False)]
    await store.renew("red", ["y"], T + 200)
    assert await store.expire(T + 100) == 1
    assert await balance(store) == (3, 0, 0)


@on_each_store
async def test_a_reservation_that_is_asked_for_again_keeps_its_charges_and_gets_the_entry_and_the_later_end(
    store: Store,
) -> None:
    for name in ("x", "y"):
        await store.reserve(ask(name, Charge("a", 5, 99, 60.0, 2, ["c"]), Charge("b", 1), expires_at=T + 10), T)
    again = [replace(ask(name, Charge("a", 7), expires_at=T + 20), entry=entry(name, 8)) for name in ("x", "y")]
    await store.reserve(again[0], T)
    await store.carry_out("red", again[1:], T)
    await store.reserve(replace(again[0], expires_at=T + 5), T)
    assert (await balance(store), await store.expire(T + 19)) == ((0, 10, 4), 0)
    assert await store.expire(T + 20) == 2
    assert await balance(store) == (10, 0, 0)
    assert await ledger(store) == [entry(name, 8, estimated=True) for name in ("x", "y")]


@on_each_store
async def test_a_settlement_that_comes_after_all_corrects_what_was_billed_once(store: Store) -> None:
    await store.reserve(ask("x", Charge("a", 50), Charge("b", 5)), T)
    await store.expire(T + LEASE_S)
    final = [Charge("a", 30), Charge("c", 1)]
    for _ in range(2):
        balances = await store.settle(end("x", *final, status=200), T + LEASE_S + 1)
        assert balances == [Balance("a", 30, 0), Balance("c", 1, 0)]
    assert [await balance(store, name) for name in "abc"] == [(30, 0, 0), (0, 0, 0), (1, 0, 0)]
    assert await ledger(store) == [entry("x", 30, status=200)]
    await store.settle(end("x", Charge("a", 99)), T + LEASE_S + 2)
    assert await balance(store) == (30, 0, 0)


@on_each_store
async def test_counters_are_forgotten_some_time_after_their_last_change(store: Store) -> None:
    await store.settle(end("x", Charge("minute", 4, keep_s=60.0), Charge("total", 4)), T)
    await store.settle(end("y", Charge("minute", 4, keep_s=60.0)), T + 30)
    await store.expire(T + 80)
    assert await balance(store, "minute") == (8, 0, 0)
    await store.expire(T + 90)
    assert (await balance(store, "minute"), await balance(store, "total")) == ((0, 0, 0), (4, 0, 0))


@on_each_store
async def test_a_counter_with_reservations_is_not_forgotten(store: Store) -> None:
    await store.reserve(ask("x", Charge("minute", 4, keep_s=60.0), expires_at=T + 1000), T)
    await store.expire(T + 100)
    assert await balance(store, "minute") == (0, 4, 0)


@on_each_store
async def test_entries_of_the_ledger_are_forgotten_and_counters_stand(store: Store) -> None:
    for i in range(5):
        await store.settle(end(str(i), Charge("a", 1), at=T + i), T)
    assert await store.forget_entries(T + 3) == 3
    assert [found.exchange_id for found in await ledger(store)] == ["3", "4"]
    assert await store.forget_entries(T + 3) == 0
    assert await balance(store) == (5, 0, 0)


@on_each_store
async def test_the_memory_of_billed_exchanges_ends(store: Store) -> None:
    await store.reserve(ask("x", Charge("a", 5)), T)
    await store.expire(T + LEASE_S)
    await store.expire(T + LEASE_S + REMEMBERED_S)
    await store.settle(end("x", Charge("a", 1)), T)
    assert await balance(store) == (5, 0, 0), "the entry is still there: nothing is counted twice"


@on_each_store
async def test_the_spend_of_a_counter_can_be_corrected_and_its_reservations_stay(store: Store) -> None:
    await store.settle(end("x", Charge("a", 7, keep_s=100.0)), T)
    await store.settle(end("y", Charge("a1", 5)), T)
    await store.reserve(ask("z", Charge("a", 2)), T)
    before = await store.set_spent("red", Charge("a", 3, keep_s=100.0, within=["a1"]), T)
    assert before == Balance("a", 12, 2)
    assert await balance(store) == (3, 2, 0)
    assert await balance(store, "a1") == (0, 0, 0)
    assert (await store.settle(end("z", Charge("a", 1)), T))[0] == Balance("a", 4, 0)
    assert await store.set_spent("blue", Charge("new", 9), T) == Balance("new", 0, 0)
    assert await balance(store, "new", "blue") == (9, 0, 0)
    await store.set_spent("blue", Charge("new", 0), T)
    assert await balance(store, "new", "blue") == (0, 0, 0)


@on_each_store
async def test_a_counter_that_was_corrected_owes_nothing(store: Store) -> None:
    await store.reserve(ask("dead", Charge("a", 7), expires_at=T + 1), T)
    assert await store.expire(T + 2) == 1
    await store.set_spent("red", Charge("a", 2), T + 3)
    await store.settle(end("dead", Charge("a", 4)), T + 4)
    assert await balance(store) == (4, 0, 0)


@on_each_store
async def test_a_name_is_claimed_once(store: Store) -> None:
    claims = await asyncio.gather(*(store.claim("red", "soft", 3600.0, T) for _ in range(5)))
    assert sorted(claims) == [False] * 4 + [True]
    assert await store.claim("red", "other", 3600.0, T)
    assert await store.claim("blue", "soft", 3600.0, T)
    if not store.is_shared:
        assert not await store.claim("red", "soft", 3600.0, T + 3599)
        assert await store.claim("red", "soft", 3600.0, T + 3600)
