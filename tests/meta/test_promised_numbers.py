"""Numbers of budgets, keys and the store that a page promises are those of the code."""

from pathlib import Path

import proxy
from proxy.teams import alerts, authentication, catching_up, estimates, store_client
from proxy.teams.store_client import StoreTimes
from tests.examples import for_every

PAGES = Path(proxy.__file__).parent / "app/settings"
TIMES = StoreTimes()
PING_S = TIMES.timeout_s * store_client._PING_SHARE


@for_every(
    [
        ("TEAMS.md", "within two seconds in every other that shares the store", authentication.POLL_S, 2),
        ("TEAMS.md", "(`sk-strat-` and 43 characters)", authentication._KEY_CHARS, 43),
        ("STORE.md", "when a call fails or takes a second and a half", TIMES.timeout_s - PING_S, 1.5),
        ("STORE.md", "The ping gets half a second", PING_S, 0.5),
        ("STORE.md", "A store that is away is asked again twice a second", TIMES.retry_s, 0.5),
        ("STORE.md", "whose process died is written a minute later", TIMES.lease_s, 60),
        ("STORE.md", "a worker keeps 16 MiB of settlements in memory", catching_up._MOST_IN_MEMORY, 16 << 20),
        ("BUDGETS.md", "the count is an estimate, and half as much again is reserved", estimates._FACTOR, 1.5),
        ("BUDGETS.md", "the provider has reported (2.1 at most), and 15 % more", estimates._MOST, 2.1),
        ("BUDGETS.md", "the provider has reported (2.1 at most), and 15 % more", estimates._MARGIN, 1.15),
        ("BUDGETS.md", "It is tried again for some minutes", sum(alerts._PAUSES_S) // 60, 12),
    ]
)
def test_a_page_promises_what_the_code_does(page: str, words: str, value: float, promised: float) -> None:
    assert words in " ".join((PAGES / page).read_text().split())
    assert value == promised


def test_how_often_the_store_is_watched_is_said_where_it_is_done() -> None:
    told = " ".join((store_client.__doc__ or "").split())
    assert ("Every ten seconds the worker asks the store for its time" in told, store_client.TIME_EVERY_S) == (True, 10)
    assert ("Every five seconds it asks for the store's epoch" in told, store_client.EPOCH_EVERY_S) == (True, 5)
