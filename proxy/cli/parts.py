"""Puts the app together: everything that ``create_app`` needs, from settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proxy.admission import Gate
from proxy.cli import compose
from proxy.clock import SystemClock
from proxy.core.planner import TierPlanner
from proxy.core.tokens import Encode, sampled
from proxy.encodings import local_encode
from proxy.engine import Engine, Limits
from proxy.identity import DEFAULT_TEAM
from proxy.meter import Meter
from proxy.metrics import Metrics
from proxy.planning import Planning
from proxy.plugins import build_plugin_manager, recognisers
from proxy.ports import Clock, Transport, Upstream
from proxy.settings import Settings
from proxy.upstream.embedded import EmbeddedUpstream
from proxy.upstream.http import HttpUpstream
from proxy.upstream.litellm_ import LitellmUpstream
from proxy.web.app import Parts


@dataclass(frozen=True, slots=True)
class Assembly:
    """An app's parts, and the upstreams among them."""

    parts: Parts
    upstreams: Mapping[Transport, Upstream]


def _no_obstacle() -> str:
    return ""


async def build(
    settings: Settings,
    *,
    upstreams: Mapping[Transport, Upstream] | None = None,
    clock: Clock | None = None,
    encode: Encode | None = None,
    obstacle: Callable[[], str] = _no_obstacle,
) -> Assembly:
    """The parts of an app. Given upstreams stand in for those that the settings ask for. Raises ConfigError."""
    ours, prices = settings.stratiform, compose.price_map(settings)
    table = compose.model_table(settings, prices)
    identity = compose.identity(settings)
    encode = encode or local_encode()
    budgets = compose.budgets(settings, await compose.open_store(settings), prices)
    await budgets.load()
    gate = Gate(identity, budgets)
    served = [table.resolve(name) for name in table.names()]
    metrics = Metrics(served, teams=[DEFAULT_TEAM, *(team.name for team in ours.teams)])
    metrics.watch_budgets(budgets.remaining)
    used = {**make_upstreams(table.transports(), encode), **(upstreams or {})}
    engine = Engine(
        models=table,
        upstreams=used,
        planner=Planning(
            TierPlanner(sampled(encode), recognisers(build_plugin_manager(), metrics.plugin_failed), ours.policy)
        ),
        admission=gate,
        meter=Meter(metrics, prices),
        clock=clock or SystemClock(),
        limits=Limits(body_bytes=int(ours.limits.max_body_mib * (1 << 20))),
        trust_time_header=ours.clock == "header",
    )
    parts = Parts(engine=engine, models=table, metrics=metrics, obstacle=obstacle, on_close=[gate.aclose])
    return Assembly(parts, used)


def make_upstreams(transports: frozenset[Transport], encode: Encode) -> dict[Transport, Upstream]:
    """An upstream for each transport. None of them does anything before its first call."""
    made: dict[Transport, Upstream] = {}
    if Transport.HTTP in transports:
        made[Transport.HTTP] = HttpUpstream()
    if Transport.LITELLM in transports:
        made[Transport.LITELLM] = LitellmUpstream()
    if Transport.EMBEDDED in transports:
        made[Transport.EMBEDDED] = EmbeddedUpstream(encode)
    return made
