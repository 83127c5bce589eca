"""The proxy is restarted and told to stop: sessions that come back at once, and connections that come too late."""

import signal
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from proxy.testing import serving
from tests.drill.clients import Clients, Kind, statuses
from tests.drill.drill import Drill, Findings
from tests.drill.money import compare, read
from tests.drill.redis_outages import WIDE_USD
from tests.drill.world import World, gauge, wait_for
from tests.e2e.provider import embedded_app, new_embedded
from tests.e2e.test_layout_state import ask, config, session

KEPT = 0.95
_TURNS_EACH = 2
TEAMS = {"red": WIDE_USD}

Bill = dict[tuple[int, int], tuple[int, int]]
"""(read, prompt) of each session's turn."""


def _sessions(kind: str, world: World, findings: Findings) -> None:
    """Sessions that go on at once after each of several restarts, beside the same ones without a restart."""
    size = world.size
    turns = _TURNS_EACH * (size.restarts + 1)
    talks = [list(session(f"Client {number}", turns)) for number in range(size.sessions)]
    store = world.redis().url if kind == "redis" else f"sqlite:{world.folder / 'store.sqlite'}"
    embedded = new_embedded()
    with serving(embedded_app(embedded)) as provider, world.proxy(config(provider, "memory"), name="steady") as proxy:
        steady = _talk(proxy.url, talks, range(turns))
    embedded, bill = new_embedded(), Bill()
    workers = 2 if kind == "redis" else 1
    with serving(embedded_app(embedded)) as provider:
        for part in range(size.restarts + 1):
            with world.proxy(config(provider, store), workers) as proxy:
                bill |= _talk(proxy.url, talks, range(part * _TURNS_EACH, (part + 1) * _TURNS_EACH))
    firsts = [(number, part * _TURNS_EACH) for part in range(1, size.restarts + 1) for number in range(size.sessions)]
    kept = sum(bill[first][0] >= KEPT * steady[first][0] for first in firsts)
    findings.expect(
        f"of {size.sessions} sessions back at once, {KEPT:.0%} keep their prefix", f"{kept} of {len(firsts)}",
        kept >= KEPT * len(firsts),
    )  # fmt: skip
    books = read(store, ())
    ledgers = list(embedded.ledgers.values())
    served = tuple(
        sum(getattr(one, name) for one in ledgers) for name in ("read", "write_5m", "write_1h", "plain", "output")
    )
    booked = tuple(
        sum(getattr(entry, f"{name}_tokens") for entry in books.entries)
        for name in ("read", "write_5m", "write_1h", "plain", "output")
    )
    findings.expect("the ledger has the tokens that the provider billed, kind by kind", booked, booked == served)


def _talk(url: str, talks: Sequence[Sequence[list[dict[str, Any]]]], turns: range) -> Bill:
    """These turns of every session, all sessions at once and each in its order."""

    def one(number: int) -> Bill:
        return {(number, turn): ask(url, talks[number][turn]) for turn in turns}

    with ThreadPoolExecutor(max_workers=len(talks)) as pool:
        bills = list(pool.map(one, range(len(talks))))
    return {at: found for bill in bills for at, found in bill.items()}


def _drain(world: World, findings: Findings) -> None:
    """Answers are under way when the proxy is told to stop: they end, and new connections are refused at once."""
    redis = world.redis()
    made = world.config(redis.url, TEAMS, limits={"drain_s": 30})
    with world.proxy(made, world.size.workers) as proxy:
        host, _, port = proxy.url.removeprefix("http://").rpartition(":")
        with Clients(proxy.url, {"red": 8}, Kind(delay_s=3.0), calls=1) as clients:
            assert wait_for(lambda: len(world.upstream.served()) == 8, 30), "the calls do not arrive"
            told_at = time.time()
            proxy.process.send_signal(signal.SIGTERM)
            is_refused = wait_for(lambda: not _connects(host, int(port)), 30)
            refused_at = time.time()
            clients.wait()
        ended_at = max(one.ended for one in clients.told)
        findings.expect(
            "new connections are refused before the answers have ended",
            f"{refused_at - told_at:.1f} s; answers {ended_at - told_at:.1f} s",
            is_refused and refused_at < ended_at,
        )
        findings.within("new connections are refused after", refused_at - told_at, 1.0)
        findings.expect(
            "answers under way end", statuses(clients.told), all(one.is_complete for one in clients.told)
        )  # fmt: skip
        code = proxy.process.wait(60)
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
            proxy.process.wait(60)
    wrong = [one for one in told if one.status not in (0, 200) or (one.status == 200 and not one.is_complete)]
    findings.expect("answers are whole, or their connection was refused", statuses(told), not wrong)
    with world.proxy(made, 2) as proxy:
        wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, 60)
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
            partial(_sessions, kind), needs_redis=kind == "redis",
        )
        for kind, name in (("sqlite", "a SQLite file"), ("redis", "a Redis"))
    ),
    Drill(
        "drain", "the proxy is told to stop while eight answers are under way", _drain, needs_redis=True
    ),
    Drill("restarts-rolling", "proxies on one Redis replace each other under load", _rolling, needs_redis=True),
)  # fmt: skip
