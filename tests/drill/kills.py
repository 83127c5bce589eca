"""Workers and the process above them are killed under load, while the store is well and while it is away."""

import os
import random
import signal
import time
from functools import partial
from pathlib import Path

from tests.drill.clients import Clients, Kind, Told, statuses
from tests.drill.drill import Drill, Findings
from tests.drill.money import compare, read
from tests.drill.redis_outages import RESERVATION, WIDE_USD
from tests.drill.world import World, gauge, wait_for
from tests.e2e.fleet import Fleet

TEAMS = {"red": WIDE_USD, "free": None}
# Long enough for kills to find calls under way at every step.
_CALLS = Kind(delay_s=0.02)


def _workers(is_away: bool, world: World, findings: Findings) -> None:
    """A worker every second, whichever."""
    size, chance = world.size, random.Random(7)
    redis = world.redis()
    with world.proxy(world.config(redis.url, TEAMS), size.workers) as proxy:
        with Clients(proxy.url, _crowd(world), _CALLS) as clients:
            wait_for(lambda: len(clients.told) >= size.clients, 120)
            if is_away:
                redis.kill()
            kills = 0
            # All clients may have their connections to one worker: then a kill of another one is felt by nobody.
            while kills < size.kills or (
                kills < 10 * size.kills and not any(o.status == 0 for o in list(clients.told))
            ):
                _wait_for_workers(proxy, size.workers + kills)
                time.sleep(chance.uniform(0.5, 1.0))
                os.kill(chance.choice(proxy.workers()), signal.SIGKILL)
                kills += 1
            if is_away:
                redis.start()
        # Whoever takes a dead worker's place takes its spool over.
        _wait_for_workers(proxy, size.workers + kills)
        assert wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, 120), "the backlog does not go away"
        is_up = proxy.process.poll() is None
    findings.expect("the process above goes on", "yes" if is_up else "no", is_up)
    _compare(world, findings, redis.url, clients.told)


def _parent(is_away: bool, world: World, findings: Findings) -> None:
    """The process above, so that its workers end in order by themselves; then it is started anew."""
    size, redis, told = world.size, world.redis(), list[Told]()
    config = world.config(redis.url, TEAMS, limits={"drain_s": 5})
    for number in range(max(2, size.kills // 3)):
        with world.proxy(config, size.workers) as proxy:
            workers = proxy.workers()
            with Clients(proxy.url, _crowd(world), _CALLS) as clients:
                wait_for(lambda clients=clients: len(clients.told) >= size.clients, 120)
                if is_away:
                    redis.kill()
                    time.sleep(1.0)
                os.kill(proxy.process.pid, signal.SIGKILL)
                proxy.process.wait()
                time.sleep(0.5)
            told += clients.told
            ended = wait_for(lambda workers=workers: not any(_runs(pid) for pid in workers), 120)
            findings.expect(f"workers end by themselves after kill {number + 1}", "yes" if ended else "no", ended)
            for pid in workers:
                if _runs(pid):
                    os.kill(pid, signal.SIGKILL)
        if is_away:
            redis.start()
    with world.proxy(config, size.workers) as proxy:
        assert wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, 120), "the backlog does not go away"
    _compare(world, findings, redis.url, told)


def _sqlite(world: World, findings: Findings) -> None:
    """The only process, over a SQLite file, at any moment."""
    size, chance, told = world.size, random.Random(7), list[Told]()
    store = f"sqlite:{world.folder / 'spend.sqlite'}"
    config = world.config(store, TEAMS)
    for _ in range(size.kills):
        with world.proxy(config) as proxy, Clients(proxy.url, _crowd(world), _CALLS) as clients:
            wait_for(lambda clients=clients: len(clients.told) >= size.clients // 2, 120)
            time.sleep(chance.uniform(0.0, 0.2))
            _kill(proxy)
        told += clients.told
    with world.proxy(config):
        pass
    _compare(world, findings, store, told)


def _wait_for_workers(proxy: Fleet, count: int) -> None:
    """Return when so many workers have begun to serve."""
    assert wait_for(lambda: _started(proxy) >= count, 120), "none takes over"


def _started(proxy: Fleet) -> int:
    """How many workers have begun to serve."""
    return proxy.log.read_text(errors="replace").count("/v1, mode")


def _kill(proxy: Fleet) -> None:
    proxy.process.kill()
    proxy.process.wait()


def _compare(world: World, findings: Findings, store: str, told: list[Told]) -> None:
    found = compare(
        world.upstream.served(), told, read(store, TEAMS), unlimited=["free"], ceiling=RESERVATION
    )  # fmt: skip
    answered = {one.status for one in told} - {0}
    findings.expect("no answer but whole ones and those that a kill cuts off", statuses(told), answered == {200})
    cut = sum(one.status == 0 or not one.is_complete for one in told)
    findings.expect("kills are felt", f"{cut} cut off", cut > 0)
    findings.expect(
        "what is estimated was under way at a kill", f"{len(found.estimated)} of {cut}", len(found.estimated) <= cut
    )
    findings.settle(found)


def _crowd(world: World) -> dict[str, int]:
    return {"red": world.size.share(30), "free": world.size.share(20)}


def _runs(pid: int) -> bool:
    """Whether it is there; one that has ended and that nobody has asked about yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


DRILLS = (
    Drill(
        "workers-killed", "a worker is killed every second under load, ten times", partial(_workers, False),
        needs_redis=True,
    ),
    Drill(
        "workers-killed-store-away", "a worker is killed every second under load while Redis is away, ten times",
        partial(_workers, True), needs_redis=True, is_short=True,
    ),
    Drill(
        "parent-killed", "the process above the workers is killed under load", partial(_parent, False),
        needs_redis=True,
    ),
    Drill(
        "parent-killed-store-away", "the process above the workers is killed under load while Redis is away",
        partial(_parent, True), needs_redis=True,
    ),
    Drill(
        "process-killed-sqlite", "the only process is killed under load, ten times, over SQLite", _sqlite, is_short=True
    ),
)  # fmt: skip
