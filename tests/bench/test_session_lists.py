"""Ten thousand live sessions are listed within a second, from each engine of the store.

The processor's time of this process is counted: what else the machine does says nothing about the list.
"""

import asyncio
import time
from pathlib import Path

import pytest

from proxy.app.admin.reports import sessions_answer
from proxy.kit.tasks import Aside
from proxy.planner.sessions.session_record import SessionFacts, SessionRecord, SessionSums
from proxy.services.session_book import SCOPE, SessionBook, packed
from proxy.services.tokenizers import ModelFacts
from proxy.storage.port import Store
from tests.contract.stores import ENGINES

pytestmark = pytest.mark.slow

T = 1_700_000_000.0

_SESSIONS, _AT_ONCE = 10_000, 500
_MOST_S = 1.0


def _record(number: int) -> SessionRecord:
    facts = SessionFacts(
        team=f"team-{number % 20}",
        key_id="key-0123456789ab",
        user="ann@example.com",
        model="claude-sonnet-4-5",
        client="claude-code",
        mode="tier",
        reason="kept",
        read_at=T + number,
        breakpoints=((5_000, 300.0), (9_000, 300.0), (30_000, 300.0)),
        tiers={"L0": 5_000, "L1": 0, "L2": 4_000, "L3": 9_000, "active": 30_000},
    )
    sums = SessionSums(T + number, 40, 900_000, 60_000, 0, 9_000, 20_000, 1.25, 0.75)
    return SessionRecord(f"{number:032x}", T, facts, {f"w{worker}-": sums for worker in range(4)})


async def _seconds(store: Store) -> float:
    """What it takes to list them all, page by page."""
    for start in range(0, _SESSIONS, _AT_ONCE):
        records = [_record(number) for number in range(start, start + _AT_ONCE)]
        await store.save(SCOPE, {one.id: packed(one) for one in records}, 86_400.0, T + start)
    book = SessionBook(store, lambda: T, print, Aside(), ModelFacts(), worker="w")
    times: list[float] = []
    for _ in range(3):
        began, found, query = time.process_time(), list[str](), {"limit": "1000"}
        while True:
            page = await sessions_answer(book, "GET", "", query, T)
            found += [one["id"] for one in page["data"]]
            if not page["has_more"]:
                break
            query["behind"] = page["behind"]
        times.append(time.process_time() - began)
        assert len(set(found)) == len(found) == _SESSIONS
    return min(times)


@pytest.mark.parametrize("engine", ENGINES)
def test_ten_thousand_sessions_are_listed_within_a_second(engine: str, tmp_path: Path) -> None:
    async def main() -> float:
        async with ENGINES[engine](tmp_path) as store:
            return await _seconds(store)

    spent_s = asyncio.run(main())
    print(f"{engine}: {_SESSIONS} sessions in {spent_s:.2f} s")
    assert spent_s < _MOST_S
