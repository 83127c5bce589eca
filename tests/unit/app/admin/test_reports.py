"""Reports of spend, and the ledger."""

import asyncio
import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from proxy.app.admin import AdminService
from proxy.app.admin.litellm_forms import LitellmForms
from proxy.engine.exchange import Principal
from proxy.kit.errors import InvalidRequest
from proxy.storage import LedgerEntry, Settle, SpendQuery, SpendRow
from proxy.storage.sqlite import MemoryStore
from proxy.teams.authentication import Declared, Directory
from tests.doubles import ManualClock
from tests.examples import for_every
from tests.growth import steps_of

NOW = 1_795_000_000.0
DAY = 86400.0
ENTRIES = [
    LedgerEntry("x1", NOW - 10, "red", "key-1", "alice", "sonnet",
          read_tokens=100, write_5m_tokens=20, write_1h_tokens=5,
          plain_tokens=3, output_tokens=7, cost=1_500_000_000, saved=250_000_000),
    LedgerEntry("x2", NOW - DAY, "red", "key-2", "=HYPERLINK(1)", "gpt-5", cost=500_000_000, saved=-1),
    LedgerEntry("x3", NOW - 2 * DAY, "blue", cost=1, estimated=True),
    LedgerEntry("x4", NOW - 40 * DAY, "blue", cost=10**9),
]  # fmt: skip


def ask(path: str, **query: str) -> Any:
    async def main() -> Any:
        store = MemoryStore()
        for entry in ENTRIES:
            await store.settle(Settle(entry, ()), NOW)
        service = AdminService(Directory(Declared(), store), store, ManualClock(NOW))
        return await service.answer("GET", path, query)

    return asyncio.run(main())


class Full(MemoryStore):
    """A store of which a report finds very many rows."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        numbers, day = range(rows), {"day": "2026-11-18", "key": "key-1", "model": "m"}
        self._entries = [replace(ENTRIES[0], exchange_id=f"x{number}") for number in numbers]
        self._rows = [SpendRow({**day, "user": f"u{number}"}, *[1] * 8) for number in numbers]

    async def entries(self, *asked: Any) -> Sequence[LedgerEntry]:
        return self._entries

    async def spend(self, query: SpendQuery) -> Sequence[SpendRow]:
        return self._rows


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("entries", {"limit": "10000"}), ("entries", {"limit": "10000", "format": "csv"}), ("spend", {"by": "user"}),
        ("spend", {"by": "user", "format": "csv"}), ("spend/logs", {}),
        ("spend/logs", {"start_date": "2026-11-01", "end_date": "2026-11-20"}),
    ],
)  # fmt: skip
def test_the_rows_of_a_report_are_made_beside_the_event_loop(path: str, query: dict[str, str]) -> None:
    """Any key may ask for the rows of its team as often as it likes, and what others send must not wait for them."""

    def steps(rows: int) -> int:
        store = Full(rows)
        directory = Directory(Declared(), store)
        service = AdminService(directory, store, ManualClock(NOW))
        forms, who = LitellmForms(service, directory), Principal("s", team="red", key_id="key-1")
        if path in forms.paths:
            return steps_of(lambda: asyncio.run(forms.answer("GET", path, query, None, who)))
        return steps_of(lambda: asyncio.run(service.answer("GET", path, query)))

    # To add up the rows, and to look for those that are asked for, takes a few steps for each.
    assert steps(900) - steps(100) < 12 * 800


def test_spend_is_by_default_that_of_the_last_thirty_days_by_team() -> None:
    report = ask("spend")
    assert report["data"] == [
        {"team": "red", "requests": 2, "read_tokens": 100, "write_tokens": 25, "uncached_tokens": 3, "output_tokens": 7,
         "cost_usd": 2.0, "saved_usd": 0.249999999, "estimated_requests": 0},
        {"team": "blue", "requests": 1, "read_tokens": 0, "write_tokens": 0, "uncached_tokens": 0, "output_tokens": 0,
         "cost_usd": 1e-9, "saved_usd": 0.0, "estimated_requests": 1},
    ]  # fmt: skip
    assert report["total"]["cost_usd"] == 2.000000001
    assert report["total"]["requests"] == 3


def test_spend_may_be_asked_about_anything_in_any_range() -> None:
    assert [row["day"] for row in ask("spend", by="day", team="red")["data"]] == ["2026-11-18", "2026-11-17"]
    assert [row["model"] for row in ask("spend", by="model", key="key-1")["data"]] == ["sonnet"]
    assert ask("spend", by="", since="1970-01-01")["total"]["requests"] == 4
    assert ask("spend", since="1d", until="5s")["total"]["requests"] == 2
    assert ask("spend", by="user,team", user="alice")["data"][0]["user"] == "alice"


def test_a_day_begins_where_the_report_is_read() -> None:
    # 11:06 in UTC is past midnight in Auckland.
    assert [row["day"] for row in ask("spend", by="day", since="1h")["data"]] == ["2026-11-18"]
    assert [row["day"] for row in ask("spend", by="day", since="1h", timezone="Pacific/Auckland")["data"]] == [
        "2026-11-19"
    ]


def test_csv_has_a_line_for_each_and_no_formula() -> None:
    rows = list(csv.reader(io.StringIO(ask("spend", by="team,user", format="csv"))))
    assert rows[0][:3] == ["team", "user", "requests"]
    assert ["red", "'=HYPERLINK(1)"] in [row[:2] for row in rows]
    assert len(rows) == 4


def test_the_ledger_comes_in_pages() -> None:
    first = ask("entries", limit="2", since="90d")
    assert [entry["exchange_id"] for entry in first["data"]] == ["x4", "x3"]
    assert first["has_more"]
    last = first["data"][-1]
    rest = ask("entries", since=str(last["at"]), after=last["exchange_id"])
    assert [entry["exchange_id"] for entry in rest["data"]] == ["x2", "x1"]
    assert rest["data"][-1]["cost_usd"] == 1.5
    assert not rest["has_more"]
    assert ask("entries", team="blue", format="csv").count("\n") == 2


@for_every(
    [
        ("spend", {"by": "planet"}), ("spend", {"since": "yesterday"}), ("spend", {"since": "-5"}),
        ("spend", {"since": "nan"}), ("spend", {"since": "1d", "until": "2d"}),
        ("spend", {"timezone": "Mars/Olympus"}), ("spend", {"format": "xml"}), ("spend", {"colour": "blue"}),
        ("entries", {"limit": "0"}), ("entries", {"limit": "all"}), ("entries", {"limit": "9" * 400}),
        ("entries", {"by": "team"}),
    ]
)  # fmt: skip
def test_a_wrong_query_is_refused(path: str, query: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        ask(path, **query)
