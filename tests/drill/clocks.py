"""The machine's clock is set back by an hour, forward by a day, and right again: no budget begins anew."""

import time
from functools import partial
from pathlib import Path

from proxy.models.charges import NANOS_PER_USD
from tests.drill.clients import Clients, Told, statuses
from tests.drill.drill import Drill, Findings
from tests.drill.money import compare, read
from tests.drill.redis_outages import RESERVATION, TIGHT_USD, WIDE_USD
from tests.drill.world import World, wait_for

STEPS = (("back 1 h", -3600.0), ("forward 1 d", 86400.0), ("right again", 0.0))
_WINDOWS = {"hourly": "hour", "rolling": "rolling:1h", "daily": "day"}
_HOUR_S, _EARLY_S = 3600, 60


def _run(kind: str, world: World, findings: Findings) -> None:
    store = world.redis().url if kind == "redis" else f"sqlite:{world.folder / 'spend.sqlite'}"
    teams = {**dict.fromkeys(_WINDOWS, TIGHT_USD), "wide": WIDE_USD}
    config = world.config(store, teams)
    for team in config["stratiform"]["teams"]:
        team["budgets"][0]["window"] = _WINDOWS.get(team["name"], "total")
    clock, told, workers = world.folder / "proxy" / "clock", [], 2 if kind == "redis" else 1
    # No window may end by itself while the drill runs: it begins early in an hour.
    right_s = _EARLY_S - time.time() % _HOUR_S
    clock.parent.mkdir(parents=True, exist_ok=True)
    _set(clock, right_s)
    with world.proxy(config, workers, module="tests.drill.stepped") as proxy:
        with Clients(proxy.url, dict.fromkeys(teams, 2), pause_s=0.01) as clients:
            assert wait_for(lambda: all(any(one.status == 429 for one in clients.of(team)) for team in _WINDOWS), 60), (
                "the limits are not reached"
            )
        told += clients.told
        for name, offset_s in STEPS:
            _set(clock, right_s + offset_s)
            with Clients(proxy.url, dict.fromkeys(teams, 2), pause_s=0.05) as clients:
                time.sleep(2.0)
                assert wait_for(lambda clients=clients: all(clients.of(team) for team in teams), 120), "no answers"
            told += clients.told
            # What is left of a limit may still be enough for a small call.
            over = {team: _over(world, told, team) for team in _WINDOWS}
            figure = ", ".join(f"{team} ${nanos / NANOS_PER_USD:.4f}" for team, nanos in over.items())
            findings.expect(
                f"clock {name}: no limit is passed by more than one call's estimate", figure,
                all(nanos <= RESERVATION for nanos in over.values()),
            )  # fmt: skip
            wide = clients.of("wide")
            findings.expect(
                f"clock {name}: a budget with room serves", statuses(wide), {o.status for o in wide} == {200}
            )
        log = (world.folder / "proxy" / "log").read_text()
        # A worker with a store of its own holds its time back; one that shares a store goes by the store's time.
        warns = ("the clock was stepped by" if kind == "sqlite" else "off the store's") in log
        findings.expect("the log warns of the clock", "yes" if warns else "no", warns)
    findings.settle(compare(world.upstream.served(), told, read(store, ["wide"])))


def _over(world: World, told: list[Told], team: str) -> int:
    """By how much a team has passed its limit."""
    names = {one.id for one in told if one.team == team}
    return sum(call.nanos or 0 for call in world.upstream.served() if call.id in names) - int(TIGHT_USD * NANOS_PER_USD)


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
