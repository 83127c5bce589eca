"""Puts the app together: everything that ``create_app`` needs, from settings."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pluggy

from proxy.access.authentication import Identity
from proxy.access.directory import DEFAULT_TEAM, Directory
from proxy.admin import AdminService
from proxy.app import declared, factories, prompting
from proxy.app.fixed_texts import load_context_texts, load_window_texts
from proxy.app.prompt_registry import LazyRegistry
from proxy.app.reload import Reload
from proxy.aside import Aside
from proxy.clock import Readings, SteadyClock
from proxy.core.money.prices import PriceMap
from proxy.core.planner.options import PlannerOptions
from proxy.core.planner.planner import TierPlanner
from proxy.core.request.tokens import Encode, quick
from proxy.core.structured.history.compaction_proposal import CompactionRules
from proxy.engine import Bounds, Breakers, Conclusion, Custody, Engine, Ports
from proxy.engine.ports import Follower
from proxy.planning.compactions import Compactions
from proxy.planning.compactor import Compactor
from proxy.planning.context_assembler import ContextAssembler
from proxy.planning.context_sessions import ContextSessions
from proxy.planning.fingerprint_file import FingerprintFile
from proxy.planning.followers import Followers
from proxy.planning.keep_alive import KeepAlive
from proxy.planning.layout_state import SharedLayoutStore
from proxy.planning.model_facts import ModelFacts
from proxy.planning.own_exchanges import OwnExchanges
from proxy.planning.planner_port import Planning
from proxy.planning.session_store import SessionStore
from proxy.planning.structured import StructuredChats
from proxy.planning.text_store import TextStore
from proxy.planning.token_factors import TokenFactors
from proxy.planning.tokenizers import local_encode
from proxy.planning.windows import ContextWindows
from proxy.plugins import build_plugin_manager, recognisers, symbol_indexer
from proxy.ports import Transport, Upstream
from proxy.prompting.composer import Composer
from proxy.settings import Settings
from proxy.spend.alerts import BudgetAlerts
from proxy.spend.condition import faults
from proxy.spend.epochs import Epochs
from proxy.spend.estimates import Estimates
from proxy.spend.reservations import BudgetReservations
from proxy.spend.rules import LimitResolver, rule_of
from proxy.spend.store_client import StoreClient
from proxy.spend.timekeeping import ClockNews, Timekeeper
from proxy.spend.webhooks import WebhookSender
from proxy.storage.port import Store
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


@dataclass(frozen=True, slots=True)
class _State:
    """What outlives a request: the store, the time that it goes by, and the teams, keys and budgets in it."""

    store: Store
    clock: SteadyClock
    timekeeper: Timekeeper
    epochs: Epochs
    directory: Directory


async def build(
    settings: Settings,
    *,
    upstreams: Mapping[Transport, Upstream] | None = None,
    readings: Readings | None = None,
    encode: Encode | None = None,
    obstacle: Callable[[], str] = str,
    worker: Worker | None = None,
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Assembly:
    """The parts of an app. Given upstreams stand in for those that the settings ask for, and ``readings`` for the
    machine's clocks; ``wait`` sleeps for so many seconds of the clock. Raises ConfigError."""
    ours, prices, encode = settings.stratiform, factories.price_map(settings), encode or local_encode()
    models, teams = factories.model_table(settings, prices), [team.name for team in ours.teams]
    served = [models.resolve(name) for name in models.names()]
    metrics = Metrics(served, [DEFAULT_TEAM, *teams], worker.metrics if worker else None)
    state = await _open_state(settings, metrics, readings)
    identity = declared.identity(settings, state.directory, state.store)
    admission = await _open_budgets(settings, state, identity, prices, metrics)
    aside, manager = Aside(), build_plugin_manager()
    planner = _planner(settings, prices, state, encode, metrics, aside, manager)
    rules, prompts = prompting.rules_of(settings, models.spellings), LazyRegistry(settings, manager, metrics, wait)
    await prompts.open(settings, rules)
    used = {**make_upstreams(encode), **(upstreams or {})}
    composer = Composer(rules, prompts.snapshot, metrics, aside)
    windows = _windows(prices, state, encode, planner, aside)
    ports = Ports(models, used, planner, admission, Meter(metrics, prices), state.clock, composer, windows)
    bounds = Bounds(ours.objects.most_per_team, ours.objects.retention_days * 86400.0)
    custody = Custody(state.store, models, state.clock, metrics.store_failed, bounds, aside)
    engine = Engine(
        ports,
        factories.request_rules(settings, prices),
        breakers=Breakers(factories.breaker_policy(settings), metrics.breaker),
        conclusion=(conclusion := Conclusion(ports, custody)),
        follower=_followers(settings, prices, ports, planner, conclusion, metrics, wait),
        custody=custody,
        aside=aside,
    )
    closing = (prompts, admission, state.directory, planner, state.timekeeper, state.epochs)
    parts = Parts(
        engine=engine,
        models=models,
        metrics=metrics,
        obstacle=obstacle,
        faults=partial(faults, admission.store_client, state.epochs, state.directory, ours.budgets.on_store_error),
        on_close=[part.aclose for part in closing],
        admin=_admin(state, identity),
        metrics_key=ours.metrics.secret,
    )
    return Assembly(parts, used, Reload(models, prices, state.directory, composer, prompts))


def _windows(prices: PriceMap, state: _State, encode: Encode, planner: Planning, aside: Aside) -> ContextWindows:
    factors = TokenFactors(planner.state, state.clock.now)
    return ContextWindows(planner.pure.reader, encode, _facts(prices), load_window_texts(), aside, factors)


def _admin(state: _State, identity: Identity) -> AdminEndpoint | None:
    """The administration; None where nobody has a master key."""
    if not identity.has_master:
        return None
    return AdminEndpoint(AdminService(state.directory, state.store, state.clock, state.epochs), identity)


async def _open_state(settings: Settings, metrics: Metrics, readings: Readings | None) -> _State:
    """The store, opened and read for the first time. Raises ConfigError."""
    store = await factories.open_store(settings, is_serving=True)
    clock = SteadyClock(readings, ClockNews(metrics))
    timekeeper = Timekeeper(clock, store, settings.spool_folder if store.is_durable else None)
    await timekeeper.start()
    directory = Directory(declared.declared(settings), store)

    def store_changed(is_exchanged: bool) -> None:
        metrics.store_is_exchanged(is_exchanged)
        if not is_exchanged:
            directory.forget_lost()

    epochs = Epochs(store, factories.epoch_file(settings) if store.is_durable else None, store_changed)
    await epochs.start()
    await directory.load()
    if store.is_durable:
        directory.watch()
    return _State(store, clock, timekeeper, epochs, directory)


async def _open_budgets(
    settings: Settings, state: _State, identity: Identity, prices: PriceMap, metrics: Metrics
) -> BudgetReservations:
    """Who may send requests, what they may spend, and the ledger. What is left of the teams' budgets is read ahead of
    the first request. A store in memory needs no spool: it cannot be away."""
    ours, store, clock = settings.stratiform, state.store, state.clock
    webhook, days = ours.budgets.webhook, ours.ledger.retention_days
    store_client = StoreClient(
        store,
        clock,
        metrics,
        factories.spool_of(settings) if store.is_durable else None,
        keep_entries_s=None if days is None else days * 86400.0,
    )
    secret = webhook.secret.get_secret_value() if webhook is not None and webhook.secret is not None else ""
    reservations = BudgetReservations(
        identity.admit,
        LimitResolver(state.directory, webhook.url.get_secret_value() if webhook is not None else ""),
        store_client,
        BudgetAlerts(store_client, metrics, WebhookSender(secret.encode(), clock, metrics)),
        Estimates(factories.price_source(prices), allows_unknown=ours.budgets.on_unknown_price == "allow"),
        on_store_error=ours.budgets.on_store_error,
        epochs=state.epochs,
    )
    await reservations.start()
    for budget in state.directory.snapshot.budgets.values():
        if budget.scope == "team":
            await reservations.alerts.look(budget.team, [rule_of(budget, "")], state.clock.now())
    metrics.watch_budgets(reservations.alerts.remaining)
    return reservations


def _planner(
    settings: Settings,
    prices: PriceMap,
    state: _State,
    encode: Encode,
    metrics: Metrics,
    aside: Aside,
    manager: pluggy.PluginManager,
) -> Planning:
    ours, store = settings.stratiform, state.store
    room = int(ours.limits.state_mib * (1 << 20))
    pure = TierPlanner(
        quick(encode),
        recognisers(manager, metrics),
        ours.policy,
        PlannerOptions(ours.holdout, ours.routing_keys, ours.steady_tools),
        room,
        prefix=f"{secrets.token_hex(4)}-" if store.is_durable else "s",
    )
    structured = None
    if ours.structured.enabled:
        options, indexer = factories.assembly_options(settings), symbol_indexer(manager)
        words = load_context_texts()
        assembler = ContextAssembler(words, quick(encode), indexer, options)
        facts = _facts(prices)
        texts = _text_store(settings, state, metrics, aside)
        sessions = _session_store(settings, state, metrics, assembler.sessions)
        compactions = None
        if ours.structured.compaction.allowed:
            rules = CompactionRules(factories.compaction_terms(settings), words.compaction)
            changed = sessions.changed if sessions is not None else None
            compactions = Compactions(assembler.sessions, rules, facts, aside, changed)
        structured = StructuredChats(assembler, aside, metrics, texts, facts, compactions, sessions)
    price_of = factories.price_source(prices)
    fingerprints = FingerprintFile(Path(ours.fingerprints_file)) if ours.fingerprints else None
    if not store.is_durable:
        return Planning(pure, None, aside, structured, price_of, fingerprints)
    shared = SharedLayoutStore(store, metrics.store_failed, is_shared=store.is_shared, memory_bytes=room)
    return Planning(pure, shared, aside, structured, price_of, fingerprints)


def _facts(prices: PriceMap) -> ModelFacts:
    return ModelFacts(partial(factories.token_limits, prices), factories.price_source(prices))


def _followers(
    settings: Settings,
    prices: PriceMap,
    ports: Ports,
    planner: Planning,
    conclusion: Conclusion,
    metrics: Metrics,
    wait: Callable[[float], Awaitable[None]],
) -> Followers:
    """What goes on behind the exchanges of clients."""
    found: list[Follower] = []
    price_of, refreshes = factories.price_source(prices), factories.keep_alive_terms(settings)
    if refreshes is not None:
        own = OwnExchanges(ports, conclusion, price_of, refreshes)
        found.append(KeepAlive(refreshes, own, planner.pure, ports.clock, metrics.refreshed, wait))
    terms, compactions = factories.compactor_terms(settings), planner.compactions
    if terms is not None and compactions is not None:
        own = OwnExchanges(ports, conclusion, price_of, terms)
        found.append(Compactor(compactions, own, ports.clock, metrics.compacted))
    return Followers(found)


def _text_store(settings: Settings, state: _State, metrics: Metrics, aside: Aside) -> TextStore | None:
    """What keeps the texts of clients in the store, where the operator asks for it and the store outlives us."""
    ours, store = settings.stratiform, state.store
    if not ours.structured.keep_texts or not store.is_durable:
        return None
    room = int(ours.limits.state_mib * (1 << 20))
    return TextStore(store, state.clock.now, metrics.store_failed, aside, is_shared=store.is_shared, memory_bytes=room)


def _session_store(
    settings: Settings, state: _State, metrics: Metrics, sessions: ContextSessions
) -> SessionStore | None:
    """What keeps conversations with live panels in the store, where it outlives us."""
    ours, store = settings.stratiform, state.store
    if not store.is_durable:
        return None
    return SessionStore(
        sessions,
        store,
        state.clock.now,
        metrics.store_failed,
        is_shared=store.is_shared,
        keeps_texts=ours.structured.keep_texts,
        memory_bytes=int(ours.limits.state_mib * (1 << 20)),
    )


def make_upstreams(encode: Encode) -> dict[Transport, Upstream]:
    """An upstream for each transport. None of them does anything before its first call."""
    return {
        Transport.HTTP: HttpUpstream(),
        Transport.LITELLM: LitellmUpstream(),
        Transport.EMBEDDED: EmbeddedUpstream(encode),
    }
