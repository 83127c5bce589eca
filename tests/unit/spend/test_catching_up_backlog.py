"""What is put off counts against limits until the store knows of it."""

from dataclasses import replace

from proxy.spend.catching_up import Backlog
from proxy.storage.port import Balance, Charge, Granted, LedgerEntry, Refused, Release, Reserve, Settle
from tests.growth import assert_linear

ENTRY = LedgerEntry("x", 1.0, "red")


def end(name: str, *final: Charge, team: str = "red") -> Settle:
    return Settle(replace(ENTRY, exchange_id=name, team=team), final)


def ask(*charges: Charge, team: str = "red") -> Reserve:
    return Reserve("asked", team, charges, 60.0, ENTRY)


def limits(backlog: Backlog, ask: Reserve) -> list[int | None]:
    return [charge.limit for charge in backlog.lowered(ask).charges]


def test_limits_are_lower_by_what_is_put_off_for_their_accounts() -> None:
    backlog = Backlog()
    backlog.add(end("a", Charge("day", 3), Charge("hour:1", 5)))
    backlog.add(end("b", Charge("day", 4)))
    asked = ask(Charge("day", 1, 10), Charge("hour:2", 1, 9, within=["hour:1", "hour:0"]), Charge("counted", 1))
    assert limits(backlog, asked) == [3, 4, None]
    assert limits(backlog, replace(asked, team="blue")) == [10, 9, None], "another team's are its own"
    assert [charge.amount for charge in backlog.lowered(asked).charges] == [1, 1, 1]


def test_a_reservation_that_is_put_off_counts_until_its_exchange_ends_or_the_store_has_it() -> None:
    backlog, asked = Backlog(), ask(Charge("day", 1, 20))
    intents = [replace(ask(Charge("day", 5)), exchange_id=name) for name in ("settled", "released", "made")]
    for intent in intents:
        backlog.add(intent)
    assert limits(backlog, asked) == [5]
    backlog.add(end("settled", Charge("day", 2)))
    assert limits(backlog, asked) == [8], "its settlement counts in its place"
    backlog.add(Release("released", "red"))
    assert limits(backlog, asked) == [13]
    backlog.remove(intents[2])
    for late in intents[:2]:
        backlog.remove(late)
    assert limits(backlog, asked) == [18]
    backlog.remove(end("settled", Charge("day", 2)))
    assert limits(backlog, asked) == [20]


def test_what_was_carried_out_does_not_count_any_more() -> None:
    backlog, calls = Backlog(), [end("a", Charge("day", 3)), end("b", Charge("day", 4)), Release("c", "red")]
    for call in calls:
        backlog.add(call)
    asked = ask(Charge("day", 1, 10))
    assert limits(backlog, asked) == [3]
    backlog.remove(calls[0])
    assert limits(backlog, asked) == [6]
    backlog.remove(calls[1])
    assert backlog.lowered(asked) is asked


def test_what_the_store_holds_for_an_exchange_counts_once() -> None:
    backlog, call = Backlog(), end("a", Charge("day", 30), Charge("month", 10))
    backlog.add(call, reserved=[Charge("day", 20), Charge("month", 20)])
    asked = ask(Charge("day", 1, 100), Charge("month", 1, 100))
    assert limits(backlog, asked) == [90, 100]
    backlog.remove(call)
    assert backlog.lowered(asked) is asked


def test_answers_tell_the_backlog_as_spent() -> None:
    backlog = Backlog()
    backlog.add(end("a", Charge("day", 3), Charge("hour:1", 5)))
    asked = ask(Charge("day", 1, 10), Charge("hour:2", 1, 9, within=["hour:1"]))
    granted = Granted([Balance("day", 2, 1), Balance("hour:2", 0, 0)])
    assert backlog.counted(asked, granted) == Granted([Balance("day", 5, 1), Balance("hour:2", 5, 0)])
    refused = Refused(backlog.lowered(asked).charges[1], Balance("hour:2", 1, 2))
    answer = backlog.counted(asked, refused)
    assert isinstance(answer, Refused)
    assert answer.balance == Balance("hour:2", 6, 2)


def test_a_grant_keeps_the_epoch_of_the_store_that_gave_it() -> None:
    backlog = Backlog()
    backlog.add(end("a", Charge("day", 3)))
    counted = backlog.counted(ask(Charge("day", 1, 10)), Granted([Balance("day", 0, 1)], "epoch"))
    assert counted == Granted([Balance("day", 3, 1)])
    assert isinstance(counted, Granted)
    assert counted.epoch == "epoch"


def test_a_call_costs_the_same_however_many_counters_of_its_team_wait() -> None:
    def put_off(calls: list[Settle]) -> None:
        backlog = Backlog()
        for call in calls:
            backlog.add(call)

    assert_linear(put_off, lambda count: [end(f"{n}", Charge(f"key-{n}", 1)) for n in range(count)], 1500)
