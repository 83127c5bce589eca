"""The foundation of every way to serve: the store, the metrics and the planner, made from settings.

The teams, keys and budgets that a configuration declares become records of the directory, and its prompts and context
windows become rules.

Nothing here depends on HTTP. A program with its own server and its own calls to providers, such as a gateway that loads
the planner into its process, builds on this module and on no part of ``proxy.app.web`` and ``proxy.upstream``.
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

import pluggy

from proxy.app import factories
from proxy.app.factories import load_context_texts, load_window_texts
from proxy.app.settings import BudgetEntry, PromptLevel, Settings
from proxy.engine.telemetry.metrics import Metrics, SharedMetrics
from proxy.hookspecs import build_plugin_manager, recognisers, symbol_indexer
from proxy.kit.clock import Readings, SteadyClock
from proxy.kit.messages import join, nearest, shown
from proxy.kit.tasks import Aside, Tasks, cancel, repeat, spawn
from proxy.kit.value import dataclass
from proxy.models.deployments import ModelTable, token_limits
from proxy.planner import TierPlanner
from proxy.planner.plan import PlannerOptions
from proxy.prompts import Allowed, NamesOf, PromptLayer, PromptRules, PromptTerms, layered, only_itself
from proxy.prompts.window import WindowRules
from proxy.protocol.access import matches
from proxy.protocol.prices import PriceMap
from proxy.protocol.request.tokens import Encode, quick
from proxy.services import ModelFacts, local_tokens
from proxy.services.context_assembler import ContextAssembler
from proxy.services.context_sessions import Compactions, SessionStore, TextStore
from proxy.services.layout_state import SharedLayoutStore, TokenFactors
from proxy.services.planner_port import FingerprintFile, Planning, StructuredChats
from proxy.services.prompting import PromptingRules
from proxy.services.windows import ContextWindows
from proxy.storage import BudgetRecord, KeyRecord, Store, TeamRecord
from proxy.storage.sqlite import Spool
from proxy.teams import store_client
from proxy.teams.authentication import DEFAULT_TEAM, POLL_S, Declared, Directory, Identity, declared_id, digest_of
from proxy.teams.store_client import Epochs, StoreClient, ask_time, report_departure
from proxy.teams.validation import nanos


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
    facts = ModelFacts(token_limits, attrgetter("price"))
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
    directory = Directory(declared(settings), store)

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


def declared(settings: Settings) -> Declared:
    """The records of a configuration."""
    ours = settings.stratiform
    return Declared(
        teams=[
            TeamRecord(
                name=team.name,
                mode=team.mode or "",
                models=tuple(team.models),
                requests_per_minute=team.requests_per_minute,
                tokens_per_minute=team.tokens_per_minute,
                forwards_keys=team.client_keys == "forward",
                paths=tuple(team.paths),
            )
            for team in ours.teams
        ],
        keys=[
            KeyRecord(
                id=declared_id(key.digest),
                digest=key.digest,
                team=team.name,
                user=key.user,
                models=tuple(key.models),
                mode=key.mode or "",
                requests_per_minute=key.requests_per_minute,
                tokens_per_minute=key.tokens_per_minute,
                expires_at=key.expires_at,
                note=key.note,
            )
            for team in ours.teams
            for key in team.keys
        ],
        budgets=[
            *(budget_record(budget, team.name) for team in ours.teams for budget in team.all_budgets),
            *([budget_record(settings.budget, DEFAULT_TEAM)] if settings.budget is not None else ()),
        ],
        master_digest=digest_of(settings.master_key.get_secret_value()) if settings.master_key is not None else "",
        forwards_unknown=ours.client_keys == "forward",
        bounds_all=settings.bounds_all,
    )


def identity(settings: Settings, known: Directory, store: Store) -> Identity:
    """The identification of senders of requests. State that outlives this process, or is shared, must find its owner
    again, so the scopes of clients are derived from the configuration. If there is no such state, they are derived from
    a secret of the process."""
    if not (store.is_durable or store.is_shared):
        return Identity(known, secrets.token_bytes(32))
    master = settings.master_key.get_secret_value() if settings.master_key is not None else ""
    return Identity(known, hashlib.sha256(f"stratiform scope\0{master}".encode()).digest())


def budget_record(budget: BudgetEntry, team: str) -> BudgetRecord:
    """A budget of the configuration. Its id keeps it apart from budgets of other teams, and from managed budgets."""
    hard, soft = budget.tokens, budget.soft_tokens
    if budget.unit == "usd":
        hard, soft = (None if usd is None else nanos(usd) for usd in (budget.usd, budget.soft_usd))
    return BudgetRecord(
        id=f"{team}/{budget.given_name}",
        team=team,
        scope=budget.scope,
        subject=budget.subject,
        unit=budget.unit,
        hard=hard,
        soft=soft,
        window=budget.window,
        timezone=budget.timezone,
        assumed_output_tokens=budget.assumed_output_tokens,
        webhook=budget.webhook.get_secret_value() if budget.webhook else "",
    )


def rules_of(settings: Settings, names_of: NamesOf = only_itself) -> PromptingRules:
    """The rules that say which requests get which prompts and which capability profile. ``names_of`` gives the names of
    a model (``ModelTable.spellings``)."""
    prompts, window = settings.stratiform.prompts, settings.stratiform.window
    return PromptingRules(
        PromptRules(
            base=layered(PromptTerms(), _layer(prompts)),
            models={name: _layer(level) for name, level in prompts.models.items()},
            teams={name: _layer(level) for name, level in prompts.teams.items()},
            keys={name: _layer(level) for name, level in prompts.keys.items()},
            names_of=names_of,
        ),
        WindowRules(
            profiles=settings.profiles,
            profile=window.profile,
            models=window.models,
            teams=window.teams,
            keys=window.keys,
            allowed=tuple(window.allowed),
            names_of=names_of,
        ),
    )


def levels_of(settings: Settings) -> Iterator[tuple[str, PromptLevel]]:
    """Every level of the section, with its path."""
    given = settings.stratiform.prompts
    yield "stratiform.prompts", given
    for section, levels in (("models", given.models), ("teams", given.teams), ("keys", given.keys)):
        yield from ((join(f"stratiform.prompts.{section}", name), level) for name, level in levels.items())


def named_prompts(settings: Settings) -> Iterator[tuple[str, str]]:
    """Every place of the configuration that names prompts, with the id or the pattern that it names."""
    for path, level in levels_of(settings):
        yield from ((f"{path}.use[{index}]", pattern) for index, pattern in enumerate(level.use or ()))
        if level.persona:
            yield f"{path}.persona", f"persona:{level.persona}"
    for name, profile in settings.profiles.items():
        if profile.template:
            yield f"stratiform.window.profiles.{name}.template", profile.template


def missing_prompts(settings: Settings, ids: Collection[str]) -> Iterator[str]:
    """A warning for every place of the configuration that names a prompt which is not among ``ids``. Nothing is
    composed for it."""
    for path, pattern in named_prompts(settings):
        if not any(matches(pattern, id_) for id_ in ids):
            close = nearest(pattern, ids) if "*" not in pattern else None
            yield f"{path}: there is no prompt `{shown(pattern)}`" + (f"; did you mean `{close}`?" if close else "")


def _layer(level: PromptLevel) -> PromptLayer:
    given = level.allowed
    return PromptLayer(
        use=None if level.use is None else tuple(level.use),
        persona=level.persona,
        profile=level.profile,
        override=level.override,
        tools=level.tools,
        plugins=level.plugins,
        agents=level.agents,
        context=level.context,  # type: ignore[arg-type]  # checked: values that JSON has
        strict=level.strict,
        on_failure=level.on_failure,
        allowed=None
        if given is None
        else Allowed(
            override=given.override,
            extras=given.extras,
            flags=given.flags,
            personas=tuple(given.personas),
            profiles=tuple(given.profiles),
            context=frozenset(given.context),
        ),
    )
