"""More load than the machine can carry, and a Redis that is well: nobody may take it for dead."""

import subprocess
import sys
import time
from contextlib import ExitStack

from tests.drill.clients import Clients, statuses
from tests.drill.drill import Drill, Findings
from tests.drill.money import compare, read
from tests.drill.redis_outages import WIDE_USD
from tests.drill.world import World, gauge, wait_for

TEAMS = {"red": WIDE_USD}
_LOAD_S = 10.0
_HOGS = 4


def _busy(world: World, findings: Findings) -> None:
    """Twice as many clients as elsewhere, while other processes want the processors, too."""
    redis = world.redis()
    made = world.config(redis.url, TEAMS, "deny")
    with world.proxy(made, world.size.workers) as proxy, ExitStack() as stack:
        for _ in range(_HOGS):
            hog = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(hog.kill)
        with Clients(proxy.url, {"red": 2 * world.size.clients}) as clients:
            time.sleep(_LOAD_S)
        wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, 120)
        outages = proxy.log.read_text(errors="replace").count("the store is away")
    findings.expect("Redis is never taken for dead", f"{outages} times", outages == 0)
    findings.expect("all are served", statuses(clients.told), {one.status for one in clients.told} == {200})
    found = compare(world.upstream.served(), clients.told, read(redis.url, TEAMS))
    findings.expect("nothing is estimated", len(found.estimated), not found.estimated)
    findings.settle(found)


DRILLS = (
    Drill(
        "redis-busy", "200 clients and four processes that want the processors; Redis is well", _busy, needs_redis=True
    ),
)
