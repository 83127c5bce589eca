"""How soon pages are there: by the processor's time of the server and of the browser's page, which a machine that does
other work does not change. The browser's own clock is printed beside it (``pytest -s tests/browser/test_speed.py``)."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.browser.chromium import Visitor, chromium, missing, visitor
from tests.browser.crowd import LONG, RARE, SESSIONS, fill
from tests.browser.site import STORE, Site, site
from tests.services import absent

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

_FIRST_PAGE_S, _LONG_SESSION_S, _LIST_S, _TASK_S = 0.3, 1.0, 1.0, 0.1
_TIMES = 5


class Opened(NamedTuple):
    """What a page took, in seconds: the processor's time of the server and of the page's main thread, that of its
    longest task, and by the browser's clock when the page was last painted."""

    server_s: float
    page_s: float
    task_s: float
    painted_s: float


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if missing():
        absent(missing())
    folder = tmp_path_factory.mktemp("crowded")
    with site(folder) as found:
        asyncio.run(fill(folder / STORE, found.admin("sessions?limit=1")["as_of"]))
        yield found


@pytest.fixture(scope="module")
def browser(served: Site) -> Iterator["Browser"]:
    with chromium() as found:
        yield found


def opened(browser: "Browser", visited: Visitor, address: str) -> Opened:
    """The best of several times: a cache that is filled first, or a task of another page, says nothing of this one."""
    found = []
    for _ in range(_TIMES):
        visited.page.goto("about:blank")
        browser.start_tracing(page=visited.page, categories=["toplevel", "devtools.timeline"])
        before = time.process_time()
        assert visited.open(address) == 200
        visited.page.evaluate("() => new Promise(one => requestAnimationFrame(() => requestAnimationFrame(one)))")
        server_s = time.process_time() - before
        tasks = _tasks(json.loads(browser.stop_tracing()))
        painted: Any = visited.page.evaluate(
            "() => new Promise(one => new PerformanceObserver(list => one(Math.max(...list.getEntries()"
            ".map(each => each.startTime)))).observe({type: 'largest-contentful-paint', buffered: true}))"
        )
        found.append(Opened(server_s, sum(tasks), max(tasks), painted / 1000))
    best = Opened(*map(min, zip(*found, strict=True)))
    print(f"{address or '/'}: {best}")
    return best


def _tasks(trace: Any) -> list[float]:
    """The processor's time of each task of the page's main thread."""
    events = trace["traceEvents"]
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    tasks: dict[tuple[int, int], list[float]] = {}
    for one in events:  # what had not ended when the tracing did has no length
        place = one["pid"], one["tid"]
        if one["name"].endswith("RunTask") and one["ph"] == "X" and names.get(place) == "CrRendererMain":
            tasks.setdefault(place, []).append(one.get("tdur", one["dur"]) / 1e6)
    return max(tasks.values(), key=sum)


@pytest.mark.parametrize(
    ("address", "most_s"),
    [
        ("", _FIRST_PAGE_S), (f"/sessions/{LONG}", _LONG_SESSION_S), ("/sessions", _LIST_S),
        (f"/sessions?q={RARE}", _LIST_S), (f"/sessions/{LONG}/requests", _LIST_S),
    ],
)  # fmt: skip
def test_a_page_is_soon_painted_and_no_task_is_long(
    browser: "Browser", served: Site, address: str, most_s: float
) -> None:
    with visitor(browser, served) as visited:
        visited.log_in()
        found = opened(browser, visited, address)
        if RARE in address:
            assert visited.page.locator("#live tbody tr").count() == 1
        assert found.server_s + found.page_s < most_s
        assert found.task_s < _TASK_S


def test_every_session_is_on_one_of_the_pages(browser: "Browser", served: Site) -> None:
    with visitor(browser, served) as visited:
        visited.log_in()
        visited.open("/sessions?team=team-3")
        found = set[str]()
        while True:
            found |= set(visited.page.locator("#live tbody th a").evaluate_all("all => all.map(one => one.href)"))
            further = visited.page.get_by_role("link", name="Next page")
            if not further.count():
                break
            with visited.page.expect_navigation():
                further.click()
        assert len(found) == SESSIONS // 20
