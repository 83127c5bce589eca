"""LiteLLM's forms on a ledger that is longer than a page, and what a key may cost the proxy that asks for its own."""

import asyncio
from itertools import product
from typing import Any

import pytest

from proxy.app.admin import AdminService, litellm_forms
from proxy.app.admin.litellm_forms import LitellmForms
from proxy.engine.exchange import Principal
from proxy.kit.errors import InvalidRequest, NotReady, StoreError
from proxy.kit.modes import Mode
from proxy.storage import BudgetRecord, KeyRecord, LedgerEntry, Record, Settle, SpendQuery, TeamRecord
from proxy.storage.sqlite import MemoryStore
from proxy.teams.authentication import Declared, Directory, digest_of
from tests.doubles import ManualClock

NOW = 1_795_000_000.0
DECLARED = Declared(
    [TeamRecord("red"), TeamRecord("blue")],
    [KeyRecord("key-red", digest_of("sk-red"), "red"), KeyRecord("key-blue", digest_of("sk-blue"), "blue")],
)
RED = Principal(scope="s", team="red", mode=Mode.TIER, virtual=True, key_id="key-red")


class Counting(MemoryStore):
    """A store that notes whose ledger is read, and how many reports are read at once."""

    def __init__(self) -> None:
        super().__init__()
        self.teams: list[str | None] = []
        self.is_away = False
        self.running = self.most_running = 0

    async def spend(self, query: SpendQuery) -> Any:
        self.teams.append(query.team)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return await super().spend(query)

    async def directory_version(self) -> int:
        if self.is_away:
            raise StoreError("away")
        return await super().directory_version()

    async def entries(self, *args: Any, **named: Any) -> Any:
        self.teams.append(args[4])
        return await super().entries(*args, **named)


def answers(*asked: tuple[str, dict[str, str], Principal | None]) -> tuple[list[Any], Counting]:
    async def main() -> tuple[list[Any], Counting]:
        store = Counting()
        for number in range(12):
            team = "blue" if number % 3 else "red"
            entry = LedgerEntry(f"x{number:02}", NOW - 60 + number // 2, team, f"key-{team}", "u", "m", cost=10**9)
            await store.settle(Settle(entry, ()), NOW)
        directory = Directory(DECLARED, store)
        forms = LitellmForms(AdminService(directory, store, ManualClock(NOW)), directory)
        answered = await asyncio.gather(*(forms.answer("GET", path, query, {}, who) for path, query, who in asked))
        return answered, store

    return asyncio.run(main())


async def test_an_expiry_beyond_the_calendar_which_an_earlier_version_took_hides_no_key() -> None:
    store = MemoryStore()
    await store.put(KeyRecord("key-old", digest_of("sk-old"), "red", expires_at=1e18))
    directory = Directory(DECLARED, store)
    forms = LitellmForms(AdminService(directory, store, ManualClock(NOW)), directory)
    await directory.load()
    info = await forms.answer("GET", "key/info", {"key": "key-old"}, {}, None)
    assert info["info"]["expires"] == "9999-12-31T00:00:00+00:00"


@pytest.mark.parametrize("page", ["1", "2", "5", "1000"])
def test_the_newest_entries_are_found_behind_any_number_of_older_ones(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litellm_forms, "_PAGE", page)
    monkeypatch.setattr(litellm_forms, "_MOST_LOGS", 3)
    (of_all, own, one), _ = answers(
        ("spend/logs", {}, None), ("spend/logs", {}, RED), ("spend/logs", {"request_id": "x02"}, None)
    )
    assert [row["request_id"] for row in of_all] == ["x11", "x10", "x09"]
    assert [row["request_id"] for row in own] == ["x09", "x06", "x03"]
    assert [row["request_id"] for row in one] == ["x02"]


def test_a_key_has_the_ledger_of_its_own_team_read_and_once_at_a_time() -> None:
    days = {"start_date": "1d", "end_date": "2030-01-01"}
    paths: list[tuple[str, dict[str, str]]] = [("key/info", {}), ("team/info", {}), ("user/info", {"user_id": ""}),
                                               ("spend/logs", {}), ("spend/logs", days)]  # fmt: skip
    answered, store = answers(*((path, query, RED) for path, query in paths * 3))
    assert answered[0]["info"]["spend"] == 4.0
    assert set(store.teams) == {"red"}
    assert store.most_running == 1


@pytest.mark.parametrize(
    ("path", "who"), [("key/delete", None), *product(["key/info", "team/info", "user/info"], [None, RED])]
)
async def test_a_store_that_is_away_is_said(path: str, who: Principal | None) -> None:
    store = Counting()
    store.is_away = True
    directory = Directory(DECLARED, store)
    forms = LitellmForms(AdminService(directory, store, ManualClock(NOW)), directory)
    with pytest.raises(NotReady):
        await forms.answer("GET" if path != "key/delete" else "POST", path, {}, {"keys": ["key-red"]}, who)


class Known(MemoryStore):
    """A store that notes for each key that is made whether its budget is there."""

    def __init__(self) -> None:
        super().__init__()
        self.has_budget: list[bool] = []

    async def put(self, record: Record, version: int | None = None) -> bool:
        is_put = await super().put(record, version)
        if isinstance(record, KeyRecord):
            self.has_budget.append(record.id in [one.subject for one in await self.records(BudgetRecord)])
        return is_put


@pytest.mark.parametrize(
    ("asked", "is_made"),
    [
        ({"team_id": "red"}, True), ({}, True), ({"team_id": "green"}, False), ({"team_id": ["red"]}, False),
        ({"rpm_limit": -1}, False), ({"duration": "never"}, False), ({"max_budget": -1}, False),
    ],
)  # fmt: skip
async def test_the_budget_of_a_key_is_there_before_the_key(asked: dict[str, Any], is_made: bool) -> None:
    store = Known()
    directory = Directory(DECLARED, store)
    forms = LitellmForms(AdminService(directory, store, ManualClock(NOW)), directory)
    if not is_made:
        with pytest.raises(InvalidRequest):
            await forms.answer("POST", "key/generate", {}, {"max_budget": 5, **asked}, None)
        assert (await store.records(KeyRecord), await store.records(BudgetRecord)) == ([], [])
        return
    made = await forms.answer("POST", "key/generate", {}, {"max_budget": 5, **asked}, None)
    assert store.has_budget == [True]
    assert directory.snapshot.keys[made["token"]].digest == digest_of(made["key"])
    assert (made["max_budget"], made["team_id"]) == (5, asked.get("team_id", "default"))
