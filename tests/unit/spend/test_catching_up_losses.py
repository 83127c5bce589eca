"""What a log says of calls that were lost: how many, what they cost, and which; never a thousand lines."""

import re

from proxy.spend.catching_up import lines_of_lost
from proxy.storage.port import Charge, LedgerEntry, PutOff, Release, Reserve, Settle
from tests.money import NOW


def settled(name: str, cents: int) -> Settle:
    return Settle(LedgerEntry(name, NOW, "red", cost=cents * 10**7), [Charge("a", cents)])


def test_nothing_is_said_where_nothing_is_lost() -> None:
    assert list(lines_of_lost([])) == []


def test_each_call_is_named_with_its_team_and_what_it_cost() -> None:
    asked = Reserve("x-3", "blue", [Charge("a", 5)], NOW, LedgerEntry("x-3", NOW, "blue", cost=5 * 10**9))
    calls: list[PutOff] = [settled("x-1", 25), Release("x-2", "red"), asked, settled("x-4", 50)]
    total, named = lines_of_lost(calls)
    assert total.startswith("4 calls to the store, worth $0.750000,")
    assert named == "lost: x-1 of red $0.250000, x-2 of red, x-3 of blue, x-4 of red $0.500000"


def test_every_call_of_many_is_named_once_in_lines_of_twenty() -> None:
    _, *lines = lines_of_lost([settled(f"x-{number}", 1) for number in range(45)])
    found = [re.findall(r"x-(\d+) of", line) for line in lines]
    assert [len(line) for line in found] == [20, 20, 5]
    assert [int(number) for line in found for number in line] == list(range(45))


def test_beyond_a_thousand_calls_the_rest_is_counted() -> None:
    *named, rest = lines_of_lost([settled(f"x-{number}", 1) for number in range(1007)])
    assert sum(line.count(" of red ") for line in named) == 1000
    assert rest == "lost: 7 more"
    assert "more" not in list(lines_of_lost([settled(f"x-{number}", 1) for number in range(1000)]))[-1]
