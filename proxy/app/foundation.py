"""The foundation of every way to serve: the store, the metrics and the planner, made from settings.

Nothing here depends on HTTP. A program with its own server and its own calls to providers, such as a gateway that loads
the planner into its process, builds on this module and on no part of ``proxy.app.web`` and ``proxy.upstream``.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import pluggy

from proxy.app import declared, factories
from proxy.app.factories import load_context_texts, load_window_texts
from proxy.app.settings import Settings
from proxy.engine.telemetry.metrics import Metrics, SharedMetrics
from proxy.kit.clock import Readings, SteadyClock
from proxy.kit.tasks import Aside, Tasks, cancel, repeat, spawn
from proxy.kit.value import dataclass
from proxy.models.deployments import ModelTable
from proxy.planner.plan import PlannerOptions
from proxy.planner.planner import TierPlanner
from proxy.protocol.prices import PriceMap
from proxy.protocol.request.tokens import Encode, quick
from proxy.services.context_assembler import ContextAssembler
from proxy.services.context_sessions import Compactions, SessionStore, TextStore
from proxy.services.layout_state import SharedLayoutStore, TokenFactors
from proxy.services.planner_port import FingerprintFile, Planning, StructuredChats
from proxy.services.plugins import build_plugin_manager, recognisers, symbol_indexer
from proxy.services.tokenizers import ModelFacts, local_tokens
from proxy.services.windows import ContextWindows
from proxy.storage.port import Store
from proxy.storage.sqlite import Spool
from proxy.teams import store_client
from proxy.teams.authentication import DEFAULT_TEAM, POLL_S, Directory
from proxy.teams.store_client import Epochs, StoreClient, ask_time, report_departure


@dataclass(frozen=True, slots=True)
class State:
    """The state that outlives a request: the store, its clock, and the teams, keys and budgets in it. ``loops`` ask the
    store again and again, because another process may change it."""

    store: Store
    clock: SteadyClock
    epochs: Epochs
    directory: Directory
    loops: Tasks


@dataclass(frozen=True, slots=True)
class Foundation:
    """The parts that do not need the proxy's own server."""

    prices: PriceMap
    facts: ModelFacts
    models: ModelTable
    metrics: Metrics
    state: State
    encode: Encode
    aside: Aside
    manager: pluggy.PluginManager
    planner: Planning

    def windows(self) -> ContextWindows:
        """The part that fits requests to the context windows of their models."""
        return ContextWindows(
            self.planner.pure.reader,
            self.encode,
            self.facts,
            load_window_texts(),
            self.aside,
            TokenFactors(self.planner.state, self.state.clock.now),
        )

    def store_client(self, settings: Settings) -> StoreClient:
        """The client that settles into the store. A store in memory needs no spool, because it cannot be away. The
        directory is read every few seconds, so its failures show a worker without requests that the store is away."""
        store, ours = self.state.store, settings.stratiform
        days = ours.ledger.retention_days
        spools: tuple[Spool, ...] = ()
        if store.is_durable:
            # The second spool is for the case that the first one cannot be written at the end.
            spools = (
                Spool(settings.spool_folder, ours.spool_max_mib << 20, fsync=ours.spool_fsync),
                Spool(settings.spool_fallback, fsync=ours.spool_fsync, is_shared=True),
            )
        keep_s = None if days is None else days * 86400.0
        client = StoreClient(store, self.state.clock, self.metrics, spools, keep_entries_s=keep_s)
        self.state.directory.on_failure = partial(client.doubt, "directory")
        return client

    @property
    def closing(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """The functions to call when the parts are no longer used, the last one first. The store is not among them: the
        store client closes it (``proxy.teams.store_client``), or else it is closed separately."""
        return self.planner.aclose, partial(cancel, self.state.loops)


async def lay(
    settings: Settings,
    *,
    readings: Readings | None = None,
    encode: Encode | None = None,
    shared: SharedMetrics | None = None,
) -> Foundation:
    """Open the store and build the planner. ``readings`` replace the machine's clocks. ``shared`` are the metrics of
    several serving processes, of which this is one. Raises ConfigError."""
    prices, encode, aside = factories.price_map(settings), encode or local_tokens, Aside()
    models, teams = factories.model_table(settings, prices), [team.name for team in settings.stratiform.teams]
    served = [models.resolve(name) for name in models.names()]
    metrics = Metrics(served, [DEFAULT_TEAM, *teams], shared)
    state = await _open_state(settings, metrics, readings)
    manager = build_plugin_manager()
    facts = ModelFacts(partial(factories.token_limits, prices), factories.price_source(prices))
    ours, store, room = settings.stratiform, state.store, settings.stratiform.limits.state_bytes
    pure = TierPlanner(
        quick(encode),
        recognisers(manager, metrics),
        ours.policy,
        PlannerOptions(ours.holdout, ours.routing_keys, ours.steady_tools, prices_mark=factories.is_watched(settings)),
        room,
        prefix=f"{secrets.token_hex(4)}-" if store.is_durable else "s",
    )
    structured = _structured(settings, facts, state, encode, metrics, aside, manager)
    fingerprints = FingerprintFile(Path(ours.fingerprints_file)) if ours.fingerprints else None
    layouts = (
        SharedLayoutStore(store, metrics.store_failed, is_shared=store.is_shared, memory_bytes=room)
        if store.is_durable
        else None
    )
    planner = Planning(pure, layouts, aside, structured, facts.price, fingerprints)
    return Foundation(prices, facts, models, metrics, state, encode, aside, manager, planner)


async def _open_state(settings: Settings, metrics: Metrics, readings: Readings | None) -> State:
    """The store, opened and read for the first time. Raises ConfigError."""
    store = await factories.open_store(settings, is_serving=True)
    clock = SteadyClock(readings, partial(report_departure, metrics))
    await ask_time(clock, store)
    directory = Directory(declared.declared(settings), store)

    def store_changed(is_exchanged: bool) -> None:
        metrics.store_is_exchanged(is_exchanged)
        if not is_exchanged:
            directory.forget_lost()

    epochs = Epochs(store, factories.epoch_file(settings) if store.is_durable else None, store_changed)
    await epochs.start()
    await directory.load()
    loops: Tasks = set()
    spawn(repeat(store_client.TIME_EVERY_S, partial(ask_time, clock, store)), loops)
    if store.is_durable:
        spawn(repeat(store_client.EPOCH_EVERY_S, epochs.look), loops)
        spawn(repeat(POLL_S, directory.load), loops)
    return State(store, clock, epochs, directory, loops)


def _structured(
    settings: Settings,
    facts: ModelFacts,
    state: State,
    encode: Encode,
    metrics: Metrics,
    aside: Aside,
    manager: pluggy.PluginManager,
) -> StructuredChats | None:
    """The assembler of structured context. A store that outlives the process keeps conversations with live panels, and
    also clients' texts if the operator asks for it."""
    ours, store, now, failed = settings.stratiform, state.store, state.clock.now, metrics.store_failed
    given, room, is_shared = ours.structured, ours.limits.state_bytes, store.is_shared
    if not given.enabled:
        return None
    words, options = load_context_texts(), factories.assembly_options(settings)
    assembler = ContextAssembler(words, quick(encode), symbol_indexer(manager), options)
    texts = sessions = compactions = None
    if store.is_durable:
        sessions = SessionStore(
            assembler.sessions, store, now, failed,
            is_shared=is_shared, keeps_texts=given.keep_texts, memory_bytes=room,
        )  # fmt: skip
        if given.keep_texts:
            texts = TextStore(store, now, failed, aside, is_shared=is_shared, memory_bytes=room)
    if given.compaction.allowed:
        changed = sessions.changed if sessions is not None else None
        compactions = Compactions(assembler.sessions, options.compaction, words.compaction, facts, aside, changed)
    return StructuredChats(assembler, aside, metrics, texts, facts, compactions, sessions)
