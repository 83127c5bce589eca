"""Which faults refuse requests."""

import asyncio
from collections.abc import Mapping
from typing import Literal

import pytest

from proxy.access.authentication import Declared, Directory
from proxy.ports import StoreError
from proxy.spend.store_client import StoreClient
from proxy.spend.store_watch import Epochs, faults
from proxy.storage.port import BudgetRecord, TeamRecord
from proxy.storage.sqlite import MemoryStore

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
