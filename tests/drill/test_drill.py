"""The shortened drills pass, and the comparison of the money sees every way in which it can differ."""

import pytest

from proxy.storage import LedgerEntry
from tests.drill.clients import Told
from tests.drill.drill import Drill, Findings
from tests.drill.drills import DRILLS
from tests.drill.money import Books, compare
from tests.drill.run import run
from tests.drill.upstream import Served
from tests.drill.world import SHORT, Impossible, World

CALL = Served("c1", 1.0, 500)
TOLD = Told("c1", "red", 0.5, 1.5, 200, True)
ENTRY = LedgerEntry("x1", 0.5, "red", user="c1", cost=500)


def books(*entries: LedgerEntry, spent: int | None = None, reserved: int = 0) -> Books:
    cost = sum(entry.cost for entry in entries)
    return Books(entries, {"red": cost if spent is None else spent}, {"red": reserved})


@pytest.mark.slow
@pytest.mark.parametrize("drill", [one for one in DRILLS if one.is_short], ids=lambda one: one.name)
def test_the_shortened_drill_passes(drill: Drill) -> None:
    result = run(drill, SHORT, by_the_clock=False)
    if result.skipped:
        pytest.skip(result.skipped)
    assert not result.failures, result.failures


def test_every_drill_has_a_name_of_its_own() -> None:
    assert len({drill.name for drill in DRILLS}) == len(DRILLS)


def test_what_is_booked_as_it_was_served_is_exact() -> None:
    found = compare([CALL], [TOLD], books(ENTRY))
    assert found.is_exact
    assert (found.served, found.ledger, found.counter) == (500, 500, 500)


@pytest.mark.parametrize(
    ("served", "told", "held", "fault"),
    [
        (CALL, TOLD, books(), "served and not booked"),
        (CALL, TOLD, books(LedgerEntry("x1", 0.5, "red", user="c1", cost=499)), "booked wrongly"),
        (CALL, TOLD, books(ENTRY, LedgerEntry("x2", 0.5, "red", user="c1", cost=500)), "booked twice"),
        (CALL, TOLD, books(ENTRY, spent=499), "the counter of red"),
        (CALL, TOLD, books(ENTRY, reserved=1), "stay reserved"),
        (CALL, TOLD, books(LedgerEntry("x1", 0.5, "red", user="c1", cost=500, estimated=True)), "answer was whole"),
        (
            CALL, Told("c1", "red", 0.5, 1.5, 0, False),
            books(LedgerEntry("x1", 0.5, "red", user="c1", cost=499, estimated=True)), "below what was served",
        ),
        (
            CALL, Told("c1", "red", 0.5, 1.5, 0, False),
            books(LedgerEntry("x1", 0.5, "red", user="c1", cost=1001, estimated=True)), "above its reservation",
        ),
        (CALL, TOLD, books(ENTRY, LedgerEntry("x2", 0.5, "red", user="c2", cost=1)), "booked wrongly"),
    ],
)  # fmt: skip
def test_every_difference_is_found(served: Served, told: Told, held: Books, fault: str) -> None:
    found = compare([served], [told], held, ceiling=1000)
    assert any(fault in one for one in found.faults), found.faults


def test_a_call_that_a_kill_cut_off_may_be_booked_from_its_reservation() -> None:
    cut = Told("c1", "red", 0.5, 1.5, 0, False)
    assert compare([CALL], [cut], books(LedgerEntry("x1", 0.5, "red", user="c1", cost=900, estimated=True))).is_exact


def test_what_cannot_run_here_is_skipped_with_its_reason_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(world: World, findings: Findings) -> None:
        raise Impossible("there is no such disk")

    drill = Drill("impossible", "nothing", cannot)
    monkeypatch.delenv("CI", raising=False)
    skipped = run(drill, SHORT, by_the_clock=True)
    assert (skipped.verdict, skipped.skipped) == ("skipped", "there is no such disk")
    monkeypatch.setenv("CI", "true")
    assert run(drill, SHORT, by_the_clock=True).verdict == "FAILED"
