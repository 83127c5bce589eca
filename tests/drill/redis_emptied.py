"""Redis is emptied under load, by FLUSHALL or by a restart that keeps nothing. What was spent is not free again."""

import json
import re
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import yaml

from proxy.models.charges import NANOS_PER_USD
from tests.drill.clients import Clients, statuses
from tests.drill.drill import Drill, Findings
from tests.drill.files import readiness
from tests.drill.money import compare, read, reported_nanos, stratiform
from tests.drill.redis_outages import RESERVATION, TIGHT_USD, WIDE_USD
from tests.drill.world import World, gauge, wait_for
from tests.redis_server import RedisServer

# So long after the server was emptied the limits are looked at.
_AFTERWARDS_S = 5.0
_SETTLES_S = 1.0
_CONFIG = "operator.yaml"
_EMPTIED = re.compile(r"(?i)\bempt(y|ied)\b")

Emptied = Callable[[RedisServer, Path], None]


def flushed(redis: RedisServer, folder: Path) -> None:
    """Somebody says FLUSHALL."""
    assert redis.call("FLUSHALL") == "+OK"


def restarted(redis: RedisServer, folder: Path) -> None:
    """A server that keeps nothing is started anew."""
    redis.kill()
    for kept in folder.glob("appendonlydir*"):
        shutil.rmtree(kept)
    redis.start()


def _run(empty: Emptied, policy: Literal["allow", "deny"], world: World, findings: Findings) -> None:
    size, redis = world.size, world.redis()
    teams = {"tight": TIGHT_USD, "wide": WIDE_USD, "free": None}
    config = world.config(redis.url, teams, policy)
    crowd = {"tight": size.share(30), "wide": size.share(30), "free": size.share(20)}
    with world.proxy(config, size.workers) as proxy:
        with Clients(proxy.url, crowd) as clients:
            assert wait_for(lambda: any(one.status == 429 for one in clients.of("tight")), 120), "no limit is reached"
            time.sleep(_SETTLES_S)
            empty(redis, world.folder / "redis-1")
            back_at = time.time()
            time.sleep(_AFTERWARDS_S)
            # Each worker says it once, also one that no client asks.
            wait_for(lambda: len(_EMPTIED.findall(_log(world))) >= size.workers, 120)
            said, ready = gauge(proxy.url, "store_exchanged"), readiness(proxy)
        served, told = world.upstream.served(), list(clients.told)
        team_of = {one.id: one.team for one in told}
        of_tight = [call for call in served if team_of[call.id] == "tight"]
        over = sum(call.nanos or 0 for call in of_tight) - int(TIGHT_USD * NANOS_PER_USD)
        if policy == "deny":
            findings.expect(
                "nothing is granted anew: the limit is passed by no more than one call's estimate",
                f"by ${over / NANOS_PER_USD:.4f}", over <= RESERVATION,
            )  # fmt: skip
        warned = _EMPTIED.search(_log(world)) is not None
        findings.expect("the log says that the store was emptied", "yes" if warned else "no", warned)
        booked = sum(
            call.nanos or 0
            for call in served
            if call.at > back_at + _SETTLES_S and call.id in {o.id for o in told if o.is_complete}
        )
        parts = [fault["part"] for fault in ready[1].get("faults", ())]
        findings.expect(
            "the metric and /readyz say so, with 503 where requests are refused", f"{said}; {ready[0]} {parts}",
            said == 1 and "epoch" in parts and ready[0] == (503 if policy == "deny" else 200),
        )  # fmt: skip
        free = clients.of("free")
        findings.expect(
            "a team without a budget is served throughout", statuses(free), {one.status for one in free} == {200}
        )
        reported = reported_nanos(redis.url)
        findings.expect(
            "`stratiform spend` has what was spent since, at once",
            f"${reported / NANOS_PER_USD:.4f} of ${booked / NANOS_PER_USD:.4f}", reported >= booked,
        )  # fmt: skip
        _restore(world, config, {"tight": TIGHT_USD * NANOS_PER_USD, "wide": WIDE_USD * NANOS_PER_USD / 2})
        with Clients(proxy.url, {"tight": 2, "wide": 2}, calls=5) as more:
            more.wait()
        _budgets(world, "accept-store")
        is_over = wait_for(lambda: gauge(proxy.url, "store_exchanged") == 0, 120)
        findings.expect("`stratiform budgets accept-store` ends it", "yes" if is_over else "no", is_over)
    findings.expect(
        "a counter that is restored holds: the spent budget refuses, the other one serves",
        f"tight {statuses(more.of('tight'))}; wide {statuses(more.of('wide'))}",
        {one.status for one in more.of("tight")} == {429} and {one.status for one in more.of("wide")} == {200},
    )
    books = read(redis.url, ["wide"])
    restored = int(WIDE_USD * NANOS_PER_USD / 2)
    since_then = sum(call.nanos or 0 for call in world.upstream.served() if call.id in {o.id for o in more.of("wide")})
    findings.expect(
        "a restored counter counts on from there", f"${(books.spent['wide'] - restored) / NANOS_PER_USD:.6f} since",
        books.spent["wide"] == restored + since_then,
    )  # fmt: skip
    since = {entry.user for entry in books.entries}
    found = compare(
        [call for call in world.upstream.served() if call.id in since], told + more.told, books, unlimited=["wide"]
    )
    findings.settle(found, goal="what is booked since then is what was served, to the cent")


def _log(world: World) -> str:
    return (world.folder / "proxy" / "log").read_text(errors="replace")


def _restore(world: World, config: dict[str, object], spent: dict[str, float]) -> None:
    """``stratiform budgets set-spent``, as an operator restores counters from a bill."""
    (world.folder / _CONFIG).write_text(yaml.safe_dump(config))
    for budget in json.loads(_budgets(world, "list", "--json"))["data"]:
        _budgets(world, "set-spent", budget["id"], f"{spent[budget['team']] / NANOS_PER_USD:.9f}")


def _budgets(world: World, *words: str) -> str:
    """``stratiform budgets ...`` on the store itself."""
    return stratiform("budgets", *words, "--config", str(world.folder / _CONFIG))


DRILLS = (
    Drill(
        "redis-flushed-deny", "FLUSHALL under load; on_store_error: deny; then set-spent",
        partial(_run, flushed, "deny"), needs_redis=True, is_short=True,
    ),
    Drill(
        "redis-flushed-allow", "FLUSHALL under load; on_store_error: allow; then set-spent",
        partial(_run, flushed, "allow"), needs_redis=True,
    ),
    Drill(
        "redis-restarted-empty", "Redis is restarted without what it held; on_store_error: deny; then set-spent",
        partial(_run, restarted, "deny"), needs_redis=True,
    ),
)  # fmt: skip
