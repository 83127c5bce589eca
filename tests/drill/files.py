"""Files fail: the disk of the store or of the spool is full, the database is damaged, the spool takes nothing."""

import http.client
import json
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from functools import partial
from typing import Any, Literal

from tests.damage import overwrite, settle
from tests.drill.clients import Clients, Told, statuses
from tests.drill.disk import Disk
from tests.drill.drill import Drill, Findings
from tests.drill.money import compare, read
from tests.drill.redis_outages import WIDE_USD
from tests.drill.world import Impossible, World, gauge, wait_for
from tests.e2e.fleet import Fleet

TEAMS = {"red": WIDE_USD, "free": None}
Policy = Literal["allow", "deny"]
# So long after the disk is full what was under way is over.
_SETTLES_S = 3.0


def _full_store(policy: Policy, world: World, findings: Findings) -> None:
    """The disk of a SQLite store is full."""
    disk = Disk(world)
    store = f"sqlite:{disk.folder / 'spend.sqlite'}"
    config = world.config(store, TEAMS, policy)
    with world.proxy(config) as proxy, Clients(proxy.url, _crowd(world), pause_s=0.02) as clients:
        assert wait_for(lambda: len(clients.told) >= world.size.clients, 120), "nothing is served"
        disk.fill(proxy)
        _settle(policy, proxy, clients)
        full_at = time.time()
        time.sleep(world.size.outage_s)
        _wait_for_answers(clients, full_at)
        ready = readiness(proxy)
        freed_at = time.time()
        disk.free(proxy)
        assert wait_for(lambda: gauge(proxy.url, "store_away") == 0, 120), "the store does not come back"
        time.sleep(1.0)
        clients.stop()
        wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, 120)
    meanwhile = [one for one in clients.told if full_at <= one.began and one.ended <= freed_at]
    # The spool is on the same disk: with deny nothing is sent whose cost can be written nowhere.
    _by_policy(policy, meanwhile, ready, findings, free=503 if policy == "deny" else 200)
    findings.settle(compare(world.upstream.served(), clients.told, read(store, TEAMS), unlimited=["free"]))


def _full_at_start(world: World, findings: Findings) -> None:
    """The disk of a SQLite store is full when the proxy starts."""
    disk = Disk(world)
    if not disk.is_mounted:
        raise Impossible("a small disk can only be mounted by root")
    store = f"sqlite:{disk.folder / 'spend.sqlite'}"
    config, crowd = world.config(store, TEAMS, "deny"), {"red": 4, "free": 4}
    with world.proxy(config) as proxy, Clients(proxy.url, crowd, calls=5) as first:
        first.wait()
    disk.fill()
    with world.proxy(config) as proxy:
        with Clients(proxy.url, crowd, calls=50) as second:
            second.wait()
        ready = readiness(proxy)
        disk.free()
        mended = wait_for(lambda: gauge(proxy.url, "store_away") == 0 and gauge(proxy.url, "spool_pending") == 0, 120)
        with Clients(proxy.url, crowd, calls=10) as third:
            third.wait()
    _by_policy("deny", second.told, ready, findings, free=503)
    after = {one.status for one in third.told}
    findings.expect("all are served when there is room again", statuses(third.told), mended and after == {200})
    told = first.told + second.told + third.told
    findings.settle(compare(world.upstream.served(), told, read(store, TEAMS), unlimited=["free"]))


def _full_spool(policy: Policy, world: World, findings: Findings) -> None:
    """Redis is away, and the disk of the spool is full."""
    disk, redis = Disk(world), world.redis()
    config = world.config(redis.url, TEAMS, policy, spool=str(disk.folder / "spool"))
    with world.proxy(config, 2) as proxy, Clients(proxy.url, _crowd(world), pause_s=0.05) as clients:
        assert wait_for(lambda: len(clients.told) >= world.size.clients, 120), "nothing is served"
        disk.fill(proxy)
        redis.kill()
        _settle(policy, proxy, clients)
        away_at = time.time()
        time.sleep(world.size.outage_s)
        _wait_for_answers(clients, away_at)
        ready = readiness(proxy)
        back_at = time.time()
        redis.start()
        assert wait_for(lambda: gauge(proxy.url, "store_away") == 0, 120), "the store does not come back"
        disk.free(proxy)
        time.sleep(1.0)
        clients.stop()
        wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, 120)
    meanwhile = [one for one in clients.told if away_at <= one.began and one.ended <= back_at]
    # With deny nothing is sent whose cost can be written nowhere.
    _by_policy(policy, meanwhile, ready, findings, free=503 if policy == "deny" else 200)
    findings.settle(compare(world.upstream.served(), clients.told, read(redis.url, TEAMS), unlimited=["free"]))


def _damaged(policy: Policy, world: World, findings: Findings) -> None:
    """Pages of the database are overwritten while the proxy is down; later a backup is put in their place."""
    path = world.folder / "spend.sqlite"
    store = f"sqlite:{path}"
    config = world.config(store, TEAMS, policy)
    crowd = {"red": 4, "free": 4}
    with world.proxy(config) as proxy, Clients(proxy.url, crowd, calls=25) as first:
        first.wait()
    backup = path.with_suffix(".backup")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    settle(path)
    # Every page but the first, which has the schema, holds something else.
    page = int.from_bytes(path.read_bytes()[16:18], "big")
    overwrite(path, page, path.stat().st_size - page)
    with world.proxy(config) as proxy:
        with Clients(proxy.url, crowd, calls=10) as second:
            second.wait()
        ready = readiness(proxy)
        log = (world.folder / "proxy" / "log").read_text()
        for left in ("-wal", "-shm"):
            path.with_name(path.name + left).unlink(missing_ok=True)
        backup.replace(path)
        mended = wait_for(lambda: gauge(proxy.url, "store_away") == 0 and gauge(proxy.url, "spool_pending") == 0, 120)
        with Clients(proxy.url, crowd, calls=10) as third:
            third.wait()
    lines = [line for line in log.splitlines() if "is damaged (" in line]
    said = f"{len(lines)} lines: {lines[0][30:120]}" if lines else "no"
    findings.expect("the log says once at start that the database is damaged", said, len(lines) == 1)
    # Budgets that were made while the proxy ran cannot be read: there may be one for any team.
    _by_policy(policy, second.told, ready, findings, free=503 if policy == "deny" else 200)
    after = {one.status for one in third.told}
    findings.expect(
        "a backup in its place is taken without a restart", statuses(third.told), mended and after == {200}
    )  # fmt: skip
    told = first.told + second.told + third.told
    findings.settle(compare(world.upstream.served(), told, read(store, TEAMS), unlimited=["free"]))


def _unwritable_spool(world: World, findings: Findings) -> None:
    """Redis is away and the spool takes nothing, and the proxy is told to stop; then all is well again."""
    redis, spool = world.redis(), world.folder / "spool"
    fallback = str(world.folder / "fallback")
    config = world.config(redis.url, TEAMS, "allow", spool=str(spool), spool_fallback=fallback)
    with world.proxy(config, 2) as proxy, Clients(proxy.url, _crowd(world)) as clients:
        assert wait_for(lambda: len(clients.told) >= world.size.clients, 120), "nothing is served"
        if spool.exists():
            shutil.rmtree(spool)
        spool.write_text("a file stands where the folder should be")
        redis.kill()
        time.sleep(world.size.outage_s)
        clients.stop()
        proxy.process.send_signal(signal.SIGTERM)
        proxy.process.wait(120)
    log = (world.folder / "proxy" / "log").read_text()
    spool.unlink()
    redis.start()
    with world.proxy(config, 2) as proxy:
        wait_for(lambda: gauge(proxy.url, "spool_pending") == 0, 120)
    books = read(redis.url, TEAMS)
    found = compare(world.upstream.served(), clients.told, books, unlimited=["free"])
    booked = {entry.user for entry in books.entries}
    lost = [call.id for call in world.upstream.served() if call.id not in booked]
    unsaid = [name for name in lost if f'"{name}"' not in log]
    findings.expect(
        "what is not booked afterwards stands in the log, each of them",
        f"{len(lost)} not booked, {len(unsaid)} of them not in the log", not unsaid,
    )  # fmt: skip
    if lost and not unsaid:
        findings.money = found
    else:
        findings.settle(found)


def _settle(policy: Policy, proxy: Fleet, clients: Clients) -> None:
    """Return when what was under way is over, and what there was room for has been written."""
    time.sleep(_SETTLES_S)
    if policy == "deny":
        assert wait_for(lambda: readiness(proxy)[0] == 503, 120), "the fault is not noticed"
        for team in TEAMS:
            is_refused = wait_for(lambda team=team: [o.status for o in clients.of(team)[-20:]] == [503] * 20, 120)
            assert is_refused, f"{team} is served though nothing can be written"


def _wait_for_answers(clients: Clients, since: float) -> None:
    """Return when each team has been told something about calls that began since then."""
    for team in TEAMS:
        found = wait_for(lambda team=team: any(one.began >= since for one in clients.of(team)), 120)
        assert found, f"{team} is told nothing"


def readiness(proxy: Fleet) -> tuple[int, Any]:
    """What ``/readyz`` says: the status, and the body."""
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=120)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def _by_policy(
    policy: Policy, meanwhile: list[Told], ready: tuple[int, Any], findings: Findings, *, free: int = 200
) -> None:
    """What clients are told while nothing can be written, and whether the proxy calls itself ready. ``free`` is what
    teams without a budget are told."""
    for team, wanted in (("red", 503 if policy == "deny" else 200), ("free", free)):
        told = [one for one in meanwhile if one.team == team]
        who = "a hard budget" if team == "red" else "a team without a budget"
        does = "is served" if wanted == 200 else "is refused"
        findings.expect(f"{who} {does} meanwhile", statuses(told), {one.status for one in told} == {wanted})
    wanted = 503 if policy == "deny" else 200
    names = ready[0] == wanted and ready[1] != {"status": "ready"}
    findings.expect(f"/readyz answers {wanted} and names the fault", f"{ready[0]} {json.dumps(ready[1])[:80]}", names)


def _crowd(world: World) -> dict[str, int]:
    return {"red": world.size.share(10), "free": world.size.share(10)}


DRILLS = (
    *(
        Drill(
            f"disk-full-{policy}", f"the disk of a SQLite store is full; on_store_error: {policy}",
            partial(_full_store, policy), is_short=policy == "deny",
        )
        for policy in ("deny", "allow")
    ),
    Drill(
        "disk-full-at-start", "the disk of a SQLite store is full as the proxy starts; on_store_error: deny",
        _full_at_start,
    ),
    *(
        Drill(
            f"spool-full-{policy}", f"Redis is away and the spool's disk is full; on_store_error: {policy}",
            partial(_full_spool, policy), needs_redis=True,
        )
        for policy in ("deny", "allow")
    ),
    *(
        Drill(
            f"database-damaged-{policy}",
            f"pages of a SQLite store are overwritten, later a backup is put back; on_store_error: {policy}",
            partial(_damaged, policy), is_short=policy == "deny",
        )
        for policy in ("deny", "allow")
    ),
    Drill(
        "spool-unwritable-stop", "Redis is away, the spool takes nothing, and the proxy is told to stop",
        _unwritable_spool, needs_redis=True, is_short=True,
    ),
)  # fmt: skip
