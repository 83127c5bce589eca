"""What the store's clock does to the proxy's, what is said about it, and which faults refuse requests."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Literal

import pytest

from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.clock import SETTLED_S, Readings, SteadyClock
from proxy.kit.errors import StoreError
from proxy.storage import BudgetRecord, TeamRecord
from proxy.storage.sqlite import MemoryStore
from proxy.teams.authentication import Declared, Directory
from proxy.teams.store_client import Epochs, StoreClient, ask_time, faults, report_departure

WALL, HOUR, DAY = 1_700_000_000.0, 3600.0, 86400.0


class Timed(MemoryStore):
    """A store with a clock."""

    def __init__(self, time: float | None) -> None:
        super().__init__()
        self.at = time

    async def time(self) -> float | None:
        if self.at is None:
            raise StoreError("away")
        return self.at


@pytest.mark.parametrize(("told", "given"), [(WALL + HOUR, WALL + HOUR), (None, WALL)])
async def test_the_store_tells_the_time_where_it_has_a_clock_and_answers(told: float | None, given: float) -> None:
    clock = SteadyClock(Readings(lambda: WALL, lambda: 50.0))
    await ask_time(clock, Timed(told))
    assert clock.now() == given


def test_what_happens_to_the_clock_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics, wall, monotonic = Metrics(), WALL, 0.0
    clock = SteadyClock(Readings(lambda: wall, lambda: monotonic), partial(report_departure, metrics))

    def read(name: str) -> float:
        return metrics.registry.get_sample_value(f"stratiform_{name}") or 0.0

    with caplog.at_level(logging.WARNING):
        wall += DAY
        for _ in range(3):
            clock.now()
        assert (len(caplog.records), read("clock_steps_total"), read("clock_held_back_seconds")) == (1, 1, DAY)
        wall, monotonic = wall + SETTLED_S, SETTLED_S
        clock.now()
        assert (len(caplog.records), read("clock_steps_total"), read("clock_held_back_seconds")) == (2, 1, 0)
        clock.told_by_store(wall, monotonic)
        wall += HOUR
        for _ in range(3):
            clock.now()
        assert (len(caplog.records), read("clock_off_store_seconds")) == (3, HOUR)
        wall -= HOUR
        clock.now()
        assert (len(caplog.records), read("clock_off_store_seconds")) == (4, 0)
    assert "stepped by +86400 s" in caplog.text


HARD, SOFT = BudgetRecord("red/b", "red", hard=1), BudgetRecord("red/b", "red", soft=1)


class Client(StoreClient):
    """A client that has these troubles, and nothing else."""

    troubles: Mapping[str, str] = {}

    def __init__(self, troubles: dict[str, str]) -> None:
        self.troubles = troubles


class Exchanged(Epochs):
    """What is known of a store that is in this trouble."""

    trouble = ""

    def __init__(self, trouble: str) -> None:
        self.trouble = trouble


class Away(MemoryStore):
    async def directory_version(self) -> int:
        raise StoreError("away")


def refusing(
    troubles: dict[str, str],
    policy: Literal["allow", "deny"],
    budget: BudgetRecord,
    store: MemoryStore | None = None,
    exchanged: str = "",
) -> dict[str, bool]:
    """The parts with a fault, and whether it refuses requests."""
    directory = Directory(Declared(teams=[TeamRecord("red")], budgets=[budget]), store or MemoryStore())
    asyncio.run(directory.load())
    found = list(faults(Client(troubles), Exchanged(exchanged), directory, policy))
    return {fault.part: fault.refuses for fault in found}


@pytest.mark.parametrize(("policy", "budget", "refuses"), [
    ("allow", HARD, False), ("deny", HARD, True), ("deny", SOFT, False),
])  # fmt: skip
def test_a_store_that_is_away_or_was_exchanged_refuses_what_a_hard_budget_denies(
    policy: Literal["allow", "deny"], budget: BudgetRecord, refuses: bool
) -> None:
    assert refusing({"store": "it hangs"}, policy, budget) == {"store": refuses}
    assert refusing({}, policy, budget, exchanged="it was emptied") == {"epoch": refuses}


@pytest.mark.parametrize("policy", ["allow", "deny"])
def test_a_spool_that_cannot_be_written_refuses_whatever_is_denied(policy: Literal["allow", "deny"]) -> None:
    troubles = {"store": "it hangs", "spool": "the disk is full"}
    assert refusing(troubles, policy, SOFT) == {"store": False, "spool": policy == "deny"}


@pytest.mark.parametrize("policy", ["allow", "deny"])
def test_of_a_store_that_was_never_read_nobody_knows_whom_it_limits(policy: Literal["allow", "deny"]) -> None:
    assert refusing({"store": "it hangs"}, policy, SOFT, Away()) == {"store": policy == "deny", "directory": False}


def test_nothing_is_wrong_with_a_proxy_that_works() -> None:
    assert refusing({}, "deny", HARD) == {}
