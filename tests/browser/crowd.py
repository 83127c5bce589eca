"""Sessions that nobody has to hold: ten thousand of them, and a long one, written into the store of a proxy."""

import random
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from proxy.planner.session_record import (
    MOST_REQUESTS,
    Inventory,
    ListedItem,
    ListedSection,
    SessionContents,
    SessionDetails,
    SessionFacts,
    SessionRecord,
    SessionRequest,
    SessionSums,
)
from proxy.planner.tiers import Tier
from proxy.services.session_book import DETAILS_SCOPE, SCOPE, packed
from proxy.storage import Store
from proxy.storage.sqlite import SqliteStore

SESSIONS = 10_000
LONG = "a-long-session"
RARE = "seldom"
_LIFE_S = 80_000.0
_AT_ONCE = 1_000
_FILES = 400


async def fill(store: Path, now: float) -> None:
    """Write them into the file of a store. The sessions were used within the last hours; one has the user ``RARE``."""
    opened = await SqliteStore.open(store)
    try:
        await save(opened, now)
        details = long_session(now)
        facts = SessionFacts("shop", "key-1", "", "claude-sonnet-4-5", "aider", "tier", "kept", now)
        facts = replace(
            facts, culprits=tuple((f"aider:map/file:src/module_{n}.py", 5 - n, 0.5 - 0.1 * n) for n in range(3))
        )
        sums = SessionSums(now, MOST_REQUESTS, 10**7, 10**6, 0, 10**6, 10**5, 40.0, 22.5)
        await opened.save(DETAILS_SCOPE, {LONG: packed(details)}, _LIFE_S, now)
        await opened.save(SCOPE, {LONG: packed(SessionRecord(LONG, now - 9_000, facts, {"w": sums}))}, _LIFE_S, now)
    finally:
        await opened.aclose()


async def save(store: Store, now: float) -> None:
    """Write the ten thousand into an open store."""
    records = list(_records(now))
    for start in range(0, SESSIONS, _AT_ONCE):
        some = records[start : start + _AT_ONCE]
        await store.save(SCOPE, {one.id: packed(one) for one in some}, _LIFE_S, now - 3_600 + start / 10)


def _records(now: float) -> Iterator[SessionRecord]:
    for number in range(SESSIONS):
        user = RARE if number == SESSIONS // 2 else f"user-{number % 300}@example.com"
        facts = SessionFacts(f"team-{number % 20}", "key-1", user, "claude-sonnet-4-5", "aider", "tier", "kept", now)
        facts = replace(facts, culprits=(("aider:map/file:src/app.py", 3, 0.5),))
        sums = SessionSums(now - number / 4, 40, 900_000, 60_000, 0, 9_000, 20_000, 0.25, 0.75)
        yield SessionRecord(f"{number:032x}", now - 9_000, facts, {f"w{worker}": sums for worker in range(3)})


def long_session(now: float) -> SessionDetails:
    """As many requests as are kept of one, a third of which break the cache, and as many pieces as are kept."""
    chance, details = random.Random(5), SessionDetails()
    for number in range(MOST_REQUESTS):
        prompt = 20_000 + 250 * number
        read = chance.randrange(prompt)
        broke = chance.random() < 0.33
        one = SessionRequest(
            now - 9_000 + 18 * number, number, prompt, read, (prompt - read) // 2, read // 3, prompt // 2, 0.08, 0.045,
            "changed" if broke else "", f"aider:map/file:src/module_{number % 90}.py" if broke else "",
            before=read, tokens=2_000, lost=prompt - read, lost_usd=0.01 * chance.random(),
        )  # fmt: skip
        details = details.added(one)
    files = tuple(ListedItem(f"aider:map/file:src/module_{n}.py", 400 + n, n % 14) for n in range(_FILES))
    parts = [ListedSection(tier, "files", 12, files[tier::5]) for tier in Tier]
    contents = SessionContents(Inventory(tuple(parts)).bounded(), limits=(1_000_000, 64_000))
    return replace(details, at=now, packed=packed(contents))
