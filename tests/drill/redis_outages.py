"""Redis fails under load for a while and keeps what it holds: killed, paused, read-only, out of memory."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

from proxy.models.bound import InputBound
from proxy.models.charges import NANOS_PER_USD
from tests.drill.clients import Clients, statuses
from tests.drill.drill import Drill, Findings
from tests.drill.money import compare, read
from tests.drill.upstream import Served
from tests.drill.world import World, gauge, wait_for
from tests.e2e.fleet import INPUT, OUTPUT
from tests.redis_server import RedisServer
from tests.services import free_port

TIGHT_USD, WIDE_USD = 0.02, 1000.0
BACK_S, BACKLOG_S = 3.0, 10.0
# The most that is reserved for one call of the clients, whose bodies are shorter than this.
RESERVATION = InputBound(text=1100).tokens(None) * INPUT + 20 * OUTPUT

Trouble = Callable[[RedisServer, float], None]
"""Does something to a server for so many seconds, and mends it."""


def killed(redis: RedisServer, outage_s: float) -> None:
    """It dies, and is started again after one second."""
    redis.kill()
    time.sleep(1.0)
    redis.start()


def paused(redis: RedisServer, outage_s: float) -> None:
    """It keeps its connections and answers nothing."""
    redis.pause()
    time.sleep(outage_s)
    redis.resume()


def read_only(redis: RedisServer, outage_s: float) -> None:
    """A failover makes another server the primary, and for a while this one is a replica."""
    assert redis.call("REPLICAOF", "127.0.0.1", str(free_port())) == "+OK"
    time.sleep(outage_s)
    assert redis.call("REPLICAOF", "NO", "ONE") == "+OK"


def out_of_memory(redis: RedisServer, outage_s: float) -> None:
    """It has reached its bound, and evicts nothing."""
    assert redis.call("CONFIG", "SET", "maxmemory", "1mb") == "+OK"
    time.sleep(outage_s)
    assert redis.call("CONFIG", "SET", "maxmemory", "0") == "+OK"


def _run(trouble: Trouble, policy: Literal["allow", "deny"], world: World, findings: Findings) -> None:
    size, redis = world.size, world.redis()
    teams = {"tight": TIGHT_USD, "wide": WIDE_USD, "free": None}
    crowd = {"tight": size.share(30), "wide": size.share(30), "free": size.share(40)}
    config = world.config(redis.url, teams, policy)
    with world.proxy(config, size.workers) as proxy, Clients(proxy.url, crowd) as clients:
        assert wait_for(lambda: any(one.status == 429 for one in clients.of("tight")), 120), "the limit is not reached"
        time.sleep(BACK_S / 3)
        failed_at = time.time()
        trouble(redis, size.outage_s)
        back_at = time.time()
        is_replayed = wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, size.patience_s)
        replayed_at = time.time()
        # Limits must hold from here on, too.
        time.sleep(BACK_S)
        clients.stop()
        wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, 120)
    served, told = world.upstream.served(), clients.told
    team_of = {one.id: one.team for one in told}
    of_tight = [call for call in served if team_of[call.id] == "tight"]
    over = _sum(of_tight) - int(TIGHT_USD * NANOS_PER_USD)
    if policy == "allow":
        last = max((call.at for call in of_tight), default=0.0)
        away = _sum(call for call in of_tight if failed_at <= call.at <= back_at + BACK_S)
        findings.expect(
            f"beyond the limit: only what is sent in the outage and {BACK_S:g} s behind it",
            f"beyond ${over / NANOS_PER_USD:.4f}, of it in the outage ${away / NANOS_PER_USD:.4f}",
            over <= away, is_timed=True,
        )  # fmt: skip
    else:
        last = max((one.began for one in told if one.team == "wide" and one.status == 503), default=0.0)
        findings.expect(
            "the limit is passed by no more than one call's estimate",
            f"by ${over / NANOS_PER_USD:.4f}",
            over <= RESERVATION,
        )
    findings.within("reservations are back after", max(0.0, last - back_at), BACK_S)
    findings.within("the backlog is gone after", replayed_at - back_at if is_replayed else None, BACKLOG_S)
    free = clients.of("free")
    findings.expect(
        "a team without a budget is served throughout", statuses(free), {one.status for one in free} == {200}
    )
    findings.expect("no answer is cut off", statuses(told), not any(one.status == 0 for one in told))
    books = read(redis.url, teams)
    found = compare(served, told, books, unlimited=["free"])
    findings.expect("nothing is estimated", len(found.estimated), not found.estimated)
    findings.settle(found)


def _sum(calls: Iterable[Served]) -> int:
    return sum(call.nanos or 0 for call in calls)


DRILLS = tuple(
    Drill(
        f"redis-{name}-{policy}",
        f"{done}, under 100 clients and 4 workers; on_store_error: {policy}",
        partial(_run, trouble, policy),
        needs_redis=True,
        is_short=(name, policy) == ("killed", "allow"),
    )
    for name, done, trouble, policies in (
        ("killed", "Redis is killed and started again after 1 s", killed, ("allow", "deny")),
        ("paused", "Redis is stopped in its tracks for 5 s", paused, ("allow",)),
        ("read-only", "Redis is a read-only replica for 5 s", read_only, ("deny",)),
        ("out-of-memory", "Redis is out of memory for 5 s", out_of_memory, ("deny",)),
    )
    for policy in policies
)
