"""The machine's clock is set back by an hour, forward by a day, and right again: no budget begins anew."""

import time
from functools import partial
from pathlib import Path

from proxy.store import NANOS_PER_USD
from tests.drill.clients import Clients, statuses
from tests.drill.drill import Drill, Findings
from tests.drill.money import compare, read
from tests.drill.redis_outages import RESERVATION, TIGHT_USD, WIDE_USD
from tests.drill.world import World, wait_for

STEPS = (("back 1 h", -3600.0), ("forward 1 d", 86400.0), ("right again", 0.0))
_WINDOWS = {"hourly": "hour", "rolling": "rolling:1h", "daily": "day"}
_HOUR_S, _MARGIN_S = 3600, 90


def _run(kind: str, world: World, findings: Findings) -> None:
    store = world.redis().url if kind == "redis" else f"sqlite:{world.folder / 'spend.sqlite'}"
    teams = {**dict.fromkeys(_WINDOWS, TIGHT_USD), "wide": WIDE_USD}
    config = world.config(store, teams)
    for team in config["stratiform"]["teams"]:
        team["budgets"][0]["window"] = _WINDOWS.get(team["name"], "total")
    # No window may end by itself while the drill runs.
    if time.time() % _HOUR_S > _HOUR_S - _MARGIN_S:
        time.sleep(_MARGIN_S)
    clock, told, workers = world.folder / "proxy" / "clock", [], 2 if kind == "redis" else 1
    with world.proxy(config, workers, module="tests.drill.stepped") as proxy:
        with Clients(proxy.url, dict.fromkeys(teams, 2), pause_s=0.01) as clients:
            assert wait_for(lambda: all(any(one.status == 429 for one in clients.of(team)) for team in _WINDOWS), 60), (
                "the limits are not reached"
            )
        told += clients.told
        for name, offset_s in STEPS:
            _set(clock, offset_s)
            with Clients(proxy.url, dict.fromkeys(teams, 2), pause_s=0.05) as clients:
                time.sleep(2.0)
            told += clients.told
            served = {team: sum(one.status == 200 for one in clients.of(team)) for team in _WINDOWS}
            findings.expect(f"clock {name}: no spent budget begins anew", served, not any(served.values()))
            wide = clients.of("wide")
            findings.expect(
                f"clock {name}: a budget with room serves", statuses(wide), {o.status for o in wide} == {200}
            )
        log = (world.folder / "proxy" / "log").read_text()
        findings.expect("the log warns of the clock", "yes" if "clock" in log else "no", "clock" in log)
    team_of = {one.id: one.team for one in told}
    calls = world.upstream.served()
    for team in _WINDOWS:
        over = sum(c.nanos or 0 for c in calls if team_of[c.id] == team) - int(TIGHT_USD * NANOS_PER_USD)
        findings.expect(
            f"{team}: passed by no more than one call's estimate", f"${over / NANOS_PER_USD:.4f}", over <= RESERVATION
        )
    findings.settle(compare(calls, told, read(store, ["wide"])))


def _set(clock: Path, offset_s: float) -> None:
    new = clock.with_suffix(".new")
    new.write_text(str(offset_s))
    new.rename(clock)


DRILLS = tuple(
    Drill(
        f"clock-stepped-{kind}", f"the clock is set back 1 h, forward 1 d, and right again; the store is {name}",
        partial(_run, kind), needs_redis=kind == "redis", is_short=kind == "sqlite",
    )
    for kind, name in (("sqlite", "a SQLite file"), ("redis", "a Redis"))
)  # fmt: skip
