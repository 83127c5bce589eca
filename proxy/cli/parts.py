"""Puts the app together: everything that ``create_app`` needs, from settings."""

from collections.abc import Callable, Mapping

from proxy.admission import Gate
from proxy.cli import compose
from proxy.clock import SystemClock
from proxy.core.planner import TierPlanner
from proxy.core.tokens import Encode
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


def _no_obstacle() -> str:
    return ""


async def build(
    settings: Settings,
    *,
    upstreams: Mapping[Transport, Upstream] | None = None,
    clock: Clock | None = None,
    encode: Encode | None = None,
    obstacle: Callable[[], str] = _no_obstacle,
) -> Parts:
    """The parts of an app. Given upstreams stand in for those that the settings ask for. Raises ConfigError."""
    ours, prices = settings.stratiform, compose.price_map(settings)
    table = compose.model_table(settings, prices)
    identity = compose.identity(settings)
    encode = encode or local_encode()
    budgets = compose.budgets(settings, await compose.open_store(settings), prices)
    gate = Gate(identity, budgets)
    metrics = Metrics(models=table.names(), teams=[DEFAULT_TEAM, *(team.name for team in ours.teams)])
    metrics.watch_budgets(budgets.remaining)
    engine = Engine(
        models=table,
        upstreams={**make_upstreams(table.transports(), encode), **(upstreams or {})},
        planner=Planning(TierPlanner(encode, recognisers(build_plugin_manager()), ours.policy)),
        admission=gate,
        meter=Meter(metrics, prices),
        clock=clock or SystemClock(),
        limits=Limits(body_bytes=int(ours.limits.max_body_mib * (1 << 20))),
        trust_time_header=ours.clock == "header",
    )
    return Parts(engine=engine, models=table, metrics=metrics, obstacle=obstacle, on_close=[gate.aclose])


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
