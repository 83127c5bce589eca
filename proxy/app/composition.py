"""Puts the app together: everything that ``create_app`` needs, from settings.

``LazyRegistry`` reads the prompts of those proxies that compose any. ``Reload`` reads the configuration again while the
proxy runs, when a SIGHUP asks for it. Models, prices, teams, keys, budgets, and the rules for prompts and context
windows are in force from then on. Running requests keep their deployment, and no connection is closed. A file with
mistakes changes nothing. Everything else in the file (the address, the store, limits, workers, folders of prompts ...)
is fixed when the process starts; a change there is named in the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pluggy

from proxy.app import factories, foundation
from proxy.app.admin import AdminService
from proxy.app.admin.litellm_forms import LitellmForms
from proxy.app.foundation import Foundation, State, lay, missing_prompts, rules_of
from proxy.app.settings import ConfigError, Settings, Stratiform
from proxy.app.ui import Gate, UiEndpoint
from proxy.app.web import AdminEndpoint, Parts
from proxy.engine import Bounds, Breakers, Conclusion, Custody, Engine, Ports
from proxy.engine.attempts import Inquiries
from proxy.engine.conclusion import Followers
from proxy.engine.ports import Follower, Upstream
from proxy.engine.telemetry import MetricsMeter
from proxy.engine.telemetry.metrics import Metrics, SharedMetrics
from proxy.kit.clock import Readings
from proxy.kit.tasks import Tasks, cancel, repeat, spawn
from proxy.kit.value import dataclass, field, replace
from proxy.models import Transport
from proxy.models.deployments import ModelTable
from proxy.protocol.prices import PriceMap
from proxy.protocol.request.tokens import Encode
from proxy.services import is_counted_by
from proxy.services.own_exchanges import Compactor, KeepAlive, OwnExchanges
from proxy.services.prompting import PromptComposer, PromptingRules
from proxy.services.session_book import SessionBook, TokenUsage, UsageFollower
from proxy.teams.alerts import LOOK_EVERY_S, BudgetAlerts, WebhookSender
from proxy.teams.authentication import Directory, Identity
from proxy.teams.bookings import LimitResolver, rule_of
from proxy.teams.estimates import Estimates, PromptBounds
from proxy.teams.reservations import BudgetReservations
from proxy.teams.store_client import faults
from proxy.upstream.embedded import EmbeddedUpstream
from proxy.upstream.http import HttpUpstream
from proxy.upstream.litellm_ import LitellmUpstream
from proxy.upstream.litellm_library import Library

if TYPE_CHECKING:
    from proxy.services.prompting.sources import Registry, Snapshot

_TAKEN_OVER = frozenset({"teams", "client_keys", "prices", "mode", "prompts", "window"})
_FIXED = [name for name in Stratiform.model_fields if name not in _TAKEN_OVER]
_PROMPTS = ("folders", "shipped", "look_s")

_log = logging.getLogger("stratiform")


@dataclass(slots=True)
class ConfigSource:
    """The configuration as it was last read without mistakes, and how to read it again."""

    settings: Settings
    read: Callable[[], Settings]

    def reread(self) -> bool:
        """Read the configuration again. Returns whether it can be used. A mistake is logged, and the configuration that
        was read before stays."""
        try:
            settings = self.read()
            _, problems = factories.entries_with(settings)
            if problems:
                raise ConfigError(problems)
        except ConfigError as error:
            _log.error("the configuration is not reloaded: %s", "; ".join(error.problems))
            return False
        # A running process cannot take these changes over.
        before, (ours, new) = self.settings, (self.settings.stratiform, settings.stratiform)
        routing_before, routing_now = (
            replace(one.routing, fallbacks={}, context_window_fallbacks={}, targets=()) for one in (before, settings)
        )
        fixed: list[tuple[str, object, object]] = [
            *((f"stratiform.{one}", getattr(ours, one), getattr(new, one)) for one in _FIXED),
            *((f"stratiform.prompts.{one}", getattr(ours.prompts, one), getattr(new.prompts, one)) for one in _PROMPTS),
            (
                "general_settings.master_key (the admin API is switched on and off at the start)",
                before.master_key is None,
                settings.master_key is None,
            ),
            ("general_settings.allowed_ips", before.allowed_ips, settings.allowed_ips),
            ("router_settings (retries, cooldowns and pre-call checks)", routing_before, routing_now),
        ]
        for what in (what for what, was, is_now in fixed if was != is_now):
            _log.warning("%s has changed: the change takes effect when the proxy is started again", what)
        self.settings = settings
        return True


@dataclass(slots=True)
class LazyRegistry:
    """The prompts in force. Most proxies compose no prompts, so they do not load the template language. ``started`` are
    the settings at the start: the folders stay the same until the process ends."""

    started: Settings
    manager: pluggy.PluginManager
    metrics: Metrics
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    _registry: "Registry | None" = None
    _tasks: Tasks = field(default_factory=set)

    def snapshot(self) -> "Snapshot":
        """The prompts that are in force. The registry was opened before: rules that need it are in force only after
        that."""
        assert self._registry is not None
        return self._registry.snapshot

    async def open(self, settings: Settings, rules: PromptingRules) -> None:
        """Make sure that the prompts which the ``rules`` of these settings compose are read, and that their files are
        watched from then on. Logs a warning for each prompt that the settings name and that does not exist. Raises
        ConfigError."""
        if not rules.may_compose:
            return
        if self._registry is None:
            self._registry = await asyncio.to_thread(self._read)
            spawn(self._registry.watch(self.started.stratiform.prompts.look_s, self.wait), self._tasks)
        for problem in missing_prompts(settings, [prompt.id for prompt in self.snapshot().prompts]):
            _log.warning("%s", problem)

    def _read(self) -> "Registry":
        # The import takes a tenth of the start time, so only proxies that compose prompts do it.
        from proxy.services.prompting.sources import Registry, Sources

        folders, is_shipped = self.started.prompt_folders, self.started.stratiform.prompts.shipped
        return Registry(Sources.of(folders, is_shipped=is_shipped, manager=self.manager), self.metrics)

    async def aclose(self) -> None:
        """Stop watching the files."""
        await cancel(self._tasks)


@dataclass(frozen=True, slots=True)
class Reload:
    """The parts of a running app that follow the configuration."""

    models: ModelTable
    prices: PriceMap
    directory: Directory
    composer: PromptComposer
    prompts: LazyRegistry

    async def run(self, source: ConfigSource) -> bool:
        """Read the configuration again and put it into force. Returns whether that was done."""
        if not await asyncio.to_thread(source.reread):
            return False
        settings = source.settings
        rules = rules_of(settings, self.models.spellings)
        # This comes first: if prompts could not be read, their rules would let requests go without the prompts.
        try:
            await self.prompts.open(settings, rules)
        except ConfigError as error:
            _log.error("the configuration is not reloaded: %s", "; ".join(error.problems))
            return False
        self.prices.override_all(factories.price_overrides(settings))
        self.models.replace(factories.model_table(settings, self.prices))
        self.composer.follow(rules)
        self.directory.declare(foundation.declared(settings))
        now = self.directory.snapshot
        _log.info(
            "the configuration is reloaded: %d models, %d teams, %d keys, %d budgets",
            len(self.models.names()), len(now.teams), len(now.keys), len(now.budgets),
        )  # fmt: skip
        return True


@dataclass(frozen=True, slots=True)
class BuiltApp:
    """An app's parts. ``store`` is the name of the store that is in use. ``litellm`` may be loaded before a call needs
    it. ``reload`` takes over a changed configuration. ``ui`` serves the pages (None: there are no pages). ``watch``
    registers a function that is told what each exchange used."""

    parts: Parts
    store: str
    litellm: Library
    reload: Reload
    ui: UiEndpoint | None
    watch: Callable[[Callable[[Mapping[str, Any]], None]], None]


async def build(
    settings: Settings,
    *,
    upstreams: Mapping[Transport, Upstream] | None = None,
    readings: Readings | None = None,
    encode: Encode | None = None,
    shared: SharedMetrics | None = None,
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> BuiltApp:
    """The parts of an app. Given ``upstreams`` replace those that the settings ask for, and ``readings`` replace the
    machine's clocks. ``wait`` sleeps for the given seconds of the clock. Raises ConfigError."""
    ours, base = settings.stratiform, await lay(settings, readings=readings, encode=encode, shared=shared)
    models, metrics, state, aside = base.models, base.metrics, base.state, base.aside
    identity = foundation.identity(settings, state.directory, state.store)
    admission = await _open_budgets(settings, base, identity)
    breakers = Breakers(settings.routing.breaker, metrics.breaker)
    rules, prompts = rules_of(settings, models.spellings), LazyRegistry(settings, base.manager, metrics, wait)
    await prompts.open(settings, rules)
    litellm = LitellmUpstream()
    own: dict[Transport, Upstream] = {Transport.HTTP: HttpUpstream(), Transport.LITELLM: litellm}
    used = {**own, Transport.EMBEDDED: EmbeddedUpstream(base.encode, tells=True), **(upstreams or {})}
    composer, spans = PromptComposer(rules, prompts.snapshot, metrics, aside), factories.spans_of(settings)
    meter = MetricsMeter(metrics, base.facts.price, spans.record if spans is not None else None)
    custody, book = _custody(settings, base), _session_book(settings, base)
    asks = Inquiries(base.facts.price, aside, ours.limits.state_bytes // 8) if ours.ask_provider_for_cause else None
    reports = TokenUsage(base.facts, aside, book.so_far if book is not None else None)
    ports = Ports(
        models, used, base.planner, admission, meter, state.clock, composer, base.windows(), reports.of, asks, aside
    )
    follower, on_return = _followers(settings, base, ports, conclusion := Conclusion(ports, custody), wait, book)
    limits, store = factories.request_rules(settings), settings.store_name if state.store.is_durable else "memory"
    engine = Engine(
        ports, limits, breakers=breakers, conclusion=conclusion, follower=follower, custody=custody, on_return=on_return
    )
    admin, ui = _admin(settings, state, identity, book)
    parts = Parts(
        engine=engine,
        models=models,
        metrics=metrics,
        obstacle=lambda: litellm.library.obstacle,
        faults=partial(faults, admission.store_client, state.epochs, state.directory, ours.budgets.on_store_error),
        on_close=[prompts.aclose, admission.aclose, *base.closing, *([spans.aclose] if spans is not None else [])],
        admin=admin,
        ui=ui,
        metrics_key=ours.metrics.secret,
        is_failing=breakers.is_failing,
        allowed_ips=settings.allowed_ips,
    )
    reload = Reload(models, base.prices, state.directory, composer, prompts)
    return BuiltApp(parts, store, litellm.library, reload, ui, lambda show: follower.lead(UsageFollower(reports, show)))


def _custody(settings: Settings, base: Foundation) -> Custody:
    objects, state = settings.stratiform.objects, base.state
    bounds = Bounds(objects.most_per_team, objects.retention_days * 86400.0)
    return Custody(state.store, base.models, state.clock, base.metrics.store_failed, bounds, base.aside)


def _session_book(settings: Settings, base: Foundation) -> SessionBook | None:
    """The stored data of live sessions; None if nobody may look at it."""
    if not factories.is_watched(settings):
        return None
    state, ours = base.state, settings.stratiform
    book = SessionBook(
        state.store,
        state.clock.now,
        base.metrics.store_failed,
        base.aside,
        base.facts,
        worker=base.planner.pure.prefix,
        memory_bytes=ours.limits.state_bytes,
    )
    book.keeps_texts = ours.ui.enabled and ours.ui.show_text
    return book


def _admin(
    settings: Settings, state: State, identity: Identity, book: SessionBook | None
) -> tuple[AdminEndpoint | None, UiEndpoint | None]:
    """The administration, None if there is no master key; and its pages, None if nobody may look at them."""
    service = AdminService(state.directory, state.store, state.clock, state.epochs, book)
    admin, ui, ours = None, None, settings.stratiform.ui
    if identity.has_master:
        admin = AdminEndpoint(service, identity, LitellmForms(service, state.directory))
    if ours.enabled and factories.is_watched(settings):
        gate = Gate(identity, state.clock.now, settings.stratiform.host, ours.hosts, ours.session_minutes * 60.0)
        ui = UiEndpoint(service, gate, shows_text=ours.show_text)
    return admin, ui


async def _open_budgets(settings: Settings, base: Foundation, identity: Identity) -> BudgetReservations:
    """The admission of requests, the budgets and the ledger. The remaining amounts of the teams' budgets are read
    before the first request, and again from time to time: other workers spend, and settlements are put off."""
    ours, state, metrics = settings.stratiform, base.state, base.metrics
    clock, bounds = state.clock, PromptBounds(base.encode, base.aside, is_counted_by, ours.limits.state_bytes)
    webhook, store_client = ours.budgets.webhook, base.store_client(settings)
    secret = webhook.secret.get_secret_value() if webhook is not None and webhook.secret is not None else ""
    reservations = BudgetReservations(
        identity.admit,
        LimitResolver(state.directory, webhook.url.get_secret_value() if webhook is not None else ""),
        store_client,
        BudgetAlerts(store_client, metrics, WebhookSender(secret.encode(), clock, metrics)),
        Estimates(base.facts.price, bounds, allows_unknown=ours.budgets.on_unknown_price == "allow"),
        on_store_error=ours.budgets.on_store_error,
        epochs=state.epochs,
    )

    async def look() -> None:
        budgets = [one for one in state.directory.snapshot.budgets.values() if one.scope == "team"]
        await reservations.alerts.look([(one.team, rule_of(one, "")) for one in budgets], clock.now())

    await reservations.start()
    await look()
    spawn(repeat(LOOK_EVERY_S, look), state.loops)
    metrics.remaining = reservations.alerts.remaining
    return reservations


def _followers(
    settings: Settings,
    base: Foundation,
    ports: Ports,
    conclusion: Conclusion,
    wait: Callable[[float], Awaitable[None]],
    book: SessionBook | None,
) -> tuple[Followers, Callable[[str], None] | None]:
    """The work that follows the exchanges of clients, and the part of it that is told of sessions that go on."""
    on_return: Callable[[str], None] | None = None
    found: list[Follower] = [book] if book is not None else []
    ended = book.ended if book is not None else lambda exchange: None
    planner, metrics, price_of = base.planner, base.metrics, base.facts.price
    if (refreshes := factories.keep_alive_terms(settings)) is not None:
        own = OwnExchanges(ports, conclusion, price_of, refreshes)
        kept = KeepAlive(refreshes, own, planner.pure, ports.clock, metrics.refreshed, wait, ended)
        found.append(kept)
        on_return = kept.returned
    costs, compactions = factories.compaction_costs(settings), planner.compactions
    if costs is not None and compactions is not None:
        own = OwnExchanges(ports, conclusion, price_of, costs)
        found.append(Compactor(compactions, own, ports.clock, metrics.compacted))
    return Followers(found), on_return
