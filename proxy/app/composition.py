"""Puts the app together: everything that ``create_app`` needs, from settings."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from proxy.access.directory import DEFAULT_TEAM
from proxy.admin import AdminService
from proxy.app import declared, factories
from proxy.app.reload import Reload
from proxy.aside import Aside
from proxy.clock import Readings, SteadyClock
from proxy.core.planner.options import PlannerOptions
from proxy.core.planner.planner import TierPlanner
from proxy.core.request.tokens import Encode, quick
from proxy.core.resilience.circuit_breaker import BreakerPolicy
from proxy.core.resilience.retry import RetryPolicy
from proxy.engine import Bounds, Breakers, Custody, Engine, Limits
from proxy.planning.keep_alive import KeepAlive
from proxy.planning.layout_state import SharedLayoutStore
from proxy.planning.planner_port import Planning
from proxy.planning.tokenizers import local_encode
from proxy.plugins import build_plugin_manager, recognisers
from proxy.ports import Clock, Transport, Upstream
from proxy.settings import Settings
from proxy.spend.admission import AdmissionControl
from proxy.spend.epochs import Epochs
from proxy.spend.rules import LimitResolver, rule_of
from proxy.spend.timekeeping import ClockNews, Timekeeper
from proxy.telemetry.condition import Condition
from proxy.telemetry.meter import Meter
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.multiprocess import SharedMetrics
from proxy.upstream.embedded import EmbeddedUpstream
from proxy.upstream.http import HttpUpstream
from proxy.upstream.litellm_ import LitellmUpstream
from proxy.web.admin import AdminEndpoint
from proxy.web.app import Parts


@dataclass(frozen=True, slots=True)
class Assembly:
    """An app's parts, the upstreams among them, and what takes a changed configuration over."""

    parts: Parts
    upstreams: Mapping[Transport, Upstream]
    reload: Reload


@dataclass(frozen=True, slots=True)
class Worker:
    """One of several processes that serve: its number, and the metrics of all of them."""

    slot: int
    metrics: SharedMetrics


def _no_obstacle() -> str:
    return ""


async def build(
    settings: Settings,
    *,
    upstreams: Mapping[Transport, Upstream] | None = None,
    clock: Clock | None = None,
    readings: Readings | None = None,
    encode: Encode | None = None,
    obstacle: Callable[[], str] = _no_obstacle,
    worker: Worker | None = None,
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Assembly:
    """The parts of an app. Given upstreams stand in for those that the settings ask for, and ``readings`` for the
    machine's clocks; ``wait`` sleeps for so many seconds of the clock. Raises ConfigError."""
    ours, prices = settings.stratiform, factories.price_map(settings)
    models = factories.model_table(settings, prices)
    encode = encode or local_encode()
    served = [models.resolve(name) for name in models.names()]
    metrics = Metrics(
        served, teams=[DEFAULT_TEAM, *(team.name for team in ours.teams)], shared=worker.metrics if worker else None
    )
    store = await factories.open_store(settings, is_serving=True)
    system = SteadyClock(readings, ClockNews(metrics))
    timekeeper = Timekeeper(system, store, settings.spool_folder if store.is_durable else None)
    await timekeeper.start()
    directory = declared.directory(settings, store)

    def store_changed(is_exchanged: bool) -> None:
        metrics.store_is_exchanged(is_exchanged)
        if not is_exchanged:
            directory.forget_lost()

    epochs = Epochs(store, factories.epoch_file(settings) if store.is_durable else None, store_changed)
    await epochs.start()
    await directory.load()
    if store.is_durable:
        directory.watch()
    webhook = ours.budgets.webhook
    rules = LimitResolver(directory, webhook.url.get_secret_value() if webhook is not None else "")
    reservations = factories.budget_reservations(settings, rules, store, prices, metrics, system, epochs)
    await reservations.start()
    for budget in directory.snapshot.budgets.values():
        if budget.scope == "team":
            await reservations.alerts.look(budget.team, [rule_of(budget, "")], system.now())
    metrics.watch_budgets(reservations.alerts.remaining)
    identity = declared.identity(settings, directory, store)
    admission = AdmissionControl(identity, reservations)
    used = {**make_upstreams(encode), **(upstreams or {})}
    routing = settings.routing
    breaking = BreakerPolicy(allowed_fails=routing.allowed_fails, cooldown_s=routing.cooldown_s)
    room = int(ours.limits.state_mib * (1 << 20))
    aside = Aside()
    planner = Planning(
        TierPlanner(
            quick(encode),
            recognisers(build_plugin_manager(), metrics),
            ours.policy,
            PlannerOptions(ours.holdout, ours.routing_keys, ours.steady_tools),
            room,
            prefix=f"{secrets.token_hex(4)}-" if store.is_durable else "s",
        ),
        SharedLayoutStore(store, metrics.store_failed, is_shared=store.is_shared, memory_bytes=room)
        if store.is_durable
        else None,
        aside,
    )
    meter, terms = Meter(metrics, prices), factories.keep_alive_terms(settings)
    custody = Custody(
        store,
        models,
        system,
        metrics.store_failed,
        Bounds(ours.objects.most_per_team, ours.objects.retention_days * 86400.0),
        aside,
    )
    engine = Engine(
        custody=custody,
        models=models,
        upstreams=used,
        planner=planner,
        admission=admission,
        meter=meter,
        clock=clock or system,
        limits=Limits(
            body_bytes=int(ours.limits.max_body_mib * (1 << 20)),
            receive_s=ours.limits.receive_s,
        ),
        trust_time_header=ours.clock == "header",
        retries=RetryPolicy(retries=routing.num_retries, least_wait_s=routing.retry_after_s),
        breakers=Breakers(breaking if routing.has_breakers else None, metrics.breaker),
        aside=aside,
        refresher=None
        if terms is None
        else KeepAlive(
            terms,
            upstreams=used,
            planner=planner,
            admission=admission,
            meter=meter,
            clock=clock or system,
            price_of=factories.price_source(prices),
            on_refresh=metrics.refreshed,
            wait=wait,
        ),
    )
    parts = Parts(
        engine=engine,
        models=models,
        metrics=metrics,
        obstacle=obstacle,
        faults=Condition(reservations.store_client, epochs, directory, ours.budgets.on_store_error).faults,
        on_close=[admission.aclose, directory.aclose, planner.aclose, timekeeper.aclose, epochs.aclose],
        admin=AdminEndpoint(AdminService(directory, store, system, epochs), identity) if identity.has_master else None,
    )
    return Assembly(parts, used, Reload(models, prices, directory))


def make_upstreams(encode: Encode) -> dict[Transport, Upstream]:
    """An upstream for each transport. None of them does anything before its first call."""
    return {
        Transport.HTTP: HttpUpstream(),
        Transport.LITELLM: LitellmUpstream(),
        Transport.EMBEDDED: EmbeddedUpstream(encode),
    }
