"""The proxy is restarted and told to stop: sessions that come back at once, and connections that come too late."""

import signal
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

from tests.doubles import serving
from tests.drill.clients import Clients, Kind, statuses
from tests.drill.drill import Drill, Findings
from tests.drill.money import compare, read
from tests.drill.redis_outages import WIDE_USD
from tests.drill.world import World, gauge, wait_for
from tests.e2e.fleet import claude_configuration
from tests.e2e.provider import embedded_app, new_embedded
from tests.e2e.test_layout_state import ask, session

KEPT = 0.95
# The turns before the first restart: by then the layouts are learnt.
_FIRST = 4
_TOKENS = ("read", "write_5m", "write_1h", "plain", "output")
TEAMS = {"red": WIDE_USD}

Talk = Sequence[list[dict[str, Any]]]
"""A session: the messages of each of its turns."""
Bill = dict[tuple[int, int], tuple[int, int]]
"""(read, prompt) of each session's turn."""


def _sessions(kind: str, world: World, findings: Findings) -> None:
    """Sessions that begin one behind the other, and go on all at once after each of several restarts; beside the same
    ones without a restart."""
    size = world.size
    parts = [range(_FIRST), *(range(_FIRST + n, _FIRST + n + 1) for n in range(size.restarts))]
    talks = [list(session(f"Client {number}", parts[-1].stop)) for number in range(size.sessions)]
    store = world.redis().url if kind == "redis" else f"sqlite:{world.folder / 'store.sqlite'}"
    with serving(embedded_app(new_embedded())) as provider:
        steady = _through(world, [claude_configuration(provider, "memory")], talks, parts, "steady")
    embedded = new_embedded()
    with serving(embedded_app(embedded)) as provider:
        bill = _through(world, [claude_configuration(provider, store)] * len(parts), talks, parts, "restarted")
    firsts = [(number, part.start) for part in parts[1:] for number in range(size.sessions)]
    assert all(steady[first][0] for first in firsts), "without a restart the sessions would keep nothing, either"
    kept = sum(bill[first][0] >= KEPT * steady[first][0] for first in firsts)
    findings.expect(
        f"of {size.sessions} sessions back at once, {KEPT:.0%} keep their prefix", f"{kept} of {len(firsts)}",
        kept >= KEPT * len(firsts),
    )  # fmt: skip
    books, ledgers = read(store, ()), list(embedded.ledgers.values())
    served = {name: sum(getattr(one, name) for one in ledgers) for name in _TOKENS}
    booked = {name: sum(getattr(entry, f"{name}_tokens") for entry in books.entries) for name in _TOKENS}
    findings.expect("the ledger has the tokens that the provider billed, kind by kind", booked, booked == served)


def _through(
    world: World, proxies: Sequence[dict[str, Any]], talks: Sequence[Talk], parts: Sequence[range], name: str
) -> Bill:
    """The parts of the sessions, each with a proxy of its own, or all with one: the first part one session behind the
    other, the others all sessions at once. A proxy on Redis has two workers."""
    bill: Bill = {}
    with ExitStack() as stack:
        for number, part in enumerate(parts):
            if number < len(proxies):
                stack.close()
                workers = 2 if proxies[number]["stratiform"]["store"].startswith("redis") else 1
                proxy = stack.enter_context(world.proxy(proxies[number], workers, name=name))
            bill |= _talk(proxy.url, talks, part, at_once=len(talks) if number else 1)
    return bill


def _talk(url: str, talks: Sequence[Talk], turns: range, *, at_once: int) -> Bill:
    """These turns of every session, so many sessions at once and each in its order."""

    def one(number: int) -> Bill:
        return {(number, turn): ask(url, talks[number][turn]) for turn in turns}

    with ThreadPoolExecutor(max_workers=at_once) as pool:
        bills = list(pool.map(one, range(len(talks))))
    return {at: found for bill in bills for at, found in bill.items()}


def _drain(world: World, findings: Findings) -> None:
    """Answers are under way when the proxy is told to stop: they end, and new connections are refused at once."""
    redis = world.redis()
    made = world.config(redis.url, TEAMS, limits={"drain_s": 30})
    with world.proxy(made, world.size.workers) as proxy:
        host, _, port = proxy.url.removeprefix("http://").rpartition(":")
        with Clients(proxy.url, {"red": 8}, Kind(delay_s=3.0), calls=1) as clients:
            assert wait_for(lambda: len(world.upstream.served()) == 8, 120), "the calls do not arrive"
            told_at = time.time()
            proxy.process.send_signal(signal.SIGTERM)
            is_refused = wait_for(lambda: not _connects(host, int(port)), 120)
            refused_at = time.time()
            clients.wait()
        ended_at = max(one.ended for one in clients.told)
        findings.expect(
            "new connections are refused before the answers have ended",
            f"{refused_at - told_at:.1f} s; answers {ended_at - told_at:.1f} s",
            is_refused and refused_at < ended_at, is_timed=True,
        )  # fmt: skip
        findings.within("new connections are refused after", refused_at - told_at, 1.0)
        findings.expect(
            "answers under way end", statuses(clients.told), all(one.is_complete for one in clients.told)
        )  # fmt: skip
        code = proxy.process.wait(120)
        findings.expect("the exit code is 0", code, code == 0)
    findings.settle(compare(world.upstream.served(), clients.told, read(redis.url, TEAMS)))


def _rolling(world: World, findings: Findings) -> None:
    """One proxy is replaced by the next, over and over, while clients of both go on: an upgrade."""
    redis, told = world.redis(), []
    made = world.config(redis.url, TEAMS, limits={"drain_s": 10})
    for number in range(max(2, world.size.restarts)):
        with world.proxy(made, 2, name=f"proxy-{number % 2}") as proxy:
            with Clients(proxy.url, {"red": world.size.share(10)}, Kind(delay_s=0.05)) as clients:
                time.sleep(2.0)
                proxy.process.send_signal(signal.SIGTERM)
                time.sleep(0.5)
            told += clients.told
            proxy.process.wait(120)
    wrong = [one for one in told if one.status not in (0, 200) or (one.status == 200 and not one.is_complete)]
    findings.expect("answers are whole, or their connection was refused", statuses(told), not wrong)
    with world.proxy(made, 2) as proxy:
        wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, 120)
    found = compare(world.upstream.served(), told, read(redis.url, TEAMS))
    findings.expect("nothing is estimated", len(found.estimated), not found.estimated)
    findings.settle(found)


def _connects(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False


DRILLS = (
    *(
        Drill(
            f"sessions-back-{kind}", f"30 sessions come back at once after each of five restarts; the store is {name}",
            partial(_sessions, kind), needs_redis=kind == "redis", is_short=kind == "sqlite",
        )
        for kind, name in (("sqlite", "a SQLite file"), ("redis", "a Redis"))
    ),
    Drill(
        "drain", "the proxy is told to stop while eight answers are under way", _drain, needs_redis=True
    ),
    Drill("restarts-rolling", "proxies on one Redis replace each other under load", _rolling, needs_redis=True),
)  # fmt: skip
