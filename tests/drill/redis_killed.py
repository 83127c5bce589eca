"""Redis dies and is back a second later, under load, with budgets that go by ``allow`` and by ``deny``."""

import time
from typing import Literal

from proxy.core.budget import most_prompt_tokens
from proxy.store import NANOS_PER_USD
from tests.drill.clients import Clients, statuses
from tests.drill.drill import Drill, Findings
from tests.drill.money import compare, read
from tests.drill.world import World, gauge, wait_for
from tests.e2e.fleet import INPUT, OUTPUT

TIGHT_USD, WIDE_USD = 0.02, 1000.0
BACK_S, BACKLOG_S = 3.0, 10.0
# The most that is reserved for one call of the clients, whose bodies are shorter than this.
RESERVATION = most_prompt_tokens(1100, None, 1.0) * INPUT + 20 * OUTPUT


def _allow(world: World, findings: Findings) -> None:
    _kill(world, findings, "allow")


def _deny(world: World, findings: Findings) -> None:
    _kill(world, findings, "deny")


def _kill(world: World, findings: Findings, policy: Literal["allow", "deny"]) -> None:
    size, redis = world.size, world.redis()
    teams = {"tight": TIGHT_USD, "wide": WIDE_USD, "free": None}
    config = world.config(redis.url, teams, policy)
    crowd = {"tight": size.share(30), "wide": size.share(30), "free": size.share(40)}
    with world.proxy(config, size.workers) as proxy, Clients(proxy.url, crowd) as clients:
        assert wait_for(lambda: any(one.status == 429 for one in clients.of("tight")), 60), "the limit is not reached"
        killed_at = time.time()
        redis.kill()
        time.sleep(1.0)
        redis.start()
        back_at = time.time()
        is_replayed = wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, size.patience_s)
        replayed_at = time.time()
        # Limits must hold from here on, too.
        time.sleep(BACK_S)
        clients.__exit__(None, None, None)
        wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, 120)
    served = world.upstream.served()
    team_of = {one.id: one.team for one in clients.told}
    of_tight = [call for call in served if team_of.get(call.id) == "tight"]
    refused = [one for one in clients.of("wide") if one.status == 503]
    if policy == "allow":
        back_s = max((call.at for call in of_tight), default=0.0) - back_at
    else:
        back_s = max((one.began for one in refused), default=0.0) - back_at
    findings.within("reservations are back after", max(0.0, back_s), BACK_S)
    findings.within("the backlog is gone after", replayed_at - back_at if is_replayed else None, BACKLOG_S)
    outside = sum(call.nanos or 0 for call in of_tight if not killed_at <= call.at <= back_at + BACK_S)
    limit = int(TIGHT_USD * NANOS_PER_USD)
    if policy == "allow":
        findings.expect(
            "beyond the limit: only what was sent while Redis was away",
            f"limit ${TIGHT_USD}, beside the outage ${outside / 1e9:.4f}, in all ${_sum(of_tight) / 1e9:.4f}",
            outside <= limit,
            is_timed=True,
        )
    else:
        over = _sum(of_tight) - limit
        findings.expect(
            "the limit is passed by no more than a call's estimate", f"${over / 1e9:.4f}", over <= RESERVATION
        )
    away = [one.status for one in clients.of("free") if one.status not in (200, 0)]
    findings.expect("a team without a budget is served throughout", statuses(clients.of("free")), not away)
    cut = [one for one in clients.told if one.status == 0]
    findings.expect("no answer is cut off", len(cut), not cut)
    books = read(redis.url, teams)
    findings.settle(compare(served, clients.told, books, unlimited=["free"]))


def _sum(calls: list[object]) -> int:
    return sum(getattr(call, "nanos", 0) or 0 for call in calls)


DRILLS = (
    Drill(
        "redis-killed-allow", "Redis killed for 1 s under 100 clients and 4 workers; on_store_error: allow", _allow,
        needs_redis=True, is_short=True,
    ),
    Drill(
        "redis-killed-deny", "Redis killed for 1 s under 100 clients and 4 workers; on_store_error: deny", _deny,
        needs_redis=True, is_short=True,
    ),
)  # fmt: skip
